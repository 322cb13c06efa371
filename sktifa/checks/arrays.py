"""Whatever holds numbers, read as an array."""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from sktifa.checks.sparse import check_sparse, is_sparse
from sktifa.checks.tensors import native, tensor_as_array
from sktifa.exceptions import GraphError

__all__ = ["as_array", "as_numbers"]


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Read an array, nested lists, a frame or a tensor on any device as an array.

    It shares memory with `values` where it can. What can't be read is refused, such as
    lists of unequal length or a tensor without data, and so are masked entries, whose
    values nobody is to see.

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
            array = (
                check_sparse(values, "it").toarray()
                if is_sparse(values)
                else tensor_as_array(values)
            )
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
    return native(array)


def as_numbers(values: Any, name: str) -> NDArray[Any] | sp.csr_array:
    """Read an array of numbers, as `as_array` does; missing values become NaN.

    Sparse matrices of either kind stay sparse, and pass `check_sparse`. What holds
    anything but real numbers is refused.

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
