"""Runs cells until they are done or time is out, and tells what came of them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
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


def run(
    cells: Cells,
    budget: Budget,
    tuned: Tuned,
    *,
    n_jobs: int,
    checkpoint: Path,
    together: int = 100,
    **lab: Any,
) -> None:
    """Train what cells lack, in processes side by side, until time is out.

    Fits are dealt, `together` at a time, not cells: with the longest cell last, most
    processes would wait for one.
    """
    agenda = _Agenda(cells, budget, tuned, Lab(checkpoint, deadline=0), together)
    told = {"begin": time.time(), **lab}
    told |= {"checkpoint": checkpoint, "together": together, "jobs": n_jobs}
    options = tuple(sorted(told.items()))
    running: dict[Future[_Part], Cell] = {}
    with _pool(n_jobs) as pool:
        while True:
            while len(running) < n_jobs and (part := agenda.next()):
                running[pool.submit(_train, part[1], options)] = part[0]
            if not running:
                break
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                agenda.end(running.pop(done), *done.result())
    agenda.tell_the_rest()


# What came of some fits, and why not of all of them.
_Part = tuple[list[Outcome], str]


class _Agenda:
    """Which fits are next: those of the first cell that lacks any."""

    def __init__(
        self, cells: Cells, budget: Budget, tuned: Tuned, known: Lab, together: int
    ) -> None:
        self._cells = {c: size for wave in _waves(cells) for c, size in wave.items()}
        self._given_to_choose = budget, tuned
        self._known, self._together = known, together
        self._given: set[str] = set()
        # Of each cell that was looked at: what is to be trained, and how much is being.
        self._waiting: dict[Cell, deque[list[Fit]]] = {}
        self._running: dict[Cell, int] = defaultdict(int)
        self._why: dict[Cell, str] = {}

    def next(self) -> tuple[Cell, list[Fit]] | None:
        """Return some fits of a cell; None: there are none until others are known."""
        for cell in list(self._cells):
            if cell not in self._waiting:
                self._look(cell)
            if self._waiting.get(cell):
                self._running[cell] += 1
                return cell, self._waiting[cell].popleft()
        return None

    def _look(self, cell: Cell) -> None:
        """Find out what a cell lacks, or tell what it has come to."""
        try:
            trial = try_cell(
                cell, *self._cells[cell], *self._given_to_choose, self._known
            )
        except OutOfTimeError as stopped:
            new = [fit for fit in stopped.missing if fit.key not in self._given]
            self._given |= {fit.key for fit in new}
            starts = range(0, len(new), self._together)
            self._waiting[cell] = deque(new[i : i + self._together] for i in starts)
            return
        came = "chosen"
        if trial.outcomes:
            record = trial.record()
            came = f"{record['test_mean']:.2f} ± {record['test_std']:.2f}"
        print(f"{cell}: {came}", flush=True)
        del self._cells[cell]

    def end(self, cell: Cell, outcomes: Sequence[Outcome], why: str) -> None:
        """Take in what came of a cell's fits, and why not all of them."""
        for outcome in outcomes:
            self._known.learn(outcome)
        if why:
            self._why[cell] = why
        self._running[cell] -= 1
        if not self._running[cell] and not self._waiting[cell]:
            # This one goes on, and maybe others that wait for the same fits.
            self._waiting = {
                c: fits for c, fits in self._waiting.items() if fits or self._running[c]
            }

    def tell_the_rest(self) -> None:
        """Say of the cells that are left why they are."""
        for cell in self._cells:
            print(f"{cell}: {self._why.get(cell, _LATER)}", flush=True)


_LATER = "goes on in the next run"


def _pool(n_jobs: int) -> Executor:
    if n_jobs == 1:
        return _Here()
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n_jobs, spawn, _end_with_parent)


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, however it did.

    A pool's would wait for work for ever, and hold memory of a GPU.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait_and_end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait_and_end, daemon=True).start()


class _Here(Executor):
    """Calls at once, in this thread, where Ctrl-C is heard."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        future: Future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _train(fits: Sequence[Fit], options: tuple[tuple[str, Any], ...]) -> _Part:
    """Train some fits on one graph as far as there is time."""
    lab, why = _lab(options), ""
    torch.set_num_threads(max(1, joblib.cpu_count() // lab.jobs))
    try:
        lab.outcomes(fits)
    except OutOfTimeError:
        why = _LATER
    except Exception:
        # The others are worth no less for it.
        why = "failed\n" + traceback.format_exc()
    return [lab.known[fit.key] for fit in fits if fit.key in lab.known], why


@lru_cache(maxsize=1)
def _lab(options: tuple[tuple[str, Any], ...]) -> Lab:
    """Return a process's lab: it reads what is known once."""
    return Lab(**dict(options))


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
