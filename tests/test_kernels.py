"""Triton kernels against dense products and PyTorch's own Adam."""

import numpy as np
import pytest
import torch
from scipy import sparse

pytest.importorskip("triton")
pytestmark = pytest.mark.cuda

CASES = [(30, 20, 7, 3), (400, 25, 64, 2), (40, 9, 1, 1), (5, 300, 33, 2)]


def on_gpu(array, dtype=None):
    return torch.from_numpy(np.asarray(array, dtype=dtype)).cuda()


def matrix(n_rows, n_columns):
    made = sparse.random_array(
        (n_rows, n_columns), density=0.3, format="csr", rng=0, dtype=np.float32
    )
    pattern = on_gpu(made.indptr, np.int32), on_gpu(made.indices, np.int32)
    return made.toarray(), pattern, on_gpu(made.data)


def transposed(dense, values):
    """Return the transposed matrix, and where each value stood before."""
    stored = sparse.csr_array(dense)
    order = sparse.csr_array(
        (np.arange(stored.nnz), stored.indices, stored.indptr), shape=stored.shape
    ).T.tocsr()
    pattern = on_gpu(order.indptr, np.int32), on_gpu(order.indices, np.int32)
    order = on_gpu(order.data, np.int32)
    return pattern, values[order.long()], order


@pytest.mark.parametrize(("n_rows", "n_columns", "width", "n_blocks"), CASES)
def test_product(n_rows, n_columns, width, n_blocks):
    from sktifa import kernels

    dense, pattern, values = matrix(n_rows, n_columns)
    other = torch.randn(n_blocks, n_columns, width).cuda()
    out = kernels.csr_product(*pattern, values, other.flatten(0, 1), n_blocks * n_rows)
    expected = on_gpu(dense).double() @ other.double()
    torch.testing.assert_close(
        out.view(expected.shape).double(), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("per_node", [False, True])
def test_a_draw_keeps_the_asked_share_and_is_the_same_by_column(per_node):
    from sktifa import kernels

    n_rows, n_columns, n_blocks = 400, 120, 3
    dense, pattern, values = matrix(n_rows, n_columns)
    rng = np.random.default_rng(0)
    keep = rng.random((n_blocks, n_rows if per_node else 1), dtype=np.float32)
    scale = on_gpu([[1.0], [2.0], [0.5]], np.float32)
    drawn = kernels.Drawn(torch.tensor([2**40 + 7]).cuda(), on_gpu(keep), scale)
    eye = torch.eye(n_columns).repeat(n_blocks, 1).cuda()
    product = kernels.csr_product(*pattern, values, eye, n_blocks * n_rows, drawn=drawn)
    by_row = product.view(n_blocks, n_rows, n_columns).cpu().numpy()
    kept = by_row != 0
    for block in range(n_blocks):
        scaled = dense * float(scale[block])
        np.testing.assert_allclose(
            by_row[block][kept[block]], scaled[kept[block]], rtol=1e-6
        )
    # Each of the 3 * 14,400 stored values is a trial of its own.
    chance = np.broadcast_to(keep[:, :, None], kept.shape)[:, dense != 0]
    trials = kept[:, dense != 0]
    deviation = (trials - chance).sum() / np.sqrt((chance * (1 - chance)).sum())
    assert abs(deviation) < 4  # error rate 6e-5
    pattern, values, order = transposed(dense, values)
    eye = torch.eye(n_rows).repeat(n_blocks, 1).cuda()
    by_column = kernels.csr_product(
        *pattern, values, eye, n_blocks * n_columns, drawn=drawn, order=order
    )
    by_column = by_column.view(n_blocks, n_columns, n_rows).cpu().numpy()
    np.testing.assert_array_equal(by_column.transpose(0, 2, 1), by_row)


def test_adam_is_pytorchs():
    from sktifa import kernels

    rates, decays, betas = [0.1, 0.01, 0.3], [0.0, 0.1, 0.5], (0.9, 0.999)
    stacked = torch.randn(3, 50, 30).cuda()
    single = [torch.nn.Parameter(p.clone()) for p in stacked]
    optimizers = [
        torch.optim.Adam([p], lr=rate, weight_decay=decay, betas=betas)
        for p, rate, decay in zip(single, rates, decays, strict=True)
    ]
    moments = torch.zeros_like(stacked), torch.zeros_like(stacked)
    for step in range(1, 20):
        grad = torch.randn(3, 50, 30).cuda()
        kernels.adam(
            stacked,
            grad,
            *moments,
            betas=betas,
            eps=1e-8,
            size=on_gpu([-r / (1 - betas[0] ** step) for r in rates], np.float32),
            root=torch.tensor((1 - betas[1] ** step) ** 0.5).cuda(),
            weight_decay=on_gpu(decays, np.float32),
        )
        for p, g, optimizer in zip(single, grad, optimizers, strict=True):
            p.grad = g
            optimizer.step()
    expected = torch.stack([p.detach() for p in single])
    torch.testing.assert_close(stacked, expected, rtol=1e-4, atol=1e-5)


def test_copies_the_chosen_ones():
    from sktifa import kernels

    source, target = torch.randn(3, 70, 30).cuda(), torch.zeros(3, 70, 30).cuda()
    kernels.copy_where(torch.tensor([True, False, True]).cuda(), source, target)
    expected = source * torch.tensor([1.0, 0.0, 1.0]).cuda()[:, None, None]
    torch.testing.assert_close(target, expected)
