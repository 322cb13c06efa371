"""What a fit makes of the labels beyond the cross-entropy: nothing."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from sktifa.graph import Graph
from sktifa.information.evidence import GraphEvidence
from sktifa.training.problem import Problem
from sktifa.training.sources import SubgraphContrast

if TYPE_CHECKING:
    from sktifa.classifiers.gnn import GNNClassifier

__all__ = ["Objective", "fields_of", "parameters_of"]


def fields_of(model: Any, kind: Any) -> dict[str, Any]:
    """Return the parameters of a classifier that are fields of a dataclass."""
    class_: Any = type(model)
    names = parameters_of(class_)
    return {f.name: getattr(model, f.name) for f in fields(kind) if f.name in names}


@cache  # scikit-learn looks at the signature anew for every model
def parameters_of(kind: Any) -> frozenset[str]:
    """Return the names of what a class is made with."""
    return frozenset(signature(kind).parameters)


class Objective:
    """The supervised objective; what a contrastive one has more of is in a subclass.

    It reads the parameters of `model`, and sets its attributes.
    """

    # Nodes that a neighbour sampler starts from.
    sampled_seeds: ClassVar[Literal["labeled", "all"]] = "labeled"
    needs_information: ClassVar[bool] = False

    def __init__(self, model: GNNClassifier) -> None:
        self.model: Any = model

    def full_batch_factor(self, graph: Graph) -> float:
        """Return what a step on the whole graph takes, in forward passes' memory."""
        return 1.0

    def taught(self, problem: Problem, rng: np.random.Generator) -> Problem:
        """Give a problem teachers, where it is to have some."""
        return problem

    def check_sampled(self) -> None:
        """Refuse parameters that do not go with training on subgraphs."""

    def on_graph(
        self, evidence: GraphEvidence, device: torch.device, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return fields of a problem on the whole graph."""
        return {"terms": ()}

    def on_subgraphs(
        self, evidence: GraphEvidence, information: Tensor | None, device: torch.device
    ) -> tuple[dict[str, Any], SubgraphContrast | None]:
        """Return fields of a problem on subgraphs, and what draws their views."""
        return {"terms": ()}, None
