"""A subgraph as tensors: what samplers draw, and what is made of it for users."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sktifa.exceptions import GraphError

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

    def check(self, n_nodes: int, n_arcs: int) -> None:
        """Refuse what is not of a graph of that size: kernels would look beyond it.

        Raises
        ------
        GraphError
            If it has no nodes, or an array has a number or a length that can't be.
        """
        m, n_own = len(self), len(self.col)
        arrays = (
            ("nodes", m, n_nodes, "nodes of the graph"),
            ("crow", m + 1, n_own + 1, "places in col"),
            ("col", n_own, m, "nodes of the subgraph"),
            ("arcs", n_own, n_arcs, "arcs of the graph"),
        )
        for name, length, n_values, what in arrays:
            values = getattr(self, name)
            if not m or len(values) != length:
                raise GraphError(
                    f"a subgraph of {m} nodes and {n_own} arcs has {len(values)} "
                    f"entries in {name}: draw at least a node, and give {length}."
                )
            outside = (values < 0) | (values >= n_values)
            if outside.any():
                at = int(outside.nonzero()[0])
                raise GraphError(
                    f"{name}[{at}] of a subgraph is {int(values[at])}; it must be one "
                    f"of the {n_values} {what}, from 0 on."
                )
        if self.crow[0] != 0 or self.crow[-1] != n_own or (self.crow.diff() < 0).any():
            raise GraphError(
                f"crow of a subgraph must ascend from 0 to its {n_own} arcs."
            )

    @property
    def row(self) -> Tensor:
        """Row of each arc, int64: the node that receives its message."""
        counts = (self.crow[1:] - self.crow[:-1]).long()
        return torch.repeat_interleave(counts, output_size=self.col.shape[0])
