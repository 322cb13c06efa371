"""Where tensors live: the door for every estimator's ``device`` parameter."""

from __future__ import annotations

import multiprocessing
import re
import warnings

import joblib
import torch

from sktifa.exceptions import ParameterError

__all__ = ["resolve_device", "warn_of_shared_gpu"]


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


def warn_of_shared_gpu(device: str) -> None:
    """Warn when several processes of this machine are about to share one GPU.

    Parameters
    ----------
    device : str
        An estimator's ``device``.

    Warns
    -----
    UserWarning
        If it is the machine's only GPU.
    """
    local = joblib.parallel.get_active_backend()[0].__class__.__name__
    if local not in ("LokyBackend", "MultiprocessingBackend"):
        return
    is_gpu = device == "auto" or device.startswith("cuda")
    if is_gpu and torch.cuda.is_available() and torch.cuda.device_count() == 1:
        warnings.warn(
            "n_jobs > 1 with one GPU: the processes wait for each other and each holds "
            "its own copy of everything, so that all of them are slower than one. Use "
            "n_jobs=None: BatchedGridSearchCV trains many candidates at once on one "
            "GPU.",
            stacklevel=3,
        )


def _worker_number() -> int | None:
    """Number of this worker among its siblings, from 0; None in a main process."""
    # "LokyProcess-1", "Dask Worker process (from Nanny)-2" and the like.
    name = multiprocessing.current_process().name
    number = re.search(r"(\d+)$", name)
    if multiprocessing.parent_process() is None or number is None:
        return None
    return int(number[1])
