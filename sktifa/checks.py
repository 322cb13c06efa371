"""The checks of arrays and matrices at every door, before anything converts them.

A compiled routine that is given an index outside its matrix writes where it must not:
what comes from outside passes here first. Nothing of the caller's is changed.
"""

from __future__ import annotations

from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from sktifa.exceptions import GraphError, NodeIndexError, ParameterError

__all__ = [
    "as_array",
    "as_numbers",
    "check_adjacency",
    "check_count",
    "check_matrix",
    "check_positions",
    "check_real",
    "check_rows",
    "check_sparse",
    "is_sparse",
]


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
        beyond = is_whole and value > high
        up_to = f" and at most {high}" if high < 2**63 - 1 or beyond else ""
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


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Read an array, nested lists, a frame or a tensor on any device as an array.

    Parameters
    ----------
    values : array-like or tensor
        What was given.
    name : str
        What messages call it.

    Returns
    -------
    ndarray
        Of any dtype; shares memory with `values` where it can.

    Raises
    ------
    GraphError
        If it can't be read, such as lists of unequal length or a tensor without data,
        or has masked entries, whose values nobody is to see.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.checks import as_array
    >>> as_array(np.ma.array([1, 2], mask=[False, True]), "edge_weight")
    Traceback (most recent call last):
        ...
    sktifa.exceptions.GraphError: edge_weight has a masked entry at 1: ...
    """
    try:
        if hasattr(values, "detach"):
            array = _tensor_as_array(values)
        else:
            array = np.asarray(values)
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GraphError(f"{name} can't be read as an array: {reason}") from None
    hidden = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
    if hidden is not None and hidden.any():
        raise GraphError(
            f"{name} has a masked entry at {_at(np.argwhere(hidden)[0])}: fill masked "
            "entries, such as with .filled(0), or leave them out"
        )
    return _native(array)


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """Bring numbers into this machine's byte order: SciPy and torch know no other."""
    if array.dtype.isnative:  # strings of any length have no byte order
        return array
    return array.astype(array.dtype.newbyteorder("="))


def _tensor_as_array(tensor: Any) -> NDArray[Any]:
    if tensor.device.type == "meta":
        raise ValueError("a tensor on the device 'meta' has no data")
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = tensor.cpu()
    if str(tensor.layout) in _SCIPY_FORMATS:
        return check_sparse(_tensor_as_sparse(tensor), "it").toarray()
    if str(tensor.dtype).startswith(("torch.bfloat", "torch.float8")):
        tensor = tensor.float()  # NumPy has no such type
    return tensor.resolve_conj().resolve_neg().numpy()


# The indices of sparse tensors: pointers first, where there are some.
_SCIPY_FORMATS = {
    "torch.sparse_csr": (sp.csr_array, "col_indices", "crow_indices"),
    "torch.sparse_csc": (sp.csc_array, "row_indices", "ccol_indices"),
    "torch.sparse_bsr": (sp.bsr_array, "col_indices", "crow_indices"),
    "torch.sparse_coo": (sp.coo_array, "_indices", None),
}


def _tensor_as_sparse(tensor: Any) -> Any:
    """Wrap the arrays of a sparse tensor, which torch may never have looked at."""
    container, indices, indptr = _SCIPY_FORMATS[str(tensor.layout)]
    tensor = tensor.detach().cpu()
    matrix = container(tuple(tensor.shape), dtype=np.float32)
    if indptr is None:
        # The public names want duplicates summed, for which torch trusts the indices.
        matrix.data = _tensor_as_array(tensor._values())  # noqa: SLF001
        matrix.coords = tuple(tensor._indices().numpy())  # noqa: SLF001
    else:
        matrix.data = _tensor_as_array(tensor.values())
        matrix.indices = getattr(tensor, indices)().numpy()
        matrix.indptr = getattr(tensor, indptr)().numpy()
    return matrix


def is_sparse(values: Any) -> bool:
    """Tell a sparse matrix, of SciPy or torch, from all else."""
    return sp.issparse(values) or str(getattr(values, "layout", "")) in _SCIPY_FORMATS


