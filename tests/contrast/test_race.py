"""Races in one call, on a GPU, and as views of a stack, against each one alone.

That a race follows Algorithm 2 is tested in `test_perturbation`.
"""

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa.contrast.perturbation import GraphPerturber
from sktifa.contrast.race import Race
from sktifa.contrast.views import Views
from sktifa.exceptions import PerturbationWarning
from sktifa.tensors.hashing import exponential, mixed
from sktifa.tensors.sparse import Adjacency

SETTINGS = [
    {},
    {"edges_added": 3, "edges_removed": 4, "perturbed_nodes": 0.9},
    {"perturbation_rate": 0.3, "perturbed_nodes": 1.0},
    {"decay": 0.0, "perturbed_nodes": 1.0},
    {"decay": 1.0, "edges_added": 0, "sharpness": 3.0},
    {"perturbed_nodes": 0.0},
]
FAR = [{"decay_hops": 2, "perturbed_nodes": 0.7}, {"decay_hops": 9, "decay": 0.9}, {}]


def hub():
    """A hub of 99 leaves, some of them on a path, and three isolated nodes."""
    graph = nx.star_graph(99)
    nx.add_path(graph, range(50, 80))
    graph.add_nodes_from(range(100, 103))
    return sparse.csr_array(nx.to_numpy_array(graph, dtype=np.float32))


def karate():
    graph = nx.karate_club_graph()
    return sparse.csr_array(nx.to_numpy_array(graph, dtype=np.float32, weight=None))


def perturbers(adjacency, settings):
    weights = np.random.default_rng(7).uniform(0.2, 2.2, adjacency.shape[0])
    return [GraphPerturber(adjacency, weights, **one) for one in settings]


def ready(race, n_each):
    """Models, keys, and room for what the races come to."""
    n = n_each * len(race.rates)
    rows = torch.empty(n, sum(race.widths.parts), dtype=torch.int32)
    keys = torch.arange(n) * 1234567891011 - 17
    return torch.arange(n) % len(race.rates), keys, rows, torch.empty(n).long()


def changes(row, race):
    """What a row says: arcs, edges, nodes; after checking how it is filled up."""
    removed, source, target, drawn = row.split(race.widths.parts)
    is_arc, is_edge = removed < race.n_arcs, source >= 0
    is_node = drawn < race.n_nodes
    for there in (is_arc, is_edge, is_node):
        assert (there.int().diff() <= 0).all()  # what there is comes first
    assert (removed[~is_arc] == race.n_arcs).all()
    assert (source[~is_edge] == -1).all() and (target[~is_edge] == -1).all()
    assert (drawn[~is_node] == race.n_nodes).all()
    edges = torch.stack([source, target])[:, is_edge]
    return removed[is_arc].tolist(), edges.tolist(), drawn[is_node].tolist()


@pytest.mark.parametrize("make", [karate, hub])
@pytest.mark.parametrize("settings", [SETTINGS, FAR])
def test_a_race_is_the_same_alone_and_beside_others(make, settings):
    models = [p.race for p in perturbers(make(), settings)]
    race = Race.stacked(models)
    model, keys, rows, flips = ready(race, 4)
    race.run(model, keys, rows, flips)
    for i in range(len(keys)):
        alone = models[model[i]]
        _, _, row, n_flips = ready(alone, 1)
        alone.run(torch.zeros(1).long(), keys[i : i + 1], row, n_flips)
        removed, edges, drawn = changes(rows[i], race)
        assert changes(row[0], alone) == (removed, edges, drawn)
        assert n_flips[0] == flips[i] == len(removed) // 2 + len(edges[0])


def test_clocks_are_those_of_the_hash():
    """Without edges, nodes are drawn in the order of their clocks."""
    weights = np.linspace(0, 2, 50)
    nothing = sparse.csr_array((50, 50), dtype=np.float32)
    perturber = GraphPerturber(nothing, weights, perturbed_nodes=1.0, edges_added=0)
    _, keys, rows, flips = ready(perturber.race, 20)
    perturber.race.run(torch.zeros(20).long(), keys, rows, flips)
    bits = mixed(mixed(keys, 0)[:, None], torch.arange(50))
    expected = (exponential(bits) / torch.from_numpy(np.exp(weights))).argsort(1)
    assert torch.equal(rows[:, : perturber.race.widths.drawn].long(), expected)


