"""Random numbers by hash: the same wherever, and in whatever order, they are drawn.

A generator's numbers depend on how many were drawn before. Here a number is worked out
from what it is for (a model's seed, a view, a node, ...), so that a model's draws
are its own alone, in any stack, on any device and when a CUDA graph is replayed.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["FACTORS", "KEY_STEP", "STEP", "exponential", "mixed"]

# The finaliser of SplitMix64 (Steele, Lea and Flood 2014), as signed numbers.
STEP = 0x9E3779B97F4A7C15 - (1 << 64)
KEY_STEP = 0xD1342543DE82EF95 - (1 << 64)
FACTORS = 0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64)


def mixed(key: Tensor, number: Tensor | int) -> Tensor:
    """Return 64 bits that a key and a number determine; they broadcast.

    A key is a seed, or what this function has made of one; numbers tell apart what is
    drawn with it.

    Examples
    --------
    >>> import torch
    >>> key = mixed(torch.tensor(0), 1)
    >>> mixed(key, torch.arange(3)).unique().numel()
    3
    """
    # Two odd numbers: small keys and numbers have no sum in common.
    bits = key * KEY_STEP + (torch.as_tensor(number) + 1) * STEP
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        bits = (bits ^ _shifted(bits, shift)) * factor
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    # Tensors shift in copies of the sign.
    return (bits >> by) & ((1 << (64 - by)) - 1)


def exponential(bits: Tensor) -> Tensor:
    """Turn bits into standard exponential numbers of float64.

    Examples
    --------
    >>> import torch
    >>> exponential(torch.tensor([0, 1 << 62]))
    tensor([0.0000, 0.2877], dtype=torch.float64)
    """
    return -torch.log1p(_shifted(bits, 11).double() * -(2.0**-53))
