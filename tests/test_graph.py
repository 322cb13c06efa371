import gc
import pickle
import subprocess
import sys
import tempfile
import warnings
from copy import deepcopy
from pathlib import Path

import joblib
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from torch_geometric.data import Data, HeteroData

from sktifa import GNNClassifier
from sktifa.exceptions import (
    GraphError,
    GraphWarning,
    LabelError,
    NodeIndexError,
    NodeNameError,
    ParameterError,
)
from sktifa.graph import Graph, as_graph

TRIANGLE = np.array([[0, 1, 2], [1, 0, 3], [2, 3, 0]])


def random_graph(n=30, h=4, density=0.1, seed=0, features=True):
    rng = np.random.default_rng(seed)
    upper = np.triu((rng.random((n, n)) < density) * rng.random((n, n)), 1)
    return Graph(upper + upper.T, rng.normal(size=(n, h)) if features else None)


# ------------------------------------------------------------------ what it is


def test_form_of_adjacency_and_features():
    graph = Graph(TRIANGLE, np.ones((3, 2), dtype=int))
    assert isinstance(graph.adjacency, sp.csr_array)
    assert graph.adjacency.dtype == np.float32
    assert graph.adjacency.indices.dtype == graph.adjacency.indptr.dtype == np.int32
    assert graph.adjacency.has_canonical_format
    assert_array_equal(graph.adjacency.toarray(), TRIANGLE)
    assert graph.features.dtype == np.float32
    assert graph.features.flags.c_contiguous
    assert (graph.n_nodes, graph.n_edges, graph.n_features) == (3, 3, 2)
    assert graph.is_whole
    assert graph.parent_nodes is None


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float64, np.float32])
@pytest.mark.parametrize(
    "container",
    [
        np.asarray,
        np.asfortranarray,
        sp.csr_array,
        sp.csc_array,
        sp.coo_array,
        sp.csr_matrix,
        sp.lil_array,
    ],
)
def test_adjacency_and_features_of_any_container_and_dtype(container, dtype):
    adjacency = (TRIANGLE > 1).astype(dtype)
    graph = Graph(container(adjacency), container(adjacency))
    assert_array_equal(graph.adjacency.toarray(), adjacency)
    assert_array_equal(np.asarray(graph), adjacency)
    assert graph.features.dtype == np.float32


def test_self_loops_zeros_and_duplicates():
    rows, cols = [0, 0, 1, 1, 2, 2, 0, 2], [0, 1, 0, 0, 1, 1, 2, 0]
    weights = [9.0, 2.0, 1.0, 2.0, 4.0, 3.0, 0.0, 0.0]
    with pytest.warns(GraphWarning, match="nodes 1 and 2"):
        graph = Graph(sp.coo_array((weights, (rows, cols)), shape=(3, 3)))
    assert_array_equal(graph.adjacency.toarray(), [[0, 2, 0], [2, 0, 4], [0, 4, 0]])
    assert graph.adjacency.nnz == 4


def test_duplicates_in_csr_keep_the_largest():
    data = np.array([1.0, 5.0, 5.0, 2.0], dtype=np.float32)
    raw = sp.csr_array((data, [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2))
    before = raw.data.copy()
    assert_array_equal(Graph(raw).adjacency.toarray(), [[0, 5], [5, 0]])
    assert_array_equal(raw.data, before)
    assert raw.nnz == 4


def test_merging_against_a_dense_maximum():
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 20, size=(2, 300))
    weight = rng.random(300).astype(np.float32)
    dense = np.zeros((20, 20), dtype=np.float32)
    np.maximum.at(dense, tuple(edges), weight)
    np.fill_diagonal(dense, 0)
    with pytest.warns(GraphWarning):
        graph = Graph.from_edge_index(edges, n_nodes=20, edge_weight=weight)
    assert_array_equal(graph.adjacency.toarray(), np.maximum(dense, dense.T))


def test_no_features_are_a_sparse_identity():
    graph = Graph(np.zeros((3, 3)))
    assert sp.issparse(graph.features)
    assert_array_equal(np.asarray(graph), np.eye(3))


def test_zero_edges_and_one_node():
    graph = Graph([[0]])
    assert (graph.n_nodes, graph.n_edges, graph.n_features) == (1, 0, 1)
    assert repr(graph) == "Graph(1 node, 0 edges, 1 feature)"
    empty = Graph.from_edge_index(np.empty((2, 0)), n_nodes=4)
    assert (empty.n_nodes, empty.n_edges) == (4, 0)
    assert empty.subgraph([3]).n_nodes == 1
    assert empty.to_pyg().edge_index.shape == (2, 0)


def test_as_many_nodes_as_edges():
    ring = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    arcs = np.hstack([ring, ring[::-1]])
    graph = Graph.from_edge_index(arcs, np.eye(4), edge_weight=np.arange(8) % 4 + 1)
    assert graph.n_nodes == graph.n_edges == 4
    assert graph.adjacency[1, 2] == 2
    two = Graph.from_edge_index([[0, 1], [1, 0]], n_nodes=2)
    assert (two.n_nodes, two.n_edges) == (2, 1)


def test_isolated_nodes_live_through_every_door():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], np.ones((5, 1)))
    assert graph.n_nodes == 5
    assert Graph.from_pyg(graph.to_pyg()).n_nodes == 5
    assert Graph.from_networkx(graph.to_networkx(), "x").n_nodes == 5
    assert graph.subgraph([4, 3]).n_edges == 0


