"""Classes that the contrast's targets neither lose nor give all nodes to.

A network that learns from its own predictions takes more and more nodes for the class
that it sees most. With a label or two a class nothing holds against that, and contrast
ends in few classes. How large these are about, the propagated labels tell.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["shift_to_shares"]

# A class may be so many times as large as told, or as small: propagated labels tell
# sizes no better, and where predictions are right, they should not be moved.
_ABOUT = math.log(1.25)
# Scores shift by so many times what the size is beyond that. A shift lasts no longer
# than the size is wrong, so that once would leave it half as wrong.
_STEEPNESS = 2.0


def shift_to_shares(scores: Tensor, log_shares: Tensor, pull: Tensor) -> Tensor:
    r"""Shift each class's score where far too many or too few nodes are taken for it.

    With :math:`s_c` the share that is told of class c and :math:`a_c` the share of the
    nodes of which it is the best, by :math:`2 \cdot pull` times what
    :math:`\log(s_c / a_c)` is beyond :math:`\pm \log 1.25`. Shares are counted, and
    one node more in each class, so that none is empty: sums of whole numbers are the
    same in whatever order.

    Takes (n_models, n_nodes, n_classes), the logarithms of the shares, (n_models,
    n_classes), and how much they count in each model, (n_models, 1). The shift is
    (n_models, 1, n_classes).
    """
    n_nodes, n_classes = scores.shape[1:]
    classes = torch.arange(n_classes, device=scores.device)
    counts = (scores.argmax(-1, keepdim=True) == classes).sum(1) + 1
    missing = log_shares - (counts / (n_nodes + n_classes)).log()
    beyond = missing - missing.clamp(-_ABOUT, _ABOUT)
    return (_STEEPNESS * pull * beyond)[:, None]
