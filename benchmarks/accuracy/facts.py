"""What is told of the graphs alone, without a model: Table 4 and Figure 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import xlogy

from benchmarks.data import GRAPHS, draw_split, load, visible_labels
from sktifa.information.tig import annotated_information, label_distribution

__all__ = ["FACTS"]

Record = dict[str, Any]

N_BINS, N_SPLITS = 20, 5


def data_set(graph: str) -> list[Record]:
    """Tell the size of a data set (Table 4)."""
    data = load(graph)
    n_classes = int(data.target.max()) + 1
    return [
        {
            "method": "data set",
            "graph": graph,
            "nodes": data.graph.n_nodes,
            "edges": data.graph.n_edges,
            "features": data.graph.n_features,
            "labeled": 20 * n_classes,
            "classes": n_classes,
            "without_label": int((data.target < 0).sum()),
        }
    ]


def same_class_by_distance(graph: str) -> list[Record]:
    """Tell the share of pairs of one class by rank of label distance (Figure 2).

    The distance is the divergence of what arrives at two nodes (Eq. 12). Ranks are
    over all ordered pairs of nodes, and over those that an edge joins.
    """
    data = load(graph)
    rows: dict[str, list[np.ndarray]] = {"All": [], "Neighbor": []}
    for number in range(N_SPLITS):
        split = draw_split(data, number, 20, "transductive")
        y = data.target
        information = annotated_information(
            data.graph, visible_labels(data, split.train), int(y.max()) + 1
        )
        p = label_distribution(information)
        # KL(p_i || p_j) of all pairs: Cora's fit in memory.
        distance = xlogy(p, p).sum(axis=1)[:, None] - p @ np.log(p).T
        adjacent = data.graph.adjacency.toarray() > 0
        known = y >= 0
        apart = ~np.eye(len(y), dtype=bool) & known[:, None] & known
        same = y[:, None] == y
        for name, pairs in (("All", apart), ("Neighbor", apart & adjacent)):
            order = np.argsort(distance[pairs], kind="stable")
            parts = np.array_split(same[pairs][order], N_BINS)
            rows[name].append(np.array([part.mean() for part in parts]))
    return [
        {
            "method": name,
            "graph": graph,
            "labels": 20,
            "n_splits": N_SPLITS,
            "share": np.mean(values, axis=0).round(5).tolist(),
            "share_std": np.std(values, axis=0, ddof=1).round(5).tolist(),
        }
        for name, values in rows.items()
    ]


# How a table or figure is told, and of which graphs.
FACTS: dict[str, tuple[Callable[[str], list[Record]], tuple[str, ...]]] = {
    "table4": (data_set, (*GRAPHS, "DBLP", "Physics")),
    "figure2": (same_class_by_distance, ("Cora",)),
}