def test_arrays_are_read_only_and_the_callers_stay_writable():
    adjacency = sp.csr_array(TRIANGLE.astype(np.float32))
    features = np.ones((3, 2), dtype=np.float32)
    graph = Graph(adjacency, features)
    assert np.shares_memory(graph.features, features)
    assert np.shares_memory(graph.adjacency.data, adjacency.data)
    assert features.flags.writeable
    assert adjacency.data.flags.writeable
    for array in (graph.features, graph.nodes, graph.adjacency.data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    chosen = np.array([1])
    selection = graph[chosen]
    with pytest.raises(ValueError, match="read-only"):
        selection.nodes[0] = 0


# --------------------------------------------------------- the checks at the door


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Graph(np.ones((2, 3))), r"square, got shape \(2, 3\).*edge_index"),
        (lambda: Graph(np.ones(3)), r"square, got shape \(3,\)"),
        (lambda: Graph(np.empty((0, 0))), "at least one node"),
        (lambda: Graph([["a"]]), "must hold real numbers"),
        (lambda: Graph([[0, 1j], [1j, 0]]), "must hold real numbers"),
        (lambda: Graph([[0, -1], [-1, 0]]), "node 0 to node 1 has weight -1"),
        (lambda: Graph([[0, 0], [np.nan, 0]]), "node 1 to node 0 has weight nan"),
        (lambda: Graph([[0, 1e300], [1, 0]]), r"node 0 to node 1 has weight 1e\+300"),
        (lambda: Graph(TRIANGLE, np.ones((4, 1))), "4 rows, the graph has 3 nodes"),
        (lambda: Graph(TRIANGLE, np.ones(3)), r"reshape\(-1, 1\)"),
        (lambda: Graph(TRIANGLE, np.ones((3, 0))), "no column"),
        (
            lambda: Graph(TRIANGLE, [[1, 2], [3, np.nan], [np.inf, 1]]),
            "feature 1 of node 1 is nan",
        ),
        (
            lambda: Graph(TRIANGLE, sp.csr_array([[1.0], [0.0], [np.inf]])),
            "feature 0 of node 2 is inf",
        ),
        (
            lambda: Graph(TRIANGLE, pd.DataFrame({"a": [1, 2, 3], "b": [1, None, 3]})),
            r"feature 1 \('b'\) of node 1 is nan",
        ),
        (
            lambda: Graph(TRIANGLE, pd.DataFrame({"a": [1, 2, 3], "b": list("xyz")})),
            r"numbers.*column 'b'",
        ),
        (lambda: Graph(TRIANGLE, np.eye(3), feature_names=["a"]), "1 feature_names"),
        (
            lambda: Graph([[0, 1, 0], [1, 0, 0], [0, 3, 0]], directed="error"),
            r"1 edge not.*nodes 1 and 2 \(weights 0 and 3\).*maximum",
        ),
        (
            lambda: Graph.from_edge_index([[0, 1], [1, 2], [2, 0]], n_nodes=3),
            r"transpose it \(edge_index.T\)",
        ),
        (lambda: Graph.from_edge_index([0, 1], n_nodes=3), r"shape \(2, n_arcs\)"),
        (
            lambda: Graph.from_edge_index([[0.0, 1], [1, 0]], n_nodes=2),
            r"integers, got dtype float64.*astype",
        ),
        (
            lambda: Graph.from_edge_index([[0, 1, 5], [1, 0, 2]], n_nodes=3),
            "edge 2 joins 5 and 2, but nodes are numbered from 0 to 2",
        ),
        (
            lambda: Graph.from_edge_index([[0, -1], [1, 0]], np.ones((2, 1))),
            "edge 1 joins -1 and 0",
        ),
        (
            lambda: Graph.from_edge_index([[0, 1], [1, 0]]),
            r"give n_nodes \(the largest number is 1\)",
        ),
        (
            lambda: Graph.from_edge_index(
                [[0, 1], [1, 0]], n_nodes=2, edge_weight=[1, 1, 1]
            ),
            r"edge_weight must have shape \(2,\)",
        ),
        (
            lambda: Graph.from_edge_index(
                [[0, 1], [1, 0]], n_nodes=2, edge_weight=[1, -2]
            ),
            r"edge 1 \(from node 1 to node 0\) has weight -2",
        ),
        (lambda: Graph.from_pyg(HeteroData()), "homogeneous"),
        (
            lambda: Graph(TRIANGLE).subgraph([2, 1, 2]),
            "node 2 stands twice.*position 2",
        ),
        (lambda: Graph(TRIANGLE).subgraph([]), "at least one node"),
    ],
)
def test_refused_at_the_door(make, match):
    with pytest.raises(GraphError, match=match):
        make()


def test_indices_outside_a_csr_array():
    raw = sp.csr_array((np.ones(1), np.array([7]), np.array([0, 1, 1])), shape=(2, 2))
    with pytest.raises(GraphError, match=r"row 0, column 7.*shape is \(2, 2\)"):
        Graph(raw)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda w: w(np.ma.array([1.0, 2], mask=[0, 1])), "masked entry at 1"),
        (lambda w: w([1.0, "2"]), "edge_weight must hold real numbers"),
        (lambda w: w([1.0, [2]]), "edge_weight can't be read as an array"),
        (
            lambda w: w([1e-50, 1]),
            r"edge 0 .* has weight 1e-50.*if not 0, at least 1\.2e-38",
        ),
        (lambda w: w([3e38, 3e38]), "divide them by the largest"),
        (lambda w: w([1e39, 1]), r"edge 0 .* has weight 1e\+39"),
    ],
)
def test_weights_are_refused(make, match):
    edges = [[0, 1], [1, 0]]
    with pytest.raises(GraphError, match=match):
        make(lambda w: Graph.from_edge_index(edges, n_nodes=2, edge_weight=w))


