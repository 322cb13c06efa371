"""Numbers that show where in a graph a classifier is right."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import Bunch

from sktifa.exceptions import ParameterError
from sktifa.information.loss_weights import tie_averaged_ranks

__all__ = ["accuracy_by_gain", "madgap", "radial_decay"]


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


def radial_decay(
    intensity: ArrayLike, clarity: ArrayLike, correct: ArrayLike, n_bins: int = 10
) -> Bunch:
    """Compute accuracy by rank of intensity and of clarity (Figure 1).

    Parameters
    ----------
    intensity, clarity : array-like of shape (n,)
        What arrives from the strongest class, and minus what arrives from the others
        (Eq. 2 and 3), see :func:`sktifa.information.tig.intensity`.
    correct : array-like of bool or float, shape (n,)
        Whether, or how often, each node was classified correctly.
    n_bins : int, default=10
        Bins of equal size on each axis, the highest intensity and clarity first.

    Returns
    -------
    Bunch
        `accuracy`, ndarray of shape (n_bins, n_bins), rows by intensity and columns by
        clarity, NaN where a cell is empty; `count`, nodes in each cell. Nodes that
        no label reaches (intensity 0) are in none.

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
    intensity, clarity = np.asarray(intensity), np.asarray(clarity)
    correct = np.asarray(correct, dtype=float)
    if not intensity.shape == clarity.shape == correct.shape or intensity.ndim != 1:
        raise ParameterError(
            "intensity, clarity and correct must be one-dimensional and of one length, "
            f"got shapes {intensity.shape}, {clarity.shape} and {correct.shape}."
        )
    reached = intensity > 0
    row, column = (
        (tie_averaged_ranks(-values[reached]) * n_bins / reached.sum()).astype(int)
        for values in (intensity, clarity)
    )
    shape = n_bins, n_bins
    cell = np.ravel_multi_index((row, column), shape)
    count = np.bincount(cell, minlength=n_bins**2).reshape(shape)
    right = np.bincount(cell, correct[reached], minlength=n_bins**2).reshape(shape)
    empty = np.full(shape, np.nan)
    return Bunch(
        accuracy=np.divide(right, count, out=empty, where=count > 0), count=count
    )


def madgap(
    representations: ArrayLike,
    adjacency: sparse.csr_array,
    *,
    near: int = 3,
    remote: int = 8,
) -> float:
    """Compute how much better remote nodes are told apart than near ones (MADGap).

    The mean cosine distance of nodes that are at least `remote` hops apart, less that
    of nodes at most `near` hops apart (Chen et al., "Measuring and Relieving the
    Over-smoothing Problem", AAAI 2020). Close to 0, a network is over-smoothed. Pairs
    that no path joins count in neither.

    Parameters
    ----------
    representations : array-like of shape (n, d)
        What the network makes of each node, such as its scores of the classes.
    adjacency : csr_array of shape (n, n)
        Of the graph.
    near, remote : int, default=3, 8
        Bounds of what is a neighbour and what is remote, in hops.

    Returns
    -------
    float
        NaN where there are no pairs of one of the two kinds.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from sktifa.diagnostics import madgap
    >>> path = csr_array(np.eye(4, k=1) + np.eye(4, k=-1))
    >>> two_groups = [[1, 0], [1, 0], [0, 1], [0, 1]]
    >>> round(madgap(two_groups, path, near=1, remote=2), 3)
    0.667
    """
    x = np.asarray(representations, dtype=np.float64)
    n = adjacency.shape[0]
    if x.ndim != 2 or len(x) != n:
        raise ParameterError(
            f"representations must have a row for each of the {n} nodes of the "
            f"adjacency, got shape {x.shape}."
        )
    if not 1 <= near < remote:
        raise ParameterError(
            f"near={near} and remote={remote}: give hops with 1 <= near < remote."
        )
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    x = np.divide(x, norm, out=np.zeros_like(x), where=norm > 0)
    _, component = sparse.csgraph.connected_components(adjacency, directed=False)
    pattern = adjacency.astype(bool).astype(np.float32)
    sums, counts = np.zeros(2), np.zeros(2)
    # Blocks of rows: an n x n matrix would not fit for long.
    for rows in np.array_split(np.arange(n), -(-n // 512)):
        reached = np.zeros((n, len(rows)), dtype=np.float32)
        reached[rows, np.arange(len(rows))] = 1
        is_near = np.zeros(reached.shape, dtype=bool)
        for hop in range(1, remote):
            reached = ((pattern @ reached + reached) > 0).astype(np.float32)
            if hop == near:
                is_near = reached > 0
        is_near[rows, np.arange(len(rows))] = False
        is_remote = (component[:, None] == component[rows]) & (reached == 0)
        distance = 1 - x @ x[rows].T
        for kind, pairs in enumerate((is_near, is_remote)):
            sums[kind] += distance[pairs].sum()
            counts[kind] += pairs.sum()
    if not counts.all():
        return float("nan")
    neighbours, far = sums / counts
    return float(far - neighbours)
