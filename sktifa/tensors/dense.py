"""Dense operations of the layers, each model's the same whatever is beside it.

Everything here works on a stack of models, with the model in the first dimension.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.kernels import Drawn, kernels_for

__all__ = ["activate", "log_softmax", "matmul"]

# A row of so many floats fills a vector.
_WIDE = 16


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply each model's matrices, (n_models, n, m) by (n_models, m, width).

    Examples
    --------
    >>> import torch
    >>> matmul(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0], [4.0]]]))
    tensor([[[11.]]])
    """
    return _Product.apply(x, weight)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):  # noqa: ANN001, ANN205
        ctx.save_for_backward(x, weight)
        return kernels_for(x.device).matmul(x.contiguous(), weight)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        x, weight = ctx.saved_tensors
        kernels, grad = kernels_for(x.device), grad.contiguous()
        return kernels.matmul(grad, weight.mT), kernels.transposed_matmul(x, grad)


def activate(h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
    """Add each model's bias, cut off what is negative and drop entries."""
    return _Activation.apply(h, bias, drawn)


class _Activation(torch.autograd.Function):
    """Bias, ReLU and dropout, of which the backward pass needs the output alone."""

    @staticmethod
    def forward(ctx, h, bias, drawn):  # noqa: ANN001, ANN205
        out = kernels_for(h.device).activate(h.contiguous(), bias, drawn)
        ctx.save_for_backward(out)
        ctx.drawn = drawn
        return out

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        (out,) = ctx.saved_tensors
        of_h = kernels_for(out.device).activate_backward(
            grad.contiguous(), out, ctx.drawn
        )
        return of_h, of_h.sum(1), None


def log_softmax(x: Tensor) -> Tensor:
    """Return log-probabilities along the last dimension, of (n_models, n, n_classes).

    A CPU's vectors are filled along a row, and a row of seven classes fills none:
    there each model's matrix is laid down first.

    Examples
    --------
    >>> import torch
    >>> log_softmax(torch.tensor([[[0.0, 0.0]]])).exp()
    tensor([[[0.5000, 0.5000]]])
    """
    if x.device.type != "cpu" or x.shape[-1] >= _WIDE:
        return functional.log_softmax(x, dim=-1)
    # One by one: how a vector is cut depends on where in memory it begins.
    lying = [functional.log_softmax(model.T.contiguous(), dim=0).T for model in x]
    return torch.stack(lying)
