"""Where tensors live: the door for every estimator's ``device`` parameter."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch

from sktifa.callers import warn_user
from sktifa.exceptions import ParameterError

__all__ = ["free_memory", "on_device", "own_stream", "resolve_device", "undisturbed"]


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a GPU the current one of this thread: its streams and events are that's."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@cache
def own_stream(
    device: torch.device, use: str, number: int = 0, *, priority: int = 0
) -> torch.cuda.Stream:
    """Return the stream of a use, always the same one.

    What a stream has freed is kept for itself alone.
    """
    return torch.cuda.Stream(device, priority=priority)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Record no gradient, whatever autocast and default device the user has set."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch.cuda.is_available():
            stack.enter_context(torch.autocast("cuda", enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn an estimator's ``device`` into a torch device that is there.

    ``"auto"`` takes the current CUDA device where there is one and the CPU elsewhere.
    In a worker process of joblib (``n_jobs``) or dask it takes the GPU of the worker's
    number, so that several GPUs are all used; a worker that sees one GPU
    (``CUDA_VISIBLE_DEVICES``, as dask-cuda and ray set it) takes that, and warns if
    several processes started by ``n_jobs`` are to share it.
    """
    if isinstance(device, str) and device == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        worker, n_devices = _worker_number(), torch.cuda.device_count()
        if n_devices == 1:
            _warn_of_shared_gpu()
        if worker is None or n_devices == 1:
            return torch.device("cuda")
        return torch.device("cuda", worker % n_devices)
    try:
        if not isinstance(device, (str, torch.device)):
            raise TypeError(f"got {type(device).__name__}")
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(
            f"device={device!r} is no device of torch: use 'auto', 'cpu', 'cuda', "
            "'cuda:1' or 'mps'."
        ) from error
    if resolved.type == "meta":
        raise ParameterError(
            "device='meta' holds no data, so nothing can be computed there: use "
            "'auto' or 'cpu'."
        )
    if resolved.type == "cuda":
        n_devices = torch.cuda.device_count()
        if n_devices == 0:
            raise ParameterError(
                f"device={device!r}, but torch {torch.__version__} sees no CUDA GPU: "
                "use device='auto' or 'cpu', or install a CUDA build of torch and "
                "check the driver with nvidia-smi."
            )
        if n_devices == 1:
            _warn_of_shared_gpu()
        if resolved.index is not None and resolved.index >= n_devices:
            raise ParameterError(
                f"device={device!r}, but the last CUDA GPU is "
                f"'cuda:{n_devices - 1}': use that or a smaller number."
            )
    if resolved.type == "mps" and not torch.backends.mps.is_available():
        raise ParameterError(
            f"device={device!r}, but Metal is not available: use device='cpu'."
        )
    if resolved.type not in ("cpu", "cuda", "mps"):
        try:
            torch.empty(0, device=resolved)
        except (AssertionError, ImportError, NotImplementedError, RuntimeError):
            raise ParameterError(
                f"device={device!r}, but torch {torch.__version__} has no such device "
                "here: use 'auto' or 'cpu'."
            ) from None
    return resolved


def free_memory(device: str | torch.device = "cpu") -> int:
    """Measure how many bytes are free on a device.

    On a GPU what the driver has free and what torch's allocator keeps for reuse.
    Elsewhere what the system could give without swapping, or what is left of the limit
    of this process's control group (a container, a job of a scheduler) where that is
    less.
    """
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return free + kept
    return max(0, min(psutil.virtual_memory().available, _left_of_cgroup_limits()))


def _left_of_cgroup_limits(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> float:
    """Return what the control groups of this process leave; infinite without limits."""
    try:
        groups = [line.split(":", 2)[1:] for line in own.read_text().splitlines()]
    except OSError:  # not Linux
        return float("inf")
    left = float("inf")
    for controllers, path in groups:
        # Version 2 has one tree for all controllers, version 1 one a controller.
        if not controllers:
            top, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = root / "memory"
            names = (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        else:
            continue
        # In a container the path may be the host's: its tail is then not there.
        group = top / path.lstrip("/")
        for folder in [group, *group.parents]:
            if folder.is_relative_to(top):
                left = min(left, _left_of_cgroup_limit(folder, *names))
    return left


def _left_of_cgroup_limit(folder: Path, limit: str, used: str, cache: str) -> float:
    """Return what one control group leaves; its file cache makes room when asked."""
    try:
        most = int((folder / limit).read_text())  # "max" is none
        taken = int((folder / used).read_text())
        stat = dict(
            line.split() for line in (folder / "memory.stat").read_text().splitlines()
        )
    except (OSError, ValueError):
        return float("inf")
    return most - taken + int(stat.get(cache, 0))


def _worker_number() -> int | None:
    """Return this worker process's number among its siblings; None in a main one."""
    # "LokyProcess-1", "Dask Worker process (from Nanny)-2" and the like.
    number = re.search(r"(\d+)$", multiprocessing.current_process().name)
    if multiprocessing.parent_process() is None or number is None:
        return None
    return int(number[1])


def _warn_of_shared_gpu() -> None:
    """Warn in a process that `n_jobs` has started on a machine with one GPU."""
    if multiprocessing.current_process().name.startswith("LokyProcess"):
        warn_user(
            "n_jobs > 1 with one GPU: the processes take turns on it, each with its "
            "own copy of everything, and all of them are slower than one. Use "
            "n_jobs=None; BatchedGridSearchCV trains many candidates at once on one "
            "GPU."
        )
