"""Graphs of PyTorch Geometric and networkx, read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

from sktifa.exceptions import GraphError, LabelError, ParameterError
from sktifa.graph.features import as_dense
from sktifa.graph.names import as_list, plural

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

    from sktifa.graph.container import Graph

__all__ = ["as_networkx", "as_pyg", "networkx_parts", "pyg_parts", "with_labels"]


def pyg_parts(data: Data) -> dict[str, Any]:
    """Return what `Graph.from_edge_index` is given of a ``Data``."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None or hasattr(data, "edge_index_dict"):
        raise GraphError(
            "data has no edge_index: give a homogeneous torch_geometric Data "
            "(HeteroData.to_homogeneous() makes one; "
            "ToSparseTensor(remove_edge_index=False) keeps edge_index)"
        )
    x = getattr(data, "x", None)
    # Data.num_nodes would guess from the edges; only a stated count is taken.
    counted = "num_nodes" in data or "y" in data
    if x is None and not counted:
        raise GraphError(
            "data has neither x nor num_nodes, and its edges say nothing of nodes "
            "without edges: set data.num_nodes"
        )
    return {
        "edge_index": edge_index,
        "features": x,
        "edge_weight": getattr(data, "edge_weight", None),
        "n_nodes": int(data.num_nodes) if x is None else None,
    }


def networkx_parts(
    graph: networkx.Graph,
    names: list[Any],
    features: str | Sequence[str] | None,
    weight: str | None,
) -> dict[str, Any]:
    """Return what `Graph.from_edge_index` is given of a graph with these nodes."""
    number = {name: i for i, name in enumerate(names)}
    ends = [
        (number[u], number[v], 1.0 if weight is None else w)
        for u, v, w in graph.edges(data=weight, default=1.0)
    ]
    try:
        table = np.array(ends, dtype=np.float64).reshape(-1, 3)
    except (TypeError, ValueError) as error:
        raise GraphError(
            f"attribute {weight!r} of an edge is no number ({error}): name another "
            "one as weight, or weight=None for edges that are all alike"
        ) from error
    edges, weights = table[:, :2].T.astype(np.int64), table[:, 2]
    if not graph.is_directed():
        edges = np.hstack([edges, edges[::-1]])
        weights = np.tile(weights, 2)
    return {
        "edge_index": edges,
        "features": None if features is None else _attributes(graph, names, features),
        "edge_weight": weights,
        "n_nodes": len(names),
        "node_names": None if names == list(range(len(names))) else names,
    }


def _attributes(
    graph: networkx.Graph, names: list[Any], keys: str | Sequence[str]
) -> NDArray[np.float64]:
    keys = [keys] if isinstance(keys, str) else list(keys)
    if not keys:
        raise GraphError(
            "features names no attribute: pass features=None to give every "
            "node a feature of its own"
        )
    rows: list[NDArray[Any]] = []
    for name in names:
        attributes = graph.nodes[name]
        for key in keys:
            if key not in attributes:
                raise GraphError(
                    f"node {name!r} has no attribute {key!r}: set it for every node"
                )
        row = np.hstack([np.atleast_1d(attributes[key]) for key in keys])
        if rows and row.shape != rows[0].shape:
            raise GraphError(
                f"node {name!r} has {row.size} features, node {names[0]!r} has "
                f"{rows[0].size}: give every node vectors of the same length"
            )
        rows.append(row)
    return np.array(rows)


def as_pyg(graph: Graph, y: ArrayLike | None) -> Data:
    """Do the work of `Graph.to_pyg`."""
    import torch
    from torch_geometric.data import Data

    arcs = graph.adjacency.tocoo()
    data = Data(
        x=torch.from_numpy(np.array(as_dense(graph.features))),
        edge_index=torch.from_numpy(np.stack(arcs.coords).astype(np.int64)),
        edge_weight=torch.from_numpy(np.array(arcs.data)),
    )
    if not graph.is_whole:
        data.selected = torch.zeros(graph.n_nodes, dtype=torch.bool)
        data.selected[torch.from_numpy(graph.nodes.copy())] = True
    if y is not None:
        labels = np.asarray(y)
        if labels.shape != (len(graph),) or labels.dtype.kind not in "biuf":
            raise GraphError(
                f"y must hold {len(graph)} numbers, one a selected node; got "
                f"shape {labels.shape} and dtype {labels.dtype}"
            )
        dtype = np.float32 if labels.dtype.kind == "f" else np.int64
        full = np.full(graph.n_nodes, -1, dtype=dtype)
        full[graph.nodes] = labels
        data.y = torch.from_numpy(full)
    return data


def as_networkx(graph: Graph) -> networkx.Graph:
    """Do the work of `Graph.to_networkx`."""
    import networkx as nx

    result = nx.from_scipy_sparse_array(graph.adjacency)
    nx.set_node_attributes(result, dict(enumerate(as_dense(graph.features))), "x")
    nx.set_node_attributes(result, False, "selected")
    for node in graph.nodes.tolist():
        result.nodes[node]["selected"] = True
    if graph.node_names is None:
        return result
    return nx.relabel_nodes(result, dict(enumerate(graph.node_names.tolist())))


def with_labels(
    graph: Graph, values: Any, label: str | None, return_X_y: bool, more: dict[str, Any]
) -> Any:
    """Return what a door returns that was asked for labels, or the graph alone."""
    from sktifa.frames import column_of, labels_of

    if label is None:
        if return_X_y:
            raise ParameterError("return_X_y needs y: name the labels with label=")
        return graph
    if values is None:
        raise GraphError(f"no node has the attribute {label!r}: name the labels' own")
    shape = getattr(values, "shape", (len(values),))
    if shape != (graph.n_nodes,):
        raise LabelError(
            f"{label!r} has shape {tuple(shape)}: give each of the "
            f"{plural(graph.n_nodes, 'node')} one label"
        )
    target = labels_of(column_of(as_list(values), f"attribute {label!r}"))
    return (graph, target) if return_X_y else Bunch(graph=graph, target=target, **more)
