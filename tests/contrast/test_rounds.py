"""Views of stacked models: what a view may be, and how often each node is drawn."""

import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa.contrast.perturbation import GraphPerturber
from sktifa.contrast.rounds import RoundsPerturber

CPU = torch.device("cpu")


def random_graph(n, density, seed=0):
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < density, 1)
    return sparse.csr_array((upper | upper.T).astype(np.float32))


@pytest.fixture(scope="module")
def graph():
    return random_graph(60, 0.08)


def test_views_are_valid_and_of_their_model(graph):
    n, m, dense = graph.shape[0], graph.nnz, graph.toarray()
    settings = [
        {"perturbed_nodes": 0.4},
        {"perturbed_nodes": 0.1, "edges_added": 3, "edges_removed": 0},
        {"perturbed_nodes": 0.0},
        {"perturbed_nodes": 1.0, "edges_added": 0, "edges_removed": 5, "decay": 0.0},
    ]
    weights = np.linspace(0.2, 2.2, n)
    perturbers = [GraphPerturber(graph, weights, **one) for one in settings]
    rounds = RoundsPerturber(perturbers, CPU)
    views = rounds.draw(7, torch.Generator().manual_seed(0))
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    counts = views.nodes.sum(2).numpy()
    assert (counts[:, :3] == [24, 6, 0]).all()
    # A decay of 0 takes the neighbours out of the race.
    assert (counts[:, 3] < 60).all()
    for v in range(7):
        arcs = views.removed_arcs[v].numpy()
        arcs = np.unique(arcs[arcs < len(settings) * m])
        edges = views.added_edges[v][:, views.is_added[v]].numpy()
        assert (edges[0] // n == edges[1] // n).all()
        for i, one in enumerate(settings):
            drawn = views.nodes[v, i].numpy()
            mine = arcs[arcs // m == i] % m
            pairs = {(rows[a], graph.indices[a]) for a in mine}
            assert pairs == {(b, a) for a, b in pairs}
            assert all(drawn[a] or drawn[b] for a, b in pairs)
            # Each drawn node has chosen its edges, and others may have chosen them too.
            lost = np.bincount(rows[mine], minlength=n)
            least = np.minimum(np.diff(graph.indptr), one.get("edges_removed", 2))
            assert (lost[drawn] >= least[drawn]).all()
            new = edges[:, edges[0] // n == i] % n
            assert (new[0] != new[1]).all() and not dense[new[0], new[1]].any()
            assert len(np.unique(new[0] * n + new[1])) == new.shape[1]
            assert (drawn[new[0]] | drawn[new[1]]).all()
            most = one.get("edges_added", 1) * drawn.sum()
            assert 0.7 * most <= new.shape[1] <= most


def test_nodes_are_drawn_as_often_as_in_the_exact_race(graph):
    weights = np.linspace(0.2, 2.2, 60)
    for options in ({"decay": 1.0}, {"decay": 0.5}):
        exact = GraphPerturber(graph, weights, perturbed_nodes=0.2, **options)
        rng = np.random.default_rng(0)
        n_draws = 6000
        expected = np.zeros(60)
        for _ in range(n_draws):
            expected[exact.draw(rng).nodes] += 1
        rounds = RoundsPerturber([exact, exact], CPU)
        generator = torch.Generator().manual_seed(1)
        found = rounds.draw(n_draws // 2, generator).nodes.sum((0, 1)).numpy()
        share = (expected + found) / (2 * n_draws)
        error = np.sqrt(2 * share * (1 - share) / n_draws)
        difference = (found - expected) / n_draws
        if options["decay"] == 1.0:
            # The very same distribution: 60 nodes at a level of .001 in all.
            assert (np.abs(difference) < 4.4 * error).all()
        else:
            # In rounds of one or two nodes of 12, neighbours are slowed a bit late.
            assert (np.abs(difference) < 4.4 * error + 0.02).all()


def test_graphs_without_edges_or_with_one_node():
    for n in (1, 5):
        empty = sparse.csr_array((n, n), dtype=np.float32)
        one = GraphPerturber(empty, np.ones(n), perturbed_nodes=1.0)
        views = RoundsPerturber([one], CPU).draw(2, torch.Generator())
        assert views.nodes.all()
        assert (views.removed_arcs == 0).all()
        assert views.is_added.any() == (n > 1)


def test_what_can_be_drawn_in_rounds(graph):
    weights = np.ones(60)
    for options, takes in [
        ({}, True),
        ({"decay_hops": 2}, False),
        ({"decay_hops": 2, "decay": 1.0}, True),
        ({"perturbation_rate": 0.1}, False),
    ]:
        perturber = GraphPerturber(graph, weights, **options)
        assert RoundsPerturber.takes(perturber) is takes
