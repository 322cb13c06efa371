"""SAINT-TIFA: step frequencies, induced subgraphs, epochs, normalisation.

Statistical tests have a fixed seed and reject at 1e-4.
"""

import itertools
import pickle
import threading

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sktifa import GNNClassifier
from sktifa.exceptions import LabelError, NotEnoughMemoryError, ParameterError
from sktifa.graph import Graph
from sktifa.information.tig import annotated_information, label_distribution
from sktifa.sampling import NeighborSampler, SAINTTIFASampler
from sktifa.sampling.walker import (
    CPUWalker,
)

CPU = torch.device("cpu")
SIGNIFICANCE = 1e-4


def random_graph(n, n_edges, *, weighted=False, n_features=4, seed=0):
    """Return a graph whose last three nodes have no edges."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(n - 3, size=(2, n_edges))
    weight = rng.uniform(0.1, 3, n_edges) if weighted else np.ones(n_edges)
    edges = np.hstack([ends, ends[::-1]])
    return Graph.from_edge_index(
        edges, rng.random((n, n_features)), edge_weight=np.tile(weight, 2)
    )


def some_labels(n, n_classes=3, labelled=15, seed=0):
    rng = np.random.default_rng(seed)
    y = np.full(n, -1)
    y[rng.choice(n, labelled, replace=False)] = np.arange(labelled) % n_classes
    return y


def literal_probabilities(graph, y, sharpness, epsilon):
    """Algorithm 1, lines 3 and 4, dense and in loops."""
    information = annotated_information(graph, y, int(y.max()) + 1)
    p = label_distribution(information, "sum")
    a = graph.adjacency.toarray().astype(float)
    n = len(a)
    d = np.full((n, n), np.nan)
    for i, j in zip(*np.nonzero(a), strict=True):
        d[i, j] = (p[i] * np.log(p[i] / p[j])).sum()
    d = (d - np.nanmin(d)) / (np.nanmax(d) - np.nanmin(d))
    out = np.zeros((n, n))
    for i in range(n):
        near = np.flatnonzero(a[i])
        e = np.exp(sharpness * a[i, near] / a.max() / (d[i, near] + epsilon))
        out[i, near] = e / e.sum()
    return out


# -------------------------------------------------------------- probabilities


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("sharpness", "epsilon"), [(0.25, 0.25), (2, 0.05)])
def test_probabilities_are_those_of_algorithm_1(weighted, sharpness, epsilon):
    graph, y = random_graph(60, 200, weighted=weighted), some_labels(57)
    y = np.append(y, [-1, -1, -1])
    sampler = SAINTTIFASampler(sharpness=sharpness, epsilon=epsilon, device="cpu")
    sampler.fit(graph, y)
    ours = sampler.transition_probabilities_
    expected = literal_probabilities(graph, y, sharpness, epsilon)
    # In float32 a distance has an error of 1e-7, times t / ε² in the exponent.
    np.testing.assert_allclose(ours.toarray(), expected, atol=1e-4)
    rows = [expected[i][expected[i] > 0].std() for i in range(57) if expected[i].any()]
    assert sampler.transition_std_ == pytest.approx(np.mean(rows), abs=1e-4)


def test_a_tiny_epsilon_does_not_overflow():
    graph, y = random_graph(60, 200), some_labels(60)
    sampler = SAINTTIFASampler(sharpness=2.0, epsilon=1e-8, device="cpu").fit(graph, y)
    p = sampler.transition_probabilities_
    assert np.isfinite(p.data).all() and (p.data >= 0).all()
    sums = p.sum(1)
    np.testing.assert_allclose(sums[np.diff(p.indptr) > 0], 1, atol=1e-6)


def test_unit_of_the_weights_does_not_matter():
    graph, y = random_graph(60, 200, weighted=True), some_labels(60)
    scaled = Graph(graph.adjacency * 1000, graph.features)
    fits = [
        SAINTTIFASampler(sharpness=1.0, device="cpu").fit(g, y) for g in (graph, scaled)
    ]
    a, b = (fit.transition_probabilities_.data for fit in fits)
    np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_sharpness_0_is_the_uniform_walk(weighted):
    graph = random_graph(60, 200, weighted=weighted)
    sampler = SAINTTIFASampler(sharpness=0, device="cpu").fit(graph)
    p = sampler.transition_probabilities_
    degree = np.diff(p.indptr)
    np.testing.assert_allclose(
        p.data, np.repeat(1 / degree[degree > 0], degree[degree > 0])
    )
    assert sampler.transition_std_ == pytest.approx(0, abs=1e-7)


def test_sharper_is_nearer_to_like_neighbours():
    graph, y = random_graph(300, 1500), some_labels(300)
    stds = [
        SAINTTIFASampler(sharpness=t, device="cpu").fit(graph, y).transition_std_
        for t in (0, 0.25, 0.5, 1, 2)
    ]
    assert (np.diff(stds) > 0).all()


@pytest.mark.parametrize("epsilon", [1e-4, 1e-3])
def test_a_small_epsilon_is_worked_out_in_float64(epsilon):
    """READING 20: in float32 probabilities would be off by .07 at 1e-4."""
    graph, y = random_graph(60, 200), some_labels(60)
    sampler = SAINTTIFASampler(sharpness=0.25 * epsilon, epsilon=epsilon, device="cpu")
    found = sampler.fit(graph, y).transition_probabilities_.toarray()
    expected = literal_probabilities(graph, y, 0.25 * epsilon, epsilon)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_graph_without_edges():
    graph = Graph(sparse.csr_array((5, 5)))
    for sharpness in (0, 1.0):
        sampler = SAINTTIFASampler(3, sharpness=sharpness, device="cpu")
        subgraph = sampler.fit(graph, [0, 1, -1, -1, -1]).sample()
        assert len(subgraph) == 3 and subgraph.n_edges == 0
        assert sampler.transition_std_ == 0


# ------------------------------------------------------------------ subgraphs


def test_sample_is_the_graphs_own_subgraph():
    graph, y = random_graph(300, 900, weighted=True), some_labels(300)
    sampler = SAINTTIFASampler(20, walk_length=2, device="cpu", random_state=0)
    subgraph = sampler.fit(graph, y).sample()
    assert 20 < len(subgraph) <= 60
    expected = graph.subgraph(subgraph.parent_nodes)
    assert (subgraph.adjacency != expected.adjacency).nnz == 0
    np.testing.assert_array_equal(subgraph.features, expected.features)
    assert np.array(subgraph).shape == (len(subgraph), 4)


def test_read_only_memory_maps_are_enough(tmp_path):
    graph, y = random_graph(300, 900), some_labels(300)
    np.save(tmp_path / "x.npy", graph.features)
    mapped = Graph(graph.adjacency, np.load(tmp_path / "x.npy", mmap_mode="r"))
    sampler = SAINTTIFASampler(20, device="cpu", random_state=0)
    a, b = (sampler.fit(g, y).sample() for g in (graph, mapped))
    np.testing.assert_array_equal(a.features, b.features)


def test_a_sample_does_not_touch_the_graph():
    graph, y = random_graph(300, 900), some_labels(300)
    subgraph = SAINTTIFASampler(300, device="cpu").fit(graph, y).sample()
    assert len(subgraph) == 300  # every node a root: the whole graph
    assert not np.shares_memory(subgraph.features, graph.features)
    assert graph.is_whole and graph.parent_nodes is None


# ------------------------------------------------------------- epochs and seeds


def test_an_epoch_takes_each_node_as_a_root_once():
    graph, y = random_graph(100, 300), some_labels(100)
    sampler = SAINTTIFASampler(30, walk_length=0, device="cpu", random_state=0)
    sampler.fit(graph, y)
    parts = [subgraph.parent_nodes for subgraph in sampler]
    assert len(parts) == sampler.n_subgraphs_ == len(sampler.loader()) == 4
    assert [len(part) for part in parts] == [25] * 4
    assert sorted(np.concatenate(parts)) == list(range(100))
    again = [subgraph.parent_nodes for subgraph in sampler]
    assert any((a != b).any() for a, b in zip(parts, again, strict=True))


def test_same_seed_same_subgraphs():
    graph, y = random_graph(300, 900), some_labels(300)

    def draw(seed):
        sampler = SAINTTIFASampler(20, device="cpu", random_state=seed).fit(graph, y)
        drawn = [sampler.sample(), sampler.sample(), *sampler, *sampler]
        return [subgraph.parent_nodes.tolist() for subgraph in drawn]

    first = draw(7)
    assert first == draw(7)
    assert first != draw(8)
    assert len({tuple(nodes) for nodes in first}) == len(first)


def test_whatever_mode_the_user_has_set(users_mode):
    graph, y = random_graph(100, 300), some_labels(100)
    sampler = SAINTTIFASampler(
        20, device="cpu", normalize=True, presample_epochs=2, random_state=0
    )

    def draw():
        sampler.fit(graph, y)
        nodes = [subgraph.parent_nodes for subgraph in sampler]
        probabilities = sampler.transition_probabilities_.data
        return [*nodes, probabilities, sampler.loss_norm_]

    expected = draw()
    with users_mode:
        found = draw()
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_the_global_generators_are_left_alone():
    graph, y = random_graph(300, 900), some_labels(300)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    list(SAINTTIFASampler(50, device="cpu", random_state=0).fit(graph, y))
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize("n_ranks", [2, 3, 7])
def test_ranks_share_an_epoch(n_ranks):
    graph, y = random_graph(100, 300), some_labels(100)
    sampler = SAINTTIFASampler(17, device="cpu", random_state=0).fit(graph, y)
    alone = [s.nodes.tolist() for s in sampler.epoch(4)]
    shared = []
    for rank in range(n_ranks):
        # Each process has a sampler of its own.
        mine = clone(sampler).fit(graph, y).epoch(4, rank=rank, n_ranks=n_ranks)
        shared.append([s.nodes.tolist() for s in mine])
    assert len({len(part) for part in shared}) == 1
    together = [nodes for step in zip(*shared, strict=True) for nodes in step]
    assert together[: len(alone)] == alone
    assert together[len(alone) :] == alone[: len(together) - len(alone)]


def test_threads_do_not_disturb_each_other():
    graph, y = random_graph(2000, 9000), some_labels(2000)
    sampler = SAINTTIFASampler(100, device="cpu", random_state=0).fit(graph, y)
    expected = [s.nodes.tolist() for s in sampler.epoch(0)]
    results = [None] * 4

    def work(k):
        results[k] = [s.nodes.tolist() for s in sampler.epoch(0)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(result == expected for result in results)


# --------------------------------------------------------------- normalisation


def exact_chances(p, n_roots, walk_length):
    """Chance of each node, and of each pair, to be in a subgraph; by enumeration."""
    n = len(p)
    nodes, pairs = np.zeros(n), np.zeros((n, n))
    root_sets = list(itertools.combinations(range(n), n_roots))
    for roots in root_sets:
        walks = []
        for root in roots:
            paths = [((root,), 1.0)]
            for _ in range(walk_length):
                paths = [
                    ((*path, j), chance * p[path[-1], j])
                    for path, chance in paths
                    for j in range(n)
                    if p[path[-1], j] > 0
                ]
            walks.append(paths)
        for combination in itertools.product(*walks):
            chance = np.prod([c for _, c in combination]) / len(root_sets)
            seen = sorted({v for path, _ in combination for v in path})
            nodes[seen] += chance
            pairs[np.ix_(seen, seen)] += chance
    return nodes, pairs


@pytest.mark.parametrize("sharpness", [0, 2.0])
def test_normalisation_is_one_over_the_exact_chances(sharpness):
    adjacency = np.zeros((6, 6))
    for i, j in [(0, 1), (0, 2), (0, 3), (1, 2), (3, 4)]:
        adjacency[i, j] = adjacency[j, i] = 1
    graph = Graph(adjacency, np.eye(6))
    sampler = SAINTTIFASampler(
        2,
        walk_length=2,
        sharpness=sharpness,
        normalize=True,
        presample_epochs=1000,
        device="cpu",
        random_state=0,
    ).fit(graph, [0, -1, -1, -1, 1, -1])
    p = sampler.transition_probabilities_.toarray().astype(float)
    p[5, 5] = 1  # the isolated root stays
    chance, pair_chance = exact_chances(p, n_roots=2, walk_length=2)
    # 3,000 subgraphs: the standard error of a chance of 1/3 is 2.6 %.
    np.testing.assert_allclose(sampler.loss_norm_, 1 / (6 * chance), rtol=0.1)
    arcs = sampler.aggregation_norm_.tocoo()
    expected = chance[arcs.row] / pair_chance[arcs.row, arcs.col]
    np.testing.assert_allclose(arcs.data, expected, rtol=0.1)

    # What it is for: sums over subgraphs are means over the graph, on average.
    value = np.array([5.0, 1.0, 0.0, 2.0, 7.0, 3.0])
    sums, total = [], np.zeros(6)
    for epoch in range(400):
        for subgraph in sampler.epoch(epoch):
            nodes = subgraph.nodes.numpy()
            sums.append(subgraph.loss_norm.numpy() @ value[nodes])
            received = np.zeros(len(nodes))
            np.add.at(
                received,
                subgraph.row.numpy(),
                subgraph.aggregation_norm.numpy() * value[nodes[subgraph.col.numpy()]],
            )
            total[nodes] += received
    assert np.mean(sums) == pytest.approx(value.mean(), rel=0.08)
    # Given that a node is drawn, it receives what it would on the whole graph.
    np.testing.assert_allclose(
        total / (1200 * chance), graph.adjacency @ value, rtol=0.15
    )


def test_normalisation_is_absent_unless_asked_for():
    graph = random_graph(50, 100)
    sampler = SAINTTIFASampler(sharpness=0, device="cpu").fit(graph)
    with pytest.raises(AttributeError, match="normalize=True"):
        sampler.loss_norm_  # noqa: B018
    assert sampler.sample_subgraph().loss_norm is None


def test_an_edge_that_was_never_drawn_has_a_finite_weight():
    graph = random_graph(400, 4000)
    sampler = SAINTTIFASampler(
        5, walk_length=1, sharpness=0, normalize=True, presample_epochs=1, device="cpu"
    ).fit(graph)
    assert np.isfinite(sampler.loss_norm_).all()
    weights = sampler.aggregation_norm_.data
    assert np.isfinite(weights).all() and weights.min() >= 1


# -------------------------------------------------------------------- for users


def test_fit_resample_gives_the_labels_of_the_subgraph():
    graph, y = random_graph(100, 300), some_labels(100, labelled=40)
    sampler = SAINTTIFASampler(10, device="cpu", random_state=0)
    subgraph, labels = sampler.fit_resample(graph, y)
    np.testing.assert_array_equal(labels, y[subgraph.parent_nodes])
    names = np.array(["a", "b", "c", None], dtype=object)[y]
    named = clone(sampler).set_params(missing_label=None)
    same, named_labels = named.fit_resample(graph, names)
    np.testing.assert_array_equal(same.parent_nodes, subgraph.parent_nodes)
    assert named_labels.tolist() == names[subgraph.parent_nodes].tolist()
    assert named.classes_.tolist() == ["a", "b", "c"]
    # Masked ones are missing ones; numbers and what marks their lack go together.
    masked = np.ma.array(np.maximum(y, 0), mask=y < 0)
    np.testing.assert_array_equal(clone(sampler).fit_resample(graph, masked)[1], labels)
    mixed = clone(sampler).set_params(missing_label=-1).fit_resample(graph, names)[1]
    assert mixed.tolist() == [-1 if n is None else n for n in named_labels]
    with pytest.raises(LabelError, match="no labels to return"):
        clone(sampler).fit_resample(graph, None)


def test_a_selection_lends_its_labels_and_the_whole_graph_is_sampled():
    graph, y = random_graph(100, 300), some_labels(100, labelled=40)
    chosen = np.flatnonzero(y >= 0)[::-1]
    sampler = SAINTTIFASampler(10, device="cpu", random_state=0)
    whole, labels = sampler.fit_resample(graph, y)
    p = sampler.transition_probabilities_.data
    part, same = sampler.fit_resample(graph[chosen], y[chosen])
    np.testing.assert_array_equal(part.parent_nodes, whole.parent_nodes)
    np.testing.assert_array_equal(same, labels)
    np.testing.assert_allclose(sampler.transition_probabilities_.data, p, rtol=1e-6)


def test_known_information_gives_the_same_probabilities():
    graph, y = random_graph(100, 300), some_labels(100)
    ours = SAINTTIFASampler(device="cpu").fit(graph, y).transition_probabilities_
    information = annotated_information(graph, y, 3)
    theirs = SAINTTIFASampler(device="cpu").fit(graph, information=information)
    assert theirs.classes_ is None
    np.testing.assert_array_equal(ours.data, theirs.transition_probabilities_.data)


def test_pyg_loop():
    graph, y = random_graph(100, 300, weighted=True), some_labels(100, labelled=40)
    sampler = SAINTTIFASampler(
        20, device="cpu", normalize=True, presample_epochs=2, random_state=0
    ).fit(graph, y)
    loader = sampler.loader(as_pyg=True)
    assert len(loader) == 5
    a = graph.adjacency.toarray()
    seen = []
    for data in loader:
        data.validate(raise_on_error=True)
        ids = data.n_id.numpy()
        np.testing.assert_array_equal(data.x, graph.features[ids])
        np.testing.assert_array_equal(data.y, y[ids])
        source, target = ids[data.edge_index.numpy()]
        np.testing.assert_array_equal(data.edge_weight, a[target, source])
        assert data.num_edges == np.count_nonzero(a[np.ix_(ids, ids)])
        np.testing.assert_array_equal(data.node_norm, sampler.loss_norm_[ids])
        norm = sampler.aggregation_norm_.toarray()
        np.testing.assert_array_equal(data.edge_norm, norm[target, source])
        seen.append(ids.tolist())
    assert [data.n_id.tolist() for data in loader] != seen
    unlabelled = SAINTTIFASampler(20, sharpness=0, device="cpu").fit(
        Graph(graph.adjacency)
    )
    data = next(iter(unlabelled.loader(as_pyg=True)))
    assert "y" not in data and data.x.shape == (data.num_nodes, 100)


def test_clone_and_pickle():
    graph, y = random_graph(100, 300), some_labels(100)
    sampler = SAINTTIFASampler(
        20, device="cpu", normalize=True, presample_epochs=1, random_state=0
    )
    assert clone(sampler).get_params() == sampler.get_params()
    pickle.loads(pickle.dumps(sampler))
    opened = pickle.loads(pickle.dumps(sampler.fit(graph, y)))
    for a, b in zip(sampler, opened, strict=True):
        np.testing.assert_array_equal(a.parent_nodes, b.parent_nodes)
    np.testing.assert_array_equal(sampler.loss_norm_, opened.loss_norm_)


def test_a_pickle_holds_the_graph_once():
    graph, y = random_graph(300, 3000), some_labels(300)
    sampler = SAINTTIFASampler(device="cpu").fit(graph, y)
    arrays = graph.adjacency.data, graph.adjacency.indices, graph.features
    thresholds = sampler._walker.thresholds
    size = sum(array.nbytes for array in (*arrays, thresholds))
    stored = pickle.dumps(sampler)
    assert len(stored) < size + 15_000
    again = pickle.loads(stored)._walker.thresholds
    np.testing.assert_array_equal(again, thresholds)


def test_errors():
    graph, y = random_graph(50, 100), some_labels(50)
    with pytest.raises(NotFittedError):
        SAINTTIFASampler().sample()
    with pytest.raises(NotFittedError):
        SAINTTIFASampler().transition_std_  # noqa: B018
    with pytest.raises(LabelError, match="y was not given"):
        SAINTTIFASampler(device="cpu").fit(graph)
    with pytest.raises(LabelError):
        SAINTTIFASampler(device="cpu").fit(graph, y[:-1])
    for parameter in (
        {"n_roots": 0},
        {"n_roots": 2.5},
        {"epsilon": 0},
        {"sharpness": -1},
        {"label_distribution": "foo"},
    ):
        with pytest.raises(ValueError, match=next(iter(parameter))):
            SAINTTIFASampler(device="cpu", **parameter).fit(graph, y)
    with pytest.raises(ParameterError, match="device='meta'"):
        SAINTTIFASampler(device="meta").fit(graph, y)
    with pytest.raises(NotEnoughMemoryError, match="walk_length=1000000000000 from"):
        SAINTTIFASampler(walk_length=10**12, device="cpu").fit(graph, y)


@pytest.mark.parametrize(
    "sampler",
    [
        SAINTTIFASampler(20, sharpness=-1),
        SAINTTIFASampler(20, label_distribution="foo"),
        NeighborSampler(batch_size=0),
        NeighborSampler((2.5,)),
    ],
    ids=str,
)
def test_parameters_are_checked_within_a_classifier_too(sampler):
    """scikit-learn skips the checks of nested estimators (CASES B.14)."""
    graph, y = random_graph(50, 100), some_labels(50)
    model = GNNClassifier(sampler=sampler, max_iter=1, device="cpu")
    with pytest.raises(ValueError, match="sharpness|label_distribution|batch|num_neig"):
        model.fit(graph, y)


@pytest.mark.parametrize(
    ("information", "words"),
    [
        (np.ones((49, 3)), r"shape \(50, n_classes\)"),
        (np.ones(50), r"shape \(50, n_classes\)"),
        (np.full((50, 3), np.nan), "information of node 0 is"),
        (torch.full((50, 3), -1.0), "information of node 0 is"),
        (np.full((50, 3), "a"), "real numbers"),
    ],
)
def test_information_that_is_none_is_refused(information, words):
    with pytest.raises(LabelError, match=words):
        SAINTTIFASampler(device="cpu").fit(
            random_graph(50, 100), information=information
        )


@pytest.mark.parametrize("kind", [SAINTTIFASampler, NeighborSampler])
def test_shares_of_an_epoch_that_are_none(kind):
    graph, y = random_graph(50, 100), some_labels(50)
    sampler = kind(10, device="cpu") if kind is SAINTTIFASampler else kind((3,))
    sampler.fit(graph, y)
    with pytest.raises(ParameterError, match=r"rank=5, but n_ranks=2: .* 0 to 1"):
        sampler.epoch(rank=5, n_ranks=2)
    for wrong in ({"rank": -1}, {"n_ranks": 0}, {"n_ranks": 1.5}, {"index": -1}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            sampler.epoch(**wrong)


@pytest.mark.parametrize("kind", [SAINTTIFASampler, NeighborSampler])
def test_a_sampler_is_as_long_as_an_epoch(kind):
    sampler = kind()
    assert sampler  # whether fitted or not
    with pytest.raises(NotFittedError):
        len(sampler)
    graph, y = random_graph(100, 300), some_labels(100, labelled=40)
    if kind is SAINTTIFASampler:
        sampler.set_params(n_roots=30, device="cpu")
    else:
        sampler.set_params(batch_size=11)
    sampler.fit(graph, y)
    assert len(sampler) == len(list(sampler)) == len(sampler.loader()) == 4


def test_nodes_no_label_reaches_take_part():
    graph, y = random_graph(60, 60), some_labels(60)  # many small components
    sampler = SAINTTIFASampler(60, device="cpu", sharpness=2.0).fit(graph, y)
    assert np.isfinite(sampler.transition_probabilities_.data).all()
    assert len(sampler.sample()) == 60


# ------------------------------------------------------------------------ CUDA


@pytest.mark.cuda
@pytest.mark.parametrize("weighted", [False, True])
def test_cuda_has_the_cpus_probabilities_and_steps_by_them(weighted):
    graph, y = random_graph(60, 250, weighted=weighted), some_labels(60)
    cpu, cuda = (
        SAINTTIFASampler(sharpness=1.0, device=device).fit(graph, y)
        for device in ("cpu", "cuda")
    )
    p = cuda.transition_probabilities_.toarray().astype(float)
    np.testing.assert_allclose(p, cpu.transition_probabilities_.toarray(), atol=1e-4)
    roots = torch.full((40_000,), 17, device="cuda")
    paths = cuda._walker.walk(roots, 2, seed=0).cpu().numpy()
    for step in (1, 2):
        count = np.bincount(paths[step], minlength=60)
        expected = np.linalg.matrix_power(p, step)[17] * 40_000
        assert (count[expected == 0] == 0).all()
        expected *= 40_000 / expected.sum()
        pvalue = chisquare(count[expected > 0], expected[expected > 0]).pvalue
        assert pvalue > SIGNIFICANCE


@pytest.mark.cuda
def test_cuda_epochs_are_the_graphs_subgraphs():
    graph, y = random_graph(2000, 9000, weighted=True), some_labels(2000)
    sampler = SAINTTIFASampler(
        150, device="cuda", normalize=True, presample_epochs=2, random_state=0
    ).fit(graph, y)
    first = [subgraph.nodes.tolist() for subgraph in sampler.epoch(3)]
    busy = torch.zeros(2000, 2000, device="cuda")
    for nodes, subgraph in zip(first, sampler.epoch(3), strict=True):
        busy @= busy  # work on the stream that trains
        assert subgraph.nodes.is_cuda and subgraph.nodes.tolist() == nodes
    for subgraph in sampler:
        expected = graph.subgraph(subgraph.parent_nodes)
        assert (subgraph.adjacency != expected.adjacency).nnz == 0
    for data in sampler.loader(as_pyg=True):
        assert data.x.is_cuda and data.edge_norm.is_cuda
        ids = data.n_id.cpu().numpy()
        np.testing.assert_array_equal(data.x.cpu(), graph.features[ids])


@pytest.mark.cuda
def test_fitted_on_cuda_opens_on_the_cpu():
    graph, y = random_graph(100, 300), some_labels(100)
    sampler = SAINTTIFASampler(
        10, device="cuda", normalize=True, presample_epochs=1, random_state=0
    ).fit(graph, y)
    opened = pickle.loads(pickle.dumps(sampler))
    assert isinstance(opened._walker, CPUWalker)
    np.testing.assert_array_equal(opened.loss_norm_, sampler.loss_norm_)
    np.testing.assert_allclose(
        opened.transition_probabilities_.data, sampler.transition_probabilities_.data
    )
    assert len(opened.sample()) >= 10
