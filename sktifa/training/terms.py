"""The terms of the training loss, which add up.

A term is called with a :class:`Step` and returns a value a model, or one a model and
node, of which the mean is taken. What it returns has a leading model dimension, so one
model, a stack of many, the whole graph and sampled subgraphs are all the same to it.

A new term is a frozen dataclass that inherits :class:`Term`; its fields say whether
models of a stack share them or have their own (:mod:`sktifa.training.stacking`). It is
given to :class:`~sktifa.TIFAGCLClassifier` as one of `extra_terms`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sktifa.contrast.loss import Divergence, pair_loss, self_consistency_loss
from sktifa.contrast.shares import shift_to_shares
from sktifa.tensors.dense import log_softmax
from sktifa.tensors.features import Features
from sktifa.tensors.sparse import Adjacency
from sktifa.training.batch import Batch
from sktifa.training.encoders import Draw
from sktifa.training.stacking import own, shared

__all__ = [
    "CrossEntropy",
    "Pairs",
    "SelfConsistency",
    "Step",
    "Target",
    "Teacher",
    "Term",
]


@dataclass(frozen=True)
class Target:
    r"""What the contrast pulls the perturbed predictions towards.

    The clean prediction, without a gradient, times the propagated labels as far as
    they are trusted: :math:`q_i \propto \mathrm{softmax}(clean_i / T) \cdot
    p_i^{\gamma \cdot trust_i}`. Where labels are few, classes keep about the sizes that
    these tell (:mod:`sktifa.contrast.shares`).
    """

    # The forward pass that gives the clean prediction.
    mode: Literal["evaluation", "training"] = shared("evaluation")
    # Divides the clean logits; below 1 it sharpens them.
    temperature: float = own(1.0)
    # The logarithm of the second factor, float32 of (n_nodes, n_classes), or None.
    log_prior: Tensor | None = own(None)
    # The logarithm of the classes' sizes, shares of the nodes, float32 of (n_classes,),
    # or None; and how much they count.
    log_shares: Tensor | None = own(None)
    pull: float = own(0.0)


class Step:
    """One training step of a stack of models; passes are run when a term asks.

    Parameters
    ----------
    encoder : Encoder
        Of all models.
    batch : Batch
        What the step sees.
    draw : callable
        Takes the number of a pass, and the share of features that each node keeps
        (or None); returns what is random in the pass.
    target : Target
        Of the contrast.
    clean : Tensor of shape (n_models, n_nodes, n_classes), default=None
        The evaluation pass, where it has been run already.
    """

    def __init__(
        self,
        encoder: Callable[..., Tensor],
        batch: Batch,
        draw: Callable[[int, Tensor | None], Draw],
        target: Target,
        clean: Tensor | None = None,
    ) -> None:
        self.encoder, self.batch = encoder, batch
        self._draw_pass, self._target, self._clean = draw, target, clean
        self._views: dict[int, Tensor] = {}
        self._log_views: dict[int, Tensor] = {}

    def draw(self, number: int, row_keep: Tensor | None = None) -> Draw:
        """Say what is random in a pass; terms number their own from 100 on."""
        return self._draw_pass(number, row_keep)

    @cached_property
    def logits(self) -> Tensor:
        """Class scores of the training pass, (n_models, n_nodes, n_classes)."""
        batch = self.batch
        return self.encoder(batch.features, batch.graph, self.draw(0))

    @cached_property
    def clean(self) -> Tensor:
        """Class scores of the evaluation pass, without a gradient."""
        if self._clean is not None:
            return self._clean
        is_training = self.encoder.training  # type: ignore[attr-defined]
        self.encoder.eval()  # type: ignore[attr-defined]
        with torch.no_grad():
            logits = self.encoder(self.batch.features, self.batch.graph)
        self.encoder.train(is_training)  # type: ignore[attr-defined]
        return logits

    def view(self, number: int = 0) -> Tensor:
        """Class scores of the pass on a perturbed view."""
        if number not in self._views:
            self._views[number] = self.encoder(*self._perturbed(number))
        return self._views[number]

    def embedded_view(self, number: int = 0) -> Tensor:
        """Last hidden layer of a pass on a perturbed view."""
        return self.encoder.embed(*self._perturbed(number))  # type: ignore[attr-defined]

    def _perturbed(self, number: int) -> tuple[Features, Adjacency, Draw]:
        view = self.batch.views[number]
        graph = self.batch.graph.perturbed(view.flips)
        return self.batch.features, graph, self.draw(1 + number, view.row_keep)

    def log_view(self, number: int = 0) -> Tensor:
        """Log-probabilities of the pass on a perturbed view."""
        if number not in self._log_views:
            self._log_views[number] = log_softmax(self.view(number))
        return self._log_views[number]

    @cached_property
    def log_target(self) -> Tensor:
        """Log-probabilities of the contrast's target, without a gradient."""
        target = self._target
        clean = self.logits.detach() if target.mode == "training" else self.clean
        with torch.no_grad():
            scores = clean / target.temperature[:, :, None]  # type: ignore[index]
            if target.log_prior is not None:
                scores = scores + self.of_nodes(target.log_prior)
            if target.log_shares is not None:
                scores = scores + shift_to_shares(
                    scores,
                    target.log_shares,
                    target.pull,  # type: ignore[arg-type]
                )
            return log_softmax(scores)

    def of_nodes(self, values: Tensor) -> Tensor:
        """Pick the batch's nodes from values of all nodes, (n_models, n_nodes, ...)."""
        nodes = self.batch.nodes
        return values if nodes is None else values.index_select(1, nodes)


