"""Whatever is at hand, taken for a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from sktifa.checks import check_rows
from sktifa.exceptions import GraphError
from sktifa.graph.container import Graph
from sktifa.graph.features import warn_of_lost

__all__ = ["as_graph", "is_feature_matrix", "validated"]


def as_graph(X: Any, *, n_neighbors: int = 15) -> Graph:
    """Make a graph of whatever is at hand.

    Parameters
    ----------
    X : Graph, torch_geometric Data, networkx graph, or feature matrix
        A graph is returned as it is. A feature matrix (array-like, sparse or
        DataFrame) becomes a nearest-neighbour graph of its rows.
    n_neighbors : int, default=15
        Neighbours of each row of a feature matrix.

    Returns
    -------
    Graph

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.graph import as_graph
    >>> as_graph(np.eye(4), n_neighbors=1).n_nodes
    4
    """
    if isinstance(X, Graph):
        return X
    if _is_of_networkx(X):
        return Graph.from_networkx(X)
    if _is_of_pyg(X):
        return Graph.from_pyg(X)
    if X is None or isinstance(X, (str, bytes, Mapping)):
        raise GraphError(
            f"{type(X).__name__} is no graph: give a sktifa.Graph, one of "
            "torch_geometric or networkx, or a matrix of features"
        )
    return Graph.from_features(check_rows(X), n_neighbors=n_neighbors)


def is_feature_matrix(X: Any) -> bool:
    """Tell a feature matrix from anything that `as_graph` takes for a graph."""
    return not (isinstance(X, Graph) or _is_of_networkx(X) or _is_of_pyg(X))


def validated(estimator: Any, X: Any, *, reset: bool = True) -> Any:
    """Check what an estimator is given: rows as float32, dense or CSR, else a graph.

    With `reset` it takes note of the features' number and names, as in a fit.
    """
    if is_feature_matrix(X):
        rows = validate_data(
            estimator, check_rows(X), accept_sparse="csr", dtype=np.float32, reset=reset
        )
        if reset:  # in a few rows a small value says nothing of its column
            warn_of_lost(X, rows)
        return rows
    graph = as_graph(X)
    if reset:
        estimator.n_features_in_ = graph.n_features
        estimator.__dict__.pop("feature_names_in_", None)
        if graph.feature_names is not None:
            estimator.feature_names_in_ = np.array(graph.feature_names, dtype=object)
    return graph


def _is_of_networkx(X: Any) -> bool:
    return hasattr(X, "is_multigraph") and hasattr(X, "edges")


def _is_of_pyg(X: Any) -> bool:
    return hasattr(X, "edge_index") or hasattr(X, "edge_index_dict")
