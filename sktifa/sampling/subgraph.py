"""A subgraph as tensors: what samplers draw, and what is made of it for users."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Subgraph"]


@dataclass
class Subgraph:
    """The subgraph induced by some nodes, on the device that drew it.

    Attributes
    ----------
    nodes : Tensor of int64, shape (m,)
        The nodes' numbers in the whole graph, ascending.
    crow, col : Tensor of int32, shapes (m + 1,) and (n_arcs,)
        CSR pattern in the subgraph's own numbering, columns ascending.
    arcs : Tensor of int64, shape (n_arcs,)
        Position of each arc in the whole graph's CSR arrays.
    loss_norm : Tensor of float32, shape (m,), or None
        GraphSAINT's weight of each node in the loss.
    aggregation_norm : Tensor of float32, shape (n_arcs,), or None
        GraphSAINT's weight of each arc's message to its row's node.
    seed : int or None
        Seeds what is drawn inside the subgraph, in whatever thread that is.
    """

    nodes: Tensor
    crow: Tensor
    col: Tensor
    arcs: Tensor
    loss_norm: Tensor | None = None
    aggregation_norm: Tensor | None = None
    seed: int | None = None

    def __len__(self) -> int:
        return self.nodes.shape[0]

    @property
    def row(self) -> Tensor:
        """Row of each arc, int64: the node that receives its message."""
        counts = (self.crow[1:] - self.crow[:-1]).long()
        return torch.repeat_interleave(counts, output_size=self.col.shape[0])
