"""Checks of masks and positions."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sktifa.exceptions import NodeIndexError

__all__ = ["check_positions"]


def check_positions(index: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Turn a mask or positions among `n` selected nodes into positions.

    Refused are also `n` zeros and ones, which would be meant as a mask and read as
    positions.

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
