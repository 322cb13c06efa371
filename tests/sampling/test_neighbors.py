"""The layer-wise neighbour sampler."""

import numpy as np
import pytest
from scipy.stats import chi2

from sktifa.datasets import make_block_graph
from sktifa.exceptions import LabelError, ParameterError
from sktifa.sampling import NeighborSampler, neighbors
from sktifa.sampling.neighbors import sample_neighbors


@pytest.fixture(autouse=True, params=["own kernel", "PyG's kernel"])
def kernel(request, monkeypatch):
    if request.param == "own kernel":
        monkeypatch.setattr(neighbors, "_compiled_sampler", lambda: None)
    elif not neighbors._compiled_sampler():
        pytest.skip("neither pyg-lib nor torch-sparse is installed")


@pytest.fixture(scope="module")
def made():
    return make_block_graph(500, 3, average_degree=10, random_state=0)


@pytest.mark.parametrize("fanouts", [(4,), (4, 2), (-1, 3), (-1, -1)])
def test_each_layer_draws_its_fan_out(fanouts, made):
    adjacency = made.graph.adjacency
    seeds = np.array([7, 3, 450])
    nodes, target, source, arcs = sample_neighbors(
        adjacency, seeds, fanouts, np.random.default_rng(0)
    )
    np.testing.assert_array_equal(nodes[:3], seeds)
    assert len(set(nodes)) == len(nodes)
    # Every arc is one of the graph, from its target's row, and none comes twice.
    row = np.repeat(np.arange(500), np.diff(adjacency.indptr))
    np.testing.assert_array_equal(row[arcs], nodes[target])
    np.testing.assert_array_equal(adjacency.indices[arcs], nodes[source])
    assert len(set(arcs)) == len(arcs)
    # Hop by hop: nodes that the last layer added draw, others don't.
    degree = np.diff(adjacency.indptr)[nodes]
    drawn = np.bincount(target, minlength=len(nodes))
    begin, end = 0, 3
    for fanout in fanouts:
        wanted = degree if fanout < 0 else np.minimum(degree, fanout)
        np.testing.assert_array_equal(drawn[begin:end], wanted[begin:end])
        of_layer = (target >= begin) & (target < end)
        begin, end = end, max(end, source[of_layer].max() + 1)
    assert end == len(nodes) and not drawn[begin:].any()


def test_draws_are_uniform_without_replacement(made):
    adjacency = made.graph.adjacency
    node = int(np.diff(adjacency.indptr).argmax())
    low, degree = adjacency.indptr[node], np.diff(adjacency.indptr)[node]
    rng, count, n = np.random.default_rng(0), np.zeros(degree), 3000
    for _ in range(n):
        *_, arcs = sample_neighbors(adjacency, np.array([node]), (5,), rng)
        assert len(set(arcs)) == 5
        count[arcs - low] += 1
    share = 5 / degree
    statistic = ((count - n * share) ** 2 / (n * share * (1 - share))).sum()
    statistic *= (degree - 1) / degree
    assert statistic < chi2.ppf(1 - 1e-4, degree - 1)


def test_an_epoch_has_every_seed_once_and_symmetric_subgraphs(made):
    graph, y = made.graph, np.where(np.arange(500) < 100, made.target, -1)
    sampler = NeighborSampler((3, 2), batch_size=30, random_state=0).fit(graph, y)
    seeds, norm = [], 0
    for subgraph in sampler.epoch(1):
        m = len(subgraph)
        is_seed = subgraph.loss_norm.numpy() > 0
        assert is_seed[: is_seed.sum()].all()
        seeds.append(subgraph.nodes.numpy()[is_seed])
        norm += subgraph.loss_norm.sum().item()
        row, col = subgraph.row.numpy(), subgraph.col.numpy()
        arcs = set(zip(row, col, strict=True))
        assert len(arcs) == len(row) and all((j, i) in arcs for i, j in arcs)
        assert (np.lexsort((col, row)) == np.arange(len(row))).all()
        nodes = subgraph.nodes.numpy()
        whole = np.repeat(np.arange(500), np.diff(graph.adjacency.indptr))
        np.testing.assert_array_equal(whole[subgraph.arcs], nodes[row])
        np.testing.assert_array_equal(
            graph.adjacency.indices[subgraph.arcs], nodes[col]
        )
        assert m == len(np.unique(nodes))
    np.testing.assert_array_equal(np.sort(np.concatenate(seeds)), np.arange(100))
    assert len(seeds) == sampler.n_subgraphs_ == 4
    again = [s.nodes.tolist() for s in sampler.epoch(1)]
    assert again == [s.nodes.tolist() for s in sampler.epoch(1)]
    assert again != [s.nodes.tolist() for s in sampler.epoch(2)]


def test_errors(made):
    with pytest.raises(LabelError, match="needs y"):
        NeighborSampler().fit(made.graph)
    for bad in ((), (0,), (5, -2), (2.5,), (3, "4"), (2**40,)):
        with pytest.raises(ParameterError, match="num_neighbors"):
            NeighborSampler(bad, seeds="all").fit(made.graph)


def test_samples_and_loops_of_ones_own(made):
    graph, y = made.graph, np.where(np.arange(500) < 100, made.target, -1)
    sampler = NeighborSampler((3, 2), batch_size=30, random_state=0).fit(graph, y)
    first, second = sampler.sample(), sampler.sample()
    assert first.parent_nodes.tolist() != second.parent_nodes.tolist()
    for part in (first, *sampler):
        # Edges that were drawn are edges of the graph, features those of the nodes.
        whole = graph.adjacency[part.parent_nodes][:, part.parent_nodes]
        assert (whole.maximum(part.adjacency) != whole).nnz == 0
        np.testing.assert_array_equal(part.features, graph.features[part.parent_nodes])
    seeds = 0
    for data in sampler.loader(as_pyg=True):
        data.validate(raise_on_error=True)
        np.testing.assert_array_equal(data.y, y[data.n_id])
        assert (data.y[data.node_norm > 0] >= 0).all() and "edge_norm" not in data
        seeds += int((data.node_norm > 0).sum())
    assert seeds == 100
