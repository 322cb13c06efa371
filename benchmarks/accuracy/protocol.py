"""The paper's protocol: choose on validation, then test with fresh seeds.

Every method is given a list of candidates. Each candidate is fitted once on each split
and the one with the best mean validation accuracy is kept; only then are the test
nodes looked at, with other seeds. Validation nodes are those of the split, used both
for early stopping and for the choice, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Bunch

__all__ = ["choose", "paired_difference", "test_accuracies", "validation_accuracy"]

Split = tuple[np.ndarray, np.ndarray, np.ndarray]


def fit(
    model: BaseEstimator, data: Bunch, split: Split, seed: int, **parameters: Any
) -> BaseEstimator:
    """Fit a clone on a split's training nodes, with its validation nodes."""
    train, val, _ = split
    graph, y = data.graph, data.target
    return (
        clone(model)
        .set_params(random_state=seed, **parameters)
        .fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
    )


def validation_accuracy(model: BaseEstimator) -> float:
    """Return the validation accuracy of the model that early stopping kept."""
    return model.validation_scores_[model.best_iter_]


def choose(
    model: BaseEstimator,
    candidates: Sequence[Mapping[str, Any]],
    data: Bunch,
    splits: Sequence[Split],
    *,
    seed: int = 0,
    n_jobs: int | None = -1,
) -> tuple[dict[str, Any], list[float]]:
    """Choose the candidate of the best mean validation accuracy.

    Returns
    -------
    dict
        The chosen parameters.
    list of float
        Mean validation accuracy of every candidate.
    """

    def score(candidate: Mapping[str, Any], split: Split) -> float:
        return validation_accuracy(fit(model, data, split, seed, **candidate))

    scores = Parallel(n_jobs=n_jobs)(
        delayed(score)(candidate, split) for candidate in candidates for split in splits
    )
    means = np.reshape(scores, (len(candidates), len(splits))).mean(axis=1)
    return dict(candidates[int(means.argmax())]), means.tolist()


def test_accuracies(
    model: BaseEstimator,
    parameters: Mapping[str, Any],
    data: Bunch,
    splits: Sequence[Split],
    seeds: Sequence[int],
    *,
    n_jobs: int | None = -1,
) -> np.ndarray:
    """Return test accuracy in percent, float64 of shape (n_splits, n_seeds)."""

    def score(split: Split, seed: int) -> float:
        test = split[2]
        fitted = fit(model, data, split, seed, **parameters)
        return 100 * fitted.score(data.graph[test], data.target[test])

    scores = Parallel(n_jobs=n_jobs)(
        delayed(score)(split, seed) for split in splits for seed in seeds
    )
    return np.reshape(scores, (len(splits), len(seeds)))


def paired_difference(ours: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Return mean and standard error of the difference, paired by split."""
    difference = ours.mean(axis=1) - other.mean(axis=1)
    return float(difference.mean()), float(
        difference.std(ddof=1) / np.sqrt(len(difference))
    )
