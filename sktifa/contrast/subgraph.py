"""Contrast inside a sampled subgraph, drawn anew each step where the subgraph lies.

On the whole graph the pair operator is made once. A subgraph lives for one step, so its
pairs must keep pace with a GPU: only some anchors have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from sktifa.contrast.perturbation import GraphPerturber, PerturbationSettings
from sktifa.contrast.rounds import RoundsPerturber

__all__ = [
    "PairSettings",
    "PerturbationSettings",
    "SubgraphPerturbation",
    "anchor_pairs",
    "perturb",
]

# Distances ranked a step: with 70,000 nodes, pairs of 60 anchors on a GPU.
_DISTANCES = {"cpu": 1 << 19, "cuda": 1 << 22}
_STEPS = 2**20
_NOISE = 1e-6
_SMALLEST_PROBABILITY = 1e-12


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


@dataclass(frozen=True)
class PairSettings:
    """How pairs are chosen; the parameters of `sample_pairs` and `pair_operator`.

    With ``kind="uniform"`` there are no positives, and negatives are drawn uniformly.
    """

    kind: Literal["tifa", "uniform"] = "tifa"
    negative_weight: float = 0.5
    hop_weight: float = 0.5
    feature_weight: float = 0.75
    n_positives: int = 5
    negative_ranks: tuple[int, int] = (50, 150)
    max_hops: int = 4


def perturb(
    crow: Tensor,
    col: Tensor,
    weights: Tensor,
    settings: PerturbationSettings,
    generator: torch.Generator,
) -> SubgraphPerturbation:
    """Draw a perturbed view of a subgraph (Algorithm 2), as tensors on its device.

    On a GPU, in rounds; on the CPU, and where rounds can't, by the exact race of
    :class:`~sktifa.contrast.perturbation.GraphPerturber`.

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
    if col.is_cuda and RoundsPerturber.takes(settings):
        rounds = RoundsPerturber.of_subgraph(crow, col, weights, settings)
        views = rounds.draw(seed, torch.zeros_like(seed), n_views=1)
        return SubgraphPerturbation(
            views.nodes[0, 0],
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


def anchor_pairs(
    crow: Tensor,
    col: Tensor,
    features: Tensor,
    distribution: Tensor | None,
    settings: PairSettings,
    generator: torch.Generator,
    n_anchors: int | None = None,
) -> Tensor:
    """Choose the pairs of some anchors inside a subgraph (Eq. 12-14).

    Ranking all nodes for all anchors is quadratic. Random anchors are ranked
    against all nodes of the subgraph, as many as make four million distances (on the
    CPU half a million), and their pairs weigh n / n_anchors: the pair loss is right on
    average. A subgraph of up to 2,000 nodes (700) has all of its pairs.

    Parameters
    ----------
    crow, col : Tensor of int32
        CSR pattern of a symmetric graph.
    features : Tensor of float32, shape (n_nodes, n_features), dense or sparse CSR
        Node features.
    distribution : Tensor of shape (n_nodes, n_classes) or None
        Label distribution of every node; None for uniform pairs.
    settings : PairSettings
        What makes a pair.
    generator : torch.Generator
        On the device of the graph; advances.
    n_anchors : int, default=None
        None takes as many as are cheap.

    Returns
    -------
    Tensor, sparse CSR of float32, shape (n_nodes, n_nodes)
        ``M_P - mu_1 M_N``, with empty rows where a node is no anchor.
    """
    n, device = len(crow) - 1, crow.device
    if n_anchors is None:
        n_anchors = max(1, _DISTANCES.get(device.type, 1 << 19) // max(n, 1))
    size = min(n, n_anchors)
    anchors = torch.randperm(n, generator=generator, device=device)[:size].sort().values
    begin, end = settings.negative_ranks
    if settings.kind == "uniform":
        count = end - begin if n > 1 else 0
        negatives = torch.randint(
            max(n - 1, 1), (size, count), generator=generator, device=device
        )
        negatives += negatives >= anchors[:, None]
        positives = negatives[:, :0]
    else:
        ranked = _ranked(crow, col, features, distribution, settings, anchors)
        positives = ranked[:, : settings.n_positives]
        negatives = ranked[:, begin:end]
    pairs = torch.cat([positives, negatives], dim=1)
    n_positives, n_negatives = positives.shape[1], negatives.shape[1]
    values = torch.empty(pairs.shape, device=device)
    scale = n / max(size, 1)
    values[:, :n_positives] = scale / max(n_positives, 1)
    values[:, n_positives:] = -scale * settings.negative_weight / max(n_negatives, 1)
    starts = torch.zeros(n + 1, dtype=torch.int32, device=device)
    starts.index_fill_(0, anchors + 1, pairs.shape[1])
    return torch.sparse_csr_tensor(
        starts.cumsum(0, dtype=torch.int32),
        pairs.reshape(-1).int(),
        values.reshape(-1),
        (n, n),
        check_invariants=False,
    )


def _ranked(
    crow: Tensor,
    col: Tensor,
    features: Tensor,
    distribution: Tensor | None,
    settings: PairSettings,
    anchors: Tensor,
) -> Tensor:
    """Rank all nodes by relative distance from each anchor, the nearest first."""
    n, device = len(crow) - 1, crow.device
    row = n * torch.arange(len(anchors), device=device)
    own, other = row + anchors, row + (anchors + 1) % n
    total = torch.zeros(len(anchors), n, device=device)

    def add(weight: float, distance: Tensor, noise: float = _NOISE) -> None:
        flat = distance.view(-1)
        flat.index_copy_(0, own, flat.index_select(0, other))
        low, high = distance.aminmax(dim=1, keepdim=True)
        width = high - low
        factor = (weight * _STEPS / width).masked_fill_(width <= noise, 0)
        total.addcmul_(distance.sub_(low).float(), factor.float())

    if distribution is not None:
        p = distribution.double()
        # What is constant in a row, the entropy of p_i, is lost in the scaling.
        add(
            1.0,
            p.index_select(0, anchors) @ -p.clamp_min(_SMALLEST_PROBABILITY).log().T,
            1e-13,
        )
    if settings.hop_weight:
        add(settings.hop_weight, _hops(crow, col, anchors, settings.max_hops), 0.0)
    if settings.feature_weight:
        add(settings.feature_weight, _negative_cosines(features, anchors))
    begin, end = settings.negative_ranks
    n_ranks = min(max(settings.n_positives, end), n - 1)
    key = total.round_().long() * n + torch.arange(n, device=device)
    key.view(-1).index_fill_(0, own, torch.iinfo(torch.int64).max)
    return key.topk(n_ranks, largest=False, sorted=True).values % max(n, 1)


def _hops(crow: Tensor, col: Tensor, anchors: Tensor, max_hops: int) -> Tensor:
    """Count hops from each anchor by products: one column an anchor."""
    n, device = len(crow) - 1, crow.device
    pattern = torch.sparse_csr_tensor(
        crow, col, torch.ones(len(col), device=device), (n, n), check_invariants=False
    )
    reached = torch.zeros(n, len(anchors), device=device)
    column = torch.arange(len(anchors), device=device)
    reached.view(-1).index_fill_(0, anchors * len(anchors) + column, 1)
    hops = max_hops + 1 - reached
    for _ in range(max_hops):
        reached = (pattern @ reached).add_(reached).sign_()
        hops -= reached
    return hops.T.contiguous()


def _negative_cosines(features: Tensor, anchors: Tensor) -> Tensor:
    if features.layout == torch.sparse_csr:
        crow, values = features.crow_indices().long(), features.values()
        counts = crow[1:] - crow[:-1]
        row = torch.repeat_interleave(counts, output_size=len(values))
        square = values.new_zeros(len(counts)).index_add_(0, row, values**2)
        # Only the anchors' rows become dense.
        chosen, start = counts[anchors], crow[anchors]
        of_anchor = torch.repeat_interleave(chosen)
        first = start - torch.cat([chosen.new_zeros(1), chosen.cumsum(0)[:-1]])
        entry = first[of_anchor] + torch.arange(len(of_anchor), device=values.device)
        rows = values.new_zeros(len(anchors), features.shape[1])
        rows[of_anchor, features.col_indices()[entry].long()] = values[entry]
    else:
        square, rows = features.square().sum(1), features.index_select(0, anchors)
    inverse = torch.where(square > 0, square.rsqrt(), 0.0)
    rows = rows * inverse[anchors, None]
    return -((features @ rows.T) * inverse[:, None]).T.contiguous()
