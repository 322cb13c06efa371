"""Where models are trained, and what came of them is kept.

A lab looks a fit up in its checkpoint (a JSON object a line) before it trains it. What
is known of a fit depends on nothing but the fit, so that tables share their models, and
a run that was interrupted goes on where it was: at most the stack that was training is
lost.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from benchmarks._report import device_name
from benchmarks.accuracy.fits import Fit, Fitted, train
from benchmarks.data import Setting, Split, draw_split, load
from sktifa.device import resolve_device
from sktifa.diagnostics import madgap
from sktifa.exceptions import TrainingError

__all__ = [
    "MEASURES",
    "Lab",
    "OutOfTimeError",
    "Outcome",
    "graph_of",
    "split_of",
    "unpack",
]

Outcome = dict[str, Any]

# What can be measured of a model beside its accuracy.
MEASURES: dict[str, Callable[[Fitted, Bunch], float]] = {
    "madgap": lambda fitted, data: madgap(fitted.scores, data.graph),
    "transition_std": lambda fitted, data: float(fitted.model.sampler_.transition_std_),
}


class OutOfTimeError(Exception):
    """Some fits are not known, and there is no time to train them."""

    def __init__(self, missing: Sequence[Fit]) -> None:
        super().__init__(f"{len(missing)} fits are missing")
        self.missing = missing


@lru_cache(maxsize=2)
def graph_of(name: str) -> Bunch:
    """Load a graph, or return it if it was loaded just now."""
    return load(name)


@lru_cache(maxsize=200)
def split_of(name: str, number: int, labels: int, setting: Setting) -> Split:
    """Draw a split, or return it if it was drawn before."""
    return draw_split(graph_of(name), number, labels, setting)


class Lab:
    """Trains what its checkpoint doesn't know yet.

    Parameters
    ----------
    checkpoint : Path
        Where outcomes are kept. Several processes may write to it.
    device : str
        Where to train.
    commit : str
        Of the code, kept with each outcome.
    deadline : float
        Time (as of `time.time`) after which no stack begins, nor one that by what its
        like took would not end before it; 0 trains nothing.
    together : int
        Most fits that are prepared at once, to be dealt to stacks.
    begin : float, default=None
        When the run began (as of `time.time`); None: now.
    jobs : int
        Processes that train side by side in the run.

    Notes
    -----
    What a rebuild took is told by its outcomes, so that a killed run has told it up to
    its last stack. An outcome's `seconds` are its process's; as `jobs` processes share
    a device, it took `seconds / jobs` of that. `run` is when the run began, and `wall`
    the seconds from there until the outcome was there. Older outcomes lack these three.
    """

    def __init__(
        self,
        checkpoint: Path,
        *,
        device: str = "cpu",
        commit: str = "",
        deadline: float = float("inf"),
        together: int = 100,
        begin: float | None = None,
        jobs: int = 1,
    ) -> None:
        self.checkpoint, self.device, self.commit = checkpoint, device, commit
        self.deadline, self.together = deadline, together
        self.begin, self.jobs = time.time() if begin is None else begin, jobs
        self.known: dict[str, Outcome] = {}
        # What was asked for since this was last emptied.
        self.asked: dict[str, Fit] = {}
        # Of the fits of a kind on a graph, by device: how many are known, and the sums
        # of their seconds and epochs.
        self._costs: dict[tuple[str, str, str], list[float]] = {}
        self._place = device_name(resolve_device(device))
        text = checkpoint.read_text() if checkpoint.exists() else ""
        for line in text.splitlines():
            # A run that was killed may have left half a line.
            try:
                self.learn(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue

    def outcomes(self, fits: Sequence[Fit]) -> list[Outcome]:
        """Return what comes of fits on one graph, training those that are not known.

        Raises
        ------
        OutOfTimeError
            If the deadline comes first. What was trained so far is kept.
        """
        self.asked |= {fit.key: fit for fit in fits}
        missing = [fit for fit in fits if fit.key not in self.known]
        for start in range(0, len(missing), self.together):
            if time.time() >= self.deadline:
                raise OutOfTimeError(missing[start:])
            self._train(missing[start : start + self.together])
        return [self.known[fit.key] for fit in fits]

    def cost(self, fits: Sequence[Fit], device: str) -> tuple[float, float]:
        """Expect seconds and epochs by the mean of their like on a device.

        Where none is known, no seconds and as many epochs as there can be.
        """
        total = np.zeros(2)
        for fit in fits:
            kind = device, fit.kind, fit.graph
            count, *sums = self._costs.get(kind, (0, 0, 0))
            total += np.divide(sums, count) if count else (0, fit.most_epochs)
        return float(total[0]), float(total[1])

    @property
    def spent(self) -> dict[str, Any]:
        """How many models were asked for, the seconds that they took, and in what runs.

        A run's `wall` is from its beginning to the last of these models. Models of
        which no run is recorded are in none.
        """
        outcomes = [self.known.get(key, {}) for key in self.asked]
        told: dict[str, Any] = {"models": len(outcomes), "seconds": _seconds(outcomes)}
        runs: dict[tuple[Any, ...], list[Outcome]] = {}
        about = ("run", "device", "jobs", "commit")
        for one in outcomes:
            if "run" in one:
                runs.setdefault(tuple(one[key] for key in about), []).append(one)
        told["runs"] = [
            {
                **dict(zip(about, run, strict=True)),
                "models": len(trained),
                "seconds": _seconds(trained),
                "wall": max(one["wall"] for one in trained),
            }
            for run, trained in sorted(runs.items())
        ]
        return told

    @property
    def devices(self) -> list[str]:
        """Where known outcomes come from."""
        return sorted({device for device, *_ in self._costs})

    def _check_time(self, fits: Sequence[Fit]) -> None:
        if time.time() + self.cost(fits, self._place)[0] >= self.deadline:
            raise OutOfTimeError(fits)

    def learn(self, outcome: Outcome) -> None:
        """Know an outcome that was trained elsewhere, too."""
        self.known[outcome["key"]] = outcome
        if "error" not in outcome:
            kind = outcome["device"], outcome["model"], outcome["graph"]
            sums = self._costs.setdefault(kind, [0, 0, 0])
            for i, one in enumerate((1, outcome["seconds"], outcome["epochs"])):
                sums[i] += one

    def _train(self, fits: Sequence[Fit]) -> None:
        data = graph_of(fits[0].graph)
        splits = [split_of(f.graph, f.split, f.labels, f.setting) for f in fits]
        for done in train(fits, data, splits, self.device, self._check_time):
            for i, fitted in done:
                outcome = self._judged(fits[i], fitted, data, splits[i])
                self.learn(outcome)
                with self.checkpoint.open("a") as file:
                    # In one piece: lines of several processes don't mix. The line feed
                    # before it ends what a killed process may have left.
                    file.write("\n" + json.dumps(outcome) + "\n")

    def _judged(
        self, fit: Fit, fitted: Fitted | Exception, data: Bunch, split: Split
    ) -> Outcome:
        outcome: Outcome = {
            "key": fit.key,
            "model": fit.kind,
            "graph": fit.graph,
            "labels": fit.labels,
            "split": fit.split,
            "commit": self.commit,
            "device": self._place,
            "run": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.begin)),
            "wall": round(time.time() - self.begin, 1),
            "jobs": self.jobs,
        }
        if isinstance(fitted, Exception):
            # A candidate that can't be trained is one that is not chosen. What fails
            # for another reason says nothing of it.
            if fit.tested or not isinstance(fitted, TrainingError):
                raise fitted
            return {**outcome, "val": 0.0, "error": repr(fitted)}
        right = fitted.predicted == data.target
        outcome["seconds"] = round(fitted.seconds, 3)
        outcome["epochs"] = fitted.epochs
        if fitted.diverged:
            outcome["diverged"] = True
        outcome["val"] = float(right[split.val].mean())
        if fit.tested:
            outcome["test"] = float(right[split.test].mean())
            outcome["right"] = _pack(right[split.test])
        if fit.measure:
            outcome[fit.measure] = MEASURES[fit.measure](fitted, data)
        return outcome


def _seconds(outcomes: Sequence[Outcome]) -> float:
    return round(sum(one.get("seconds", 0.0) for one in outcomes), 1)


def _pack(right: NDArray[np.bool_]) -> str:
    return base64.b85encode(zlib.compress(np.packbits(right).tobytes(), 9)).decode()


def unpack(text: str, n: int) -> NDArray[np.bool_]:
    """Return which of n test nodes were right."""
    packed = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.uint8)
    return np.unpackbits(packed, count=n).astype(bool)
