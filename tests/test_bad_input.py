"""What public entries say to bad input: entry, input, class of the error, its words.

Every case runs in this process, so that one that crashes it takes the tests along.
"""

import functools
import itertools

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data, HeteroData

import sktifa
from sktifa import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
    GNNClassifier,
    Graph,
    LabeledNodeKFold,
    LabeledNodeShuffleSplit,
    LabelPropagationTIG,
    NeighborSampler,
    SAINTTIFASampler,
    TIFAGCLClassifier,
    datasets,
)
from sktifa.contrast.pairs import graph_distances, sample_pairs
from sktifa.diagnostics import (
    accuracy_by_gain,
    diagnose,
    madgap,
    pair_quality,
    radial_decay,
)
from sktifa.displays import GainBinsDisplay, SearchDisplay
from sktifa.exceptions import (
    DatasetError,
    GraphError,
    LabelError,
    NodeIndexError,
    NodeNameError,
    NotEnoughMemoryError,
    ParameterError,
    SktifaError,
)
from sktifa.graph import as_graph
from sktifa.information.loss_weights import loss_weights
from sktifa.information.propagation import label_propagation
from sktifa.information.tig import (
    annotated_information,
    clarity,
    class_prototypes,
    information_gain,
    intensity,
    label_distribution,
)
from sktifa.model_selection import paper_grid, paper_preset, predefined_validation_split

MADE = sktifa.make_block_graph(60, 3, random_state=0)
G, Y = MADE.graph, MADE.target
X = np.array(G.features)
A = G.adjacency
GAIN = np.linspace(0, 1, 60)
PAIR = [[0, 1], [1, 0]]
EDGES = np.array(PAIR)
QUICK = {"max_iter": 2, "random_state": 0, "device": "cpu", "hidden_size": 4}
NAN, INF = float("nan"), float("inf")
BIG = 2**63


def put(array, at, value):
    changed = array.copy()
    changed[at] = value
    return changed


def broken(format="csr", index=10**8, rows=X):
    matrix = sp.csr_array(rows).asformat(format).copy()
    matrix.indices[0] = index
    return matrix


def masked(array):
    return np.ma.array(array, mask=np.arange(array.size).reshape(array.shape) == 5)


@functools.cache
def fitted(kind=GNNClassifier):
    return kind(**QUICK).fit(G, Y)


def fit(**parameters):
    return GNNClassifier(**{**QUICK, **parameters}).fit(G, Y)


def fit_tifa(**parameters):
    return TIFAGCLClassifier(**{**QUICK, **parameters}).fit(G, Y)


def tig(**parameters):
    return LabelPropagationTIG(**parameters).fit(G, Y)


def pairs(features=X, adjacency=A, distribution=None, **options):
    p = np.full((60, 3), 1 / 3) if distribution is None else distribution
    return sample_pairs(features, adjacency, p, **options)


def edges(index=EDGES, *args, **options):
    return Graph.from_edge_index(index, *args, **{"n_nodes": 2, **options})


def block(**parameters):
    return sktifa.make_block_graph(**parameters)


