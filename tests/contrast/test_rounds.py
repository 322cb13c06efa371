"""The race in rounds against the exact one, and what a view may be.

Frequencies are compared by two-sample tests under fixed seeds. Each test function may
fail by chance with probability ALPHA at most (Bonferroni over its comparisons), if both
races follow the same law.
"""

from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse, stats

from sktifa.contrast.perturbation import GraphPerturber, PerturbationSettings
from sktifa.contrast.rounds import RoundsPerturber

CPU = torch.device("cpu")
ALPHA = 1e-3


def csr(dense):
    return sparse.csr_array(np.asarray(dense, dtype=np.float32))


def random_graph(n, density, seed=0):
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < density, 1)
    return csr(upper | upper.T)


def karate():
    return csr(nx.to_numpy_array(nx.karate_club_graph(), weight=None))


def hub():
    """A hub, a path, leaves, a triangle and three isolated nodes: 26 in all."""
    graph = nx.star_graph(14)
    nx.add_path(graph, range(10, 20))
    nx.add_cycle(graph, range(20, 23))
    graph.add_nodes_from(range(23, 26))
    return csr(nx.to_numpy_array(graph))


@pytest.fixture(scope="module")
def graph():
    return random_graph(60, 0.08)


def rounds(adjacency, weights, device=CPU, **options):
    return RoundsPerturber(
        torch.tensor(adjacency.indptr, device=device),
        torch.tensor(adjacency.indices, device=device),
        torch.as_tensor(weights, device=device),
        PerturbationSettings(**options),
    )


def draw(perturber, n_views, seed=0):
    return perturber.draw(torch.tensor([seed]), n_views)


def flipped(adjacency, views, v):
    """Node pairs in which a view differs, after checking that it may."""
    n, m = adjacency.shape[0], adjacency.nnz
    row = np.repeat(np.arange(n), np.diff(adjacency.indptr))
    arcs = views.removed_arcs[v].numpy()
    assert ((arcs >= 0) & (arcs <= m)).all()
    arcs = arcs[arcs < m]
    gone = list(zip(row[arcs], adjacency.indices[arcs], strict=True))
    assert len(set(gone)) == len(gone)
    assert {(b, a) for a, b in gone} == set(gone)
    edges = views.added_edges[v][:, views.is_added[v]].numpy()
    dense = adjacency.toarray()
    assert not dense[edges[0], edges[1]].any() and (edges[0] != edges[1]).all()
    new = [(min(e), max(e)) for e in edges.T.tolist()]
    assert len(set(new)) == len(new)
    drawn = views.nodes[v].numpy()
    assert drawn[edges[0]].all()
    assert all(drawn[a] or drawn[b] for a, b in gone)
    return [(a, b) for a, b in gone if a < b], new


@pytest.mark.parametrize(
    ("options", "n_drawn"),
    [
        ({"perturbed_nodes": 0.4}, 24),
        ({"perturbed_nodes": 0.1, "edges_added": 3, "edges_removed": 0}, 6),
        ({"perturbed_nodes": 0.0}, 0),
        ({"perturbed_nodes": 1.0, "edges_added": 0, "edges_removed": 5, "decay": 0}, 0),
    ],
    ids=str,
)
def test_views_keep_to_their_settings(graph, options, n_drawn):
    perturber = rounds(graph, np.linspace(0.2, 2.2, 60), **options)
    views = draw(perturber, 7)
    degree = np.diff(graph.indptr)
    for v in range(7):
        gone, new = flipped(graph, views, v)
        drawn = views.nodes[v].numpy()
        assert len(new) <= options.get("edges_added", 1) * drawn.sum()
        assert len(gone) <= options.get("edges_removed", 2) * drawn.sum()
        if "decay" not in options:
            assert drawn.sum() == n_drawn
        if options.get("edges_added") == 3:
            assert len(new) == 18
    if "decay" in options:
        # No two neighbours; and none is left that has none drawn.
        assert not graph.toarray()[np.ix_(drawn, drawn)].any()
        assert (drawn | graph.toarray()[:, drawn].any(1)).all()
        assert len(gone) == np.minimum(degree[drawn], 5).sum()


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (karate, {"perturbed_nodes": 0.4}),
        (karate, {"perturbed_nodes": 0.3, "decay": 1.0, "edges_added": 4}),
        (karate, {"perturbation_rate": 0.3, "perturbed_nodes": 1.0}),
        (hub, {"perturbed_nodes": 0.5, "decay": 0.2, "sharpness": 2.0}),
        (hub, {"perturbed_nodes": 0.7, "edges_removed": 3}),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_frequencies_are_those_of_the_exact_race(make, options):
    adjacency = make()
    n, size = adjacency.shape[0], 1500
    weights = np.random.default_rng(7).uniform(0.2, 2.2, n)
    perturber = GraphPerturber(adjacency, weights, **options)
    row = np.repeat(np.arange(n), np.diff(adjacency.indptr))
    nodes, pairs, flips = np.zeros((2, n)), [Counter(), Counter()], [[], []]
    rng = np.random.default_rng(1)
    views = draw(rounds(adjacency, weights, **options), size)
    for i in range(size):
        view = perturber.draw(rng)
        nodes[0, view.nodes] += 1
        gone = np.sort(
            [row[view.removed_arcs], adjacency.indices[view.removed_arcs]], 0
        )
        pairs[0].update(set(map(tuple, gone.T.tolist())))
        pairs[0].update(map(tuple, np.sort(view.added_edges, 0).T.tolist()))
        flips[0].append(view.n_flipped_edges)
        gone, new = flipped(adjacency, views, i)
        nodes[1] += views.nodes[i].numpy()
        pairs[1].update(gone + new)
        flips[1].append(len(gone) + len(new))
    counts = np.array([[c[key] for key in pairs[0] | pairs[1]] for c in pairs])
    level = ALPHA / (n + counts.shape[1] + 1)
    for found in (nodes, counts):
        pooled = found.sum(0) / (2 * size)
        error = np.sqrt(2 * pooled * (1 - pooled) / size)
        difference = np.maximum(np.abs(found[0] - found[1]) - 0.5, 0) / size
        # Counts of rare flips are far from normal: allow half a count, as usual.
        assert (difference <= stats.norm.isf(level / 2) * error + 1e-12).all()
    assert stats.ttest_ind(*flips, equal_var=False).pvalue > level
    if "perturbation_rate" in options:
        target = 0.3 * adjacency.nnz / 2
        assert all(target <= f < target + 3 for f in flips[1])


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "photo", "computers"])
def test_real_graphs_are_flipped_as_by_the_exact_race(name, request):
    """Mean flips within 2 %, and the chi-square of how often each node is drawn.

    The nodes of a view depend on each other, weakly and negatively: the sum of n
    squared standard scores is taken as chi-square of n.
    """
    adjacency = request.getfixturevalue(name).graph.adjacency
    n, n_draws = adjacency.shape[0], 10
    weights = 0.2 + (1 + np.cos(np.pi * np.arange(n) / n))
    weights = np.random.default_rng(5).permutation(weights)
    perturber = GraphPerturber(adjacency, weights)
    rng = np.random.default_rng(0)
    exact = [perturber.draw(rng) for _ in range(n_draws)]
    counts = np.zeros((2, n))
    for view in exact:
        counts[0, view.nodes] += 1
    views = draw(rounds(adjacency, weights), n_draws)
    counts[1] = views.nodes.sum(0).numpy()
    removed = (views.removed_arcs < adjacency.nnz).sum(1) // 2
    flips = (removed + views.is_added.sum(1)).double().mean().item()
    assert flips == pytest.approx(np.mean([v.n_flipped_edges for v in exact]), rel=0.02)
    share = counts.sum(0) / (2 * n_draws)
    some = (share > 0) & (share < 1)
    # Given both races' sum, a node's difference has mean 0 and this variance.
    variance = share * (1 - share) * 4 * n_draws**2 / (2 * n_draws - 1)
    score = ((counts[0] - counts[1])[some] ** 2 / variance[some]).sum()
    assert score < stats.chi2.isf(ALPHA, some.sum())


