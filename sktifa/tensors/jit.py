"""numba's ``njit`` for every kernel, with a cache on disk that can't stop a fit.

A kernel holds no lock, so that threads run beside each other. Its machine code is
cached where that goes: where no folder can be written, a file is damaged or the disk is
full, it is compiled anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.caching import FunctionCache

__all__ = ["njit"]


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function at its first call.

    The options are those of ``numba.njit``; ``nogil`` and ``no_cfunc_wrapper`` are set.

    Examples
    --------
    >>> from sktifa.tensors.jit import njit
    >>> @njit()
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """
    options |= {"nogil": True, "no_cfunc_wrapper": True}  # no C code calls a kernel

    def decorate(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**options)(function)
        try:
            # What `cache=True` does, with a cache that forgives.
            kernel._cache = _ForgivingCache(function)  # noqa: SLF001
        except RuntimeError:  # numba finds no folder that can be written
            pass
        return kernel

    return decorate


class _ForgivingCache(FunctionCache):
    """A cache whose files may be damaged, and whose folder may be full.

    Pickles that were cut off raise whatever they like, hence ``Exception``.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:
            self._start_anew(sig, data)

    def _start_anew(self, sig: Any, data: Any) -> None:
        """Replace a damaged index; give up where nothing can be written."""
        try:
            self.flush()
            super().save_overload(sig, data)
        except Exception:
            self.disable()