CASES = {
    "Graph adjacency": [
        (lambda: Graph(None), GraphError, "adjacency"),
        (lambda: Graph("abc"), GraphError, "adjacency"),
        (lambda: Graph({1: 2}), GraphError, "adjacency"),
        (lambda: Graph(5), GraphError, r"square, got shape \(\)"),
        (lambda: Graph(X), GraphError, r"square, got shape \(60, 16\).*from_features"),
        (lambda: Graph([[0, 1], [1]]), GraphError, "can't be read as an array"),
        (lambda: Graph(np.empty((0, 0))), GraphError, "at least one node"),
        (lambda: Graph(sp.csr_array((0, 0))), GraphError, "at least one node"),
        (lambda: Graph(-EDGES), GraphError, "node 0 to node 1 has weight -1"),
        (lambda: Graph(EDGES * NAN), GraphError, "has weight nan"),
        (lambda: Graph(EDGES * 1e300), GraphError, r"has weight 1e\+300"),
        (
            lambda: Graph([[0, INF], [1, 0]]),
            GraphError,
            "node 0 to node 1 has weight inf",
        ),
        (lambda: Graph(EDGES * 1e-300), GraphError, r"if not 0, at least 1\.2e-38"),
        (lambda: Graph(EDGES * 1e-44), GraphError, r"if not 0, at least 1\.2e-38"),
        (lambda: Graph(EDGES * 3e38), GraphError, "divide them by the largest"),
        (lambda: Graph(EDGES * 1j), GraphError, "real numbers"),
        (lambda: Graph(EDGES.astype("M8[s]")), GraphError, "real numbers"),
        (
            lambda: Graph(np.ma.masked_equal(EDGES, 1)),
            GraphError,
            "masked entry at 0, 1",
        ),
        (lambda: Graph(broken(rows=A)), GraphError, "column 100000000"),
        (lambda: Graph(broken("csc", rows=A)), GraphError, "row 100000000"),
        (lambda: Graph(broken(index=-3, rows=A)), GraphError, "column -3"),
        (lambda: Graph(broken("bsr", rows=A)), GraphError, "column 100000000"),
        (lambda: Graph(sp.csr_array(A, dtype=complex)), GraphError, "real numbers"),
        (lambda: Graph(sp.coo_array(np.ones(3))), GraphError, "must be a matrix"),
        (lambda: Graph(torch.ones(2, 2, device="meta")), GraphError, "has no data"),
        (lambda: Graph(EDGES, directed="keep"), ParameterError, "'symmetrize' or"),
        (lambda: Graph([[0, 1], [0, 0]], directed="error"), GraphError, "is directed"),
        (
            lambda: Graph(pd.DataFrame(PAIR, index=["a", "b"], columns=["a", "c"])),
            GraphError,
            "not of the same names",
        ),
    ],
    "Graph features": [
        (lambda: Graph(A, X[:59]), GraphError, "59 rows, the graph has 60 nodes"),
        (lambda: Graph(A, X[:, 0]), GraphError, r"reshape\(-1, 1\)"),
        (lambda: Graph(A, X[:, :0]), GraphError, "have no column"),
        (lambda: Graph(A, X[..., None]), GraphError, r"got shape \(60, 16, 1\)"),
        (
            lambda: Graph(A, put(X, (3, 2), NAN)),
            GraphError,
            "feature 2 of node 3 is nan",
        ),
        (lambda: Graph(A, put(X, (3, 2), INF)), GraphError, "SimpleImputer"),
        (lambda: Graph(A, X.astype(float) * 1e300), GraphError, "finite .in float32"),
        (lambda: Graph(A, X.astype(str)), GraphError, "real numbers, got dtype"),
        (lambda: Graph(A, [["a"]] * 60), GraphError, "real numbers"),
        (lambda: Graph(A, X + 1j), GraphError, "real numbers, got dtype complex"),
        (lambda: Graph(A, masked(X)), GraphError, "masked entry at 0, 5"),
        (lambda: Graph(A, broken()), GraphError, "features has an entry in row 0"),
        (
            lambda: Graph(A, broken("csc")),
            GraphError,
            "features has an entry in row 10",
        ),
        (lambda: Graph(A, broken(index=-1)), GraphError, "column -1"),
        (lambda: Graph(A, "text"), GraphError, "features"),
        (lambda: Graph(A, [[1.0], [2.0, 3.0]]), GraphError, "can't be read"),
        (lambda: Graph(A, torch.ones(60, 2, device="meta")), GraphError, "has no data"),
        (lambda: Graph(A, X, feature_names=["a"]), GraphError, "1 feature_names"),
        (lambda: Graph(A, node_names=["a"] * 60), GraphError, "stands twice"),
        (lambda: Graph(A, node_names=["a"]), GraphError, "1 node_names"),
        (lambda: G.with_features(X[:5]), GraphError, "5 rows"),
        (
            lambda: Graph(A, pd.DataFrame(X, index=np.arange(60)[::-1])),
            GraphError,
            "sort_index",
        ),
    ],
    "Graph.from_edge_index": [
        (lambda: edges([0, 1]), GraphError, r"shape \(2, n_arcs\)"),
        (lambda: edges([[0, 1]] * 3), GraphError, r"edge_index\.T"),
        (lambda: edges([[0, 1], [1]]), GraphError, "can't be read as an array"),
        (lambda: edges(EDGES * 1.5), GraphError, "integers, got dtype float64"),
        (lambda: edges(EDGES == 1), GraphError, "integers, got dtype bool"),
        (lambda: edges([["a"], ["b"]]), GraphError, "integers"),
        (lambda: edges(EDGES + 7), GraphError, "edge 0 joins 7 and 8"),
        (lambda: edges(-EDGES), GraphError, "edge 0 joins 0 and -1"),
        (lambda: edges(EDGES.astype("u8") + BIG), GraphError, "edge 0 joins 922337"),
        (lambda: edges(masked(np.zeros((2, 4), int))), GraphError, "masked entry at 1"),
        (lambda: edges(n_nodes=None), GraphError, "give n_nodes"),
        (lambda: edges(n_nodes=2.9), ParameterError, "whole number of at least 1"),
        (lambda: edges(n_nodes="60"), ParameterError, "got '60'"),
        (lambda: edges(n_nodes=-1), ParameterError, "got -1"),
        (lambda: edges(n_nodes=BIG), ParameterError, "at most"),
        (lambda: edges(n_nodes=10**15), NotEnoughMemoryError, "doesn't fit in memory"),
        (lambda: edges(edge_weight=[1]), GraphError, r"shape \(2,\), one weight a"),
        (lambda: edges(edge_weight=[1, [2]]), GraphError, "edge_weight can't be read"),
        (lambda: edges(edge_weight=["1", "2"]), GraphError, "real numbers"),
        (lambda: edges(edge_weight=[1, NAN]), GraphError, "edge 1 .* weight nan"),
        (lambda: edges(edge_weight=[1, -1]), GraphError, "edge 1 .* weight -1"),
        (lambda: edges(edge_weight=[1, None]), GraphError, "edge 1 .* weight nan"),
        (lambda: edges(edge_weight=[3e38] * 2), GraphError, "divide them by"),
        (
            lambda: edges(edge_weight=np.ma.masked_equal([1, 2], 2)),
            GraphError,
            "edge_weight has a masked entry at 1",
        ),
        (lambda: edges(EDGES, X, n_nodes=None), GraphError, "XX")
        if False
        else (lambda: edges(EDGES, {1: 2}, n_nodes=None), GraphError, "one row a node"),
    ],
    "Graph's other doors": [
        (lambda: Graph.from_pyg(HeteroData()), GraphError, "homogeneous"),
        (lambda: Graph.from_pyg(Data()), GraphError, "no edge_index"),
        (
            lambda: Graph.from_pyg(Data(edge_index=torch.tensor(PAIR))),
            GraphError,
            r"set data\.num_nodes",
        ),
        (lambda: Graph.from_networkx(nx.Graph()), (GraphError, ParameterError), "node"),
        (
            lambda: Graph.from_networkx(nx.path_graph(3), "x"),
            GraphError,
            "attribute 'x'",
        ),
        (lambda: Graph.from_networkx(nx.path_graph(3), []), GraphError, "no attribute"),
        (lambda: Graph.from_pandas(X, X), GraphError, "frame"),
        (lambda: Graph.from_features(None), GraphError, r"got shape \(\)"),
        (lambda: Graph.from_features(X[:0]), GraphError, "no rows"),
        (lambda: Graph.from_features([[1.0], [NAN]]), GraphError, "node 1 is nan"),
        (lambda: Graph.from_features(X, n_neighbors=0), ParameterError, "n_neighbors"),
        (
            lambda: Graph.from_features(X, n_neighbors=2.5),
            ParameterError,
            "n_neighbors",
        ),
        (lambda: Graph.from_features(X, metric="m"), ParameterError, "metric='m'"),
        (lambda: Graph.from_features(broken()), GraphError, "column 100000000"),
        (lambda: as_graph(None), GraphError, "NoneType is no graph"),
        (lambda: as_graph("text"), GraphError, "str is no graph"),
        (lambda: as_graph(A), GraphError, "looks like the adjacency"),
        (lambda: G.to_pyg(Y[:5]), GraphError, "60 numbers"),
        (lambda: G.subgraph([]), GraphError, "at least one node"),
        (lambda: G.subgraph([3, 4, 3]), GraphError, "node 3 stands twice"),
        (lambda: G.subgraph([99]), NodeIndexError, "position 99"),
        (lambda: G.select(["ann"]), NodeNameError, "have no names"),
        (lambda: G.by_name(Y[:5]), GraphError, "60 selected nodes"),
    ],
    "Graph[...]": [
        (lambda: G[60], NodeIndexError, "no node at position 60"),
        (lambda: G[-61], NodeIndexError, "no node at position -61"),
        (lambda: G[[BIG * 2]], NodeIndexError, "no node at position"),
        (lambda: G[np.array([BIG + 9], "u8")], NodeIndexError, "9223372036854775817"),
        (lambda: G[Y[:59] == 0], NodeIndexError, "59 entries, but 60 nodes"),
        (lambda: G[:5][Y == 0], NodeIndexError, "60 entries, but 5 nodes"),
        (lambda: G[(Y == 0).astype(int)], NodeIndexError, r"index\.astype\(bool\)"),
        (lambda: G[torch.ones(60, dtype=torch.uint8)], NodeIndexError, "uint8"),
        (lambda: G[np.ones((60, 10), bool)], NodeIndexError, r"mask\[:, 0\]"),
        (lambda: G[[0.0, 1.0]], NodeIndexError, r"astype\(int\)"),
        (lambda: G[pd.array([True, None] * 30)], NodeIndexError, r"fillna\(False\)"),
        (lambda: G[np.ma.masked_equal(Y, 1) == 0], GraphError, "masked entry"),
        (lambda: G[["ann"]], NodeNameError, "have no names"),
        (lambda: G[:, 0], NodeIndexError, "by its nodes alone"),
        (lambda: G["a":"b"], NodeIndexError, r"select\(\)"),
        (lambda: G[None], NodeIndexError, "selects no node"),
        (lambda: G[{1, 2}], NodeIndexError, "selects no node"),
        (lambda: G[[[1], [2, 3]]], GraphError, "can't be read"),
        (lambda: G[torch.ones(60, device="meta")], GraphError, "has no data"),
    ],
    "fit": [
        (lambda: GNNClassifier(**QUICK).fit(G, None), LabelError, "requires y"),
        (lambda: GNNClassifier(**QUICK).fit(G, Y[:59]), LabelError, "59"),
        (lambda: GNNClassifier(**QUICK).fit(G, Y * 0), LabelError, "one class"),
        (lambda: GNNClassifier(**QUICK).fit(G, Y * 0 - 1), LabelError, "label"),
        (lambda: GNNClassifier(**QUICK).fit(G, Y + 0.5), LabelError, "continuous"),
        (lambda: GNNClassifier(**QUICK).fit(G, X), (LabelError, ValueError), "y"),
        (lambda: GNNClassifier(**QUICK).fit(A, Y), GraphError, r"Graph\(X\)"),
        (lambda: GNNClassifier(**QUICK).fit(A.toarray(), Y), GraphError, r"Graph\(X\)"),
        (lambda: GNNClassifier(**QUICK).fit(broken(), Y), GraphError, "X has an entry"),
        (lambda: GNNClassifier(**QUICK).fit(broken("csc"), Y), GraphError, "X has an"),
        (
            lambda: GNNClassifier(**QUICK).fit(masked(X), Y),
            GraphError,
            "X has a masked",
        ),
        (lambda: GNNClassifier(**QUICK).fit(X * NAN, Y), ValueError, "NaN"),
        (lambda: GNNClassifier(**QUICK).fit(X[:, :0], Y), ValueError, "feature"),
        (
            lambda: GNNClassifier(**QUICK).fit(G, Y, sample_weight=-np.ones(60)),
            ValueError,
            "[Nn]egative",
        ),
        (
            lambda: GNNClassifier(**QUICK).fit(G, Y, sample_weight=np.ones(59)),
            ValueError,
            "sample_weight",
        ),
        (
            lambda: GNNClassifier(**QUICK).fit(G, Y, sample_weight=np.zeros(60)),
            ValueError,
            "weight",
        ),
        (
            lambda: GNNClassifier(**QUICK).fit(G, Y, X_val=G[:5]),
            SktifaError,
            "y_val",
        ),
        (
            lambda: GNNClassifier(**QUICK).fit(G, Y, X_val=G[:5], y_val=Y[:4]),
            SktifaError,
            "y_val",
        ),
        (
            lambda: GNNClassifier(**QUICK).fit(G, Y, X_val=G[:5], y_val=[9] * 5),
            SktifaError,
            "9",
        ),
        (lambda: GNNClassifier(**QUICK).fit(G, [[1], [2, 3]]), SktifaError, "y"),
    ],
    "parameters": [
        (lambda: fit(encoder="foo"), ValueError, "encoder"),
        (lambda: fit(hidden_size=0), ValueError, "hidden_size"),
        (lambda: fit(hidden_size=2.5), ValueError, "hidden_size"),
        (lambda: fit(hidden_size=2**63), ValueError, "hidden_size"),
        (lambda: fit(n_layers=10**9), ValueError, "n_layers"),
        (lambda: fit(extra_terms=[1]), ParameterError, r"extra_terms\[0\] is 1"),
        (
            lambda: fit(class_weight={0: 0, 1: 0, 2: 0}),
            ParameterError,
            "leave no labelled node any weight",
        ),
        (lambda: fit(n_layers=0), ValueError, "n_layers"),
        (lambda: fit(dropout=1.5), ValueError, "dropout"),
        (lambda: fit(dropout=NAN), ValueError, "dropout"),
        (lambda: fit(learning_rate=-1), ValueError, "learning_rate"),
        (lambda: fit(learning_rate=NAN), ValueError, "learning_rate"),
        (lambda: fit(learning_rate="0.1"), ValueError, "learning_rate"),
        (lambda: fit(max_iter=0), ValueError, "max_iter"),
        (lambda: fit(max_iter=BIG), ValueError, "max_iter")
        if False
        else (lambda: fit(max_iter="5"), ValueError, "max_iter"),
        (lambda: fit(weight_decay=-1), ValueError, "weight_decay"),
        (lambda: fit(device="gpu"), ParameterError, "no device of torch"),
        (lambda: fit(device="meta"), ParameterError, "holds no data"),
        (lambda: fit(device="cuda:99"), ParameterError, "cuda:99"),
        (lambda: fit(class_weight={0: -1, 1: 1, 2: 1}), ParameterError, "class_weight"),
        (
            lambda: fit(class_weight={0: NAN, 1: 1, 2: 1}),
            ParameterError,
            "class_weight",
        ),
        (lambda: fit(class_weight="foo"), ValueError, "class_weight"),
        (lambda: fit(validation_fraction=2.0), ValueError, "validation_fraction"),
        (lambda: fit(random_state="a"), ValueError, "random_state"),
        (lambda: fit(feature_norm="foo"), ValueError, "feature_norm"),
        (lambda: fit(missing_label=[1]), ValueError, "missing_label"),
        (lambda: fit(sampler="foo"), ValueError, "sampler"),
        (lambda: fit_tifa(temperature=0), ValueError, "temperature"),
        (lambda: fit_tifa(temperature=NAN), ValueError, "temperature"),
        (lambda: fit_tifa(hop_weight=-1), ValueError, "hop_weight"),
        (lambda: fit_tifa(n_positives=-1), ValueError, "n_positives"),
        (lambda: fit_tifa(n_positives=2.5), ValueError, "n_positives"),
        (
            lambda: fit_tifa(pairing="tifa", n_positives=10**12),
            NotEnoughMemoryError,
            "lower n_positives",
        ),
        (lambda: fit_tifa(negative_ranks=(9, 3)), ValueError, "negative_ranks"),
        (lambda: fit_tifa(negative_ranks=5), ValueError, "negative_ranks"),
        (lambda: fit_tifa(restart_probability=0), ValueError, "restart_probability"),
        (lambda: fit_tifa(perturbed_nodes=2.0), ValueError, "perturbed_nodes"),
        (lambda: fit_tifa(feature_mask_rate=-1), ValueError, "feature_mask_rate"),
    ],
    "predict": [
        (lambda: GNNClassifier().predict(G), NotFittedError, "not fitted"),
        (lambda: fitted().predict(X), GraphError, "fitted on a graph"),
        (lambda: fitted().predict(Graph(A)), GraphError, "60 features"),
        (lambda: fitted().predict(None), SktifaError, "fitted on a graph"),
        (lambda: fitted().predict("text"), SktifaError, "fitted on a graph"),
        (
            lambda: GNNClassifier(**QUICK).fit(X, Y).predict(broken()),
            GraphError,
            "X has an entry",
        ),
        (lambda: GNNClassifier(**QUICK).fit(X, Y).predict(X[:, :3]), ValueError, "3"),
        (lambda: GNNClassifier(**QUICK).fit(X, Y).predict(X * NAN), ValueError, "NaN"),
        (lambda: fitted().score(G, Y[:59]), ValueError, "59"),
        (lambda: fitted().score(G, Y, sample_weight=[1]), ValueError, "sample"),
    ],
    "LabelPropagationTIG": [
        (lambda: LabelPropagationTIG().fit(G, None), LabelError, "requires y"),
        (lambda: LabelPropagationTIG().fit(G, Y[:59]), LabelError, "59"),
        (lambda: LabelPropagationTIG().fit(G, Y * 0 - 1), LabelError, "has a label"),
        (lambda: LabelPropagationTIG().fit(broken(), Y), GraphError, "X has an entry"),
        (lambda: LabelPropagationTIG().fit(A, Y), GraphError, r"Graph\(X\)"),
        (lambda: LabelPropagationTIG().transform(G), NotFittedError, "not fitted"),
        (lambda: tig().transform(X), GraphError, "fitted on a graph"),
        (lambda: tig().transform(Graph(A)), GraphError, "not the graph of fit"),
        (lambda: tig(restart_probability=0), ValueError, "restart_probability"),
        (lambda: tig(restart_probability=NAN), ValueError, "restart_probability"),
        (lambda: tig(tol=0), ValueError, "tol"),
        (lambda: tig(normalization="foo"), ValueError, "normalization"),
        (lambda: tig(cv=1), ValueError, "cv"),
        (lambda: tig(cv=2.5), ValueError, "cv"),
        (lambda: tig(device="meta"), ParameterError, "holds no data"),
        (lambda: tig(n_neighbors=0), ValueError, "n_neighbors"),
        (lambda: tig(tol=1e-310), ValueError, "tol"),
        (lambda: tig(restart_probability=1e-17), ValueError, "restart_probability"),
    ],
    "label_propagation": [
        (lambda: label_propagation(A.toarray(), X), GraphError, "must be a sparse"),
        (lambda: label_propagation(broken(rows=A), X), GraphError, "column 100000000"),
        (lambda: label_propagation(-A, X), GraphError, "not be negative"),
        (lambda: label_propagation(A * NAN, X), GraphError, "finite"),
        (lambda: label_propagation(sp.triu(A), X), GraphError, "the other way"),
        (lambda: label_propagation(A[:, :5], X), GraphError, "square"),
        (lambda: label_propagation(A, X[:5]), GraphError, r"shape \(60, n_classes\)"),
        (lambda: label_propagation(A, X, device="meta"), ParameterError, "no data"),
        (lambda: label_propagation(A, X, normalization=1), ParameterError, "column"),
        (lambda: loss_weights(Y * NAN), SktifaError, "NaN"),
        (lambda: loss_weights(Y, 2.0, 1.0), SktifaError, "weight_m"),
        (lambda: label_propagation(A, X, max_iter=2.5), ParameterError, "max_iter"),
        (lambda: label_propagation(A, X, tol=1e-310), ParameterError, "tol"),
        (
            lambda: label_propagation(A, X, restart_probability=1e-17),
            ParameterError,
            "restart_probability",
        ),
        (lambda: label_propagation(A, [["a"]] * 60), SktifaError, "sources"),
        (lambda: label_propagation(A, X * NAN), SktifaError, "sources"),
    ],
    "information": [
        (lambda: annotated_information(None, Y, 3), ParameterError, "give a Graph"),
        (lambda: annotated_information(G, Y[:5], 3), LabelError, r"shape \(60,\)"),
        (lambda: annotated_information(G, Y + 0.5, 3), LabelError, "whole numbers"),
        (lambda: annotated_information(G, Y, 2), LabelError, "go up to 2"),
        (lambda: annotated_information(G, Y, 2.5), ParameterError, "n_classes"),
        (lambda: class_prototypes(None, Y, 3), GraphError, "matrix"),
        (lambda: class_prototypes(X, Y[:5], 3), LabelError, r"shape \(60,\)"),
        (lambda: class_prototypes(X, Y, 2), LabelError, "go up to 2"),
        (lambda: intensity(X[0]), SktifaError, "shape"),
        (lambda: clarity(-abs(X)), SktifaError, "negative"),
        (lambda: information_gain(abs(X[:, :1])), LabelError, "at least 2"),
        (
            lambda: information_gain(abs(X), clarity_weight=NAN),
            ParameterError,
            "clarity_weight",
        ),
        (lambda: label_distribution(abs(X), "foo"), ParameterError, "foo"),
        (lambda: label_distribution(abs(X), smoothing=0), ParameterError, "smoothing"),
        (lambda: label_distribution(abs(X), smoothing=INF), ParameterError, "smooth"),
        (lambda: loss_weights(["a", "b"]), GraphError, "real numbers"),
        (lambda: loss_weights(A), GraphError, "dense"),
        (lambda: graph_distances(X[:5], A), GraphError, "5 rows for 60 nodes"),
        (lambda: graph_distances(X, A, max_hops=255), ParameterError, "max_hops"),
    ],
    "sample_pairs": [
        (lambda: pairs(broken()), GraphError, "graph_features has an entry"),
        (lambda: pairs(adjacency=broken(rows=A)), GraphError, "adjacency has an entry"),
        (lambda: pairs(adjacency=A.toarray()), GraphError, "must be a sparse matrix"),
        (lambda: pairs(put(X, (0, 0), NAN)), SktifaError, "features"),
        (lambda: pairs(put(X, (0, 0), INF)), SktifaError, "features"),
        (lambda: pairs(X[:5]), GraphError, "one row a node"),
        (lambda: pairs(distribution=np.ones((60, 3))), ParameterError, "probabilities"),
        (
            lambda: pairs(distribution=np.full((60, 3), NAN)),
            SktifaError,
            "distribution has nan",
        ),
        (lambda: pairs(hop_weight=-1), ParameterError, "hop_weight"),
        (lambda: pairs(feature_weight=NAN), ParameterError, "feature_weight"),
        (lambda: pairs(max_hops=300), ParameterError, "max_hops"),
        (lambda: pairs(max_hops=2.5), ParameterError, "max_hops"),
        (lambda: pairs(n_positives=10**12), SktifaError, "n_positives"),
        (lambda: pairs(n_positives=2.5), ParameterError, "n_positives"),
        (lambda: pairs(negative_ranks=(5, 2)), ParameterError, "negative_ranks"),
        (lambda: pairs(negative_ranks=(0.5, 2)), ParameterError, "negative_ranks"),
        (lambda: pairs(block_size=0), ParameterError, "block_size"),
        (lambda: pairs(block_size=2.5), ParameterError, "block_size"),
        (lambda: pairs(device="meta"), ParameterError, "no data"),
    ],
    "samplers": [
        (lambda: NeighborSampler(batch_size=0).fit(G, Y), ValueError, "batch_size"),
        (lambda: NeighborSampler(num_neighbors=()).fit(G, Y), ValueError, "num_nei"),
        (lambda: NeighborSampler().fit(broken(), Y), GraphError, "column 100000000"),
        (lambda: SAINTTIFASampler(sharpness=-1).fit(G, Y), ValueError, "sharpness"),
        (lambda: SAINTTIFASampler(sharpness=NAN).fit(G, Y), ValueError, "sharpness"),
        (
            lambda: SAINTTIFASampler(label_distribution="foo").fit(G, Y),
            ValueError,
            "label_distribution",
        ),
        (
            lambda: SAINTTIFASampler(walk_length=1.5).fit(G, Y),
            ValueError,
            "walk_length",
        ),
        (lambda: SAINTTIFASampler().fit(G, None), SktifaError, "y"),
        (lambda: SAINTTIFASampler().fit(G, Y[:59]), SktifaError, "59"),
        (lambda: next(SAINTTIFASampler().epoch()), NotFittedError, "not fitted"),
        (
            lambda: next(SAINTTIFASampler().fit(G, Y).epoch(rank=5, n_ranks=2)),
            ParameterError,
            "rank",
        ),
        (lambda: SAINTTIFASampler(walk_length=-1).fit(G, Y), ValueError, "walk_length"),
        (
            lambda: NeighborSampler(num_neighbors=(2.5,)).fit(G, Y),
            ValueError,
            "num_nei",
        ),
    ],
    "splitters": [
        (lambda: LabeledNodeKFold(1), ValueError, "n_splits")
        if False
        else (lambda: next(LabeledNodeKFold(1).split(G, Y)), ValueError, "n_splits"),
        (lambda: next(LabeledNodeKFold(2.5).split(G, Y)), ValueError, "n_splits"),
        (lambda: next(LabeledNodeKFold(99).split(G, Y)), ValueError, "99"),
        (lambda: next(LabeledNodeKFold().split(G, None)), ValueError, "y"),
        (lambda: next(LabeledNodeKFold().split(G, Y[:59])), ValueError, "59"),
        (lambda: next(LabeledNodeKFold().split(G, Y * 0 - 1)), ValueError, "label"),
        (
            lambda: next(LabeledNodeShuffleSplit(train_per_class=0).split(G, Y)),
            ParameterError,
            "train_per_class",
        ),
        (
            lambda: next(LabeledNodeShuffleSplit(train_per_class=99).split(G, Y)),
            LabelError,
            "labelled nodes",
        ),
        (
            lambda: next(LabeledNodeShuffleSplit(score_on="foo").split(G, Y)),
            ParameterError,
            "score_on",
        ),
        (
            lambda: next(LabeledNodeShuffleSplit(n_splits=0).split(G, Y)),
            ValueError,
            "n_splits",
        ),
        (lambda: predefined_validation_split(Y == 0, Y < 2), ParameterError, "both"),
        (
            lambda: predefined_validation_split([], [1]),
            ParameterError,
            "train is empty",
        ),
        (lambda: paper_grid("foo"), SktifaError, "foo"),
        (lambda: paper_preset("foo"), SktifaError, "foo"),
        (
            lambda: predefined_validation_split(Y == 0, Y[:5] == 1),
            ParameterError,
            "length",
        ),
        (
            lambda: predefined_validation_split([0.5], [1]),
            ParameterError,
            "whole numbers",
        ),
    ],
    "searches": [
        (
            lambda: BatchedGridSearchCV(GNNClassifier(**QUICK), {"foo": [1]}).fit(G, Y),
            ValueError,
            "foo",
        ),
        (
            lambda: BatchedGridSearchCV(GNNClassifier(**QUICK), {}).fit(G, Y[:59]),
            ValueError,
            "59",
        ),
        (
            lambda: BatchedGridSearchCV(GNNClassifier(**QUICK), {"dropout": []}).fit(
                G, Y
            ),
            ValueError,
            "dropout",
        ),
        (
            lambda: BatchedGridSearchCV(
                GNNClassifier(**QUICK), {"dropout": [0.1]}, scoring="foo"
            ).fit(G, Y),
            ValueError,
            "foo",
        ),
        (
            lambda: BatchedGridSearchCV(
                GNNClassifier(**QUICK), {"dropout": [0.1]}, cv=1
            ).fit(G, Y),
            ValueError,
            "cv|n_splits",
        ),
        (
            lambda: BatchedGridSearchCV(GNNClassifier(**QUICK), {"dropout": [7.0]}).fit(
                G, Y
            ),
            ValueError,
            "dropout",
        ),
        (
            lambda: BatchedRandomizedSearchCV(
                GNNClassifier(**QUICK), {"dropout": [0.1]}, n_iter=0
            ).fit(G, Y),
            ValueError,
            "n_iter",
        ),
        (
            lambda: BatchedGridSearchCV(
                GNNClassifier(**QUICK), {"dropout": [0.1]}
            ).predict(G),
            NotFittedError,
            "not fitted",
        ),
    ],
    "data sets": [
        (lambda: block(n_nodes=0), ParameterError, "n_nodes"),
        (lambda: block(n_nodes="60"), ParameterError, "'60'"),
        (lambda: block(n_nodes=2.9), ParameterError, "2.9"),
        (lambda: block(n_nodes=BIG), ParameterError, "n_nodes"),
        (lambda: block(n_nodes=10**12), NotEnoughMemoryError, "lower n_nodes"),
        (lambda: block(average_degree=1e12), ParameterError, "average_degree"),
        (lambda: block(average_degree=NAN), ParameterError, "average_degree"),
        (lambda: block(homophily=2), ParameterError, "homophily"),
        (lambda: block(degree_exponent=2), ParameterError, "above 2"),
        (lambda: block(class_separation=INF), ParameterError, "class_separation"),
        (lambda: block(device="meta"), ParameterError, "holds no data"),
        (lambda: block(random_state="a"), ValueError, "seed"),
        (lambda: datasets.fetch_planetoid("cra"), ParameterError, "no graph 'cra'"),
        (lambda: datasets.fetch_ogbn(3), ParameterError, "no graph 3"),
        (lambda: datasets.fetch_amazon(root=3), ParameterError, "root"),
        (
            lambda: datasets.fetch_amazon(root="/nowhere", download_if_missing=False),
            DatasetError,
            "/nowhere/Amazon/Photo/raw lacks",
        ),
        (lambda: datasets.load_digits_graph(n_neighbors=0), ParameterError, "n_neigh"),
        (lambda: datasets.load_digits_graph(metric="m"), ParameterError, "metric"),
    ],
    "displays and diagnostics": [
        (
            lambda: GainBinsDisplay.from_predictions(GAIN, ["a"] * 60, Y),
            SktifaError,
            "text",
        ),
        (lambda: GainBinsDisplay.from_predictions(GAIN, Y, Y[:5]), SktifaError, "5"),
        (lambda: GainBinsDisplay.from_predictions(GAIN[:5], Y, Y), SktifaError, "5"),
        (
            lambda: GainBinsDisplay.from_estimator(fitted(), G, Y),
            SktifaError,
            "gain",
        ),
        (lambda: accuracy_by_gain(GAIN, Y[:5] == 0), SktifaError, "one length"),
        (lambda: accuracy_by_gain(GAIN * NAN, Y == 0), SktifaError, "gain"),
        (lambda: accuracy_by_gain(GAIN, ["a"] * 60), SktifaError, "right"),
        (lambda: accuracy_by_gain(GAIN, Y == 0, n_bins=0), SktifaError, "n_bins"),
        (lambda: diagnose(G, Y[:5]), SktifaError, "5"),
        (lambda: diagnose(A, Y), GraphError, "looks like the adjacency"),
        (lambda: madgap(X[:5], G), SktifaError, "5"),
        (lambda: madgap(X, G, near=0), SktifaError, "near"),
        (lambda: madgap(X, None), GraphError, "NoneType is no graph"),
        (lambda: madgap(X, G, near=8, remote=3), ParameterError, "near < remote"),
        (lambda: pair_quality(A, Y, abs(X)), GraphError, "looks like the adjacency"),
        (lambda: pair_quality(G, Y, abs(X), n_bins=10**9), ParameterError, "n_bins"),
        (lambda: accuracy_by_gain(masked(GAIN), Y == 0), GraphError, "masked entry"),
        (lambda: accuracy_by_gain(GAIN, Y == 0, 10**9), ParameterError, "at most 1000"),
        (
            lambda: radial_decay(GAIN, GAIN, Y == 0, n_bins=10**9),
            ParameterError,
            "at most 1000",
        ),
        (lambda: radial_decay(GAIN, ["a"] * 60, Y == 0), GraphError, "clarity must"),
        (lambda: SearchDisplay.from_estimator(fitted()), NotFittedError, "no results"),
        (lambda: madgap(X * NAN, G), GraphError, "embedding has nan in row 0"),
        (lambda: accuracy_by_gain(GAIN, Y == 0, n_bins=2.5), SktifaError, "n_bins"),
    ],
}
ALL = [
    pytest.param(*case, id=f"{entry} {number}")
    for entry, cases in CASES.items()
    for number, case in enumerate(cases)
]


