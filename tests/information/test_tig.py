"""Annotated information and its gain against literal formulas."""

import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa.exceptions import LabelError, ParameterError
from sktifa.graph import Graph
from sktifa.information.tig import (
    annotated_information,
    clarity,
    class_prototypes,
    feature_affinity,
    information_gain,
    intensity,
    label_distribution,
    teacher_distribution,
)
from sktifa.tensors import arrays
from sktifa.tensors.device_graph import DeviceGraph


def _random_graph(seed=0, n=50, isolated=4, sparse_features=False, names=None):
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.1, 1) * rng.uniform(0.5, 2, (n, n))
    dense[-isolated:] = dense[:, -isolated:] = 0
    features = np.maximum(rng.normal(size=(n, 6)), 0)
    features[3] = 0
    if sparse_features:
        features = sparse.csr_array(features)
    codes = np.full(n, -1)
    codes[:12] = np.arange(12) % 3
    return Graph(dense + dense.T, features, feature_names=names), codes


def _literal_information(graph, codes, n_classes, alpha=0.15, mean=False):
    """Z* of Eq. 1 and Appendix A1, node by node with a dense inverse."""
    dense = graph.adjacency.toarray().astype(float)
    X = graph.whole.__array__().astype(float)
    n = len(dense)
    degree = dense.sum(axis=0)
    step = np.divide(dense, degree, out=np.zeros_like(dense), where=degree > 0)
    sources = np.zeros((n, n_classes))
    for c in range(n_classes):
        sources[codes == c, c] = 1 / np.sum(codes == c) if mean else 1
    Z = alpha * np.linalg.inv(np.eye(n) - (1 - alpha) * step) @ sources
    out = np.zeros_like(Z)
    for c in range(n_classes):
        prototype = X[codes == c].mean(axis=0)
        for i in range(n):
            norms = np.linalg.norm(X[i]) * np.linalg.norm(prototype)
            cosine = X[i] @ prototype / norms if norms > 0 else 0.0
            out[i, c] = 0.5 * Z[i, c] * (1 + cosine)
    return out


# ------------------------------------------------------------------- functions