class Term:
    """A summand of the training loss.

    Attributes
    ----------
    n_views : int
        How many perturbed views the term looks at.
    needs_clean : bool
        Whether it looks at the evaluation pass.
    """

    n_views: ClassVar[int] = 0
    needs_clean: ClassVar[bool] = False

    def __call__(self, step: Step) -> Tensor:
        """Return the loss of each model, (n_models,), or also node: (n_models, n)."""
        raise NotImplementedError


@dataclass(frozen=True)
class CrossEntropy(Term):
    """Cross-entropy over the labelled nodes (Eq. 6)."""

    def __call__(self, step: Step) -> Tensor:
        """Return each model's."""
        return step.batch.labeled.cross_entropy(step.logits)


@dataclass(frozen=True)
class SelfConsistency(Term):
    """Divergence of each node's perturbed prediction from its target (Eq. 7)."""

    n_views: ClassVar[int] = 1
    needs_clean: ClassVar[bool] = True

    weights: Tensor = own()  # float32, of each node (Eq. 10)
    divergence: Divergence = shared("clean_to_perturbed")

    def __call__(self, step: Step) -> Tensor:
        """Return each node's."""
        loss = self_consistency_loss(step.log_view(), step.log_target, self.divergence)
        return step.of_nodes(self.weights) * loss


@dataclass(frozen=True)
class Pairs(Term):
    """Divergence from positive pairs less that from negative ones (Eq. 8)."""

    n_views: ClassVar[int] = 1
    needs_clean: ClassVar[bool] = True

    weights: Tensor = own()  # float32, of each node (Eq. 10)
    pair_weight: float = own()  # against self-consistency (paper: mu_2)
    divergence: Divergence = shared("clean_to_perturbed")

    def __call__(self, step: Step) -> Tensor:
        """Return each node's."""
        if step.batch.pairs is None:
            return step.logits.new_zeros(step.logits.shape[0])
        loss = pair_loss(
            step.log_view(), step.log_target, step.batch.pairs, self.divergence
        )
        return self.pair_weight * step.of_nodes(self.weights) * loss


@dataclass(frozen=True)
class Teacher(Term):
    r"""Cross-entropy with the propagated labels, as far as they are trusted.

    :math:`trust_i \cdot \mathrm{CE}(p_i^\beta / \sum p_i^\beta, prediction_i)`,
    measured on the perturbed pass.
    """

    n_views: ClassVar[int] = 1

    # Trust times the sharpened propagated labels, float32 of (n_nodes, n_classes).
    lesson: Tensor = own()
    weight: float = own(1.0)

    def __call__(self, step: Step) -> Tensor:
        """Return each node's."""
        lesson = step.of_nodes(self.lesson)
        return -self.weight * (lesson * step.log_view()).sum(-1)
