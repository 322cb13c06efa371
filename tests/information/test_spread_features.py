"""What spread features say: against the dense formula, and in the contrast's target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from sktifa import Graph, TIFAGCLClassifier
from sktifa.classifiers import contrast
from sktifa.classifiers.prepare import prepare
from sktifa.information.spread_features import spread_features_say

CPU = torch.device("cpu")


def by_hand(graph, features, codes, alpha):
    """Make the dense M X, and fit a model on its labelled rows."""
    adjacency = graph.adjacency.toarray()
    degree = adjacency.sum(1)
    root = np.sqrt(np.where(degree > 0, degree, 1))
    inverse = np.linalg.inv(
        np.eye(len(root)) - (1 - alpha) * adjacency / np.outer(root, root)
    )
    spread = alpha * inverse @ features
    rows = spread[codes >= 0]
    unit = np.sqrt((rows**2).sum(1).mean())
    model = LogisticRegression(C=100, fit_intercept=False, tol=1e-8, max_iter=5000)
    model.fit(rows / unit, codes[codes >= 0])
    return model.predict_log_proba(spread / unit)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_the_dense_formula(blocks, n_classes, is_sparse):
    adjacency = blocks.graph.adjacency.tolil()
    adjacency[7], adjacency[:, 7] = 0, 0  # a node without edges
    rng = np.random.default_rng(0)
    features = rng.normal(size=(240, 9)) + np.eye(9)[blocks.target]
    features[features < 0] = 0
    graph = Graph(sparse.csr_array(adjacency), features)
    codes = blocks.labelled(4)
    codes[codes >= n_classes] = -1
    given, among = features, features
    if is_sparse:
        given = sparse.csr_array(features)
    else:
        constant = np.sqrt((features**2).sum() / 240)
        among = np.column_stack([features, np.full(240, constant)])
    said = spread_features_say(
        graph, given, codes, n_classes, restart_probability=0.3
    ).numpy()
    expected = by_hand(graph, among, codes, 0.3)
    np.testing.assert_allclose(np.exp(said), np.exp(expected), atol=0.02)


def test_features_far_out_and_none(blocks):
    """What is said stays finite, and nothing is said where there is nothing."""
    adjacency = blocks.graph.adjacency.tolil()
    adjacency[200], adjacency[:, 200] = 0, 0
    features = np.random.default_rng(0).normal(size=(240, 4)).astype(np.float32)
    graph, codes = Graph(sparse.csr_array(adjacency), features), blocks.labelled(2)
    features = features.copy()
    features[200] = 1e30
    assert spread_features_say(graph, features, codes, 3).isfinite().all()
    said = spread_features_say(graph, sparse.csr_array(features), codes, 3)
    assert said[200].min() == said.min() == -14
    nothing = spread_features_say(graph, sparse.csr_array((240, 4)), codes, 3)
    np.testing.assert_allclose(nothing, np.log(1 / 3))


def added(blocks, y, monkeypatch, **parameters):
    """Return what spread features add to the target of a fit."""

    def prior():
        model = TIFAGCLClassifier(random_state=0, device="cpu", **parameters)
        return prepare(model, blocks.graph, y, CPU).target.log_prior.numpy()

    with monkeypatch.context() as patched:
        patched.setattr(contrast, "_SHARE", 0.0)
        without = prior()
    return prior() - without


@pytest.mark.parametrize(("n", "counts"), [(1, 1), (5, 1), (8, 0.8), (14, 0.4)])
def test_they_go_into_the_target_where_labels_are_few(blocks, monkeypatch, n, counts):
    y = blocks.labelled(n)
    said = spread_features_say(
        blocks.graph, scaled(blocks.graph.features), y, 3
    ).numpy()
    expected = 0.3 * counts * said
    found = added(blocks, y, monkeypatch)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert found.any()
    half = added(blocks, y, monkeypatch, target_information=0.5)
    np.testing.assert_allclose(half, expected / 2, rtol=1e-4, atol=1e-5)


def scaled(features):
    return (features - features.mean(0)) / features.std(0)


def test_none_where_labels_are_many_or_the_graph_is_large(blocks, monkeypatch):
    def refuse(*arguments, **more):
        raise AssertionError("asked for nothing")

    monkeypatch.setattr(contrast, "spread_features_say", refuse)
    model = TIFAGCLClassifier(random_state=0, device="cpu")
    prepare(model, blocks.graph, blocks.labelled(20), CPU)
    few = blocks.labelled(2)
    prepare(model.set_params(target_information=0.0), blocks.graph, few, CPU)
    monkeypatch.setattr(contrast, "_MOST_SPREAD", 1e3)
    prepare(model.set_params(target_information=1.0), blocks.graph, few, CPU)


def test_what_is_remembered_is_what_is_worked_out(blocks, tmp_path):
    y = blocks.labelled(3)
    kept: dict = {"memory": str(tmp_path), "device": "cpu"}
    for norm in ("auto", "l2"):
        priors = [
            prepare(
                TIFAGCLClassifier(feature_norm=norm, random_state=0, **more),
                blocks.graph,
                y,
                CPU,
            ).target.log_prior
            for more in (kept, kept, {"device": "cpu"})
        ]
        assert torch.equal(priors[0], priors[2])
        assert torch.equal(priors[1], priors[2])
