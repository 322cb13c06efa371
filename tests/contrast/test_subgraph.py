"""Views and pairs inside a subgraph, against those of the whole graph."""

import numpy as np
import pytest
import torch

from sktifa.contrast.pairs import (
    PairSettings,
    anchor_pairs,
    pair_operator,
    sample_pairs,
)
from sktifa.contrast.perturbation import PerturbationSettings
from sktifa.contrast.subgraph import perturb
from sktifa.datasets import make_block_graph
from sktifa.exceptions import ParameterError
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


@pytest.mark.parametrize(
    "options", [{}, {"edges_added": 3}, {"decay": 0.0}, {"perturbed_nodes": 0.0}]
)
def test_a_view_keeps_its_promises(options, made, device):
    graph, _ = made
    crow, col = on(graph, device)
    settings = PerturbationSettings(**options)
    weights = torch.linspace(0.2, 2.2, 300, device=device)
    view = perturb(crow, col, weights, settings, seed=0)
    drawn = view.nodes.cpu().numpy()
    n_drawn = round(settings.perturbed_nodes * 300)
    assert drawn.sum() == n_drawn if settings.decay > 0 else drawn.sum() <= n_drawn
    dense = graph.adjacency.toarray() > 0
    # Removed arcs: in pairs, each at a drawn node, at most two of a node's own choice.
    row = np.repeat(np.arange(300), np.diff(graph.adjacency.indptr))
    removed = np.unique(view.removed_arcs.cpu().numpy())
    removed = removed[removed < len(row)]
    gone = set(zip(row[removed], graph.adjacency.indices[removed], strict=True))
    assert len(gone) == len(removed) and all((j, i) in gone for i, j in gone)
    assert all(drawn[i] or drawn[j] for i, j in gone)
    assert len(removed) // 2 <= settings.edges_removed * drawn.sum()
    # Added edges: new ones, none twice, from drawn nodes.
    source, other = view.added_edges.cpu().numpy()
    assert not dense[source, other].any() and (source != other).all()
    assert len({frozenset(e) for e in zip(source, other, strict=True)}) == len(source)
    assert drawn[source].all() and len(source) <= settings.edges_added * drawn.sum()


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
    view = perturb(
        *one, torch.ones(1), PerturbationSettings(perturbed_nodes=1.0), seed=0
    )
    assert view.nodes.tolist() == [True]
    assert view.removed_arcs.numel() == view.added_edges.numel() == 0
    assert settings.kind == "tifa"


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (PerturbationSettings, {"edges_added": 1.5}),
        (PerturbationSettings, {"decay": 1.5}),
        (PerturbationSettings, {"perturbation_rate": -1}),
        (PairSettings, {"n_positives": 1.5}),
        (PairSettings, {"negative_ranks": (0.5, 2)}),
        (PairSettings, {"negative_ranks": 7}),
        (PairSettings, {"hop_weight": float("nan")}),
        (PairSettings, {"max_hops": 300}),
    ],
)
def test_settings_are_checked(settings, options):
    with pytest.raises(ParameterError, match=next(iter(options))):
        settings(**options)
