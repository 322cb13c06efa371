"""What TIFA knows of every node, computed without leaving the device.

The functions of :mod:`sktifa.information.tig` and
:mod:`sktifa.information.loss_weights` once more, on tensors: a graph of millions of
nodes is too large to carry its n × k scores back and forth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from sktifa.graph import Graph
from sktifa.information.propagation import propagate_on_device
from sktifa.information.tig import class_prototypes

__all__ = [
    "DeviceGraph",
    "annotated_information",
    "information_gain",
    "label_distribution",
    "loss_weights",
]

# Good for float32, and finer than ranks of the gain need.
_TOL = 1e-5
# Features read at a time, in bytes.
_BLOCK = 1 << 26


@dataclass
class DeviceGraph:
    """A graph's CSR arrays on a device, shared by all that works on the whole graph.

    Attributes
    ----------
    crow, col : Tensor of int32 or int64
        CSR pattern.
    weight : Tensor of float32, shape (n_arcs,), or None
        Edge weights; None where all are 1.
    """

    crow: Tensor
    col: Tensor
    weight: Tensor | None

    @classmethod
    def from_graph(cls, graph: Graph, device: torch.device) -> DeviceGraph:
        """Copy a graph's adjacency; on the CPU its own arrays are used."""
        adjacency = graph.adjacency
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

    def arc_weight(self, arcs: Tensor) -> Tensor:
        """Return the weights of some arcs, float32."""
        if self.weight is None:
            return torch.ones(len(arcs), device=arcs.device)
        return self.weight[arcs.to(self.weight.device)].to(arcs.device)


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Make a tensor of an array that may be read-only, without a copy.

    It must not be written to.
    """
    array = np.asarray(array)
    if array.flags.writeable:
        return torch.from_numpy(array)
    # PyTorch knows no read-only memory, and would warn: this names the same memory.
    interface = dict(array.__array_interface__)
    interface["data"] = interface["data"][0], False
    return torch.from_numpy(np.asarray(_Alias(interface, array)))


def row_blocks(n_rows: int, width: int) -> list[slice]:
    """Cut the rows of a dense float32 matrix into blocks of 64 MiB."""
    step = max(1, _BLOCK // (4 * max(width, 1)))
    return [slice(i, min(i + step, n_rows)) for i in range(0, n_rows, step)]


@dataclass
class _Alias:
    """Memory by its address, and what keeps it alive."""

    __array_interface__: dict[str, Any]
    owner: NDArray[Any]


@torch.no_grad()
def annotated_information(
    device_graph: DeviceGraph,
    features: NDArray[np.float32] | sparse.csr_array,
    codes: NDArray[np.integer],
    n_classes: int,
    *,
    restart_probability: float = 0.15,
    resident: Tensor | None = None,
) -> Tensor:
    """Measure what reaches each node from each class's labels (Eq. 1, Appendix A1).

    Parameters
    ----------
    device_graph : DeviceGraph
        The whole graph.
    features : ndarray or csr_array, shape (n_nodes, n_features)
        Node features; read block by block.
    codes : ndarray of int, shape (n_nodes,)
        Class of each node; -1 where unlabelled.
    n_classes : int
        Number of classes.
    restart_probability : float, default=0.15
        In (0, 1] (paper: alpha).
    resident : Tensor of float32, shape (n_nodes, n_features), default=None
        The features, where they lie on the device already.

    Returns
    -------
    Tensor of float32, shape (n_nodes, n_classes)
        Paper: Z*. A relative error of 1e-5 is allowed.
    """
    crow, col = device_graph.crow, device_graph.col
    n, device = device_graph.n_nodes, crow.device
    labelled = np.flatnonzero(codes >= 0)
    sources = torch.zeros(n, n_classes, device=device)
    sources[
        torch.from_numpy(labelled).to(device),
        torch.from_numpy(codes[labelled].astype(np.int64)).to(device),
    ] = 1
    if max(len(col), n) <= np.iinfo(np.int32).max:
        crow, col = crow.int(), col.int()
    weight = device_graph.weight
    matrix = torch.sparse_csr_tensor(
        crow,
        col,
        torch.ones(len(col), device=device) if weight is None else weight,
        (n, n),
        check_invariants=False,
    )
    information = propagate_on_device(
        matrix, sources, restart_probability=restart_probability, tol=_TOL
    )
    prototypes = torch.from_numpy(class_prototypes(features, codes, n_classes))
    directions = torch.nn.functional.normalize(prototypes, dim=1).float().T.to(device)
    for rows in row_blocks(n, features.shape[1]):
        if resident is not None:
            block = resident[rows]
            cosine = block @ directions / _norms(block.square().sum(1))
        elif sparse.issparse(features):
            part = features[rows]
            product = torch.from_numpy(part @ directions.cpu().numpy())
            square = torch.from_numpy(np.asarray(part.power(2).sum(axis=1)))
            cosine = (product / _norms(square)).to(device)
        else:
            block = as_tensor(features[rows]).to(device)
            cosine = block @ directions / _norms(block.square().sum(1))
        information[rows] *= cosine.clamp_(-1, 1).add_(1).div_(2)
    return information


def _norms(square: Tensor) -> Tensor:
    return torch.where(square > 0, square.sqrt(), 1.0)[:, None]


def information_gain(information: Tensor, clarity_weight: float = 0.1) -> Tensor:
    """Sum up what reaches a node in one number (Eq. 4); float64 of shape (n,)."""
    intensity = information.amax(1).double()
    clarity = intensity - information.sum(1, dtype=torch.float64)
    return intensity + clarity_weight / (information.shape[1] - 1) * clarity


def label_distribution(
    information: Tensor,
    kind: Literal["sum", "softmax"] = "sum",
    smoothing: float = 1e-3,
) -> Tensor:
    """Make a distribution over the classes of what reaches each node (Eq. 11)."""
    if kind == "softmax":
        return information.softmax(1)
    mean = float(information.mean(dtype=torch.float64))
    raw = information + (smoothing * mean if mean > 0 else 1)
    return raw.div_(raw.sum(1, keepdim=True))


def loss_weights(gain: Tensor, weight_min: float, weight_max: float) -> Tensor:
    """Weigh nodes by the tie-averaged rank of their gain (Eq. 10); float32 (n,)."""
    _, inverse, counts = torch.unique(gain, return_inverse=True, return_counts=True)
    # The c values that end at cumulated count e have the ranks e - c to e - 1.
    ranks = (counts.cumsum(0) - (counts + 1) / 2)[inverse]
    height = (1 + torch.cos(math.pi * ranks / max(len(gain), 1))) / 2
    return weight_min + (weight_max - weight_min) * height
