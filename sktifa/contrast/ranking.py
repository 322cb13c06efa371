"""Nodes in order of their relative distance from others (Eq. 13 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sktifa.tensors.jit import njit
from sktifa.tensors.sparse import csr_product, csr_tensor

if TYPE_CHECKING:
    from sktifa.contrast.pairs import PairSettings

__all__ = ["GraphDistances", "Ranking", "hops_from"]

# Rounding errors that must not pass for differences once a row is scaled to [0, 1].
_DIVERGENCE_NOISE = 1e-13
_COSINE_NOISE = 1e-6
# Distances are ranked in steps of 2^-20: ties are ties in spite of rounding.
_STEPS = 2**20
_MOST_STEPS = 2**22
# A probability below this counts as this in a logarithm.
_SMALLEST_PROBABILITY = 1e-12
_SMALLEST_LENGTH = 1e-60


@dataclass(frozen=True)
class GraphDistances:
    """What relative distances on a graph have in common, whatever the labels."""

    hops: Tensor  # uint8, from the row's node to the column's
    negative_cosines: Tensor  # float32


class Ranking:
    """Ranks all nodes of a graph by relative distance from some anchors (Eq. 13).

    On the CPU in a few compiled passes over each row while it is in cache, elsewhere in
    tensor operations that do the same.
    """

    def __init__(
        self,
        crow: Tensor,
        col: Tensor,
        features: Tensor,
        distribution: Tensor | None,
        settings: PairSettings,
        distances: GraphDistances | None = None,
    ) -> None:
        self.n_nodes, self.device = len(crow) - 1, crow.device
        self.crow, self.col, self.settings = crow, col, settings
        self.distances = distances
        self.distribution = None if distribution is None else distribution.double()
        if settings.feature_weight and distances is None:
            self.unit = _unit_rows(features)

    def nearest(self, anchors: Tensor, n_ranks: int) -> Tensor:
        """Return the nearest nodes of each anchor in order, ties by index, as int32."""
        weights = self.settings.hop_weight, self.settings.feature_weight
        # Only the ratios count, and the heaviest term has few enough steps to index.
        heaviest = max(1.0, *weights)
        terms = []
        if self.distribution is not None:
            # What is constant in a row, the entropy of p_i, is lost in the scaling.
            surprise = -self.distribution.clamp(min=_SMALLEST_PROBABILITY).log()
            divergence = self.distribution[anchors] @ surprise.T
            terms.append((1 / heaviest, divergence, _DIVERGENCE_NOISE))
        if weights[0]:
            terms.append((weights[0] / heaviest, self.hops(anchors), 0.0))
        if weights[1]:
            cosines = self.negative_cosines(anchors)
            terms.append((weights[1] / heaviest, cosines, _COSINE_NOISE))
        rank = _rank_compiled if self.device.type == "cpu" else _rank_on_device
        return rank(terms, anchors, self.n_nodes, n_ranks)

    def hops(self, anchors: Tensor) -> Tensor:
        """Hops from the anchors to all nodes, shape (n_anchors, n_nodes)."""
        if self.distances is not None:
            return _rows(self.distances.hops, anchors)
        max_hops = self.settings.max_hops
        if self.device.type == "cpu":
            pattern = self.crow.numpy(), self.col.numpy()
            return torch.from_numpy(hops_from(*pattern, anchors.numpy(), max_hops))
        return _reach(self.crow, self.col, anchors, max_hops)

    def negative_cosines(self, anchors: Tensor) -> Tensor:
        """-cos of the anchors with all nodes, shape (n_anchors, n_nodes)."""
        if self.distances is not None:
            return _rows(self.distances.negative_cosines, anchors)
        unit = self.unit
        if unit.layout != torch.sparse_csr:
            return -unit[anchors] @ unit.T
        rows = _dense_rows(unit, anchors)
        return (unit @ -rows.T.contiguous()).T.contiguous()


# A weight, the distances of some anchors to all nodes, and their rounding noise.
_Terms = list[tuple[float, Tensor, float]]


def _rank_on_device(
    terms: _Terms, anchors: Tensor, n_nodes: int, n_ranks: int
) -> Tensor:
    """Rank all nodes for some anchors by the sum of the scaled terms.

    Each anchor is left out of its own row, and rows whose range is no more than the
    noise add 0. Uses the terms up.
    """
    node = torch.arange(n_nodes, device=anchors.device)
    row = torch.arange(len(anchors), device=anchors.device)
    total = torch.zeros(len(anchors), n_nodes, device=anchors.device)
    for weight, distance, noise in terms:
        distance[row, anchors] = distance[row, (anchors + 1) % n_nodes]
        low, high = distance.aminmax(dim=1, keepdim=True)
        width = high - low
        factor = torch.where(width > noise, weight * _STEPS / width, 0)
        total.addcmul_(distance.sub_(low).to(torch.float32), factor.to(torch.float32))
    key = torch.add(node, total.round_().to(torch.int64), alpha=n_nodes)
    key[row, anchors] = torch.iinfo(torch.int64).max
    nearest = key.topk(n_ranks, largest=False, sorted=True).values
    return nearest.remainder_(max(n_nodes, 1)).int()


def _rank_compiled(
    terms: _Terms, anchors: Tensor, n_nodes: int, n_ranks: int
) -> Tensor:
    """Do the same on the CPU."""
    total = np.zeros((len(anchors), n_nodes), dtype=np.float32)
    if n_nodes > 1:
        for weight, distance, noise in terms:
            _add_scaled(
                total, weight * _STEPS, distance.numpy(), noise, anchors.numpy()
            )
    return torch.from_numpy(_smallest(total, anchors.numpy(), n_ranks))


@njit(fastmath=True)
def _add_scaled(total, weight, distance, noise, anchors):
    for row in range(len(distance)):
        values, anchor = distance[row], anchors[row]
        low = high = values[anchor - 1]  # any but the anchor's: the last, for node 0
        for part in (values[:anchor], values[anchor + 1 :]):
            for value in part:
                low = min(low, value)
                high = max(high, value)
        if high - low > noise:
            factor = np.float32(weight / (high - low))
            for node in range(len(values)):
                total[row, node] += np.float32(values[node] - low) * factor


@njit()
def _smallest(total, anchors, n_ranks):
    """Nodes of the smallest rounded entries of each row, in order, ties by index."""
    n_rows, n_nodes = total.shape
    ranked = np.empty((n_rows, n_ranks), np.int32)
    steps = np.empty(n_nodes, np.int64)
    for row in range(n_rows):
        anchor = anchors[row]
        largest = 0
        for node in range(n_nodes):
            # What is no number, or beyond any sum of terms, must not become an index.
            step = total[row, node]
            steps[node] = np.rint(min(step, _MOST_STEPS)) if step > 0 else 0
            if node != anchor:
                largest = max(largest, steps[node])
        # A histogram tells below which value there are enough nodes to sort.
        shift = 0
        while (largest >> shift) >= 4096:
            shift += 1
        counts = np.zeros(4096, np.int64)
        for node in range(n_nodes):
            if node != anchor:
                counts[steps[node] >> shift] += 1
        bound, enough = 0, counts[0]
        while enough < n_ranks:
            bound += 1
            enough += counts[bound]
        keys = np.empty(enough, np.int64)
        size = 0
        for node in range(n_nodes):
            if node != anchor and (steps[node] >> shift) <= bound:
                keys[size] = steps[node] * n_nodes + node
                size += 1
        keys.sort()
        for rank in range(n_ranks):
            ranked[row, rank] = keys[rank] % n_nodes
    return ranked


def _rows(matrix: Tensor, anchors: Tensor) -> Tensor:
    return matrix.index_select(0, anchors.to(matrix.device)).to(anchors.device)


def _unit_rows(features: Tensor) -> Tensor:
    """Scale rows to length 1; rows of zeros stay."""
    if features.layout != torch.sparse_csr:
        length = torch.linalg.vector_norm(
            features, dim=1, keepdim=True, dtype=torch.float64
        )
        return (features / length.clamp_(min=_SMALLEST_LENGTH)).float()
    crow, values = features.crow_indices(), features.values().double()
    counts = crow.diff().long()
    square = values.new_zeros(len(counts))
    row = torch.repeat_interleave(counts, output_size=len(values))
    length = square.index_add_(0, row, values**2).sqrt_().clamp_(min=_SMALLEST_LENGTH)
    scaled = (values / length[row]).float()
    return csr_tensor(crow, features.col_indices(), scaled, features.shape)


def _dense_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Densify some rows of a CSR tensor."""
    crow = matrix.crow_indices().long()
    start, counts = crow[rows], crow.diff()[rows]
    of_row = torch.repeat_interleave(counts)
    first = start - counts.cumsum(0) + counts
    entry = first[of_row] + torch.arange(len(of_row), device=rows.device)
    dense = matrix.values().new_zeros(len(rows), matrix.shape[1])
    dense[of_row, matrix.col_indices()[entry].long()] = matrix.values()[entry]
    return dense


