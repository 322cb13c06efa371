"""Checks of weights and edges, and the adjacency made of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from sktifa.callers import warn_user
from sktifa.checks import (
    as_array,
    as_numbers,
    check_count,
    check_sparse,
    is_sparse,
    place_of,
)
from sktifa.exceptions import (
    GraphError,
    GraphWarning,
    NotEnoughMemoryError,
    ParameterError,
)
from sktifa.graph.names import called, plural

__all__ = [
    "Directed",
    "adjacency_of_edges",
    "as_float32",
    "clean_adjacency",
    "with_values",
]

Directed = Literal["symmetrize", "error"]

_GOOD_WEIGHTS = (
    "weights must be finite, not negative and, if not 0, at least 1.2e-38 (in float32)"
)


def clean_adjacency(
    adjacency: ArrayLike | sp.sparray | sp.spmatrix, directed: Directed, node_names: Any
) -> sp.csr_array:
    """Bring an adjacency into the form that `Graph.adjacency` promises."""
    if directed not in ("symmetrize", "error"):
        raise ParameterError(
            f"directed must be 'symmetrize' or 'error', got {directed!r}"
        )
    if is_sparse(adjacency):
        given = check_sparse(
            adjacency, "adjacency", duplicates="keep", finite=False, dtype=None
        )
    else:
        dense = as_numbers(adjacency, "adjacency")
        if dense.ndim != 2:
            raise _not_square(dense.shape)
        # SciPy has no sparse matrices of float16.
        given = sp.csr_array(dense if dense.itemsize > 2 else as_float32(dense))
    if given.shape[0] != given.shape[1]:
        raise _not_square(given.shape)
    n = given.shape[0]
    if n == 0:
        raise GraphError("a graph needs at least one node, got none")
    weight = as_float32(given.data)
    csr = with_values(given, weight)
    bad = _bad_weights(given.data, weight)
    if bad.any():
        at = int(bad.argmax())
        begin, end = (called(node, node_names) for node in place_of(csr, at))
        raise GraphError(
            f"the edge from node {begin} to node {end} has weight "
            f"{given.data[at]}: {_GOOD_WEIGHTS}"
        )
    if not weight.sum(dtype=np.float64) <= np.finfo(np.float32).max:
        raise GraphError(
            "the weights sum to more than float32 can hold: divide them by the largest "
            "one, as only their ratios matter"
        )
    del bad, given
    if not csr.has_canonical_format or csr.diagonal().any() or not csr.data.all():
        arcs = csr.tocoo()
        row, col = arcs.coords
        keep = (row != col) & (arcs.data != 0)
        csr = _merge(row[keep], col[keep], arcs.data[keep], n)
    reverse = csr.T.tocsr()
    if not (
        np.array_equal(csr.indptr, reverse.indptr)
        and np.array_equal(csr.indices, reverse.indices)
        and np.array_equal(csr.data, reverse.data)
    ):
        one_way = (csr - reverse).tocoo()
        first = int((one_way.data != 0).argmax())
        i, j = (int(c[first]) for c in one_way.coords)
        count = int(np.count_nonzero(one_way.data)) // 2
        what = (
            f"the graph is directed: {plural(count, 'edge')} not the same both ways, "
            f"first between nodes {called(i, node_names)} and "
            f"{called(j, node_names)} (weights {csr[i, j]:g} and {csr[j, i]:g})"
        )
        if directed == "error":
            raise GraphError(
                f"{what}. Symmetrise the adjacency (A.maximum(A.T)), or pass "
                "directed='symmetrize'"
            )
        warn_user(
            f"{what}. The larger weight is kept for both ways: give each edge one "
            "weight (A.maximum(A.T) does for an adjacency A)",
            GraphWarning,
        )
        csr = csr.maximum(reverse)
    return csr


def _not_square(shape: tuple[int, ...]) -> GraphError:
    return GraphError(
        f"adjacency must be square, got shape {shape}: for a list of edges use "
        "Graph.from_edge_index, for a feature matrix Graph.from_features"
    )


def _merge(
    row: NDArray[np.integer],
    col: NDArray[np.integer],
    weight: NDArray[np.float32],
    n: int,
) -> sp.csr_array:
    """Sort arcs into a CSR array; of arcs given more than once the largest stays."""
    merged = sp.coo_array((weight, (row, col)), shape=(n, n)).tocsr()
    if merged.nnz == len(weight):
        return merged
    if weight.min() == weight.max():
        merged.data[:] = weight[0]
        return merged
    order = np.lexsort((col, row))
    row, col, weight = row[order], col[order], weight[order]
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (col[1:] != col[:-1])])
    largest = np.maximum.reduceat(weight, first)
    return sp.coo_array((largest, (row[first], col[first])), shape=(n, n)).tocsr()


def adjacency_of_edges(
    edge_index: ArrayLike,
    edge_weight: ArrayLike | None,
    features: Any,
    n_nodes: int | None,
    node_names: list[Any] | None,
) -> sp.csr_array:
    """Make an adjacency of edges, one way each as they are given."""
    edges = _clean_edge_index(edge_index)
    n = _count_nodes(edges, features, n_nodes)
    outside = ((edges < 0) | (edges >= n)).any(axis=0)
    if outside.any():
        at = int(outside.argmax())
        raise GraphError(
            f"edge {at} joins {edges[0, at]} and {edges[1, at]}, but nodes are "
            f"numbered from 0 to {n - 1}: renumber the edges, or give n_nodes "
            "(and a row of features) for every node"
        )
    weight = _clean_weights(edge_weight, edges, node_names)
    try:
        return _merge(edges[0], edges[1], weight, n)
    except MemoryError:
        raise NotEnoughMemoryError(
            f"a graph of {plural(n, 'node')} doesn't fit in memory"
        ) from None


def _clean_edge_index(edge_index: ArrayLike) -> NDArray[np.integer]:
    edges = as_array(edge_index, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        mend = "give the two ends of each edge as two rows"
        if edges.ndim == 2 and edges.shape[1] == 2:
            mend = "transpose it (edge_index.T)"
        raise GraphError(
            f"edge_index must have shape (2, n_arcs), got {edges.shape}: {mend}"
        )
    if edges.size == 0:
        return edges.astype(np.int64)
    if edges.dtype.kind not in "iu":
        raise GraphError(
            f"edge_index must hold integers, got dtype {edges.dtype}: number the "
            "nodes from 0 and cast with .astype(np.int64)"
        )
    return edges


def _count_nodes(edges: NDArray[np.integer], features: Any, n_nodes: int | None) -> int:
    if n_nodes is not None:
        return check_count(n_nodes, "n_nodes", low=1)
    if features is None:
        largest = f" (the largest number is {edges.max()})" if edges.size else ""
        raise GraphError(
            "there are no features to count the nodes by, and the edges say nothing "
            f"of nodes without edges: give n_nodes{largest}"
        )
    if isinstance(features, list):
        return len(features)
    shape = getattr(features, "shape", ())
    if not shape:
        raise GraphError(
            f"features must be a matrix, one row a node, got {type(features).__name__}"
        )
    return int(shape[0])


def _clean_weights(
    edge_weight: ArrayLike | None, edges: NDArray[np.integer], node_names: Any
) -> NDArray[np.float32]:
    n_arcs = edges.shape[1]
    if edge_weight is None:
        return np.ones(n_arcs, dtype=np.float32)
    given = as_numbers(edge_weight, "edge_weight")
    weight = as_float32(given)
    if weight.shape != (n_arcs,):
        raise GraphError(
            f"edge_weight must have shape ({n_arcs},), one weight a column of "
            f"edge_index; got {weight.shape}"
        )
    bad = _bad_weights(given, weight)
    if bad.any():
        at = int(bad.argmax())
        begin, end = (called(node, node_names) for node in edges[:, at])
        raise GraphError(
            f"edge {at} (from node {begin} to node {end}) has weight "
            f"{given[at]}: {_GOOD_WEIGHTS}"
        )
    return weight


def _bad_weights(given: NDArray[Any], weight: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Find weights that none is, or that have no place or no inverse in float32."""
    least = np.finfo(np.float32).smallest_normal
    return ~np.isfinite(weight) | (weight < 0) | ((weight < least) & (given != 0))


def with_values(csr: sp.csr_array, values: NDArray[Any]) -> sp.csr_array:
    """Give the stored entries of a matrix other values."""
    return sp.csr_array((values, csr.indices, csr.indptr), shape=csr.shape)


def as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Cast numbers; what float32 can't hold becomes infinite or 0."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float32, copy=False)
