"""Hyper-parameter search that trains many candidates at once.

scikit-learn's searches fit one candidate after another. These have the same
constructor, results and methods, but evaluate candidates and folds that share an
architecture as one stack (:mod:`sktifa.training.engine`), work on the graph once for
all of them, and can be interrupted.
"""

from __future__ import annotations

import json
import numbers
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, fields
from itertools import pairwise, product
from pathlib import Path
from traceback import format_exception
from typing import Any, ClassVar

import joblib
import numpy as np
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context, clone, is_classifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import (
    _fit_and_score,
    _insert_error_scores,
    _score,
    _warn_or_raise_about_fit_failures,
)
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, _num_samples

from sktifa.cache import LocalMemory
from sktifa.callers import warn_user
from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.classifiers.gnn import as_decisions, as_probabilities
from sktifa.classifiers.prepare import adopt, prepare
from sktifa.device import on_device, resolve_device
from sktifa.exceptions import ParameterError, StorageError
from sktifa.graph import Graph, as_graph, is_feature_matrix
from sktifa.labels import is_labelled, with_unlabelled
from sktifa.logs import say
from sktifa.training import engine
from sktifa.training.encoders import EncoderSpec
from sktifa.training.problem import Problem, Trained, TrainingLog
from sktifa.training.terms import SelfConsistency, Target

__all__ = ["BatchedGridSearchCV", "BatchedRandomizedSearchCV"]

_ABSENT: Any = object()
_OURS = GNNClassifier, TIFAGCLClassifier


@dataclass
class _Task:
    """One candidate on one split."""

    number: int
    split: int
    parameters: dict[str, Any]
    train: Any
    test: Any
    estimator: Any = None
    context: Any = None
    key: str = ""


