"""A graph on a device: the products that a training step is made of.

PyTorch's gather-and-scatter message passing touches every arc once a column and
keeps the messages for the backward pass. A graph that is symmetric needs neither:
the gradient of ``A @ h`` is ``A @ grad``, the same product. Models that are trained
at once share the graph, so that a product is one for all of them; what each model's
perturbation changes is added for the few arcs that it flips.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.kernels import kernels_for

# Slots of a row that a program reads.
_PART_SIZES = (8, 16, 32)

__all__ = [
    "Adjacency",
    "csr_product",
    "csr_tensor",
    "index_tensor",
    "to_csr",
    "value_tensor",
]


def to_csr(matrix: sparse.csr_array, device: torch.device) -> Tensor:
    """Copy a scipy CSR matrix to a device as a torch CSR tensor.

    Indices become int32, which is what MKL and cuSPARSE work in.
    """
    return csr_tensor(
        index_tensor(matrix.indptr, device),
        index_tensor(matrix.indices, device),
        value_tensor(matrix.data, device).float(),
        matrix.shape,
    )


def csr_product(
    crow: Tensor, col: Tensor, values: Tensor, dense: Tensor, n_rows: int
) -> Tensor:
    """Multiply a CSR matrix by a dense one, without recording a gradient."""
    if dense.device.type in ("cpu", "cuda"):
        return csr_tensor(crow, col, values, (n_rows, dense.shape[0])) @ dense
    # Devices without CSR kernels (mps) gather and add.
    counts = (crow[1:] - crow[:-1]).long()
    row = torch.repeat_interleave(counts, output_size=col.shape[0])
    messages = values[:, None] * dense[col.long()]
    return dense.new_zeros(n_rows, dense.shape[1]).index_add_(0, row, messages)


@dataclass
class Flips:
    """Arcs in which the models' graphs differ from the one they share."""

    # Nodes, counted through all models, int32 or int64; both directions of each edge.
    target: Tensor
    source: Tensor
    weight: Tensor  # float32: what the arc's weight changes by; 0 is no arc
    degree: Tensor  # float32, (n_models, n_nodes): weighted ones, that come of them


