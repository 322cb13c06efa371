"""Walks against the chances of each step, induced subgraphs against scipy's.

Statistical tests have a fixed seed and reject at 1e-4.
"""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.stats import chi2, chisquare

from sktifa.graph import Graph
from sktifa.sampling.walker import (
    CPUWalker,
    TorchWalker,
    arc_distances,
    step_probabilities,
    step_thresholds,
)
from sktifa.tensors.device_graph import DeviceGraph

CPU = torch.device("cpu")
SIGNIFICANCE = 1e-4
KINDS = {"cpu": CPUWalker, "torch": TorchWalker}


def random_graph(n, n_edges, *, weighted=False, seed=0):
    """Return a graph whose last three nodes have no edges."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(n - 3, size=(2, n_edges))
    weight = rng.uniform(0.1, 3, n_edges) if weighted else np.ones(n_edges)
    return Graph.from_edge_index(
        np.hstack([ends, ends[::-1]]), edge_weight=np.tile(weight, 2), n_nodes=n
    )


def make_walker(kind, graph, sharpness=0.0):
    """Return a walker, and its step probabilities as a dense matrix."""
    placed = DeviceGraph.from_graph(graph, CPU)
    thresholds = None
    if sharpness:
        p = np.random.default_rng(1).dirichlet(np.full(4, 0.3), graph.n_nodes)
        distance = arc_distances(placed, torch.tensor(p))
        thresholds = step_thresholds(placed, distance, sharpness, 0.25)
    walker = KINDS[kind](placed, thresholds)
    a = graph.adjacency
    chances = step_probabilities(a.indptr, walker.thresholds)
    return walker, sparse.csr_array((chances, a.indices, a.indptr), shape=a.shape)


def walk_from(walker, node, n_walkers, walk_length, seed):
    roots = np.full(n_walkers, node)
    if isinstance(walker, TorchWalker):
        return walker.walk(torch.tensor(roots), walk_length, seed).numpy()
    return walker.walk(roots, walk_length, seed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_on_arcs_are_scaled_divergences(dtype, device):
    graph = random_graph(200, 900)
    p = np.random.default_rng(0).dirichlet(np.full(5, 0.2), 200)
    row, col = graph.adjacency.tocoo().coords
    expected = (p[row] * np.log(p[row] / p[col])).sum(axis=1)
    expected = (expected - expected.min()) / np.ptp(expected)
    placed = DeviceGraph.from_graph(graph, device)
    found = arc_distances(placed, torch.tensor(p), dtype)
    assert found.dtype == dtype and found.device.type == device.type
    atol = 1e-5 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(found.cpu(), expected, atol=atol)


def test_steps_are_those_of_algorithm_1():
    """Lines 3 and 4, in a loop over the rows."""
    graph = random_graph(60, 250, weighted=True)
    placed, a = DeviceGraph.from_graph(graph, CPU), graph.adjacency
    distance = torch.rand(a.nnz, generator=torch.Generator().manual_seed(0))
    thresholds = step_thresholds(placed, distance, 0.5, 0.1)
    found = step_probabilities(a.indptr, thresholds.numpy())
    for begin, end in zip(a.indptr[:-1], a.indptr[1:], strict=True):
        weight = a.data[begin:end] / a.data.max()
        e = np.exp(0.5 * weight / (distance[begin:end].double().numpy() + 0.1))
        np.testing.assert_allclose(found[begin:end], e / e.sum(), atol=1e-6)


def test_equal_distributions_give_a_uniform_walk():
    placed = DeviceGraph.from_graph(random_graph(50, 100), CPU)
    distance = arc_distances(placed, torch.full((50, 4), 0.25))
    assert (distance == 0).all()
    crow = placed.crow.numpy()
    p = step_probabilities(crow, step_thresholds(placed, distance, 2.0, 0.25).numpy())
    degree = np.diff(crow)
    np.testing.assert_allclose(p, np.repeat(1 / degree[degree > 0], degree[degree > 0]))


# ---------------------------------------------------------------------- walks


@pytest.fixture(scope="module")
def hub_graph():
    """Node 0 has 15,000 neighbours, node 1 only node 0, the last none."""
    n = 15_002
    leaves = np.arange(1, n - 1)
    edges = np.stack([np.zeros_like(leaves), leaves])
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(leaves))
    return Graph.from_edge_index(
        np.hstack([edges, edges[::-1]]),
        np.ones((n, 1)),
        edge_weight=np.tile(weight, 2),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sharpness", [0, 1.0])
def test_step_frequencies(kind, weighted, sharpness):
    graph = random_graph(60, 250, weighted=weighted)
    walker, chances = make_walker(kind, graph, sharpness)
    p = chances.toarray()
    for node, n_steps in [(0, 1), (5, 1), (17, 2)]:
        paths = walk_from(walker, node, 40_000, n_steps, seed=node)
        count = np.bincount(paths[-1], minlength=60)
        expected = np.linalg.matrix_power(p, n_steps)[node] * 40_000
        assert (count[expected == 0] == 0).all()
        reached = expected > 0
        assert chisquare(count[reached], expected[reached]).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharpness", [0, 1.0])
def test_a_node_of_degree_15000(kind, sharpness, hub_graph):
    walker, chances = make_walker(kind, hub_graph, sharpness)
    p = chances[[0]].toarray()[0]
    assert sharpness == 0 or p[1:-1].max() / p[1:-1].min() > 1.5
    paths = walk_from(walker, 0, 600_000, 1, seed=3)
    count = np.bincount(paths[1], minlength=15_002)
    assert count[0] == count[-1] == 0
    expected = p[1:-1] / p.sum() * 600_000
    assert chisquare(count[1:-1], expected).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sharpness", [0, 1.0])
def test_isolated_roots_stay_and_degree_1_goes_and_comes(kind, sharpness, hub_graph):
    walker, _ = make_walker(kind, hub_graph, sharpness)
    assert (walk_from(walker, 15_001, 100, 3, seed=0) == 15_001).all()
    paths = walk_from(walker, 1, 100, 2, seed=0)
    assert (paths[1] == 0).all() and len(np.unique(paths[2])) > 50


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 40, 400, 640])
def test_roots_are_distinct_and_all_nodes_equally_likely(kind, count):
    n = 640
    graph = random_graph(n, 2 * n)
    walker, _ = make_walker(kind, graph)
    repeats = 20_000 // count
    drawn = np.stack([np.asarray(walker.roots(count, seed)) for seed in range(repeats)])
    assert drawn.shape == (repeats, count)
    assert all(len(np.unique(roots)) == count for roots in drawn)
    if count == n:
        return
    # Without replacement counts spread less, by the share that is not drawn.
    observed = np.bincount(drawn.ravel(), minlength=n)
    expected = repeats * count / n
    statistic = ((observed - expected) ** 2).sum() / expected / (1 - count / n)
    assert SIGNIFICANCE < chi2.sf(statistic, n - 1) < 1 - SIGNIFICANCE
    # Nor does the order tell nodes apart.
    first = np.bincount(drawn[:, 0] * 4 // n, minlength=4)
    assert chisquare(first).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_without_edges(kind):
    for sharpness in (0, 1.0):
        walker, _ = make_walker(kind, Graph(sparse.csr_array((5, 5))), sharpness)
        assert (walk_from(walker, 2, 4, 2, seed=0) == 2).all()


# ------------------------------------------------------------------ subgraphs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 64, 65, 400])
def test_induced_subgraph_is_scipys(kind, size):
    graph = random_graph(400, 3000)
    walker, _ = make_walker(kind, graph)
    a = graph.adjacency
    a = sparse.csr_array((np.arange(a.nnz), a.indices, a.indptr), shape=a.shape)
    rng = np.random.default_rng(size)
    nodes = rng.choice(400, size, replace=False)
    twice = np.concatenate([nodes, nodes[: size // 2]])
    for _ in range(2):  # a second time, over what the first left behind
        given = torch.tensor(twice) if kind == "torch" else twice
        subgraph = walker.induce(given)
        np.testing.assert_array_equal(subgraph.nodes, np.sort(nodes))
        expected = a[np.sort(nodes)][:, np.sort(nodes)]
        expected.sort_indices()
        np.testing.assert_array_equal(subgraph.crow, expected.indptr)
        np.testing.assert_array_equal(subgraph.col, expected.indices)
        np.testing.assert_array_equal(subgraph.arcs, expected.data)
        rows = np.repeat(np.arange(size), np.diff(expected.indptr))
        np.testing.assert_array_equal(subgraph.row, rows)
