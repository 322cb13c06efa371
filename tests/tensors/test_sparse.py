"""Products, dropout and perturbed adjacencies, against dense matrices."""

import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa.tensors.sparse import Adjacency, Features, csr_product, dropout, keep_mask

CPU = torch.device("cpu")


def random_graph(n=30, weighted=False, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < 0.15, 1).astype(np.float32)
    upper[:, 3] = upper[3] = 0  # an isolated node
    if weighted:
        upper *= rng.uniform(0.5, 2, (n, n)).astype(np.float32)
    return upper + upper.T


def gcn_matrix(dense):
    full = dense + np.eye(len(dense))
    scale = 1 / np.sqrt(full.sum(1))
    return scale[:, None] * full * scale


@pytest.mark.parametrize("weighted", [False, True])
def test_adjacency_products_equal_dense_ones(weighted, device):
    dense = random_graph(weighted=weighted)
    graph = Adjacency.from_csr(sparse.csr_array(dense), device)
    h = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    on_device = h.to(device)
    degree = dense.sum(1)
    mean = np.divide(dense, degree[:, None], where=degree[:, None] > 0, out=dense * 0)
    np.testing.assert_allclose(graph.degree.cpu(), degree, rtol=1e-5)
    np.testing.assert_allclose(
        graph.normalized(on_device).cpu(), gcn_matrix(dense) @ h.numpy(), atol=1e-5
    )
    np.testing.assert_allclose(graph.mean(on_device).cpu(), mean @ h.numpy(), atol=1e-5)
    assert graph.weighted == weighted


def test_gradients_equal_autograd_through_the_dense_matrix(device):
    dense = random_graph(weighted=True)
    graph = Adjacency.from_csr(sparse.csr_array(dense), device)
    target = torch.randn(30, 5, generator=torch.Generator().manual_seed(1))
    for product, matrix in [
        (graph.normalized, gcn_matrix(dense)),
        (graph.mean, dense / np.maximum(dense.sum(1), 1e-9)[:, None]),
    ]:
        h = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
        ours = h.to(device).requires_grad_()
        (product(ours) * target.to(device)).sum().backward()
        reference = h.detach().double().requires_grad_()
        ((torch.from_numpy(matrix).double() @ reference) * target).sum().backward()
        np.testing.assert_allclose(ours.grad.cpu(), reference.grad, atol=1e-4)


def test_perturbed_adjacency_equals_one_built_from_the_perturbed_matrix(device):
    dense = random_graph()
    matrix = sparse.csr_array(dense)
    graph = Adjacency.from_csr(matrix, device)
    row = np.repeat(np.arange(30), np.diff(matrix.indptr))
    chosen = [(int(u), int(v)) for u, v in zip(row, matrix.indices, strict=True)][::7]
    removed = [
        p
        for p, (u, v) in enumerate(zip(row, matrix.indices, strict=True))
        if (u, v) in chosen or (v, u) in chosen
    ]
    added = np.array([[3, 3, 0], [5, 9, 3]])
    assert not dense[added[0], added[1]].any()
    perturbed = graph.perturbed(
        torch.tensor(removed, device=device), torch.from_numpy(added).to(device)
    )
    changed = dense.copy()
    changed[row[removed], matrix.indices[removed]] = 0
    changed[added[0], added[1]] = changed[added[1], added[0]] = 1
    assert (changed != changed.T).sum() == 0
    h = torch.randn(30, 5, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(
        perturbed.normalized(h.to(device)).cpu(),
        gcn_matrix(changed) @ h.numpy(),
        atol=1e-5,
    )
    rebuilt = np.zeros_like(dense)
    source, target = perturbed.edge_index.cpu().numpy()
    rebuilt[source, target] = 1
    np.testing.assert_array_equal(rebuilt, changed)


def test_padding_changes_nothing(device):
    matrix = sparse.csr_array(random_graph(weighted=True))
    graph = Adjacency.from_csr(matrix, device)
    nothing = graph.perturbed(
        torch.full((4,), matrix.nnz, device=device),
        torch.zeros((2, 3), dtype=torch.int64, device=device),
        torch.zeros(3, device=device),
    )
    h = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).to(device)
    torch.testing.assert_close(nothing.normalized(h), graph.normalized(h))
    torch.testing.assert_close(nothing.edge_index, graph.edge_index)
    torch.testing.assert_close(nothing.edge_weight, graph.edge_weight)