def _reach(crow: Tensor, col: Tensor, anchors: Tensor, max_hops: int) -> Tensor:
    """Hops from each anchor by products: one column an anchor."""
    n_nodes, ones = len(crow) - 1, torch.ones(len(col), device=col.device)
    column = torch.arange(len(anchors), device=col.device)
    reached = torch.zeros(n_nodes, len(anchors), device=col.device)
    reached[anchors, column] = 1
    hops = max_hops + 1 - reached
    for _ in range(max_hops):
        reached = csr_product(crow, col, ones, reached, n_nodes).add_(reached).sign_()
        hops -= reached
    return hops.T.contiguous()


@njit()
def hops_from(indptr, indices, anchors, max_hops):
    """Hops from the anchors to all nodes, uint8 of shape (n_anchors, n).

    Nodes further than `max_hops`, at most 254, are at one more.

    Breadth-first searches from 64 nodes at once, one bit each in a node's word.
    """
    n_nodes = len(indptr) - 1
    hops = np.full((len(anchors), n_nodes), max_hops + 1, np.uint8)
    seen = np.empty(n_nodes, np.uint64)
    for first in range(0, len(anchors), 64):
        width = min(64, len(anchors) - first)
        seen[:] = 0
        for bit in range(width):
            seen[anchors[first + bit]] |= np.uint64(1) << np.uint64(bit)
            hops[first + bit, anchors[first + bit]] = 0
        frontier = seen.copy()
        for level in range(1, max_hops + 1):
            reached = np.zeros(n_nodes, np.uint64)
            for node in range(n_nodes):
                word = np.uint64(0)
                for arc in range(indptr[node], indptr[node + 1]):
                    word |= frontier[indices[arc]]
                reached[node] = word & ~seen[node]
            for node in range(n_nodes):
                word = reached[node]
                if word != 0:
                    seen[node] |= word
                    for bit in range(width):
                        if (word >> np.uint64(bit)) & np.uint64(1):
                            hops[first + bit, node] = level
            frontier = reached
    return hops
