"""Whether edges tell of labels: against loops, dense inverses and real graphs."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from sktifa.classifiers import GNNClassifier
from sktifa.datasets import make_block_graph
from sktifa.exceptions import GraphWarning, LabelError
from sktifa.graph import Graph
from sktifa.information import evidence
from sktifa.information.evidence import graph_helps, has_features


def _some_labels(y, per_class, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.full_like(y, -1)
    for code in np.unique(y[y >= 0]):
        labels[rng.permutation(np.flatnonzero(y == code))[:per_class]] = code
    return labels


def _weighted_graph(seed=0, n=60):
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.1, 1) * rng.uniform(0.5, 2, (n, n))
    dense[-3:] = dense[:, -3:] = 0
    codes = rng.integers(-1, 3, n)
    return Graph(dense + dense.T, rng.normal(size=(n, 4))), codes


def test_homophily_equals_a_loop_over_the_labelled_edges():
    graph, codes = _weighted_graph()
    dense = graph.adjacency.toarray().astype(float)
    same = total = 0.0
    degree = np.zeros(3)
    for i in range(60):
        for j in range(i):
            if dense[i, j] and codes[i] >= 0 and codes[j] >= 0:
                total += dense[i, j]
                same += dense[i, j] * (codes[i] == codes[j])
                degree[codes[i]] += dense[i, j]
                degree[codes[j]] += dense[i, j]
    by_chance = sum((d / degree.sum()) ** 2 for d in degree)
    found = graph_helps(graph, codes, 3)
    assert found.edge_homophily.value == pytest.approx(same / total)
    adjusted = (same / total - by_chance) / (1 - by_chance)
    assert found.adjusted_homophily.value == pytest.approx(adjusted)


def test_standard_error_of_homophily_is_its_spread_over_relabellings():
    made = make_block_graph(2000, 2, homophily=0.5, random_state=0)
    rng = np.random.default_rng(0)
    found = [
        graph_helps(made.graph, rng.integers(2, size=2000), 2).adjusted_homophily
        for _ in range(40)
    ]
    spread = np.std([f.value for f in found], ddof=1)
    assert np.mean([f.error for f in found]) == pytest.approx(spread, rel=0.3)


def test_propagation_equals_a_dense_inverse_fold_by_fold(monkeypatch):
    monkeypatch.setattr(evidence, "_TOL", 1e-8)
    graph, codes = _weighted_graph()
    dense = graph.adjacency.toarray().astype(float)
    degree = dense.sum(axis=0)
    step = np.divide(dense, degree, out=np.zeros_like(dense), where=degree > 0)
    solve = 0.15 * np.linalg.inv(np.eye(60) - 0.85 * step)
    found = graph_helps(graph, codes, 3)
    labelled = np.flatnonzero(codes >= 0)
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(labelled))
    dealt = labelled[shuffled[np.argsort(codes[labelled[shuffled]], kind="stable")]]
    hits = {0: [], 1: [], 2: []}
    for fold in range(5):
        test = dealt[fold::5]
        for i in test:
            score = [
                np.mean(
                    [solve[i, j] for j in labelled if codes[j] == c and j not in test]
                )
                for c in range(3)
            ]
            tied = np.isclose(score, max(score), rtol=1e-6, atol=1e-12)
            hits[codes[i]].append(tied[codes[i]] / tied.sum())
    expected = np.mean([np.mean(h) for h in hits.values()])
    assert found.propagation.value == pytest.approx(expected)
    assert found.propagation.n == len(labelled)
    # One more is found, one more is not.
    n_right = expected * len(labelled) + 1
    share = n_right / (len(labelled) + 2)
    assert found.skill == pytest.approx(max(0, (share - 1 / 3) / (2 / 3)))


@pytest.mark.parametrize("weighted", [False, True])
def test_walks_estimate_what_propagation_computes(weighted, monkeypatch):
    monkeypatch.setattr(evidence, "_WALKS", 20_000)
    monkeypatch.setattr(evidence, "_TOL", 1e-6)
    graph, codes = _weighted_graph()
    if not weighted:
        pattern = graph.adjacency.copy()
        graph = Graph(sparse.csr_array(pattern > 0, dtype=np.float32), graph.features)
    found = graph_helps(graph, codes, 3)
    labelled = np.flatnonzero(codes >= 0)
    train, test = labelled[::2], labelled[1::2]
    exact, walked = found._received(train, test), found._walked(train, test)
    np.testing.assert_array_equal(exact.max(axis=1) > 0, walked.max(axis=1) > 0)
    reached = exact.max(axis=1) > 0
    shares = [
        z[reached] / z[reached].sum(axis=1, keepdims=True) for z in (exact, walked)
    ]
    np.testing.assert_allclose(*shares, atol=0.03)


def test_large_graphs_are_sampled(monkeypatch):
    made = make_block_graph(4000, 3, homophily=0.7, random_state=0)
    exact = graph_helps(made.graph, made.target, 3).propagation
    monkeypatch.setattr(evidence, "_SWEEP", 0)
    monkeypatch.setattr(evidence, "_MOST_NODES", 400)
    sampled = graph_helps(made.graph, made.target, 3).propagation
    assert sampled.n < exact.n / 5
    assert abs(sampled.value - exact.value) < 3 * sampled.error
    sparsely = np.full(4000, -1)
    sparsely[:4] = [0, 0, 1, 1]
    assert graph_helps(made.graph, sparsely, 3).propagation is None


def test_nodes_that_no_label_reaches_are_guesses():
    alone = Graph(sparse.csr_array((40, 40)), np.ones((40, 1)))
    found = graph_helps(alone, np.arange(40) % 4, 4)
    assert found.propagation.value == pytest.approx(0.25)
    assert found.skill == pytest.approx((11 / 42 - 1 / 4) / (3 / 4))
    assert found.edge_homophily is None and found.n_labelled_edges == 0
    assert found.helps is False


def _cliques(n_cliques, size=6):
    return Graph(np.kron(np.eye(n_cliques), 1 - np.eye(size)))


def test_classes_of_one_label_are_tried_by_what_returns():
    codes = np.full(18, -1)
    codes[[0, 1, 6, 7, 12]] = [0, 0, 1, 1, 2]
    found = graph_helps(_cliques(3), codes, 3)
    assert found.propagation.n == 4 and found.returned.n == 5
    assert found.propagation.value == found.returned.value == 1
    # One more is found, one more is not: of two classes, and of the third.
    of_two, of_one = ((share - 1 / 3) / (2 / 3) for share in (5 / 6, 6 / 7))
    assert found.skill == pytest.approx((2 * of_two + of_one) / 3)


def test_one_class_alone_can_be_held_out():
    codes = np.full(12, -1)
    codes[[0, 1, 6]] = [0, 0, 1]
    found = graph_helps(_cliques(2), codes, 2)
    assert found.propagation is None and found.features is None
    assert found.helps is None
    assert found.returned.n == 15
    assert found.skill == pytest.approx((16 / 17 - 1 / 2) / (1 / 2))


@pytest.mark.parametrize(
    ("labelled", "share"),
    [
        ((0, 3), 1.0),  # 1 stands in for 0, and 2 for 3
        ((0, 1), 0.5),  # all the others are nearer to 1: none stands in for 0
    ],
)
def test_labels_return_along_a_path_by_hand(labelled, share):
    path = Graph(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    codes = np.full(4, -1)
    codes[list(labelled)] = [0, 1]
    found = graph_helps(path, codes, 2)
    assert found.returned.value == share
    assert found.returned.n == 10


def test_labels_return_as_over_all_pairs_that_could_stand_in(monkeypatch):
    monkeypatch.setattr(evidence, "_TOL", 1e-8)
    monkeypatch.setattr(evidence, "_DRAWS", 2000)
    graph, _ = _weighted_graph()
    dense = graph.adjacency.toarray().astype(float)
    degree = dense.sum(axis=0)
    step = np.divide(dense, degree, out=np.zeros_like(dense), where=degree > 0)
    solve = np.linalg.inv(np.eye(60) - 0.85 * step)
    codes = np.full(60, -1)
    codes[[4, 9]] = [0, 1]
    nearer = np.sign(solve[:, 4] - solve[:, 9])
    nearer[[4, 9]] = 0
    right = [
        (solve[4, one] > solve[4, other], solve[9, other] > solve[9, one])
        for one in np.flatnonzero(nearer > 0)
        for other in np.flatnonzero(nearer < 0)
    ]
    expected = np.mean(right)
    assert 0.6 < expected < 0.95
    found = graph_helps(graph, codes, 2).returned
    assert found.value == pytest.approx(expected, abs=0.03)


def test_nothing_returns_where_all_can_be_held_out_or_the_graph_is_large(monkeypatch):
    codes = np.full(12, -1)
    codes[[0, 1, 6, 7]] = [0, 0, 1, 1]
    assert graph_helps(_cliques(2), codes, 2).returned is None
    monkeypatch.setattr(evidence, "_SWEEP", 0)
    codes[[1, 7]] = -1
    large = graph_helps(_cliques(2), codes, 2)
    assert large.returned is None and large.skill == 0


def test_verdicts():
    made = make_block_graph(1500, 3, homophily=0.8, random_state=0)
    assert graph_helps(made.graph, made.target, 3).helps is True
    assert graph_helps(made.graph, _some_labels(made.target, 10), 3).helps is True
    assert graph_helps(made.graph, _some_labels(made.target, 2), 3).helps is None
    noise = make_block_graph(1500, 3, homophily=1 / 3, random_state=0)
    assert graph_helps(noise.graph, noise.target, 3).helps is False
    against = make_block_graph(1500, 3, homophily=0.02, random_state=0)
    assert graph_helps(against.graph, against.target, 3).helps is False


def test_edges_that_find_more_than_features_help_however_little_they_agree():
    # Adjusted homophily .2 all over, which adds up, and features that tell nothing.
    made = make_block_graph(
        3000, 2, homophily=0.6, average_degree=60, class_separation=0, random_state=0
    )
    found = graph_helps(made.graph, made.target, 2)
    assert found.adjusted_homophily.high < 0.25
    assert found.propagation.value > 0.8
    assert found.helps is True


def test_graphs_without_features():
    path = np.diag(np.ones(9), 1) + np.diag(np.ones(9), -1)
    assert not has_features(Graph(path))
    assert has_features(Graph(path, np.ones((10, 1))))
    assert graph_helps(Graph(path), np.arange(10) // 5, 2).features is None


def test_codes_are_of_the_whole_graph():
    graph, codes = _weighted_graph()
    with pytest.raises(LabelError, match=r"\(60,\).*\(10,\)"):
        graph_helps(graph, codes[:10], 3)


@pytest.mark.parametrize(
    ("name", "per_class", "expected"),
    [
        ("cora", None, True),
        ("cora", 20, True),
        ("citeseer", None, True),
        ("minesweeper", None, False),
        ("minesweeper", 100, False),
        ("tolokers", None, False),
        ("tolokers", 100, False),
    ],
)
def test_real_graphs(name, per_class, expected, request):
    data = request.getfixturevalue(name)
    y = data.target
    codes = y if per_class is None else _some_labels(y, per_class)
    assert graph_helps(data.graph, codes, int(y.max()) + 1).helps is expected


def test_fit_warns_of_edges_that_do_not_help_unless_it_looks_at_none():
    made = make_block_graph(300, 3, homophily=0, random_state=0)
    options = {"max_iter": 2, "random_state": 0, "device": "cpu"}
    with pytest.warns(GraphWarning, match="does not seem to help") as told:
        GNNClassifier(**options).fit(made.graph, made.target)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GNNClassifier("mlp", **options).fit(made.graph, made.target)
