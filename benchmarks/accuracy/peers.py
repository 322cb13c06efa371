"""Other tools beside ours, each with its own defaults, on the same splits of a CPU.

``python -m benchmarks.accuracy.peers`` fits, in one run, what a user of each would
write: scikit-learn's `LabelSpreading` on the rows, scikit-network's classifiers on the
graph, a plain script of PyG's GCN (200 epochs, the best by validation), and
`TIFAGCLClassifier()`. Nothing is tuned. Only the last two look at validation nodes, to
choose when to stop.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils import Bunch
from sknetwork.classification import (
    DiffusionClassifier,
    PageRankClassifier,
    Propagation,
)
from sknetwork.gnn import GNNClassifier as NetworkOfScikitNetwork

from benchmarks._report import parse, print_table, write_report
from benchmarks.data import load, paper_splits, visible_labels
from benchmarks.speed.pyg import PlainScript
from sktifa import TIFAGCLClassifier

Nodes = NDArray[np.int64]
Peer = Callable[[Bunch, Nodes, Nodes, int], NDArray[Any]]


def on_rows(data: Bunch, train: Nodes, val: Nodes, seed: int) -> NDArray[Any]:
    """Spread labels over the nearest rows: the graph isn't seen."""
    rows = data.graph.features
    rows = rows.toarray() if sparse.issparse(rows) else rows
    model = LabelSpreading(kernel="knn").fit(rows, visible_labels(data, train))
    return model.transduction_


def on_graph(kind: Any) -> Peer:
    """Make a peer of one of scikit-network's classifiers by propagation."""

    def predict(data: Bunch, train: Nodes, val: Nodes, seed: int) -> NDArray[Any]:
        # The older class of container is the one that scikit-network works in.
        adjacency = sparse.csr_matrix(data.graph.adjacency)
        return kind().fit_predict(adjacency, visible_labels(data, train))

    return predict


def network(data: Bunch, train: Nodes, val: Nodes, seed: int) -> NDArray[Any]:
    """Train scikit-network's GCN, hidden 64, as long as it does by itself."""
    model = NetworkOfScikitNetwork(
        [64, int(data.target.max()) + 1], activations=["Relu", "Softmax"]
    )
    adjacency = sparse.csr_matrix(data.graph.adjacency)
    features = sparse.csr_matrix(data.graph.features)
    labels = visible_labels(data, train)
    return model.fit_predict(adjacency, features, labels, random_state=seed)


def script(data: Bunch, train: Nodes, val: Nodes, seed: int) -> NDArray[Any]:
    """Train PyG's GCN."""
    return PlainScript(data, train, val, "cpu").fit_predict(200)


def ours(data: Bunch, train: Nodes, val: Nodes, seed: int) -> NDArray[Any]:
    """Train what a newcomer gets."""
    model = TIFAGCLClassifier(random_state=seed, device="cpu")
    given = {"X_val": data.graph[val], "y_val": data.target[val]}
    model.fit(data.graph[train], data.target[train], **given)
    return model.predict(data.graph)


PEERS: dict[str, Peer] = {
    "scikit-learn LabelSpreading, rows alone": on_rows,
    "scikit-network Propagation": on_graph(Propagation),
    "scikit-network PageRankClassifier": on_graph(PageRankClassifier),
    "scikit-network DiffusionClassifier": on_graph(DiffusionClassifier),
    "scikit-network GNNClassifier": network,
    "PyG, a script with GCNConv": script,
    "sktifa TIFAGCLClassifier": ours,
}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--graphs", nargs="+", default=["Cora", "CiteSeer"])
    parser.add_argument("--splits", type=int, default=5)
    options = parse(parser)
    rows = []
    for name in options.graphs:
        data = load(name)
        splits = paper_splits(data, options.splits)
        ours(data, *splits[0][:2], 0)  # compiles
        for peer, predict in PEERS.items():
            right, seconds = [], []
            for seed, (train, val, test) in enumerate(splits):
                begin = time.perf_counter()
                predicted = predict(data, train, val, seed)
                seconds.append(time.perf_counter() - begin)
                right.append(100 * np.mean(predicted[test] == data.target[test]))
            rows.append(
                {
                    "graph": name,
                    "tool": peer,
                    "test accuracy": float(np.mean(right)),
                    "± over splits": float(np.std(right, ddof=1)),
                    "seconds": float(np.median(seconds)),
                }
            )
            print_table(rows[-1:])
    seeds = range(options.splits)
    write_report("peers_cpu", rows, seeds=seeds, device="cpu", commit=options.commit)


if __name__ == "__main__":
    main()