def test_equal_seeds_draw_equal_views_on_any_device(graph, device):
    options = {"perturbation_rate": 0.2, "sharpness": 2.0, "edges_removed": 3}
    weights = torch.linspace(0.2, 2.2, 60)
    expected = draw(rounds(graph, weights, **options), 20, seed=3)
    on_device = rounds(graph, weights.to(device), device, **options)
    found = on_device.draw(torch.tensor([3], device=device), 20)
    # Views are numbered: it doesn't matter how many are drawn.
    fewer = draw(rounds(graph, weights, **options), 2, seed=3)
    other = draw(rounds(graph, weights, **options), 20, seed=4)
    for name, part in vars(expected).items():
        assert torch.equal(part, getattr(found, name).cpu())
        assert torch.equal(part[:2], getattr(fewer, name))
    assert not torch.equal(other.nodes, expected.nodes)


@pytest.mark.cuda
def test_nothing_waits_for_the_device(graph):
    cuda = torch.device("cuda")
    weights = torch.linspace(0.2, 2.2, 60, device=cuda)
    seed = torch.tensor([1], device=cuda)
    perturber = rounds(graph, weights, cuda)
    perturber.draw(seed, 3)
    torch.cuda.set_sync_debug_mode("error")
    try:
        perturber.draw(seed, 3)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_graphs_without_edges_or_with_one_node():
    for n in (1, 5):
        empty = sparse.csr_array((n, n), dtype=np.float32)
        one = rounds(empty, np.ones(n), perturbed_nodes=1.0, edges_removed=0)
        views = draw(one, 2)
        assert views.nodes.all()
        assert (views.removed_arcs == 0).all()
        assert views.is_added.any() == (n > 1)
    views = draw(rounds(csr(1 - np.eye(6)), np.ones(6), edges_removed=0), 5)
    assert not views.is_added.any()  # nobody to get an edge to


def test_an_edge_that_comes_back_is_untouched():
    """Of two nodes, the second drawn regains the edge that the first lost.

    And loses it once more: as an original edge, not as one that was added.
    """
    pair = csr([[0, 1], [1, 0]])
    options = {"perturbed_nodes": 1.0, "edges_removed": 1}
    views = draw(rounds(pair, np.ones(2), **options), 10)
    for v in range(10):
        assert flipped(pair, views, v) == ([(0, 1)], [])


def test_what_can_be_drawn_in_rounds():
    for options, takes in [
        ({}, True),
        ({"decay_hops": 2}, False),
        ({"decay_hops": 2, "decay": 1.0}, True),
        ({"perturbation_rate": 0.1}, True),
        ({"edges_added": 17}, False),
        ({"edges_removed": 17}, False),
    ]:
        assert RoundsPerturber.takes(PerturbationSettings(**options)) is takes
