"""Node features on a device, sparse where most of them are zero."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.kernels import Drawn, Halves, kernels_for
from sktifa.tensors.sparse import index_tensor, value_tensor

__all__ = ["Features", "dense_fill"]

# Features filled more than this multiply faster as a dense matrix.
_DENSE_FILL = {"cuda": 0.1}
_DENSE_FILL_ELSEWHERE = 0.5
# Numbers that Triton takes for a whole number of vectors.
_VECTOR = 16


def dense_fill(device: torch.device) -> float:
    """Return the share of entries above which features are held dense on a device."""
    return _DENSE_FILL.get(device.type, _DENSE_FILL_ELSEWHERE)


class Features:
    """Node features on a device, sparse where most of them are zero.

    `values` are the stored ones (CSR), or the dense matrix. The `pattern` is CSR, and
    where a device's kernels want it also the transposed matrix, which the gradient of a
    weight matrix needs; None for dense features. `halves` are dense ones once more, as
    a GPU multiplies them fastest; None for as they are.
    """

    def __init__(
        self,
        values: Tensor,
        shape: tuple[int, int],
        pattern: _Pattern | None = None,
        halves: Halves | None = None,
    ) -> None:
        self.values, self.shape, self.pattern = values, shape, pattern
        self.halves = halves
        self.kernels = kernels_for(values.device)

    @classmethod
    def from_matrix(
        cls, matrix: np.ndarray | sparse.csr_array, device: torch.device
    ) -> Features:
        """Copy features to a device, choosing the layout by how filled they are."""
        shape = matrix.shape
        size = max(shape[0] * shape[1], 1)
        is_sparse = sparse.issparse(matrix)
        stored = matrix.nnz if is_sparse else np.count_nonzero(matrix)
        if stored / size >= dense_fill(device):
            dense = matrix.toarray() if is_sparse else matrix
            return cls(_aligned(value_tensor(dense, device)), shape)
        csr = sparse.csr_array(matrix)
        return cls(value_tensor(csr.data, device), shape, _Pattern(csr, device))

    @property
    def is_sparse(self) -> bool:
        """Whether the values are those of a CSR matrix."""
        return self.pattern is not None

    @property
    def device(self) -> torch.device:
        """Where the values lie."""
        return self.values.device

    def halved(self) -> Features:
        """Be ready for many products, where a GPU multiplies a dense matrix."""
        cut = getattr(self.kernels, "in_halves", None)
        if self.is_sparse or cut is None:
            return self
        return Features(self.values, self.shape, halves=cut(self.values))

    def transform(self, weight: Tensor, drawn: Drawn | None = None) -> Tensor:
        """Multiply by the weights, (n_models, n_features, width), after dropout."""
        if self.pattern is None:
            return _DenseProduct.apply(weight, self, drawn)
        return _SparseProduct.apply(weight, self, drawn)

    def dense(self, drawn: Drawn | None = None) -> Tensor:
        """Return one model's dense matrix, after dropout: foreign modules want it."""
        values = self.values
        if self.pattern is not None:
            values = values.new_zeros(self.shape)
            values[self.pattern.row.long(), self.pattern.col.long()] = self.values
        return values if drawn is None else self.kernels.drop(values, drawn)[0]


def _aligned(values: Tensor) -> Tensor:
    """Begin each row where a GPU's vectors begin, which reads it faster."""
    if not values.is_cuda:
        return values
    width = values.shape[1]
    return functional.pad(values, (0, -width % _VECTOR))[:, :width]


class _Pattern:
    """Where the stored features lie, by node and by feature."""

    def __init__(self, matrix: sparse.csr_array, device: torch.device) -> None:
        self.crow = index_tensor(matrix.indptr, device)
        self.col = index_tensor(matrix.indices, device)
        self.counts = (self.crow[1:] - self.crow[:-1]).long()
        self.transposed: tuple[Tensor, ...] | None = None
        if device.type != "cpu":
            self.transposed = _transposed(matrix, device)

    @cached_property
    def row(self) -> Tensor:
        ids = torch.arange(self.counts.shape[0], device=self.col.device)
        return torch.repeat_interleave(ids, self.counts, output_size=self.col.shape[0])


def _transposed(matrix: sparse.csr_array, device: torch.device) -> tuple[Tensor, ...]:
    """Return a transposed matrix's CSR arrays, and where each value stood before."""
    position = np.arange(matrix.nnz, dtype=matrix.indptr.dtype)
    numbered = (position, matrix.indices, matrix.indptr)
    order = sparse.csr_array(numbered, shape=matrix.shape).T.tocsr()
    return (
        index_tensor(order.indptr, device),
        index_tensor(order.indices, device),
        value_tensor(matrix.data[order.data], device),
        index_tensor(order.data, device),
    )


class _SparseProduct(torch.autograd.Function):
    """Sparse features times weights; only the weights have a gradient."""

    @staticmethod
    def forward(ctx, weight, features, drawn):  # noqa: ANN001, ANN205
        ctx.arguments = features, drawn
        pattern = features.pattern
        return features.kernels.csr_product(
            pattern.crow, pattern.col, features.values, weight, drawn=drawn
        )

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        features, drawn = ctx.arguments
        kernels, pattern, grad = features.kernels, features.pattern, grad.contiguous()
        if pattern.transposed is not None:
            *transposed, order = pattern.transposed
            of_weight = kernels.csr_product(*transposed, grad, drawn=drawn, order=order)
        else:
            of_weight = kernels.transposed_csr_product(
                pattern.crow,
                pattern.col,
                features.values,
                grad,
                features.shape[1],
                drawn=drawn,
            )
        return of_weight, None, None


class _DenseProduct(torch.autograd.Function):
    """Dense features times weights. What is dropped is drawn twice, not kept."""

    @staticmethod
    def forward(ctx, weight, features, drawn):  # noqa: ANN001, ANN205
        x = features.values[None] if features.halves is None else features.halves
        ctx.arguments = features.kernels, x, drawn
        return features.kernels.matmul(x, weight, drawn=drawn)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        kernels, x, drawn = ctx.arguments
        of_weight = kernels.transposed_matmul(x, grad.contiguous(), drawn=drawn)
        return of_weight, None, None
