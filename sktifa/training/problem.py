"""All that a fit is before it takes a device's memory.

`fit`, the searches and benchmarks prepare problems; the engine trains them, one alone
or many as a stack. What the models of a stack share and what each has of its own is
said by the fields (:mod:`sktifa.training.stacking`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sktifa.contrast.perturbation import GraphPerturber
from sktifa.graph import Graph
from sktifa.information.evidence import GraphEvidence
from sktifa.tensors.scaling import Scaling
from sktifa.training.encoders import EncoderSpec
from sktifa.training.stacking import own, shared, stack_key
from sktifa.training.terms import Target, Teacher, Term

__all__ = [
    "Labels",
    "Monitor",
    "PairSets",
    "Perturbations",
    "Problem",
    "Schedule",
    "Trained",
    "TrainingLog",
]

Monitor = Literal["calibrated_loss", "loss", "accuracy"]

# Power that what teachers predict is raised to. As it is, it teaches their doubts, and
# next to nothing else (measured by validation: 2 to 4 are equals, 1 is far behind).
_SHARPNESS = 3.0


@dataclass(frozen=True)
class Labels:
    """Labelled nodes.

    Attributes
    ----------
    index : Tensor of int64, shape (n_labeled,)
        Positions in the graph.
    target : Tensor of int64, shape (n_labeled,)
        Classes.
    weight : Tensor of float64, shape (n_labeled,)
        Shares of the cross-entropy; they sum to one.
    """

    index: Tensor = own()
    target: Tensor = own()
    weight: Tensor = own()

    @classmethod
    def weighted(
        cls,
        index: NDArray[np.int64],
        target: NDArray[np.int64],
        weight: NDArray[np.float64],
    ) -> Labels:
        """Turn weights into shares; where there are none, all nodes are worth the same.

        Scaled before they are summed: the sum of large weights is no float.
        """
        share = weight / max(weight.max(initial=0.0), np.finfo(float).tiny)
        total = share.sum()
        share = share / total if total > 0 else np.full(len(weight), 1 / len(weight))
        parts = (np.array(part) for part in (index, target, share))
        return cls(*(torch.from_numpy(part) for part in parts))

    def __iter__(self) -> Any:
        return iter((self.index, self.target, self.weight))


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; the estimators' parameters of these names."""

    learning_rate: float = own()
    learning_rate_decay: float = own()
    weight_decay: float = own()
    max_iter: int = own()
    min_iter: int = own()
    n_iter_no_change: int = own()
    tol: float = own()
    monitor: Monitor = own()


@dataclass(frozen=True)
class Perturbations:
    """What draws the perturbed views.

    Attributes
    ----------
    perturber : GraphPerturber
        Draws flipped edges.
    feature_mask_rate : float
        Share of a perturbed node's features that is masked (paper: m).
    seed : int
        Of the draws.
    """

    perturber: GraphPerturber = own()
    feature_mask_rate: float = own()
    seed: int = own()


@dataclass(frozen=True)
class PairSets:
    """Contrastive pairs on the whole graph.

    Attributes
    ----------
    positives, negatives : Tensor of int32, shape (n_nodes, ...)
        Each node's; −1 is none.
    negative_weight : float
        Weight of negatives against positives (paper: mu_1).
    """

    positives: Tensor = own()
    negatives: Tensor = own()
    negative_weight: float = own()


