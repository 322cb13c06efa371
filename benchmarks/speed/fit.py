"""Time to the first prediction: a whole fit, preparation included, beside PyG's GCN.

``python -m benchmarks.speed.fit`` times, in one run and on the same graphs, `fit` with
all defaults and the prediction of every node, and a plain script of PyG's GCN that
trains as many epochs, validates as often, keeps the best model and predicts.
Preparation is what `fit` does but train, as a share of the whole. First fits are
measured in processes of their own: with what earlier ones compiled, and without.

The bars: no slower than the script; preparation at most a tenth of it; the first fit
at most 5 s.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.base import clone
from sklearn.utils import Bunch

from benchmarks._report import (
    in_new_process,
    median_time,
    parse,
    report,
)
from benchmarks.data import GRAPHS, load, paper_splits
from benchmarks.speed.pyg import PlainScript
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.classifiers import gnn

# Where what is compiled is kept from one process to the next.
CACHES = ("NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def main() -> None:
    """Print the table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", nargs="*", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--first-on", choices=GRAPHS, help=argparse.SUPPRESS)
    options = parse(parser)
    if options.first_on:
        print(first_fit(options.first_on, options.device))
        return
    rows = []
    for name in options.graphs:
        data = load(name)
        train, val, _ = paper_splits(data, 1)[0]
        script = PlainScript(data, train, val, options.device)
        script.fit_predict(3)
        for model in (GNNClassifier(), TIFAGCLClassifier()):
            model.set_params(device=options.device, random_state=0)
            row = measure(model, data, train, val, options.repeat)
            theirs = partial(script.fit_predict, row["epochs"])
            pyg = median_time(theirs, options.repeat, warm_up=0)
            row |= {"PyG GCN s": pyg, "times faster": pyg / row["fit and predict s"]}
            if isinstance(model, TIFAGCLClassifier):
                row |= in_new_processes(name, options)
            rows.append({"graph": name, **row})
            print(rows[-1], flush=True)
    bars = {"preparation": 0.1, "first ever s": 5}
    report("speed_fit", rows, options, bars=bars)


def measure(
    model: GNNClassifier, data: Bunch, train: np.ndarray, val: np.ndarray, repeat: int
) -> dict[str, Any]:
    """Return the medians of some fits, after a short one."""
    fit_and_predict(clone(model).set_params(max_iter=3), data, train, val)
    times = []
    for _ in range(repeat):
        fitted = clone(model)
        times.append(fit_and_predict(fitted, data, train, val))
    whole, preparation = np.median(times, axis=0).tolist()
    return {
        "classifier": type(model).__name__,
        "epochs": fitted.n_iter_,
        "fit and predict s": whole,
        "preparation": preparation / whole,
    }


def fit_and_predict(
    model: GNNClassifier, data: Bunch, train: np.ndarray, val: np.ndarray
) -> tuple[float, float]:
    """Return the seconds until every node's class is known, and of preparation."""
    graph, y = data.graph, data.target
    spent = []

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        trained = engine_train(*arguments, **options)
        spent.append(time.perf_counter() - start)
        return trained

    engine_train = gnn.train
    with patch.object(gnn, "train", timed):
        start = time.perf_counter()
        model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
        preparation = time.perf_counter() - start - sum(spent)
        model.predict(graph)
        return time.perf_counter() - start, preparation


def in_new_processes(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Return the seconds of first fits, with earlier processes' caches and without."""

    def first(**environment: str) -> float:
        told = in_new_process(
            "benchmarks.speed.fit",
            f"--first-on={name}",
            f"--device={options.device}",
            f"--commit={options.commit}",
            **environment,
        )
        return float(told.split()[-1])

    with tempfile.TemporaryDirectory() as empty:
        compiling = first(**dict.fromkeys(CACHES, empty))
    return {"first ever s": compiling, "first in a process s": first()}


def first_fit(name: str, device: str) -> float:
    """Return the seconds of this process's first fit and prediction."""
    data = load(name)
    train, val, _ = paper_splits(data, 1)[0]
    model = TIFAGCLClassifier(device=device, random_state=0)
    return fit_and_predict(model, data, train, val)[0]


if __name__ == "__main__":
    main()
