"""The losses of other methods, against plain loops over nodes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.base import clone

from benchmarks.accuracy import methods
from benchmarks.accuracy.fits import Fit, train
from benchmarks.baselines import contrastive, terms
from benchmarks.data import draw_split
from sktifa import GNNClassifier, Graph, TIFAGCLClassifier, make_block_graph
from sktifa.classifiers.prepare import prepare
from sktifa.tensors.sparse import Adjacency
from sktifa.training.stacking import stack

CPU = torch.device("cpu")
SEED = torch.tensor([3, 2**40])


@pytest.fixture
def graph():
    data = make_block_graph(30, 3, random_state=0)
    return data.graph


def adjacency(graph):
    return Adjacency.from_csr(graph.adjacency, CPU)


def stacked(*some):
    return stack(some, CPU)


def step(graph, **more):
    batch = SimpleNamespace(graph=adjacency(graph), **more.pop("batch", {}))
    return SimpleNamespace(
        batch=batch, draw=lambda number: SimpleNamespace(seed=SEED), **more
    )


def test_numbers_are_uniform_and_a_seeds_own():
    numbers = terms.uniform(torch.tensor([1, 2, 1, -(2**62)]), 20_000)
    assert 0 <= numbers.min() and numbers.max() < 1
    torch.testing.assert_close(numbers[0], numbers[2], rtol=0, atol=0)
    for row in numbers:
        counts = np.histogram(row, bins=10, range=(0, 1))[0]
        # Nine degrees of freedom: below 28 with probability .999.
        assert ((counts - 2000) ** 2 / 2000).sum() < 28
    assert abs(np.corrcoef(numbers[0], numbers[1])[0, 1]) < 0.03
    assert abs(np.corrcoef(numbers[0][1:], numbers[0][:-1])[0, 1]) < 0.03


@pytest.mark.parametrize("within", [True, False])
def test_node_contrast_equals_a_loop(graph, within):
    rng = np.random.default_rng(0)
    views = rng.normal(size=(2, 2, 30, 4)).astype(np.float32)  # view, model, node
    told = step(graph, embedded_view=lambda number: torch.from_numpy(views[number]))
    term = stacked(
        *(terms.NodeContrast(w, t, within, 12) for w, t in ((0.5, 0.5), (2.0, 0.1)))
    )
    drawn = (terms.uniform(SEED, 12) * 30).long().numpy()
    expected = []
    for model, (weight, temperature) in enumerate(((0.5, 0.5), (2.0, 0.1))):
        nodes, losses = drawn[model], []
        unit = views[:, model] / np.linalg.norm(views[:, model], axis=2, keepdims=True)
        for here in (0, 1):
            for i in nodes:
                likeness = unit[here, i] @ unit[1 - here].T / temperature
                against = [likeness[j] for j in nodes if j != i]
                if within:
                    beside = unit[here, i] @ unit[here].T / temperature
                    against += [beside[j] for j in nodes if j != i] + [likeness[i]]
                losses.append(np.log(np.exp(against).sum()) - likeness[i])
        expected.append(weight * np.mean(losses))
    np.testing.assert_allclose(term(told).numpy(), expected, rtol=1e-4)


def test_diffusion_is_personalised_pagerank(graph):
    h = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    diffusion = terms.Diffusion(adjacency(graph), teleport=0.2, steps=100)
    a = graph.adjacency.toarray() + np.eye(30)
    scale = a.sum(axis=1) ** -0.5
    system = np.eye(30) - 0.8 * scale[:, None] * a * scale
    expected = 0.2 * np.linalg.solve(system, h)
    result = diffusion.normalized(torch.from_numpy(h)[None])[0]
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-5)


def test_augmented_nodes_alone_count(graph):
    rng = np.random.default_rng(0)
    clean, view = rng.normal(size=(2, 1, 30, 3))
    row_keep = np.ones((1, 30))
    row_keep[0, [4, 7]] = 0.5
    told = step(
        graph,
        log_target=torch.from_numpy(log_softmax(clean, axis=2)),
        log_view=lambda: torch.from_numpy(log_softmax(view, axis=2)),
        batch={"views": [SimpleNamespace(row_keep=torch.from_numpy(row_keep))]},
    )
    p, q = softmax(clean, axis=2)[0], softmax(view, axis=2)[0]
    divergence = (p * np.log(p / q)).sum(axis=1)
    loss = stacked(terms.AugmentedNodes(3.0))(told)
    assert loss.item() == pytest.approx(3 * divergence[[4, 7]].mean())


def test_mixup_equals_a_loop(graph, monkeypatch):
    rng = np.random.default_rng(0)
    hidden, clean, last = (
        rng.normal(size=size).astype(np.float32)
        for size in ((1, 30, 5), (1, 30, 3), (5, 3))
    )
    numbers = torch.from_numpy(rng.random((1, 31)))
    monkeypatch.setattr(terms, "uniform", lambda seed, n: numbers[:, :n])
    labeled = SimpleNamespace(
        index=torch.tensor([2, 9]),
        target=torch.tensor([1, 0]),
        weight=torch.tensor([0.25, 0.75]),
        of=lambda values: values.flatten(0, 1)[[2, 9]],
        sums=lambda values, n: values.sum()[None],
    )
    told = step(
        graph,
        clean=torch.from_numpy(clean),
        encoder=SimpleNamespace(
            n_layers=2,
            embed=lambda x, g, draw: torch.from_numpy(hidden),
            layer=lambda i, h, g: h @ torch.from_numpy(last),
        ),
        batch={"labeled": labeled, "features": None},
    )
    label = softmax(2 * clean[0], axis=1)
    label[2], label[9] = [0, 1, 0], [1, 0, 0]
    share, partner = numbers[0, 0].item(), numbers[0, 1:].argsort().numpy()
    losses = []
    for i, j in enumerate(partner):
        h = share * hidden[0, i] + (1 - share) * hidden[0, j]
        q = share * label[i] + (1 - share) * label[j]
        losses.append(-(q * log_softmax(h @ last)).sum())
    p = softmax(clean[0], axis=1)
    known = max((0.25 * p[2, 1] + 0.75 * p[9, 0] - 1 / 3) / (2 / 3), 0)
    assert 0 < known < 1
    expected = 2 * (0.25 * losses[2] + 0.75 * losses[9])
    expected += 0.5 * known * np.mean(losses)
    loss = stacked(terms.Mixup(2.0, 0.5, 2.0))(told)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


METHODS = [
    (contrastive.GRACEClassifier, TIFAGCLClassifier),
    (contrastive.GraphCLClassifier, TIFAGCLClassifier),
    (contrastive.MultiViewClassifier, GNNClassifier),
    (contrastive.NodeAugClassifier, TIFAGCLClassifier),
    (contrastive.GraphMixClassifier, GNNClassifier),
]


def made(method, network, **parameters):
    few = {"max_iter": 5, "hidden_size": 8, "random_state": 0, "device": "cpu"}
    return method(network(**{**method.settings, **few}), **parameters)


@pytest.mark.parametrize(("method", "network"), METHODS)
def test_stacks_of_methods_are_their_fits(method, network):
    data = make_block_graph(200, 3, random_state=0)
    split = draw_split(data, 0, 10, "transductive")
    models = [made(method, network, weight=weight) for weight in (0.5, 1.0)]
    fits = [Fit(model, "block", 10, "transductive", 0, True) for model in models]
    (stack,) = train(fits, data, [split, split], "cpu")
    scores = dict(stack)
    for i, model in enumerate(models):
        y = np.full(200, -1)
        y[split.train] = data.target[split.train]
        alone = clone(model).fit(
            data.graph, y, data.graph[split.val], data.target[split.val]
        )
        np.testing.assert_array_equal(scores[i].predicted, alone.predict(data.graph))
    assert not np.array_equal(scores[0].scores, scores[1].scores)


@pytest.mark.parametrize(("method", "network"), METHODS)
def test_terms_change_the_network(method, network):
    data = make_block_graph(200, 3, class_separation=4, random_state=0)
    y = np.where(np.arange(200) < 40, data.target, -1)
    with_term, without = (
        made(method, network, weight=weight)
        .set_params(network__max_iter=40)
        .fit(data.graph, y)
        for weight in (1.0, 0.0)
    )
    assert with_term.score(data.graph, data.target) > 0.7
    assert not np.array_equal(
        with_term.predict_proba(data.graph), without.predict_proba(data.graph)
    )


def test_a_graph_without_edges_makes_a_gcn_an_mlp(graph):
    h = torch.randn(1, 30, 2, generator=torch.Generator().manual_seed(0))
    edgeless = terms.NoEdges(adjacency(graph))
    assert edgeless.normalized(h) is h
    assert edgeless.n_nodes == graph.n_nodes == Graph(graph.adjacency).n_nodes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("GCN", ["CrossEntropy"]),
        ("GraphMix", ["CrossEntropy", "Mixup"]),
        ("GRACE", ["CrossEntropy", "NodeContrast"]),
        ("NodeAug", ["CrossEntropy", "AugmentedNodes"]),
        ("MultiView", ["CrossEntropy", "ViewContrast"]),
        ("GraphCL", ["CrossEntropy", "NodeContrast"]),
        ("uniform-GCL", ["CrossEntropy", "SelfConsistency", "Pairs"]),
        ("TIFA-GCL", ["CrossEntropy", "SelfConsistency", "Pairs"]),
        ("ours", ["CrossEntropy", "SelfConsistency", "Teacher"]),
        ("uniform-GCL, our encoders", ["CrossEntropy", "SelfConsistency"]),
    ],
)
def test_methods_are_made_of_their_own_terms(name, expected):
    """Whatever the defaults of our classes become."""
    data = make_block_graph(60, 3, random_state=0)
    estimator = methods.METHODS[name].estimator
    network = estimator.made() if hasattr(estimator, "made") else clone(estimator)
    problem = prepare(network, data.graph, data.target, CPU)
    assert [type(term).__name__ for term in problem.terms] == expected
    assert (problem.target.log_prior is not None) == (name == "ours")
    if name in ("uniform-GCL", "TIFA-GCL"):
        assert network.pairing == ("tifa" if name == "TIFA-GCL" else "uniform")
