"""Kernels of our own for training many models at once.

A stack's step is bound by memory: what these save is reading and writing. Dropout is
drawn by a hash where a value is used, and again in the backward pass, so that no mask
is ever stored; Adam reads and writes each parameter once. They are written twice, for
the CPU in numba and for CUDA in Triton, with the same functions and the same draws.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

__all__ = ["Drawn", "kernels_for", "why_none"]


class Drawn:
    """A draw of dropout on the stored values, or all entries, of stacked matrices.

    Parameters
    ----------
    seed : Tensor of int64, shape (n_blocks,)
        Each block's: the same seed draws the same values, by row or by column, and
        whatever the other blocks are.
    keep : Tensor of float32, shape (n_blocks, 1) or (n_blocks, n_nodes)
        Probability that a value survives, of a block or of each of its nodes.
    scale : Tensor of float32, shape (n_blocks, 1)
        What a block's survivors are multiplied by.
    """

    def __init__(self, seed: Tensor, keep: Tensor, scale: Tensor) -> None:
        self.seed, self.keep, self.scale = seed, keep.contiguous(), scale.contiguous()


def kernels_for(device: torch.device) -> ModuleType:
    """Return the module of kernels for a device that has some."""
    if device.type == "cuda":
        from sktifa.tensors.kernels import cuda

        return cuda
    from sktifa.tensors.kernels import cpu

    return cpu


@cache
def why_none(device: torch.device) -> str | None:
    """Say why a device has no kernels, or None if it has."""
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        return f"there are no kernels for device={device.type!r}"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    try:
        nothing = torch.zeros(1, 1, device=device)
        kernels_for(device).copy_where(nothing[0] > 0, nothing, nothing)
    except Exception as error:  # no C compiler, an old GPU ...
        return f"Triton can't compile kernels here ({error})"
    return None
