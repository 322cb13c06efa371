"""Prediction layer by layer, in blocks of nodes: memory is bounded, the graph is not.

All nodes pass one layer before any passes the next, so every arc is read once a layer.
Where a whole layer fits the memory allowed, the block is the whole graph. Otherwise
a block is some nodes with all of their arcs, and their neighbours as a halo without
arcs of its own. What a convolution must know of the halo, its degree, comes from the
whole graph:

- GCN and GraphSAGE read the degrees of the `Adjacency`, which are set;
- ChebConv and ARMAConv sum up arcs themselves. One more node, without features, lends
  each node the arcs to and from itself that the block leaves out;
- GAT, FeaStConv, GraphConv and the MLP ask for no degree;
- HypergraphConv passes messages twice, so the halo has arcs and a halo as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from sktifa.device import free_memory
from sktifa.graph.adjacency import with_values
from sktifa.sampling.prefetch import prefetch
from sktifa.tensors.arrays import as_tensor
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.features import Features
from sktifa.tensors.jit import njit
from sktifa.tensors.sparse import Adjacency
from sktifa.training.encoders import Encoder, Inputs
from sktifa.training.sources import NodeFeatures

__all__ = ["LayerwisePredictor"]

# Bytes an arc: pattern, weight, the values of a normalisation, and work space.
_BYTES_AN_ARC = 48
# Arrays of a layer's width that live at once: input, product, sum, output.
_ARRAYS = 4
# Blocks alive at once: in use, ready, in work.
_BLOCKS = 3
# Convolutions that gather a message an arc.
_SUMS_DEGREES = ("ChebConv", "ARMAConv")
_GATHERS = (*_SUMS_DEGREES, "GATConv", "FeaStConv", "GraphConv", "HypergraphConv")


class LayerwisePredictor:
    """Runs an encoder on a whole graph, which may be memory-mapped, in bounded memory.

    It uses `memory` bytes on the device; None takes half of what is free. The smallest
    block is one node with its neighbours, whatever that takes. Modules that are not
    :class:`~sktifa.training.encoders.Encoder` have no layers to run one by one: they
    see the whole graph at once, whatever `memory` says. `device_graph` are the graph's
    arrays on the device, where they lie there already.
    """

    def __init__(
        self,
        adjacency: sparse.csr_array,
        features: NodeFeatures,
        memory: int | None = None,
        device_graph: DeviceGraph | None = None,
    ) -> None:
        self.adjacency, self.features, self.memory = adjacency, features, memory
        self._device_graph = device_graph

    @torch.no_grad()
    def logits(
        self, encoder: nn.Module, nodes: NDArray[np.int64] | None = None
    ) -> Tensor:
        """Return class scores of some nodes (None: of all), float32 of (n, n_classes).

        On the device where a layer fits there, else in host memory.
        """
        encoder.eval()
        if not isinstance(encoder, Encoder):
            return self._chosen(encoder(*self._everything())[0], nodes)
        return self._run(encoder, encoder.n_layers, nodes)

    @torch.no_grad()
    def embed(
        self, encoder: nn.Module, nodes: NDArray[np.int64] | None = None
    ) -> Tensor:
        """Return the last hidden layer of some nodes (None: of all), likewise."""
        encoder.eval()
        if not isinstance(encoder, Encoder):
            embed: Any = encoder.embed
            return self._chosen(embed(*self._everything())[0], nodes)
        return self._run(encoder, encoder.n_layers - 1, nodes)

    # ------------------------------------------------------------ whole layers

    @property
    def _device(self) -> torch.device:
        return self.features.device

    @cached_property
    def _whole(self) -> Adjacency:
        graph = self._device_graph
        if graph is None or graph.crow.device != self._device:
            return Adjacency.from_csr(self.adjacency, self._device)
        arcs = graph.weight
        if arcs is None:
            arcs = torch.ones(len(graph.col), device=self._device)
        return Adjacency.from_arcs(graph.crow, graph.col, arcs)

    def _everything(self) -> tuple[Features, Adjacency]:
        return self.features.rows(slice(0, self.features.shape[0])), self._whole

    @staticmethod
    def _chosen(values: Tensor, nodes: NDArray[np.int64] | None) -> Tensor:
        if nodes is None:
            return values
        return values.index_select(0, torch.tensor(nodes, device=values.device))

    def _run(
        self, encoder: Encoder, n_layers: int, nodes: NDArray[np.int64] | None
    ) -> Tensor:
        budget = self.memory
        if budget is None:
            budget = int(free_memory(self._device) / 2)
        n, n_arcs = self.adjacency.shape[0], self.adjacency.nnz
        widths = list(pairwise(encoder.widths))[:n_layers]
        n_steps = encoder.propagation_steps if n_layers == encoder.n_layers else 0
        layers = zip(widths, encoder.convolutions, strict=False)
        whole = max(_bytes(n, n_arcs, *width, layer) for width, layer in layers)
        # A GPU keeps what each step makes, in columns filled up to whole tiles.
        states = 4 * n * (_ARRAYS + 2 * n_steps) * widths[-1][1]
        whole = max(whole, states + n_arcs * _BYTES_AN_ARC)
        if whole <= budget:
            h: Inputs
            h, graph = self._everything()
            for index in range(n_layers):
                h = encoder.layer(index, h, graph)
            assert isinstance(h, Tensor)
            h = graph.propagated(h, n_steps, encoder.teleport)
            return self._chosen(h[0], nodes)
        out: Tensor | None = None
        every = np.arange(n)
        # A node that is asked for twice would send its neighbours' messages twice.
        asked, place = every, None
        if nodes is not None:
            asked, place = np.unique(nodes, return_inverse=True)
        scores: Tensor | None = None
        for index in range(n_layers + n_steps):
            rows = asked if index == n_layers + n_steps - 1 else every
            width = widths[min(index, n_layers - 1)]
            values = torch.empty(len(rows), width[1])
            done = 0
            for block in self._blocks(encoder, index, width, rows, out, budget):
                if index < n_layers:
                    part = encoder.layer(index, block.features, block.graph)
                else:
                    assert isinstance(block.features, Tensor) and scores is not None
                    own = scores[block.nodes].to(self._device)[None]
                    part = encoder.propagate(block.features, own, block.graph)
                values[done : done + block.size] = part[0, : block.size].cpu()
                done += block.size
            out = values
            if index == n_layers - 1:
                scores = out
        assert out is not None
        return self._chosen(out, place)

    # ------------------------------------------------------------------ blocks

    def _blocks(
        self,
        encoder: Encoder,
        index: int,
        width: tuple[int, int],
        rows: NDArray[np.int64],
        hidden: Tensor | None,
        budget: int,
    ) -> Iterator[_Block]:
        """Yield a layer's blocks, the next one made while the last is used."""
        convolution = encoder.convolutions[min(index, encoder.n_layers - 1)]
        kind = _kind(convolution)
        hops = 2 if kind == "HypergraphConv" else 1
        indptr = np.asarray(self.adjacency.indptr)
        arcs = np.diff(indptr).astype(np.float64)
        reach = arcs
        if hops == 2:
            ones = np.ones(self.adjacency.nnz, dtype=np.float32)
            reach = arcs + with_values(self.adjacency, ones) @ arcs.astype(np.float32)
        cost = _bytes(1 + reach[rows], reach[rows], *width, convolution)
        ends = _cut(cost, budget / _BLOCKS)
        local = np.full(len(arcs), -1, dtype=np.int32)

        def make(bounds: tuple[int, int]) -> _Block:
            return self._block(rows[slice(*bounds)], hops, kind, hidden, local)

        return prefetch(make, pairwise(ends), device=self._device, ahead=1)

    def _block(
        self,
        rows: NDArray[np.int64],
        hops: int,
        kind: str,
        hidden: Tensor | None,
        local: NDArray[np.int32],
    ) -> _Block:
        indptr = np.asarray(self.adjacency.indptr)
        indices = np.asarray(self.adjacency.indices)
        full = rows
        for _ in range(hops):
            nodes, crow, col, arcs = _closure(indptr, indices, full, local)
            inner, full = len(full), nodes
        weight = as_tensor(np.asarray(self.adjacency.data)[arcs])
        degree = self._degree[nodes]
        padded = np.full(len(nodes) + 1 - len(crow), crow[-1], dtype=crow.dtype)
        crow = np.concatenate([crow, padded])
        extra = kind in _SUMS_DEGREES
        if extra:
            crow, degree = np.append(crow, crow[-1]), np.append(degree, np.float32(0))
        device = self._device
        graph = Adjacency.from_arcs(
            torch.from_numpy(crow).to(device),
            torch.from_numpy(col).to(device),
            weight.to(device),
        )
        graph.degree = torch.from_numpy(degree).to(device)[None]
        if extra:
            _lend_arcs(graph, inner)
        index = torch.from_numpy(nodes)
        if hidden is None:
            features: Inputs = self.features.rows(index)
        else:
            features = hidden.index_select(0, index).to(device)[None]
        if extra:
            features = _with_empty_row(features)
        return _Block(features, graph, len(rows), index)

    @cached_property
    def _degree(self) -> NDArray[np.float32]:
        return self.adjacency @ np.ones(self.adjacency.shape[0], dtype=np.float32)