def test_the_unperturbed_graph_is_left_alone():
    graph = Adjacency.from_csr(sparse.csr_array(random_graph()), CPU)
    before = graph.weight.clone()
    graph.perturbed(torch.arange(4), torch.tensor([[3], [5]]))
    assert torch.equal(graph.weight, before)
    assert graph.added.shape == (2, 0)


@pytest.mark.parametrize("fill", [0.1, 0.9])
def test_feature_product_and_its_gradient(fill, device):
    rng = np.random.default_rng(0)
    dense = (rng.random((20, 12)) * (rng.random((20, 12)) < fill)).astype(np.float32)
    features = Features.from_matrix(sparse.csr_array(dense), device)
    assert features.is_sparse == (fill < 0.5)
    np.testing.assert_allclose(features.dense().cpu(), dense)
    generator = torch.Generator(device=device).manual_seed(0)
    for view in (features, features.drop(0.3, generator)):
        matrix = view.dense().cpu().double()
        weight = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
        ours = weight.to(device).requires_grad_()
        out = view.matmul(ours)
        (out**2).sum().backward()
        reference = weight.detach().double().requires_grad_()
        ((matrix @ reference) ** 2).sum().backward()
        np.testing.assert_allclose(
            out.detach().cpu(), matrix @ weight.detach().double(), atol=1e-5
        )
        np.testing.assert_allclose(ours.grad.cpu(), reference.grad, rtol=1e-4)


@pytest.mark.parametrize("fill", [0.2, 0.9])
def test_dropout_and_masking_keep_the_stated_share(fill, device):
    n, h, rate, masked = 400, 300, 0.4, 0.7
    rng = np.random.default_rng(0)
    dense = (rng.random((n, h)) < fill).astype(np.float32)
    features = Features.from_matrix(dense, device)
    row_keep = torch.ones(n, device=device)
    row_keep[::2] = 1 - masked
    generator = torch.Generator(device=device).manual_seed(0)
    view = features.masked(row_keep).drop(rate, generator).dense().cpu().numpy()
    np.testing.assert_allclose(np.unique(view), [0, 1 / (1 - rate)], rtol=1e-6)
    for rows, keep in [
        (slice(0, None, 2), (1 - rate) * (1 - masked)),
        (slice(1, None, 2), 1 - rate),
    ]:
        stored = dense[rows].sum()
        share = (view[rows] > 0).sum() / stored
        # Five standard errors: a false alarm in 1.7 million runs.
        assert abs(share - keep) < 5 * np.sqrt(keep * (1 - keep) / stored)
    # Masking alone, as in evaluation of a view, does not rescale.
    alone = features.masked(row_keep).drop(0.0, generator).dense().cpu().numpy()
    assert set(np.unique(alone)) == {0, 1}
    np.testing.assert_array_equal(alone[1::2], dense[1::2])


def test_masks_of_certain_probability_and_independence():
    generator = torch.Generator().manual_seed(0)
    assert keep_mask((1000,), 1.0, CPU, generator).all()
    assert not keep_mask((1000,), 0.0, CPU, generator).any()
    keep = torch.tensor([0.0, 1.0]).repeat(500)
    torch.testing.assert_close(keep_mask((1000,), keep, CPU, generator), keep.bool())
    bits = keep_mask((200_000,), 0.5, CPU, generator).double().numpy() - 0.5
    for lag in (1, 2, 3, 4, 64):
        correlation = 4 * (bits[lag:] * bits[:-lag]).mean()
        assert abs(correlation) < 5 / np.sqrt(len(bits))


def test_dropout_is_off_in_evaluation_and_unbiased_in_training():
    x = torch.ones(300, 300)
    assert dropout(x, 0.5, None) is x
    out = dropout(x, 0.25, torch.Generator().manual_seed(0))
    assert abs(out.mean().item() - 1) < 5 * np.sqrt(0.25 / 0.75 / x.numel())


def test_product_without_csr_kernels_agrees():
    dense = random_graph(weighted=True)
    matrix = sparse.csr_array(dense)
    graph = Adjacency.from_csr(matrix, CPU)
    h = torch.randn(30, 4)
    meta = _GatherOnly(h)
    out = csr_product(graph.crow, graph.col, graph.weight, meta, 30)
    np.testing.assert_allclose(out, dense @ h.numpy(), atol=1e-5)


class _GatherOnly:
    """A dense matrix that claims to lie on a device without CSR kernels."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.device = torch.device("mps")

    def __getitem__(self, index):
        return self._tensor[index]

    def __getattr__(self, name):
        return getattr(self._tensor, name)