def test_the_table_is_long():
    assert len(ALL) >= 150


@pytest.mark.parametrize(("call", "error", "match"), ALL)
def test_bad_input(call, error, match):
    with pytest.raises(error, match=match) as caught:
        call()
    # scikit-learn's own checks are as good as ours.
    own = isinstance(caught.value, (SktifaError, NotFittedError))
    assert own or type(caught.value).__module__.startswith(("sklearn", "builtins"))


# ------------------------------------------------- what is well formed is left alone


def unsorted():
    """CSR rows whose indices are in no order, one entry in two parts."""
    rows = sp.csr_array(X)
    indices, data = rows.indices.copy(), rows.data.copy()
    for start, stop in itertools.pairwise(rows.indptr):
        indices[start:stop] = indices[start:stop][::-1]
        data[start:stop] = data[start:stop][::-1]
    halves = np.repeat(data / 2, 2), np.repeat(indices, 2), 2 * rows.indptr
    return sp.csr_array(halves, shape=rows.shape)


ROWS = {
    "dense": X.copy,
    "Fortran": lambda: np.asfortranarray(X),
    "big-endian": lambda: X.astype(">f8"),
    "CSR": unsorted,
    "CSC": lambda: unsorted().tocsc(),
    "frame": lambda: pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]),
    "tensor": lambda: torch.tensor(X, requires_grad=True),
}
FITS = {
    "Graph": lambda rows: Graph(A, rows),
    "from_features": Graph.from_features,
    "GNNClassifier": lambda rows: GNNClassifier(**QUICK).fit(rows, Y).predict(rows),
    "LabelPropagationTIG": lambda rows: LabelPropagationTIG().fit_transform(rows, Y),
    "NeighborSampler": lambda rows: NeighborSampler().fit(rows, Y),
    "sample_pairs": lambda rows: pairs(rows),
}


