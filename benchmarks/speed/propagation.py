"""Label propagation on the CPU, beside scikit-network's classifiers.

``python -m benchmarks.speed.propagation`` times, in one run and on the same labels
(20 a class), our exact solution and scikit-network's classifiers, and scores all on
the unlabelled nodes:

- ours by the largest Z, and by the largest Z* (tempered by the features);
- `PageRankClassifier` with the same restart probability and its default of 10 sweeps,
  which stops it early where the restart probability is small;
- the same with as many sweeps as make plain iteration exact to 1e-6;
- `DiffusionClassifier`.

scikit-network works on one core, and so do we unless ``--threads`` says otherwise.
The bar: faster than `PageRankClassifier` on every graph, at equal or better accuracy.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import Bunch
from sknetwork.base import Algorithm
from sknetwork.classification import DiffusionClassifier, PageRankClassifier

from benchmarks._report import parse, report
from benchmarks.data import GRAPHS, load, paper_splits
from sktifa.information.propagation import label_propagation
from sktifa.information.tig import annotated_information

RESTART_PROBABILITIES = (0.05, 0.15)


def measure(data: Bunch, splits: list, alpha: float, device: str) -> dict[str, float]:
    """Return median milliseconds and mean accuracy of each method."""
    graph, target = data.graph, data.target
    n_classes = target.max() + 1
    # The older class of container is the one that scikit-network works in.
    adjacency = sparse.csr_matrix(graph.adjacency)
    exact = math.ceil(math.log(1e-6) / math.log(1 - alpha))

    def ours(labels: np.ndarray) -> np.ndarray:
        sources = labels[:, None] == np.arange(n_classes)
        return label_propagation(
            graph.adjacency, sources, restart_probability=alpha, device=device
        ).argmax(axis=1)

    def tempered(labels: np.ndarray) -> np.ndarray:
        return annotated_information(
            graph, labels, n_classes, restart_probability=alpha, device=device
        ).argmax(axis=1)

    def theirs(classifier: Algorithm) -> Callable[[np.ndarray], np.ndarray]:
        return lambda labels: classifier.fit_predict(adjacency, labels)

    methods = {
        "ours": ours,
        "ours Z*": tempered,
        "PageRank": theirs(PageRankClassifier(1 - alpha)),
        "exact PageRank": theirs(PageRankClassifier(1 - alpha, n_iter=exact)),
        "diffusion": theirs(DiffusionClassifier()),
    }
    row = {}
    for name, predict in methods.items():
        times, scores = [], []
        for i, (train, *held_out) in enumerate(splits):
            labels = np.full(len(target), -1)
            labels[train] = target[train]
            if i == 0:
                predict(labels)
            start = time.perf_counter()
            predicted = predict(labels)
            times.append(time.perf_counter() - start)
            nodes = np.concatenate(held_out)
            scores.append(np.mean(predicted[nodes] == target[nodes]))
        row[f"{name} ms"] = 1e3 * float(np.median(times))
        row[f"{name} acc"] = float(np.mean(scores))
    return row


def main() -> None:
    """Print the table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parse(parser)
    torch.set_num_threads(options.threads)
    rows = []
    for name in GRAPHS:
        data = load(name)
        splits = paper_splits(data, options.splits)
        for alpha in RESTART_PROBABILITIES:
            row = measure(data, splits, alpha, options.device)
            rows.append(
                {
                    "graph": name,
                    "alpha": alpha,
                    **row,
                    "PageRank / ours": row["PageRank ms"] / row["ours ms"],
                    "PageRank / ours Z*": row["PageRank ms"] / row["ours Z* ms"],
                }
            )
    report("speed_propagation", rows, options)


if __name__ == "__main__":
    main()
