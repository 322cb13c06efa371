"""Kernels of our own for training models, many at once or one.

A step is bound by memory: what these save is reading and writing. Dropout is drawn by
a hash where a value is used, and again in the backward pass, so that no mask is ever
stored; Adam reads and writes each parameter once. They are written for the CPU in
numba, for CUDA in Triton and for everything else in plain PyTorch, with the same
functions and the same draws.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

__all__ = ["MOST_GRADIENT", "Drawn", "Halves", "has_triton", "kernels_for"]

# A gradient counts as at most this for Adam: the square of a larger one is no float32.
MOST_GRADIENT = 1e18


class Drawn:
    """A draw of dropout on the stored values, or all entries, of stacked matrices.

    The same `seed`, int64 of (n_models,), draws the same values, by row or by column,
    and whatever the other models are. `keep` is the probability that a value survives,
    float32 of (n_models, 1) or of each node, (n_models, n_nodes); survivors are
    multiplied by `scale`, float32 of (n_models, 1).
    """

    def __init__(self, seed: Tensor, keep: Tensor, scale: Tensor) -> None:
        self.seed, self.keep, self.scale = seed, keep.contiguous(), scale.contiguous()


class Halves:
    """A matrix of float32 as one or two of float16.

    The sum of the `parts`, (n_parts, n_rows, at least n_columns), times `unit`, a power
    of two of (1,), is the matrix, to 22 bits of its largest number at the least.
    """

    def __init__(self, parts: Tensor, unit: Tensor, n_columns: int) -> None:
        self.parts, self.unit, self.n_columns = parts, unit, n_columns


def kernels_for(device: torch.device) -> ModuleType:
    """Return the module of kernels for a device."""
    if device.type == "cpu":
        from sktifa.tensors.kernels import cpu

        return cpu
    if device.type == "cuda" and has_triton():
        from sktifa.tensors.kernels import cuda

        return cuda
    from sktifa.tensors.kernels import plain

    return plain


@cache
def has_triton() -> bool:
    """Tell whether Triton is there and can compile: that takes a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return False
    try:
        from sktifa.tensors.kernels import cuda

        nothing = torch.zeros(1, 1, device="cuda")
        cuda.copy_where(nothing[0] > 0, nothing, nothing)
    except Exception:  # whatever a compiler may raise
        return False
    return True
