r"""The contrastive loss of a node (Eq. 8-10 of the paper).

The perturbed forward gives log-probabilities :math:`\log p`, the clean one the targets
:math:`\log q`, through which no gradient flows. A node's loss compares its own
:math:`p_i` with its own target (self-consistency) and with those of its pairs. All
functions take a leading dimension of models, too.

The pair loss weighs pair (i, j) with entry :math:`M_{ij}` of a fixed sparse operator
:math:`M = M_P - \mu_1 M_N`. Both directions of the divergence reduce to one product of
it with a dense matrix of k + 1 columns:

.. math::
    \sum_j M_{ij} \mathrm{KL}(p_i \| q_j) &=
        (M 1)_i \sum_c p_{ic} \log p_{ic} - \sum_c p_{ic} (M \log q)_{ic}, \\
    \sum_j M_{ij} \mathrm{KL}(q_j \| p_i) &=
        (M h)_i - \sum_c (M q)_{ic} \log p_{ic},
        \quad h_j = \sum_c q_{jc} \log q_{jc}.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["Divergence", "pair_loss", "self_consistency_loss"]

Divergence = Literal["clean_to_perturbed", "perturbed_to_clean"]
"""KL(clean || perturbed), as in UDA and NodeAug, or KL(perturbed || clean), as printed.
"""


def self_consistency_loss(
    log_perturbed: Tensor,
    log_target: Tensor,
    divergence: Divergence = "clean_to_perturbed",
) -> Tensor:
    """Divergence of every node's perturbed prediction from its own target (Eq. 9).

    Takes log-probabilities of (..., n_nodes, n_classes); no gradient flows into those
    of the target, the clean forward. Returns L_s of every node, (..., n_nodes), at
    least 0.
    """
    log_target = log_target.detach()
    if divergence == "clean_to_perturbed":
        return (log_target.exp() * (log_target - log_perturbed)).sum(dim=-1)
    return (log_perturbed.exp() * (log_perturbed - log_target)).sum(dim=-1)


def pair_loss(
    log_perturbed: Tensor,
    log_target: Tensor,
    operator: Tensor,
    divergence: Divergence = "clean_to_perturbed",
    floor: float = -12.0,
) -> Tensor:
    """Divergence from positive pairs less that from negative pairs (Eq. 10).

    The `operator`, CSR of (n_nodes, n_nodes), is M_P - mu_1 M_N, from
    :func:`sktifa.contrast.pairs.pair_operator`, in the same dtype; of several models,
    one with a block each. Returns L_p of every node, of either sign; 0 for a node
    without pairs. The negative part has no lower bound: log-probabilities are floored,
    which ends the gain, and the gradient, of moving further away from a negative.
    """
    log_perturbed = log_perturbed.clamp(min=floor)
    with torch.no_grad():
        log_target = log_target.clamp(min=floor)
        if divergence == "clean_to_perturbed":
            target = log_target.exp()
            last = (target * log_target).sum(dim=-1, keepdim=True)
        else:
            target = log_target
            last = torch.ones_like(log_target[..., :1])
        columns = torch.cat([target, last], dim=-1)
        product = (operator @ columns.flatten(0, -2)).view_as(columns)
        paired, last = product[..., :-1], product[..., -1]
    if divergence == "clean_to_perturbed":
        return last - (paired * log_perturbed).sum(dim=-1)
    own = last[..., None] * log_perturbed
    return (log_perturbed.exp() * (own - paired)).sum(dim=-1)