class _Batched(BaseSearchCV):
    """What a batched search does differently: the evaluation of candidates."""

    checkpoint: str | os.PathLike[str] | None
    batch_size: int | None

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self, X: Graph | ArrayLike, y: ArrayLike | None = None, **params: Any
    ) -> _Batched:
        """Evaluate all candidates, and refit the best one.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            The graph, or a selection of its nodes. Candidates are stacked for a
            :class:`~sktifa.Graph` alone.
        y : array-like of shape (n,)
            Labels.
        **params : dict
            Passed on to `fit` of the estimator, the splitter (`groups`) and the
            scorer, as by scikit-learn's searches.

        Returns
        -------
        self
        """
        scorers, refit_metric = self._get_scorers()
        if not is_feature_matrix(X):
            X = as_graph(X)
        X, y = indexable(X, y)
        params = _check_method_params(X, params=_uncut(self.estimator, X, params))
        routed = self._get_routed_params_for_fit(params)
        data = {"estimator": self, "X": X, "y": y}
        root = self._init_callback_context(max_subtasks=1 + (self.refit is not False))
        root.call_on_fit_task_begin(**data)
        self._checked_cv_orig = check_cv(
            self.cv, y, classifier=is_classifier(self.estimator)
        )
        splits = list(self._checked_cv_orig.split(X, y, **routed.splitter.split))
        self.n_splits_ = len(splits)
        base = clone(self.estimator)
        evaluation = _Evaluation(self, base, X, y, scorers, routed)
        candidates: list[dict[str, Any]] = []
        outcomes: list[dict[str, Any]] = []
        more: dict[str, list[Any]] = defaultdict(list)
        results: dict[str, Any] = {}

        def evaluate_candidates(
            candidate_params: Any,
            cv: Any = None,
            more_results: dict[str, Any] | None = None,
            callback_ctx: Any = None,
        ) -> dict[str, Any]:
            given = list(candidate_params)
            parts = splits if cv is None else list(cv.split(X, y))
            done = evaluation.run(given, parts, callback_ctx)
            if not done:
                raise ValueError(
                    "There is nothing to fit: the grid or the splitter is empty."
                )
            _warn_or_raise_about_fit_failures(done, self.error_score)
            if callable(self.scoring):
                _insert_error_scores(done, self.error_score)
            candidates.extend(given)
            outcomes.extend(done)
            for name, values in (more_results or {}).items():
                more[name].extend(values)
            results.update(
                self._format_results(candidates, self.n_splits_, outcomes, more)
            )
            return results

        self._run_search(evaluate_candidates, callback_ctx=root)
        first = outcomes[0]["test_scores"]
        self.multimetric_ = isinstance(first, dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(first)
            refit_metric = self.refit
        self._choose(results, refit_metric)
        if self.refit:
            self._refit(base, X, y, routed.estimator.fit, root)
        self.scorer_ = _named_scorers(scorers)
        self.cv_results_ = results
        root.call_on_fit_task_end(**data)
        return self

    def _choose(self, results: dict[str, Any], refit_metric: str) -> None:
        if not self.refit and self.multimetric_:
            return
        self.best_index_ = self._select_best_index(self.refit, refit_metric, results)
        if not callable(self.refit):
            self.best_score_ = results[f"mean_test_{refit_metric}"][self.best_index_]
        self.best_params_ = results["params"][self.best_index_]

    def _refit(
        self, base: Any, X: Any, y: Any, fit_params: dict[str, Any], root: Any
    ) -> None:
        self.best_estimator_ = clone(base).set_params(
            **clone(self.best_params_, safe=False)
        )
        context = root.subcontext(task_name="refit-with-best-params")
        begin = time.perf_counter()
        with context.propagate_callback_context(self.best_estimator_):
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            self.best_estimator_.fit(X, y, **fit_params)
        self.refit_time_ = time.perf_counter() - begin
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
        context.call_on_fit_task_end(estimator=self, X=X, y=y)


class _Evaluation:
    """Evaluates tasks: stacked where that can be, and only what is not yet done."""

    def __init__(
        self, search: _Batched, base: Any, X: Any, y: Any, scorer: Any, routed: Any
    ) -> None:
        self.search, self.base, self.X, self.y = search, base, X, y
        self.fit_params = routed.estimator.fit
        self.options = {
            "scorer": scorer,
            "fit_params": routed.estimator.fit,
            "score_params": routed.scorer.score,
            "return_train_score": search.return_train_score,
            "error_score": search.error_score,
        }
        self.checkpoint = None
        if search.checkpoint:
            _warn_of_new_draws(search)
            self.checkpoint = _Checkpoint(search.checkpoint)

    def run(
        self, candidates: Sequence[dict[str, Any]], splits: Sequence[Any], context: Any
    ) -> list[dict[str, Any]]:
        """Return the outcome of each candidate on each split, in this order."""
        tasks = list(self._tasks(candidates, splits, context))
        if self.search.verbose > 0:
            say(
                f"Fitting {len(splits)} folds for each of {len(candidates)} "
                f"candidates, {len(tasks)} fits in all."
            )
        outcomes: list[dict[str, Any]] = [{}] * len(tasks)
        open_tasks = []
        for task in tasks:
            known = self.checkpoint.get(task.key) if self.checkpoint else None
            if known is None:
                open_tasks.append(task)
                continue
            outcomes[task.number] = known
            self._call(task, "begin")
            self._call(task, "end")
        stacks, alone = self._plan(open_tasks)
        for task, outcome in self._evaluated(stacks, alone):
            outcomes[task.number] = outcome
            if self.checkpoint and self._is_whole(outcome):
                self.checkpoint.append(task.key, task.parameters, outcome)
            if self.search.verbose > 1:
                say(f"[{task.split}] {task.parameters}: {outcome['test_scores']}")
        return outcomes

    def _is_whole(self, outcome: dict[str, Any]) -> bool:
        """Tell whether fit and scoring went well: what failed is tried again."""
        if outcome["fit_error"] is not None:
            return False
        scores = outcome["test_scores"]
        told = list(scores.values()) if isinstance(scores, dict) else [scores]
        failed = self.search.error_score
        return not any(np.isnan(score) or score == failed for score in told)

    def _tasks(
        self, candidates: Sequence[dict[str, Any]], splits: Sequence[Any], context: Any
    ) -> Iterator[_Task]:
        of_data = ""
        if self.checkpoint:
            X = self.X
            graph = (X.fingerprint, X.nodes) if isinstance(X, Graph) else X
            scoring = _named(self.search.scoring)
            of_data = joblib.hash((graph, self.y, self.fit_params, scoring))
        pairs = product(candidates, enumerate(splits))
        for number, (parameters, (s, (train, test))) in enumerate(pairs):
            estimator = clone(self.base).set_params(**clone(parameters, safe=False))
            scored = _labelled(estimator, self.y, test)
            task = _Task(number, s, parameters, train, scored, estimator)
            if context is not None:
                task.context = context.subcontext(
                    task_name="candidate-split-evaluation", task_id=number
                )
            if self.checkpoint:
                told = {
                    name: value
                    for name, value in estimator.get_params().items()
                    if name not in ("device", "memory", "verbose")
                }
                told["return_train_score"] = self.search.return_train_score
                name = type(estimator).__name__
                task.key = joblib.hash((of_data, name, repr(told), train, test))
            yield task

    def _plan(self, tasks: Sequence[_Task]) -> tuple[list[list[_Task]], list[_Task]]:
        """Tell stacks from the tasks that must be fitted one by one."""
        reasons: dict[str, int] = defaultdict(int)
        by_shape: dict[str, list[_Task]] = defaultdict(list)
        alone = []
        for task in tasks:
            reason = _why_alone(task.estimator, self.X)
            if reason is None:
                by_shape[_shape(task.estimator)].append(task)
            else:
                reasons[reason] += 1
                if isinstance(self.X, Graph) and _is_ours(task.estimator):
                    by_shape[str(task.number)].append(task)
                else:
                    alone.append(task)
        for reason, count in reasons.items():
            warn_user(
                f"{count} of {len(tasks)} fits are done one by one, because {reason}: "
                "this can't be trained in a stack."
            )
        stacks = []
        for similar in by_shape.values():
            first = similar[0].estimator
            size = self.search.batch_size or engine.models_at_once(
                self.X,
                _spec(first, self.X),
                getattr(first, "n_positives", 0)
                + int(np.ptp(getattr(first, "negative_ranks", 0))),
                resolve_device(first.device),
            )
            n_stacks = -(-len(similar) // size)
            bounds = np.linspace(0, len(similar), n_stacks + 1).astype(int)
            stacks += [similar[a:b] for a, b in pairwise(bounds)]
        return stacks, alone

    def _evaluated(
        self, stacks: Sequence[Sequence[_Task]], alone: Sequence[_Task]
    ) -> Iterator[tuple[_Task, dict[str, Any]]]:
        """Yield the outcomes as they come."""
        search = self.search
        memory = None
        if any(getattr(t.estimator, "memory", "") is None for s in stacks for t in s):
            memory = LocalMemory()
        jobs: list[tuple[Sequence[_Task], Any]] = []
        for stack in stacks:
            bare = [(t.estimator, t.train, t.test) for t in stack]
            job = delayed(_evaluate_stack)(bare, self.X, self.y, memory, self.options)
            jobs.append((stack, job))
        for task in alone:
            job = delayed(_fit_and_score)(
                clone(self.base),
                self.X,
                self.y,
                train=task.train,
                test=task.test,
                parameters=task.parameters,
                verbose=search.verbose,
                return_n_test_samples=True,
                return_times=True,
                caller=search,
                callback_ctx=task.context,
                **self.options,
            )
            jobs.append(([task], job))
        # Ray's backend returns everything at the end.
        can_stream = get_active_backend()[0].supports_return_generator
        parallel = Parallel(
            n_jobs=search.n_jobs,
            pre_dispatch=search.pre_dispatch,
            return_as="generator" if can_stream else "list",
        )
        n_stacks = len(stacks)

        def dispatched() -> Iterator[Any]:
            for i, (stack, job) in enumerate(jobs):
                # A task that is fitted alone calls its callbacks itself.
                for task in stack if i < n_stacks else ():
                    self._call(task, "begin")
                yield job

        try:
            for i, result in enumerate(parallel(dispatched())):
                stack = jobs[i][0]
                if i >= n_stacks:
                    yield stack[0], result
                    continue
                for task, outcome in zip(stack, result, strict=True):
                    self._call(task, "end")
                    yield task, outcome
        finally:
            if memory is not None:
                memory.clear()

    def _call(self, task: _Task, moment: str) -> None:
        if task.context is not None:
            hook = getattr(task.context, f"call_on_fit_task_{moment}")
            hook(estimator=self.search)


def _labelled(estimator: Any, y: Any, part: Any) -> Any:
    """Leave out nodes that scorers would count as wrong, for they have no label."""
    missing_label = getattr(_last(estimator), "missing_label", _ABSENT)
    if y is None or missing_label is _ABSENT:
        return part
    labelled = part[is_labelled(y, missing_label)[part]]
    return labelled if len(labelled) else part


def _uncut(estimator: Any, X: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Keep validation sets from being cut by folds.

    scikit-learn cuts whatever has as many entries as `X`. One more node, without a
    label, changes nothing but that.
    """
    uncut = dict(params)
    for name, value in params.items():
        prefix, found, _ = name.rpartition("X_val")
        y_val = params.get(f"{prefix}y_val")
        if not found or y_val is None or _num_samples(value) != _num_samples(X):
            continue
        missing_label = getattr(_last(estimator), "missing_label", _ABSENT)
        if missing_label is not _ABSENT:
            again = np.r_[np.arange(_num_samples(value)), 0]
            uncut[name] = _safe_indexing(value, again)
            uncut[f"{prefix}y_val"] = with_unlabelled(y_val, missing_label)
    return uncut


def _last(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _is_ours(estimator: Any) -> bool:
    """Tell whether the engine can train it: callbacks want a fit of their own."""
    return type(estimator) in _OURS and not getattr(estimator, "_skl_callbacks", None)


def _why_alone(estimator: Any, X: Any) -> str | None:
    """Say what keeps a candidate out of every stack, as far as parameters tell."""
    if type(estimator) not in _OURS:
        return f"the estimator is a {type(estimator).__name__}"
    if not isinstance(X, Graph):
        return f"X is a {type(X).__name__}, not a Graph"
    if not _is_ours(estimator):
        return "the estimator has callbacks of its own"
    if not _spec(estimator, X).stackable:
        return f"encoder={estimator.encoder!r}"
    if estimator.sampler is not None:
        return f"sampler={estimator.sampler!r}"
    return None


def _spec(estimator: Any, X: Graph) -> EncoderSpec:
    return EncoderSpec(
        estimator.encoder, X.n_features, estimator.hidden_size, 1, estimator.n_layers
    )


def _shape(estimator: Any) -> str:
    """Tell candidates that can't share a stack apart, as far as parameters do.

    Whether they can is said by the problems' keys; this only deals them well.
    """
    kinds = (EncoderSpec, Problem, Target, SelfConsistency)
    names = {
        f.name for kind in kinds for f in fields(kind) if not f.metadata.get("own")
    }
    names |= {"encoder", "target", "pairing", "setting", "device"}
    parts = {name: getattr(estimator, name, None) for name in sorted(names)}
    has_terms = [
        bool(getattr(estimator, name, 0))
        for name in ("target_information", "teacher_weight")
    ]
    return repr((type(estimator).__name__, parts, has_terms))


def _named(scoring: Any) -> Any:
    """Tell scorers apart by what they are, not by where in memory."""
    try:
        return joblib.hash(scoring)
    except Exception:  # what can't be pickled, such as a lambda
        return repr(scoring)


def _warn_of_new_draws(search: _Batched) -> None:
    """Say where another run would draw other candidates or folds."""
    unseeded = []
    if getattr(search, "random_state", 0) is None:
        unseeded.append("the search")
    if getattr(search.cv, "shuffle", True) and (
        getattr(search.cv, "random_state", 0) is None
    ):
        unseeded.append("cv")
    if unseeded:
        warn_user(
            f"checkpoint: {' and '.join(unseeded)} has no random_state, so that "
            "another run draws anew and finds none of these results. Give an int."
        )


def _evaluate_stack(
    tasks: Sequence[tuple[Any, Any, Any]],
    X: Graph,
    y: Any,
    memory: LocalMemory | None,
    options: dict[str, Any],
) -> list[dict[str, Any]]:
    """Train the models of a stack and score each."""
    begin = time.perf_counter()
    fit_params = options["fit_params"] or {}
    device = resolve_device(tasks[0][0].device)
    # What is fitted here goes when the stack is scored.
    tasks = [(copy(estimator), train, test) for estimator, train, test in tasks]
    # Candidates are tried on the same parts, which are cut once.
    cut: dict[int, tuple[Any, Any, dict[str, Any]]] = {}

    def prepared(task: tuple[Any, Any, Any]) -> Problem | Exception:
        estimator, train, _ = task
        if getattr(estimator, "memory", "") is None:
            estimator.memory = memory
        try:
            if id(train) not in cut:
                given = _check_method_params(X, params=fit_params, indices=train)
                cut[id(train)] = *_safe_split(estimator, X, y, train), given
            X_train, y_train, given = cut[id(train)]
            return prepare(estimator, X_train, y_train, device, **given)
        except Exception as error:
            return error

    # On a GPU what is left to the CPU is Python's, for which threads only queue up.
    n_threads = min(len(tasks), 2 if device.type == "cuda" else joblib.cpu_count())
    with on_device(device), ThreadPoolExecutor(n_threads) as pool:
        problems = list(pool.map(prepared, tasks))
    outcomes: list[Trained | Exception] = [
        problem if isinstance(problem, Exception) else Trained(None, TrainingLog())
        for problem in problems
    ]
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, problem in enumerate(problems):
        if isinstance(problem, Problem):
            groups[i if problem.why_alone else problem.key].append(i)
    for group in groups.values():
        members: list[Any] = [problems[i] for i in group]
        # A model that has seen a part of the graph predicts on the whole of it.
        knows_all = members[0].source is None and members[0].graph.is_same_graph(X)
        done = engine.train(members, device, with_logits=knows_all)
        for i, problem, trained in zip(group, members, done, strict=True):
            outcomes[i] = trained.error or trained
            if trained.error is None:
                adopt(tasks[i][0], problem, trained)
    fit_time = (time.perf_counter() - begin) / len(tasks)
    return [
        _scored(task, outcome, X, y, fit_time, options)
        for task, outcome in zip(tasks, outcomes, strict=True)
    ]


def _scored(
    task: tuple[Any, Any, Any],
    trained: Trained | Exception,
    X: Graph,
    y: Any,
    fit_time: float,
    options: dict[str, Any],
) -> dict[str, Any]:
    estimator, train, test = task
    scorer, error_score = options["scorer"], options["error_score"]
    outcome: dict[str, Any] = {
        "fit_time": fit_time,
        "score_time": 0.0,
        "fit_error": None,
        "n_test_samples": len(test),
    }
    parts = {"test_scores": test}
    if options["return_train_score"]:
        parts["train_scores"] = _labelled(estimator, y, train)
    if isinstance(trained, Exception):
        if error_score == "raise":
            raise trained
        outcome["fit_error"] = "".join(format_exception(trained))
        failed, names = error_score, _named_scorers(scorer)
        if names is not scorer:
            failed = dict.fromkeys(names, error_score)
        return {**outcome, **dict.fromkeys(parts, failed)}
    if trained.logits is not None:
        _answer_from(estimator, trained.logits)
    begin = time.perf_counter()
    for name, part in parts.items():
        X_part, y_part = _safe_split(estimator, X, y, part, train)
        params = _check_method_params(X, options["score_params"] or {}, indices=part)
        outcome[name] = _score(estimator, X_part, y_part, scorer, params, error_score)
    outcome["score_time"] = time.perf_counter() - begin
    return outcome


def _named_scorers(scorer: Any) -> Any:
    """Return the scorers by name that scikit-learn has made one of, or the only one."""
    return getattr(scorer, "_scorers", scorer)


def _answer_from(estimator: Any, logits: NDArray[np.float32]) -> None:
    """Score a model without running it forward: all nodes' class scores are known."""

    def predict(X: Graph) -> Any:
        return estimator.classes_[logits[X.nodes].argmax(axis=1)]

    def predict_proba(X: Graph) -> Any:
        return as_probabilities(logits[X.nodes])

    def decision_function(X: Graph) -> Any:
        return as_decisions(logits[X.nodes])

    # Scorers look at the names.
    for answer in (predict, predict_proba, decision_function):
        setattr(estimator, answer.__name__, answer)


class _Checkpoint:
    """Outcomes on disk, a JSON object a line, added as they come."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_file():
            raise ParameterError(
                f"checkpoint={str(path)!r} is a folder or device: name a file."
            )
        self._known: dict[str, dict[str, Any]] = {}
        text = self.path.read_text() if self.path.exists() else ""
        for line in text.splitlines():
            # A search that was killed may leave half a line.
            try:
                record = json.loads(line)
                self._known[record["key"]] = record["outcome"]
            except (ValueError, KeyError, TypeError):
                continue
        # Where nothing can be written, that is known before anything trains.
        self._write("\n" if text and not text.endswith("\n") else "")

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what is known of a task."""
        return self._known.get(key)

    def append(
        self, key: str, parameters: dict[str, Any], outcome: dict[str, Any]
    ) -> None:
        """Write an outcome to the end of the file."""
        record = {"key": key, "parameters": parameters, "outcome": outcome}
        self._write(json.dumps(record, default=_plain) + "\n")

    def _write(self, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(text)
        except OSError as error:
            raise StorageError(
                f"the checkpoint {str(self.path)!r} can't be written: "
                f"{error.strerror or error}. Make room, or name a file elsewhere; what "
                "is in the file already is not trained again."
            ) from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else repr(value)


_CONSTRAINTS: dict[str, list[Any]] = {
    "checkpoint": [str, os.PathLike, None],
    "batch_size": [Interval(numbers.Integral, 1, None, closed="left"), None],
}


class BatchedGridSearchCV(_Batched, GridSearchCV):
    """Exhaustive search that trains candidates and folds at once.

    Parameters
    ----------
    estimator : GNNClassifier or TIFAGCLClassifier
        Any other estimator is fitted one by one, with a warning, and so are
        candidates with a parameter that can't be stacked: samplers, and encoders other
        than "gcn", "appnp", "sage", "mlp" and layers of your own.
    param_grid : dict or list of dict
        Values to try.
    scoring, refit, cv, verbose, pre_dispatch, error_score, return_train_score
        As for scikit-learn's class. A failed candidate scores `error_score`, and a
        `FitFailedWarning` says why.
    n_jobs : int, default=None
        Processes, or workers of the joblib backend, that the stacks are dealt to. One
        GPU, and the cores of one machine, are best used by one.
    checkpoint : path, default=None
        A file to which the results are written as they come, a line of JSON each. A
        search that finds its results there doesn't do the work again: one that was
        interrupted goes on. Failed fits are tried again.
    batch_size : int, default=None
        Most models in a stack. None takes as many as fit in the memory that is free,
        and on the CPU the few that keep its threads busy.

    Attributes
    ----------
    cv_results_, best_estimator_, best_params_, best_score_, best_index_, scorer_, \
n_splits_, refit_time_, multimetric_, classes_, n_features_in_
        As for scikit-learn's class.

    See Also
    --------
    sklearn.model_selection.GridSearchCV : One candidate after another.
    sktifa.paper_grid : The grids of the TIFA-GCL paper.

    Notes
    -----
    Results are those of scikit-learn's class, whatever `batch_size` and `n_jobs`: bit
    for bit on the CPU, up to the order of floating-point sums on a GPU.
    ``fit_time`` is a stack's time, divided by its models. Callbacks see candidates
    and folds, not the epochs of a stacked model. Where the estimator has no `memory`,
    shared work is kept in memory for the length of the search.

    Examples
    --------
    >>> from sktifa import GNNClassifier, LabeledNodeKFold, load_digits_graph
    >>> from sktifa.model_selection import BatchedGridSearchCV
    >>> digits = load_digits_graph()
    >>> graph, y = digits.graph[::9], digits.target[::9]
    >>> model = GNNClassifier(max_iter=30, device="cpu", random_state=0)
    >>> search = BatchedGridSearchCV(
    ...     model, {"learning_rate": [1e-4, 0.01]}, cv=LabeledNodeKFold(2)
    ... ).fit(graph, y)
    >>> search.best_params_
    {'learning_rate': 0.01}
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GridSearchCV._parameter_constraints,
        **_CONSTRAINTS,
    }

    def __init__(
        self,
        estimator: Any,
        param_grid: dict[str, Any] | list[dict[str, Any]],
        *,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str | Callable[..., Any] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        error_score: Any = np.nan,
        return_train_score: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.checkpoint = checkpoint
        self.batch_size = batch_size


class BatchedRandomizedSearchCV(_Batched, RandomizedSearchCV):
    """Randomized search that trains candidates and folds at once.

    Parameters
    ----------
    estimator : GNNClassifier or TIFAGCLClassifier
        As for :class:`BatchedGridSearchCV`.
    param_distributions : dict or list of dict
        Distributions or lists of values to draw from.
    n_iter : int, default=10
        Number of candidates.
    random_state : int, RandomState or None, default=None
        Draws the candidates.
    scoring, n_jobs, refit, cv, verbose, pre_dispatch, error_score, \
return_train_score, checkpoint, batch_size
        As for :class:`BatchedGridSearchCV`.

    Attributes
    ----------
    cv_results_, best_estimator_, best_params_, best_score_, best_index_, scorer_, \
n_splits_, refit_time_, multimetric_, classes_, n_features_in_
        As for scikit-learn's class.

    See Also
    --------
    BatchedGridSearchCV : All combinations of some values.
    sklearn.model_selection.RandomizedSearchCV : One candidate after another.

    Examples
    --------
    >>> from scipy.stats import loguniform
    >>> from sktifa import GNNClassifier, LabeledNodeKFold, load_digits_graph
    >>> from sktifa.model_selection import BatchedRandomizedSearchCV
    >>> digits = load_digits_graph()
    >>> graph, y = digits.graph[::9], digits.target[::9]
    >>> search = BatchedRandomizedSearchCV(
    ...     GNNClassifier(max_iter=30, device="cpu", random_state=0),
    ...     {"learning_rate": loguniform(1e-3, 1e-1)},
    ...     n_iter=3,
    ...     cv=LabeledNodeKFold(2),
    ...     random_state=0,
    ... ).fit(graph, y)
    >>> len(search.cv_results_["params"])
    3
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **RandomizedSearchCV._parameter_constraints,
        **_CONSTRAINTS,
    }

    def __init__(
        self,
        estimator: Any,
        param_distributions: dict[str, Any] | list[dict[str, Any]],
        *,
        n_iter: int = 10,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: bool | str | Callable[..., Any] = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(
            estimator,
            param_distributions,
            n_iter=n_iter,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            random_state=random_state,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.checkpoint = checkpoint
        self.batch_size = batch_size
