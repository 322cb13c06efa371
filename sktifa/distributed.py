"""Data-parallel training: the same script, started by ``torchrun``.

Every process holds the whole graph and the same model, and trains on subgraphs of its
own; gradients are averaged at every step. What decides how training
goes on (validation, early stopping, seeds) is process 0's to say. With one process,
everything here does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import distributed, nn

__all__ = [
    "agree",
    "averaged",
    "join",
    "local_device",
    "mean",
    "n_ranks",
    "rank",
    "share",
    "shared",
]

T = TypeVar("T")


def join() -> None:
    """Join the processes that ``torchrun`` started, unless the script has already.

    NCCL where there is a GPU for each process of the host, else gloo.
    """
    if n_ranks() > 1 or int(os.environ.get("WORLD_SIZE", 1)) < 2:
        return
    if "RANK" not in os.environ or not distributed.is_available():
        return
    local = int(os.environ.get("LOCAL_RANK", 0))
    on_gpus = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if on_gpus:
        torch.cuda.set_device(local)
    distributed.init_process_group("nccl" if on_gpus else "gloo")


def rank() -> int:
    """Return this process's number; 0 where it is alone."""
    return distributed.get_rank() if _is_joined() else 0


def n_ranks() -> int:
    """Return the number of processes."""
    return distributed.get_world_size() if _is_joined() else 1


def local_device(device: torch.device) -> torch.device:
    """Name this process's own GPU: ``cuda`` is another one in another thread."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def agree(value: T) -> T:
    """Return process 0's value to all."""
    if n_ranks() == 1:
        return value
    box: list[Any] = [value]
    distributed.broadcast_object_list(box, src=0)
    return box[0]


def mean(value: torch.Tensor) -> torch.Tensor:
    """Average a tensor over the processes."""
    if n_ranks() > 1:
        distributed.all_reduce(value)
        value /= n_ranks()
    return value


def shared(value: torch.Tensor) -> torch.Tensor:
    """Return process 0's tensor to all."""
    if n_ranks() > 1:
        distributed.broadcast(value, src=0)
    return value


def averaged(
    grads: Sequence[torch.Tensor | None], parameters: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Average gradients over the processes; one that is missing is 0."""
    whole = [
        torch.zeros_like(p) if g is None else g
        for g, p in zip(grads, parameters, strict=True)
    ]
    if n_ranks() == 1:
        return whole
    # One message for all of them.
    flat = torch.cat([grad.reshape(-1) for grad in whole])
    distributed.all_reduce(flat)
    flat /= n_ranks()
    parts = flat.split([grad.numel() for grad in whole])
    return [part.view_as(grad) for part, grad in zip(parts, whole, strict=True)]


@torch.no_grad()
def share(module: nn.Module) -> None:
    """Give all processes process 0's model, running means included."""
    if n_ranks() > 1:
        for value in module.state_dict().values():
            distributed.broadcast(value, src=0)


def _is_joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()
