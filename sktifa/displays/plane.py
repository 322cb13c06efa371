"""Right and wrong on the plane of intensity and clarity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sktifa.diagnostics import correctness
from sktifa.displays.information import informed, name_plane
from sktifa.displays.style import BLUE, ORANGE, OneAxesDisplay, legend_beside
from sktifa.information.loss_weights import tie_averaged_ranks
from sktifa.information.tig import clarity, intensity
from sktifa.labels import encode_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["InformationPlaneDisplay"]


class InformationPlaneDisplay(OneAxesDisplay):
    """Nodes by rank of intensity and of clarity, right and wrong (figure 1a).

    At the origin much and clear information arrives; classifiers err more the further
    out a node lies. Nodes that no label reaches are left out.

    Parameters
    ----------
    intensity_rank, clarity_rank : ndarray of float64, shape (n,)
        Share of the nodes to which more, or clearer, information arrives; NaN where
        none does.
    correct : ndarray of bool, shape (n,)
        Whether each node was classified correctly.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

    See Also
    --------
    RadialDecayDisplay : The same counted in cells.

    Examples
    --------
    >>> from sktifa.displays import InformationPlaneDisplay
    >>> information = [[0.4, 0.0], [0.3, 0.2], [0.1, 0.05]]
    >>> display = InformationPlaneDisplay.from_predictions(
    ...     information, ["a", "a", "b"], ["a", "a", "a"]
    ... )
    >>> display.intensity_rank.round(2), display.clarity_rank.round(2)
    (array([0.  , 0.33, 0.67]), array([0.  , 0.67, 0.33]))
    """

    width, height = 6.0, 4.5

    def __init__(
        self,
        intensity_rank: NDArray[np.float64],
        clarity_rank: NDArray[np.float64],
        correct: NDArray[np.bool_],
    ) -> None:
        self.intensity_rank = intensity_rank
        self.clarity_rank = clarity_rank
        self.correct = correct

    @classmethod
    def from_predictions(
        cls,
        information: ArrayLike,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        missing_label: int | float | str | None = -1,
    ) -> InformationPlaneDisplay:
        """Place nodes by what reaches them.

        Parameters
        ----------
        information : array-like of shape (n, n_classes)
            What reaches each node, from
            :func:`~sktifa.information.tig.annotated_information` (paper: Z*).
        y_true, y_pred : array-like of shape (n,)
            Labels, of which nodes without one are left out, and predicted labels.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a label.

        Returns
        -------
        InformationPlaneDisplay
        """
        known = encode_labels(y_true, missing_label)[0] >= 0
        information = np.asarray(information)[known]
        reached = information.max(axis=1) > 0
        ranks = np.full((2, len(information)), np.nan)
        for rank, measure in zip(ranks, (intensity, clarity), strict=True):
            values = -measure(information[reached])
            rank[reached] = tie_averaged_ranks(values) / max(len(values), 1)
        return cls(ranks[0], ranks[1], correctness(y_true, y_pred)[known])

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        labeled: ArrayLike,
        missing_label: int | float | str | None = -1,
    ) -> InformationPlaneDisplay:
        """Let a fitted classifier predict the nodes that it did not learn from.

        Parameters
        ----------
        estimator : classifier
            Fitted.
        X : Graph
            The graph or a selection of it.
        y : array-like of shape (len(X),)
            Labels of the (selected) nodes, all that are known.
        labeled : array-like of int or bool
            The positions in `X`, or a mask, of the nodes whose labels training saw:
            what reaches a node comes from them. They are not drawn.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a label.

        Returns
        -------
        InformationPlaneDisplay
        """
        alpha = getattr(estimator, "restart_probability", 0.15)
        graph, y, information, rest = informed(X, y, labeled, missing_label, alpha)
        return cls.from_predictions(
            information[rest],
            y[rest],
            np.asarray(estimator.predict(graph))[rest],
            missing_label=missing_label,
        )

    def _draw(self, ax: Axes) -> None:
        """Draw a dot for each node."""
        # Fewer than some hundred nodes want larger dots.
        size = float(np.clip(12_000 / max(len(self.correct), 1), 5, 30))
        x, y = 100 * self.intensity_rank, 100 * self.clarity_rank
        kinds = ((True, "right", BLUE, "o", 0.45), (False, "wrong", ORANGE, "^", 0.8))
        for right, name, colour, marker, alpha in kinds:
            at = self.correct == right
            label = f"{name} ({np.count_nonzero(at):,})"
            look: dict[str, Any] = {"marker": marker, "alpha": alpha, "lw": 0}
            dots = size if right else 2 * size
            ax.scatter(x[at], y[at], dots, colour, label=label, **look)
        ax.set(xlim=(-2, 102), ylim=(-2, 102))
        name_plane(ax)
        legend_beside(ax, markerscale=2)
