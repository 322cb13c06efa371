"""Which features a graph classifier relies on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import check_scoring
from sklearn.utils import Bunch, check_random_state

from sktifa.checks import check_count
from sktifa.graph import Graph, as_graph
from sktifa.graph.features import as_dense

__all__ = ["permutation_importance"]


def permutation_importance(
    model: Any,
    graph: Graph,
    y: ArrayLike,
    *,
    scoring: str | Callable[..., float] | None = None,
    n_repeats: int = 5,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    """Measure how much the score falls when a feature is shuffled among the nodes.

    What :func:`sklearn.inspection.permutation_importance` does for rows of an array:
    the edges stay, and one column of features is dealt out anew among all nodes of the
    graph. Each column and repeat takes one prediction.

    Parameters
    ----------
    model : estimator
        A fitted graph classifier, or a pipeline that ends in one.
    graph : Graph
        A graph, or the selection of its nodes that are scored.
    y : array-like of shape (len(graph),)
        Their labels.
    scoring : str, callable or None, default=None
        As everywhere in scikit-learn; None takes the model's `score`.
    n_repeats : int, default=5
        How often each column is shuffled.
    random_state : int, RandomState instance or None, default=None
        Shuffles.

    Returns
    -------
    Bunch
        `importances`, of shape (n_features, n_repeats), the falls of the score;
        `importances_mean` and `importances_std`, of shape (n_features,).

    Raises
    ------
    ParameterError
        If `n_repeats` is not an integer of at least 1.

    Notes
    -----
    A feature that others can stand in for, on the node itself or on its neighbours,
    has a low importance though the model uses it.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa import GNNClassifier, make_block_graph
    >>> from sktifa.inspection import permutation_importance
    >>> blocks = make_block_graph(90, 3, random_state=0)
    >>> noise = np.zeros((90, 1))
    >>> features = np.hstack([blocks.graph.features, noise])
    >>> graph = blocks.graph.with_features(features)
    >>> model = GNNClassifier(max_iter=30, random_state=0, device="cpu")
    >>> _ = model.fit(graph[::2], blocks.target[::2])
    >>> found = permutation_importance(model, graph, blocks.target, random_state=0)
    >>> float(found.importances_mean[-1])
    0.0
    """
    check_count(n_repeats, "n_repeats", low=1)
    graph = as_graph(graph)
    scorer = check_scoring(model, scoring)
    rng = check_random_state(random_state)
    columns = _Columns(graph.features)
    baseline = scorer(model, graph, y)
    scores = np.full((graph.n_features, n_repeats), baseline)
    for column in range(graph.n_features):
        for repeat in range(n_repeats):
            order = rng.permutation(graph.n_nodes)
            if columns.is_constant(column):
                continue
            shuffled = graph.with_features(
                columns.shuffled(column, order), graph.feature_names
            )
            scores[column, repeat] = scorer(model, shuffled, y)
    importances = baseline - scores
    return Bunch(
        importances_mean=importances.mean(axis=1),
        importances_std=importances.std(axis=1),
        importances=importances,
    )


class _Columns:
    """Features whose columns can be shuffled one at a time."""

    def __init__(self, features: NDArray[np.float32] | sp.csr_array) -> None:
        self.is_sparse = sp.issparse(features)
        self.matrix = sp.csc_array(features) if self.is_sparse else features

    def is_constant(self, column: int) -> bool:
        values = as_dense(self.matrix[:, [column]])
        return bool((values == values[0]).all())

    def shuffled(self, column: int, order: NDArray[np.int64]) -> Any:
        """Return all features, those of a column as node `order[i]`'s at node i."""
        if not self.is_sparse:
            shuffled = np.array(self.matrix)
            shuffled[:, column] = self.matrix[order, column]
            return shuffled
        start, stop = self.matrix.indptr[column : column + 2]
        indices = self.matrix.indices.copy()
        place = np.argsort(order)
        indices[start:stop] = place[indices[start:stop]]
        moved = sp.csc_array(
            (self.matrix.data, indices, self.matrix.indptr), shape=self.matrix.shape
        )
        shuffled = sp.csr_array(moved)
        shuffled.sort_indices()
        return shuffled
