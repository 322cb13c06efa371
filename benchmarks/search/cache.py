"""What `memory=` saves: computations counted and time, over 100 candidates.

``python -m benchmarks.search.cache`` runs GridSearchCV over 100 candidates of TIFA-GCL
on Cora with a few epochs each, without and with :class:`sktifa.memory.LocalMemory`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from unittest.mock import patch

from sklearn.model_selection import GridSearchCV

from benchmarks.data import load, paper_splits
from benchmarks.search._common import report
from sktifa import TIFAGCLClassifier
from sktifa.classifiers import tifa
from sktifa.memory import LocalMemory
from sktifa.model_selection import predefined_validation_split

COUNTED = ("annotated_information", "sample_pairs", "graph_distances")
# 5 x 2 x 2 x 5 candidates: half of the parameters leave static work untouched.
GRID = {
    "restart_probability": [0.05, 0.1, 0.15, 0.2, 0.25],
    "hop_weight": [0.25, 0.5],
    "negative_weight": [0.25, 0.5],
    "weight_max": [1.0, 1.5, 2.0, 2.5, 3.0],
}


def main() -> None:
    """Count and time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    data = load("Cora")
    train, val, _ = paper_splits(data, 1)[0]
    nodes, cv = predefined_validation_split(train, val)
    rows = []
    for memory in (None, LocalMemory()):
        counts: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        with patch.multiple(
            tifa,
            **{
                name: _counted(getattr(tifa, name), name, counts, seconds)
                for name in COUNTED
            },
        ):
            model = TIFAGCLClassifier(
                max_iter=options.epochs,
                device=options.device,
                random_state=0,
                memory=memory,
            )
            search = GridSearchCV(model, GRID, cv=cv, refit=False)
            begin = time.perf_counter()
            search.fit(data.graph[nodes], data.target[nodes])
            total = time.perf_counter() - begin
        row = {"memory": "none" if memory is None else "LocalMemory"}
        row.update({name: counts[name] for name in COUNTED})
        row.update({"static work, s": sum(seconds.values()), "search, s": total})
        rows.append(row)
    report("search_cache", rows, options.device, epochs=options.epochs)


def _counted(work, name, counts, seconds):  # noqa: ANN001, ANN202
    def counted(*args, **kwargs):  # noqa: ANN002, ANN003, ANN202
        begin = time.perf_counter()
        result = work(*args, **kwargs)
        counts[name] += 1
        seconds[name] += time.perf_counter() - begin
        return result

    return counted


if __name__ == "__main__":
    main()