@pytest.mark.parametrize(
    "features",
    [
        np.array([[1, 2.5], [3, 4], [5, 6]], dtype=object),
        pd.DataFrame({"a": [1, 3, 5], "b": [2.5, 4, 6]}, dtype=object),
        pd.DataFrame({"a": pd.array([1, 3, 5], "Int8"), "b": [2.5, 4, 6]}),
        torch.tensor([[1, 2.5], [3, 4], [5, 6]], requires_grad=True),
        torch.tensor([[1, 2.5], [3, 4], [5, 6]]).to(torch.float8_e4m3fn),
        torch.quantize_per_tensor(
            torch.tensor([[1, 2.5], [3, 4], [5, 6]]), 0.5, 0, torch.qint8
        ),
        *(
            torch.tensor([[1, 2.5], [3, 4], [5, 6]]).to_sparse(layout=layout)
            for layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
        ),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'layout', '')}",
)
def test_numbers_of_any_kind_are_read(features):
    graph = Graph(TRIANGLE, features)
    dense = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    assert_array_equal(dense, [[1, 2.5], [3, 4], [5, 6]])


def test_what_is_no_number_is_named():
    made = {
        "got 'x' at 1, 0": np.array([[1.0], ["x"]], dtype=object),
        "column 't' doesn't": pd.DataFrame(
            {"n": [1.0, 2], "t": pd.to_timedelta([1, 2])}
        ),
        "column 'c' doesn't": pd.DataFrame({"c": pd.Categorical([1, 2])}),
        "'meta' has no data": torch.ones(2, 2, device="meta"),
        "'n'.* of node 1 is nan": pd.DataFrame({"n": pd.array([1, None], "Int64")}),
        "masked entry at 1, 0": np.ma.masked_equal([[1.0], [2.0]], 2),
    }
    for match, features in made.items():
        with pytest.raises(GraphError, match=match):
            Graph([[0, 1], [1, 0]], features)


def test_indices_of_a_sparse_tensor_are_looked_at():
    broken = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]), torch.tensor([1, 9]), torch.ones(2), (2, 2)
    )
    with pytest.raises(GraphError, match="adjacency has an entry in row 1, column 9"):
        Graph(broken)
    with pytest.raises(GraphError, match="features has an entry in row 1, column 9"):
        Graph([[0, 1], [1, 0]], broken)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, np.longdouble, np.uint8, ">f8", ">i4"]
)
def test_dense_adjacencies_of_any_dtype(dtype):
    assert_array_equal(Graph(TRIANGLE.astype(dtype)).adjacency.toarray(), TRIANGLE)


def test_unknown_directed():
    with pytest.raises(ParameterError, match="'symmetrize' or 'error'"):
        Graph(TRIANGLE, directed="keep")


def test_directed_is_symmetrised_with_a_warning():
    with pytest.warns(GraphWarning, match="2 edges not the same both ways"):
        graph = Graph([[0, 1, 2], [0, 0, 0], [5, 0, 0]])
    assert_array_equal(graph.adjacency.toarray(), [[0, 1, 5], [1, 0, 0], [5, 0, 0]])


def test_undirected_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        random_graph()


# ------------------------------------------------------------ frames, by name

NAMES = ["a", "b", "c"]


def test_columns_of_an_adjacency_follow_its_rows():
    frame = pd.DataFrame(TRIANGLE, index=NAMES, columns=NAMES)
    graph = Graph(frame[["b", "c", "a"]])
    assert_array_equal(graph.adjacency.toarray(), TRIANGLE)
    assert graph.node_names.tolist() == NAMES
    assert Graph(pd.DataFrame(TRIANGLE)).node_names is None
    with pytest.raises(GraphError, match=r"not of the same names.*to_numpy\(\)"):
        Graph(frame.rename(columns={"a": "z"}))
    with pytest.raises(GraphError, match="not of the same names"):
        Graph(pd.DataFrame(TRIANGLE, columns=NAMES))
    with pytest.raises(GraphError, match="other names than node_names"):
        Graph(frame, node_names=["c", "b", "a"])


