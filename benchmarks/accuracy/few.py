"""What a newcomer gets where labels are few, beside a GCN and label propagation.

``python -m benchmarks.accuracy.few`` fits `TIFAGCLClassifier()` as it comes, without
validation nodes, with 1, 2 and 5 labels a class: on the digits of ``sktifa demo`` and
three graphs of the paper, each method on the same splits of a CPU.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.semi_supervised import LabelSpreading

from benchmarks._report import parse, print_table, write_report
from benchmarks.accuracy.comparison import paired
from benchmarks.accuracy.defaults import UNIFORM, outcomes
from benchmarks.baselines import LabelPropagationClassifier
from benchmarks.data import load, paper_splits, visible_labels
from sktifa import GNNClassifier, TIFAGCLClassifier

LABELS = (1, 2, 5)
OURS = "TIFA-GCL"
NETWORKS = {
    OURS: TIFAGCLClassifier(),
    "GCN": GNNClassifier(),
    "uniform weights": TIFAGCLClassifier(**UNIFORM),
}


def propagated(data: Any, train: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the class of which most arrives (Eq. 1)."""
    model = LabelPropagationClassifier()
    return model.fit(data.graph[train], data.target[train]).predict(data.graph)


def spread(data: Any, train: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what scikit-learn's `LabelSpreading` finds on the same graph."""
    adjacency = sparse.csr_matrix(data.graph.adjacency)  # the container it works in
    model = LabelSpreading(kernel=lambda rows, others: adjacency)
    model.fit(np.zeros((data.graph.n_nodes, 1)), visible_labels(data, train))
    return model.transduction_


def told(data: Any, splits: list, device: torch.device) -> dict[str, list[float]]:
    """Return each method's test accuracies, split by split, in percent."""
    found = {
        name: outcomes(model, data.graph, data.target, splits, device, stops=False)[1]
        for name, model in NETWORKS.items()
    }
    for name, predict in (
        ("label propagation", propagated),
        ("LabelSpreading", spread),
    ):
        found[name] = [
            100 * np.mean(predict(data, train)[test] == data.target[test])
            for train, _, test in splits
        ]
    return found


def main() -> None:
    """Measure, print and write."""
    graphs = ("digits", "Cora", "CiteSeer", "Photo")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--graphs", nargs="+", default=graphs, choices=graphs)
    parser.add_argument("--splits", type=int, default=10)
    options = parse(parser)
    device, rows, kept = torch.device("cpu"), [], {}
    for name in options.graphs:
        data = load(name)
        for labels in LABELS:
            splits = [
                tuple(nodes[data.target[nodes] >= 0] for nodes in split)
                for split in paper_splits(data, options.splits, labels=labels)
            ]
            found = told(data, splits, device)
            row = {"graph": name, "labels": labels, "splits": len(splits)}
            for method, accuracy in found.items():
                row[method] = f"{np.mean(accuracy):.1f} ± {np.std(accuracy):.1f}"
            for method, accuracy in found.items():
                if method != OURS:
                    ahead = paired(found[OURS], accuracy)
                    row[f"minus {method}"] = (
                        "{difference:+.2f} ± {standard_error:.2f}, p {p:.3f}"
                    ).format(**ahead)
            rows.append(row)
            kept[f"{name}, {labels} labels"] = found
            print_table(rows[-1:])
    write_report(
        "few_cpu",
        rows,
        seeds=range(options.splits),
        device=device,
        commit=options.commit,
        accuracies=kept,
    )


if __name__ == "__main__":
    main()
