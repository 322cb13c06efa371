"""The picture of the idea: who is reached by labels, and who gains from contrast.

``python -m benchmarks.accuracy.idea [--splits 20]`` draws Cora with 20 labels a class,
coloured by the information gain, beside the accuracy by bin of the gain.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._report import parse, print_table, write_report
from benchmarks.data import load, paper_splits
from sktifa import (
    GNNClassifier,
    Graph,
    LabelPropagationTIG,
    TIFAGCLClassifier,
)
from sktifa.diagnostics import accuracy_by_gain

PICTURE = Path(__file__).parents[2] / "docs" / "_static" / "idea.png"
LABELS, N_BINS = 20, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=20)
    options = parse(parser)
    cora = load("Cora")
    graph, y = cora.graph, cora.target
    splits = paper_splits(cora, options.splits, labels=LABELS)
    correct: dict[str, list[np.ndarray]] = {"GCN": [], "TIFA-GCL": []}
    for seed, (train, val, test) in enumerate(splits):
        gain = LabelPropagationTIG().fit(graph[train], y[train]).gain_
        if seed == 0:
            shown = gain, train
        for name, model in (
            ("GCN", GNNClassifier(random_state=seed)),
            ("TIFA-GCL", TIFAGCLClassifier(random_state=seed)),
        ):
            model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
            right = model.predict(graph[test]) == y[test]
            correct[name].append(accuracy_by_gain(gain[test], right, N_BINS))
    bins = {name: 100 * np.nanmean(values, axis=0) for name, values in correct.items()}
    rows = [
        {"bin of gain": i + 1, **{name: float(bins[name][i]) for name in bins}}
        for i in range(N_BINS)
    ]
    print_table(rows)
    write_report(
        "idea_cora_cpu",
        rows,
        seeds=range(options.splits),
        device="cpu",
        commit=options.commit,
    )
    draw(graph, *shown, bins)


def draw(
    graph: Graph, gain: np.ndarray, labeled: np.ndarray, bins: dict[str, Any]
) -> None:
    import networkx as nx
    from matplotlib.figure import Figure
    from scipy.sparse.csgraph import connected_components

    part = connected_components(graph.adjacency)[1]
    nodes = np.flatnonzero(part == np.bincount(part).argmax())
    at = nx.spring_layout(graph.subgraph(nodes).to_networkx(), seed=0, iterations=100)
    place = np.array([at[i] for i in range(len(nodes))])
    rank = gain[nodes].argsort().argsort() / (len(nodes) - 1)

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    dots = left.scatter(*place.T, c=rank, s=5, cmap="viridis", linewidths=0)
    is_labeled = np.isin(nodes, labeled)
    left.scatter(
        *place[is_labeled].T, marker="*", s=60, c="crimson", edgecolors="white"
    )
    left.set_title(f"Cora: what arrives of {is_labeled.sum()} labels (stars)")
    left.set_axis_off()
    bar = figure.colorbar(dots, ax=left, ticks=[0, 1], shrink=0.7)
    bar.ax.set_yticklabels(["least\ninformation", "most"])

    number = np.arange(1, N_BINS + 1)
    for name, color, offset in (("GCN", "0.6", -0.2), ("TIFA-GCL", "C0", 0.2)):
        drawn = right.bar(number + offset, bins[name], 0.38, color=color, label=name)
        right.bar_label(drawn, fmt="%.0f", fontsize=8)
    right.set(
        title="accuracy by how much arrives",
        xlabel="nodes by information gain (least first)",
        ylabel="accuracy, %",
        ylim=(0.8 * min(bins["GCN"]), 100),
        xticks=number,
    )
    right.legend(loc="upper left", frameon=False)
    right.spines[["top", "right"]].set_visible(False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
