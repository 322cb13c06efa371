"""A table of nodes and a table of edges, brought together by the nodes' ids."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import _is_fitted

from sktifa.exceptions import GraphError, LabelError, ParameterError
from sktifa.frames.encoder import TableEncoder, check_columns, listed, warn_of_empty
from sktifa.frames.table import Column, Table

__all__ = ["GraphParts", "join", "labels_of"]

logger = logging.getLogger(__name__)


@dataclass
class GraphParts:
    """What a graph is made of."""

    node_names: NDArray[Any] | None  # the ids; None where they only number the rows
    features: Any  # what the encoder made of the columns, dense or sparse
    feature_names: list[str] | None
    edge_index: NDArray[np.int64]  # (2, n_arcs): every edge both ways
    edge_weight: NDArray[np.float64] | None
    label: Column | None
    encoder: Any  # as it was fitted
    report: list[str]  # what was done


def join(
    nodes: Table,
    edges: Table,
    *,
    id: Any = None,
    source: Any = "source",
    target: Any = "target",
    weight: Any = None,
    features: Sequence[Any] | str | None = None,
    label: Any = None,
    encoder: Any = "auto",
) -> GraphParts:
    """Make the parts of a graph; the parameters are those of `Graph.from_pandas`.

    Raises
    ------
    GraphError
        Naming the first row at fault, or the column that isn't there.
    """
    for column, parameter in [(source, "source"), (target, "target")]:
        edges.require(column, parameter)
    if weight is not None:
        edges.require(weight, "weight")
    if label is not None:
        nodes.require(label, "label")
    report: list[str] = []
    id, names = _names(nodes, id, report)
    chosen = _chosen(nodes, id, label, features)
    column = None if label is None else nodes[label]
    edge_index, edge_weight = _edges(
        edges, source, target, weight, names, nodes.name, report
    )
    matrix, feature_names, encoder = _encoded(nodes, chosen, encoder, report)
    if column is not None:
        report.append(
            f"labels: column {label!r}, {np.count_nonzero(~column.missing):,} of "
            f"{len(nodes):,} nodes have one"
        )
    for line in report:
        logger.info(line)
    numbered = names.dtype == np.int64 and np.array_equal(names, np.arange(len(names)))
    return GraphParts(
        None if numbered else names,
        matrix,
        feature_names,
        edge_index,
        edge_weight,
        column,
        encoder,
        report,
    )


def labels_of(column: Column) -> NDArray[Any]:
    """Return labels as classifiers take them.

    Whole numbers as int64 with -1 where missing; text as objects with None. Times are
    refused.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.frames.join import labels_of
    >>> from sktifa.frames.table import Column
    >>> labels_of(Column("number", np.array([3.0, np.nan])))
    array([ 3, -1])
    """
    values, missing = column.values, column.missing
    if column.kind == "time":
        raise LabelError("the labels are times: name classes by text or whole numbers")
    if column.kind == "flag":
        if not missing.any():
            return values.astype(bool)
        flags = [
            None if gone else bool(v) for v, gone in zip(values, missing, strict=True)
        ]
        return np.array(flags, dtype=object)
    if values.dtype.kind == "f":
        known = values[~missing]
        if not (np.isfinite(known).all() and (known == np.round(known)).all()):
            return values
        whole = np.full(len(values), -1, dtype=np.int64)
        whole[~missing] = known
        return whole
    return values


def _names(nodes: Table, id: Any, report: list[str]) -> tuple[Any, NDArray[Any]]:
    """Return the column with the ids, None if it is none, and the ids."""
    names = None
    if id is None:
        names = nodes.index()
        where = "the index"
        if names is None and "id" in nodes.columns:
            id = "id"
    if id is not None:
        nodes.require(id, "id")
        names, where = nodes.ids(id), f"column {id!r}"
    if names is None:
        names, where = np.arange(len(nodes)), "the number of the row"
    report.append(f"nodes: {len(nodes):,} rows of {nodes.name}, named by {where}")
    first: dict[Any, int] = {}
    for row, name in enumerate(names.tolist()):
        if name is None:
            raise GraphError(
                f"{nodes.place(row)} has no id ({where}): give every node one"
            )
        try:
            before = first.setdefault(name, row)
        except TypeError as error:
            raise GraphError(
                f"{nodes.place(row)} has the id {name!r}: ids must be text or numbers"
            ) from error
        if before != row:
            raise GraphError(
                f"node {name!r} stands twice, in {nodes.place(before)} and in "
                f"{nodes.place(row)}: keep one row a node"
            )
    return id, names


def _chosen(
    nodes: Table, id: Any, label: Any, features: Sequence[Any] | str | None
) -> list[Any]:
    if features is None:
        return [column for column in nodes.columns if column not in (id, label)]
    chosen = [features] if isinstance(features, str) else list(features)
    for column in chosen:
        nodes.require(column, "features")
        if column == label or column == id:
            role = "label" if column == label else "id"
            raise ParameterError(
                f"features has {column!r}, which is the {role}: leave it out, or the "
                "model learns what it is to predict"
            )
    return chosen


def _edges(
    edges: Table,
    source: Any,
    target: Any,
    weight: Any,
    names: NDArray[Any],
    nodes_name: str,
    report: list[str],
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """Return every edge both ways, as positions of its ends, and the weights."""
    ends = []
    for column in (source, target):
        ids = edges.ids(column)
        place = _places(names, ids)
        if (place < 0).any():
            at = int((place < 0).argmax())
            if ids[at] is None:
                raise GraphError(
                    f"{edges.place(at)} has no {column}: drop the row or mend it"
                )
            more = np.count_nonzero(place < 0) - 1
            raise GraphError(
                f"{edges.place(at)} has {column} {ids.tolist()[at]!r}, which is no id "
                f"of {nodes_name}{f' (and {more:,} more)' if more else ''}: add the "
                "node, drop the row, or name the column of nodes that has the ids "
                "with id="
            )
        ends.append(place)
    weights = None if weight is None else _weights(edges, weight)
    begin, end = ends
    pair = np.minimum(begin, end) * len(names) + np.maximum(begin, end)
    loops = np.count_nonzero(begin == end)
    pair = np.sort(pair[begin != end])
    n_edges = np.count_nonzero(np.diff(pair)) + (len(pair) > 0)
    again = len(begin) - loops - n_edges
    unused = [c for c in edges.columns if c not in (source, target, weight)]
    report.append(
        f"edges: {n_edges:,} from {len(begin):,} rows of {edges.name}"
        + (f"; {loops:,} from a node to itself left out" if loops else "")
        + (f"; {again:,} rows give an edge again" if again else "")
        + (f"; columns not used: {listed(unused)}" if unused else "")
    )
    # A weight given one way only holds both ways; one given each way stays, so that
    # the graph sees where the two differ.
    one_way = begin * len(names) + end
    other_way = end * len(names) + begin
    alone = ~np.isin(other_way, one_way)
    arcs = np.stack([np.r_[begin, end[alone]], np.r_[end, begin[alone]]])
    return arcs, None if weights is None else np.r_[weights, weights[alone]]


def _places(names: NDArray[Any], ids: NDArray[Any]) -> NDArray[np.int64]:
    """Return the position of each id among the names, -1 if it is none of them."""
    if names.dtype == ids.dtype == np.int64 and len(names):
        order = np.argsort(names)
        ordered = names[order]
        at = np.searchsorted(ordered, ids).clip(max=len(names) - 1)
        return np.where(ordered[at] == ids, order[at], -1)
    number = {name: i for i, name in enumerate(names.tolist())}
    # One file's 12 may be another's "12".
    by_text = {str(name): i for name, i in number.items()}
    if len(by_text) < len(number):
        by_text = {}
    place = [
        number.get(name, by_text.get(str(name), -1)) if name is not None else -1
        for name in ids.tolist()
    ]
    return np.array(place, dtype=np.int64)


def _weights(edges: Table, weight: Any) -> NDArray[np.float64]:
    column = edges[weight]
    if column.kind not in ("number", "flag"):
        at = int((~column.missing).argmax())
        raise GraphError(
            f"column {weight!r} of {edges.name} is no number ({edges.place(at)} has "
            f"{column.values[at]!r}): name another one with weight="
        )
    values = column.values.astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        at = int(bad.argmax())
        raise GraphError(
            f"{edges.place(at)} has the weight {values[at]:g}: weights must be there, "
            "finite and not negative"
        )
    return values


def _encoded(
    nodes: Table, chosen: list[Any], encoder: Any, report: list[str]
) -> tuple[Any, list[str] | None, Any]:
    """Return features, their names and the fitted encoder."""
    if isinstance(encoder, str) and encoder not in ("auto", "passthrough"):
        raise ParameterError(
            f"encoder is {encoder!r}: give 'auto', 'passthrough' or a transformer"
        )
    if not chosen:
        report.append("features: none; every node gets one of its own")
        return None, None, None
    if isinstance(encoder, str) and encoder == "passthrough":
        report.append(f"features: {listed(chosen)}, as they are")
        return _passed_through(nodes, chosen), [str(c) for c in chosen], None
    if isinstance(encoder, str):
        told = {nodes[column].kind for column in chosen} - {"number", "flag"}
        skrub = told and importlib.util.find_spec("skrub") is not None
        encoder = _table_vectorizer() if skrub else TableEncoder()
    check_columns(nodes, chosen)
    ours = isinstance(encoder, TableEncoder)
    given = nodes.select(chosen) if ours else nodes.frame(chosen)
    if not _is_fitted(encoder):
        if not ours:
            warn_of_empty(nodes, chosen)
        encoder = clone(encoder).fit(given)
    matrix = encoder.transform(given)
    # A frame would be put in order by its index, which is that of the rows.
    matrix = matrix if sp.issparse(matrix) else np.asarray(matrix)
    names = None
    if hasattr(encoder, "get_feature_names_out"):
        names = [str(name) for name in encoder.get_feature_names_out()]
    report.append(
        f"features: {matrix.shape[1]:,} made of {len(chosen):,} columns by "
        f"{type(encoder).__name__}"
    )
    report += _done(encoder)
    return matrix, names, encoder


def _passed_through(nodes: Table, chosen: list[Any]) -> NDArray[np.float32]:
    check_columns(nodes, chosen)
    matrix = np.empty((len(nodes), len(chosen)), dtype=np.float32)
    for i, name in enumerate(chosen):
        column = nodes[name]
        if column.kind not in ("number", "flag"):
            raise GraphError(
                f"column {name!r} of {nodes.name} holds no numbers: encoder='auto' "
                "encodes it, features= leaves it out"
            )
        if column.missing.any():
            at = int(column.missing.argmax())
            raise GraphError(
                f"{nodes.place(at)} has no value in column {name!r}: encoder='auto' "
                "fills gaps"
            )
        matrix[:, i] = column.values
    return matrix


def _table_vectorizer() -> Any:
    """Make skrub's encoder, with numbers filled and scaled as ours does it."""
    import skrub

    return skrub.TableVectorizer(
        numeric=TableEncoder(),
        datetime=make_pipeline(skrub.DatetimeEncoder(), TableEncoder()),
        high_cardinality=skrub.StringEncoder(random_state=0),
    )


def _done(encoder: Any) -> list[str]:
    """Say what an encoder did with which columns."""
    if hasattr(encoder, "report_"):
        return encoder.report_
    by_kind: dict[str, list[Any]] = {}
    for name, kind in getattr(encoder, "column_to_kind_", {}).items():
        by_kind.setdefault(kind, []).append(name)
    return [f"{kind.replace('_', ' ')}: {listed(n)}" for kind, n in by_kind.items()]
