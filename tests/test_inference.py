"""Prediction in blocks equals prediction on the whole graph."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch_geometric.nn import GCN

from sktifa.datasets import make_block_graph
from sktifa.graph import Graph
from sktifa.inference import LayerwisePredictor, _closure, _cut
from sktifa.tensors.features import Features
from sktifa.tensors.scaling import Scaling
from sktifa.tensors.sparse import Adjacency
from sktifa.training.encoders import ENCODERS, EncoderSpec, build_encoder
from sktifa.training.sources import NodeFeatures

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def graphs():
    """An unweighted graph with isolated nodes, and a weighted one, sparse features."""
    plain = make_block_graph(
        150, 4, average_degree=5, degree_exponent=2.1, n_features=16, random_state=0
    ).graph
    rng = np.random.default_rng(0)
    upper = sparse.triu(plain.adjacency)
    upper.data = rng.uniform(0.2, 3, upper.nnz).astype(np.float32)
    features = sparse.random_array((150, 30), density=0.1, rng=rng, dtype=np.float32)
    assert (np.diff(plain.adjacency.indptr) == 0).any()
    return {"plain": plain, "weighted": Graph(upper + upper.T, features.tocsr())}


def full(encoder, graph, device=CPU):
    encoder.eval()
    with torch.no_grad():
        features = Features.from_matrix(graph.features, device)
        return encoder(features, Adjacency.from_csr(graph.adjacency, device))[0]


@pytest.mark.parametrize("kind", ["plain", "weighted"])
@pytest.mark.parametrize("name", ENCODERS)
def test_blocks_equal_the_whole_graph(name, kind, graphs, device):
    graph = graphs[kind]
    spec = EncoderSpec(
        name,
        graph.n_features,
        16,
        4,
        n_layers=3,
        residual=True,
        normalization="batch",
        propagation_steps=2,
    )
    encoder = build_encoder(spec, seed=0).to(device)
    for norm in encoder.norms:  # running means that are not the identity
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.5, 2)
    expected = full(encoder, graph, device)
    nodes = np.array([7, 3, 149, 3, 0])
    for memory in (1, 60_000, 1 << 30):
        predictor = LayerwisePredictor(
            graph.adjacency, NodeFeatures(graph.features, device), memory
        )
        logits = predictor.logits(encoder)
        torch.testing.assert_close(logits.to(device), expected, rtol=1e-4, atol=1e-4)
        some = predictor.logits(encoder, nodes)
        torch.testing.assert_close(
            some.to(device), expected[nodes], rtol=1e-4, atol=1e-4
        )
        hidden = predictor.embed(encoder, nodes)
        with torch.no_grad():
            whole = encoder.embed(
                Features.from_matrix(graph.features, device),
                Adjacency.from_csr(graph.adjacency, device),
            )[0]
        torch.testing.assert_close(
            hidden.to(device), whole[nodes], rtol=1e-4, atol=1e-4
        )


def test_foreign_modules_see_the_whole_graph(graphs):
    graph = graphs["plain"]
    encoder = build_encoder(EncoderSpec(GCN, graph.n_features, 16, 4), seed=0)
    predictor = LayerwisePredictor(
        graph.adjacency, NodeFeatures(graph.features, CPU), 1
    )
    torch.testing.assert_close(predictor.logits(encoder), full(encoder, graph))
    assert predictor.embed(encoder, np.arange(5)).shape == (5, 16)


@pytest.mark.parametrize("n_arrays_read_only", [True, False])
def test_closure_against_scipy(graphs, n_arrays_read_only):
    adjacency = graphs["weighted"].adjacency
    indptr, indices = adjacency.indptr, adjacency.indices
    if not n_arrays_read_only:
        indptr, indices = indptr.copy(), indices.copy()
    rows = np.array([5, 1, 60])
    local = np.full(150, -1, dtype=np.int32)
    nodes, crow, col, arcs = _closure(indptr, indices, rows, local)
    assert (local == -1).all()
    np.testing.assert_array_equal(nodes[:3], rows)
    neighbors = set(adjacency[rows].indices)
    assert set(nodes) == neighbors | set(rows) and len(nodes) == len(set(nodes))
    cut = sparse.csr_array((adjacency.data[arcs], col, crow), shape=(3, len(nodes)))
    np.testing.assert_array_equal(cut.toarray(), adjacency[rows].toarray()[:, nodes])


def test_cut_keeps_the_budget_where_it_can():
    cost = np.array([1.0, 2, 3, 10, 1, 1, 1])
    ends = _cut(cost, 4)
    assert ends == [0, 2, 3, 4, 7]
    assert _cut(cost, 1e9) == [0, 7]
    assert _cut(np.empty(0), 1) == [0]


def test_features_in_host_memory_or_on_the_device_are_the_same(graphs, device):
    matrix = graphs["plain"].features
    nodes = torch.tensor([3, 1, 3], device=device)
    for norm in (None, "l1", "l2", "standard"):
        scaling = Scaling.learned(matrix, norm)
        host = NodeFeatures(matrix, device, scaling, resident=False)
        there = NodeFeatures(matrix, device, scaling, resident=True)
        for index in (nodes, slice(10, 20)):
            torch.testing.assert_close(
                host.rows(index).dense(), there.rows(index).dense()
            )
    some = NodeFeatures(matrix, device, resident=False).rows(nodes)
    np.testing.assert_array_equal(some.dense().cpu(), matrix[[3, 1, 3]])
