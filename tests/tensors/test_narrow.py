"""Operations on narrow matrices against PyTorch's own, with their gradients."""

import pytest
import torch
from torch.nn import functional

from sktifa.tensors import narrow


def drawn(*shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return x.requires_grad_()


@pytest.mark.parametrize("shape", [(50, 8), (3, 50, 8)])
@pytest.mark.parametrize("width", [1, 7, 16, 40])
def test_product(shape, width):
    x, weight = drawn(*shape), drawn(*shape[:-2], shape[-1], width)
    out = narrow.matmul(x, weight)
    grad = drawn(*out.shape).detach()
    grads = torch.autograd.grad(out, (x, weight), grad)
    expected = torch.autograd.grad(x @ weight, (x, weight), grad)
    torch.testing.assert_close(out, x @ weight)
    torch.testing.assert_close(grads, expected)


@pytest.mark.parametrize("width", [1, 7, 16, 40])
def test_log_softmax(width):
    x = drawn(50, width)
    out, expected = narrow.log_softmax(x), functional.log_softmax(x, dim=1)
    grad = drawn(50, width).detach()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(
        torch.autograd.grad(out, x, grad), torch.autograd.grad(expected, x, grad)
    )
