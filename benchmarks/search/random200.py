"""200 random candidates on 10 splits of Cora, timed.

``python -m benchmarks.search.random200 --device cuda``: TIFA-GCL, the paper's grids and
protocol (20 labels a class to train, 30 to choose by), 2,000 models.
"""

from __future__ import annotations

import argparse
import time

from benchmarks._report import parse, report
from benchmarks.data import load
from benchmarks.search._common import candidates, synchronize
from sktifa import LabeledNodeShuffleSplit, TIFAGCLClassifier
from sktifa.model_selection import BatchedGridSearchCV


def main() -> None:
    """Run the search and report its time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graph", default="Cora")
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--checkpoint")
    options = parse(parser)
    data = load(options.graph)
    search = BatchedGridSearchCV(
        # A fifth of the 20 labels a class stops the training of each fold.
        TIFAGCLClassifier(device=options.device, random_state=0),
        candidates(options.candidates),
        cv=LabeledNodeShuffleSplit(
            options.splits, score_on="validation", random_state=0
        ),
        refit=False,
        batch_size=options.batch_size,
        checkpoint=options.checkpoint,
    )
    begin = time.perf_counter()
    search.fit(data.graph, data.target)
    synchronize(options.device)
    seconds = time.perf_counter() - begin
    results = search.cv_results_
    report(
        "search_random200",
        [
            {
                "graph": options.graph,
                "candidates": options.candidates,
                "splits": options.splits,
                "minutes": seconds / 60,
                "ms a model": 1e3 * seconds / (options.candidates * options.splits),
                "best mean validation accuracy": float(search.best_score_),
                "worst": float(results["mean_test_score"].min()),
            }
        ],
        options,
        best={name: value for name, value in search.best_params_.items()},
    )


if __name__ == "__main__":
    main()
