"""What a newcomer gets where labels are few, beside a GCN and label propagation.

``python -m benchmarks.accuracy.few`` fits `TIFAGCLClassifier()` as it comes, without
validation nodes, with 1, 2 and 5 labels a class: on the digits of ``sktifa demo``,
tables of scikit-learn's and two graphs of the paper, each method on the same splits
of a CPU. With ``--graphs Photo`` on that one, which takes as long as all of them.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils import Bunch

from benchmarks._report import parse, print_table, write_report
from benchmarks.accuracy.comparison import paired
from benchmarks.accuracy.defaults import UNIFORM, outcomes
from benchmarks.baselines import LabelPropagationClassifier
from benchmarks.data import load, paper_splits, visible_labels
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.graph import as_graph

LABELS = (1, 2, 5)
TABLES = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer}
GRAPHS = ["digits", *TABLES, "Cora", "CiteSeer"]
OURS = "TIFA-GCL"
NETWORKS = {
    OURS: TIFAGCLClassifier(),
    "GCN": GNNClassifier(),
    "uniform weights": TIFAGCLClassifier(**UNIFORM),
}


def load_any(name: str) -> Bunch:
    """Load a graph, or make one of a table's rows and their nearest neighbours."""
    if name not in TABLES:
        return load(name)
    X, y = TABLES[name](return_X_y=True)
    return Bunch(graph=as_graph(StandardScaler().fit_transform(X)), target=y)


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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--graphs", nargs="+", default=GRAPHS, choices=[*GRAPHS, "Photo"]
    )
    parser.add_argument("--splits", type=int, default=10)
    options = parse(parser)
    device, rows, kept = torch.device("cpu"), [], {}
    for name in options.graphs:
        data = load_any(name)
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
            least = np.subtract(found[OURS], found["GCN"]).min()
            row["least minus GCN"] = f"{least:+.1f}"
            rows.append(row)
            kept[f"{name}, {labels} labels"] = found
            print_table(rows[-1:])
    named = [] if options.graphs == GRAPHS else options.graphs
    write_report(
        "_".join(["few", *named, "cpu"]).lower(),
        rows,
        seeds=range(options.splits),
        device=device,
        commit=options.commit,
        accuracies=kept,
    )


if __name__ == "__main__":
    main()
