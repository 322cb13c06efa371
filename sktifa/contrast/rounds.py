"""Perturbed views of many stacked models at once, drawn where the models train.

The race of :mod:`sktifa.contrast.perturbation` goes node by node, which suits one core
of a CPU. A GPU runs it in rounds, as :mod:`sktifa.contrast.subgraph` does for sampled
subgraphs: the nodes of a round don't slow each other down, those of the next ones
are slowed by all of them, and a drawn node removes edges of the original graph. Here
all shapes are fixed, so that the draw can be recorded as a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sktifa.contrast.perturbation import GraphPerturber
from sktifa.tensors.sparse import csr_product

__all__ = ["BlockViews", "RoundsPerturber"]

_ROUNDS = 8
# Tries for an edge that is not there yet.
_TRIES = 4


@dataclass(frozen=True)
class BlockViews:
    """Several views of a block-diagonal graph, a block a model.

    Attributes
    ----------
    removed_arcs : Tensor of int64, shape (n_views, n_removed)
        Positions in the arcs of all blocks, both directions; past the end is no arc.
    added_edges : Tensor of int64, shape (n_views, 2, n_added)
        Node pairs, each edge once.
    is_added : Tensor of bool, shape (n_views, n_added)
        False where a pair is no edge.
    nodes : Tensor of bool, shape (n_views, n_models, n_nodes)
        The perturbed nodes.
    """

    removed_arcs: Tensor
    added_edges: Tensor
    is_added: Tensor
    nodes: Tensor


class RoundsPerturber:
    """Draws views of copies of one graph, each copy by settings of its own.

    Parameters
    ----------
    perturbers : sequence of GraphPerturber
        Of the same graph; what :meth:`takes` refuses can't be drawn in rounds.
    device : torch.device
        Where to draw.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> path = csr_array(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    >>> one = GraphPerturber(path, np.ones(5), perturbed_nodes=0.4)
    >>> rounds = RoundsPerturber([one, one, one], torch.device("cpu"))
    >>> views = rounds.draw(2, torch.Generator().manual_seed(0))
    >>> views.nodes.sum(2)
    tensor([[2, 2, 2],
            [2, 2, 2]])
    """

    def __init__(
        self, perturbers: Sequence[GraphPerturber], device: torch.device
    ) -> None:
        first = perturbers[0]
        self._n_models, self._device = len(perturbers), device
        indptr, indices = first._indptr, first._indices.astype(np.int64)
        self._n_nodes, self._n_arcs = len(indptr) - 1, len(indices)
        row = np.repeat(np.arange(self._n_nodes), np.diff(indptr))

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        def of_each(name: str) -> np.ndarray:
            return np.array([getattr(p, name) for p in perturbers])

        self._start, self._degree = put(indptr[:-1]), put(np.diff(indptr))
        self._reverse = put(np.append(first._reverse, self._n_arcs))
        self._arc = put(row * self._n_nodes + indices)
        self._pattern = put(indptr.astype(np.int32)), put(indices.astype(np.int32))
        self._ones = torch.ones(self._n_arcs, device=device)
        self._rates = put(np.stack([p._rates for p in perturbers]).astype(np.float32))
        count = of_each("_max_nodes")
        decay = np.where(of_each("_decay_hops") > 0, of_each("_decay"), 1.0)
        self._slows = bool((decay < 1).any())
        n_rounds = max(1, min(_ROUNDS, count.max())) if self._slows else 1
        ends = np.linspace(0, count, n_rounds + 1).astype(int)
        self._sizes = [put(size[:, None]) for size in np.diff(ends, axis=0)]
        self._most, self._count = int(count.max()), put(count[:, None])
        self._decay = put(decay.astype(np.float32)[:, None])
        added, removed = of_each("_edges_added"), of_each("_edges_removed")
        self._most_added, self._added = int(added.max()), put(added[:, None, None])
        self._most_removed, self._removed = int(removed.max()), put(removed[:, None])

    @staticmethod
    def takes(perturber: GraphPerturber) -> bool:
        """Whether a perturbation can be drawn in rounds.

        Neither one that ends at a number of flipped edges nor one whose decay reaches
        further than the neighbours.
        """
        return perturber._max_flips == np.inf and perturber._decay_hops <= 1

    def draw(self, n_views: int, generator: torch.Generator) -> BlockViews:
        """Draw some views of all models.

        Parameters
        ----------
        n_views : int
            How many of each model.
        generator : torch.Generator
            On the device; advances.

        Returns
        -------
        BlockViews
        """
        ring = self._race(n_views, generator)
        drawn = ring < torch.inf
        nodes = ring.argsort(dim=2)[:, :, : self._most]
        rank = torch.arange(self._most, device=self._device)
        is_drawn = (rank < self._count) & drawn.gather(2, nodes)
        edges, is_added = self._new_edges(nodes, is_drawn, generator)
        return BlockViews(
            self._lost_arcs(nodes, is_drawn, generator), edges, is_added, drawn
        )

    def _race(self, n_views: int, generator: torch.Generator) -> Tensor:
        """Return when each node's clock rings; infinity where it is not drawn."""
        shape = (n_views, self._n_models, self._n_nodes)
        clocks = torch.empty(shape, device=self._device)
        clocks.exponential_(generator=generator).div_(self._rates)
        ring = torch.full_like(clocks, torch.inf)
        for number, size in enumerate(self._sizes):
            waiting = clocks.masked_fill(ring < torch.inf, torch.inf)
            last = (size - 1).clamp(min=0).expand(n_views, -1, -1)
            now = waiting.sort(dim=2).values.gather(2, last)
            fresh = (waiting <= now) & (size > 0)
            ring = torch.where(fresh, waiting, ring)
            if self._slows and number + 1 < len(self._sizes):
                # The copies are of one graph: a column each.
                columns = fresh.flatten(0, 1).T.float().contiguous()
                hits = csr_product(*self._pattern, self._ones, columns, self._n_nodes)
                factor = self._decay.pow(hits.T.reshape(shape))
                clocks = now + (clocks - now) / factor
        return ring

    def _lost_arcs(
        self, nodes: Tensor, is_drawn: Tensor, generator: torch.Generator
    ) -> Tensor:
        degree, start = self._degree[nodes], self._start[nodes]
        picks: list[Tensor] = []
        arcs = []
        for number in range(self._most_removed):
            left = degree - number
            uniform = torch.rand(nodes.shape, device=self._device, generator=generator)
            pick = torch.minimum((uniform * left).long(), left - 1)
            # Of those that are left: count past the ones that are taken.
            for taken in torch.stack(picks).sort(dim=0).values if picks else ():
                pick = pick + (pick >= taken)
            picks.append(pick)
            loses = is_drawn & (left > 0) & (number < self._removed)
            arcs.append(torch.where(loses, start + pick, self._n_arcs))
        if not arcs:
            return torch.empty(len(nodes), 0, dtype=torch.int64, device=self._device)
        both = torch.cat(arcs, dim=2)
        both = torch.cat([both, self._reverse[both]], dim=2)
        shift = torch.arange(self._n_models, device=self._device) * self._n_arcs
        end = self._n_models * self._n_arcs
        return torch.where(both < self._n_arcs, both + shift[:, None], end).flatten(1)

    def _new_edges(
        self, nodes: Tensor, is_drawn: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        n = self._n_nodes
        source = nodes[..., None].expand(-1, -1, -1, self._most_added)
        other = torch.randint(
            n, (_TRIES, *source.shape), device=self._device, generator=generator
        )
        free = other != source
        if self._n_arcs:
            wanted = source * n + other
            found = torch.searchsorted(self._arc, wanted).clamp_(max=self._n_arcs - 1)
            free &= self._arc[found] != wanted
        first = free.int().argmax(dim=0, keepdim=True)
        other = other.gather(0, first)[0]
        asked = torch.arange(self._most_added, device=self._device) < self._added
        gains = free.any(dim=0) & is_drawn[..., None] & asked
        edge = torch.minimum(source, other) * n + torch.maximum(source, other)
        edge = torch.where(gains, edge, n * n).flatten(2).sort(dim=2).values
        is_edge = edge < n * n
        # Drawn from both ends, or twice from one: once is enough.
        is_edge[:, :, 1:] &= edge[:, :, 1:] != edge[:, :, :-1]
        edge = torch.where(is_edge, edge, 0)
        ends = torch.stack([edge // n, edge % n], dim=1)
        shift = torch.arange(self._n_models, device=self._device) * n
        return (ends + shift[:, None]).flatten(2), is_edge.flatten(1)
