"""Memory that is written to again, once nobody looks at what it held.

What a large tensor gives back goes to the system, and comes back as pages that are
cleared one by one: for a stack of models that costs as much as a layer.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["empty", "reused"]

# Floats below which the system isn't asked, and PyTorch is faster.
_FEWEST = 1 << 18
# Floats of a cache line, which MKL wants a matrix to begin with.
_ALIGNMENT = 16
# References to an array that nobody works on: the list's, and the question's.
_ALONE = [np.empty(0)]
_UNUSED = sys.getrefcount(_ALONE[0])


class _Kept(threading.local):
    """Arrays of the thread, once it keeps them."""

    arrays: list[NDArray[np.float32]] | None = None


_KEPT = _Kept()


@contextmanager
def reused() -> Iterator[None]:
    """Keep the memory of what kernels return in this thread until the block ends.

    Examples
    --------
    >>> from sktifa.tensors.kernels.memory import empty, reused
    >>> with reused():
    ...     first = empty(600, 700)
    ...     place = first.data_ptr()
    ...     del first
    ...     empty(500, 800).data_ptr() == place
    True
    """
    if _KEPT.arrays is not None:
        yield
        return
    _KEPT.arrays = []
    try:
        yield
    finally:
        _KEPT.arrays = None


def empty(*shape: int) -> Tensor:
    """Return a tensor of float32 whose entries are whatever was there before."""
    size = math.prod(shape)
    if _KEPT.arrays is None or size < _FEWEST:
        return torch.empty(*shape)
    array = _unused(_KEPT.arrays, size + _ALIGNMENT)
    first = -(array.ctypes.data // array.itemsize) % _ALIGNMENT
    # The tensor holds a reference to the array as long as anything looks at it.
    return torch.from_numpy(array[first : first + size].reshape(shape))


def _unused(arrays: list[NDArray[np.float32]], size: int) -> NDArray[np.float32]:
    """Find an array that is free and not far too large, or make one."""
    free = [
        i
        for i in range(len(arrays))
        if size <= len(arrays[i]) <= 2 * size and sys.getrefcount(arrays[i]) <= _UNUSED
    ]
    if free:
        # Of equals the one used last: a part of it may be in the cache.
        best = min(free, key=lambda i: (len(arrays[i]), -i))
        arrays.append(arrays.pop(best))
    else:
        arrays.append(np.empty(size, dtype=np.float32))
    return arrays[-1]
