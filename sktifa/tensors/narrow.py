"""Dense operations on matrices of few columns, such as class scores.

A CPU's libraries are slow at these: their vectors are filled along a row, and a row of
seven classes fills none. Along the transposed matrix they are several times as fast.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["log_softmax", "matmul"]

# A row of so many floats fills a vector.
_WIDE = 16


def _is_narrow(device: torch.device, width: int) -> bool:
    return device.type == "cpu" and width < _WIDE


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply matrices, or stacks of them, as ``x @ weight``.

    Parameters
    ----------
    x : Tensor of shape (..., n, m)
        Any.
    weight : Tensor of shape (..., m, width)
        Narrow or not; of as many dimensions as `x`.

    Returns
    -------
    Tensor of shape (..., n, width)

    Examples
    --------
    >>> import torch
    >>> matmul(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    tensor([[11.]])
    """
    if not _is_narrow(x.device, weight.shape[-1]):
        return x @ weight
    return _NarrowProduct.apply(x, weight)


class _NarrowProduct(torch.autograd.Function):
    """A product whose right factor is narrow."""

    @staticmethod
    def forward(ctx, x, weight):  # noqa: ANN001, ANN205
        ctx.save_for_backward(x, weight)
        return (weight.mT @ x.mT).mT.contiguous()

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        x, weight = ctx.saved_tensors
        of_x = grad @ weight.mT if ctx.needs_input_grad[0] else None
        of_weight = (grad.mT @ x).mT.contiguous() if ctx.needs_input_grad[1] else None
        return of_x, of_weight


def log_softmax(x: Tensor) -> Tensor:
    """Return log-probabilities along the last of two dimensions.

    Parameters
    ----------
    x : Tensor of shape (n, width)
        Scores.

    Returns
    -------
    Tensor of shape (n, width)

    Examples
    --------
    >>> import torch
    >>> log_softmax(torch.tensor([[0.0, 0.0]])).exp()
    tensor([[0.5000, 0.5000]])
    """
    if not _is_narrow(x.device, x.shape[1]):
        return functional.log_softmax(x, dim=1)
    return functional.log_softmax(x.t().contiguous(), dim=0).t()
