"""Checks of single numbers."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from sktifa.exceptions import ParameterError

__all__ = ["check_count", "check_real"]


def check_count(value: Any, name: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
    """Check a whole number between `low` and `high`, both included.

    A float is none, however whole, and a boolean neither.

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
    """Check a finite number from `low`, which `open` leaves out, to `high`.

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
