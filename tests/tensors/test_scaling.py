"""Scaling of features against scikit-learn's scalers, and what "auto" leaves alone."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.preprocessing import StandardScaler, normalize

from sktifa import GNNClassifier, make_block_graph
from sktifa.tensors.scaling import Scaling


def measured(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    X[:, 1] = X[:, 1] * 1e4 + 5e4
    X[:, 2] = 7  # constant
    return X


def test_standard_is_scikit_learns():
    X = measured()
    scaled = Scaling.learned(X, "standard")(X)
    np.testing.assert_allclose(
        scaled, StandardScaler().fit_transform(X.astype(float)), atol=2e-3
    )
    assert np.isfinite(scaled).all()


def test_sparse_features_keep_their_zeros():
    X = sparse.random_array((200, 30), density=0.1, format="csr", rng=0)
    X = sparse.csr_array(X.astype(np.float32))
    scaled = Scaling.learned(X, "standard")(X)
    expected = StandardScaler(with_mean=False).fit_transform(X.astype(float))
    assert scaled.nnz == X.nnz
    np.testing.assert_allclose(scaled.toarray(), expected.toarray(), rtol=1e-4)


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_norms_are_scikit_learns(norm):
    X = measured()
    np.testing.assert_allclose(Scaling.learned(X, norm)(X), normalize(X, norm=norm))


def test_auto_standardises_measurements_alone():
    rng = np.random.default_rng(0)
    counts = rng.poisson(3, (50, 4)).astype(np.float32)
    bag = np.where(rng.random((50, 40)) < 0.1, rng.random((50, 40)), 0)
    for kept in (counts, counts > 2, bag, sparse.csr_array(bag)):
        assert not Scaling.learned(kept, "auto").changes
    assert Scaling.learned(measured(), "auto").changes
    assert not Scaling.learned(measured(), None).changes


def test_a_column_of_another_scale_costs_nothing():
    made = make_block_graph(300, 3, random_state=0)
    rows = np.asarray(made.graph.features, dtype=np.float32).copy()
    by_hand = made.graph.with_features(StandardScaler().fit_transform(rows))
    rows[:, 0] = rows[:, 0] * 1e4 + 5e4
    skewed = made.graph.with_features(rows)
    train, y = np.arange(0, 300, 10), made.target
    scores = [
        GNNClassifier(max_iter=40, device="cpu", random_state=0, feature_norm=norm)
        .fit(graph[train], y[train])
        .score(graph, y)
        for graph, norm in ((skewed, "auto"), (by_hand, None), (skewed, None))
    ]
    assert abs(scores[0] - scores[1]) < 0.02
    assert scores[2] < scores[0] - 0.1  # what it costs without