@dataclass
class _Block:
    """Some nodes with all of their arcs, first, and their halo."""

    features: Inputs
    graph: Adjacency
    size: int
    nodes: Tensor


def _lend_arcs(graph: Adjacency, inner: int) -> None:
    """Give every node its degree in the whole graph by arcs with the last node.

    The last node has no features, and what it passes on ends in nodes that are not the
    block's own: only sums of weights change.
    """
    last = graph.n_nodes - 1
    arcs, weight = graph.edge_index, graph.edge_weight
    if weight is None:
        weight = torch.ones(arcs.shape[1], device=arcs.device)
    nodes = torch.arange(last, device=arcs.device)
    end = torch.full_like(nodes, last)
    degree = graph.degree[0]
    sent = torch.zeros_like(degree).index_add_(0, arcs[0], weight)
    missing_out = (degree - sent)[:last].clamp_min_(0)
    missing_in = degree[:last].clone()
    missing_in[:inner] = 0
    # Rounding must not leave an arc where there is none.
    missing_out *= missing_out > 1e-4 * degree[:last]
    graph.edge_index = torch.cat(
        [arcs, torch.stack([nodes, end]), torch.stack([end, nodes])], dim=1
    )
    graph.edge_weight = torch.cat([weight, missing_out, missing_in])


