"""Runs cells until they are done or time is out, and tells what came of them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
import yaml

from benchmarks.accuracy.fits import Fit
from benchmarks.accuracy.lab import Lab, Outcome, OutOfTimeError
from benchmarks.accuracy.methods import METHODS
from benchmarks.accuracy.protocol import (
    TUNED,
    Budget,
    Cell,
    Parameters,
    Tuned,
    choices,
    choose,
    evaluate,
)
from benchmarks.data import LOADERS

__all__ = ["Cells", "Trial", "collect", "plan", "read_tuned", "run", "write_tuned"]


# The number of splits and seeds by which each cell is to be tested.
Cells = Mapping[Cell, tuple[int, int]]


@dataclass(frozen=True)
class Trial:
    """What a cell came to: what was chosen for it, and outcomes by split and seed.

    `budget` says by what it was chosen; None: by an earlier run. `spent` tells of
    the models behind it, the search's included.
    """

    cell: Cell
    chosen: Parameters
    outcomes: list[list[Outcome]]
    budget: Budget | None
    spent: dict[str, Any]

    @property
    def candidates(self) -> int:
        """How many were chosen from; 1: not chosen, 0: by an earlier run."""
        if self.budget is None:
            return 0
        return self.budget.candidates if METHODS[chooser(self.cell)].space else 1

    @property
    def parameters(self) -> Parameters:
        """What was chosen, and over it what the method changes."""
        return {**self.chosen, **METHODS[self.cell.method].changes}

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
            "budget": asdict(self.budget) if self.candidates > 1 else None,
            "params": self.parameters,
            "device": ", ".join(sorted({one["device"] for one in outcomes})),
            "commit": ", ".join(sorted({one["commit"] for one in outcomes})),
            "diverged": sum(one.get("diverged", False) for one in outcomes),
            "seconds_a_fit": float(np.mean([one["seconds"] for one in outcomes])),
            "spent": self.spent,
            "test": [round(float(value), 3) for value in spread],
        }


def chooser(cell: Cell) -> str:
    """Return the method whose choice a cell's is."""
    return METHODS[cell.method].like or cell.method


def try_cell(
    cell: Cell, splits: int, seeds: int, budget: Budget, tuned: Tuned, lab: Lab
) -> Trial:
    """Choose a cell's parameters and test them, as far as the lab has time."""
    method, chosen_by, lab.asked = METHODS[cell.method], None, {}
    chosen = tuned.get(cell.graph, {}).get(chooser(cell), {}).get(cell.labels)
    if chosen is None:
        chosen = choose(METHODS[chooser(cell)], cell, budget, lab)
        chosen_by = budget
    parameters = {**chosen, **method.changes}
    outcomes = evaluate(method, cell, parameters, splits=splits, seeds=seeds, lab=lab)
    return Trial(cell, chosen, outcomes, chosen_by, lab.spent)


def run(cells: Cells, budget: Budget, tuned: Tuned, *, n_jobs: int, **lab: Any) -> None:
    """Run cells in processes side by side until they are done or time is out."""

    def work(cell: Cell, splits: int, seeds: int) -> None:
        torch.set_num_threads(max(1, joblib.cpu_count() // n_jobs))
        begin = time.time()
        try:
            trial = try_cell(
                cell, splits, seeds, budget, tuned, Lab(jobs=n_jobs, **lab)
            )
        except OutOfTimeError:
            told = "goes on in the next run"
        except Exception:
            # The others are worth no less for it.
            told = "failed\n" + traceback.format_exc()
        else:
            told = "chosen"
            if splits:
                record = trial.record()
                told = f"{record['test_mean']:.2f} ± {record['test_std']:.2f}"
        print(f"{cell}: {told} ({time.time() - begin:.0f} s)", flush=True)

    for wave in _waves(cells):
        joblib.Parallel(n_jobs, batch_size=1)(
            joblib.delayed(work)(cell, *size) for cell, size in wave.items()
        )


def _waves(cells: Cells) -> Iterator[dict[Cell, tuple[int, int]]]:
    """Yield cells that choose, then those that take over a choice.

    Choices of methods that are no cells are made in the first wave, once. The largest
    graphs come first: with the longest cells last, most processes would wait for them.
    """
    first, then = {}, {}
    graphs = list(LOADERS)
    for cell in sorted(cells, key=lambda cell: -graphs.index(cell.graph)):
        size = cells[cell]
        if METHODS[cell.method].like is None:
            first[cell] = size
        else:
            then[cell] = size
            first.setdefault(replace(cell, method=chooser(cell), measure=None), (0, 1))
    yield first
    yield then


class _Census(Lab):
    """Counts the fits that it is asked for, and trains none."""

    def outcomes(self, fits: Sequence[Fit]) -> list[Outcome]:
        """Return what is known, and of the others that they are worth nothing."""
        self.asked |= {fit.key: fit for fit in fits}
        return [self.known.get(fit.key, {"val": 0.0}) for fit in fits]


def plan(
    cells: Cells, budget: Budget, tuned: Tuned, checkpoint: Path
) -> list[dict[str, Any]]:
    """Tell what each cell takes beside what is known and what earlier cells train.

    Seconds are those of one process, by what the like took on each device so far.

    As long as candidates are unknown, finalists are any of them: one that is chosen
    later may make a few more or fewer fits.
    """
    census = _Census(checkpoint=checkpoint)
    counted, rows = set(census.known), []
    for wave in _waves(cells):
        for cell, (splits, seeds) in wave.items():
            try_cell(cell, splits, seeds, budget, tuned, census)
            new = [fit for key, fit in census.asked.items() if key not in counted]
            counted |= census.asked.keys()
            row = {
                "method": cell.method,
                "graph": cell.graph,
                "labels": cell.labels,
                "models": len(census.asked),
                "to train": len(new),
            }
            for device in census.devices or [""]:
                seconds, epochs = census.cost(new, device)
                row["models x epochs"] = round(epochs)
                if device:
                    row[f"seconds, {device}"] = round(seconds)
            rows.append(row)
    return rows


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


def read_tuned(results: Path, names: Iterable[str]) -> Tuned:
    """Return the parameters that earlier runs chose for some experiments."""
    tuned: Tuned = {}
    by_experiment = choices(results)
    for name in names:
        for graph, by_method in by_experiment.get(name, {}).items():
            for method, by_labels in by_method.items():
                tuned.setdefault(graph, {}).setdefault(method, {}).update(by_labels)
    return tuned


def write_tuned(name: str, trials: Sequence[Trial], results: Path) -> None:
    """Add what an experiment's cells, or the methods they are like, chose."""
    by_experiment = choices(results)
    tuned = by_experiment.setdefault(name, {})
    for trial in trials:
        cell, method = trial.cell, chooser(trial.cell)
        if METHODS[method].space:
            by_labels = tuned.setdefault(cell.graph, {}).setdefault(method, {})
            by_labels[cell.labels] = trial.chosen
    if tuned:
        (results / TUNED).write_text(yaml.safe_dump(by_experiment))
