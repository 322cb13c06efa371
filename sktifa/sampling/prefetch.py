"""Draw the next batches while the last one is used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor

from sktifa.device import own_stream

__all__ = ["prefetch", "record_stream"]

T = TypeVar("T")


def prefetch(
    draw: Callable[[Any], T],
    items: Iterable[Any],
    *,
    device: torch.device,
    n_threads: int = 1,
    ahead: int = 2,
) -> Iterator[T]:
    """Yield ``draw(item)`` of each item in order, drawn `ahead` in threads.

    On CUDA each thread works on a stream of its own, beside the one that trains; `draw`
    must return with its work on that stream done. Kernels that hold no lock run beside
    the training.
    """
    on_gpu = device.type == "cuda"
    caller = torch.cuda.current_stream(device) if on_gpu else None
    own, number = threading.local(), count()

    def begin() -> None:
        if caller is not None:
            # Many small kernels with waits between them: they go first.
            own.stream = own_stream(device, "prefetch", next(number), priority=-1)
            own.stream.wait_stream(caller)

    def work(item: Any) -> T:
        if not on_gpu:
            return draw(item)
        with torch.cuda.stream(own.stream):
            result = draw(item)
            own.stream.synchronize()
        return result

    queue: deque[Future[T]] = deque()
    remaining = iter(items)
    pool = ThreadPoolExecutor(n_threads, "sktifa-prefetch", begin)
    try:
        while True:
            for item in remaining:
                queue.append(pool.submit(work, item))
                if len(queue) > ahead:
                    break
            if not queue:
                return
            result = queue.popleft().result()
            if on_gpu:
                record_stream(result, torch.cuda.current_stream(device))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def record_stream(
    value: Any, stream: torch.cuda.Stream, told: dict[int, Any] | None = None
) -> None:
    """Tell the allocator that `stream` uses the tensors of an object, too."""
    told = {} if told is None else told
    if id(value) in told:  # what a caller's `transform` returns may hold itself
        return
    told[id(value)] = value
    if isinstance(value, Tensor):
        parts = [value]
        if value.layout == torch.sparse_csr:
            parts = [value.crow_indices(), value.col_indices(), value.values()]
        for part in parts:
            if part.is_cuda:
                part.record_stream(stream)
    elif hasattr(value, "record_stream"):  # PyG's data
        value.record_stream(stream)
    elif isinstance(value, (list, tuple)):
        for part in value:
            record_stream(part, stream, told)
    elif hasattr(value, "__dict__") and not isinstance(value, ModuleType):
        for part in vars(value).values():
            if not callable(part):
                record_stream(part, stream, told)
