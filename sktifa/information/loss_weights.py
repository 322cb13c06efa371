"""Loss weights: the less annotated information a node receives, the more it counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from sktifa.exceptions import ParameterError

__all__ = ["loss_weights", "tie_averaged_ranks"]


def tie_averaged_ranks(gain: ArrayLike) -> NDArray[np.float64]:
    """Rank from the smallest value, 0-based, giving ties their average rank.

    Nodes that no label reaches share a gain of 0, and they are not few (a third of
    CiteSeer with 20 labels a class): any other rule would order them by accident.

    Parameters
    ----------
    gain : array-like of shape (n,)
        Topology information gain of each node (paper: T).

    Returns
    -------
    ndarray of float64, shape (n,)
        Between 0 and n - 1.

    Raises
    ------
    ParameterError
        If `gain` is not one-dimensional or has a NaN.

    Examples
    --------
    >>> from sktifa.information.loss_weights import tie_averaged_ranks
    >>> tie_averaged_ranks([0.3, 0.0, 0.0, 0.1])
    array([3. , 0.5, 0.5, 2. ])
    """
    gain = np.asarray(gain, dtype=np.float64)
    if gain.ndim != 1:
        raise ParameterError(
            f"gain must be one-dimensional, one value a node, got shape {gain.shape}."
        )
    if np.isnan(gain).any():
        at = int(np.isnan(gain).argmax())
        raise ParameterError(f"gain[{at}] is NaN: a rank needs a number.")
    # In float32: nodes whose gains are equal but for rounding are ties too, so that
    # the order of a sum, which differs between devices, orders no node.
    return rankdata(gain.astype(np.float32), method="average") - 1.0


def loss_weights(
    gain: ArrayLike, weight_min: float = 0.2, weight_max: float = 2.2
) -> NDArray[np.float64]:
    """Weigh each node's contrastive loss by its rank in information gain (Eq. 10).

    ``w_i = w_min + (w_max - w_min) / 2 * (1 + cos(pi * rank_i / n))``: `weight_max`
    where least annotated information arrives, down to `weight_min`.

    Parameters
    ----------
    gain : array-like of shape (n,)
        Topology information gain of each node (paper: T).
    weight_min, weight_max : float, default=0.2, 2.2
        Range of the weights (paper: w_min, w_max).

    Returns
    -------
    ndarray of float64, shape (n,)

    Raises
    ------
    ParameterError
        Unless 0 <= weight_min <= weight_max, both finite.

    Examples
    --------
    >>> from sktifa.information.loss_weights import loss_weights
    >>> loss_weights([0.4, 0.1, 0.2, 0.3], weight_min=1, weight_max=2).round(3)
    array([1.146, 2.   , 1.854, 1.5  ])
    """
    if not 0 <= weight_min <= weight_max < np.inf:
        raise ParameterError(
            "weights need 0 <= weight_min <= weight_max, got "
            f"weight_min={weight_min} and weight_max={weight_max}."
        )
    ranks = tie_averaged_ranks(gain)
    height = (1 + np.cos(np.pi * ranks / max(len(ranks), 1))) / 2
    return weight_min + (weight_max - weight_min) * height
