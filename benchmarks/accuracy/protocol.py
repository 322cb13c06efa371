"""The paper's protocol: choose on validation, then test once with fresh seeds.

Candidates are drawn at random from a method's search space, as many for every method.
Each is fitted on a few splits; the best by mean validation accuracy are fitted on all
of them, and the best of those is the method's choice. Only then are the test nodes
looked at, by models with other seeds. Until then labels of test nodes are hidden.

A method that adds parameters to a plainer one would search a larger space by as many
candidates, without any of the plainer one's, and lose to it where it has nothing to
add. So half of its candidates are the plainer one's.

The first candidate is what the library takes by default, as far as a method has it: who
searches would not leave that out, and few random candidates, chosen on few splits, can
all be worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid

from benchmarks.accuracy.fits import Fit
from benchmarks.accuracy.lab import Lab, Outcome
from benchmarks.data import Setting

__all__ = ["Budget", "Cell", "Method", "candidates", "choices", "choose", "evaluate"]

Parameters = dict[str, Any]
# What was chosen by graph, method and labels a class, and the file of experiments'.
Tuned = dict[str, dict[str, dict[int, Parameters]]]
TUNED = "tuned.yaml"


@dataclass(frozen=True)
class Method:
    """An estimator and what is chosen for it by validation.

    Parameters
    ----------
    estimator : estimator
        With the values that are not chosen.
    space : mapping, or sequence of mappings
        Lists of values by parameter; empty if all is as the estimator says.
    adds : mapping
        Lists of values by parameter: what the method has more than a plainer one, which
        `estimator` and `space` are. Half of the candidates are drawn without these, and
        half with them.
    tries_default : bool, default=False
        Whether the first candidate, and the first with what is added, is the default of
        the estimator's class, as far as it is chosen.
    like : str, default=None
        Name of a method whose choice this one takes over instead of its own.
    changes : mapping
        Parameters set after the choice: what is ablated, mostly.
    setting : {"transductive", "inductive"}
        What training sees.
    """

    estimator: BaseEstimator
    space: Mapping[str, Any] | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    adds: Mapping[str, Any] = field(default_factory=dict)
    tries_default: bool = False
    like: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    setting: Setting = "transductive"

    @property
    def spaces(self) -> list[Mapping[str, Any]]:
        """The spaces, one or several."""
        return [self.space] if isinstance(self.space, Mapping) else list(self.space)

    def is_plain(self, parameters: Parameters) -> bool:
        """Return whether chosen parameters hold nothing of what the method adds."""
        return bool(self.adds) and any(
            all(parameters.get(n) in space[n] for n in self.adds if n in space)
            for space in self.spaces
        )


@dataclass(frozen=True)
class Cell:
    """A method on a graph, with so many labelled nodes a class."""

    method: str
    graph: str
    labels: int = 20
    measure: str | None = None

    def __str__(self) -> str:
        return f"{self.graph}, {self.labels} labels a class, {self.method}"


@dataclass(frozen=True)
class Budget:
    """What is spent on the choice, the same for every method.

    Parameters
    ----------
    candidates : int
        Drawn from a method's space; 1 takes the estimator as it is.
    splits : int
        Splits on which all candidates are fitted.
    finalists : int
        The best of them, which are fitted on more splits.
    final_splits : int
        Splits on which finalists are fitted.
    """

    candidates: int = 40
    splits: int = 5
    finalists: int = 5
    final_splits: int = 20


def _seeds(estimator: BaseEstimator) -> list[str]:
    """Return the parameters that seed an estimator, or the network inside it."""
    known = estimator.get_params()
    return [p for p in ("random_state", "network__random_state") if p in known]


def _fit(
    method: Method,
    cell: Cell,
    parameters: Parameters,
    split: int,
    seed: int,
    *,
    tested: bool,
) -> Fit:
    estimator = clone(method.estimator).set_params(**parameters)
    estimator.set_params(**dict.fromkeys(_seeds(estimator), seed))
    return Fit(
        estimator,
        cell.graph,
        cell.labels,
        method.setting,
        split,
        tested,
        cell.measure if tested else None,
    )


def candidates(method: Method, number: int) -> list[Parameters]:
    """Draw from a method's space without replacement; all of it where it is small."""
    n_added = number // 2 if method.adds else 0
    plain = _drawn(method, method.spaces, number - n_added)
    with_more = [{**space, **method.adds} for space in method.spaces]
    return plain + _drawn(method, with_more, n_added)