class Adjacency:
    """A symmetric weighted graph on a device, shared by models or flipped for each.

    A CSR pattern of int32, and the row of each slot. Every row ends in a slot for its
    own node, of weight 0, so that convolutions with and without self-loops share one
    sparsity pattern. It is `weighted` where edge weights differ from 1.
    """

    def __init__(
        self,
        crow: Tensor,
        col: Tensor,
        row: Tensor,
        weight: Tensor,
        weighted: bool = False,
    ) -> None:
        self.crow, self.col, self.row, self.weight = crow, col, row, weight
        self.weighted = weighted
        self.kernels = kernels_for(col.device)
        self._flips: Flips | None = None
        self._shared: Adjacency | None = None

    @classmethod
    def from_csr(cls, matrix: sparse.csr_array, device: torch.device) -> Adjacency:
        """Build from a symmetric CSR matrix without diagonal."""
        crow = index_tensor(matrix.indptr, device)
        col = index_tensor(matrix.indices, device)
        return cls.from_arcs(crow, col, value_tensor(matrix.data, device))

    @classmethod
    def from_arcs(
        cls, crow: Tensor, col: Tensor, weight: Tensor, weighted: bool | None = None
    ) -> Adjacency:
        """Build from CSR arrays already on the device.

        Whether weights differ from 1 is looked up where `weighted` doesn't tell.
        """
        n, device = crow.shape[0] - 1, crow.device
        ids = torch.arange(n + 1, dtype=torch.int32, device=device)
        counts = (crow[1:] - crow[:-1]).long()
        arc_row = torch.repeat_interleave(ids[:n], counts, output_size=col.shape[0])
        slot = torch.arange(col.shape[0], device=device) + arc_row
        full_crow = crow.to(torch.int32) + ids
        loop = (full_crow[1:] - 1).long()
        size = col.shape[0] + n
        full_col = torch.empty(size, dtype=torch.int32, device=device)
        full_row = torch.empty(size, dtype=torch.int32, device=device)
        full_weight = torch.zeros(size, device=device)
        full_col.index_copy_(0, slot, col.to(torch.int32)).index_copy_(0, loop, ids[:n])
        full_row.index_copy_(0, slot, arc_row).index_copy_(0, loop, ids[:n])
        full_weight.index_copy_(0, slot, weight.to(torch.float32))
        if weighted is None:
            weighted = bool((weight != 1).any()) if weight.numel() else False
        graph = cls(full_crow, full_col, full_row, full_weight, weighted=weighted)
        graph.loops = loop
        return graph

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.crow.shape[0] - 1

    @property
    def device(self) -> torch.device:
        """Where the arrays lie."""
        return self.col.device

    @cached_property
    def loops(self) -> Tensor:
        """Positions of the diagonal slots."""
        return (self.crow[1:] - 1).long()

    @cached_property
    def mean_weight(self) -> Tensor:
        """Mean edge weight: what an edge added to the graph weighs."""
        n_arcs = max(self.weight.shape[0] - self.n_nodes, 1)
        return self.weight.sum() / n_arcs if self.weighted else self.weight.new_ones(())

    @property
    def n_arcs(self) -> int:
        """Number of arcs, diagonal slots left out."""
        return self.col.shape[0] - self.n_nodes

    def flips(self, removed_arcs: Tensor, added_edges: Tensor) -> Flips:
        """Say what takes some arcs from one graph, and puts other edges there.

        Arcs are positions in the arrays the graph was built from, both directions;
        edges are node pairs, (2, m), each once, and get the mean edge weight.
        """
        slot = self._slot_of_arc.index_select(0, removed_arcs)
        added = self.mean_weight.expand(2 * added_edges.shape[1])
        one_way = torch.cat([added_edges, added_edges.flip(0)], dim=1)
        target = torch.cat([self.row.index_select(0, slot), one_way[0]])
        source = torch.cat([self.col.index_select(0, slot), one_way[1]])
        weight = torch.cat([-self.weight.index_select(0, slot), added])
        degree = self.degree[0].index_add(0, target, weight).clamp_(min=0)
        return Flips(target, source, weight, degree[None])

    def perturbed(self, flips: Flips) -> Adjacency:
        """Return the graph that each model sees."""
        graph = Adjacency(self.crow, self.col, self.row, self.weight, self.weighted)
        graph.loops, graph.loop_values = self.loops, self.loop_values
        graph._shared, graph._flips, graph.degree = self, flips, flips.degree
        return graph

    @property
    def difference(self) -> Flips | None:
        """What the models' graphs differ in from the one they share."""
        return self._flips

    def slots(self, target: Tensor, source: Tensor) -> Tensor:
        """Find the slots of arcs that are there, by their ends."""
        shared: Adjacency = self._shared or self
        keys, order = shared._sorted_slots
        place = torch.searchsorted(keys, target.long() * self.n_nodes + source)
        return order[place.clamp_(max=len(keys) - 1)]

    @cached_property
    def _sorted_slots(self) -> tuple[Tensor, Tensor]:
        return (self.row.long() * self.n_nodes + self.col).sort()

    @property
    def arc_weight(self) -> Tensor:
        """Weight of each arc, in the order of the arrays the graph was built from."""
        return self.weight.index_select(0, self._slot_of_arc)

    @cached_property
    def _slot_of_arc(self) -> Tensor:
        # One diagonal slot comes before the arcs of each further row.
        row = torch.repeat_interleave(self.crow.diff() - 1, output_size=self.n_arcs)
        return row + torch.arange(self.n_arcs, device=self.device)

    @cached_property
    def degree(self) -> Tensor:
        """Weighted degree of every node, (1, n_nodes), or (n_models, n_nodes)."""
        ones = self.weight.new_ones(1, self.n_nodes, 1)
        return self.kernels.csr_product(self.crow, self.col, self.weight, ones)[:, :, 0]

    def normalized(self, h: Tensor) -> Tensor:
        """GCN's propagation ``D^-1/2 (A + I) D^-1/2 h``, D counting the self-loop.

        `h` is of shape (n_models, n_nodes, width).
        """
        return _Symmetric.apply(h, self._normalized)

    def propagated(self, scores: Tensor, steps: int, teleport: float) -> Tensor:
        """Take APPNP's steps ``h <- (1 - teleport) P h + teleport * scores``.

        P is GCN's propagation, and h begins as `scores`. All steps together are a
        polynomial of P, as symmetric as P.
        """
        # On a GPU the kernel that takes them all adds in any order.
        in_order = torch.are_deterministic_algorithms_enabled()
        if (
            steps
            and hasattr(self.kernels, "propagate")
            and not (in_order and self.col.is_cuda)
        ):
            walk = partial(self._propagated, steps=steps, teleport=teleport)
            return _Symmetric.apply(scores, walk)
        h = scores
        for _ in range(steps):
            h = torch.lerp(self.normalized(h), scores, teleport)
        return h

    def mean(self, h: Tensor) -> Tensor:
        """Weighted mean over the neighbours; 0 for a node that has none."""
        return _Symmetric.apply(h, self._sum) * self._inverse_degree

    @cached_property
    def _inverse_degree(self) -> Tensor:
        return torch.where(self.degree > 0, 1 / self.degree, 0.0)[:, :, None]

    @cached_property
    def _scale(self) -> Tensor:
        return (self.degree + 1).rsqrt()[:, :, None]

    @cached_property
    def loop_values(self) -> Tensor:
        """Weights of the slots, with a loop at each node."""
        return self.weight.index_fill(0, self.loops, 1)

    @cached_property
    def _gcn_values(self) -> Tensor:
        scale = self._scale[0, :, 0]
        values = self.loop_values * scale.index_select(0, self.row)
        return values.mul_(scale.index_select(0, self.col))

    def _sum(self, h: Tensor) -> Tensor:
        return self._product(self.weight, h)

    def _normalized(self, h: Tensor) -> Tensor:
        if self._flips is None:
            return self._product(self._gcn_values, h)
        # Each model has degrees of its own: they scale what goes in and comes out.
        return self._product(self.loop_values, h * self._scale).mul_(self._scale)

    def _propagated(self, h: Tensor, steps: int, teleport: float) -> Tensor:
        flips = self._flips
        return self.kernels.propagate(
            h.contiguous(),
            self._shared or self,
            self._scale,
            None if flips is None else (flips.target, flips.source, flips.weight),
            steps,
            teleport,
        )

    @cached_property
    def row_parts(self) -> tuple[int, Tensor, Tensor]:
        """Rows cut into parts of so many slots at most: where each begins, and its row.

        How many there are, the device needn't say: some may have a row past the end.
        """
        n, n_slots = self.n_nodes, len(self.col)
        mean = n_slots // max(n, 1)
        most = next((size for size in _PART_SIZES if size > mean), _PART_SIZES[-1])
        counts = (self.crow.diff() + (most - 1)).div(most, rounding_mode="floor")
        ends = counts.cumsum(0)
        number = torch.arange(n + n_slots // most, device=self.device)
        row = torch.searchsorted(ends, number, right=True)
        here = row.clamp(max=n - 1)
        before = (ends - counts).index_select(0, here)
        begin = self.crow.index_select(0, here) + most * (number - before)
        return most, begin.int(), row.int()

    @cached_property
    def by_degree(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows in order of their lengths, whose ends a CPU then foresees.

        The CSR arrays, with a loop at each node, and each row's node.
        """
        counts = self.crow.diff()
        counts, row = counts.sort(stable=True)
        crow = functional.pad(counts.cumsum(0), (1, 0)).int()
        slot = torch.arange(len(self.col), device=self.device)
        shift = self.crow.index_select(0, row) - crow[:-1]
        slot += torch.repeat_interleave(shift, counts, output_size=len(slot))
        values = self.loop_values.index_select(0, slot)
        return crow, self.col.index_select(0, slot), values, row.int()

    def _product(self, values: Tensor, h: Tensor) -> Tensor:
        h = h.contiguous()
        out = self.kernels.csr_product(self.crow, self.col, values, h)
        flips = self._flips
        if flips is not None:
            self.kernels.add_arcs(out, h, flips.target, flips.source, flips.weight)
        return out

    @cached_property
    def edge_index(self) -> Tensor:
        """Arcs as PyG's convolutions take them, int64 of shape (2, n_arcs)."""
        return self._arcs[0]

    @cached_property
    def edge_weight(self) -> Tensor | None:
        """Weights in the order of `edge_index`; None where all are 1."""
        return self._arcs[1] if self.weighted else None

    @cached_property
    def _arcs(self) -> tuple[Tensor, Tensor]:
        """All arcs of one model's graph, and their weights."""
        weight, flips = self.weight, self._flips
        added: tuple[Tensor, ...] = ()
        if flips is not None:
            lost, new = flips.weight < 0, flips.weight > 0
            gone = self.slots(flips.target[lost], flips.source[lost])
            weight = weight.index_fill(0, gone, 0)
            added = flips.source[new], flips.target[new], flips.weight[new]
        kept = weight > 0
        arcs = torch.stack([self.col[kept], self.row[kept]]).long()
        if not added:
            return arcs, weight[kept]
        return (
            torch.cat([arcs, torch.stack(added[:2]).long()], dim=1),
            torch.cat([weight[kept], added[2]]),
        )


class _Symmetric(torch.autograd.Function):
    """A product with a symmetric matrix, whose backward is the same product."""

    @staticmethod
    def forward(ctx, h, product):  # noqa: ANN001, ANN205
        ctx.product = product
        return product(h)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        return ctx.product(grad), None


def csr_tensor(
    crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, ...]
) -> Tensor:
    """Make a sparse tensor of CSR arrays, of which nothing is checked."""
    return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)


def index_tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy indices, as int32 where they fit."""
    if array.size and array.max() > np.iinfo(np.int32).max:
        return torch.from_numpy(np.array(array, dtype=np.int64)).to(device)
    return torch.from_numpy(np.array(array, dtype=np.int32)).to(device)


def value_tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy values, as float32."""
    # Copied: the caller's array may be a read-only memory map.
    return torch.from_numpy(np.array(array, dtype=np.float32)).to(device)