@pytest.mark.parametrize("sparse_features", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_information_follows_the_paper(sparse_features, aggregate, device):
    graph, codes = _random_graph(sparse_features=sparse_features)
    found = annotated_information(
        graph, codes, 3, aggregate=aggregate, tol=1e-9, device=device
    )
    expected = _literal_information(graph, codes, 3, mean=aggregate == "mean")
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_information_takes_the_whole_graph_of_a_selection():
    graph, codes = _random_graph()
    np.testing.assert_array_equal(
        annotated_information(graph[[1, 2]], codes, 3),
        annotated_information(graph, codes, 3),
    )
    with pytest.raises(LabelError, match="whole graph"):
        annotated_information(graph[[1, 2]], codes[:2], 3)
    with pytest.raises(ParameterError, match="aggregate"):
        annotated_information(graph, codes, 3, aggregate="median")


def test_csr_features_are_never_made_dense(monkeypatch):
    graph, codes = _random_graph(sparse_features=True)
    dense = _random_graph()[0].features
    features = graph.features
    prototypes = class_prototypes(features, codes, 3)
    np.testing.assert_allclose(prototypes, class_prototypes(dense, codes, 3))

    def refuse(matrix, *args, **kwargs):
        raise AssertionError(f"made dense: {matrix.shape}")

    monkeypatch.setattr(sparse.csr_array, "toarray", refuse)
    found = feature_affinity(features, prototypes)
    np.testing.assert_allclose(found, feature_affinity(dense, prototypes), atol=1e-12)


def test_affinity_of_rows_in_blocks(monkeypatch):
    graph, codes = _random_graph()
    prototypes = class_prototypes(graph.features, codes, 3)
    at_once = feature_affinity(graph.features, prototypes)
    monkeypatch.setattr(arrays, "_BLOCK", 7 * 4 * graph.n_features)
    in_blocks = feature_affinity(graph.features, prototypes)
    np.testing.assert_allclose(in_blocks, at_once, rtol=1e-14)
    assert (at_once >= 0).all() and (at_once <= 1).all()
    # The cosine of a row of zeros is 0.
    assert (at_once[3] == 0.5).all()


@pytest.mark.parametrize("clarity_weight", [0, 0.1, 1])
def test_invariants_of_the_gain(clarity_weight):
    """READING 3, with nodes that no label reaches."""
    graph, codes = _random_graph(2)
    information = annotated_information(graph, codes, 3)
    gain = information_gain(information, clarity_weight)
    strongest = intensity(information)
    assert (clarity(information) <= 0).all()
    assert (gain >= (1 - clarity_weight) * strongest - 1e-15).all()
    assert (gain >= -1e-15).all()
    unreached = information.sum(axis=1) == 0
    assert unreached[-4:].all()
    assert (gain[unreached] == 0).all()
    expected = [
        row.max() + clarity_weight / 2 * (row.max() - row.sum()) for row in information
    ]
    np.testing.assert_allclose(gain, expected, atol=1e-15)


@pytest.mark.parametrize("kind", ["dense", "csr", "tensor"])
@pytest.mark.parametrize("aggregate", ["sum", "mean"])
@pytest.mark.parametrize(("tol", "dtype"), [(1e-9, "float64"), (1e-4, "float32")])
def test_information_of_a_graph_on_a_device(kind, aggregate, tol, dtype, device):
    graph, codes = _random_graph(3, sparse_features=kind == "csr")
    features = graph.features
    if kind == "tensor":
        features = torch.tensor(features, device=device)
    found = annotated_information(
        DeviceGraph.from_graph(graph, device),
        torch.tensor(codes) if kind == "tensor" else codes,
        3,
        features=features,
        aggregate=aggregate,
        tol=tol,
    )
    assert found.device.type == device.type and str(found.dtype) == f"torch.{dtype}"
    expected = _literal_information(graph, codes, 3, mean=aggregate == "mean")
    np.testing.assert_allclose(found.cpu(), expected, atol=max(tol, 1e-8))


def test_tensors_and_arrays_give_the_same(device):
    graph, codes = _random_graph(4)
    information = annotated_information(graph, codes, 3)
    z = torch.tensor(information, device=device)
    for function in (
        intensity,
        clarity,
        information_gain,
        label_distribution,
        lambda z: label_distribution(z, "softmax"),
        teacher_distribution,
    ):
        of_array, of_tensor = function(information), function(z)
        assert isinstance(of_array, np.ndarray) and of_array.dtype == np.float64
        assert of_tensor.device == z.device
        np.testing.assert_allclose(of_tensor.cpu(), of_array, rtol=1e-12)
    np.testing.assert_array_equal(z.cpu(), information)


def test_refused_on_a_device():
    graph, codes = _random_graph()
    placed = DeviceGraph.from_graph(graph, torch.device("cpu"))
    with pytest.raises(ParameterError, match="DeviceGraph together with features"):
        annotated_information(placed, codes, 3)
    with pytest.raises(LabelError, match="codes go up to 2"):
        annotated_information(graph, codes, 2)
    with pytest.raises(LabelError, match="whole numbers, got dtype float64"):
        annotated_information(graph, codes * 1.0, 3)
    with pytest.raises(ParameterError, match="n_classes must be a whole number"):
        annotated_information(graph, codes, 3.0)


def test_unreached_nodes_of_real_graphs(cora, citeseer):
    """READING 4: they are not only isolated nodes."""
    for bunch, isolated, least in ((cora, 0, 100), (citeseer, 48, 800)):
        rng = np.random.default_rng(0)
        target, graph = bunch.target, bunch.graph
        n_classes = target.max() + 1
        codes = np.full(graph.n_nodes, -1)
        for c in range(n_classes):
            codes[rng.permutation(np.flatnonzero(target == c))[:20]] = c
        gain = information_gain(annotated_information(graph, codes, n_classes))
        assert np.sum(np.diff(graph.adjacency.indptr) == 0) == isolated
        assert np.sum(gain == 0) > least
        assert gain.min() == 0


def test_a_gain_needs_two_classes():
    with pytest.raises(LabelError, match="1 class"):
        information_gain(np.ones((4, 1)))


def test_distribution():
    information = np.array([[0.3, 0.1, 0.0], [0.0, 0.0, 0.0], [1e-9, 0.0, 0.0]])
    for kind in ("sum", "softmax"):
        found = label_distribution(information, kind)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        np.testing.assert_allclose(found[1], 1 / 3)
        assert (found > 0).all()
    by_hand = np.exp(information[0]) / np.exp(information[0]).sum()
    np.testing.assert_allclose(label_distribution(information, "softmax")[0], by_hand)
    np.testing.assert_allclose(
        label_distribution(1e-4 * information), label_distribution(information)
    )
    np.testing.assert_allclose(label_distribution(np.zeros((2, 4))), 0.25)
    with pytest.raises(ParameterError, match="kind"):
        label_distribution(information, "max")
    with pytest.raises(ParameterError, match="smoothing"):
        label_distribution(information, smoothing=0)


@pytest.mark.parametrize(
    ("information", "words"),
    [
        (np.ones(3), "must have shape"),
        (np.array([[0.1, np.nan]]), "information of node 0 is"),
        (np.array([[0.1, 0.1], [0.1, -1]]), "information of node 1 is"),
        (np.array([["a", "b"]]), "real numbers"),
    ],
)
@pytest.mark.parametrize(
    "function",
    [intensity, clarity, information_gain, label_distribution, teacher_distribution],
)
def test_information_that_is_none_is_refused(function, information, words):
    with pytest.raises(LabelError, match=words):
        function(information)


def test_a_teacher_says_the_less_the_less_it_knows():
    information = np.array([[3e-2, 1e-2], [3e-5, 1e-5], [0.0, 0.0]])
    expected = (information + 1e-4) / (information + 1e-4).sum(axis=1, keepdims=True)
    found = teacher_distribution(information)
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert found[0, 0] > 0.74 and found[1, 0] < 0.55 and found[2, 0] == 0.5
    with pytest.raises(ParameterError, match="smoothing"):
        teacher_distribution(information, smoothing=-1)
