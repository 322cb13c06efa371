"""Products of graphs and features, against dense matrices."""

import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa.tensors.features import Features
from sktifa.tensors.kernels import Drawn
from sktifa.tensors.sparse import Adjacency, Flips

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
    h = torch.randn(2, 30, 5, generator=torch.Generator().manual_seed(0))
    on_device = h.to(device)
    degree = dense.sum(1)
    mean = np.divide(dense, degree[:, None], where=degree[:, None] > 0, out=dense * 0)
    np.testing.assert_allclose(graph.degree[0].cpu(), degree, rtol=1e-5)
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
        h = torch.randn(2, 30, 5, generator=torch.Generator().manual_seed(0))
        ours = h.to(device).requires_grad_()
        (product(ours) * target.to(device)).sum().backward()
        reference = h.detach().double().requires_grad_()
        ((torch.from_numpy(matrix).double() @ reference) * target).sum().backward()
        np.testing.assert_allclose(ours.grad.cpu(), reference.grad, atol=1e-4)


def walked(matrix, scores, steps, teleport):
    h = scores
    for _ in range(steps):
        h = (1 - teleport) * matrix @ h + teleport * scores
    return h


@pytest.mark.parametrize("n_models", [1, 2, 9])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_propagation_and_its_gradient_equal_dense_steps(steps, n_models, device):
    dense = random_graph(n=70, weighted=True)
    dense[0, 1:] = dense[1:, 0] = 0.7  # a row of several parts
    graph = Adjacency.from_csr(sparse.csr_array(dense), device)
    scores = torch.randn(n_models, 70, 7, generator=torch.Generator().manual_seed(0))
    ours = scores.to(device).requires_grad_()
    out = graph.propagated(ours, steps, 0.2)
    reference = scores.double().requires_grad_()
    expected = walked(torch.from_numpy(gcn_matrix(dense)), reference, steps, 0.2)
    torch.testing.assert_close(out.double().cpu(), expected, rtol=1e-5, atol=1e-5)
    (grad,) = torch.autograd.grad(out.square().sum(), ours)
    (wanted,) = torch.autograd.grad(expected.square().sum(), reference)
    torch.testing.assert_close(grad.double().cpu(), wanted, rtol=1e-5, atol=1e-5)


