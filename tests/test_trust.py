"""How far the classifier trusts propagated labels: by hand, and in every path."""

import numpy as np
import pytest
import torch

from sktifa import Graph, TIFAGCLClassifier
from sktifa.classifiers.prepare import prepare
from sktifa.datasets import make_block_graph
from sktifa.exceptions import GraphWarning
from sktifa.information import evidence
from sktifa.information.tig import annotated_information, information_gain
from sktifa.training.terms import Teacher

CPU = torch.device("cpu")
N = 12


@pytest.fixture
def cliques():
    """Two cliques of twelve and a node alone: labels tell all that they reach."""
    dense = np.zeros((2 * N + 1, 2 * N + 1))
    for begin in (0, N):
        dense[begin : begin + N, begin : begin + N] = 1 - np.eye(N)
    features = np.random.default_rng(0).random((2 * N + 1, 3))
    return Graph(dense, features), np.r_[np.zeros(N, int), np.ones(N + 1, int)]


def lesson(graph, y, nodes, **parameters):
    """Return what the propagated labels teach each node that training sees."""
    model = TIFAGCLClassifier("sage", **parameters)
    problem = prepare(model, graph[nodes], y[nodes], CPU)
    return next(term.lesson for term in problem.terms if isinstance(term, Teacher))


def trusted(*where, **parameters):
    """Return the trust in each node: a lesson's sum, as the labels taught sum to 1."""
    return lesson(*where, **parameters).sum(1).numpy()


def certain(n):
    """Return the least trust where all of `n` labels of each of two classes are found.

    As if one more were right, and one more wrong.
    """
    share = (2 * n + 1) / (2 * n + 2)
    return ((share - 1 / 2) / (1 - 1 / 2)) ** 12


# Ten labels a class, and two: few that are right are no proof.
@pytest.mark.parametrize(("n", "expected"), [(10, 0.319), (2, 0.008)])
def test_least_trust_by_hand(cliques, n, expected):
    graph, y = cliques
    nodes = np.r_[:n, N : N + n]
    assert certain(n) == pytest.approx(expected, abs=1e-3)
    ranked = trusted(graph, y, nodes, trust="tifa")
    gain = information_gain(
        annotated_information(graph, np.where(np.isin(graph.nodes, nodes), y, -1), 2),
        0.1,
    )
    # Ties get their mean rank.
    rank = (gain[:, None] > gain).sum(1) + ((gain[:, None] == gain).sum(1) - 1) / 2
    np.testing.assert_allclose(ranked, (rank / len(y)) ** 2, rtol=1e-5)
    least = np.where(gain > 0, expected, 0)
    found = trusted(graph, y, nodes, trust="cross-fitted")
    np.testing.assert_allclose(found, np.maximum(ranked, least), atol=1e-3)
    # The node that no label reaches is not taught that nothing is known.
    assert found[-1] == ranked[-1] == 0


def test_a_label_a_class_proves_by_what_returns(cliques):
    graph, y = cliques
    # Both are found from whichever node of their clique, five times.
    found = trusted(graph, y, [0, N], trust="cross-fitted")
    ranked = trusted(graph, y, [0, N], trust="tifa")
    least = np.r_[np.full(2 * N, certain(5)), 0]
    np.testing.assert_allclose(found, np.maximum(ranked, least), rtol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "classes"),
    [
        # Labels that tell nothing of each other.
        ([0, 1, 2, N, N + 1, N + 2], [0, 1, 0, 1, 0, 1]),
        ([2 * N, 0], [1, 0]),  # one of a node alone, where none comes from
    ],
)
def test_labels_that_find_none_are_trusted_by_the_gain_alone(cliques, nodes, classes):
    graph, y = cliques
    y = y.copy()
    y[nodes] = classes
    by_gain = trusted(graph, y, nodes, trust="tifa")
    np.testing.assert_array_equal(trusted(graph, y, nodes), by_gain)


def test_as_far_on_subgraphs(cliques):
    graph, y = cliques
    nodes = np.r_[:10, N : N + 10]
    whole = trusted(graph, y, nodes)
    sampled = trusted(graph, y, nodes, sampler="saint-rw")
    np.testing.assert_allclose(sampled, whole, rtol=1e-4)
    assert whole[11] == pytest.approx(certain(10), rel=1e-5)


def test_inductive_training_trusts_by_what_it_sees():
    made = make_block_graph(300, 3, homophily=0.9, random_state=0)
    graph, y = made.graph, made.target
    nodes = np.arange(150)
    seen = graph.subgraph(nodes)
    np.testing.assert_array_equal(
        lesson(graph, y, nodes, setting="inductive"), lesson(seen, y[nodes], nodes)
    )


def test_each_fold_is_held_out_once_a_fit(cliques, monkeypatch):
    calls = []
    received = evidence.GraphEvidence._received

    def counted(self, *args):
        calls.append(args)
        return received(self, *args)

    monkeypatch.setattr(evidence.GraphEvidence, "_received", counted)
    graph, y = cliques
    nodes = np.r_[:10, N : N + 10]
    y = y.copy()
    y[nodes] = np.arange(20) % 2  # only then does the warning ask, too
    with pytest.warns(GraphWarning, match="does not seem to help"):
        TIFAGCLClassifier(max_iter=1).fit(graph[nodes], y[nodes])
    assert len(calls) == 5


def test_nothing_is_held_out_where_nothing_is_taught(cliques, monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("propagated for nothing")

    monkeypatch.setattr(evidence.GraphEvidence, "_received", fail)
    graph, y = cliques
    silent = {"target_information": 0.0, "teacher_weight": 0.0}
    model = TIFAGCLClassifier(**silent)
    prepare(model, graph[: 2 * N], y[: 2 * N], CPU)
