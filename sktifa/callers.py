"""What scikit-learn is about to do with a graph or its labels.

Code that takes arrays alone reads a graph as one, and from there on nothing tells that
there were edges; code that knows no unlabelled nodes takes their mark for one more
class. Neither says so to whom it calls, so the callers are looked at: the estimators
whose methods are running, the nearest first.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import joblib
import numpy as np
import sklearn
import torch
from sklearn.base import BaseEstimator, is_classifier
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils.validation import _num_samples

from sktifa.exceptions import GraphError, GraphWarning, LabelError, ParameterError

__all__ = [
    "announce_array",
    "ends_the_loop",
    "goes_to_user",
    "parts_of",
    "refuse_cut",
    "refuse_lost_graph",
    "refuse_marks_as_class",
    "refuse_marks_as_wrong",
    "warn_user",
]

# Stacking's `passthrough` asks for the features beside the predictions; a class that
# all or no training nodes have is predicted without a look at any.
_ON_PURPOSE = {"_concatenate_predictions", "_ConstantPredictor"}


# Where `predict` returns what that of another estimator does, and nothing else.
_HAND_ON = {
    "sklearn.pipeline",
    "sklearn.model_selection._classification_threshold",
    "sklearn.model_selection._search",
    "sktifa.compose",
}
_OURS, _SKLEARN, *_OTHERS = (
    f"{Path(file).parent}{os.sep}"
    for file in (
        __file__,
        sklearn.__file__,
        joblib.__file__,
        np.__file__,
        torch.__file__,
    )
)
# Where no user's line is. Decorators' frames are contextlib's, or torch's.
_NO_USER = _OURS, _SKLEARN, *_OTHERS, contextlib.__file__

_last_was_interrupted = False

# scikit-learn's classifiers that know unlabelled nodes, or don't look at labels.
_PASS_LABELS_ON = Pipeline, BaseSearchCV, SelfTrainingClassifier


def announce_array() -> None:
    """Say that an estimator reads a graph as an array of its nodes' features.

    Code that is no estimator's means it, and so does Stacking's `passthrough`. All else
    is warned, or refused if a graph classifier is to be trained on the array: within
    the reader, or behind it in a pipeline.
    """
    chain: list[BaseEstimator] = []
    for frame in _frames(2):
        if not _ON_PURPOSE.isdisjoint(frame.f_code.co_qualname.split(".")):
            return
        owner = _owner(frame)
        if owner is not None and not (chain and chain[-1] is owner):
            chain.append(owner)
    if not chain:
        return
    reader = chain[0]
    name = type(reader).__name__
    if _holds_graph_classifier(reader):
        mend = (
            "Give it the numbers of the nodes: "
            f"{name}(OnNodes(classifier, graph)).fit(graph.nodes[:, None], y), with "
            "sktifa.OnNodes."
        )
        if hasattr(reader, "transform"):
            mend = (
                f"sktifa.OnFeatures({name}(...)) takes one with a classifier of "
                "arrays inside."
            )
        raise GraphError(
            f"{name} reads the graph as a plain array, in which its graph classifier "
            f"would find no edges. {mend}"
        )
    for inner, outer in pairwise(chain):
        if not isinstance(outer, Pipeline):
            continue
        last = outer.steps[-1][1]
        if inner is not last and _holds_graph_classifier(last):
            step = type(inner).__name__
            raise GraphError(
                f"{step} makes a plain array of the graph, in which the pipeline's "
                f"{type(last).__name__} would find no edges: "
                f"sktifa.OnFeatures({step}(...)) keeps the graph."
            )
    mend = ""
    if hasattr(reader, "transform"):
        mend = f"sktifa.OnFeatures({name}(...)) keeps the graph, "
    warn_user(
        f"{name} reads the graph as a plain array of its nodes' features, without the "
        f"edges: {mend}np.asarray(graph) says that this is meant.",
        GraphWarning,
    )


def refuse_lost_graph() -> None:
    """Refuse an array that a pipeline's steps have made of a graph.

    That is, where the fitted classifier is the last step, and the pipeline got a graph.
    """
    inner = None
    for frame in _frames(2):
        owner = _owner(frame)
        if owner is None or owner is inner:
            continue
        is_last = isinstance(owner, Pipeline) and owner.steps[-1][1] is inner
        # A graph has edges: it can't be imported here, for it imports this module.
        if is_last and hasattr(frame.f_locals.get("X"), "adjacency"):
            raise GraphError(
                f"the pipeline's steps made an array of the graph, in which its "
                f"{type(inner).__name__} would find no edges: sktifa.OnFeatures around "
                "a transformer keeps the graph, and so does "
                "LabelPropagationTIG(as_graph=True)."
            )
        inner = owner


def refuse_marks_as_class(
    has_unlabelled: Callable[[Any, Any], bool], mark: Any
) -> None:
    """Refuse to be fitted by a classifier that takes `mark` for one more class.

    That is, by a meta-estimator that is a classifier itself and was given unlabelled
    nodes; only scikit-learn's own are known to. `has_unlabelled` is told labels and the
    mark.
    """
    for frame in _frames(2):
        name, y = _fits_classes(frame)
        if y is not None and has_unlabelled(y, mark):
            raise LabelError(
                f"{name} takes {mark!r} for one more class: fit it on the labelled "
                "nodes, fit(graph[labeled], y[labeled]). The selection brings the "
                "whole graph along."
            )


def _fits_classes(frame: FrameType) -> tuple[str, Any]:
    """Return who in scikit-learn fits a classifier to each value of `y`, and these."""
    if frame.f_globals.get("__name__") == "sklearn.multiclass":
        # In another process nothing else is left of OneVsRestClassifier.
        classes = frame.f_locals.get("classes")
        if frame.f_code.co_name == "_fit_binary" and classes is not None:
            return "OneVsRestClassifier", classes[1:]
    owner = _owner(frame)
    if (
        owner is None
        or frame.f_code.co_name != "fit"
        or not type(owner).__module__.startswith("sklearn.")
        or isinstance(owner, _PASS_LABELS_ON)
        or not is_classifier(owner)
    ):
        return "", None
    return type(owner).__name__, frame.f_locals.get("y")


def refuse_marks_as_wrong(
    has_unlabelled: Callable[[Any, Any], bool], mark: Any
) -> None:
    """Refuse to predict unlabelled nodes for a scorer that counts `mark` as wrong.

    Only scikit-learn's own are known to.
    """
    for frame in _frames(2):
        if frame.f_globals.get("__name__") != "sklearn.metrics._scorer":
            continue
        metric = getattr(frame.f_locals.get("self"), "_score_func", None)
        y = frame.f_locals.get("y_true")
        # Somebody's own metric may know unlabelled nodes.
        ours = getattr(metric, "__module__", "").startswith("sklearn.")
        if ours and y is not None and has_unlabelled(y, mark):
            raise LabelError(
                f"{metric.__name__} takes {mark!r} for one more class, which no node "
                "is predicted to be: score labelled nodes alone, as the splits of "
                "sktifa.LabeledNodeKFold do, or leave scoring=None, which knows "
                "unlabelled ones."
            )


def refuse_cut(X: Any, X_val: Any) -> None:
    """Refuse validation nodes that a search has cut by its training fold.

    scikit-learn cuts every argument of `fit` that has as many entries as `X`; then
    `X_val` was as long as what `X` is a fold of.
    """
    n = _length(X)
    if n is None or n != _length(X_val):
        return
    whole, given = n, set()
    for frame in _frames(2):
        if frame.f_globals.get("__name__", "").startswith("sklearn."):
            whole = max(whole, _length(frame.f_locals.get("X")) or 0)
            given |= set(_lengths_of_validation(frame.f_locals.values(), depth=2))
    if whole > n and whole in given:
        raise ParameterError(
            f"X_val had {whole} entries, as many as X, and {n} of them arrived: "
            "scikit-learn cuts whatever has as many entries as X by its folds. "
            "sktifa.BatchedGridSearchCV leaves X_val whole; elsewhere give it another "
            "length, such as one node more, unlabelled."
        )


def _lengths_of_validation(values: Iterable[Any], depth: int) -> Iterator[int | None]:
    """Yield the lengths of what is called X_val in dicts of arguments."""
    for value in values:
        if isinstance(value, dict):
            for name, argument in value.items():
                if isinstance(name, str) and name.endswith("X_val"):
                    yield _length(argument)
        inside = value.values() if isinstance(value, dict) else value
        if depth and isinstance(value, (dict, tuple)):
            yield from _lengths_of_validation(inside, depth - 1)


def ends_the_loop(interrupted: bool) -> bool:
    """Tell whether a fit that is over shall end what called it.

    Ctrl-C ends a fit early and keeps its model. In a loop of scikit-learn's, or for the
    second fit on end, it means the loop.
    """
    global _last_was_interrupted
    again, _last_was_interrupted = _last_was_interrupted, interrupted
    if not interrupted:
        return False
    modules = (frame.f_globals.get("__name__", "") for frame in _frames(2))
    return again or any(
        name.startswith(("sklearn.", "joblib.parallel"))
        and not name.startswith(("sklearn.base", "sklearn.pipeline", "sklearn.utils"))
        for name in modules
    )


def goes_to_user() -> bool:
    """Tell whether the caller's result goes to a user.

    Code of scikit-learn's, and ours, that works on with what is predicted knows it by
    position.
    """
    for frame in _frames(3):
        if frame.f_globals.get("__name__") not in _HAND_ON:
            return not frame.f_code.co_filename.startswith((_OURS, _SKLEARN))
    return True


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's that led here."""
    frames = list(_frames(0))  # a comprehension would be a frame more
    outside = [not f.f_code.co_filename.startswith(_NO_USER) for f in frames]
    level = outside.index(True) + 1 if any(outside) else len(outside)
    warnings.warn(message, category, stacklevel=level)


def _length(X: Any) -> int | None:
    try:
        return _num_samples(X)
    except TypeError:  # nothing that scikit-learn could cut
        return None


def _frames(skipped: int) -> Iterator[FrameType]:
    """Yield what runs, but for this generator and the `skipped` frames around it."""
    frame = inspect.currentframe()
    while frame is not None:
        if skipped < 0:
            yield frame
        frame, skipped = frame.f_back, skipped - 1


def _owner(frame: FrameType) -> BaseEstimator | None:
    """Return the estimator whose method runs in a frame."""
    if "self" not in frame.f_code.co_varnames:
        return None
    owner = frame.f_locals.get("self")
    return owner if isinstance(owner, BaseEstimator) else None


def parts_of(estimator: Any) -> list[Any]:
    """Return an estimator, and all that it is made of."""
    parts = [estimator]
    if hasattr(estimator, "get_params"):
        parts += estimator.get_params(deep=True).values()
    return parts


def _holds_graph_classifier(estimator: Any) -> bool:
    parts = parts_of(estimator)
    return any(getattr(part, "_trains_on_graphs", False) for part in parts)
