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

# The slope of GAT's scores below 0, and how far a source's part of them may be from the
# middle of all sources': float32 has no more room for its exponential. One that is more
# than twice as far below the largest is raised to that.
_SLOPE, _REACH = 0.2, 50.0


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


def kept_slots(graph: Adjacency, n_models: int) -> Tensor | None:
    """Tell which slots each model has, (n_models, n_slots); None where all."""
    flips = graph.difference
    if flips is None:
        return None
    n, n_slots = graph.n_nodes, len(graph.col)
    slot = graph.slots(flips.target % n, flips.source % n)
    lost = (flips.target // n) * n_slots + slot
    lost = torch.where(flips.weight < 0, lost, n_models * n_slots)
    kept = torch.ones(n_models * n_slots + 1, dtype=torch.bool, device=graph.device)
    return kept.index_fill(0, lost, False)[:-1].view(n_models, n_slots)


class _Heads:
    """The graph as heads of models see it: one matrix, in which each has a block."""

    def __init__(self, graph: Adjacency, n_models: int, n_heads: int) -> None:
        self.graph = graph
        n, n_slots, n_blocks = graph.n_nodes, len(graph.col), n_models * n_heads
        index = torch.int32 if n_blocks * n_slots < 2**31 else torch.int64
        block = torch.arange(n_blocks, dtype=index, device=graph.device)[:, None]
        ends = (graph.crow[1:] + n_slots * block).flatten()
        self.crow = functional.pad(ends, (1, 0))
        self.col = (graph.col + n * block).flatten()
        flips, kept = graph.difference, kept_slots(graph, n_models)
        self.kept: Tensor | None = None
        if flips is None or kept is None:
            return
        self.kept = kept[:, None].float()
        head = torch.arange(n_heads, device=graph.device)[:, None]
        self.target, self.source = (
            ((node // n * n_heads + head) * n + node % n).flatten()
            for node in (flips.target.long(), flips.source.long())
        )
        self.is_added = (flips.weight > 0).repeat(n_heads)

    def sums(
        self, above: Tensor, below: Tensor, of_row: Tensor, of_column: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add up `above` of neighbours with scores above 0, and `below` of the others.

        A score is the sum of a number of the row and one of the column.
        """
        least, kept = -of_column, self.kept
        is_above = of_row.index_select(2, self.graph.row)
        is_above.gt_(least.index_select(2, self.graph.col))
        if kept is not None:
            is_above *= kept
        is_below = (1 if kept is None else kept) - is_above
        sums = self._product(is_above, above), self._product(is_below, below)
        if kept is not None:
            row = of_row.flatten().index_select(0, self.target)
            is_above = row > least.flatten().index_select(0, self.source)
            self._add(sums[0], above, self.is_added & is_above)
            self._add(sums[1], below, self.is_added & ~is_above)
        return sums

    def _product(self, values: Tensor, dense: Tensor) -> Tensor:
        blocks = dense.reshape(1, -1, dense.shape[-1])
        return self.graph.kernels.csr_product(
            self.crow, self.col, values.flatten(), blocks
        ).view(dense.shape)

    def _add(self, out: Tensor, dense: Tensor, there: Tensor) -> None:
        out, dense = (one.reshape(1, -1, one.shape[-1]) for one in (out, dense))
        self.graph.kernels.add_arcs(out, dense, self.target, self.source, there.float())


class _Attention(torch.autograd.Function):
    """Neighbours' means, weighed by the softmax of leaky_relu(t + s).

    t is of the target and s of the source. As exp(leaky_relu(t + s)) is exp(t) exp(s)
    above 0 and exp(0.2 t) exp(0.2 s) below, both times a factor of each node, two sums
    of scaled neighbours make the mean, and no message is ever stored.
    """

    @staticmethod
    def forward(ctx, h, of_target, of_source, heads):  # noqa: ANN001, ANN205
        # A column of ones adds up to what the others are divided by.
        sent = functional.pad(h, (0, 1), value=1.0)
        near, far = of_source.exp()[..., None], (_SLOPE * of_source).exp()[..., None]
        # Both sums are over exp(t), which cancels. Past the clamp no score is above 0.
        ratio = ((_SLOPE - 1) * of_target).clamp(max=(1 - _SLOPE) * _REACH)
        ratio = ratio.exp()[..., None]
        above, below = heads.sums(sent * near, sent * far, of_target, of_source)
        total = above.addcmul_(below, ratio)
        norm = total[..., -1:].clone()
        out = total[..., :-1] / norm
        ctx.heads = heads
        ctx.save_for_backward(
            sent, near, far, ratio, below, norm, out, of_target, of_source
        )
        return out

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        sent, near, far, ratio, below, norm, out, *scores = ctx.saved_tensors
        grad = grad / norm
        grad = torch.cat([grad, -_dot(grad, out)], dim=3)
        to_target = (_SLOPE - 1) * ratio * _dot(grad, below)
        # The pattern is symmetric: transposed, rows and columns change parts.
        above, below = ctx.heads.sums(grad, grad * ratio, *reversed(scores))
        to_h = above.mul_(near).addcmul_(below, far)
        to_source = _dot(sent, to_h) + (_SLOPE - 1) * far * _dot(sent, below)
        return to_h[..., :-1], to_target[..., 0], to_source[..., 0], None


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(3, keepdim=True)


class GATLayer(Layer):
    """Veličković et al. (2018): heads side by side in hidden layers, one at the end."""

    most_heads = 8
    kept_per_arc = 1

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
        heads = h.view(n_models, n, self.n_heads, -1).transpose(1, 2)
        attention = torch.stack([self.to_target, self.to_source], dim=3)
        of_target, of_source = (heads @ attention).unbind(3)
        low, high = of_source.detach().aminmax(dim=2, keepdim=True)
        middle = torch.maximum((low + high) / 2, high - _REACH)
        mean = _Attention.apply(
            heads,
            of_target + middle,
            (of_source - middle).clamp(min=-_REACH),
            _Heads(graph, n_models, self.n_heads),
        )
        return mean.transpose(1, 2).reshape(n_models, n, width)


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
        flips, kept = graph.difference, kept_slots(graph, n_models)
        if flips is None or kept is None:
            return
        self.there = torch.cat([kept.flatten(), flips.weight > 0])
        self.target = torch.cat([self.target, flips.target])
        self.source = torch.cat([self.source, flips.source])

    def sums(self, messages: Tensor, n: int) -> Tensor:
        """Add up what arrives at each target."""
        if self.there is not None:
            messages = messages * self.there[:, None, None]
        return messages.new_zeros(n, *messages.shape[1:]).index_add(
            0, self.target, messages
        )


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
