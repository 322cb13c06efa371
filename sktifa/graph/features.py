"""Checks of node features, and copies of their rows."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sktifa.callers import warn_user
from sktifa.checks import as_array, as_numbers, check_sparse, is_sparse, place_of
from sktifa.exceptions import GraphError, GraphWarning, StorageError
from sktifa.graph.adjacency import as_float32
from sktifa.graph.names import called, plural

__all__ = ["as_dense", "clean_features", "copy_of_rows", "warn_of_lost"]

# Entries looked at together when a feature matrix is checked, so that a memory
# map larger than the memory is never held whole.
_BLOCK = 1 << 24


def clean_features(
    features: Any,
    n_nodes: int | None,
    node_names: Any,
    names: Sequence[str] | None = None,
) -> tuple[NDArray[np.float32] | sp.csr_array, list[str] | None]:
    """Bring features into the form that `Graph.features` promises, and their names.

    A frame has its own, where there are no others.
    """
    if features is None and n_nodes is not None:
        matrix: Any = sp.eye_array(n_nodes, dtype=np.float32, format="csr")
        return matrix, _clean_names(names, n_nodes)
    if names is None and hasattr(features, "columns"):
        columns = list(features.columns)
        names = columns if all(isinstance(c, str) for c in columns) else None
    matrix = as_numbers(features, "features")
    if matrix.ndim != 2:
        mend = ": use features.reshape(-1, 1)" if matrix.ndim == 1 else ""
        raise GraphError(f"features must be a matrix, got shape {matrix.shape}{mend}")
    if n_nodes is not None and matrix.shape[0] != n_nodes:
        raise GraphError(
            f"features have {plural(matrix.shape[0], 'row')}, the graph has "
            f"{plural(n_nodes, 'node')}: give one row for every node of the whole "
            "graph, nodes without edges included"
        )
    if matrix.shape[1] == 0:
        raise GraphError(
            "features have no column: pass features=None to give every node a "
            "feature of its own"
        )
    names = _clean_names(names, matrix.shape[1])
    if sp.issparse(matrix):
        if not np.isfinite(matrix.data).all():
            at = int(np.isfinite(matrix.data).argmin())
            row, column = place_of(matrix, at)
            raise _not_finite(matrix.data[at], called(row, node_names), column, names)
        warn_of_lost(features, matrix)
        return matrix, names
    given, matrix = matrix, np.ascontiguousarray(as_float32(matrix))
    step = max(1, _BLOCK // matrix.shape[1])
    for start in range(0, len(matrix), step):
        finite = np.isfinite(matrix[start : start + step])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            row += start
            raise _not_finite(
                matrix[row, column], called(row, node_names), int(column), names
            )
    warn_of_lost(given, matrix)
    return matrix, names


def warn_of_lost(given: Any, matrix: NDArray[np.float32] | sp.csr_array) -> None:
    """Warn of columns that were numbers, and in float32 are too small to be any."""
    is_cast = not str(getattr(given, "dtype", "")).endswith("float32")
    if not is_cast or not matrix.shape[0]:
        return
    least = np.finfo(np.float32).smallest_normal
    if sp.issparse(matrix) and np.abs(matrix.data).min(initial=1) >= least:
        return  # before a look at columns, which takes longer
    highest, lowest = (as_dense(m) for m in (matrix.max(axis=0), matrix.min(axis=0)))
    columns = np.flatnonzero(np.maximum(highest, -lowest) < least)
    if not len(columns):
        return
    if is_sparse(given):
        exact: Any = check_sparse(given, "features", dtype=np.float64)
    else:
        exact = as_array(given, "features")
    # There may be many empty columns, in which a dense matrix would not fit in memory.
    exact = abs(exact[:, columns].astype(np.float64))
    lost = columns[as_dense(exact.max(axis=0)) > 0]
    if len(lost):
        which = f"feature {lost[0]}"
        if len(lost) > 1:
            which = f"{len(lost):,} features, the first is {lost[0]},"
        warn_user(
            f"all values of {which} are below {least:.1e} and count as 0 in float32: "
            "scale them, such as by features / np.abs(features).max(axis=0)",
            GraphWarning,
        )


def _not_finite(
    value: float, node: str, column: int, names: list[str] | None
) -> GraphError:
    name = f" ({names[column]!r})" if names else ""
    return GraphError(
        f"feature {column}{name} of node {node} is {value}: features must be finite "
        "(in float32); sklearn.impute.SimpleImputer fills gaps"
    )


def _clean_names(names: Sequence[str] | None, n_features: int) -> list[str] | None:
    """Check that there is a name for each column."""
    if names is None:
        return None
    names = [str(name) for name in names]
    if len(names) != n_features:
        raise GraphError(
            f"there are {len(names)} feature_names for {plural(n_features, 'feature')}"
        )
    return names


def as_dense(features: NDArray[np.float32] | sp.csr_array) -> NDArray[np.float32]:
    """Return features as an array."""
    return features.toarray() if sp.issparse(features) else features


def copy_of_rows(features: Any, nodes: NDArray[np.int64]) -> Any:
    """Copy some rows; those of a memory map to a file: memory may not hold them."""
    base = features
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    if base is None or not features.shape[1]:
        return features[nodes]
    shape = (len(nodes), features.shape[1])
    path = _reserved_file(shape[0] * shape[1] * features.dtype.itemsize)
    rows = np.memmap(path, dtype=features.dtype, mode="w+", shape=shape)
    weakref.finalize(rows, Path(path).unlink, missing_ok=True)
    # With mode="clip" NumPy writes straight into `out`.
    np.take(features, nodes, axis=0, out=rows, mode="clip")
    return rows


def _reserved_file(n_bytes: int) -> str:
    """Make a temporary file whose space is there: a full disk would end the process."""
    handle, path = tempfile.mkstemp(prefix="sktifa-", suffix=".features")
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, max(n_bytes, 1))
    except OSError as error:
        Path(path).unlink()
        raise StorageError(
            f"the features of the nodes that training sees take {n_bytes:,} bytes of "
            f"temporary files, which {tempfile.gettempdir()} does not have "
            f"({error.strerror}): set TMPDIR to a folder that has."
        ) from error
    finally:
        os.close(handle)
    return path