def _drawn(
    method: Method, spaces: Sequence[Mapping[str, Any]], number: int
) -> list[Parameters]:
    """Draw candidates from spaces, after the default where that is tried.

    The values of a parameter are dealt like cards: each comes as often as the others,
    however few are drawn.
    """
    rng = np.random.default_rng(0)
    decks: dict[str, list[int]] = {}

    def dealt(name: str, values: Sequence[Any]) -> Any:
        deck = decks.setdefault(f"{name} {values}", [])
        if not deck:
            deck.extend(rng.permutation(len(values)).tolist())
        return values[deck.pop()]

    drawn: list[Parameters] = []
    while len(drawn) < min(number, len(ParameterGrid(spaces))):
        chosen = dealt("space", spaces)
        one = {name: dealt(name, values) for name, values in sorted(chosen.items())}
        if one not in drawn:
            drawn.append(one)
    if not method.tries_default:
        return drawn
    default = _default(method, spaces)
    return [default, *(one for one in drawn if one != default)][:number]


def _default(method: Method, spaces: Sequence[Mapping[str, Any]]) -> Parameters:
    """Return the default of an estimator's class, as far as it is a choice in spaces.

    It need not be in them; what has one value in all of them is no choice, and stays.
    """
    of_class = type(method.estimator)().get_params()
    default: Parameters = {}
    for name in sorted(set().union(*spaces)):
        values = [value for space in spaces for value in space.get(name, ())]
        is_fixed = all(value == values[0] for value in values)
        default[name] = values[0] if is_fixed else of_class[name]
    return default


def choose(method: Method, cell: Cell, budget: Budget, lab: Lab) -> Parameters:
    """Return the candidate of the best mean validation accuracy."""
    if not method.space or budget.candidates == 1:
        return {}
    drawn = candidates(method, budget.candidates)

    def means(chosen: Sequence[Parameters], n_splits: int) -> np.ndarray:
        # All candidates on one split, then on the next: they share preparation.
        fits = [
            _fit(method, cell, parameters, split, 0, tested=False)
            for split in range(n_splits)
            for parameters in chosen
        ]
        scores = [outcome["val"] for outcome in lab.outcomes(fits)]
        return np.reshape(scores, (n_splits, len(chosen))).mean(axis=0)

    order = np.argsort(-means(drawn, budget.splits), kind="stable")
    finalists = [drawn[i] for i in order[: budget.finalists]]
    return finalists[int(means(finalists, budget.final_splits).argmax())]


def evaluate(
    method: Method,
    cell: Cell,
    parameters: Parameters,
    *,
    splits: int,
    seeds: int,
    lab: Lab,
) -> list[list[Outcome]]:
    """Return what parameters come to, a list with an outcome a seed for each split."""
    if not _seeds(method.estimator):
        seeds = 1
    # Seed 0 chooses; the seeds that test are others.
    fits = [
        _fit(method, cell, parameters, split, seed, tested=True)
        for split in range(splits)
        for seed in range(1, seeds + 1)
    ]
    outcomes = lab.outcomes(fits)
    return [outcomes[i : i + seeds] for i in range(0, len(fits), seeds)]


def choices(results: Path) -> dict[str, Tuned]:
    """Return what was chosen, by experiment: each may have a budget of its own."""
    path = results / TUNED
    return yaml.safe_load(path.read_text()) if path.exists() else {}
