"""Draw the next batches while the last one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, TypeVar

import torch

__all__ = ["prefetch"]

T = TypeVar("T")


def prefetch(
    draw: Callable[[Any], T],
    items: Iterable[Any],
    *,
    device: torch.device,
    n_threads: int = 1,
    ahead: int = 2,
) -> Iterator[T]:
    """Yield ``draw(item)`` of each item in order, drawn ahead in threads.

    On CUDA the threads work on a stream of their own, beside the one that trains;
    `draw` must return with its work on that stream done. What it returns may have
    ``record_stream``, as tensors and PyG's data have.

    Parameters
    ----------
    draw : callable
        Runs in a thread; kernels that hold no lock run beside the training.
    items : iterable
        One argument of `draw` each.
    device : torch.device
        Where the results lie.
    n_threads : int, default=1
        Threads that draw.
    ahead : int, default=2
        Results drawn or in work beyond the one in use.

    Yields
    ------
    object
        What `draw` returned.
    """
    side = None
    if device.type == "cuda":
        # Many small kernels with waits between them: they go first.
        side = torch.cuda.Stream(device, priority=-1)
        side.wait_stream(torch.cuda.current_stream(device))

    def work(item: Any) -> T:
        with torch.cuda.stream(side) if side else nullcontext():
            result = draw(item)
            if side:
                side.synchronize()
        return result

    queue: deque[Future[T]] = deque()
    remaining = iter(items)
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="sktifa-prefetch")
    try:
        while True:
            for item in remaining:
                queue.append(pool.submit(work, item))
                if len(queue) > ahead:
                    break
            if not queue:
                return
            result = queue.popleft().result()
            if side and hasattr(result, "record_stream"):
                result.record_stream(torch.cuda.current_stream(device))
            yield result
    finally:
        pool.shutdown(cancel_futures=True)
