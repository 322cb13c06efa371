"""Contrast inside a sampled subgraph, drawn anew each step where the subgraph lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from sktifa.contrast.pairs import PairSettings, anchor_pairs
from sktifa.contrast.perturbation import GraphPerturber, PerturbationSettings
from sktifa.contrast.rounds import RoundsPerturber

__all__ = [
    "PairSettings",
    "PerturbationSettings",
    "SubgraphPerturbation",
    "anchor_pairs",
    "perturb",
]

# Up to so many arcs a core is done with the race before a GPU has been asked for the
# thousand kernels of the rounds; and the GPU is left to the training step.
_FEW_ARCS = 1 << 17


@dataclass(frozen=True)
class SubgraphPerturbation:
    """What :class:`~sktifa.contrast.perturbation.Perturbation` tells, as tensors.

    Attributes
    ----------
    nodes : Tensor of bool, shape (n_nodes,)
        The perturbed nodes.
    removed_arcs : Tensor of int64
        Positions of arcs, both directions; one past the end is none.
    added_edges : Tensor of int64, shape (2, m)
        Node pairs.
    is_added : Tensor of bool, shape (m,)
        Which of them count.
    """

    nodes: Tensor
    removed_arcs: Tensor
    added_edges: Tensor
    is_added: Tensor


def perturb(
    crow: Tensor,
    col: Tensor,
    weights: Tensor,
    settings: PerturbationSettings,
    generator: torch.Generator,
) -> SubgraphPerturbation:
    """Draw a perturbed view of a subgraph (Algorithm 2), as tensors on its device.

    On a GPU, in rounds; on the CPU, where rounds can't, and in small subgraphs, by the
    exact race of :class:`~sktifa.contrast.perturbation.GraphPerturber`.

    Parameters
    ----------
    crow, col : Tensor of int32
        CSR pattern of a symmetric graph, columns ascending.
    weights : Tensor of shape (n_nodes,)
        Loss weights (paper: w).
    settings : PerturbationSettings
        Of the perturbation.
    generator : torch.Generator
        On the device of the graph; advances.

    Returns
    -------
    SubgraphPerturbation
    """
    seed = torch.randint(2**62, (1,), generator=generator, device=crow.device)
    if col.is_cuda and len(col) > _FEW_ARCS and RoundsPerturber.takes(settings):
        views = RoundsPerturber(crow, col, weights, settings).draw(seed, n_views=1)
        return SubgraphPerturbation(
            views.nodes[0],
            views.removed_arcs[0],
            views.added_edges[0],
            views.is_added[0],
        )
    n = len(crow) - 1
    pattern = sparse.csr_array(
        (np.ones(len(col), np.float32), col.cpu().numpy(), crow.cpu().numpy()),
        shape=(n, n),
    )
    perturber = GraphPerturber(pattern, weights.cpu().numpy(), **vars(settings))
    view = perturber.draw(np.random.default_rng(int(seed)))
    nodes, removed, added = (
        torch.from_numpy(part).to(crow.device)
        for part in (view.nodes, view.removed_arcs, view.added_edges)
    )
    is_drawn = torch.zeros(n, dtype=torch.bool, device=crow.device)
    return SubgraphPerturbation(
        is_drawn.index_fill_(0, nodes, True),
        removed,
        added,
        torch.ones_like(added[0], dtype=torch.bool),
    )