def as_numbers(values: Any, name: str) -> NDArray[Any] | sp.csr_array:
    """Read an array of numbers, as `as_array` does.

    Parameters
    ----------
    values : array-like, tensor or sparse matrix
        Sparse ones of either kind stay sparse, and pass `check_sparse`. Missing
        values of any kind become NaN.
    name : str
        What messages call it.

    Returns
    -------
    ndarray of bool, integers or floats, or csr_array of float32

    Raises
    ------
    GraphError
        If it can't be read, or holds anything but real numbers.

    Examples
    --------
    >>> from sktifa.checks import as_numbers
    >>> as_numbers([[1, None], [2, 3.5]], "features")
    array([[1. , nan],
           [2. , 3.5]])
    >>> as_numbers([[1, None], ["3.5", 2]], "features")
    Traceback (most recent call last):
        ...
    sktifa.exceptions.GraphError: features must hold real numbers, got '3.5' at ...
    """
    if is_sparse(values):
        return check_sparse(values, name, finite=False)
    if hasattr(values, "select_dtypes"):
        return _frame_as_numbers(values, name)
    array = as_array(values, name)
    if array.dtype.kind == "O":
        return _objects_as_numbers(array, name)
    if array.dtype.kind not in "biuf":
        raise GraphError(
            f"{name} must hold real numbers, got dtype {array.dtype}: encode text, "
            "e.g. with sklearn.preprocessing.OneHotEncoder"
        )
    return array


def _frame_as_numbers(frame: Any, name: str) -> NDArray[Any]:
    kinds = {getattr(dtype, "kind", "O") for dtype in frame.dtypes}
    if kinds <= set("biuf"):
        array = frame.to_numpy()
        return (
            array if array.dtype.kind != "O" else frame.to_numpy(float, na_value=np.nan)
        )
    columns = []
    for i, label in enumerate(frame.columns):
        column = frame.iloc[:, i]
        try:
            if str(column.dtype) == "category":  # even where its names are numbers
                raise GraphError
            columns.append(as_numbers(column.to_numpy(), name))
        except GraphError:
            raise GraphError(
                f"{name} must hold numbers, column {label!r} doesn't: encode it, e.g. "
                "with sklearn.preprocessing.OneHotEncoder"
            ) from None
    return np.column_stack(columns)


