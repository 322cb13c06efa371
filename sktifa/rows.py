"""Plain arrays as graphs: each row is a node beside its nearest neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from sktifa.graph import Graph, as_graph

__all__ = ["RowGraph"]


class RowGraph:
    """The nearest-neighbour graph of an array's rows, of these classes and weights.

    Rows that are equal in features and label are one node with their summed weight, and
    rows of weight zero are none: otherwise copies of a row would be each other's only
    neighbours, and a weight would not be a number of copies. `node_of_row` is -1 for a
    row without weight.
    """

    def __init__(
        self,
        X: NDArray[np.float32] | sparse.csr_array,
        codes: NDArray[np.int64],
        weight: NDArray[np.float64],
        n_neighbors: int,
    ) -> None:
        first, number_of_row = _distinct_rows(X, codes)
        total = np.bincount(number_of_row, weights=weight).astype(np.float64)
        kept = total > 0
        node = np.where(kept, np.cumsum(kept) - 1, -1)
        first = first[kept]
        self.node_of_row = node[number_of_row]
        self.graph = as_graph(X[first], n_neighbors=n_neighbors)
        self.codes, self.weight = codes[first], total[kept]
        self._neighbors = NearestNeighbors(
            n_neighbors=min(n_neighbors, len(first))
        ).fit(X[first])

    def with_new_rows(self, X: NDArray[np.float32] | sparse.csr_array) -> Graph:
        """Append rows, which look at the graph, and it not at them; select them."""
        known, n_new = self.graph, X.shape[0]
        if sparse.issparse(known.features):
            X = sparse.csr_array(X)
        elif sparse.issparse(X):
            X = X.toarray()
        nearest = self._neighbors.kneighbors(X, return_distance=False)
        n, k = known.n_nodes, nearest.shape[1]
        arcs = sparse.csr_array(
            (
                np.ones(nearest.size, dtype=np.float32),
                nearest.ravel(),
                np.arange(0, nearest.size + 1, k),
            ),
            shape=(n_new, n + n_new),
        )
        top = known.adjacency.copy()
        top.resize(n, n + n_new)
        adjacency = sparse.csr_array(sparse.vstack([top, arcs], format="csr"))
        if sparse.issparse(known.features):
            features = sparse.csr_array(
                sparse.vstack([known.features, X], format="csr")
            )
        else:
            features = np.vstack([known.features, X])
        return Graph.from_clean(adjacency, features)[np.arange(n, n + n_new)]


def _distinct_rows(
    X: NDArray[np.float32] | sparse.csr_array, codes: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each distinct (row, label), and each row's number."""
    if sparse.issparse(X):
        X.sum_duplicates()
        parts = zip(
            np.split(X.indices, X.indptr[1:-1]),
            np.split(X.data, X.indptr[1:-1]),
            codes,
            strict=True,
        )
        keys = np.array(
            [
                b"".join((i.tobytes(), v.tobytes(), c.tobytes())).hex()
                for i, v, c in parts
            ]
        )
    else:
        joined = np.column_stack([X.astype(np.float64), codes])
        keys = np.ascontiguousarray(joined).view(f"V{joined.shape[1] * 8}").ravel()
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return first, number