@dataclass(frozen=True)
class Problem:
    """A fit, prepared.

    Attributes
    ----------
    graph : Graph
        What is trained on, whole.
    feature_norm : str or None
        How features are scaled.
    scaling : Scaling
        What follows from that on the graph.
    encoder : EncoderSpec
        The network.
    encoder_seed : int
        Of its weights.
    dropout : float
        Rate at the input of every layer.
    seed : int
        Of the dropout.
    train : Labels
        Training nodes.
    evidence : GraphEvidence
        What their labels say of the graph.
    validation : Labels or None
        Nodes that decide when training stops.
    schedule : Schedule
        How long and how fast.
    terms : tuple of Term
        Summands of the loss.
    target : Target
        Of the contrast.
    perturbations : Perturbations or None
        For terms that look at views.
    pairs : PairSets or None
        For the pair loss.
    start : Module or None
        An encoder to go on from.
    teachers : tuple of Problem, or None
        Those that are solved first, and whose solutions teach this one.
    teacher : int
        Which of those it is itself, from 1 on; 0 is none.
    source : callable or None
        Makes a source of batches on a device; None trains on the whole graph.
    validation_logits : callable or None
        Evaluates an encoder where the validation nodes are; None where they are in
        the graph that is trained on.
    """

    graph: Graph = own()
    feature_norm: str | None = shared()
    scaling: Scaling = own()
    encoder: EncoderSpec = shared()
    encoder_seed: int = own()
    dropout: float = own()
    seed: int = own()
    train: Labels = own()
    evidence: GraphEvidence = own()
    validation: Labels | None = own()
    schedule: Schedule = own()
    terms: tuple[Term, ...] = shared()
    target: Target = own(Target())
    perturbations: Perturbations | None = own(None)
    pairs: PairSets | None = own(None)
    start: nn.Module | None = own(None)
    teachers: tuple[Problem, ...] | None = own(None)
    teacher: int = own(0)
    source: Callable[[torch.device], Any] | None = own(None)
    validation_logits: Callable[[nn.Module], Tensor] | None = own(None)

    def again(self, rng: np.random.Generator, *, teacher: int) -> Problem:
        """Return a teacher: the problem with all that is drawn drawn anew."""
        seeds = rng.integers(2**31, size=3).tolist()
        perturbations = self.perturbations
        if perturbations is not None:
            perturbations = replace(perturbations, seed=seeds[2])
        return replace(
            self,
            encoder_seed=seeds[0],
            seed=seeds[1],
            perturbations=perturbations,
            start=None,
            teacher=teacher,
        )

    def taught(self, logits: Sequence[NDArray[np.float32]]) -> Problem:
        """Return the problem with the mean of what its teachers predict as a lesson."""
        predicted = [torch.from_numpy(one).double().softmax(1) for one in logits]
        mean = torch.stack(predicted).mean(0)
        lesson = (_SHARPNESS * mean.log()).softmax(1).float()
        return replace(self, terms=(*self.terms, Teacher(lesson)), teachers=None)

    @property
    def n_views(self) -> int:
        """Perturbed views of an epoch."""
        return max((term.n_views for term in self.terms), default=0)

    @property
    def needs_clean(self) -> bool:
        """Whether the loss looks at the evaluation pass."""
        in_evaluation = self.target.mode == "evaluation"
        return in_evaluation and any(term.needs_clean for term in self.terms)

    @property
    def why_alone(self) -> str | None:
        """What keeps the problem out of a stack, in words; None if nothing does."""
        if not self.encoder.stackable:
            return f"encoder={self.encoder.kind!r}"
        if self.source is not None:
            return "it trains on sampled subgraphs"
        if self.validation_logits is not None:
            return "X_val is not of the graph that is trained on"
        return None

    @property
    def key(self) -> tuple[Any, ...]:
        """What problems that are trained at once must agree in."""
        return self.graph.fingerprint, stack_key(self)


@dataclass
class TrainingLog:
    """What a training run leaves behind.

    Attributes
    ----------
    loss_curve : list of float
        Mean training loss of each epoch.
    validation_losses, validation_scores : list of float
        Cross-entropy and accuracy on the validation nodes before each epoch's
        updates, and after the last.
    n_iter : int
        Epochs run.
    best_iter : int
        Epochs after which the model that is kept was found.
    interrupted : bool
        Whether Ctrl-C ended it.
    teacher : int
        Which teacher was trained, from 1 on; 0 is none.
    """

    loss_curve: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    validation_scores: list[float] = field(default_factory=list)
    n_iter: int = 0
    best_iter: int = 0
    interrupted: bool = False
    teacher: int = 0


@dataclass
class Trained:
    """A problem after training.

    Attributes
    ----------
    network : Module or None
        The model that is kept, in evaluation mode; None where there is none.
    log : TrainingLog
        How it went.
    logits : ndarray of float32, shape (n_nodes, n_classes), or None
        Every node's class scores, where they were asked for.
    error : Exception or None
        Why there is no model.
    """

    network: nn.Module | None
    log: TrainingLog
    logits: NDArray[np.float32] | None = None
    error: Exception | None = None
