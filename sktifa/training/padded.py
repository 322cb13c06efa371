"""Subgraphs filled up to one size, so that a CUDA graph can train on any of them.

A training step on a subgraph is some five hundred kernels, and the GPU is done with
them before Python has launched them. Nodes without edges, arcs of weight 0 and
labelled nodes of weight 0 change nothing of a step, and make all steps alike.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from sktifa.tensors.features import Features
from sktifa.tensors.sparse import Adjacency, Flips, csr_tensor
from sktifa.training.batch import Batch, LabeledNodes, View

__all__ = ["PaddedBatch"]

# Room for subgraphs larger than the first one.
_SLACK = 1.05
_MARGIN = 256


@dataclass
class PaddedBatch:
    """The tensors that a recorded step reads, and the way of a batch into them.

    Every tensor is filled up: nodes past the batch's own form a tail of nodes without
    edges, which shares the slots past the batch's own evenly.
    """

    crow: Tensor
    tensors: dict[str, Tensor]
    n_features: int
    weighted: bool
    pairs_crow: Tensor | None

    @classmethod
    def like(cls, batch: Batch) -> PaddedBatch:
        """Make room for batches of about the size of this one."""
        tensors = {}
        for name, part in _parts(batch).items():
            shape = list(part.shape)
            shape[_axis(name)] = int(_SLACK * shape[_axis(name)]) + _MARGIN
            tensors[name] = part.new_zeros(shape)
        n = len(tensors["features"])
        crow = batch.graph.crow.new_zeros(n + 1)
        has_pairs = batch.pairs is not None
        padded = cls(
            crow,
            tensors,
            batch.features.shape[1],
            batch.graph.weighted,
            torch.zeros_like(crow) if has_pairs else None,
        )
        padded.fill(batch)
        return padded

    def fill(self, batch: Batch) -> bool:
        """Take a batch in, unless it is too large."""
        parts = _parts(batch)
        n, n_slots = batch.graph.n_nodes, len(batch.graph.col)
        size, n_all_slots = len(self.crow) - 1, len(self.tensors["col"])
        room = size - n
        if room < 1 or n_all_slots - n_slots < room:
            return False
        for name, part in parts.items():
            if part.shape[_axis(name)] > self.tensors[name].shape[_axis(name)]:
                return False
        # What the places past the batch's own hold: its first further node, and
        # otherwise 0.
        tail = {"col": n, "row": n, "keep": 1}
        for name, part in parts.items():
            place, axis = self.tensors[name], _axis(name)
            count = part.shape[axis]
            place.narrow(axis, 0, count).copy_(part)
            if name != "features":  # there an older batch's do no harm
                rest = place.shape[axis] - count
                place.narrow(axis, count, rest).fill_(tail.get(name, 0))
        # The loss is a mean over all nodes, the ones that count for nothing included.
        self.tensors["norm"].mul_(size / n)
        self.crow[: n + 1] = batch.graph.crow
        steps = torch.arange(1, room + 1, device=self.crow.device)
        self.crow[n + 1 :] = n_slots + steps * (n_all_slots - n_slots) // room
        if self.pairs_crow is not None:
            self.pairs_crow[: n + 1] = batch.pairs.crow_indices()
            self.pairs_crow[n + 1 :] = len(parts["pairs_values"])
            self.pairs_crow[-1] = len(self.tensors["pairs_values"])
        return True

    def batch(self) -> Batch:
        """Make the batch of the tensors; what it derives from them is not kept."""
        parts, n = self.tensors, len(self.crow) - 1
        graph = Adjacency(
            self.crow,
            parts["col"],
            parts["row"],
            parts["weight"],
            weighted=self.weighted,
        )
        graph.degree = parts["degree"]
        features = Features(parts["features"], (n, self.n_features))
        labeled = LabeledNodes(
            torch.zeros_like(parts["index"]),
            parts["index"],
            parts["target"],
            parts["share"],
        )
        batch = Batch(
            features, graph, labeled, [], nodes=parts["nodes"], norm=parts["norm"]
        )
        if "keep" in parts:
            flips = Flips(**{f.name: parts[f"flip_{f.name}"] for f in fields(Flips)})
            batch.views.append(View(flips, parts["keep"]))
        if self.pairs_crow is not None:
            col, values = parts["pairs_col"], parts["pairs_values"]
            batch.pairs = csr_tensor(self.pairs_crow, col, values, (n, n))
        return batch


def _parts(batch: Batch) -> dict[str, Tensor]:
    graph, labeled = batch.graph, batch.labeled
    nodes, norm = batch.nodes, batch.norm
    if norm is None:
        norm = torch.ones(graph.n_nodes, device=graph.device)
    assert nodes is not None
    parts = {
        "features": batch.features.values,
        "degree": graph.degree,
        "col": graph.col,
        "row": graph.row,
        "weight": graph.weight,
        "index": labeled.index,
        "target": labeled.target,
        "share": labeled.weight,
        "nodes": nodes,
        "norm": norm,
    }
    for view in batch.views:
        parts |= {f"flip_{name}": part for name, part in vars(view.flips).items()}
        parts["keep"] = view.row_keep
    if batch.pairs is not None:
        parts["pairs_col"] = batch.pairs.col_indices()
        parts["pairs_values"] = batch.pairs.values()
    return parts


def _axis(name: str) -> int:
    """Return the axis along which a tensor is filled up."""
    return 0 if name == "features" else -1
