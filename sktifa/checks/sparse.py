"""Checks of sparse matrices, of SciPy and torch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from sktifa.checks.tensors import native, tensor_as_array
from sktifa.exceptions import GraphError

__all__ = ["check_sparse", "is_sparse", "place_of"]


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
        matrix.data = tensor_as_array(tensor._values())  # noqa: SLF001
        matrix.coords = tuple(tensor._indices().numpy())  # noqa: SLF001
    else:
        matrix.data = tensor_as_array(tensor.values())
        matrix.indices = getattr(tensor, indices)().numpy()
        matrix.indptr = getattr(tensor, indptr)().numpy()
    return matrix


def is_sparse(values: Any) -> bool:
    """Tell a sparse matrix, of SciPy or torch, from all else."""
    return sp.issparse(values) or str(getattr(values, "layout", "")) in _SCIPY_FORMATS


def check_sparse(
    matrix: Any,
    name: str,
    *,
    duplicates: Literal["sum", "keep"] = "sum",
    finite: bool = True,
    dtype: DTypeLike | None = np.float32,
) -> sp.csr_array:
    """Check a sparse matrix or tensor of any format and make a CSR array of it.

    It shares the arrays that need no change. Entries given more than once are summed,
    as everywhere in SciPy, and indices sorted; or "keep" leaves both as they are.
    `finite` refuses NaN, infinities and what overflows `dtype`, the type of the values;
    None leaves theirs, where SciPy can work with it.

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
        outside = (row < 0) | (row >= shape[0]) | (col < 0) | (col >= shape[1])
        if outside.any():
            at = int(outside.argmax())
            raise _outside(row[at], col[at], shape, name)
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
    indices = native(np.asarray(values))
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise GraphError(
            f"{name} is a damaged sparse matrix: its indices must be integers in one "
            f"dimension, got dtype {indices.dtype} and shape {indices.shape}"
        )
    return indices


def _numbers(values: Any, name: str, dtype: DTypeLike | None) -> NDArray[Any]:
    data = native(np.asarray(values))
    if data.dtype.kind not in "biuf":
        raise GraphError(f"{name} must hold real numbers, got dtype {data.dtype}")
    if dtype is None:
        # SciPy has no sparse matrices of float16.
        dtype = np.float32 if data.dtype == np.float16 else data.dtype
    with np.errstate(over="ignore"):
        return data.astype(dtype, copy=False)
