"""Dense operations of a stack against PyTorch's own, with their gradients."""

import pytest
import torch
from torch.nn import functional

from sktifa.tensors import dense


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n_models", [1, 3])
@pytest.mark.parametrize("width", [1, 7, 16, 40])
def test_product(n_models, width, device):
    x = drawn(n_models, 50, 8).to(device).requires_grad_()
    weight = drawn(n_models, 8, width).to(device).requires_grad_()
    out = dense.matmul(x, weight)
    grad = drawn(*out.shape).to(device)
    grads = torch.autograd.grad(out, (x, weight), grad)
    expected = torch.autograd.grad(x @ weight, (x, weight), grad)
    torch.testing.assert_close(out, x @ weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(grads, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [1, 7, 16, 40])
def test_log_softmax(width, device):
    x = drawn(3, 50, width).to(device).requires_grad_()
    out, expected = dense.log_softmax(x), functional.log_softmax(x, dim=-1)
    grad = drawn(3, 50, width).to(device)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(
        torch.autograd.grad(out, x, grad), torch.autograd.grad(expected, x, grad)
    )


def test_activation_has_pytorchs_gradient(device):
    h = drawn(2, 30, 5).to(device).requires_grad_()
    bias = drawn(2, 5).to(device).requires_grad_()
    grad = drawn(2, 30, 5).to(device)
    ours = torch.autograd.grad(dense.activate(h, bias, None), (h, bias), grad)
    expected = torch.autograd.grad((h + bias[:, None]).relu(), (h, bias), grad)
    torch.testing.assert_close(ours, expected)
