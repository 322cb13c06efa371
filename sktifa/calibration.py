"""How sure a classifier may be, found out on labels that it didn't see."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.utils import check_random_state

__all__ = ["at_temperature", "deal_folds", "fit_temperature"]

# Temperatures outside are no longer told apart by any confidence.
_COLDEST, _HOTTEST = 0.05, 20.0


def deal_folds(
    codes: NDArray[np.int64],
    n_folds: int,
    random_state: int | np.random.RandomState | None = None,
) -> list[NDArray[np.int64]]:
    """Deal labelled nodes into folds so that no class is ever without a label.

    There are fewer than `n_folds` where there are fewer nodes. Returned are the
    positions of each fold's nodes, sorted; a class's only node is in none.
    """
    sizes = np.bincount(codes)
    shuffled = check_random_state(random_state).permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    # Neighbours in this order are dealt to different folds.
    by_class = by_class[sizes[codes[by_class]] > 1]
    return [np.sort(by_class[i::n_folds]) for i in range(min(n_folds, len(by_class)))]


def fit_temperature(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64]
) -> float:
    """Find the temperature at which probabilities are as sure as they are right.

    Above 1 where the model was too sure of nodes, (n, n_classes), whose labels it
    didn't see. The temperature with the least cross-entropy, as of Guo et al., "On
    Calibration of Modern Neural Networks", ICML 2017, on targets with one node's worth
    of doubt a class, as of Platt: of n nodes, all predicted right, follows no
    certainty.
    """
    n, n_classes = probabilities.shape
    target = np.full((n, n_classes), 1 / (n + n_classes))
    target[np.arange(n), codes] = (n + 1) / (n + n_classes)

    def cross_entropy(log_temperature: float) -> float:
        chance = at_temperature(probabilities, np.exp(log_temperature))
        return -float((target * np.log(chance)).sum())

    bounds = (np.log(_COLDEST), np.log(_HOTTEST))
    return float(np.exp(minimize_scalar(cross_entropy, bounds=bounds).x))


def at_temperature(
    probabilities: NDArray[np.float64], temperature: float
) -> NDArray[np.float64]:
    """Soften (above 1) or sharpen (below 1) probabilities; their order stays."""
    tiny = np.finfo(np.float64).tiny
    logits = np.log(np.maximum(probabilities, tiny)) / temperature
    return np.maximum(softmax(logits, axis=1), tiny)
