"""The graph drawn, coloured by the information that arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from sktifa.checks import check_positions
from sktifa.displays.layout import spring_layout
from sktifa.displays.style import GREY, ORANGE, OneAxesDisplay
from sktifa.exceptions import ParameterError
from sktifa.graph import Graph, as_graph
from sktifa.information.loss_weights import tie_averaged_ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["GainMapDisplay"]


class GainMapDisplay(OneAxesDisplay):
    """The drawn graph, each node coloured by the rank of its information gain.

    Parameters
    ----------
    graph : Graph
        The whole graph is drawn. One of more than some ten thousand nodes shows
        little: cut out a part with ``graph.subgraph(nodes)``.
    gain : ndarray of float64, shape (graph.n_nodes,)
        Information gain of each node (paper: T).
    positions : ndarray of float, shape (graph.n_nodes, 2)
        Where each node is drawn.
    labeled : ndarray of bool, shape (graph.n_nodes,), default=None
        Nodes whose labels training saw, drawn as stars.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.datasets import make_block_graph
    >>> from sktifa.displays import GainMapDisplay
    >>> graph = make_block_graph(60, 2, random_state=0).graph
    >>> display = GainMapDisplay.from_gain(graph, np.arange(60), labeled=[3, 5])
    >>> display.positions.shape
    (60, 2)
    """

    width, height = 7.0, 6.0

    def __init__(
        self,
        graph: Graph,
        gain: NDArray[np.float64],
        positions: NDArray[np.floating],
        labeled: NDArray[np.bool_] | None = None,
    ) -> None:
        self.graph, self.gain = graph, gain
        self.positions, self.labeled = positions, labeled

    @classmethod
    def from_gain(
        cls,
        graph: Graph,
        gain: ArrayLike,
        *,
        labeled: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> GainMapDisplay:
        """Place the nodes of a graph.

        Parameters
        ----------
        graph : Graph
            The whole graph is drawn.
        gain : array-like of shape (graph.n_nodes,)
            Information gain of every node of the whole graph.
        labeled : array-like of int or bool, default=None
            Nodes of the whole graph, or a mask, whose labels training saw.
        positions : array-like of shape (graph.n_nodes, 2), default=None
            Where to draw each node. None lets springs find it.
        random_state : int, RandomState or None, default=0
            Starts the springs.

        Returns
        -------
        GainMapDisplay

        Raises
        ------
        ParameterError
            If `gain` or `positions` don't fit the graph.
        NodeIndexError
            If `labeled` is neither a mask nor positions.
        """
        graph = as_graph(graph)
        values = np.asarray(gain, dtype=np.float64)
        if values.shape != (graph.n_nodes,):
            raise ParameterError(
                f"gain must have one entry for each of the graph's {graph.n_nodes} "
                f"nodes, got shape {values.shape}."
            )
        if positions is None:
            placed = spring_layout(graph, random_state)
        else:
            placed = np.asarray(positions)
            if placed.shape != (graph.n_nodes, 2):
                raise ParameterError(
                    f"positions must have shape ({graph.n_nodes}, 2), got "
                    f"{placed.shape}."
                )
        mask = None
        if labeled is not None:
            mask = np.zeros(graph.n_nodes, dtype=bool)
            mask[check_positions(np.asarray(labeled), graph.n_nodes)] = True
        return cls(graph, values, placed, mask)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        labeled: ArrayLike | None = None,
        positions: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> GainMapDisplay:
        """Take the gain from a fitted classifier.

        Parameters
        ----------
        estimator : TIFAGCLClassifier or LabelPropagationTIG
            Fitted on the graph.
        X : Graph
            That graph.
        labeled, positions, random_state
            As in `from_gain`.

        Returns
        -------
        GainMapDisplay

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If it has no gain.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "gain_"):
            raise ParameterError(
                f"{type(estimator).__name__} has no gain_: give a TIFAGCLClassifier or "
                "LabelPropagationTIG, or from_gain an array."
            )
        return cls.from_gain(
            X,
            estimator.gain_,
            labeled=labeled,
            positions=positions,
            random_state=random_state,
        )

    def _draw(self, ax: Axes) -> None:
        """Draw edges and nodes."""
        from matplotlib.collections import LineCollection

        n = self.graph.n_nodes
        row, col = sparse.triu(self.graph.adjacency).tocoo().coords
        lines = list(np.stack([self.positions[row], self.positions[col]], axis=1))
        faint = float(np.clip(1500 / max(len(row), 1), 0.08, 0.6))
        ax.add_collection(
            LineCollection(lines, colors=GREY, linewidths=0.5, alpha=faint, zorder=1)
        )
        size = float(np.clip(20_000 / n, 4, 120))
        reached = np.nan_to_num(self.gain) > 0
        share = np.full(n, np.nan)
        if reached.any():
            share[reached] = tie_averaged_ranks(self.gain[reached]) / reached.sum()
        mask = np.zeros(n, dtype=bool) if self.labeled is None else self.labeled
        plain = reached & ~mask
        x, y = self.positions.T
        dots = ax.scatter(
            x[plain], y[plain], size, share[plain], cmap="viridis", vmin=0, vmax=1, lw=0
        )
        ax.figure.colorbar(dots, ax=ax, label="rank of information gain (1: most)")
        if not reached.all():
            rest = x[~reached], y[~reached]
            ax.scatter(*rest, size, "white", ec="black", lw=0.4, label="none arrives")
        if mask.any():
            star: dict[str, Any] = {"marker": "*", "label": "label of training"}
            ax.scatter(x[mask], y[mask], 5 * size, ORANGE, ec="white", lw=0.4, **star)
        if mask.any() or not reached.all():
            ax.legend(loc="upper left", bbox_to_anchor=(0, 0), ncols=2, frameon=False)
        ax.set(aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
