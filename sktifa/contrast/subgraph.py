"""Contrast inside a sampled subgraph, drawn anew each step where the subgraph lies.

On the whole graph the pair operator is made once and the perturbation is drawn by an
exact race on the CPU. A subgraph lives for one step, so both must keep pace with a GPU:
the race runs in rounds, and only some anchors have pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from sktifa.contrast.perturbation import GraphPerturber

__all__ = [
    "PairSettings",
    "PerturbationSettings",
    "SubgraphPerturbation",
    "anchor_pairs",
    "perturb",
]

# Rounds of a race on a GPU, and tries for an edge that is not there yet.
_ROUNDS = 5
_TRIES = 4
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
    nodes : Tensor of int64
        The perturbed nodes.
    removed_arcs : Tensor of int64
        Positions of arcs, both directions. One may come twice; one past the end is
        none.
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
class PerturbationSettings:
    """How a subgraph is perturbed; the parameters of `GraphPerturber`."""

    sharpness: float = 1.0
    perturbed_nodes: float = 0.4
    perturbation_rate: float | None = None
    edges_added: int = 1
    edges_removed: int = 2
    decay: float = 0.5
    decay_hops: int = 1


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

    On the CPU, and where a `perturbation_rate` or more than one hop of decay asks for
    it, the exact race of :class:`~sktifa.contrast.perturbation.GraphPerturber`. On a
    GPU five rounds of it: the nodes of a round don't slow each other down, those
    of the next ones are slowed by all of them; and a drawn node removes edges of the
    original graph, so that an edge chosen from both ends goes once.

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
    rounds = settings.perturbation_rate is None and settings.decay_hops <= 1
    if col.is_cuda and rounds:
        return _perturb_in_rounds(crow, col, weights, settings, generator)
    seed = torch.randint(2**31, (), generator=generator, device=crow.device)
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
    return SubgraphPerturbation(
        nodes, removed, added, torch.ones_like(added[0], dtype=torch.bool)
    )


def _perturb_in_rounds(
    crow: Tensor,
    col: Tensor,
    weights: Tensor,
    settings: PerturbationSettings,
    generator: torch.Generator,
) -> SubgraphPerturbation:
    """Perturb without once waiting for the device: all sizes are known beforehand."""
    n, n_arcs, device = len(crow) - 1, len(col), crow.device
    start, degree = crow[:-1].long(), crow.diff().long()
    exponent = settings.sharpness * weights
    clocks = torch.empty(n, dtype=torch.float64, device=device)
    clocks.exponential_(generator=generator).div_((exponent - exponent.max()).exp())
    nodes = _race(crow, col, clocks, settings)

    # Floyd's choice of distinct arcs of each drawn row; -1 where it has no more.
    shape = (settings.edges_removed, len(nodes))
    draws = torch.rand(shape, dtype=torch.float64, device=device, generator=generator)
    choices: list[Tensor] = []
    of_drawn = degree.index_select(0, nodes)
    for i in range(settings.edges_removed):
        last = of_drawn - (settings.edges_removed - i)
        choice = (draws[i] * (last + 1)).long()
        for other in choices:
            choice = torch.where(choice == other, last, choice)
        choices.append(choice.masked_fill_(last < 0, -1))
    keys = torch.repeat_interleave(degree, output_size=n_arcs) * n + col
    removed = torch.empty(0, dtype=torch.int64, device=device)
    if choices and n_arcs:
        choice = torch.stack(choices)
        is_none = choice < 0
        arc = (start.index_select(0, nodes) + choice).masked_fill_(is_none, n_arcs)
        head = col.take(arc.clamp(max=n_arcs - 1)).long()
        reverse = torch.searchsorted(keys, head * n + nodes)
        removed = torch.stack([arc, reverse.masked_fill_(is_none, n_arcs)]).view(-1)

    source = nodes.repeat_interleave(settings.edges_added)
    other = torch.randint(
        max(n, 1), (_TRIES, len(source)), device=device, generator=generator
    )
    free = other != source
    if n_arcs:
        wanted = source * n + other
        found = torch.searchsorted(keys, wanted).clamp_(max=n_arcs - 1)
        free &= keys.take(found) != wanted
    first = free.int().argmax(0, keepdim=True)
    other, is_edge = other.gather(0, first)[0], free.gather(0, first)[0]
    # Drawn from both ends, or twice from one: once is enough.
    edge = torch.minimum(source, other) * n + torch.maximum(source, other)
    edge, order = edge.masked_fill_(~is_edge, -1).sort()
    is_edge = edge >= 0
    is_edge[1:] &= edge[1:] != edge[:-1]
    return SubgraphPerturbation(
        nodes, removed, torch.stack([source, other]).index_select(1, order), is_edge
    )


def _race(
    crow: Tensor, col: Tensor, clocks: Tensor, settings: PerturbationSettings
) -> Tensor:
    """Draw the nodes whose clocks ring first, in rounds: drawn ones slow neighbours."""
    n = len(clocks)
    count = round(settings.perturbed_nodes * n)
    slows = settings.decay < 1 and settings.decay_hops == 1
    n_rounds = max(min(_ROUNDS, count), 1) if slows else 1
    ones = torch.ones(len(col), device=col.device)
    pattern = torch.sparse_csr_tensor(crow, col, ones, (n, n), check_invariants=False)
    fresh = torch.zeros(n, 1, device=col.device)
    nodes = []
    for size in np.diff(np.linspace(0, count, n_rounds + 1).astype(int)).tolist():
        rings = clocks.topk(size, largest=False, sorted=False)
        nodes.append(rings.indices)
        if len(nodes) < n_rounds and size:
            fresh.zero_().index_fill_(0, rings.indices, 1)
            # A drawn clock stops; the others' time left gets longer.
            now, hits = rings.values.max(), (pattern @ fresh)[:, 0].double()
            longer = (settings.decay**-hits).clamp_(max=1 / _SMALLEST_PROBABILITY)
            clocks = torch.lerp(now, clocks, longer)
            clocks.index_fill_(0, rings.indices, torch.inf)
    return torch.cat(nodes)


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
