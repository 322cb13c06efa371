"""Where tensors live: the door for every estimator's ``device`` parameter."""

from __future__ import annotations

import torch

from sktifa.exceptions import ParameterError

__all__ = ["resolve_device"]


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn an estimator's ``device`` into a torch device that is there.

    Parameters
    ----------
    device : str or torch.device, default="auto"
        ``"auto"`` takes the current CUDA device where there is one and the CPU
        elsewhere; everything else is what :class:`torch.device` understands.

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
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
