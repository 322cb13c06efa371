"""CUDA graphs: the kernels of a call are recorded once and launched together.

On a small graph an epoch is some two hundred kernels of a few microseconds each, and
the GPU waits for Python to launch them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sktifa.device import own_stream

__all__ = ["capture", "side_stream", "snapshot"]


def capture(
    calls: Sequence[Callable[[], Any]],
    device: torch.device,
    *,
    restore: Callable[[], Callable[[], None]] | None = None,
) -> list[Callable[[], Any]]:
    """Record calls that always do the same work on the same tensors.

    They are run in this order once before, as kernels choose their algorithms in a
    first run. They take nothing, never wait for the device and return tensors, or None.
    Each callable returned replays its call; the tensors are the same ones every time,
    overwritten by the next replay. `restore` is called before the warm-up; what it
    returns is called after, and undoes what the runs have changed.
    """
    undo = restore() if restore is not None else None
    with side_stream(device):
        for call in calls:
            call()
    if undo is not None:
        undo()
    return [_captured(call, device) for call in calls]


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Work on a stream of its own, which can be recorded: always on the same one."""
    if device.type != "cuda":
        yield
        return
    stream = own_stream(device, "recording")
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream(device).wait_stream(stream)


def _captured(call: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    graph = torch.cuda.CUDAGraph()
    free, total = torch.cuda.mem_get_info(device)
    if free < total / 2:  # A recording can't use what others have left behind.
        torch.cuda.empty_cache()
    collects = gc.isenabled()
    with side_stream(device):
        # Nothing may be finalised in between. Other threads, NCCL's among them, may
        # ask the GPU things.
        gc.disable()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            result = call()
        finally:
            graph.capture_end()
            if collects:
                gc.enable()

    def replay() -> Any:
        graph.replay()
        return result

    return replay


def snapshot(tensors: Sequence[Tensor]) -> Callable[[], None]:
    """Return a call that puts back what the tensors hold now."""
    kept = [tensor.detach().clone() for tensor in tensors]

    @torch.no_grad()
    def put_back() -> None:
        for tensor, value in zip(tensors, kept, strict=True):
            tensor.copy_(value)

    return put_back
