"""A cache in memory, for work that the fits of one search share."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

import joblib
import numpy as np

__all__ = ["LocalMemory"]

# Where the results lie: a LocalMemory and its copies are names for one store.
_STORES: OrderedDict[str, OrderedDict[tuple[str, Hashable], Future]] = OrderedDict()
# In a worker process nobody clears them: the store of an earlier search goes.
_MOST_STORES = 4
_LOCK = threading.Lock()


class LocalMemory:
    """Keeps functions' results in memory, where `joblib.Memory` writes them to disk.

    As `memory=` of :class:`~sktifa.TIFAGCLClassifier` it serves all fits of one
    process. Copies and clones share what is kept; in another process a copy starts
    empty. Results are shared, not copied: callers must not write to them.

    Parameters
    ----------
    max_items : int, default=128
        Results kept; the one not asked for the longest goes first.

    Examples
    --------
    >>> from sktifa.cache import LocalMemory
    >>> def square(x):
    ...     print("working")
    ...     return x * x
    >>> remembered = LocalMemory().cache(square)
    >>> remembered(x=3), remembered(x=3)
    working
    (9, 9)
    """

    def __init__(self, max_items: int = 128) -> None:
        self.max_items = max_items
        self._name = uuid.uuid4().hex

    def cache(
        self, function: Callable[..., Any], ignore: Sequence[str] = ()
    ) -> Callable[..., Any]:
        """Return the function with a memory for its results.

        Parameters
        ----------
        function : callable
            To be called with keyword arguments.
        ignore : sequence of str
            Arguments that don't tell two calls apart.

        Returns
        -------
        callable
        """

        def remembered(**arguments: Any) -> Any:
            told = {k: _key(v) for k, v in arguments.items() if k not in ignore}
            key = function.__qualname__, frozenset(told.items())
            with _LOCK:
                store = _STORES.setdefault(self._name, OrderedDict())
                _STORES.move_to_end(self._name)
                while len(_STORES) > _MOST_STORES:
                    _STORES.popitem(last=False)
                is_new = key not in store
                result = store.setdefault(key, Future())
                store.move_to_end(key)
                while len(store) > self.max_items:
                    store.popitem(last=False)
            # Threads that ask for what another is working on wait for it.
            if is_new:
                try:
                    result.set_result(function(**arguments))
                except BaseException as error:
                    with _LOCK:
                        store.pop(key, None)
                    result.set_exception(error)
            return result.result()

        return remembered

    def clear(self) -> None:
        """Forget everything."""
        with _LOCK:
            _STORES.pop(self._name, None)

    def __sklearn_clone__(self) -> LocalMemory:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalMemory:
        return self


def _key(value: Any) -> Hashable:
    """Return what tells a value from others; where it can be, without its pickle."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(np.ascontiguousarray(value).data).digest()
        return value.shape, value.dtype.str, digest
    if isinstance(value, (str, bool, int, float)):
        return type(value), value
    return joblib.hash(value)
