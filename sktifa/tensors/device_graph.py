"""A graph's CSR arrays on a device, for all that works on the whole graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from sktifa.graph import Graph
from sktifa.tensors.arrays import as_tensor
from sktifa.tensors.sparse import csr_tensor

__all__ = ["DeviceGraph"]


@dataclass
class DeviceGraph:
    """A graph's CSR arrays on a device."""

    crow: Tensor
    col: Tensor  # int32 or int64, as crow
    weight: Tensor | None  # float32; None where all are 1

    @classmethod
    def from_graph(cls, graph: Graph, device: torch.device) -> DeviceGraph:
        """Copy a graph's adjacency; on the CPU its own arrays are used."""
        return cls.from_csr(graph.adjacency, device)

    @classmethod
    def from_csr(cls, adjacency: sparse.csr_array, device: torch.device) -> DeviceGraph:
        """Copy an adjacency; on the CPU its own arrays are used."""
        weight = np.asarray(adjacency.data)
        unweighted = bool((weight == 1).all())
        return cls(
            as_tensor(adjacency.indptr).to(device),
            as_tensor(adjacency.indices).to(device),
            None if unweighted else as_tensor(weight).to(device),
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.crow) - 1

    @property
    def device(self) -> torch.device:
        """Where the arrays lie."""
        return self.col.device

    @property
    def row(self) -> Tensor:
        """Row of each arc, int64."""
        counts = self.crow.diff().long()
        return torch.repeat_interleave(counts, output_size=len(self.col))

    def arc_weight(self, arcs: Tensor) -> Tensor:
        """Return the weights of some arcs, float32."""
        if self.weight is None:
            return torch.ones(len(arcs), dtype=torch.float32, device=arcs.device)
        return self.weight[arcs.to(self.weight.device)].to(arcs.device)

    def to_csr(self, dtype: torch.dtype) -> Tensor:
        """Return the adjacency as a sparse CSR tensor, its pattern shared."""
        crow, col, n = self.crow, self.col, self.n_nodes
        if max(len(col), n) <= np.iinfo(np.int32).max:
            crow, col = crow.int(), col.int()  # what MKL and cuSPARSE work in
        if self.weight is None:
            weight = torch.ones(len(col), dtype=dtype, device=self.device)
        else:
            weight = self.weight.to(dtype)
        return csr_tensor(crow, col, weight, (n, n))
