"""Trains models on splits: many at once where they can be stacked, else one by one."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch
from sktifa.training.stacked import models_at_once, prepare, train_stacked, why_alone

from benchmarks.data import Setting, Split, visible_labels
from sktifa.cache import LocalMemory
from sktifa.device import on_device, resolve_device

# What says where a model is trained, not which.
_WHERE = ("device", "memory", "verbose")


@dataclass(frozen=True)
class Fit:
    """One model to train: an estimator, with its seed, on one split of a graph.

    `tested` says whether the test nodes are looked at; `measure` names a further
    measurement of the fitted model.
    """

    estimator: BaseEstimator
    graph: str
    labels: int
    setting: Setting
    split: int
    tested: bool
    measure: str | None = None

    @property
    def key(self) -> str:
        """The same for the same model, whatever table or process asks for it."""
        parameters = {
            name: repr(value)
            for name, value in self.estimator.get_params().items()
            if name.split("__")[-1] not in _WHERE and not hasattr(value, "get_params")
        }
        told = [
            type(self.estimator).__name__,
            sorted(parameters.items()),
            [self.graph, self.labels, self.setting, self.split],
            [self.tested, self.measure],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Fitted:
    """A trained model: its scores of all nodes and classes, and what it cost."""

    model: Any
    scores: NDArray[np.floating]
    seconds: float

    @property
    def predicted(self) -> NDArray[Any]:
        return self.model.classes_[self.scores.argmax(axis=1)]


def train(
    fits: Sequence[Fit], data: Bunch, splits: Sequence[Split], device: str
) -> Iterator[tuple[int, Fitted | Exception]]:
    """Yield each fit's position and what came of it, as they come."""
    given = []
    for fit, split in zip(fits, splits, strict=True):
        estimator = clone(fit.estimator)
        places = [p for p in estimator.get_params() if p.split("__")[-1] == "device"]
        estimator.set_params(**dict.fromkeys(places, device))
        y = visible_labels(data, split)
        # ogbn-products has validation nodes of classes that no training node has.
        val = split.val[np.isin(data.target[split.val], data.target[split.train])]
        validation = {"X_val": data.graph[val], "y_val": data.target[val]}
        given.append((estimator, data.graph[split.seen], y[split.seen], validation))
    stacked = [
        i
        for i, (estimator, X, _, validation) in enumerate(given)
        if why_alone(estimator, X, validation) is None
    ]
    yield from _train_stacks({i: given[i] for i in stacked}, device)
    for i in set(range(len(fits))) - set(stacked):
        yield i, _train_alone(*given[i], data)


def _train_alone(
    estimator: Any, X: Any, y: Any, validation: dict[str, Any], data: Bunch
) -> Fitted | Exception:
    begin = time.perf_counter()
    try:
        model = estimator.fit(X, y, **validation)
        scores = model.predict_proba(data.graph)
    except Exception as error:
        return error
    return Fitted(model, scores, time.perf_counter() - begin)


def _train_stacks(
    given: dict[int, tuple[Any, Any, Any, dict[str, Any]]], device: str
) -> Iterator[tuple[int, Fitted | Exception]]:
    where = resolve_device(device)
    memory = LocalMemory()
    networks: dict[tuple[Any, ...], Any] = {}
    groups = defaultdict(list)
    for i, (estimator, X, y, validation) in given.items():
        if "memory" in estimator.get_params():
            estimator.set_params(memory=memory)
        try:
            model = prepare(estimator, X, y, where, validation, networks)
        except Exception as error:
            yield i, error
            continue
        groups[model.key].append((i, model))
    for group in groups.values():
        first = group[0][1]
        size = models_at_once(first.estimator, first.graph, where)
        for start in range(0, len(group), size):
            stack = group[start : start + size]
            begin = time.perf_counter()
            with on_device(where):
                train_stacked([model for _, model in stack], where)
            seconds = (time.perf_counter() - begin) / len(stack)
            for i, model in stack:
                yield i, model.error or Fitted(model.estimator, model.logits, seconds)
    memory.clear()
