"""Where a classifier is right, by how much annotated information arrives."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch
from sklearn.utils.validation import column_or_1d

from sktifa.checks import as_array, as_numbers, check_count
from sktifa.exceptions import LabelError, ParameterError
from sktifa.information.loss_weights import tie_averaged_ranks

__all__ = ["accuracy_by_gain", "correctness", "radial_decay"]

# More would hold no node each, and a grid of them no memory.
_MOST_BINS = 1000


def correctness(y_true: ArrayLike, y_pred: ArrayLike) -> NDArray[np.bool_]:
    """Tell where predictions are right, refusing labels that can't be compared.

    NumPy finds numbers and text unequal without a word, so that predictions of "3" for
    3 would all be wrong.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Labels and predicted labels.

    Returns
    -------
    ndarray of bool, shape (n,)

    Raises
    ------
    LabelError
        If one is text and the other is not, or they differ in length.

    Examples
    --------
    >>> from sktifa.diagnostics import correctness
    >>> correctness(["cat", "dog"], ["cat", "cat"])
    array([ True, False])
    """
    true, predicted = column_or_1d(y_true), column_or_1d(y_pred)
    if len(true) != len(predicted):
        raise LabelError(
            f"there are {len(true)} labels and {len(predicted)} predictions: give one "
            "of each a node."
        )
    kinds = _is_text(true), _is_text(predicted)
    if len(true) and kinds[0] != kinds[1]:
        raise LabelError(
            f"labels such as {true.tolist()[0]!r} and predictions such as "
            f"{predicted.tolist()[0]!r} can't be compared: one is text, the other is "
            "not. Give both in the type of the classifier's classes_."
        )
    return np.asarray(true == predicted, dtype=bool)


def accuracy_by_gain(
    gain: ArrayLike, correct: ArrayLike, n_bins: int = 5
) -> NDArray[np.float64]:
    """Compute accuracy by rank of the topology information gain (figures 4 and 6).

    Parameters
    ----------
    gain : array-like of shape (n,)
        Information gain of each node (Eq. 4).
    correct : array-like of bool or float, shape (n,)
        Whether, or how often, each node was classified correctly. The difference of two
        classifiers' gives what one gains over the other.
    n_bins : int, default=5
        Number of bins of equal size, from the smallest gain to the largest. Nodes of
        equal gain share their average rank, so ties never straddle two bins.

    Returns
    -------
    ndarray of float64, shape (n_bins,)
        Mean of `correct` in each bin; NaN where ties leave a bin empty.

    Raises
    ------
    ParameterError
        If the two differ in length, are not numbers, or `n_bins` is below 1.

    Examples
    --------
    >>> from sktifa.diagnostics import accuracy_by_gain
    >>> accuracy_by_gain([0.1, 0.4, 0.2, 0.3], [0, 1, 1, 1], n_bins=2)
    array([0.5, 1. ])
    """
    gain, correct = as_numbers(gain, "gain"), _shares(correct, "correct")
    if gain.shape != correct.shape:
        raise ParameterError(
            f"gain and correct must be one-dimensional and of one length, got shapes "
            f"{gain.shape} and {correct.shape}."
        )
    return _binned_mean(_bins(gain, n_bins), correct, n_bins)


def radial_decay(
    intensity: ArrayLike, clarity: ArrayLike, correct: ArrayLike, n_bins: int = 10
) -> Bunch:
    """Compute accuracy by rank of intensity and of clarity (figures 1 and 5).

    Parameters
    ----------
    intensity, clarity : array-like of shape (n,)
        What arrives from the strongest class, and minus what arrives from the others
        (Eq. 2 and 3), see :func:`sktifa.information.tig.intensity`.
    correct : array-like of bool or float, shape (n,)
        Whether, or how often, each node was classified correctly. The difference of two
        classifiers' gives what one gains over the other.
    n_bins : int, default=10
        Bins of equal size on each axis, the highest intensity and clarity first.

    Returns
    -------
    Bunch
        `accuracy`, ndarray of shape (n_bins, n_bins), rows by intensity and columns by
        clarity, NaN where a cell is empty; `count`, nodes in each cell. Nodes that no
        label reaches (intensity 0) are in none.

    Raises
    ------
    ParameterError
        If the arrays differ in length, are not numbers, or `n_bins` is below 1.

    See Also
    --------
    sktifa.displays.RadialDecayDisplay : Draws it.

    Examples
    --------
    >>> from sktifa.diagnostics import radial_decay
    >>> grid = radial_decay([0.4, 0.3, 0.1], [-0.1, 0.0, -0.2], [1, 1, 0], n_bins=2)
    >>> grid.count
    array([[2, 0],
           [0, 1]])
    >>> grid.accuracy
    array([[ 1., nan],
           [nan,  0.]])
    """
    intensity = as_numbers(intensity, "intensity")
    clarity = as_numbers(clarity, "clarity")
    correct = _shares(correct, "correct")
    if not intensity.shape == clarity.shape == correct.shape:
        raise ParameterError(
            "intensity, clarity and correct must be one-dimensional and of one length, "
            f"got shapes {intensity.shape}, {clarity.shape} and {correct.shape}."
        )
    check_count(n_bins, "n_bins", low=1, high=_MOST_BINS)
    reached = intensity > 0
    row, column = (_bins(-values[reached], n_bins) for values in (intensity, clarity))
    cell, shape = row * n_bins + column, (n_bins, n_bins)
    return Bunch(
        accuracy=_binned_mean(cell, correct[reached], n_bins**2).reshape(shape),
        count=np.bincount(cell, minlength=n_bins**2).reshape(shape),
    )


def _bins(values: NDArray, n_bins: int) -> NDArray[np.int64]:
    """Cut into bins of equal size by rank, the smallest first; ties stay together."""
    check_count(n_bins, "n_bins", low=1, high=_MOST_BINS)
    ranks = tie_averaged_ranks(values)
    return (ranks * n_bins / max(len(ranks), 1)).astype(np.int64)


def _binned_mean(
    bins: NDArray[np.int64], values: NDArray[np.float64], n_bins: int
) -> NDArray[np.float64]:
    sums = np.bincount(bins, weights=values, minlength=n_bins)
    counts = np.bincount(bins, minlength=n_bins)
    return np.divide(sums, counts, out=np.full(n_bins, np.nan), where=counts > 0)


def _shares(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = as_array(values, name)
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise ParameterError(
            f"{name} must say of each node whether, or how often, it was right: "
            f"numbers in one dimension; got shape {array.shape}, dtype {array.dtype}."
        )
    return array.astype(np.float64)


def _is_text(labels: NDArray) -> bool:
    if labels.dtype.kind == "O":
        return any(isinstance(label, str) for label in labels)
    return labels.dtype.kind in "USTa"