def parts_of(rows):
    if sp.issparse(rows):
        return [rows.data, rows.indices, rows.indptr]
    return [
        rows.detach().numpy() if isinstance(rows, torch.Tensor) else np.asarray(rows)
    ]


TOO_LARGE = r"the scores of node 0 of X are not finite: .*too large for float32"


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.parametrize("kind", [GNNClassifier, TIFAGCLClassifier])
def test_what_overflows_in_prediction_is_no_prediction(kind, method):
    fine = np.array(A.data)
    shared = sp.csr_array((fine, A.indices, A.indptr), A.shape)
    model, graph = fitted(kind), Graph(shared, X)
    getattr(model, method)(graph)
    fine[0] = INF  # behind the graph's back
    with pytest.raises(GraphError, match=TOO_LARGE):
        getattr(model, method)(graph)
    with pytest.raises(GraphError, match=TOO_LARGE):
        getattr(model, method)(G.with_features(np.full_like(X, 3e38)))


@pytest.mark.parametrize("weight", [1.2e-38, 1e34])
@pytest.mark.parametrize("encoder", ["gcn", "sage", "appnp"])
def test_weights_as_small_and_as_large_as_they_may_be(encoder, weight):
    graph = Graph(sp.csr_array(A > 0) * weight, X)
    proba = GNNClassifier(encoder, **QUICK).fit(graph, Y).predict_proba(graph)
    np.testing.assert_allclose(proba.sum(axis=1), 1)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("fit", FITS)
