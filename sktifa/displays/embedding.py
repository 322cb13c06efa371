"""Nodes by their embedding, coloured by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sktifa.checks import check_count
from sktifa.displays.style import OneAxesDisplay, legend_beside, looks
from sktifa.exceptions import ParameterError
from sktifa.labels import encode_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EmbeddingDisplay"]

Method = Literal["pca", "tsne"]


class EmbeddingDisplay(OneAxesDisplay):
    """Nodes by the two main directions of their embedding, coloured by class.

    Parameters
    ----------
    positions : ndarray of float, shape (n, 2)
        Where each node is drawn.
    y : ndarray of shape (n,)
        Its class.
    method : {"pca", "tsne"}, default="pca"
        How positions were found; names the axes.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn, after `plot`.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.displays import EmbeddingDisplay
    >>> embedding = np.random.default_rng(0).normal(size=(10, 5))
    >>> EmbeddingDisplay.from_embedding(embedding, ["a", "b"] * 5).positions.shape
    (10, 2)
    """

    width, height = 6.0, 4.5

    def __init__(
        self, positions: NDArray[np.floating], y: NDArray[Any], method: Method = "pca"
    ) -> None:
        self.positions, self.y, self.method = positions, y, method

    @classmethod
    def from_embedding(
        cls,
        embedding: ArrayLike,
        y: ArrayLike,
        *,
        method: Method = "pca",
        max_nodes: int = 2000,
        missing_label: int | float | str | None = -1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> EmbeddingDisplay:
        """Bring an embedding down to two dimensions.

        Parameters
        ----------
        embedding : array-like of shape (n, n_dimensions)
            Of each node.
        y : array-like of shape (n,)
            Classes; nodes without one are left out.
        method : {"pca", "tsne"}, default="pca"
            "pca" keeps distances as they are, "tsne" keeps neighbours together and
            takes longer.
        max_nodes : int, default=2000
            Of more nodes as many are drawn, at random.
        missing_label : int, float, str or None, default=-1
            Marks nodes without a class.
        random_state : int, RandomState or None, default=0
            Draws them; starts t-SNE.

        Returns
        -------
        EmbeddingDisplay

        Raises
        ------
        ParameterError
            If `method` is another, or `embedding` has another length.
        """
        if method not in ("pca", "tsne"):
            raise ParameterError(f"method must be 'pca' or 'tsne', got {method!r}.")
        codes, classes = encode_labels(y, missing_label)
        matrix = np.asarray(embedding)
        if matrix.ndim != 2 or len(matrix) != len(codes):
            raise ParameterError(
                f"embedding must have a row for each of the {len(codes)} labels, got "
                f"shape {matrix.shape}."
            )
        max_nodes = check_count(max_nodes, "max_nodes", low=1)
        rng = check_random_state(random_state)
        chosen = np.flatnonzero(codes >= 0)
        if len(chosen) > max_nodes:
            chosen = np.sort(rng.choice(chosen, max_nodes, replace=False))
        matrix = matrix[chosen]
        if method == "pca":
            pca = PCA(min(2, *matrix.shape), random_state=rng)
            positions = pca.fit_transform(matrix)
        else:
            perplexity = min(30.0, (len(matrix) - 1) / 3)
            tsne = TSNE(perplexity=perplexity, random_state=rng)
            positions = tsne.fit_transform(matrix)
        if positions.shape[1] == 1:
            positions = np.hstack([positions, np.zeros_like(positions)])
        return cls(positions, classes[codes[chosen]], method)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        method: Method = "pca",
        max_nodes: int = 2000,
        missing_label: int | float | str | None = -1,
        random_state: int | np.random.RandomState | None = 0,
    ) -> EmbeddingDisplay:
        """Let a fitted classifier embed the nodes.

        Parameters
        ----------
        estimator : GNNClassifier or TIFAGCLClassifier
            Fitted. Anything with `embed` or `transform` will do.
        X : Graph or array-like of shape (n, n_features)
            The nodes.
        y : array-like of shape (n,)
            Classes; nodes without one are left out.
        method, max_nodes, missing_label, random_state
            As in `from_embedding`.

        Returns
        -------
        EmbeddingDisplay

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ParameterError
            If it can't embed nodes.
        """
        check_is_fitted(estimator)
        embed = getattr(estimator, "embed", getattr(estimator, "transform", None))
        if embed is None:
            raise ParameterError(
                f"{type(estimator).__name__} has neither embed nor transform: give a "
                "classifier of this package, or from_embedding an array."
            )
        return cls.from_embedding(
            embed(X),
            y,
            method=method,
            max_nodes=max_nodes,
            missing_label=missing_label,
            random_state=random_state,
        )

    def _draw(self, ax: Axes) -> None:
        """Draw a dot for each node; a few that lie far out may be left outside."""
        classes = np.unique(self.y)
        size = float(np.clip(8000 / max(len(self.y), 1), 5, 30))
        for label, (colour, marker) in zip(
            classes.tolist(), looks(len(classes)), strict=True
        ):
            x, y = self.positions[self.y == label].T
            look: dict[str, Any] = {"marker": marker, "alpha": 0.6, "lw": 0}
            ax.scatter(x, y, size, colour, label=str(label), **look)
        name = {"pca": "principal component", "tsne": "t-SNE dimension"}[self.method]
        low, high = _frame(self.positions)
        ax.set(
            xlabel=f"{name} 1",
            ylabel=f"{name} 2",
            xticks=[],
            yticks=[],
            xlim=(low[0], high[0]),
            ylim=(low[1], high[1]),
        )
        legend_beside(ax, title="class", markerscale=2)


def _frame(
    positions: NDArray[np.floating],
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Find limits that show all nodes but those that would squeeze the others."""
    low, high = np.quantile(positions, [0.005, 0.995], axis=0)
    margin = 0.3 * (high - low)
    low = np.maximum(low - margin, positions.min(axis=0))
    high = np.minimum(high + margin, positions.max(axis=0))
    rim = 0.04 * (high - low) + 1e-9
    return low - rim, high + rim
