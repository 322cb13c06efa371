"""Candidates a second on Cora: trained at once, and one by one.

``python -m benchmarks.search.throughput --device cuda`` evaluates the same 32 random
candidates of the paper's grids on the same validation nodes, by GridSearchCV and by
BatchedGridSearchCV. Nothing is left out of the time: propagation, pairs, training and
scoring; at once is the median of three. One by one is measured twice on a GPU: with our
epochs recorded as CUDA graphs, and launching each kernel from Python, as PyTorch does
and peers do. The latter, which takes minutes, is told from how many times as long the
first four candidates take.
``--one-by-one 8`` fits fewer one by one and takes their mean.
"""

from __future__ import annotations

import argparse
import time
from unittest.mock import patch

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from benchmarks._report import parse, report
from benchmarks.data import load, paper_splits
from benchmarks.search._common import candidates, mean_best, synchronize
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.model_selection import BatchedGridSearchCV, predefined_validation_split
from sktifa.training import engine

_ENCODER = ("learning_rate", "dropout")
# Candidates that are also fitted kernel by kernel, and how often all are fitted at
# once: how long the last of them trains differs with the order of a GPU's sums.
_LAUNCHED, _REPEAT = 4, 3


def compare(name: str, n_alone: int, options: argparse.Namespace) -> list[dict]:
    """Search one graph for both classifiers, at once and one by one."""
    data = load(name)
    train, val, _ = paper_splits(data, 1)[0]
    nodes, cv = predefined_validation_split(train, val)
    X, y = data.graph[nodes], data.target[nodes]
    given = {"X_val": data.graph[val], "y_val": data.target[val]}
    grid = candidates(options.candidates)
    rows = []
    for model in (GNNClassifier(), TIFAGCLClassifier()):
        model.set_params(
            device=options.device, random_state=0, max_iter=options.max_iter
        )
        mine = grid
        if not isinstance(model, TIFAGCLClassifier):
            mine = [{k: v for k, v in p.items() if k in _ENCODER} for p in grid]
        # Kernels are compiled, loaded and tuned before the clock starts, also those for
        # the numbers of models that are left when others have stopped.
        BatchedGridSearchCV(model, mine, cv=cv, refit=False).fit(X, y, **given)
        warm = clone(model).set_params(max_iter=3)
        GridSearchCV(warm, mine[:2], cv=cv, refit=False).fit(X, y, **given)
        batched = BatchedGridSearchCV(
            model,
            mine,
            cv=cv,
            refit=False,
            batch_size=options.batch_size,
            n_jobs=options.n_jobs,
        )
        alone = GridSearchCV(model, mine[:n_alone], cv=cv, refit=False)
        few = GridSearchCV(model, mine[:_LAUNCHED], cv=cv, refit=False)

        def seconds(search: GridSearchCV) -> float:
            synchronize(options.device)
            begin = time.perf_counter()
            search.fit(X, y, **given)
            synchronize(options.device)
            return time.perf_counter() - begin

        at_once = np.median([seconds(batched) for _ in range(_REPEAT)]) / len(mine)
        recorded = launched = seconds(alone) / n_alone
        if options.device != "cpu":
            of_few = seconds(few)
            with patch.object(engine.Run, "record", engine.Run.forget_recordings):
                launched *= seconds(few) / of_few
        difference = (
            batched.cv_results_["mean_test_score"][:n_alone]
            - alone.cv_results_["mean_test_score"]
        )
        rows.append(
            {
                "graph": name,
                "classifier": type(model).__name__,
                "candidates": len(mine),
                "one by one, s a candidate": launched,
                "one by one as CUDA graphs": recorded,
                "at once, s a candidate": float(at_once),
                "times": float(launched / at_once),
                "times against CUDA graphs": float(recorded / at_once),
                "best validation accuracy": mean_best(batched),
                "mean difference of scores": float(np.mean(difference)),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Time both searches for both classifiers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", nargs="+", default=["Cora"])
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--one-by-one", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--n-jobs", type=int)
    parser.add_argument("--max-iter", type=int, default=400)
    options = parse(parser)
    n_alone = options.one_by_one or options.candidates
    rows = []
    for name in options.graphs:
        rows += compare(name, n_alone, options)
    report("search_throughput", rows, options)


if __name__ == "__main__":
    main()
