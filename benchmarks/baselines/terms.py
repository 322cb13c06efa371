"""The losses of other methods, as terms of our engine.

All are in the semi-supervised form that the paper compares with: added to the
cross-entropy of the labelled nodes, on the encoder that classifies. Terms have no
parameters of their own, so there are no projection heads: what is contrasted is the
encoder's last hidden layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from sktifa.contrast.loss import self_consistency_loss
from sktifa.tensors.sparse import Adjacency
from sktifa.training.stacking import own, shared
from sktifa.training.terms import Step, Term

__all__ = ["AugmentedNodes", "Mixup", "NodeContrast", "ViewContrast"]

# Numbers of a term's own passes, apart from those of the perturbed views.
_OWN_PASS = 100


def uniform(seed: Tensor, n: int) -> Tensor:
    """Draw (n_models, n) numbers in [0, 1), by SplitMix64 of each model's seed.

    Nothing but tensors takes part, so that a CUDA graph draws anew in each run.
    """
    x = seed[:, None] + torch.arange(1, n + 1, device=seed.device) * 0x1E3779B97F4A7C15
    for shift, factor in (
        (30, -0x40A7B892E31B1A47),
        (27, -0x6B2FB644ECCEEE15),
        (31, 1),
    ):
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return ((x >> 11) & ((1 << 53) - 1)).double() / 2**53


class _OneView:
    """A graph of which the encoder sees a propagation of ours."""

    def __init__(self, graph: Adjacency) -> None:
        self.graph = graph

    @property
    def n_nodes(self) -> int:
        return self.graph.n_nodes


class Diffusion(_OneView):
    """Personalised PageRank in the place of one step along the edges."""

    def __init__(self, graph: Adjacency, teleport: float = 0.2, steps: int = 10):
        super().__init__(graph)
        self.teleport, self.steps = teleport, steps

    def normalized(self, h: Tensor) -> Tensor:
        start = h
        for _ in range(self.steps):
            h = torch.lerp(self.graph.normalized(h), start, self.teleport)
        return h


class NoEdges(_OneView):
    """A graph without its edges: a GCN on it is an MLP with the same weights."""

    def normalized(self, h: Tensor) -> Tensor:
        return h


@dataclass(frozen=True)
class NodeContrast(Term):
    """InfoNCE: a node in one view is to be told from others in the other view.

    The two are perturbed views. Of the nodes, some are drawn at each step and
    contrasted with each other.

    Attributes
    ----------
    weight, temperature : float
        Of the term, and of the similarities.
    within : bool
        Whether other nodes of the same view are negatives too (GRACE), and the pair
        itself stands in the denominator; else as NT-Xent (GraphCL) has it.
    n_nodes : int
        Nodes drawn.
    """

    n_views: ClassVar[int] = 2

    weight: float = own(1.0)
    temperature: float = own(0.5)
    within: bool = shared(True)
    n_nodes: int = shared(512)

    def __call__(self, step: Step) -> Tensor:
        one, other = self.embeddings(step)
        n = step.batch.graph.n_nodes
        seed = step.draw(_OWN_PASS).seed
        drawn = (uniform(seed, min(self.n_nodes, n)) * n).long()
        one, other = (
            functional.normalize(
                h.gather(1, drawn[:, :, None].expand(-1, -1, h.shape[2])), dim=2
            )
            for h in (one, other)
        )
        # A node that was drawn twice is no negative of its own.
        same = drawn[:, :, None] == drawn[:, None, :]
        losses = self._losses(one, other, same) + self._losses(other, one, same)
        return self.weight[:, 0] * losses.mean(1) / 2  # type: ignore[index]

    def embeddings(self, step: Step) -> Iterator[Tensor]:
        """Return each node's last hidden layer in both views."""
        return (step.embedded_view(number) for number in range(2))

    def _losses(self, one: Tensor, other: Tensor, same: Tensor) -> Tensor:
        temperature = self.temperature[:, :, None]  # type: ignore[index]
        across = one @ other.transpose(1, 2) / temperature
        agree = across.diagonal(dim1=1, dim2=2)
        against = across.masked_fill(same, -torch.inf)
        if self.within:
            beside = (one @ one.transpose(1, 2) / temperature).masked_fill(
                same, -torch.inf
            )
            against = torch.cat([against, beside, agree[:, :, None]], dim=2)
        return against.logsumexp(2) - agree