def stacked(flips):
    """Make the flips of a stack of models of one each."""
    ends = [
        torch.cat([getattr(one, end) + 30 * i for i, one in enumerate(flips)])
        for end in ("target", "source")
    ]
    return Flips(
        *ends,
        torch.cat([one.weight for one in flips]),
        torch.cat([one.degree for one in flips]),
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_perturbed_adjacencies_equal_those_of_the_perturbed_matrices(weighted, device):
    dense = random_graph(weighted=weighted)
    matrix = sparse.csr_array(dense)
    graph = Adjacency.from_csr(matrix, device)
    row = np.repeat(np.arange(30), np.diff(matrix.indptr))
    arcs = list(zip(row.tolist(), matrix.indices.tolist(), strict=True))
    added = np.array([[3, 3, 0], [5, 9, 3]])
    assert not dense[added[0], added[1]].any()
    removed, changed = [], []
    for step in (7, 4):
        chosen = set(arcs[::step])
        gone = [p for p, (u, v) in enumerate(arcs) if {(u, v), (v, u)} & chosen]
        of_model = dense.copy()
        of_model[row[gone], matrix.indices[gone]] = 0
        of_model[added[0], added[1]] = of_model[added[1], added[0]] = matrix.data.mean()
        changed.append(of_model)
        removed.append(gone)
    flips = [
        graph.flips(
            torch.tensor(gone, device=device), torch.from_numpy(added).to(device)
        )
        for gone in removed
    ]
    perturbed = graph.perturbed(stacked(flips))
    h = torch.randn(2, 30, 5, generator=torch.Generator().manual_seed(0))
    ours = h.to(device).requires_grad_()
    for product, made in [
        (perturbed.normalized, gcn_matrix),
        (
            lambda h: perturbed.propagated(h, 3, 0.1),
            lambda a: walked(gcn_matrix(a), np.eye(30), 3, 0.1),
        ),
        (perturbed.mean, lambda a: a / np.maximum(a.sum(1), 1e-9)[:, None]),
    ]:
        operator = torch.from_numpy(np.stack([made(part) for part in changed])).double()
        expected = operator @ h.double()
        torch.testing.assert_close(
            product(ours).double().cpu(), expected, rtol=1e-4, atol=1e-5
        )
        (grad,) = torch.autograd.grad(product(ours).square().sum(), ours)
        torch.testing.assert_close(
            grad.double().cpu(), 2 * operator.mT @ expected, rtol=1e-4, atol=1e-4
        )
    for model, one in enumerate(changed):
        alone = graph.perturbed(flips[model])
        rebuilt = np.zeros_like(dense)
        source, target = alone.edge_index.cpu().numpy()
        weight = alone.edge_weight
        rebuilt[source, target] = 1 if weight is None else weight.cpu()
        expected = one if weighted else one > 0
        np.testing.assert_allclose(rebuilt, expected, rtol=1e-6)


def test_padding_changes_nothing(device):
    matrix = sparse.csr_array(random_graph(weighted=True))
    graph = Adjacency.from_csr(matrix, device)
    nowhere = torch.zeros(4, dtype=torch.int64, device=device)
    flips = Flips(nowhere, nowhere, torch.zeros(4, device=device), graph.degree)
    nothing = graph.perturbed(flips)
    h = torch.randn(1, 30, 4, generator=torch.Generator().manual_seed(0)).to(device)
    torch.testing.assert_close(nothing.normalized(h), graph.normalized(h))
    torch.testing.assert_close(nothing.edge_index, graph.edge_index)
    torch.testing.assert_close(nothing.edge_weight, graph.edge_weight)


def test_the_unperturbed_graph_is_left_alone():
    graph = Adjacency.from_csr(sparse.csr_array(random_graph()), CPU)
    weight, degree = graph.weight.clone(), graph.degree.clone()
    changed = graph.perturbed(graph.flips(torch.arange(4), torch.tensor([[3], [5]])))
    assert not torch.equal(changed.degree, degree)
    assert torch.equal(graph.weight, weight)
    assert torch.equal(graph.degree, degree)


@pytest.mark.parametrize("fill", [0.05, 0.9])
@pytest.mark.parametrize("drops", [False, True])
def test_feature_product_and_its_gradient(fill, drops, device):
    rng = np.random.default_rng(0)
    dense = (rng.random((20, 12)) * (rng.random((20, 12)) < fill)).astype(np.float32)
    features = Features.from_matrix(sparse.csr_array(dense), device)
    assert features.is_sparse == (fill < 0.5)
    np.testing.assert_allclose(features.dense().cpu(), dense)
    drawn = None
    if drops:
        keep = torch.full((2, 1), 0.7, device=device)
        drawn = Drawn(torch.tensor([5, 6], device=device), keep, 1 / keep)
    weight = torch.randn(2, 12, 4, generator=torch.Generator().manual_seed(0))
    ours = weight.to(device).requires_grad_()
    out = features.transform(ours, drawn)
    (grad,) = torch.autograd.grad(out.square().sum(), ours)
    # What survives is told by the product with a matrix that copies.
    eye = torch.eye(12, device=device).repeat(2, 1, 1)
    matrix = features.transform(eye, drawn).cpu().double()
    np.testing.assert_allclose(
        matrix[matrix != 0] * (0.7 if drops else 1),
        np.broadcast_to(dense, matrix.shape)[matrix.numpy() != 0],
        rtol=1e-5,
    )
    assert drops == bool(((matrix.numpy() != 0) != (dense != 0)).any())
    expected = matrix @ weight.double()
    torch.testing.assert_close(out.cpu().double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        grad.cpu().double(), 2 * matrix.mT @ expected, rtol=1e-4, atol=1e-4
    )
