"""Views and pairs inside a subgraph, against those of the whole graph."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.stats import chi2

from sktifa.contrast.pairs import pair_operator, sample_pairs
from sktifa.contrast.perturbation import GraphPerturber
from sktifa.contrast.subgraph import (
    PairSettings,
    PerturbationSettings,
    _perturb_in_rounds,
    anchor_pairs,
    perturb,
)
from sktifa.datasets import make_block_graph
from sktifa.information.tig import annotated_information, label_distribution


@pytest.fixture(scope="module")
def made():
    made = make_block_graph(300, 3, average_degree=6, random_state=0)
    codes = np.where(np.arange(300) < 30, made.target, -1)
    z = annotated_information(made.graph, codes, 3)
    return made.graph, label_distribution(z)


def on(graph, device):
    adjacency = graph.adjacency
    return (
        torch.tensor(adjacency.indptr, device=device),
        torch.tensor(adjacency.indices, device=device),
    )


def generator(device, seed=0):
    return torch.Generator(device).manual_seed(seed)


@pytest.mark.parametrize("draw", [perturb, _perturb_in_rounds])
@pytest.mark.parametrize(
    "options", [{}, {"edges_added": 3}, {"decay": 0.0}, {"perturbed_nodes": 0.0}]
)
def test_a_view_keeps_its_promises(draw, options, made, device):
    graph, _ = made
    crow, col = on(graph, device)
    settings = PerturbationSettings(**options)
    weights = torch.linspace(0.2, 2.2, 300, device=device)
    view = draw(crow, col, weights, settings, generator(device))
    nodes = view.nodes.cpu().numpy()
    n_drawn = round(settings.perturbed_nodes * 300)
    assert len(np.unique(nodes)) == len(nodes) <= n_drawn
    if settings.decay > 0:
        assert len(nodes) == n_drawn
    dense = graph.adjacency.toarray() > 0
    # Removed arcs: in pairs, each at a drawn node, at most two of a node's own choice.
    row = np.repeat(np.arange(300), np.diff(graph.adjacency.indptr))
    removed = np.unique(view.removed_arcs.cpu().numpy())
    removed = removed[removed < len(row)]
    gone = set(zip(row[removed], graph.adjacency.indices[removed], strict=True))
    assert len(gone) == len(removed) and all((j, i) in gone for i, j in gone)
    drawn = set(nodes)
    assert all(i in drawn or j in drawn for i, j in gone)
    assert len(removed) // 2 <= settings.edges_removed * len(nodes)
    # Added edges: new ones, none twice, from drawn nodes.
    source, other = view.added_edges[:, view.is_added].cpu().numpy()
    assert not dense[source, other].any() and (source != other).all()
    assert len({frozenset(e) for e in zip(source, other, strict=True)}) == len(source)
    assert set(source) <= drawn
    if draw is _perturb_in_rounds:
        expected = settings.edges_added * len(nodes)
        assert 0.9 * expected <= len(source) <= expected


def test_rounds_draw_nodes_as_often_as_the_exact_race(made):
    graph, _ = made
    crow, col = on(graph, "cpu")
    weights = np.random.default_rng(0).uniform(0.2, 2.2, 300)
    settings = PerturbationSettings(perturbed_nodes=0.2, sharpness=1.0)
    n_draws = 1500
    exact, rounds = np.zeros(300), np.zeros(300)
    perturber = GraphPerturber(graph.adjacency, weights, **vars(settings))
    rng, own = np.random.default_rng(1), generator("cpu", 2)
    for _ in range(n_draws):
        exact[perturber.draw(rng).nodes] += 1
        view = _perturb_in_rounds(crow, col, torch.tensor(weights), settings, own)
        rounds[view.nodes.numpy()] += 1
    error = np.sqrt((exact + rounds) / n_draws**2)
    difference = (exact - rounds) / n_draws
    # Rounds are not exact: allow two points more than chance does.
    assert (np.abs(difference) < 4.5 * error + 0.02).all()
    assert np.corrcoef(exact, rounds)[0, 1] > 0.97


def test_removed_edges_are_uniform_among_a_nodes_own():
    star = np.zeros((6, 6))
    star[0, 1:] = star[1:, 0] = 1
    adjacency = sparse.csr_array(star)
    crow, col = torch.tensor(adjacency.indptr), torch.tensor(adjacency.indices)
    settings = PerturbationSettings(
        perturbed_nodes=1 / 6, edges_removed=2, edges_added=0, sharpness=1.0
    )
    weights = torch.tensor([50.0, 0, 0, 0, 0, 0])  # always the hub
    own, count = generator("cpu"), np.zeros(5)
    for _ in range(1000):
        view = _perturb_in_rounds(crow, col, weights, settings, own)
        assert view.nodes.tolist() == [0]
        gone = view.removed_arcs.numpy()
        assert len(gone) == 4
        count[gone[gone < 5]] += 1
    expected = 2000 / 5
    statistic = ((count - expected) ** 2 / (expected * (1 - 2 / 5))).sum() * 4 / 5
    assert statistic < chi2.ppf(1 - 1e-4, 4)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_all_anchors_have_the_pairs_of_the_whole_graph(layout, made, device):
    graph, p = made
    features = graph.features
    if layout == "sparse":
        features = np.where(features > 0.7, features, 0)
    settings = PairSettings(n_positives=4, negative_ranks=(20, 50))
    x = torch.tensor(features, device=device)
    operator = anchor_pairs(
        *on(graph, device),
        x.to_sparse_csr() if layout == "sparse" else x,
        torch.tensor(p, device=device),
        settings,
        generator(device),
        n_anchors=300,
    ).to_dense()
    expected = pair_operator(
        *sample_pairs(
            features, graph.adjacency, p, n_positives=4, negative_ranks=(20, 50)
        ),
        0.5,
    ).toarray()
    # Near ties may fall either way.
    different = (np.abs(operator.cpu().numpy() - expected) > 1e-6).sum()
    assert different < 0.002 * (expected != 0).sum()


@pytest.mark.parametrize("kind", ["tifa", "uniform"])
def test_some_anchors_are_right_on_average(kind, made):
    graph, p = made
    settings = PairSettings(kind, n_positives=2, negative_ranks=(5, 9))
    arguments = (
        *on(graph, "cpu"),
        torch.tensor(graph.features),
        torch.tensor(p) if kind == "tifa" else None,
        settings,
    )
    own, total = generator("cpu"), 0
    for _ in range(300):
        some = anchor_pairs(*arguments, own, n_anchors=30).to_dense()
        assert (some != 0).any(1).sum() == 30
        assert not some.diagonal().any()
        total = total + some / 300
    every = anchor_pairs(*arguments, own, n_anchors=300).to_dense()
    # Row sums are the same for every anchor; each is one 30 times in expectation.
    counts = total.sum(1) / every.sum(1)
    assert abs(counts.mean() - 1) < 1e-5
    assert (counts - 1).abs().max() < 5 * np.sqrt(0.9 / 30)
    if kind == "tifa":
        assert ((total != 0) <= (every != 0)).all()


def test_tiny_subgraphs():
    one = torch.zeros(2, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    settings = PairSettings()
    for kind in ("tifa", "uniform"):
        operator = anchor_pairs(
            *one,
            torch.ones(1, 2),
            torch.ones(1, 2) / 2,
            PairSettings(kind),
            generator("cpu"),
        )
        assert operator.values().numel() == 0
    for draw in (perturb, _perturb_in_rounds):
        view = draw(
            *one,
            torch.ones(1),
            PerturbationSettings(perturbed_nodes=1.0),
            generator("cpu"),
        )
        assert view.removed_arcs.numel() == view.is_added.sum() == 0
    assert settings.kind == "tifa"