@dataclass(frozen=True)
class ViewContrast(NodeContrast):
    """InfoNCE between the graph as it is and its diffusion (MVGRL's two views).

    MVGRL contrasts each node with the summary of the whole other view, by a
    discriminator that is trained without labels. Beside a cross-entropy that summary
    says nothing of a node's class: here a node is contrasted with other nodes.
    """

    n_views: ClassVar[int] = 0

    def embeddings(self, step: Step) -> Iterator[Tensor]:
        features, graph = step.batch.features, step.batch.graph
        views: tuple[Any, ...] = graph, Diffusion(graph)
        return (
            step.encoder.embed(features, view, step.draw(_OWN_PASS + 1 + number))
            for number, view in enumerate(views)
        )


@dataclass(frozen=True)
class AugmentedNodes(Term):
    """NodeAug: the prediction of a perturbed node is that of the clean one.

    Only nodes that were perturbed count: each is to be in a universe of its own, so
    that the views perturb few nodes that are no neighbours (Wang et al., KDD 2020).

    Attributes
    ----------
    weight : float
        Of the term.
    """

    n_views: ClassVar[int] = 1
    needs_clean: ClassVar[bool] = True

    weight: float = own(1.0)

    def __call__(self, step: Step) -> Tensor:
        loss = self_consistency_loss(step.log_view(), step.log_target)
        perturbed = step.batch.views[0].row_keep < 1
        mean = (loss * perturbed).sum(1) / perturbed.sum(1).clamp(min=1)
        return self.weight[:, 0] * mean  # type: ignore[index]


@dataclass(frozen=True)
class Mixup(Term):
    """GraphMix: the encoder without its edges learns from mixed nodes.

    The weights are shared with the encoder. Hidden layers of two nodes are mixed, and
    so are their labels: known ones, and elsewhere the sharpened clean prediction
    (Verma et al., AAAI 2021). Predictions teach as far as the labelled nodes are known,
    from chance up, where GraphMix counts epochs.

    Attributes
    ----------
    weight : float
        Of the loss of labelled nodes.
    consistency : float
        Of the loss of all nodes.
    sharpening : float
        Power of the clean prediction.
    """

    needs_clean: ClassVar[bool] = True

    weight: float = own(1.0)
    consistency: float = own(1.0)
    sharpening: float = own(2.0)

    def __call__(self, step: Step) -> Tensor:
        batch, encoder = step.batch, step.encoder
        edgeless: Any = NoEdges(batch.graph)
        draw = step.draw(_OWN_PASS)
        hidden = encoder.embed(batch.features, edgeless, draw)
        label = self._labels(step)
        numbers = uniform(draw.seed, 1 + hidden.shape[1])
        share = numbers[:, :1, None].float()
        partner = numbers[:, 1:].argsort(dim=1)[:, :, None]

        def mixed(values: Tensor) -> Tensor:
            others = values.gather(1, partner.expand_as(values))
            return torch.lerp(others, values, share)

        scores = encoder.layer(encoder.n_layers - 1, mixed(hidden), edgeless)
        losses = -(mixed(label) * scores.log_softmax(2)).sum(2)
        labeled = batch.labeled

        def of_labeled(values: Tensor) -> Tensor:
            rows = labeled.of(values[:, :, None])[:, 0]
            return labeled.sums(rows * labeled.weight, len(values))

        chance = 1 / label.shape[2]
        right = (step.clean.softmax(2) * label).sum(2)
        known = (of_labeled(right) - chance).clamp(min=0) / (1 - chance)
        return (
            self.weight[:, 0] * of_labeled(losses)  # type: ignore[index]
            + self.consistency[:, 0] * known * losses.mean(1)  # type: ignore[index]
        )

    def _labels(self, step: Step) -> Tensor:
        """Return labels where they are known, and elsewhere sharpened predictions."""
        with torch.no_grad():
            guess = (step.clean * self.sharpening[:, :, None]).softmax(2)  # type: ignore[index]
            labeled = step.batch.labeled
            known = functional.one_hot(labeled.target, guess.shape[2]).to(guess)
            return (
                guess.flatten(0, 1).index_copy(0, labeled.index, known).view_as(guess)
            )
