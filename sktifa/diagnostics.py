"""Numbers that show where in a graph a classifier is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sktifa.exceptions import ParameterError
from sktifa.information.loss_weights import tie_averaged_ranks

__all__ = ["accuracy_by_gain"]


def accuracy_by_gain(
    gain: ArrayLike, correct: ArrayLike, n_bins: int = 5
) -> NDArray[np.float64]:
    """Compute accuracy by rank of the topology information gain.

    Parameters
    ----------
    gain : array-like of shape (n,)
        Information gain of each node (Eq. 4).
    correct : array-like of bool or float, shape (n,)
        Whether, or how often, each node was classified correctly.
    n_bins : int, default=5
        Number of bins of equal size, from the smallest gain to the largest. Nodes of
        equal gain share their average rank, so ties never straddle two bins.

    Returns
    -------
    ndarray of float64, shape (n_bins,)
        Mean of `correct` in each bin; NaN where ties leave a bin empty.

    Examples
    --------
    >>> from sktifa.diagnostics import accuracy_by_gain
    >>> accuracy_by_gain([0.1, 0.4, 0.2, 0.3], [0, 1, 1, 1], n_bins=2)
    array([0.5, 1. ])
    """
    gain, correct = np.asarray(gain), np.asarray(correct, dtype=float)
    if gain.shape != correct.shape or gain.ndim != 1:
        raise ParameterError(
            f"gain and correct must be one-dimensional and of one length, got shapes "
            f"{gain.shape} and {correct.shape}."
        )
    bins = (tie_averaged_ranks(gain) * n_bins / len(gain)).astype(int)
    sums = np.bincount(bins, weights=correct, minlength=n_bins)
    counts = np.bincount(bins, minlength=n_bins)
    return np.divide(sums, counts, out=np.full(n_bins, np.nan), where=counts > 0)
