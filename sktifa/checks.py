"""The checks of arrays and matrices at every door, before anything converts them.

A compiled routine that is given an index outside its matrix writes where it must not:
what comes from outside passes here first. Nothing of the caller's is changed.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from sktifa.exceptions import GraphError, ParameterError

__all__ = ["check_adjacency", "check_count", "check_real", "check_rows", "check_sparse"]


def check_count(value: Any, name: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
    """Check a whole number.

    Parameters
    ----------
    value : int
        What was given. A float is none, however whole, and a boolean neither.
    name : str
        What messages call it.
    low, high : int, default=0, 2**63 - 1
        Its range, both ends included.

    Returns
    -------
    int

    Raises
    ------
    ParameterError
        If it is none, or outside the range.

    Examples
    --------
    >>> from sktifa.checks import check_count
    >>> check_count(2.9, "n_nodes", low=1)
    Traceback (most recent call last):
        ...
    sktifa.exceptions.ParameterError: n_nodes must be a whole number of at least 1, ...
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, (bool, np.bool_))
    if not is_whole or not low <= value <= high:
        up_to = f" and at most {high}" if high < 2**63 - 1 or is_whole else ""
        raise ParameterError(
            f"{name} must be a whole number of at least {low}{up_to}, got {value!r}"
        )
    return int(value)


def check_real(
    value: Any,
    name: str,
    *,
    low: float = 0.0,
    high: float = np.finfo(np.float64).max,
    open: bool = False,
) -> float:
    """Check a finite number.

    Parameters
    ----------
    value : float
        What was given.
    name : str
        What messages call it.
    low, high : float, default=0.0 and the largest float
        Its range, both ends included.
    open : bool, default=False
        Leave the lower end out.

    Returns
    -------
    float

    Raises
    ------
    ParameterError
        If it is no number, or outside the range.

    Examples
    --------
    >>> from sktifa.checks import check_real
    >>> check_real("0.5", "homophily", high=1)
    Traceback (most recent call last):
        ...
    sktifa.exceptions.ParameterError: homophily must be a number from 0.0 to 1, got ...
    """
    fits = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not fits or not low <= value <= high or (open and value == low):
        start = f"above {low}" if open else f"from {low}"
        end = f" to {high}" if high < np.finfo(np.float64).max else ", finite"
        raise ParameterError(f"{name} must be a number {start}{end}, got {value!r}")
    return float(value)


def check_sparse(
    matrix: sp.sparray | sp.spmatrix,
    name: str,
    *,
    duplicates: Literal["sum", "keep"] = "sum",
    finite: bool = True,
    dtype: DTypeLike = np.float32,
) -> sp.csr_array:
    """Check a sparse matrix of any format and make a CSR array of it.

    Parameters
    ----------
    matrix : sparse array or sparse matrix of shape (n, m)
        Of numbers, in any format.
    name : str
        What messages call it.
    duplicates : {"sum", "keep"}, default="sum"
        Entries given more than once are summed, as everywhere in SciPy, and indices
        sorted; or both stay as they are.
    finite : bool, default=True
        Refuse NaN, infinities and what overflows `dtype`.
    dtype : dtype, default=float32
        Of the values.

    Returns
    -------
    csr_array of `dtype`, shape (n, m)
        Shares the arrays that need no change with `matrix`.

    Raises
    ------
    GraphError
        If an index points outside the matrix, its arrays don't fit each other, or a
        value is no real number, or not finite.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from sktifa.checks import check_sparse
    >>> broken = sp.csr_array([[0.0, 1.0], [1.0, 0.0]])
    >>> broken.indices[0] = 7
    >>> check_sparse(broken, "features")
    Traceback (most recent call last):
        ...
    sktifa.exceptions.GraphError: features has an entry in row 0, column 7, ...
    """
    if len(matrix.shape) != 2:
        raise GraphError(f"{name} must be a matrix, got shape {matrix.shape}")
    try:
        if matrix.format not in ("csr", "csc", "bsr", "coo"):
            _check_lists(matrix, name)
            # These hold no index that a conversion would follow.
            matrix = matrix.tocoo() if matrix.format == "dok" else matrix.tocsr()
        csr = _as_csr(matrix, name, dtype)
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"{name} is a damaged sparse matrix: {error}") from error
    if duplicates == "sum" and not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if finite and not np.isfinite(csr.data).all():
        at = int(np.isfinite(csr.data).argmin())
        row, column = _place(csr, at)
        raise GraphError(
            f"{name} has {csr.data[at]} in row {row}, column {column}: values must be "
            f"finite (in {np.dtype(dtype)})"
        )
    return csr


def check_rows(X: Any, name: str = "X") -> Any:
    """Check rows of features where they are sparse; what else `X` may be, pass.

    Parameters
    ----------
    X : array-like or sparse of shape (n, n_features)
        Rows, before any other check has converted them.
    name : str, default="X"
        What messages call them.

    Returns
    -------
    csr_array of float32, or X
    """
    return check_sparse(X, name) if sp.issparse(X) else X


