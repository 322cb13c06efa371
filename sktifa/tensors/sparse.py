"""A graph on a device: CSR products that a training step is made of.

PyTorch's gather-and-scatter message passing touches every arc once a column and
keeps the messages for the backward pass. A graph that is symmetric needs neither:
the gradient of ``A @ h`` is ``A @ grad``, the same product. Features that are mostly
zero stay sparse, and dropout draws only for the values that are stored.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

__all__ = ["Adjacency", "Features", "csr_product", "dropout", "keep_mask", "to_csr"]

# Features filled more than this are held dense: their CSR form would be larger.
DENSE_FILL = 0.5

# PyTorch says these of every CSR tensor once a process.
for message in (
    "Sparse CSR tensor support is in beta",
    "Sparse invariant checks are implicitly disabled",
):
    warnings.filterwarnings("ignore", message=message)


def to_csr(
    matrix: sparse.csr_array, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Copy a scipy CSR matrix to a device as a torch CSR tensor.

    Indices become int32, which is what MKL and cuSPARSE work in.
    """
    return _csr(
        _index(matrix.indptr, device),
        _index(matrix.indices, device),
        _values(matrix.data, device).to(dtype),
        matrix.shape,
    )


def csr_product(
    crow: Tensor, col: Tensor, values: Tensor, dense: Tensor, n_rows: int
) -> Tensor:
    """Multiply a CSR matrix by a dense one, without recording a gradient."""
    if dense.device.type in ("cpu", "cuda"):
        return _csr(crow, col, values, (n_rows, dense.shape[0])) @ dense
    # Devices without CSR kernels (mps) gather and add.
    counts = (crow[1:] - crow[:-1]).long()
    row = torch.repeat_interleave(counts, output_size=col.shape[0])
    messages = values[:, None] * dense[col.long()]
    return dense.new_zeros(n_rows, dense.shape[1]).index_add_(0, row, messages)