@pytest.mark.parametrize(
    "container", [np.array, pd.DataFrame, sp.csr_array, sp.coo_matrix, torch.tensor]
)
def test_features_too_small_for_float32_are_told_of(container):
    values = np.random.default_rng(0).uniform(0.5, 1, (4, 3))
    edges, values[2, 1] = 1 - np.eye(4), 0
    scaled = values * [1.0, 1e-300, -1e-40]
    with pytest.warns(GraphWarning, match="of 2 features, the first is 1.*scale them"):
        Graph(edges, container(scaled))
    with pytest.warns(GraphWarning, match="of feature 1 are below 1.2e-38"):
        Graph(edges, container(values * [1.0, 1e-300, 1e-30]))
    with pytest.warns(GraphWarning, match="of feature 1 are below"):
        GNNClassifier(max_iter=1, device="cpu").fit(
            container(values * [1.0, 1e-300, 1.0]), [0, 1, 0, 1]
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Graph(edges, container(scaled / np.abs(scaled).max(axis=0)))
        Graph(edges, container(values * [1.0, 0.0, 1.0]))  # nothing is lost
        values[0, 1] = 1e-300  # a value is, as others round too
        Graph(edges, container(values))


def test_small_values_of_rows_to_predict_are_no_small_features():
    rows = np.random.default_rng(0).uniform(0.5, 1, (8, 3))
    model = GNNClassifier(max_iter=1, device="cpu").fit(rows, [0, 1] * 4)
    rows[0, 1] = 1e-300
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        model.predict(rows[:1])


def test_empty_columns_take_no_memory():
    n = 10**6
    entries = [1.0, 0.0], ([0, 1], [0, 1])  # the zero is stored
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        graph = Graph(sp.csr_array((n, n)), sp.csr_array(entries, shape=(n, n)))
    assert graph.features.sum() == 1


def test_rows_of_features_follow_the_nodes():
    features = pd.DataFrame({"x": [3.0, 1.0, 2.0]}, index=["c", "a", "b"])
    adjacency = pd.DataFrame(TRIANGLE, index=NAMES, columns=NAMES)
    for graph in (
        Graph(adjacency, features),
        Graph(TRIANGLE, features, node_names=NAMES),
        Graph(TRIANGLE, node_names=NAMES).with_features(features),
    ):
        assert graph.features.ravel().tolist() == [1, 2, 3]
        assert graph.node_names.tolist() == NAMES
    plain = features.reset_index(drop=True)
    assert Graph(adjacency, plain).features.ravel().tolist() == [3, 1, 2]
    with pytest.raises(GraphError, match=r"name 'z': give each node one row"):
        Graph(adjacency, features.rename(index={"c": "z"}))
    with pytest.raises(GraphError, match="lack nodes or name one twice"):
        Graph(adjacency, features.loc[["a", "b", "a"]])


def test_features_name_the_nodes_where_nothing_else_does():
    features = pd.DataFrame({"x": [3.0, 1.0, 2.0]}, index=["c", "a", "b"])
    assert Graph(TRIANGLE, features).node_names.tolist() == ["c", "a", "b"]
    assert Graph.from_features(features).node_names.tolist() == ["c", "a", "b"]
    shuffled = pd.DataFrame({"x": [3.0, 1.0, 2.0]}, index=[2, 0, 1])
    with pytest.raises(GraphError, match=r"sort_index\(\).*reset_index"):
        Graph(TRIANGLE, shuffled)


def test_a_mask_that_names_nodes_follows_them():
    graph = Graph(TRIANGLE, node_names=NAMES)
    mask = pd.Series([True, False, False], index=["c", "a", "b"])
    assert graph[mask].nodes.tolist() == [2]
    assert graph[mask.astype("boolean")].nodes.tolist() == [2]
    assert graph[["b", "c"]][mask].nodes.tolist() == [2]
    assert graph[mask.reset_index(drop=True)].nodes.tolist() == [0]
    with pytest.raises(NodeIndexError, match="not each once"):
        graph[mask[:2]]


# --------------------------------------------------------------------- selections


@pytest.mark.parametrize(
    "index",
    [
        [4, 2, 2],
        np.array([0, 29]),
        slice(3, 20, 4),
        slice(None, None, -1),
        np.arange(30) % 3 == 0,
        [],
        range(5),
        pd.Index([1, 2]),
        (np.array([3, 1]), Ellipsis),
        (np.array([3, 1]), slice(None)),
    ],
)
def test_selection_is_that_of_an_array(index):
    graph = random_graph()
    rows = index[0] if isinstance(index, tuple) else index
    rows = rows if isinstance(rows, slice) else np.asarray(rows)
    if not isinstance(rows, slice) and rows.size == 0:
        rows = rows.astype(int)
    expected = np.arange(30)[rows]
    selection = graph[index]
    assert_array_equal(selection.nodes, expected)
    assert selection.nodes.dtype == np.int64
    assert selection.shape == (len(expected), 4) == (len(selection), 4)
    assert_array_equal(np.asarray(selection), graph.features[expected])
    assert selection.adjacency is graph.adjacency
    assert selection.fingerprint == graph.fingerprint
    assert not selection.is_whole


def test_selection_of_a_selection():
    selection = random_graph()[np.arange(10, 20)]
    assert selection[[1, 3]].nodes.tolist() == [11, 13]
    assert selection[-1].nodes.tolist() == [19]
    assert len(list(selection)) == 10


def test_all_nodes_in_order_are_the_whole():
    graph = random_graph()
    assert graph[:].is_whole
    assert graph[np.arange(30)].is_whole
    assert graph[::-1][::-1].is_whole
    assert not graph[::-1].is_whole


MASK = np.arange(30) % 3 == 0


@pytest.mark.parametrize(
    "mask",
    [
        MASK.tolist(),
        MASK.astype(object),
        torch.from_numpy(MASK),
        pd.Series(MASK),
        pd.array(MASK, dtype="boolean"),
        np.ma.array(MASK, mask=False),
    ],
    ids=lambda mask: type(mask).__name__,
)
def test_a_mask_of_any_kind_is_a_mask(mask):
    graph = random_graph()
    assert_array_equal(graph[mask].nodes, np.flatnonzero(MASK))
    assert_array_equal(graph.subgraph(mask).parent_nodes, np.flatnonzero(MASK))


@pytest.mark.parametrize(
    ("index", "match"),
    [
        (30, "no node at position 30: 30 nodes are selected, at 0 to 29"),
        ([0, 99], "no node at position 99"),
        (np.array([2**63 + 5], dtype=np.uint64), "position 9223372036854775813"),
        (MASK[:29], "mask has 29 entries, but 30 nodes are selected"),
        (True, "mask has 1 entries"),
        ([0.5], r"not by float64: use index\.astype\(int\)"),
        ((0, 1), "by its nodes alone"),
        (np.zeros((2, 2), int), "one dimension, not 2"),
        (np.ones((30, 10), bool), r"of several masks.*mask\[:, 0\]"),
        (MASK.astype(int), r"30 zeros and ones.*astype\(bool\)"),
        (MASK.astype(np.uint8), "30 zeros and ones"),
        (MASK.astype(object) + 0, "30 zeros and ones"),
        (torch.from_numpy(MASK).byte(), r"index\.bool\(\)"),
        (torch.tensor([3], dtype=torch.uint8), r"index\.long\(\)"),
        (pd.array([True, None] * 15, dtype="boolean"), "<NA> at 1 selects no node"),
        ([True] * 29 + [None], "None at 29 selects no node"),
        ([1, "a"], "no"),
        ([[1], [2, 3]], "index can't be read as an array"),
        (None, "None at 0 selects no node"),
        (slice("a", "b"), r"select\(\)"),
        (np.ma.array(MASK, mask=MASK), "index has a masked entry at 0"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "not by datetime64"),
        (torch.tensor([1.0], requires_grad=True), "not by float32"),
        (torch.ones(30, dtype=torch.bool, device="meta"), "'meta' has no data"),
    ],
)
def test_bad_index(index, match):
    with pytest.raises((GraphError, NodeIndexError, NodeNameError), match=match):
        random_graph()[index]


def test_array_protocol():
    graph = random_graph()
    assert np.asarray(graph, dtype=np.float64).dtype == np.float64
    assert np.asarray(graph[[0]]).shape == (1, 4)
    sparse = random_graph(features=False)[[3, 5]]
    assert_array_equal(np.asarray(sparse), np.eye(30)[[3, 5]])


def test_subgraph_is_the_induced_graph():
    graph = random_graph(density=0.4)
    nodes = np.random.default_rng(0).permutation(30)[:12]
    part = graph.subgraph(nodes)
    dense = graph.adjacency.toarray()
    assert_array_equal(part.adjacency.toarray(), dense[np.ix_(nodes, nodes)])
    assert part.adjacency.has_canonical_format
    assert_array_equal(part.features, graph.features[nodes])
    assert_array_equal(part.parent_nodes, nodes)
    assert_array_equal(graph[nodes].subgraph().parent_nodes, nodes)
    mask = np.zeros(30, dtype=bool)
    mask[nodes] = True
    assert_array_equal(graph.subgraph(mask).parent_nodes, np.sort(nodes))


def test_with_features_keeps_edges_and_selection():
    graph = random_graph()[[1, 2]]
    other = graph.with_features(pd.DataFrame({"a": np.arange(30)}))
    assert other.feature_names == ["a"]
    assert other.nodes.tolist() == [1, 2]
    assert other.fingerprint != graph.fingerprint
    assert_array_equal(np.asarray(other), [[1], [2]])
    with pytest.raises(GraphError, match="2 rows, the graph has 30 nodes"):
        graph.with_features(np.ones((2, 1)))


# ----------------------------------------------------------------- identity, copies


def test_fingerprint_tells_graphs_apart():
    prints = {
        random_graph(seed=0).fingerprint,
        random_graph(seed=1).fingerprint,
        random_graph(seed=0, features=False).fingerprint,
        random_graph(seed=0).with_features(np.zeros((30, 4))).fingerprint,
    }
    assert len(prints) == 4
    assert random_graph().fingerprint == random_graph().fingerprint


def test_fingerprint_is_the_same_in_another_process():
    code = (
        "from sktifa.graph import Graph;"
        "print(Graph([[0, 1, 2], [1, 0, 3], [2, 3, 0]]).fingerprint)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == Graph(TRIANGLE).fingerprint


def test_what_follows_from_a_graph_is_computed_once():
    graph, calls = Graph(np.ones((3, 3)) - np.eye(3)), []

    def edges_times(whole, factor):
        calls.append(whole.is_whole)
        return whole.n_edges * factor

    selection = graph[[0]]
    assert [selection.derived(edges_times, 2), graph.derived(edges_times, 2)] == [6, 6]
    assert calls == [True]
    assert graph.derived(edges_times, 3) == 9
    # Neither copies nor graphs of other features know it.
    for other in (pickle.loads(pickle.dumps(graph)), graph.with_features(np.eye(3))):
        assert other.derived(edges_times, 2) == 6
    assert len(calls) == 4


def test_pickle_shares_the_whole_and_stays_read_only():
    graph = random_graph(300, 50)
    parts = [graph[:10], graph[5:30], graph]
    back = pickle.loads(pickle.dumps(parts))
    assert back[0].adjacency is back[1].adjacency is back[2].adjacency
    assert len(pickle.dumps(parts)) < len(pickle.dumps(graph)) + 2000
    assert back[1].nodes.tolist() == list(range(5, 30))
    assert back[2].is_whole
    assert back[0].fingerprint == graph.fingerprint
    assert not back[0].features.flags.writeable
    assert not back[0].adjacency.data.flags.writeable
    assert not back[0].nodes.flags.writeable


def test_pickles_of_0_1_0_are_read():
    file = Path(__file__).parent / "files" / "graphs_0_1_0.pickle"
    graph, selection, part = pickle.loads(file.read_bytes())
    again = Graph(
        [[0, 1, 0], [1, 0, 2], [0, 2, 0]],
        [[1.0], [2.0], [3.0]],
        node_names=["ann", "bob", "cat"],
    )
    assert graph.fingerprint == again.fingerprint == selection.fingerprint
    assert graph.nodes.tolist() == [0, 1, 2] and graph.feature_names == ["age"]
    assert selection.nodes.tolist() == [2, 0] and not selection.nodes.flags.writeable
    assert graph.select(["cat"]).nodes.tolist() == [2]
    assert part.parent_nodes.tolist() == [2, 1] and part.origin is None


def test_clone_and_copies_are_free():
    graph = random_graph()

    class Holder(BaseEstimator):
        def __init__(self, graph=None):
            self.graph = graph

    assert clone(Holder(graph)).graph is graph
    assert clone(graph, safe=False) is graph
    assert deepcopy(graph) is graph


def test_read_only_memory_maps(tmp_path):
    graph = random_graph(100, 8)
    joblib.dump(graph, tmp_path / "graph.joblib")
    mapped = joblib.load(tmp_path / "graph.joblib", mmap_mode="r")
    assert mapped.fingerprint == graph.fingerprint
    assert_array_equal(np.asarray(mapped[[2, 4]]), np.asarray(graph[[2, 4]]))
    again = Graph(mapped.adjacency, mapped.features)
    assert again.fingerprint == graph.fingerprint
    assert mapped.subgraph([1, 2, 3]).n_nodes == 3
    assert mapped.to_pyg().num_nodes == 100


def test_a_memory_map_of_features_is_not_copied(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((3, 5), dtype=np.float32))
    features = np.load(path, mmap_mode="r")
    assert np.shares_memory(Graph(TRIANGLE, features).features, features)


def test_a_subgraph_of_a_memory_map_is_one_too(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    np.save(tmp_path / "x.npy", x)
    graph = Graph(TRIANGLE, np.load(tmp_path / "x.npy", mmap_mode="r"))
    part = graph.subgraph([2, 0])
    assert_array_equal(part.features, x[[2, 0]])
    assert_array_equal(part.subgraph([1]).features, x[[0]])
    assert_array_equal(pickle.loads(pickle.dumps(part)).features, x[[2, 0]])
    assert len(list(tmp_path.glob("sktifa-*"))) == 1
    del part
    gc.collect()
    assert not list(tmp_path.glob("sktifa-*"))


# ------------------------------------------------------------------------- doors


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor, list])
def test_edge_index_of_any_kind(convert):
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    weight = np.array([2.0, 2.0, 3.0, 3.0])
    graph = Graph.from_edge_index(convert(edges), n_nodes=3, edge_weight=weight)
    assert_array_equal(graph.adjacency.toarray(), [[0, 2, 0], [2, 0, 3], [0, 3, 0]])


def test_pyg_and_back():
    graph = random_graph()
    data = graph.to_pyg(y=np.arange(30))
    assert data.validate()
    assert data.is_undirected()
    back = Graph.from_pyg(data)
    assert back.fingerprint == graph.fingerprint
    data.x[0, 0] = 99  # the tensor is its own
    assert graph.features[0, 0] != 99
    assert data.y.tolist() == list(range(30))


def test_pyg_of_a_selection():
    data = random_graph()[[4, 2]].to_pyg(y=[7, 8])
    assert data.selected.nonzero().ravel().tolist() == [2, 4]
    assert (data.y[4], data.y[2], data.y[0]) == (7, 8, -1)
    with pytest.raises(GraphError, match="2 numbers"):
        random_graph()[[4, 2]].to_pyg(y=["a", "b"])


def test_pyg_without_features():
    edges = torch.tensor([[0, 1], [1, 0]])
    assert Graph.from_pyg(Data(edge_index=edges, num_nodes=5)).n_nodes == 5
    with pytest.raises(GraphError, match=r"set data\.num_nodes"):
        Graph.from_pyg(Data(edge_index=edges))


def test_networkx_and_back():
    graph = random_graph()
    back = Graph.from_networkx(graph[[3]].to_networkx(), features="x")
    assert back.fingerprint == graph.fingerprint
    assert graph[[3]].to_networkx().nodes[3]["selected"]


def test_rare_inputs_are_taken_or_refused_by_name():
    edges = [[0, 1], [1, 0]]
    weight = torch.full((2,), 0.5, dtype=torch.bfloat16)
    graph = Graph.from_edge_index(edges, n_nodes=2, edge_weight=weight)
    np.testing.assert_array_equal(graph.adjacency.data, [0.5, 0.5])
    with pytest.raises(ParameterError, match="n_nodes must be .*, got -3"):
        Graph.from_edge_index(edges, n_nodes=-3)
    with pytest.raises(GraphError, match="no rows"):
        Graph.from_features(np.empty((0, 3)))
    path = nx.path_graph(3)
    path[0][1]["weight"] = "heavy"
    with pytest.raises(GraphError, match="'weight' of an edge is no number"):
        Graph.from_networkx(path)


def test_networkx_kinds():
    path = nx.MultiGraph([("a", "b"), ("a", "b"), ("c", "c")])
    path.add_edge("b", "c", weight=4)
    nx.set_node_attributes(path, {"a": 1, "b": 2, "c": 3}, "age")
    graph = Graph.from_networkx(path, ["age"])
    assert_array_equal(graph.adjacency.toarray(), [[0, 1, 0], [1, 0, 4], [0, 4, 0]])
    assert graph.features.ravel().tolist() == [1, 2, 3]
    assert Graph.from_networkx(path, weight=None).adjacency.max() == 1
    with pytest.warns(GraphWarning):
        assert Graph.from_networkx(nx.DiGraph([(0, 1)])).n_edges == 1
    with pytest.raises(GraphError, match="node 'a' has no attribute 'size'"):
        Graph.from_networkx(path, "size")


def test_from_features_against_brute_force():
    X = np.random.default_rng(0).normal(size=(40, 3))
    graph = Graph.from_features(X, n_neighbors=4, metric="euclidean")
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    expected = np.zeros((40, 40))
    np.put_along_axis(expected, np.argsort(distances)[:, :4], 1, axis=1)
    assert_array_equal(graph.adjacency.toarray(), np.maximum(expected, expected.T))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_from_few_features(n):
    graph = Graph.from_features(np.eye(n) + 1, n_neighbors=15)
    assert graph.n_edges == n * (n - 1) // 2


def test_from_features_keeps_names_and_sparsity():
    frame = pd.DataFrame(np.eye(4), columns=list("abcd"))
    assert Graph.from_features(frame).feature_names == list("abcd")
    assert sp.issparse(Graph.from_features(sp.eye_array(4).tocsr()).features)
    with pytest.raises(ParameterError, match="n_neighbors"):
        Graph.from_features(frame, n_neighbors=0)
    with pytest.raises(GraphError, match="feature 0 of node 1 is nan"):
        Graph.from_features([[1.0], [np.nan]])


def test_as_graph():
    graph = random_graph()
    assert as_graph(graph) is graph
    assert as_graph(graph.to_pyg()).fingerprint == graph.fingerprint
    assert as_graph(graph.to_networkx()).n_edges == graph.n_edges
    assert as_graph(np.asarray(graph), n_neighbors=2).n_features == 4
    assert as_graph(pd.DataFrame(np.asarray(graph))).n_nodes == 30


def test_data_frames_of_mixed_and_nullable_columns():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True]})
    frame["c"] = pd.array([1, 2, 3], dtype="Int64")
    graph = Graph(TRIANGLE, frame)
    assert_array_equal(graph.features, [[1, 1, 1], [2, 0, 2], [3, 1, 3]])
    assert graph.feature_names == ["a", "b", "c"]
    frame["c"] = pd.array([1, None, 3], dtype="Int64")
    with pytest.raises(GraphError, match=r"feature 2 \('c'\) of node 1 is nan"):
        Graph(TRIANGLE, frame)