def check_adjacency(
    adjacency: Any, name: str = "adjacency", *, dtype: DTypeLike = np.float32
) -> sp.csr_array:
    """Check an adjacency that a function takes without a `Graph`.

    Parameters
    ----------
    adjacency : sparse array or sparse matrix of shape (n, n)
        Symmetric, weights finite and not negative.
    name : str, default="adjacency"
        What messages call it.
    dtype : dtype, default=float32
        Of the weights.

    Returns
    -------
    csr_array of `dtype`, shape (n, n)
        With sorted indices and without duplicates.

    Raises
    ------
    GraphError
        If it is none.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from sktifa.checks import check_adjacency
    >>> check_adjacency(sp.csc_array([[0, 1], [1, 0]])).format
    'csr'
    """
    if not sp.issparse(adjacency):
        raise GraphError(
            f"{name} must be a sparse matrix, got {type(adjacency).__name__}: make one "
            "with scipy.sparse.csr_array, or give Graph(...).adjacency"
        )
    csr = check_sparse(adjacency, name, dtype=dtype)
    if csr.shape[0] != csr.shape[1]:
        raise GraphError(f"{name} must be square, got shape {csr.shape}")
    if (csr.data < 0).any():
        i, j = _place(csr, int((csr.data < 0).argmax()))
        raise GraphError(
            f"{name} has {csr[i, j]} in row {i}, column {j}: weights must not be "
            "negative"
        )
    one_way = csr - csr.T
    if one_way.nnz:
        i, j = _place(one_way, 0)
        raise GraphError(
            f"{name} has {csr[i, j]} in row {i}, column {j} but {csr[j, i]} the other "
            "way: make it symmetric, such as with A.maximum(A.T)"
        )
    return csr


def _as_csr(matrix: Any, name: str, dtype: DTypeLike) -> sp.csr_array:
    """Check a matrix made of index arrays, in a container of our own."""
    data = _numbers(matrix.data, name, dtype)
    shape = tuple(int(size) for size in matrix.shape)
    if matrix.format == "coo":
        row, col = (_indices(part, name) for part in matrix.coords)
        if not len(row) == len(col) == len(data):
            raise GraphError(
                f"{name} is a damaged sparse matrix: {len(row)} rows, {len(col)} "
                f"columns and {len(data)} values"
            )
        _check_range(row, col, shape, name)
        coo = sp.coo_array((data, (row, col)), shape=shape)
        # Else the conversion would sum duplicates.
        coo.has_canonical_format = True
        csr = coo.tocsr()
        return sp.csr_array((csr.data, csr.indices, csr.indptr), shape=shape)
    block = data.shape[1:] if matrix.format == "bsr" else (1, 1)
    size = [n // width for n, width in zip(shape, block, strict=True)]
    n_major, n_minor = size[::-1] if matrix.format == "csc" else size
    indices = _indices(matrix.indices, name)
    indptr = _indices(matrix.indptr, name)
    fits = (
        len(indptr) == n_major + 1
        and indptr[0] == 0
        and bool((indptr[1:] >= indptr[:-1]).all())
        and indptr[-1] <= min(len(indices), len(data))
    )
    if not fits:
        raise GraphError(
            f"{name} is a damaged sparse matrix: indptr must rise from 0 to the number "
            f"of values ({len(data)}) in {n_major} steps"
        )
    data, indices = data[: indptr[-1]], indices[: indptr[-1]]
    outside = (indices < 0) | (indices >= n_minor)
    if outside.any():
        at = int(outside.argmax())
        major = int(np.searchsorted(indptr, at, side="right")) - 1
        row, col = major * block[0], int(indices[at]) * block[1]
        if matrix.format == "csc":
            row, col = col, row
        raise _outside(row, col, shape, name)
    narrow = max(len(indices) * block[0] * block[1], *shape) <= np.iinfo(np.int32).max
    index_type = np.int32 if narrow else np.int64
    parts = (
        data,
        indices.astype(index_type, copy=False),
        indptr.astype(index_type, copy=False),
    )
    container = {"csr": sp.csr_array, "csc": sp.csc_array, "bsr": sp.bsr_array}
    return container[matrix.format](parts, shape=shape).tocsr()


def _place(csr: sp.csr_array, at: int) -> tuple[int, int]:
    """Return row and column of a stored value."""
    row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
    return row, int(csr.indices[at])


def _check_range(
    row: NDArray[np.integer],
    col: NDArray[np.integer],
    shape: tuple[int, ...],
    name: str,
) -> None:
    outside = (row < 0) | (row >= shape[0]) | (col < 0) | (col >= shape[1])
    if outside.any():
        at = int(outside.argmax())
        raise _outside(row[at], col[at], shape, name)


def _outside(row: int, col: int, shape: tuple[int, ...], name: str) -> GraphError:
    return GraphError(
        f"{name} has an entry in row {row}, column {col}, but its shape is {shape}: "
        "rows and columns are numbered from 0; build the matrix anew"
    )


def _check_lists(matrix: Any, name: str) -> None:
    """Check that rows and values of the formats without index arrays go together."""
    if matrix.format == "lil":
        fits = all(
            len(row) == len(values)
            for row, values in zip(matrix.rows, matrix.data, strict=True)
        )
    elif matrix.format == "dia":
        fits = matrix.data.ndim == 2 and matrix.data.shape[0] == len(matrix.offsets)
    else:
        fits = True
    if not fits:
        raise GraphError(f"{name} is a damaged sparse matrix: values are missing")


def _indices(values: Any, name: str) -> NDArray[np.integer]:
    indices = np.asarray(values)
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise GraphError(
            f"{name} is a damaged sparse matrix: its indices must be integers in one "
            f"dimension, got dtype {indices.dtype} and shape {indices.shape}"
        )
    return indices


def _numbers(values: Any, name: str, dtype: DTypeLike) -> NDArray[Any]:
    data = np.asarray(values)
    if data.dtype.kind not in "biuf":
        raise GraphError(f"{name} must hold real numbers, got dtype {data.dtype}")
    with np.errstate(over="ignore"):
        return data.astype(dtype, copy=False)
