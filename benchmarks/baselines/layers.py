"""Encoders of the literature as layers of our engine, so that they train as stacks.

``encoder="gat"`` and its like wrap PyTorch Geometric's convolutions, which take one
model at a time. These compute the same for all models of a stack at once (READING 26
says which convolution each name of the paper's Figure 3 is read as).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sktifa.tensors.features import Features
from sktifa.tensors.kernels import Drawn
from sktifa.tensors.sparse import Adjacency
from sktifa.training.encoders import Layer

__all__ = [
    "ARMALayer",
    "ChebLayer",
    "FeaStLayer",
    "GATLayer",
    "GraphConvLayer",
    "HypergraphLayer",
]

Input = Features | Tensor


def neighbor_sum(graph: Adjacency, h: Tensor) -> Tensor:
    """Return ``A h``."""
    return graph.mean(h) * graph.degree[:, :, None]


def symmetric(graph: Adjacency, h: Tensor) -> Tensor:
    """Return ``D^-1/2 A D^-1/2 h``, without self-loops."""
    root = graph.degree.sqrt()[:, :, None]
    inverse = torch.where(root > 0, 1 / root, 0.0)
    return root * graph.mean(inverse * h)


class _TwoPartLayer(Layer):
    """A node's own part, and one that comes of its neighbours'."""

    n_weights = 2

    def forward(self, x: Input, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        own, other = self.transform(x, drawn).chunk(2, dim=2)
        return own + self.gathered(graph, other)

    def gathered(self, graph: Adjacency, other: Tensor) -> Tensor:
        raise NotImplementedError


class GraphConvLayer(_TwoPartLayer):
    """Morris et al. (2019): the sum over the neighbours."""

    def gathered(self, graph: Adjacency, other: Tensor) -> Tensor:
        return neighbor_sum(graph, other)


class ARMALayer(_TwoPartLayer):
    """Bianchi et al. (2021), one filter of depth one; the encoder activates it."""

    def gathered(self, graph: Adjacency, other: Tensor) -> Tensor:
        return symmetric(graph, other)


class ChebLayer(_TwoPartLayer):
    """Defferrard et al. (2016), K = 2, the largest eigenvalue taken as 2."""

    def gathered(self, graph: Adjacency, other: Tensor) -> Tensor:
        return -symmetric(graph, other)


class HypergraphLayer(Layer):
    """Bai et al. (2021), each node and its neighbours one hyperedge."""

    def forward(self, x: Input, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        h, size = self.transform(x, drawn), graph.degree[:, :, None] + 1
        for _ in ("of each hyperedge", "of those that a node is in"):
            h = (neighbor_sum(graph, h) + h) / size
        return h


class _Arcs:
    """All arcs of all models, self-loops among them, nodes counted through all models.

    `there` tells arcs from places where a model has none; None where all are.
    """

    def __init__(self, graph: Adjacency, n_models: int) -> None:
        n, device = graph.n_nodes, graph.device
        first = n * torch.arange(n_models, device=device)[:, None]
        self.target = (first + graph.row).flatten()
        self.source = (first + graph.col).flatten()
        self.there: Tensor | None = None
        flips = graph.difference
        if flips is None:
            return
        n_slots = graph.row.shape[0]
        slot = graph.slots(flips.target % n, flips.source % n)
        lost = (flips.target // n) * n_slots + slot
        lost = torch.where(flips.weight < 0, lost, n_models * n_slots)
        kept = torch.ones(n_models * n_slots + 1, dtype=torch.bool, device=device)
        self.there = torch.cat([kept.index_fill(0, lost, False)[:-1], flips.weight > 0])
        self.target = torch.cat([self.target, flips.target])
        self.source = torch.cat([self.source, flips.source])

    def softmax(self, scores: Tensor, n: int) -> Tensor:
        """Turn scores, (n_arcs, n_heads), into shares of each target's arcs."""
        if self.there is not None:
            scores = scores.masked_fill(~self.there[:, None], -torch.inf)
        target = self.target[:, None].expand_as(scores)
        top = scores.new_full((n, scores.shape[1]), -torch.inf)
        top = top.scatter_reduce(0, target, scores.detach(), "amax")
        weight = (scores - top.index_select(0, self.target)).exp()
        total = weight.new_zeros(top.shape).index_add(0, self.target, weight)
        return weight / total.index_select(0, self.target)

    def sums(self, messages: Tensor, n: int) -> Tensor:
        """Add up what arrives at each target."""
        if self.there is not None:
            messages = messages * self.there[:, None, None]
        return messages.new_zeros(n, *messages.shape[1:]).index_add(
            0, self.target, messages
        )


class GATLayer(Layer):
    """Veličković et al. (2018): heads side by side in hidden layers, one at the end."""

    most_heads = 8
    kept_per_arc = 6

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)
        # No graph here has as many classes as twice the heads.
        is_hidden = n_out % self.most_heads == 0 and n_out > self.most_heads
        self.n_heads = self.most_heads if is_hidden else 1
        width = n_out // self.n_heads
        self.to_target, self.to_source = (
            nn.Parameter(
                nn.init.xavier_uniform_(torch.empty(self.n_heads, width))[None]
            )
            for _ in range(2)
        )

    def forward(self, x: Input, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        h = self.transform(x, drawn)
        n_models, n, width = h.shape
        heads = h.view(n_models, n, self.n_heads, -1)
        of_target, of_source = (
            (heads * part[:, None]).sum(3).flatten(0, 1)
            for part in (self.to_target, self.to_source)
        )
        arcs, heads = _Arcs(graph, n_models), heads.flatten(0, 1)
        scores = of_target.index_select(0, arcs.target) + of_source.index_select(
            0, arcs.source
        )
        share = arcs.softmax(functional.leaky_relu(scores, 0.2), n_models * n)
        messages = share[:, :, None] * heads.index_select(0, arcs.source)
        return arcs.sums(messages, n_models * n).view(n_models, n, width)


class FeaStLayer(Layer):
    """Verma et al. (2018): each arc chooses softly among weight matrices."""

    n_heads = 4
    n_weights = n_heads
    kept_per_arc = 4 * n_heads

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out)
        # The arcs' choice is linear in the features, as the rest is: one product.
        chooses = nn.init.xavier_uniform_(torch.empty(n_in, self.n_heads))
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), chooses[None]], 2))
        self.shift = nn.Parameter(torch.zeros(1, self.n_heads))

    def forward(self, x: Input, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        parts = self.transform(x, drawn)
        n_models, n = parts.shape[:2]
        h, choice = parts[:, :, : -self.n_heads], parts[:, :, -self.n_heads :]
        arcs = _Arcs(graph, n_models)
        shifted = (choice + self.shift[:, None]).flatten(0, 1)
        scores = shifted.index_select(0, arcs.source) - choice.flatten(
            0, 1
        ).index_select(0, arcs.target)
        heads = h.reshape(n_models * n, self.n_heads, -1)
        messages: Any = scores.softmax(1)[:, :, None] * heads.index_select(
            0, arcs.source
        )
        total = arcs.sums(messages.sum(1, keepdim=True), n_models * n)
        return total.view(n_models, n, -1) / (graph.degree[:, :, None] + 1)
