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
    """Labelled nodes."""

    index: Tensor = own()  # int64: positions in the graph
    target: Tensor = own()  # int64: classes
    weight: Tensor = own()  # float64: shares of the cross-entropy; they sum to one

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
    """What draws the perturbed views."""

    perturber: GraphPerturber = own()
    feature_mask_rate: float = own()  # of a perturbed node's features (paper: m)
    seed: int = own()


@dataclass(frozen=True)
class PairSets:
    """Contrastive pairs on the whole graph."""

    # Each node's, int32, (n_nodes, ...); −1 is none.
    positives: Tensor = own()
    negatives: Tensor = own()
    negative_weight: float = own()  # against positives (paper: mu_1)


@dataclass(frozen=True)
class Problem:
    """A fit, prepared."""

    graph: Graph = own()
    feature_norm: str | None = shared()
    scaling: Scaling = own()  # what follows from that on the graph
    encoder: EncoderSpec = shared()
    encoder_seed: int = own()  # of its weights
    dropout: float = own()  # at the input of every layer
    seed: int = own()  # of the dropout
    train: Labels = own()
    evidence: GraphEvidence = own()  # what the training labels say of the graph
    validation: Labels | None = own()  # decide when training stops
    schedule: Schedule = own()
    terms: tuple[Term, ...] = shared()
    target: Target = own(Target())  # of the contrast
    perturbations: Perturbations | None = own(None)  # for terms that look at views
    pairs: PairSets | None = own(None)  # for the pair loss
    start: nn.Module | None = own(None)  # an encoder to go on from
    # Those that are solved first, and whose solutions teach this one.
    teachers: tuple[Problem, ...] | None = own(None)
    teacher: int = own(0)  # which of those it is itself, from 1 on; 0 is none
    # Makes a source of batches on a device; None trains on the whole graph.
    source: Callable[[torch.device], Any] | None = own(None)
    # Evaluates an encoder where the validation nodes are; None where they are in the
    # graph that is trained on.
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
    """What a training run leaves behind."""

    loss_curve: list[float] = field(default_factory=list)  # an epoch's mean
    # Cross-entropy and accuracy before each epoch's updates, and after the last.
    validation_losses: list[float] = field(default_factory=list)
    validation_scores: list[float] = field(default_factory=list)
    n_iter: int = 0  # epochs run
    best_iter: int = 0  # epochs after which the model that is kept was found
    interrupted: bool = False  # by Ctrl-C
    diverged: bool = False  # ended where the loss or the model was no longer finite
    teacher: int = 0  # which was trained, from 1 on; 0 is none


@dataclass
class Trained:
    """A problem after training."""

    network: nn.Module | None  # the model that is kept, in evaluation mode
    log: TrainingLog
    logits: NDArray[np.float32] | None = None  # every node's, where asked for
    error: Exception | None = None  # why there is no model
