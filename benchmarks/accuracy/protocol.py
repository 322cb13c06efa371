"""The paper's protocol: choose on validation, then test once with fresh seeds.

Candidates are drawn at random from a method's search space, as many for every method.
Each is fitted on a few splits; the best by mean validation accuracy are fitted on all
of them, and the best of those is the method's choice. Only then are the test nodes
looked at, by models with other seeds. Until then labels of test nodes are hidden.

A method that adds parameters to a plainer one would search a larger space by as many
candidates, and lose to it where it has nothing to add. So half of its candidates are
the plainer one's, and half the best of those with what it adds.

The first candidate is what the library takes by default, as far as a method has it: who
searches would not leave that out, and few random candidates, chosen on few splits, can
all be worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid

from benchmarks.accuracy.fits import Fit
from benchmarks.accuracy.lab import Lab, Outcome
from benchmarks.data import Setting

__all__ = ["Budget", "Cell", "Method", "candidates", "choose", "evaluate"]

Parameters = dict[str, Any]


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
        `estimator` and `space` are. Half of the candidates are plain; the others are
        the best of those, with values of these.
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
    deal = _Decks()
    drawn: list[Parameters] = []
    while len(drawn) < min(number, len(ParameterGrid(method.spaces))):
        one = deal.each(deal("space", method.spaces))
        if one not in drawn:
            drawn.append(one)
    return _default_first(method, method.spaces, drawn, number)


def _default_first(
    method: Method,
    spaces: Sequence[Mapping[str, Any]],
    drawn: list[Parameters],
    number: int,
) -> list[Parameters]:
    """Put the default of an estimator's class before what was drawn from spaces.

    It need not be in them; what has one value in all of them is no choice, and stays.
    """
    if not method.tries_default:
        return drawn
    of_class = type(method.estimator)().get_params()
    default: Parameters = {}
    for name in sorted(set().union(*spaces)):
        values = [value for space in spaces for value in space.get(name, ())]
        is_fixed = all(value == values[0] for value in values)
        default[name] = values[0] if is_fixed else of_class[name]
    return [default, *(one for one in drawn if one != default)][:number]


class _Decks:
    """Deals values like cards: each as often as the others, however few are drawn."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._decks: dict[str, list[int]] = {}

    def __call__(self, name: str, values: Sequence[Any]) -> Any:
        deck = self._decks.setdefault(f"{name} {values}", [])
        if not deck:
            deck.extend(self._rng.permutation(len(values)).tolist())
        return values[deck.pop()]

    def each(self, space: Mapping[str, Sequence[Any]]) -> Parameters:
        """Deal one of each parameter's values."""
        return {name: self(name, values) for name, values in sorted(space.items())}


def choose(method: Method, cell: Cell, budget: Budget, lab: Lab) -> Parameters:
    """Return the candidate of the best mean validation accuracy."""
    if not method.space or budget.candidates == 1:
        return {}

    def means(chosen: Sequence[Parameters], n_splits: int) -> np.ndarray:
        # All candidates on one split, then on the next: they share preparation.
        fits = [
            _fit(method, cell, parameters, split, 0, tested=False)
            for split in range(n_splits)
            for parameters in chosen
        ]
        scores = [outcome["val"] for outcome in lab.outcomes(fits)]
        return np.reshape(scores, (n_splits, len(chosen))).mean(axis=0)

    number = budget.candidates
    n_added = number // 2 if method.adds else 0
    drawn = candidates(method, number - n_added)
    scores = means(drawn, budget.splits)
    if n_added:
        deal = _Decks()
        best = [drawn[i] for i in _best(scores, budget.finalists)]
        added = [best[i % len(best)] | deal.each(method.adds) for i in range(n_added)]
        whole = [{**space, **method.adds} for space in method.spaces]
        added = _default_first(method, whole, added, n_added)
        drawn = drawn + added
        scores = np.r_[scores, means(added, budget.splits)]
    finalists = [drawn[i] for i in _best(scores, budget.finalists)]
    return finalists[int(means(finalists, budget.final_splits).argmax())]


def _best(scores: np.ndarray, number: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:number]


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
