"""From the gain to weights: contrast where little arrives, trust where much does."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sktifa.checks import check_real
from sktifa.exceptions import ParameterError
from sktifa.tensors.arrays import ArrayOrTensor, as_tensor, like

__all__ = [
    "check_weights",
    "loss_weights",
    "loss_weights_at",
    "relative_ranks",
    "tie_averaged_ranks",
    "trust",
    "trust_at",
]


def tie_averaged_ranks(gain: ArrayOrTensor) -> ArrayOrTensor:
    """Rank from the smallest value, 0-based, giving ties their average rank (float64).

    Nodes that no label reaches share a gain of 0, and they are not few (a third of
    CiteSeer with 20 labels a class): any other rule would order them by accident.
    Values that are equal in float32 are ties, so that rounding, which differs between
    devices, orders no node either.
    """
    if not isinstance(gain, Tensor) and np.asarray(gain).dtype.kind not in "biuf":
        raise ParameterError("gain must hold real numbers, one a node.")
    values = as_tensor(gain).float()
    if values.ndim != 1:
        raise ParameterError(
            "gain must be one-dimensional, one value a node, got shape "
            f"{tuple(values.shape)}."
        )
    is_nan = values.isnan()
    if is_nan.any():
        raise ParameterError(
            f"gain[{int(is_nan.int().argmax())}] is NaN: a rank needs a number."
        )
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    # The c values that end at cumulated count e have the ranks e - c to e - 1.
    ranks = counts.cumsum(0).double() - (counts.double() + 1) / 2
    return like(gain, ranks[inverse])


def loss_weights(
    gain: ArrayOrTensor, weight_min: float = 0.2, weight_max: float = 2.2
) -> ArrayOrTensor:
    """Weigh each node's contrastive loss by its rank in information gain (Eq. 10).

    ``w_i = w_min + (w_max - w_min) / 2 * (1 + cos(pi * rank_i / n))``: `weight_max`
    where least annotated information arrives, down to `weight_min`, in float64.
    """
    ranks = relative_ranks(gain)
    return like(gain, loss_weights_at(ranks, weight_min, weight_max))


def loss_weights_at(ranks: Tensor, weight_min: float, weight_max: float) -> Tensor:
    """Return :func:`loss_weights` of nodes with these relative ranks."""
    check_weights(weight_min, weight_max)
    height = (1 + torch.cos(torch.pi * ranks)) / 2
    return weight_min + (weight_max - weight_min) * height


def check_weights(weight_min: float, weight_max: float) -> None:
    """Check the range of loss weights."""
    check_real(weight_min, "weight_min")
    if check_real(weight_max, "weight_max") < weight_min:
        raise ParameterError(
            f"weight_min={weight_min} is above weight_max={weight_max}: the weights "
            "run from weight_min, where most information arrives, up to weight_max."
        )


def trust(gain: ArrayOrTensor, least: float = 0.0) -> ArrayOrTensor:
    """Tell how far a node's propagated labels can be trusted: ``(rank_i / n)^2``.

    The opposite of :func:`loss_weights`, and no part of the paper: where most annotated
    information arrives, the propagated labels are right most often. A node that any
    label reaches is trusted `least` at the least. In float64, from 0 to 1.
    """
    return like(gain, trust_at(relative_ranks(gain), as_tensor(gain) > 0, least))


def trust_at(ranks: Tensor, is_reached: Tensor, least: float) -> Tensor:
    """Return :func:`trust` in nodes with these relative ranks."""
    by_rank = ranks.square()
    return torch.where(is_reached, by_rank.clamp(min=least), by_rank)


def relative_ranks(gain: ArrayOrTensor) -> Tensor:
    """Return :func:`tie_averaged_ranks` over the number of nodes, in [0, 1)."""
    ranks = tie_averaged_ranks(as_tensor(gain))
    return ranks / max(len(ranks), 1)