def _with_empty_row(features: Inputs) -> Inputs:
    # A residual layer tells features from hidden layers.
    if isinstance(features, Features):
        dense = features.dense()
        padded = torch.cat([dense, dense.new_zeros(1, dense.shape[1])])
        return Features(padded, (padded.shape[0], padded.shape[1]))
    return torch.cat([features, features.new_zeros(1, 1, features.shape[2])], dim=1)


def _kind(convolution: nn.Module) -> str:
    inner = getattr(convolution, "convolution", convolution)
    return type(inner).__name__


def _bytes(nodes, arcs, n_in, n_out, convolution):  # noqa: ANN001, ANN202
    """Estimate what a layer takes; numbers, or arrays of them."""
    columns = n_in + _ARRAYS * n_out
    messages = getattr(convolution, "kept_per_arc", 0) * n_out
    kind = _kind(convolution)
    if kind in _GATHERS:
        heads = getattr(convolution.convolution, "heads", 1)
        wide = {"FeaStConv": n_out * heads, "GATConv": n_out}
        messages = 2 * wide.get(kind, max(n_in, n_out))
    return 4 * nodes * columns + arcs * (_BYTES_AN_ARC + 4 * messages)


def _cut(cost: NDArray[np.float64], budget: float) -> list[int]:
    """Cut a row of costs into the longest parts within a budget, at least one each."""
    total = np.concatenate([[0.0], np.cumsum(cost)])
    ends = [0]
    while ends[-1] < len(cost):
        reach = int(np.searchsorted(total, total[ends[-1]] + budget, side="right")) - 1
        ends.append(max(reach, ends[-1] + 1))
    return ends


@njit()
def _closure(indptr, indices, rows, local):
    """Give rows and then their neighbours numbers, and cut out the rows' arcs."""
    n_arcs = 0
    for i in range(len(rows)):
        local[rows[i]] = i
        n_arcs += indptr[rows[i] + 1] - indptr[rows[i]]
    nodes = np.empty(len(rows) + min(n_arcs, len(local)), dtype=np.int64)
    nodes[: len(rows)] = rows
    count = len(rows)
    crow = np.empty(len(rows) + 1, dtype=np.int64)
    col = np.empty(n_arcs, dtype=np.int32)
    arcs = np.empty(n_arcs, dtype=np.int64)
    at = 0
    for i in range(len(rows)):
        crow[i] = at
        for arc in range(indptr[rows[i]], indptr[rows[i] + 1]):
            other = indices[arc]
            if local[other] < 0:
                local[other] = count
                nodes[count] = other
                count += 1
            col[at] = local[other]
            arcs[at] = arc
            at += 1
    crow[len(rows)] = at
    for i in range(count):
        local[nodes[i]] = -1
    return nodes[:count].copy(), crow, col, arcs
