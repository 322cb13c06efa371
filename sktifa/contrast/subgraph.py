"""Contrast inside a sampled subgraph, drawn anew each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sktifa.contrast.perturbation import (
    GraphPerturber,
    PerturbationSettings,
    paired,
)

__all__ = ["SubgraphPerturbation", "perturb"]


@dataclass(frozen=True)
class SubgraphPerturbation:
    """What :class:`~sktifa.contrast.perturbation.Perturbation` tells, as tensors."""

    nodes: Tensor  # bool: which were perturbed
    removed_arcs: Tensor  # int64: positions, both directions
    added_edges: Tensor  # int64, (2, m)


def perturb(
    crow: Tensor,
    col: Tensor,
    weights: Tensor,
    settings: PerturbationSettings,
    seed: int,
) -> SubgraphPerturbation:
    """Draw a perturbed view of a subgraph (Algorithm 2), as tensors on its device.

    The race is a core's wherever the subgraph lies: a GPU would be waited for, and
    trains meanwhile. The thread that draws holds no lock. The subgraph is a symmetric
    CSR pattern of int32, columns ascending, with the loss weights (w) of its nodes.
    """
    n = len(crow) - 1
    arcs = paired(crow.cpu().numpy(), col.cpu().numpy())
    perturber = GraphPerturber(arcs, weights.cpu().numpy(), **vars(settings))
    view = perturber.draw(np.random.default_rng(seed))
    nodes, removed, added = (
        torch.from_numpy(part).to(crow.device)
        for part in (view.nodes, view.removed_arcs, view.added_edges)
    )
    is_drawn = torch.zeros(n, dtype=torch.bool, device=crow.device)
    return SubgraphPerturbation(is_drawn.index_fill_(0, nodes, True), removed, added)
