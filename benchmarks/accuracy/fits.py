"""Trains models on splits: many at once where they can be stacked, else one by one."""

from __future__ import annotations

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch

from benchmarks.data import Setting, Split, visible_labels
from sktifa import GNNClassifier
from sktifa.cache import LocalMemory
from sktifa.classifiers.prepare import prepare
from sktifa.device import on_device, resolve_device
from sktifa.training import engine
from sktifa.training.engine import models_at_once
from sktifa.training.problem import Problem, Trained

# What says where a model is trained, not which.
_WHERE = ("device", "memory", "verbose")
# Parameters that are younger than checkpoints, and what they are where they do nothing.
_YOUNGER = (("n_teachers", 0),)


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

    @cached_property
    def key(self) -> str:
        """The same for the same model, whatever table or process asks for it."""
        parameters = {
            name: repr(value)
            for name, value in self.estimator.get_params().items()
            if (own := name.split("__")[-1]) not in _WHERE
            and not hasattr(value, "get_params")
            and (own, value) not in _YOUNGER
        }
        told = [
            type(self.estimator).__name__,
            sorted(parameters.items()),
            [self.graph, self.labels, self.setting, self.split],
            [self.tested, self.measure],
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:20]

    @property
    def kind(self) -> str:
        """What it costs depends on: the method's class, encoder, teachers, sampler."""
        network = getattr(self.estimator, "network", self.estimator)
        encoder = getattr(network, "encoder", "")
        teachers = getattr(network, "n_teachers", 0)
        sampler = getattr(network, "sampler", None)
        told = (
            type(self.estimator).__name__,
            getattr(encoder, "__name__", encoder),
            f"taught by {teachers}" if teachers else "",
            f"on {type(sampler).__name__}'s" if sampler else "",
            self.setting if self.setting != "transductive" else "",
        )
        return " ".join(filter(None, told))

    @property
    def most_epochs(self) -> int:
        """Epochs that early stopping may cut short; 0 where there are none."""
        network = getattr(self.estimator, "network", self.estimator)
        most = getattr(network, "max_iter", 0)
        return 400 if most == "auto" else most


@dataclass(frozen=True)
class Fitted:
    """A trained model: its scores of all nodes and classes, and what it cost.

    `seconds` are its share of a stack's, preparation included. Where it `diverged`,
    its loss became infinite, and it is the best until then.
    """

    model: Any
    scores: NDArray[np.floating]
    seconds: float
    epochs: int
    diverged: bool = False

    @property
    def predicted(self) -> NDArray[Any]:
        return self.model.classes_[self.scores.argmax(axis=1)]


def train(
    fits: Sequence[Fit],
    data: Bunch,
    splits: Sequence[Split],
    device: str,
    check: Callable[[Sequence[Fit]], None] = lambda fits: None,
) -> Iterator[list[tuple[int, Fitted | Exception]]]:
    """Yield fits' positions and what came of them, those of a stack together.

    `check` is asked before work on some fits begins, and ends all by raising.
    """
    where, memory = resolve_device(device), _memory_of(data.graph.fingerprint)
    stacks: dict[Any, list[tuple[int, Any, Problem]]] = defaultdict(list)
    begin = time.perf_counter()
    for i, (fit, split) in enumerate(zip(fits, splits, strict=True)):
        check([])
        estimator = _placed(fit.estimator, where)
        y = visible_labels(data, split.train)
        # ogbn-products has validation nodes of classes that no training node has.
        val = split.val[np.isin(data.target[split.val], data.target[split.train])]
        given = (data.graph[split.seen], y[split.seen])
        validation = {"X_val": data.graph[val], "y_val": data.target[val]}
        network = estimator.made() if hasattr(estimator, "made") else estimator
        if not isinstance(network, GNNClassifier) or network.sampler is not None:
            check([fit])
            yield [(i, _train_alone(estimator, given, validation, data))]
            continue
        if "memory" in network.get_params():
            network.set_params(memory=memory)
        try:
            with on_device(where):
                problem = prepare(network, *given, where, **validation)
        except Exception as error:
            yield [(i, error)]
            continue
        if problem.why_alone:
            check([fit])
            yield [(i, _train_alone(estimator, given, validation, data))]
        else:
            stacks[problem.key].append((i, network, problem))
    n_stacked = sum(map(len, stacks.values()))
    preparation = (time.perf_counter() - begin) / max(n_stacked, 1)
    for stack in stacks.values():
        size = _fitting(stack[0][2], where)
        for start in range(0, len(stack), size):
            part = stack[start : start + size]
            check([fits[i] for i, *_ in part])
            yield _train_stack(part, where, preparation)


@lru_cache(maxsize=1)
def _memory_of(fingerprint: str) -> LocalMemory:
    """Return what all fits on a graph share: propagated labels, and pairs."""
    return LocalMemory()


def _placed(estimator: BaseEstimator, device: torch.device) -> Any:
    estimator = clone(estimator)
    places = [p for p in estimator.get_params() if p.split("__")[-1] == "device"]
    return estimator.set_params(**dict.fromkeys(places, str(device)))


def _train_alone(
    estimator: Any, given: Sequence[Any], validation: dict[str, Any], data: Bunch
) -> Fitted | Exception:
    begin = time.perf_counter()
    try:
        # In a loop, as joblib's is one, Ctrl-C ends that; a fit would keep its model,
        # half trained, and count as done.
        fit = joblib.delayed(estimator.fit)(*given, **validation)
        (model,) = joblib.Parallel(n_jobs=1)([fit])
        scores = model.predict_proba(data.graph)
    except Exception as error:
        return error
    trained = model.network_ if hasattr(estimator, "made") else model
    epochs = getattr(trained, "n_iter_", 0)
    return Fitted(model, scores, time.perf_counter() - begin, epochs)


def _fitting(problem: Problem, device: torch.device) -> int:
    """Return how many models like this one fit a stack."""
    pairs = problem.pairs
    n_pairs = (
        0 if pairs is None else pairs.positives.shape[1] + pairs.negatives.shape[1]
    )
    # Attention keeps more, which is told as if it were pairs.
    layer = problem.encoder.layer
    an_arc = 0 if layer is None else layer.kept_per_arc
    arcs_a_node = problem.graph.adjacency.nnz / problem.graph.n_nodes + 1
    n_pairs += int(an_arc * problem.encoder.hidden_size * arcs_a_node)
    return models_at_once(problem.graph, problem.encoder, n_pairs, device)


def _train_stack(
    stack: Sequence[tuple[int, Any, Problem]],
    device: torch.device,
    preparation: float,
) -> list[tuple[int, Fitted | Exception]]:
    begin = time.perf_counter()
    problems = [problem for *_, problem in stack]
    all_trained = engine.train(problems, device, with_logits=True)
    seconds = preparation + (time.perf_counter() - begin) / len(stack)
    if device.type == "cuda":
        # Processes beside this one see only what is given back.
        torch.cuda.empty_cache()
    return [
        (i, trained.error or _fitted(network, trained, seconds))
        for (i, network, _), trained in zip(stack, all_trained, strict=True)
    ]


def _fitted(model: Any, trained: Trained, seconds: float) -> Fitted:
    log = trained.log
    assert trained.logits is not None
    return Fitted(model, trained.logits, seconds, log.n_iter, log.diverged)
