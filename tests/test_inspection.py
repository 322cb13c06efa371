"""Importance of features against shuffling them by hand."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from sktifa import GNNClassifier, Graph, OnFeatures, make_block_graph
from sktifa.exceptions import ParameterError
from sktifa.inspection import permutation_importance

BLOCKS = make_block_graph(90, 3, random_state=0)
G, Y = BLOCKS.graph, BLOCKS.target
TRAIN, TEST = np.arange(0, 90, 2), np.arange(1, 90, 2)


def by_hand(model, graph, nodes, n_repeats, seed):
    rng = np.random.RandomState(seed)
    X = np.asarray(graph)
    falls = np.zeros((X.shape[1], n_repeats))
    before = np.mean(model.predict(graph[nodes]) == Y[nodes])
    for column in range(X.shape[1]):
        for repeat in range(n_repeats):
            shuffled = X.copy()
            shuffled[:, column] = X[rng.permutation(90), column]
            other = Graph(graph.adjacency, shuffled)
            falls[column, repeat] = before - np.mean(
                model.predict(other[nodes]) == Y[nodes]
            )
    return falls


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_like_shuffling_by_hand(container):
    X = np.array(G.features[:, :6]).clip(0)
    X[:, 0], X[:, 1] = 0, 3  # nothing to shuffle
    graph = Graph(G.adjacency, container(X))
    model = make_pipeline(
        OnFeatures(MaxAbsScaler()),
        GNNClassifier(max_iter=30, random_state=0, device="cpu"),
    ).fit(graph[TRAIN], Y[TRAIN])
    found = permutation_importance(
        model, graph[TEST], Y[TEST], n_repeats=2, random_state=0
    )
    expected = by_hand(model, graph, TEST, 2, 0)
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found.importances, expected, atol=1e-12)
    np.testing.assert_allclose(found.importances_mean, expected.mean(axis=1))
    np.testing.assert_allclose(found.importances_std, expected.std(axis=1))
    assert (found.importances[:2] == 0).all()


def test_the_feature_that_tells_the_classes_matters_most():
    columns = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)
    columns[:, 3] = Y
    graph = Graph(np.zeros((90, 90)), columns)
    model = GNNClassifier(max_iter=80, random_state=0, device="cpu")
    model.fit(graph[TRAIN], Y[TRAIN])
    for scoring in (None, "neg_log_loss"):
        found = permutation_importance(
            model, graph[TEST], Y[TEST], scoring=scoring, random_state=0
        )
        assert found.importances_mean.argmax() == 3
        assert found.importances.shape == (5, 5)


def test_unlabelled_nodes_do_not_count():
    model = GNNClassifier(max_iter=5, random_state=0, device="cpu").fit(G, Y)
    masked = Y.copy()
    masked[TRAIN] = -1
    one = permutation_importance(model, G, masked, n_repeats=1, random_state=0)
    other = permutation_importance(model, G[TEST], Y[TEST], n_repeats=1, random_state=0)
    np.testing.assert_array_equal(one.importances, other.importances)


@pytest.mark.parametrize("n_repeats", [0, 1.5])
def test_number_of_repeats(n_repeats):
    with pytest.raises(ParameterError, match="n_repeats"):
        permutation_importance(None, G, Y, n_repeats=n_repeats)
