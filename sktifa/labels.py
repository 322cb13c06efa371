"""Labels of the nodes: any type in, codes out, unlabelled nodes marked."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sktifa.exceptions import LabelError
from sktifa.graph import Graph

__all__ = ["align_labels", "check_labels_length", "encode_labels"]


def encode_labels(
    y: ArrayLike, missing_label: int | float | str | None = -1
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Encode labels as numbers from 0, unlabelled nodes as -1.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels of any type: whole numbers, strings, booleans.
    missing_label : int, float, str or None, default=-1
        Marks an unlabelled node. None and NaN mark one in any case.

    Returns
    -------
    codes : ndarray of int64, shape (n,)
        Position of each label in `classes`; -1 where there is none.
    classes : ndarray of shape (n_classes,)
        The labels that occur, sorted, in the dtype of `y`.

    Raises
    ------
    LabelError
        If `y` is not one-dimensional, has no label at all, or has labels that
        can't name classes: fractions, infinities, types that don't compare.

    Examples
    --------
    >>> from sktifa.labels import encode_labels
    >>> encode_labels([3, -1, 7, 3])
    (array([ 0, -1,  1,  0]), array([3, 7]))
    >>> codes, classes = encode_labels(["cat", None, "ant"])
    >>> codes.tolist(), classes.tolist()
    ([1, -1, 0], ['ant', 'cat'])
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise LabelError(
            f"y must be one-dimensional, one label a node, got shape {labels.shape}: "
            "use y.ravel() if it has one column."
        )
    missing = _is_missing(labels, missing_label)
    if missing.all():
        raise LabelError(
            f"none of the {len(labels)} nodes has a label: label at least one node "
            f"of each class (missing_label={missing_label!r}, None and NaN mark "
            "unlabelled ones)."
        )
    if labels.dtype.kind == "f":
        _check_whole_numbers(labels, missing)
    try:
        classes, inverse = np.unique(labels[~missing], return_inverse=True)
    except TypeError as error:
        raise LabelError(
            f"the labels are of types that don't compare ({error}): give all of them "
            "one type, such as y.astype(str), and set missing_label to fit."
        ) from error
    codes = np.full(len(labels), -1, dtype=np.int64)
    codes[~missing] = inverse
    return codes, classes


def align_labels(
    y: Any, graph: Graph, missing_label: int | float | str | None = -1
) -> Any:
    """Put a Series of labels into the order of a graph's named nodes.

    Parameters
    ----------
    y : array-like
        A pandas Series whose index holds names of nodes is aligned. All else goes by
        position and is returned as it is: other arrays, a Series with plain row
        numbers or with an index in which no node's name occurs, and the labels of a
        graph without names.
    graph : Graph
        A whole graph or a selection of one.
    missing_label : int, float, str or None, default=-1
        What selected nodes get that `y` doesn't name, where it fits the dtype of
        `y`; None else.

    Returns
    -------
    array-like
        One label a selected node, where `y` was aligned.

    Raises
    ------
    LabelError
        If the index of `y` has names of nodes and others that are none, or one twice.

    Examples
    --------
    >>> import pandas as pd
    >>> from sktifa.graph import Graph
    >>> from sktifa.labels import align_labels
    >>> graph = Graph([[0, 1], [1, 0]], node_names=["ann", "bob"])
    >>> align_labels(pd.Series({"bob": 3}), graph)
    array([-1,  3])
    """
    is_series = hasattr(y, "iloc") and getattr(y, "ndim", 0) == 1
    if graph.node_names is None or not is_series or _is_row_numbers(y.index):
        return y
    names = graph.node_names
    known = y.index.isin(names)
    if not known.any():
        return y
    if not known.all():
        name = y.index[int(known.argmin())]
        raise LabelError(
            f"y has a label for {name!r}, which is no node of the graph: drop it, or "
            "give y.to_numpy() to go by position."
        )
    if not y.index.is_unique:
        name = y.index[y.index.duplicated()][0]
        raise LabelError(f"y has node {name!r} twice: keep one label a node.")
    place = y.index.get_indexer(names[graph.nodes])
    labels = y.to_numpy()
    there = place >= 0
    if there.all():
        return labels[place]
    if labels.dtype.kind in "iu" and isinstance(missing_label, (int, np.integer)):
        aligned = np.full(len(graph), missing_label, dtype=np.int64)
    else:
        aligned = np.full(len(graph), None, dtype=object)
    aligned[there] = labels[place[there]]
    return aligned


def check_labels_length(graph: Graph, y: ArrayLike) -> None:
    """Check that there is one label a selected node.

    Parameters
    ----------
    graph : Graph
        A whole graph or a selection of one.
    y : array-like of shape (len(graph),)
        Labels.

    Raises
    ------
    LabelError
        If there are more or fewer.

    Examples
    --------
    >>> from sktifa.graph import Graph
    >>> from sktifa.labels import check_labels_length
    >>> check_labels_length(Graph([[0, 1], [1, 0]])[[1]], ["a"])
    """
    n_labels = np.shape(y)[0]
    if n_labels != len(graph):
        hint = ""
        if n_labels == graph.n_nodes:
            hint = " (y covers the whole graph: index it like the graph, y[idx])"
        raise LabelError(
            f"y has {n_labels} entries, but {len(graph)} of the graph's "
            f"{graph.n_nodes} nodes are selected: give one label a selected node, "
            f"missing_label where there is none{hint}."
        )


def _is_row_numbers(index: Any) -> bool:
    """Whether a pandas index only counts the rows."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _is_missing(
    labels: NDArray[Any], missing_label: int | float | str | None
) -> NDArray[np.bool_]:
    kind = labels.dtype.kind
    if kind == "O":
        return np.fromiter(
            (_is_null(label) or label == missing_label for label in labels),
            dtype=bool,
            count=len(labels),
        )
    if kind in "US":
        # np.array(["a", -1]) has made a string of the -1.
        if not isinstance(missing_label, str) and (labels == str(missing_label)).any():
            raise LabelError(
                f"y is an array of strings and has the string '{missing_label}', "
                f"which is not missing_label={missing_label!r}: use dtype object, or "
                f"missing_label='{missing_label}'."
            )
        return labels == missing_label
    missing = np.zeros(len(labels), dtype=bool)
    if isinstance(missing_label, (int, float, np.number)):
        missing = labels == missing_label
    return missing | np.isnan(labels) if kind == "f" else missing


def _is_null(label: Any) -> bool:
    """Whether a label is None, NaN or pandas' NA (whose comparisons are NA too)."""
    return label is None or type(label).__name__ == "NAType" or label != label


def _check_whole_numbers(labels: NDArray[Any], missing: NDArray[np.bool_]) -> None:
    bad = ~missing & ~(np.isfinite(labels) & (labels == np.round(labels)))
    if bad.any():
        at = int(bad.argmax())
        raise LabelError(
            f"Unknown label type: continuous. y[{at}] is {labels[at]}, but classes "
            "are named by whole numbers or strings: bin a continuous target first."
        )