def test_html():
    assert "<td>2</td>" in random_graph()[[0, 1]]._repr_html_()


# ----------------------------------------------------------- inside scikit-learn


class Neighbourhood(ClassifierMixin, BaseEstimator):
    """A tiny graph classifier: the class of the nearest mean after `hops` averages."""

    def __init__(self, hops=1):
        self.hops = hops

    def _smooth(self, X):
        assert isinstance(X, Graph)
        assert X.n_nodes == 1797  # every selection brings the whole graph
        smooth = np.asarray(X[:].with_features(X.features).features)
        degree = np.maximum(X.adjacency.sum(axis=1), 1)
        for _ in range(self.hops):
            smooth = (X.adjacency @ smooth) / degree[:, None]
        return smooth[X.nodes]

    def fit(self, X, y):
        Z = self._smooth(X)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.means_ = np.array([Z[codes == c].mean(0) for c in range(codes.max() + 1)])
        return self

    def predict_proba(self, X):
        Z = self._smooth(X)
        near = np.exp(-((Z[:, None] - self.means_[None]) ** 2).sum(2))
        return near / near.sum(1, keepdims=True)

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]


class Doubled(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """A transformer from graph to graph."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X.with_features(2 * X.features)


def test_cross_validation(digits):
    scores = cross_val_score(Neighbourhood(), digits.graph, digits.target, cv=3)
    assert scores.min() > 0.85
    predicted = cross_val_predict(Neighbourhood(), digits.graph, digits.target, cv=3)
    assert (predicted == digits.target).mean() > 0.85


@pytest.mark.parametrize("search", [GridSearchCV, HalvingGridSearchCV])
def test_searches(digits, search):
    grid = {"neighbourhood__hops": [0, 1]}
    found = search(make_pipeline(Doubled(), Neighbourhood()), grid, cv=3)
    found.fit(digits.graph, digits.target)
    assert found.score(digits.graph[:100], digits.target[:100]) > 0.85


def test_search_in_two_processes(digits):
    alone, two = (
        GridSearchCV(Neighbourhood(), {"hops": [0, 1]}, cv=2, n_jobs=jobs, refit=False)
        .fit(digits.graph[:1000], digits.target[:1000])
        .cv_results_["mean_test_score"]
        for jobs in (1, 2)
    )
    assert_array_equal(alone, two)


@pytest.mark.parametrize("passthrough", [False, True])
def test_stacking_and_voting(digits, passthrough):
    members = [("near", Neighbourhood(0)), ("far", Neighbourhood(2))]
    stack = StackingClassifier(
        members, LogisticRegression(max_iter=500), cv=2, passthrough=passthrough
    ).fit(digits.graph[:600], digits.target[:600])
    assert stack.score(digits.graph[600:], digits.target[600:]) > 0.8
    vote = VotingClassifier(members, voting="soft")
    vote.fit(digits.graph[:600], digits.target[:600])
    assert vote.score(digits.graph[600:], digits.target[600:]) > 0.8


def test_learning_curve_and_plain_estimators(digits):
    learning_curve(
        Neighbourhood(), digits.graph, digits.target, train_sizes=[200], cv=2
    )
    plain = LogisticRegression(max_iter=200).fit(
        digits.graph[:900], digits.target[:900]
    )
    assert plain.score(digits.graph[900:], digits.target[900:]) > 0.8


def test_real_graphs_keep_their_counts(cora, citeseer):
    assert cora.graph.n_edges == 5278
    isolated = np.diff(citeseer.graph.adjacency.indptr) == 0
    assert isolated.sum() == 48
    assert len(citeseer.graph[isolated]) == 48


# --------------------------------------------------------------- names of nodes


def named_path():
    path = np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1)
    return Graph(path, np.eye(4), node_names=["ann", "bob", "cat", "dan"])


def test_nodes_are_selected_by_name():
    graph = named_path()
    assert graph[["cat", "ann"]].nodes.tolist() == [2, 0]
    assert graph["bob"].nodes.tolist() == [1]
    assert graph[pd.Index(["dan"])].nodes.tolist() == [3]
    assert graph[graph.node_names.tolist()].is_whole
    part = graph[[3, 1]]
    assert part[["bob"]].nodes.tolist() == [1]
    with pytest.raises(NodeNameError, match="^node 'ann' is not selected"):
        part[["bob", "ann"]]
    with pytest.raises(KeyError, match="'eve' is not in the graph"):
        graph[["eve"]]
    with pytest.raises(NodeNameError, match="no names"):
        Graph(graph.adjacency)[["ann"]]


def test_whole_numbers_as_names_leave_brackets_to_positions():
    graph = Graph(TRIANGLE, node_names=[2, 0, 1])
    assert graph[[2, 0]].nodes.tolist() == [2, 0]
    assert graph.select([2, 0]).nodes.tolist() == [0, 1]
    assert graph.node_names.dtype == np.int64


def test_names_go_where_nodes_go():
    graph = named_path()
    assert graph.subgraph([3, 0]).node_names.tolist() == ["dan", "ann"]
    assert graph.subgraph(graph[["bob"]].nodes)["bob"].nodes.tolist() == [0]
    assert graph.with_features(np.ones((4, 1)))[["dan"]].nodes.tolist() == [3]
    again = pickle.loads(pickle.dumps(graph[["dan", "bob"]]))
    assert again[["bob"]].nodes.tolist() == [1]
    assert set(graph.to_networkx().edges) == {
        ("ann", "bob"),
        ("bob", "cat"),
        ("cat", "dan"),
    }
    assert graph.fingerprint == Graph(graph.adjacency, np.eye(4)).fingerprint
    pair = Graph([[0, 1], [1, 0]], node_names=[("a", 1), ("b", 2)])
    assert pair.select([("b", 2)]).nodes.tolist() == [1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "2 node_names for 3 nodes"),
        (["a", "b", "a"], r"'a' stands twice in node_names \(at 2\)"),
        (["a", None, "b"], r"None is no name \(at 1\)"),
        ([1.0, np.nan, 2.0], r"nan is no name \(at 1\)"),
        ([["a"], "b", "c"], r"node_names\[0\] is \['a'\], which is not hashable"),
    ],
)
def test_bad_names_are_refused(names, message):
    with pytest.raises(GraphError, match=message):
        Graph(TRIANGLE, node_names=names)


def test_networkx_brings_names_and_labels():
    drawn = nx.Graph([("ann", "bob"), ("bob", "cat")])
    nx.set_node_attributes(drawn, {"ann": 3, "cat": 5}, "club")
    graph, y = Graph.from_networkx(drawn, label="club", return_X_y=True)
    assert graph[["cat"]].nodes.tolist() == [2]
    assert y.tolist() == [3, -1, 5]
    nx.set_node_attributes(drawn, {"ann": "x"}, "team")
    assert Graph.from_networkx(drawn, label="team").target.tolist() == ["x", None, None]
    assert Graph.from_networkx(nx.path_graph(3)).node_names is None
    with pytest.raises(GraphError, match="no node has the attribute 'clan'"):
        Graph.from_networkx(drawn, label="clan")
    with pytest.raises(ParameterError, match="return_X_y needs y"):
        Graph.from_networkx(drawn, return_X_y=True)


def test_pyg_brings_labels_and_masks():
    data = Data(
        x=torch.eye(3),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        y=torch.tensor([[2], [0], [1]]),
        train_mask=torch.tensor([True, False, False]),
    )
    bunch = Graph.from_pyg(data, label="y")
    assert bunch.target.tolist() == [2, 0, 1]
    assert bunch.train_mask.tolist() == [True, False, False]
    assert "test_mask" not in bunch
    data.y = torch.tensor([1.0, float("nan"), 0.0])
    assert Graph.from_pyg(data, label="y").target.tolist() == [1, -1, 0]
    data.y = torch.eye(3)
    with pytest.raises(LabelError, match=r"'y' has shape \(3, 3\)"):
        Graph.from_pyg(data, label="y")


def test_messages_call_nodes_by_name():
    names = ["ann", "bob", "cat"]
    path = np.array([[0, 1, 0], [1, 0, 2], [0, 2, 0]])
    named = Graph(path, np.eye(3), node_names=names)
    negative, one_way, gap = path.astype(float), path.copy(), np.eye(3)
    negative[1, 2], one_way[1, 2], gap[2, 1] = -1, 5, np.nan
    edges, weights = [[0, 1], [1, 0]], [1, -1]
    frame = pd.DataFrame(gap, index=names)
    for make, said in [
        (lambda: Graph(negative, node_names=names), "from node 'bob' to node 'cat'"),
        (lambda: Graph(path, frame), "feature 1 of node 'cat' is nan"),
        (lambda: Graph(path, sp.csr_array(gap), node_names=names), "node 'cat'"),
        (lambda: named.with_features(gap), "feature 1 of node 'cat' is nan"),
        (lambda: Graph.from_features(frame), "feature 1 of node 'cat' is nan"),
        (lambda: named.subgraph([2, 2]), "node 'cat' stands twice"),
        (lambda: Graph(negative), "from node 1 to node 2"),
        (
            lambda: Graph.from_edge_index(
                edges, n_nodes=3, edge_weight=weights, node_names=iter(names)
            ),
            "from node 'bob' to node 'ann'",
        ),
    ]:
        with pytest.raises(GraphError, match=said):
            make()
    with pytest.warns(GraphWarning, match="nodes 'bob' and 'cat'") as told:
        Graph(one_way, node_names=names)
    assert told[0].filename == __file__


def test_results_by_name():
    graph = named_path()[["cat", "ann"]]
    predicted = graph.by_name(np.array(["x", "y"]))
    assert predicted.to_dict() == {"cat": "x", "ann": "y"}
    chances = graph.by_name(np.array([[0.2, 0.8], [0.6, 0.4]]), ["x", "y"])
    assert chances.loc["ann", "y"] == 0.4
    assert Graph(TRIANGLE)[[2]].by_name([7]).to_dict() == {2: 7}
    with pytest.raises(GraphError, match="2 selected nodes, got shape"):
        graph.by_name([1, 2, 3])
