"""From NumPy to tensors and back: functions on tensors that take arrays too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from torch import Tensor

from sktifa.checks import as_numbers
from sktifa.exceptions import GraphError

__all__ = ["ArrayOrTensor", "as_tensor", "like", "row_blocks"]

ArrayOrTensor = TypeVar("ArrayOrTensor", NDArray[Any], Tensor)

# Rows read at a time, in bytes.
_BLOCK = 1 << 26


def as_tensor(values: ArrayLike | Tensor) -> Tensor:
    """Make a tensor of an array that may be read-only, without a copy.

    It must not be written to. A tensor is returned as it is; what holds no numbers
    raises a GraphError.
    """
    if isinstance(values, Tensor):
        return values
    array = as_numbers(values, "values")
    if sparse.issparse(array):
        raise GraphError("values must be a dense array, got a sparse one")
    if array.flags.writeable:
        return torch.from_numpy(array)
    # PyTorch knows no read-only memory, and would warn: this names the same memory.
    interface = dict(array.__array_interface__)
    interface["data"] = interface["data"][0], False
    return torch.from_numpy(np.asarray(_Alias(interface, array)))


@dataclass
class _Alias:
    """Memory by its address, and what keeps it alive."""

    __array_interface__: dict[str, Any]
    owner: NDArray[Any]


def like(given: ArrayOrTensor, result: Tensor) -> ArrayOrTensor:
    """Return a result as what was given: a tensor, or else an array."""
    return result if isinstance(given, Tensor) else result.numpy()


def row_blocks(n_rows: int, width: int) -> list[slice]:
    """Cut the rows of a dense float32 matrix into blocks of 64 MiB."""
    step = max(1, _BLOCK // (4 * max(width, 1)))
    return [slice(i, min(i + step, n_rows)) for i in range(0, n_rows, step)]