@pytest.mark.parametrize("sharpness", [0.0, 1.0, 40.0, 400.0])
@pytest.mark.parametrize("decay", [0.0, 0.3, 3e-3])
def test_clocks_that_go_slower_lose_their_turn(sharpness, decay):
    """The next is the node whose clock rings first, by a look at all of them."""
    n, hops = 400, 2
    graph = nx.gnm_random_graph(n, 900, seed=3)
    adjacency = sparse.csr_array(nx.to_numpy_array(graph, dtype=np.float32))
    weights = np.random.default_rng(5).uniform(0, 1.5, n)
    perturber = GraphPerturber(
        adjacency,
        weights,
        sharpness=sharpness,
        perturbed_nodes=1.0,
        edges_added=0,
        edges_removed=0,
        decay=decay,
        decay_hops=hops,
    )
    _, keys, rows, flips = ready(perturber.race, 3)
    perturber.race.run(torch.zeros(3).long(), keys, rows, flips)
    near = [
        sorted(set(nx.single_source_shortest_path_length(graph, i, hops)) - {i})
        for i in range(n)
    ]
    rates = np.exp(sharpness * weights - (sharpness * weights).max())
    for key, row in zip(keys, rows, strict=True):
        bits = mixed(mixed(key[None], 0)[:, None], torch.arange(n))
        clocks = exponential(bits)[0].numpy() / rates
        drawn = []
        while np.isfinite(clocks.min()):
            node = int(clocks.argmin())
            now, clocks[node] = clocks[node], np.inf
            drawn.append(node)
            rest = clocks[near[node]]
            with np.errstate(over="ignore"):
                slowed = now + (rest - now) / decay if decay else np.inf
            clocks[near[node]] = np.where(np.isinf(rest), np.inf, slowed)
        _, _, found = changes(row, perturber.race)
        assert found == drawn


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("karate", SETTINGS),
        ("karate", FAR),
        ("hub", SETTINGS),
        ("hub", FAR),
        ("cora", SETTINGS),
        ("citeseer", SETTINGS),
        ("computers", SETTINGS),
    ],
)
def test_a_gpu_draws_the_same(name, settings, request, monkeypatch):
    from sktifa.contrast import race_cuda

    if name in ("karate", "hub"):
        adjacency = {"karate": karate, "hub": hub}[name]()
    else:
        adjacency = request.getfixturevalue(name).graph.adjacency
    race = Race.stacked([p.race for p in perturbers(adjacency, settings)])
    model, keys, rows, flips = ready(race, 3)
    race.run(model, keys, rows, flips)
    # In several parts, as where memory is short.
    monkeypatch.setattr(race_cuda, "_MOST_RACES", 7)
    cuda = torch.device("cuda")
    found = [part.to(cuda) for part in ready(race, 3)]
    race_cuda.GpuRaces(race, cuda).run(*found)
    assert torch.equal(found[3].cpu(), flips)
    assert torch.equal(found[2].cpu(), rows)


def weighted(make):
    """The graph with weights that differ."""
    matrix = make().astype(np.float32)
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    matrix.data = (1 + (row * matrix.indices) % 5).astype(np.float32)
    return matrix


@pytest.mark.parametrize("fewest", [1, 10**9], ids=["room", "no room on a GPU"])
def test_views_are_those_of_each_model_and_number(device, fewest, monkeypatch):
    monkeypatch.setattr("sktifa.contrast.views._FEWEST_RACES", fewest)
    matrix, seeds = weighted(karate), [5, 6, 2**62]
    models = perturbers(matrix, SETTINGS[:3])
    stack = Views(models, seeds, 2, Adjacency.from_csr(matrix, device))
    kept, seen = [0, 1, 2], set()
    for epoch in range(140):  # longer than a GPU draws ahead
        if epoch == 70:
            stack.keep(np.array([0, 2]))
            kept = [0, 2]
        stack.advance()
        for number, view in enumerate(stack.views()):
            seen.add(tuple(view.is_drawn[0].tolist()))
            found = sparse.coo_array(
                (
                    view.flips.weight.cpu(),
                    (view.flips.target.cpu(), view.flips.source.cpu()),
                ),
                shape=(len(kept) * 34, len(kept) * 34),
            ).toarray()
            for place, i in enumerate(kept):
                race = models[i].race
                key = mixed(torch.tensor(seeds[i]), 2 * epoch + number)
                _, _, row, flips = ready(race, 1)
                race.run(torch.zeros(1).long(), key[None], row, flips)
                removed, edges, drawn = changes(row[0], race)
                expected = matrix.toarray()
                rows = np.repeat(np.arange(34), np.diff(matrix.indptr))
                expected[rows[removed], matrix.indices[removed]] = 0
                expected[edges[0], edges[1]] = matrix.data.mean()
                expected[edges[1], edges[0]] = matrix.data.mean()
                own = slice(34 * place, 34 * place + 34)
                np.testing.assert_allclose(
                    matrix.toarray() + found[own, own], expected, rtol=1e-6
                )
                np.testing.assert_allclose(
                    view.flips.degree[place].cpu(), expected.sum(1), rtol=1e-5
                )
                found[own, own] = 0
                is_drawn = view.is_drawn[place].cpu().nonzero().flatten()
                assert is_drawn.tolist() == sorted(drawn)
            assert not found.any()  # nothing between models
    stack.close()
    assert len(seen) == 280  # each view is drawn anew


def test_views_warn_once_of_a_limit_out_of_reach(device):
    beyond = {"edges_removed": 0, "perturbation_rate": 2.0, "perturbed_nodes": 1.0}
    models = perturbers(karate(), [beyond, {}])
    views = Views(models, [0, 1], 1, Adjacency.from_csr(karate(), device))
    with pytest.warns(PerturbationWarning, match="perturbation_rate") as caught:
        views.advance()
        views.advance()
    assert len(caught) == 1
    views.close()