def _objects_as_numbers(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    numbers = np.empty(array.shape)
    for at, value in np.ndenumerate(array):
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            numbers[at] = np.nan
        elif isinstance(value, (Real, Decimal, np.bool_)) and not isinstance(
            value, np.timedelta64
        ):
            try:
                numbers[at] = float(value)
            except OverflowError:
                numbers[at] = np.inf
        else:
            raise GraphError(
                f"{name} must hold real numbers, got {value!r} at {_at(at)}: encode "
                "text, e.g. with sklearn.preprocessing.OneHotEncoder"
            )
    return numbers


def _at(place: Any) -> str:
    """Write a place in an array as it would be indexed."""
    return ", ".join(str(int(i)) for i in place)


def check_positions(index: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Turn a mask or positions among `n` selected nodes into positions.

    Parameters
    ----------
    index : ndarray
        A mask of `n` booleans, or whole numbers from ``-n`` to ``n - 1``.
    n : int
        Number of selected nodes.

    Returns
    -------
    ndarray of int64

    Raises
    ------
    NodeIndexError
        If it is neither, or `n` zeros and ones, which would be meant as a mask and
        read as positions.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.checks import check_positions
    >>> check_positions(np.array([True, False, True]), 3)
    array([0, 2])
    >>> check_positions(np.array([1, 0, 1]), 3)
    Traceback (most recent call last):
        ...
    sktifa.exceptions.NodeIndexError: these are 3 zeros and ones, one a selected node...
    """
    if index.dtype.kind == "O":
        index = _objects_as_index(index)
    if index.ndim > 1:
        mend = ""
        if index.dtype == bool and len(index) == n:
            mend = "; of several masks, one a column, take one, such as mask[:, 0]"
        raise NodeIndexError(
            f"index a graph with one dimension, not {index.ndim} (shape {index.shape})"
            f"{mend}"
        )
    if index.dtype == bool:
        if index.shape != (n,):
            raise NodeIndexError(
                f"the mask has {index.size} entries, but {n} nodes are selected: give "
                "one entry a selected node"
            )
        return np.flatnonzero(index)
    if index.size == 0:
        return np.empty(0, dtype=np.int64)
    if index.dtype.kind not in "iu":
        raise NodeIndexError(
            f"nodes are selected by whole numbers or a mask, not by {index.dtype}: use "
            "index.astype(int) for positions or index.astype(bool) for a mask"
        )
    outside = (index < -n) | (index >= n)
    if outside.any():
        at = int(outside.argmax())
        raise NodeIndexError(
            f"there is no node at position {index.flat[at]}: {n} nodes are selected, "
            f"at 0 to {n - 1}"
        )
    if index.shape == (n,) and n > 2 and ((index == 0) | (index == 1)).all():
        raise NodeIndexError(
            f"these are {n} zeros and ones, one a selected node, which as positions "
            "would be the first two nodes over and over: for a mask use "
            "index.astype(bool)"
        )
    index = np.atleast_1d(index).astype(np.int64)
    return np.where(index < 0, index + n, index)


def _objects_as_index(index: NDArray[Any]) -> NDArray[Any]:
    """Take the booleans or numbers of an array of objects, if it holds nothing else."""
    booleans = [isinstance(value, (bool, np.bool_)) for value in index.flat]
    if all(booleans):
        return index.astype(bool)
    if all(isinstance(v, Integral) for v in index.flat) and not any(booleans):
        # No graph has nodes at the largest of the numbers that int64 holds.
        return np.clip(index, -(2**63), 2**63 - 1).astype(np.int64)
    at = booleans.index(False) if any(booleans) else 0
    raise NodeIndexError(
        f"{index.flat[at]!r} at {at} selects no node: give whole numbers, or a mask "
        "without gaps, such as mask.fillna(False)"
    )


def check_sparse(
    matrix: Any,
    name: str,
    *,
    duplicates: Literal["sum", "keep"] = "sum",
    finite: bool = True,
    dtype: DTypeLike | None = np.float32,
) -> sp.csr_array:
    """Check a sparse matrix of any format and make a CSR array of it.

    Parameters
    ----------
    matrix : sparse array, matrix or tensor of shape (n, m)
        Of numbers, in any format.
    name : str
        What messages call it.
    duplicates : {"sum", "keep"}, default="sum"
        Entries given more than once are summed, as everywhere in SciPy, and indices
        sorted; or both stay as they are.
    finite : bool, default=True
        Refuse NaN, infinities and what overflows `dtype`.
    dtype : dtype or None, default=float32
        Of the values; None leaves theirs, where SciPy can work with it.

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
        raise GraphError(f"{name} must be a matrix, got shape {tuple(matrix.shape)}")
    if not sp.issparse(matrix):
        matrix = _tensor_as_sparse(matrix)
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
        row, column = place_of(csr, at)
        raise GraphError(
            f"{name} has {csr.data[at]} in row {row}, column {column}: values must be "
            f"finite (in {csr.dtype})"
        )
    return csr


def check_matrix(
    values: Any, name: str, *, dtype: DTypeLike = np.float32
) -> NDArray[Any] | sp.csr_array:
    """Check a matrix of finite numbers that a function takes.

    Parameters
    ----------
    values : array-like, tensor or sparse of shape (n, m)
        What was given.
    name : str
        What messages call it.
    dtype : dtype, default=float32
        Of a dense result; a sparse one is of float32.

    Returns
    -------
    ndarray or csr_array

    Raises
    ------
    GraphError
        If it is none.

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


def check_rows(X: Any, name: str = "X") -> Any:
    """Check rows of features that an estimator takes in place of a graph.

    Parameters
    ----------
    X : array-like or sparse of shape (n, n_features)
        Rows, before any other check has converted them.
    name : str, default="X"
        What messages call them.

    Returns
    -------
    array-like or csr_array of float32
        Sparse rows are checked and tensors read; the rest is for scikit-learn's own
        checks.

    Raises
    ------
    GraphError
        If they are broken, or the adjacency of a graph.

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
        X = check_sparse(X, name)
    elif hasattr(X, "detach") or np.ma.isMaskedArray(X):
        X = as_array(X, name)
    if _is_adjacency(X):
        raise GraphError(
            f"{name} looks like the adjacency of a graph, symmetric and without "
            f"negative entries, but is taken for features: give Graph({name}), or, if "
            f"these are features, Graph.from_features({name})"
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
        i, j = place_of(csr, int((csr.data < 0).argmax()))
        raise GraphError(
            f"{name} has {csr[i, j]} in row {i}, column {j}: weights must not be "
            "negative"
        )
    one_way = csr - csr.T
    if one_way.nnz:
        i, j = place_of(one_way, 0)
        raise GraphError(
            f"{name} has {csr[i, j]} in row {i}, column {j} but {csr[j, i]} the other "
            "way: make it symmetric, such as with A.maximum(A.T)"
        )
    return csr


def _as_csr(matrix: Any, name: str, dtype: DTypeLike | None) -> sp.csr_array:
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


def place_of(csr: sp.csr_array, at: int) -> tuple[int, int]:
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
    indices = _native(np.asarray(values))
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise GraphError(
            f"{name} is a damaged sparse matrix: its indices must be integers in one "
            f"dimension, got dtype {indices.dtype} and shape {indices.shape}"
        )
    return indices


def _numbers(values: Any, name: str, dtype: DTypeLike | None) -> NDArray[Any]:
    data = _native(np.asarray(values))
    if data.dtype.kind not in "biuf":
        raise GraphError(f"{name} must hold real numbers, got dtype {data.dtype}")
    if dtype is None:
        # SciPy has no sparse matrices of float16.
        dtype = np.float32 if data.dtype == np.float16 else data.dtype
    with np.errstate(over="ignore"):
        return data.astype(dtype, copy=False)