def keep_mask(
    shape: tuple[int, ...],
    keep: float | Tensor,
    device: torch.device,
    generator: torch.Generator,
) -> Tensor:
    """Draw a boolean mask, true with probability `keep` (a scalar, or broadcast).

    On the CPU four 16-bit numbers are cut from each draw, which is several times
    faster than a uniform float an entry; probabilities are rounded to 2^-16.
    """
    if device.type != "cpu":
        return torch.rand(shape, device=device, generator=generator) < keep
    size = int(np.prod(shape))
    words = torch.empty((size + 3) // 4, dtype=torch.int64)
    words.random_(-(2**63), None, generator=generator)
    bits = words.view(torch.int16)[:size].view(shape)
    if isinstance(keep, Tensor):
        # 2^16 itself does not fit: a certain keep loses one chance in 65,536.
        threshold = (keep * 65536).round().clamp(0, 65535).sub(32768).to(torch.int16)
        return (bits < threshold) | (keep >= 1)
    limit = round(keep * 65536) - 32768
    if limit > 32767:
        return torch.ones_like(bits, dtype=torch.bool)
    return bits < limit


def dropout(x: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Dropout from a generator of our own; None means evaluation: no dropout."""
    if generator is None or rate == 0:
        return x
    mask = keep_mask(tuple(x.shape), 1 - rate, x.device, generator)
    return x * mask.to(x.dtype).mul_(1 / (1 - rate))


class Adjacency:
    """A symmetric weighted graph on a device.

    Every row ends in a slot for its own node, so that convolutions with and without
    self-loops share one sparsity pattern, and a removed edge keeps its slots with
    weight 0. Edges that a perturbation adds are held beside the CSR arrays.

    Parameters
    ----------
    crow, col, row : Tensor of int32
        CSR pattern with the diagonal slots, and the row of each slot.
    weight : Tensor of float32
        Weight of each slot; 0 in the diagonal ones.
    added : Tensor of int64, shape (2, m), default=None
        Arcs outside the pattern, both directions.
    added_weight : Tensor of float32, shape (m,), default=None
        Their weights.
    weighted : bool, default=False
        Whether edge weights differ from 1.
    product : callable, default=csr_product
        Multiplies by a CSR matrix.
    """

    def __init__(
        self,
        crow: Tensor,
        col: Tensor,
        row: Tensor,
        weight: Tensor,
        added: Tensor | None = None,
        added_weight: Tensor | None = None,
        weighted: bool = False,
        product: Callable[..., Tensor] = csr_product,
    ) -> None:
        self.crow, self.col, self.row, self.weight = crow, col, row, weight
        if added is None or added_weight is None:
            added = crow.new_empty((2, 0)).long()
            added_weight = weight.new_empty(0)
        self.added, self.added_weight = added, added_weight
        self.weighted, self.product = weighted, product

    @classmethod
    def from_csr(cls, matrix: sparse.csr_array, device: torch.device) -> Adjacency:
        """Build from a symmetric CSR matrix without diagonal."""
        crow = _index(matrix.indptr, device)
        col = _index(matrix.indices, device)
        return cls.from_arcs(crow, col, _values(matrix.data, device))

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

    def perturbed(
        self,
        removed_arcs: Tensor,
        added_edges: Tensor,
        added_weight: Tensor | None = None,
    ) -> Adjacency:
        """Return the graph without some of its arcs and with other edges.

        Parameters
        ----------
        removed_arcs : Tensor of int64
            Positions in the arrays the graph was built from, both directions. A
            position past the end is no arc, so that the number of entries can stay
            the same from view to view.
        added_edges : Tensor of int64, shape (2, m)
            Node pairs, each edge once.
        added_weight : Tensor of float32, shape (m,), default=None
            Their weights; None gives each the mean edge weight. An edge of weight 0
            is none.
        """
        weight = self.weight.clone()
        weight.index_fill_(0, self._slot_of_arc.index_select(0, removed_arcs), 0)
        if added_weight is None:
            added_weight = self.mean_weight.expand(added_edges.shape[1])
        graph = Adjacency(
            self.crow,
            self.col,
            self.row,
            weight,
            torch.cat([added_edges, added_edges.flip(0)], dim=1),
            added_weight.repeat(2),
            self.weighted,
            self.product,
        )
        graph.loops = self.loops
        return graph

    @cached_property
    def _slot_of_arc(self) -> Tensor:
        # One diagonal slot comes before the arcs of each further row.
        n_arcs = self.col.shape[0] - self.n_nodes
        row = torch.repeat_interleave(self.crow.diff() - 1, output_size=n_arcs)
        slot = row + torch.arange(n_arcs, device=self.device)
        # A diagonal slot has weight 0 anyway: it stands for "no arc".
        return torch.cat([slot, self.loops[:1]])

    @cached_property
    def degree(self) -> Tensor:
        """Weighted degree of every node."""
        degree = self.product(
            self.crow,
            self.col,
            self.weight,
            self.weight.new_ones(self.n_nodes, 1),
            self.n_nodes,
        )[:, 0]
        return degree.index_add(0, self.added[0], self.added_weight)

    def normalized(self, h: Tensor) -> Tensor:
        """GCN's propagation ``D^-1/2 (A + I) D^-1/2 h``, D counting the self-loop."""
        values, added_values = self._gcn_values
        return _SymmetricProduct.apply(h, self, values, added_values)

    def mean(self, h: Tensor) -> Tensor:
        """Weighted mean over the neighbours; 0 for a node that has none."""
        total = _SymmetricProduct.apply(h, self, self.weight, self.added_weight)
        return total * self._inverse_degree

    @cached_property
    def _inverse_degree(self) -> Tensor:
        return torch.where(self.degree > 0, 1 / self.degree, 0.0)[:, None]

    @cached_property
    def _gcn_values(self) -> tuple[Tensor, Tensor]:
        scale = (self.degree + 1).rsqrt()
        weight = self.weight.clone()
        weight.index_fill_(0, self.loops, 1)
        values = weight * scale.index_select(0, self.row)
        values *= scale.index_select(0, self.col)
        return values, self.added_weight * scale[self.added].prod(0)

    @cached_property
    def edge_index(self) -> Tensor:
        """Arcs as PyG's convolutions take them, int64 of shape (2, n_arcs)."""
        kept = self._kept
        arcs = torch.stack([self.col[kept], self.row[kept]]).long()
        return torch.cat([arcs, self.added[:, self.added_weight > 0]], dim=1)

    @cached_property
    def edge_weight(self) -> Tensor | None:
        """Weights in the order of `edge_index`; None where all are 1."""
        if not self.weighted:
            return None
        weight = self.weight[self._kept]
        return torch.cat([weight, self.added_weight[self.added_weight > 0]])

    @cached_property
    def _kept(self) -> Tensor:
        return self.weight > 0


class _SymmetricProduct(torch.autograd.Function):
    """Product with a symmetric sparse matrix, whose backward is the same product."""

    @staticmethod
    def forward(ctx, h, graph, values, added_values):  # noqa: ANN001, ANN205
        ctx.operator = graph, values, added_values
        return _symmetric_product(h, graph, values, added_values)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        return _symmetric_product(grad, *ctx.operator), None, None, None


def _symmetric_product(
    h: Tensor, graph: Adjacency, values: Tensor, added_values: Tensor
) -> Tensor:
    h = h.contiguous()
    out = graph.product(graph.crow, graph.col, values, h, graph.n_nodes)
    if graph.added.shape[1]:
        target, source = graph.added
        messages = added_values[:, None] * h.index_select(0, source)
        out.index_add_(0, target, messages)
    return out


class Features:
    """Node features on a device, sparse where most of them are zero.

    Dropout and masking return a view with other values; the pattern and its
    transpose, which the gradient of a weight matrix needs, are shared.

    Parameters
    ----------
    values : Tensor of float32
        The stored values (CSR), or the dense matrix.
    shape : tuple of int
        Nodes and features.
    pattern : _Pattern, default=None
        CSR pattern; None for dense features.
    row_keep : Tensor of float32, shape (n_nodes,), default=None
        Probability that an entry of a row survives a pending mask.
    """

    def __init__(
        self,
        values: Tensor,
        shape: tuple[int, int],
        pattern: _Pattern | None = None,
        row_keep: Tensor | None = None,
        mask: tuple[Tensor, float] | None = None,
    ) -> None:
        self.values, self.shape, self.pattern = values, shape, pattern
        self.row_keep = row_keep
        self._mask = mask

    @classmethod
    def from_matrix(
        cls, matrix: np.ndarray | sparse.csr_array, device: torch.device
    ) -> Features:
        """Copy features to a device, choosing the layout by how filled they are."""
        shape = matrix.shape
        size = max(shape[0] * shape[1], 1)
        if not sparse.issparse(matrix):
            filled = np.count_nonzero(matrix) / size
            if filled >= DENSE_FILL:
                return cls(_values(matrix, device), shape)
        elif matrix.nnz / size >= DENSE_FILL:
            return cls(_values(matrix.toarray(), device), shape)
        stored = sparse.csr_array(matrix)
        return cls(_values(stored.data, device), shape, _Pattern(stored, device))

    @property
    def is_sparse(self) -> bool:
        """Whether the values are those of a CSR matrix."""
        return self.pattern is not None

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self.values.device

    def masked(self, row_keep: Tensor) -> Features:
        """Mask the features of each row with a probability of its own.

        The draw is made together with the dropout that follows, in `drop`.

        Parameters
        ----------
        row_keep : Tensor of float32, shape (n_nodes,)
            Probability that a feature of the row is kept.
        """
        return Features(self.values, self.shape, self.pattern, row_keep)

    def drop(self, rate: float, generator: torch.Generator | None) -> Features:
        """Draw the dropout (none where `generator` is None) and any pending mask."""
        rate = 0.0 if generator is None else rate
        if rate == 0 and self.row_keep is None:
            return self
        if generator is None:
            raise ValueError("masked features are drawn with a generator")
        keep: float | Tensor = 1 - rate
        if self.row_keep is not None:
            keep = self.row_keep * keep
            if self.pattern is None:
                keep = keep[:, None]
            else:
                keep = torch.repeat_interleave(
                    keep, self.pattern.counts, output_size=self.values.shape[0]
                )
        mask = keep_mask(tuple(self.values.shape), keep, self.device, generator)
        scale = 1 / (1 - rate)
        values = self.values * mask
        if scale != 1:
            values *= scale
        return Features(values, self.shape, self.pattern, mask=(mask, scale))

    def matmul(self, weight: Tensor) -> Tensor:
        """Multiply by a weight matrix of shape (n_features, m)."""
        if self.pattern is None:
            return self.values @ weight
        return _FeatureProduct.apply(weight, self)

    def dense(self) -> Tensor:
        """Return the dense matrix, as foreign modules want it."""
        if self.pattern is None:
            return self.values
        out = self.values.new_zeros(self.shape)
        out[self.pattern.row.long(), self.pattern.col.long()] = self.values
        return out

    def _transposed_values(self, pattern: _Pattern) -> Tensor:
        if self._mask is None:
            return self.values.index_select(0, pattern.transpose_order)
        # The mask is a quarter of the values' size, so it is what is permuted.
        mask, scale = self._mask
        values = pattern.transposed_values * mask.index_select(
            0, pattern.transpose_order
        )
        return values if scale == 1 else values.mul_(scale)


class _Pattern:
    """Where the stored features lie, by node and by feature."""

    def __init__(self, matrix: sparse.csr_array, device: torch.device) -> None:
        self.crow = _index(matrix.indptr, device)
        self.col = _index(matrix.indices, device)
        self.counts = (self.crow[1:] - self.crow[:-1]).long()
        order = sparse.csr_array(
            (np.arange(matrix.nnz, dtype=np.int64), matrix.indices, matrix.indptr),
            shape=matrix.shape,
        ).T.tocsr()
        self.transpose_crow = _index(order.indptr, device)
        self.transpose_col = _index(order.indices, device)
        self.transpose_order = _index(order.data, device)
        self.transposed_values = _values(matrix.data[order.data], device)

    @cached_property
    def row(self) -> Tensor:
        ids = torch.arange(self.counts.shape[0], device=self.col.device)
        return torch.repeat_interleave(ids, self.counts, output_size=self.col.shape[0])


class _FeatureProduct(torch.autograd.Function):
    """Sparse features times weights; only the weights have a gradient."""

    @staticmethod
    def forward(ctx, weight, features):  # noqa: ANN001, ANN205
        ctx.features = features
        pattern = features.pattern
        return csr_product(
            pattern.crow, pattern.col, features.values, weight, features.shape[0]
        )

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        features = ctx.features
        pattern = features.pattern
        grad_weight = csr_product(
            pattern.transpose_crow,
            pattern.transpose_col,
            features._transposed_values(pattern),
            grad.contiguous(),
            features.shape[1],
        )
        return grad_weight, None


def _csr(crow: Tensor, col: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)


def _index(array: np.ndarray, device: torch.device) -> Tensor:
    if array.size and array.max() > np.iinfo(np.int32).max:
        return torch.from_numpy(np.array(array, dtype=np.int64)).to(device)
    return torch.from_numpy(np.array(array, dtype=np.int32)).to(device)


def _values(array: np.ndarray, device: torch.device) -> Tensor:
    # Copied: the caller's array may be a read-only memory map.
    return torch.from_numpy(np.array(array, dtype=np.float32)).to(device)
