"""What a training step sees: nodes with their edges, labels and perturbed views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.features import Features
from sktifa.tensors.sparse import Adjacency, Flips

__all__ = ["Batch", "LabeledNodes", "View"]


@dataclass
class LabeledNodes:
    """Labelled nodes of all models of a stack, an entry each in the four tensors."""

    model: Tensor  # int64: whose node it is
    index: Tensor  # int64: the node, counted through the nodes of all models
    target: Tensor  # int64: its class
    weight: Tensor  # float32: its share of the model's cross-entropy, of one in all

    @classmethod
    def stack(
        cls,
        parts: Sequence[tuple[Tensor, Tensor, Tensor] | None],
        n_nodes: int,
        device: torch.device,
    ) -> LabeledNodes:
        """Join each model's nodes, classes and shares; None is a model without."""
        some = [(i, *part) for i, part in enumerate(parts) if part is not None]
        if not some:
            none = torch.empty(0, dtype=torch.int64, device=device)
            return cls(none, none, none, none.float())
        model = [torch.full_like(index, i) for i, index, *_ in some]
        return cls(
            torch.cat(model).to(device),
            torch.cat([index + i * n_nodes for i, index, *_ in some]).to(device),
            torch.cat([target for *_, target, _ in some]).to(device),
            torch.cat([weight for *_, weight in some]).float().to(device),
        )

    def of(self, values: Tensor) -> Tensor:
        """Pick the nodes' rows of (n_models, n_nodes, n_classes)."""
        return values.flatten(0, 1).index_select(0, self.index)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """Return each model's weighted cross-entropy, (n_models,)."""
        losses = functional.cross_entropy(
            self.of(logits), self.target, reduction="none"
        )
        return self.sums(losses * self.weight, logits.shape[0])

    def sums(self, values: Tensor, n_models: int) -> Tensor:
        """Add up each model's values, (n_labeled, ...)."""
        total = values.new_zeros(n_models, *values.shape[1:])
        return total.index_add(0, self.model, values)


@dataclass
class View:
    """A perturbed view of a batch (Algorithm 2), for each model of a stack."""

    flips: Flips  # the arcs that differ
    row_keep: Tensor  # float32, (n_models, n_nodes): chance that a feature is kept


@dataclass
class Batch:
    """The nodes that one training step sees."""

    features: Features
    graph: Adjacency
    labeled: LabeledNodes
    views: list[View]
    # The pair operator, CSR with n_models * n_nodes rows; None without a pair loss.
    pairs: Tensor | None = None
    # Which nodes of the whole graph these are, int64; None is all of them.
    nodes: Tensor | None = None
    # What each node's part of a loss is multiplied by before the mean, float32.
    norm: Tensor | None = None
