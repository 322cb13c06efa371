"""Checks of the matrices that functions take: numbers, rows, an adjacency."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from sktifa.checks.arrays import as_array, as_numbers
from sktifa.checks.sparse import check_sparse, is_sparse, place_of
from sktifa.exceptions import GraphError

__all__ = ["check_adjacency", "check_matrix", "check_rows"]


def check_matrix(
    values: Any, name: str, *, dtype: DTypeLike = np.float32
) -> NDArray[Any] | sp.csr_array:
    """Check a matrix of finite numbers; a sparse one comes back in float32.

    Examples
    --------
    >>> from sktifa.checks import check_matrix
    >>> check_matrix([[1, None]], "sources")
    Traceback (most recent call last):
        ...
    sktifa.exceptions.GraphError: sources has nan in row 0, column 1: ...
    """
    matrix = as_numbers(values, name)
    if sp.issparse(matrix):
        return check_sparse(matrix, name)
    if matrix.ndim != 2:
        raise GraphError(f"{name} must be a matrix, got shape {matrix.shape}")
    with np.errstate(over="ignore"):
        matrix = matrix.astype(dtype, copy=False)
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise GraphError(
            f"{name} has {matrix[row, column]} in row {row}, column {column}: values "
            f"must be finite (in {matrix.dtype})"
        )
    return matrix


def check_rows(X: Any) -> Any:
    """Check rows of features that an estimator takes in place of a graph.

    Before anything else has converted them: sparse rows are checked, tensors read, and
    the adjacency of a graph is refused; the rest is for scikit-learn's own checks.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.checks import check_rows
    >>> check_rows(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    Traceback (most recent call last):
        ...
    sktifa.exceptions.GraphError: X looks like the adjacency of a graph, ...
    """
    if is_sparse(X):
        X = check_sparse(X, "X")
    elif hasattr(X, "detach") or np.ma.isMaskedArray(X):
        X = as_array(X, "X")
    if _is_adjacency(X):
        raise GraphError(
            "X looks like the adjacency of a graph, symmetric and without negative "
            "entries, but is taken for features: give Graph(X), or, if these are "
            "features, Graph.from_features(X)"
        )
    return X


def _is_adjacency(X: Any) -> bool:
    """Whether a matrix has the looks of an adjacency, maybe with self-loops."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 3:
        return False
    if not sp.issparse(X):
        X = np.asarray(X)
        if X.dtype.kind not in "biuf" or not np.array_equal(X, X.T) or X.min() < 0:
            return False
        diagonal, filled = np.diagonal(X), np.count_nonzero(X)
    else:
        if (X - X.T).nnz or X.data.min(initial=0) < 0:
            return False
        diagonal, filled = X.diagonal(), X.nnz
    # Ones on the diagonal alone are features of no graph: each row has its own.
    n_loops = np.count_nonzero(diagonal)
    return bool(filled > n_loops and (n_loops == 0 or X.max() == 1))


def check_adjacency(adjacency: Any, *, dtype: DTypeLike = np.float32) -> sp.csr_array:
    """Check an adjacency that a function takes without a `Graph`.

    It must be symmetric, with finite weights that are not negative; it comes back with
    sorted indices and without duplicates.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from sktifa.checks import check_adjacency
    >>> check_adjacency(sp.csc_array([[0, 1], [1, 0]])).format
    'csr'
    """
    if not sp.issparse(adjacency):
        raise GraphError(
            f"adjacency must be a sparse matrix, got {type(adjacency).__name__}: make "
            "one with scipy.sparse.csr_array, or give Graph(...).adjacency"
        )
    csr = check_sparse(adjacency, "adjacency", dtype=dtype)
    if csr.shape[0] != csr.shape[1]:
        raise GraphError(f"adjacency must be square, got shape {csr.shape}")
    if (csr.data < 0).any():
        i, j = place_of(csr, int((csr.data < 0).argmax()))
        raise GraphError(
            f"adjacency has {csr[i, j]} in row {i}, column {j}: weights must not be "
            "negative"
        )
    one_way = csr - csr.T
    if one_way.nnz:
        i, j = place_of(one_way, 0)
        raise GraphError(
            f"adjacency has {csr[i, j]} in row {i}, column {j} but {csr[j, i]} the "
            "other way: make it symmetric, such as with A.maximum(A.T)"
        )
    return csr
