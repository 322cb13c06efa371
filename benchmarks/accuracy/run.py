"""Runs cells until they are done or time is out, and tells what came of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
import yaml

from benchmarks.accuracy.lab import Lab, Outcome, OutOfTimeError
from benchmarks.accuracy.methods import METHODS
from benchmarks.accuracy.protocol import Budget, Cell, Parameters, choose, evaluate

__all__ = ["Cells", "Trial", "collect", "read_tuned", "run", "write_tuned"]

TUNED = "tuned.yaml"

Tuned = dict[str, dict[str, dict[int, Parameters]]]
# The number of splits and seeds by which each cell is to be tested.
Cells = Mapping[Cell, tuple[int, int]]


@dataclass(frozen=True)
class Trial:
    """What a cell came to: the parameters chosen, and outcomes by split and seed.

    `candidates` is how many they were chosen from; 1: not chosen, 0: by an earlier run.
    """

    cell: Cell
    parameters: Parameters
    outcomes: list[list[Outcome]]
    candidates: int

    @property
    def test(self) -> np.ndarray:
        """Accuracy in percent, shape (n_splits, n_seeds)."""
        return 100 * np.array([[one["test"] for one in row] for row in self.outcomes])

    def record(self) -> dict[str, Any]:
        """Return the trial as every table tells it."""
        outcomes = [one for row in self.outcomes for one in row]
        n_splits, n_seeds = self.test.shape
        by_split = self.test.mean(axis=1)
        # Over seeds, where there is one split.
        spread = by_split if n_splits > 1 else self.test[0]
        return {
            "method": self.cell.method,
            "graph": self.cell.graph,
            "labels": self.cell.labels,
            "setting": METHODS[self.cell.method].setting,
            "test_mean": float(by_split.mean()),
            "test_std": float(spread.std(ddof=1)) if len(spread) > 1 else 0.0,
            "val_mean": 100 * float(np.mean([one["val"] for one in outcomes])),
            "n_splits": n_splits,
            "n_seeds": n_seeds,
            "candidates": self.candidates,
            "params": self.parameters,
            "device": ", ".join(sorted({one["device"] for one in outcomes})),
            "commit": ", ".join(sorted({one["commit"] for one in outcomes})),
            "seconds_a_fit": float(np.mean([one["seconds"] for one in outcomes])),
            "test": [round(float(value), 3) for value in spread],
        }


def try_cell(
    cell: Cell, splits: int, seeds: int, budget: Budget, tuned: Tuned, lab: Lab
) -> Trial:
    """Choose a cell's parameters and test them, as far as the lab has time."""
    method = METHODS[cell.method]
    chooser = method.like or cell.method
    parameters = tuned.get(cell.graph, {}).get(chooser, {}).get(cell.labels)
    candidates = 0
    if parameters is None:
        parameters = choose(METHODS[chooser], cell, budget, lab)
        candidates = budget.candidates if METHODS[chooser].space else 1
    parameters = {**parameters, **method.changes}
    outcomes = evaluate(method, cell, parameters, splits=splits, seeds=seeds, lab=lab)
    return Trial(cell, parameters, outcomes, candidates)


def run(cells: Cells, budget: Budget, tuned: Tuned, *, n_jobs: int, **lab: Any) -> None:
    """Run cells in processes side by side until they are done or time is out."""

    def work(cell: Cell, splits: int, seeds: int) -> None:
        torch.set_num_threads(max(1, joblib.cpu_count() // n_jobs))
        begin = time.time()
        name = f"{cell.graph}, {cell.labels} labels a class, {cell.method}"
        try:
            trial = try_cell(cell, splits, seeds, budget, tuned, Lab(**lab))
        except OutOfTimeError:
            print(f"{name}: goes on in the next run", flush=True)
            return
        record = trial.record()
        print(
            f"{name}: {record['test_mean']:.2f} ± {record['test_std']:.2f} "
            f"({time.time() - begin:.0f} s)",
            flush=True,
        )

    # Who takes over another's choice waits for it instead of making it as well.
    for waits in (False, True):
        wave = [cell for cell in cells if (METHODS[cell.method].like is None) != waits]
        joblib.Parallel(n_jobs, batch_size=1)(
            joblib.delayed(work)(cell, *cells[cell]) for cell in wave
        )


def collect(
    cells: Cells, budget: Budget, tuned: Tuned, checkpoint: Path
) -> dict[Cell, Trial]:
    """Return the trials that the checkpoint knows wholly; the others are left out."""
    lab = Lab(checkpoint, deadline=0)
    trials = {}
    for cell, (splits, seeds) in cells.items():
        try:
            trials[cell] = try_cell(cell, splits, seeds, budget, tuned, lab)
        except OutOfTimeError:
            continue
    return trials


def read_tuned(results: Path) -> Tuned:
    """Return the parameters that were chosen by earlier runs."""
    path = results / TUNED
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def write_tuned(trials: Sequence[Trial], results: Path) -> None:
    """Add what was chosen to the file of tuned hyper-parameters."""
    tuned = read_tuned(results)
    for trial in trials:
        cell, method = trial.cell, METHODS[trial.cell.method]
        if method.space and method.like is None:
            by_labels = tuned.setdefault(cell.graph, {}).setdefault(cell.method, {})
            by_labels[cell.labels] = trial.parameters
    if tuned:
        (results / TUNED).write_text(yaml.safe_dump(tuned))
