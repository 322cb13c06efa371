"""Look at a graph and its labels before anything is trained."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from sktifa.diagnostics.advice import give_advice
from sktifa.diagnostics.report import GraphReport
from sktifa.graph import Graph, as_graph
from sktifa.information.evidence import GraphEvidence, has_features
from sktifa.labels import check_enough_classes, encode_labels

__all__ = ["diagnose"]

# Entries of the features that are looked at.
_ENTRIES = 2e6
# Labels a class beyond which contrast has added little on every graph measured.
_MANY_LABELS = 100


def diagnose(
    graph: Graph | Any,
    y: ArrayLike,
    *,
    missing_label: int | float | str | None = -1,
    random_state: int = 0,
) -> GraphReport:
    """Look at a graph and its labels before anything is trained.

    Tells what is there, whether the edges tell of the labels, what to expect from
    contrast, and what should be mended. A large graph is sampled where looking at all
    of it would take long.

    Parameters
    ----------
    graph : Graph, PyG Data, networkx graph, or array-like of shape (n, n_features)
        The graph, or a selection of its nodes: the whole graph is looked at. A plain
        array becomes a nearest-neighbour graph.
    y : array-like of shape (n,)
        Labels of the (selected) nodes, `missing_label` where there is none: those that
        training will see.
    missing_label : int, float, str or None, default=-1
        Marks unlabelled nodes.
    random_state : int, default=0
        Draws samples and folds.

    Returns
    -------
    GraphReport
        `print` it, look at it in a notebook, or take `to_dict()`.

    Raises
    ------
    LabelError
        If no node is labelled, `y` has another length, or there is one class only.

    Examples
    --------
    >>> from sktifa.datasets import make_block_graph
    >>> from sktifa.diagnostics import diagnose
    >>> made = make_block_graph(600, 3, random_state=0)
    >>> report = diagnose(made.graph[:90], made.target[:90])
    >>> report.labels["classes"]
    {'0': 26, '1': 29, '2': 35}
    >>> report.graph_helps
    True

    Edges that tell nothing are found out:

    >>> made = make_block_graph(600, 3, homophily=1 / 3, random_state=0)
    >>> report = diagnose(made.graph, made.target)
    >>> [advice.topic for advice in report.warnings]
    ['graph']
    """
    graph = as_graph(graph)
    selected, classes = encode_labels(y, missing_label, of=graph)
    check_enough_classes(y, selected, classes, missing_label)
    codes = np.full(graph.n_nodes, -1)
    codes[graph.nodes[selected >= 0]] = selected[selected >= 0]
    evidence = GraphEvidence(graph, codes, len(classes), random_state)
    # Strong ones are all there are in a symmetric graph, and found without a transpose.
    _, component = connected_components(graph.adjacency, connection="strong")
    size = np.bincount(component)
    about_graph = _graph(graph, size)
    about_features = _features(graph, random_state)
    about_labels = _labels(graph, codes, classes, component)
    return GraphReport(
        graph=about_graph,
        features=about_features,
        labels=about_labels,
        homophily={
            "edge": evidence.edge_homophily,
            "adjusted": evidence.adjusted_homophily,
        },
        accuracy={
            "chance": evidence.chance,
            "label_propagation": evidence.propagation,
            "features": evidence.features,
        },
        graph_helps=evidence.helps,
        expectation=_expectation(evidence, min(about_labels["classes"].values())),
        warnings=give_advice(about_graph, about_features, about_labels, evidence),
    )


def _graph(graph: Graph, component_size: NDArray[np.int64]) -> dict[str, Any]:
    degree = np.diff(graph.adjacency.indptr)
    return {
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "weighted": bool((graph.adjacency.data != 1).any()),
        "components": len(component_size),
        "largest_component": int(component_size.max()),
        "isolated": int(np.count_nonzero(degree == 0)),
        "degree": {
            "min": int(degree.min()),
            "median": float(np.median(degree)),
            "mean": float(degree.mean()),
            "max": int(degree.max()),
        },
    }


def _features(graph: Graph, random_state: int) -> dict[str, Any]:
    if not has_features(graph):
        return {"kind": "none", "columns": graph.n_features}
    matrix = graph.features
    kind = "sparse" if sparse.issparse(matrix) else "dense"
    entries = matrix.nnz if kind == "sparse" else matrix.size
    if entries > _ENTRIES:
        rng = np.random.default_rng(random_state)
        n_rows = max(1, int(graph.n_nodes * _ENTRIES / entries))
        matrix = matrix[np.sort(rng.choice(graph.n_nodes, n_rows, replace=False))]
    row, column = matrix.nonzero()
    if not len(row):
        return {"kind": "none", "columns": graph.n_features}
    values = np.asarray(matrix[row, column], dtype=np.float64).ravel()
    # The size of what is there, zeros aside: a rare word is not a small number.
    counts = np.bincount(column, minlength=graph.n_features)
    squares = np.bincount(column, values**2, minlength=graph.n_features)
    scale = np.sqrt(squares / np.maximum(counts, 1))
    names = graph.feature_names or [f"column {i}" for i in range(graph.n_features)]
    used = np.flatnonzero(counts)
    order = used[np.argsort(scale[used])]
    return {
        "kind": kind,
        "columns": graph.n_features,
        "filled": len(values) / (matrix.shape[0] * matrix.shape[1]),
        "empty_rows": 1 - len(np.unique(row)) / matrix.shape[0],
        "smallest": {"name": names[order[0]], "scale": float(scale[order[0]])},
        "largest": {"name": names[order[-1]], "scale": float(scale[order[-1]])},
    }


def _labels(
    graph: Graph,
    codes: NDArray[np.int64],
    classes: NDArray[Any],
    component: NDArray[np.int64],
) -> dict[str, Any]:
    labelled = np.flatnonzero(codes >= 0)
    counts = np.bincount(codes[labelled], minlength=len(classes))
    without = np.bincount(component)
    without[component[labelled]] = 0
    one = int(np.argmax(component == without.argmax())) if without.any() else None
    if one is not None and graph.node_names is not None:
        one = graph.node_names.tolist()[one]
    return {
        "labelled": len(labelled),
        "classes": {
            str(label): count
            for label, count in zip(classes.tolist(), counts.tolist(), strict=True)
        },
        "unreached": int(without.sum()),
        "largest_unreached": int(without.max()),
        "node_unreached": one,
    }


def _expectation(evidence: GraphEvidence, fewest: int) -> str:
    if evidence.helps is False:
        return (
            "nothing good. It trusts in what labels send along the edges, and asks a "
            "node to agree with itself when edges change: here edges are noise."
        )
    if evidence.helps is None:
        return (
            "can't be told from so few labels. Compare GNNClassifier and "
            "TIFAGCLClassifier on nodes held out."
        )
    if fewest >= _MANY_LABELS:
        return (
            "little, a fraction of a point. With so many labels clear information "
            "arrives almost everywhere, and contrast works where it does not."
        )
    return (
        "up to 3 points over a plain GNN, more the fewer the labels, nearly all of it "
        "on nodes to which little information arrives."
    )