def test_what_is_given_is_only_read(fit, rows):
    given = ROWS[rows]()
    before = [part.copy() for part in parts_of(given)]
    for part in parts_of(given):
        if rows != "tensor":
            part.flags.writeable = False
    FITS[fit](given)
    for part, old in zip(parts_of(given), before, strict=True):
        np.testing.assert_array_equal(part, old)


@pytest.mark.cuda
def test_tensors_of_a_gpu_are_read():
    mask = torch.tensor(Y == 0, device="cuda")
    assert G[mask].nodes.tolist() == np.flatnonzero(Y == 0).tolist()
    rows = torch.tensor(X, device="cuda", requires_grad=True)
    assert Graph(A, rows).fingerprint == G.fingerprint
    model = GNNClassifier(**QUICK).fit(G[mask.logical_not()], _on_gpu(Y)[Y != 0])
    assert model.score(G, _on_gpu(Y)) >= 0
    model = GNNClassifier(**QUICK).fit(rows, _on_gpu(Y), sample_weight=_on_gpu(Y + 1.0))
    assert model.predict(rows).shape == (60,)
    for splitter in (
        LabeledNodeKFold(2),
        LabeledNodeShuffleSplit(2, train_per_class=2, val_per_class=1),
    ):
        assert len(list(splitter.split(G, _on_gpu(Y)))) == 2


def _on_gpu(values):
    return torch.as_tensor(values, device="cuda")
