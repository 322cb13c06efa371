"""What the cache and stacks save: computations counted and time, over 100 candidates.

``python -m benchmarks.search.cache`` runs GridSearchCV over 100 candidates of TIFA-GCL
on Cora with a few epochs each, without and with :class:`sktifa.cache.LocalMemory`, and
BatchedGridSearchCV, which has one built in. ``--epochs 60`` makes the fits long ones.
What is computed in processes of their own is not counted.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any
from unittest.mock import patch

from sklearn.model_selection import GridSearchCV

from benchmarks._report import parse, report
from benchmarks.data import load, paper_splits
from sktifa import TIFAGCLClassifier
from sktifa.cache import LocalMemory
from sktifa.classifiers import contrast
from sktifa.model_selection import BatchedGridSearchCV, predefined_validation_split

COUNTED = ("annotated_information", "nearest_pairs", "graph_distances")
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
    options = parse(parser)
    data = load("Cora")
    train, val, _ = paper_splits(data, 1)[0]
    nodes, cv = predefined_validation_split(train, val)
    rows = []
    for name, kind, memory, n_jobs in (
        ("GridSearchCV", GridSearchCV, None, None),
        ("GridSearchCV, memory=LocalMemory()", GridSearchCV, LocalMemory(), None),
        ("BatchedGridSearchCV", BatchedGridSearchCV, None, None),
        ("BatchedGridSearchCV, n_jobs=2", BatchedGridSearchCV, None, 2),
    ):
        counts: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        with patch.multiple(
            contrast,
            **{
                name: _counted(getattr(contrast, name), name, counts, seconds)
                for name in COUNTED
            },
        ):
            model = TIFAGCLClassifier(
                pairing="tifa",
                max_iter=options.epochs,
                device=options.device,
                random_state=0,
                memory=memory,
            )
            search = kind(model, GRID, cv=cv, refit=False, n_jobs=n_jobs)
            begin = time.perf_counter()
            search.fit(data.graph[nodes], data.target[nodes])
            total = time.perf_counter() - begin
        row: dict[str, Any] = {"search": name}
        row.update({name: counts[name] for name in COUNTED})
        row.update({"static work, s": sum(seconds.values()), "seconds": total})
        rows.append(row)
        row["times"] = rows[0]["seconds"] / total
    report(
        f"search_cache_{options.epochs}_epochs",
        rows,
        options,
        epochs=options.epochs,
    )


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
