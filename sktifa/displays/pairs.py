"""How well label distance finds nodes of one class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sktifa.diagnostics import PairQuality, pair_quality
from sktifa.displays.information import informed
from sktifa.displays.style import BLUE, GREY, ORANGE, OneAxesDisplay, legend_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PairQualityDisplay"]


class PairQualityDisplay(OneAxesDisplay):
    """Share of pairs of one class by rank of their label distance (figure 2).

    Parameters
    ----------
    quality : PairQuality
        From :func:`~sktifa.diagnostics.pair_quality`.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

    Examples
    --------
    >>> from sktifa.datasets import make_block_graph
    >>> from sktifa.displays import PairQualityDisplay
    >>> made = make_block_graph(200, 2, random_state=0)
    >>> display = PairQualityDisplay.from_graph(
    ...     made.graph, made.target, labeled=range(20), n_bins=4
    ... )
    >>> shares = display.quality.same_class
    >>> bool(shares[0] > display.quality.overall > shares[-1])
    True
    """

    def __init__(self, quality: PairQuality) -> None:
        self.quality = quality

    @classmethod
    def from_graph(
        cls,
        X: Any,
        y: ArrayLike,
        *,
        labeled: ArrayLike,
        n_bins: int = 20,
        missing_label: int | float | str | None = -1,
    ) -> PairQualityDisplay:
        """Rank pairs by what reaches them from the labels that training saw.

        Parameters
        ----------
        X : Graph
            The graph or a selection of it.
        y : array-like of shape (len(X),)
            Labels of the (selected) nodes, all that are known.
        labeled : array-like of int or bool
            The positions in `X`, or a mask, of the nodes whose labels training saw.
        n_bins : int, default=20
            Bins of ranks.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a label.

        Returns
        -------
        PairQualityDisplay
        """
        graph, y, information, _ = informed(X, y, labeled, missing_label)
        return cls(
            pair_quality(
                graph, y, information, n_bins=n_bins, missing_label=missing_label
            )
        )

    def _draw(self, ax: Axes) -> None:
        """Draw a bar for each bin, and what edges and chance give."""
        shares, n_bins = self.quality.same_class, len(self.quality.same_class)
        bars: dict[str, Any] = {"color": BLUE, "label": "by label distance"}
        ax.bar(np.arange(n_bins) / n_bins, shares, 0.9 / n_bins, align="edge", **bars)
        ax.axhline(self.quality.neighbors, color=ORANGE, label="pairs with an edge")
        ax.axhline(self.quality.overall, color=GREY, ls="--", label="all pairs")
        ax.set(
            xlabel="rank of label distance (0: nearest)",
            ylabel="share of pairs of one class",
            xlim=(0, 1),
            ylim=(0, 1),
        )
        legend_beside(ax)
