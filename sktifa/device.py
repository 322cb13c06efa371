"""Where tensors live: the door for every estimator's ``device`` parameter."""

from __future__ import annotations

import multiprocessing
import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from sktifa.exceptions import ParameterError

__all__ = ["on_device", "resolve_device"]


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a GPU the current one of this thread: its streams and events are that's."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn an estimator's ``device`` into a torch device that is there.

    Parameters
    ----------
    device : str or torch.device, default="auto"
        ``"auto"`` takes the current CUDA device where there is one and the CPU
        elsewhere. In a worker process of joblib (``n_jobs``) or dask it takes the
        GPU of the worker's number, so that several GPUs are all used; a worker that
        sees one GPU (``CUDA_VISIBLE_DEVICES``, as dask-cuda and ray set it) takes
        that. Everything else is what :class:`torch.device` understands.

    Returns
    -------
    torch.device

    Raises
    ------
    ParameterError
        If the name is none of torch's, or the device is not there.

    Warns
    -----
    UserWarning
        If several processes started by ``n_jobs`` are to share one GPU.

    Examples
    --------
    >>> from sktifa.device import resolve_device
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        worker, n_devices = _worker_number(), torch.cuda.device_count()
        if n_devices == 1:
            _warn_of_shared_gpu()
        if worker is None or n_devices == 1:
            return torch.device("cuda")
        return torch.device("cuda", worker % n_devices)
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ParameterError(
            f"device={device!r} is no device of torch: use 'auto', 'cpu', 'cuda', "
            "'cuda:1' or 'mps'."
        ) from error
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
    return resolved


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
        warnings.warn(
            "n_jobs > 1 with one GPU: the processes take turns on it, each with its "
            "own copy of everything, and all of them are slower than one. Use "
            "n_jobs=None; BatchedGridSearchCV trains many candidates at once on one "
            "GPU.",
            stacklevel=3,
        )
