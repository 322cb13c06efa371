"""The objective of TIFA-GCL: contrast where little annotated information arrives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_memory
from torch import Tensor

from sktifa.classifiers.objective import Objective, fields_of
from sktifa.contrast.pairs import (
    LARGEST_SHARED,
    GraphDistances,
    PairSettings,
    check_ranks,
    graph_distances,
    nearest_pairs,
    pair_features,
    uniform_pairs,
)
from sktifa.contrast.perturbation import (
    Arcs,
    GraphPerturber,
    PerturbationSettings,
    arcs_of,
)
from sktifa.exceptions import ParameterError, StorageError
from sktifa.graph import Graph
from sktifa.information.evidence import GraphEvidence
from sktifa.information.loss_weights import (
    check_weights,
    loss_weights_at,
    relative_ranks,
    trust_at,
)
from sktifa.information.propagation import csr_device
from sktifa.information.spread_features import spread_features_say
from sktifa.information.tig import (
    class_prototypes,
    feature_affinity,
    information_gain,
    label_distribution,
    propagated_labels,
    teacher_distribution,
)
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.training.problem import PairSets, Perturbations, Problem
from sktifa.training.sources import SubgraphContrast
from sktifa.training.terms import Pairs, SelfConsistency, Target, Teacher, Term

__all__ = ["Contrast"]

# Pairs on the whole graph rank all nodes for each: what takes too long, not too much.
_LARGEST_RANKED = 200_000
# Power of the skill that makes trust: a tenth at .83, a half at .94. On Photo, where it
# is .84, networks are right far more often than propagated labels.
_SKILL_TO_TRUST = 12
# Labels a class that keep the classes apart by themselves.
_ENOUGH = 5
# Labels a class from which on spread features tell a network nothing, up to which they
# count in full, and what that is.
_MANY, _FEW, _SHARE = 20, 5, 0.3
# Multiplications a sweep beyond which they are left alone.
_MOST_SPREAD = 3e8


class Contrast(Objective):
    """Weights, perturbations, pairs and targets by the parameters of a classifier."""

    sampled_seeds = "all"
    needs_information = True

    def full_batch_factor(self, graph: Graph) -> float:
        """Two passes with gradients; and pairs take too long, where not too much."""
        model = self.model
        ranks_all = model.pairing == "tifa" and model.pair_weight
        return float("inf") if ranks_all and graph.n_nodes > _LARGEST_RANKED else 2.0

    def on_graph(
        self, evidence: GraphEvidence, device: torch.device, rng: np.random.Generator
    ) -> dict[str, Any]:
        """Return fields of a problem on the whole graph."""
        model, graph = self.model, evidence.graph
        self._check_ranges()
        arrived = self._remembered(
            "arrived",
            lambda: self._arrived(evidence, device),
            graph,
            **_labels(evidence),
            restart_probability=model.restart_probability,
        )
        parts, rates = self._weigh(arrived, self._least_trust(evidence))
        perturber = GraphPerturber(
            graph.derived(_arcs), rates.numpy(), **vars(self._perturbation_settings())
        )
        parts["target"] = replace(
            parts["target"],
            **self._sizes(arrived, evidence),
            log_prior=self._with_features(parts["target"].log_prior, evidence, device),
        )
        parts["pairs"] = self._pair_sets(evidence, arrived, device, rng)
        parts["perturbations"] = Perturbations(
            perturber, model.feature_mask_rate, int(rng.integers(2**62))
        )
        return parts

    def taught(self, problem: Problem, rng: np.random.Generator) -> Problem:
        """Give a problem teachers: itself, with other seeds."""
        number = self.model.n_teachers
        if not number:
            return problem
        teachers = (problem.again(rng, teacher=i + 1) for i in range(number))
        return replace(problem, teachers=tuple(teachers))

    def check_sampled(self) -> None:
        """Refuse teachers: they teach every node of the whole graph."""
        model = self.model
        if model.n_teachers:
            raise ParameterError(
                f"n_teachers={model.n_teachers} teaches every node of the whole graph, "
                f"but sampler={model.sampler!r} trains on subgraphs: set n_teachers=0 "
                "or sampler=None."
            )

    def on_subgraphs(
        self, evidence: GraphEvidence, information: Tensor | None, device: torch.device
    ) -> tuple[dict[str, Any], SubgraphContrast | None]:
        """Return fields of a problem on subgraphs, and what draws their views."""
        model = self.model
        assert information is not None
        arrived = _Arrived(information)
        parts, rates = self._weigh(arrived, self._least_trust(evidence))
        pairs = distribution = None
        if model.pairing is not None and model.pair_weight:
            pairs = self._pair_settings()
            if model.pairing == "tifa":
                distribution = arrived.distribution(model.label_distribution)
        return parts, SubgraphContrast(
            self._perturbation_settings(),
            rates.float().to(device),
            model.feature_mask_rate,
            pairs,
            distribution,
        )

    def _least_trust(self, evidence: GraphEvidence) -> float:
        """Say how far propagated labels can be trusted wherever they arrive."""
        model = self.model
        is_used = model.target_information or model.teacher_weight
        if model.trust != "cross-fitted" or not is_used:
            return 0.0
        skill = self._remembered(
            "skill", lambda: evidence.skill, evidence.graph, **_labels(evidence)
        )
        return float(skill**_SKILL_TO_TRUST)

    def _sizes(self, arrived: _Arrived, evidence: GraphEvidence) -> dict[str, Any]:
        """Return fields of a target: how large classes are, where labels are few.

        They count in full with one label a class, and the less the nearer to enough. Of
        two classes one is often rare, such as fraud, which as many labels of each hide.
        """
        labels = np.count_nonzero(evidence.codes >= 0) / evidence.n_classes
        few = min((_ENOUGH - labels) / (_ENOUGH - 1), 1.0)
        is_told = evidence.n_classes > 2 and self.model.target_information
        if not is_told or few <= 0:
            return {}
        log_shares = arrived.log_says().exp().mean(0).log().float()
        return {
            "log_shares": log_shares,
            "pull": float(self.model.target_information * few),
        }

    def _with_features(
        self, log_prior: Tensor | None, evidence: GraphEvidence, device: torch.device
    ) -> Tensor | None:
        """Add to a target what spread features say, where labels are few."""
        model, graph = self.model, evidence.graph
        labels = np.count_nonzero(evidence.codes >= 0)
        few = (_MANY - labels / evidence.n_classes) / (_MANY - _FEW)
        size = labels * (graph.adjacency.nnz + graph.n_nodes)
        if log_prior is None or few <= 0 or size > _MOST_SPREAD:
            return log_prior
        said = self._remembered(
            "spread features",
            lambda: spread_features_say(
                graph,
                model.scaling_(graph.features),
                evidence.codes,
                evidence.n_classes,
                restart_probability=model.restart_probability,
                device=device,
            ),
            graph,
            **_labels(evidence),
            restart_probability=model.restart_probability,
            feature_norm=model.feature_norm,
        )
        share = model.target_information * min(few, 1.0) * _SHARE
        return log_prior + (share * said).float()

    def _weigh(
        self, arrived: _Arrived, least_trust: float
    ) -> tuple[dict[str, Any], Tensor]:
        """Turn what reaches each node into fields of a problem, and rates of views."""
        model = self.model
        self._check_ranges()
        gain, ranks = arrived.gain(model.clarity_weight)
        by_gain = loss_weights_at(ranks, model.weight_min, model.weight_max)
        middle = torch.full_like(by_gain, (model.weight_min + model.weight_max) / 2)
        weights = by_gain if model.weighting == "tifa" else middle
        n_nodes = model.fitted_on_["n_nodes"]
        model.gain_ = model.seen_.by_row(gain.cpu().numpy(), n_nodes)
        model.loss_weights_ = model.seen_.by_row(weights.cpu().numpy(), n_nodes)
        weights = weights.float()
        terms: list[Term] = []
        if model.weight_max:  # else its pass on the view would be for nothing
            terms.append(SelfConsistency(weights, model.divergence))
        if model.pairing is not None:
            terms.append(Pairs(weights, model.pair_weight, model.divergence))
        log_prior = None
        if model.target_information or model.teacher_weight:
            trusted = torch.ones_like(gain)
            if model.trust != "uniform":
                trusted = trust_at(ranks, gain > 0, least_trust)
            if model.target_information:
                share = model.target_information * trusted
                log_prior = (share[:, None] * arrived.log_says()).float()
            if model.teacher_weight:
                sharp = arrived.says(model.teacher_sharpness)
                lesson = (trusted[:, None] * sharp).float()
                terms.append(Teacher(lesson, model.teacher_weight))
        target = Target(model.target, model.temperature, log_prior)
        parts = {"terms": tuple(terms), "target": target, "n_views": 1}
        return parts, by_gain if model.perturbation == "tifa" else middle

    def _perturbation_settings(self) -> PerturbationSettings:
        settings = fields_of(self.model, PerturbationSettings)
        if self.model.perturbation == "uniform":
            settings["decay"] = 1.0
        return PerturbationSettings(**settings)

    def _pair_settings(self) -> PairSettings:
        settings = fields_of(self.model, PairSettings)
        settings["negative_ranks"] = tuple(self.model.negative_ranks)
        return PairSettings(self.model.pairing, **settings)

    def _check_ranges(self) -> None:
        check_weights(self.model.weight_min, self.model.weight_max)
        check_ranks(self.model.negative_ranks)

    def _pair_sets(
        self,
        evidence: GraphEvidence,
        arrived: _Arrived,
        device: torch.device,
        rng: np.random.Generator,
    ) -> PairSets | None:
        """Choose pairs on the whole graph; empty sets where they weigh nothing."""
        model, graph = self.model, evidence.graph
        if model.pairing is None:
            return None
        begin, end = model.negative_ranks
        if not model.pair_weight:
            none = torch.empty((graph.n_nodes, 0), dtype=torch.int32)
            sets: tuple[Any, Any] = none, none
        elif model.pairing == "uniform":
            drawn = uniform_pairs(graph.n_nodes, end - begin, rng)
            sets = torch.from_numpy(drawn[0]).int(), torch.from_numpy(drawn[1]).int()
        else:
            # The weight of negatives chooses no pair.
            settings = replace(self._pair_settings(), negative_weight=0.0)
            sets = self._remembered(
                "pairs",
                lambda: self._nearest(graph, arrived, settings, device),
                graph,
                **_labels(evidence),
                restart_probability=model.restart_probability,
                label_distribution=model.label_distribution,
                settings=settings,
            )
        return PairSets(*sets, model.negative_weight)

    def _arrived(self, evidence: GraphEvidence, device: torch.device) -> _Arrived:
        """Propagate labels, tempered by how alike each node and each class are."""
        graph, codes, n_classes = evidence.graph, evidence.codes, evidence.n_classes

        def affinity() -> NDArray[np.float64]:
            prototypes = class_prototypes(graph.features, codes, n_classes)
            return feature_affinity(graph.features, prototypes, device=device)

        spread = propagated_labels(
            DeviceGraph.from_graph(graph, csr_device(device)),
            codes,
            n_classes,
            restart_probability=self.model.restart_probability,
        )
        information = spread.to("cpu", torch.float64)
        tempers = self._remembered("affinity", affinity, graph, **_labels(evidence))
        return _Arrived(information.mul_(torch.from_numpy(tempers)))

    def _nearest(
        self,
        graph: Graph,
        arrived: _Arrived,
        settings: PairSettings,
        device: torch.device,
    ) -> tuple[Tensor, Tensor]:
        """Choose each node's pairs by distance."""
        place = csr_device(device)
        placed = DeviceGraph.from_graph(graph, place)
        return nearest_pairs(
            placed.crow.int(),
            placed.col.int(),
            pair_features(graph.features, place),
            arrived.distribution(self.model.label_distribution).to(place),
            settings,
            distances=self._shared_distances(graph, device),
        )

    def _shared_distances(
        self, graph: Graph, device: torch.device
    ) -> GraphDistances | None:
        """Return what the pairs of all fits on a graph start from, if it is kept."""
        if not self.model.memory or graph.n_nodes > LARGEST_SHARED:
            return None
        return self._remembered(
            "distances",
            lambda: graph_distances(graph.features, graph.adjacency, device=device),
            graph,
            device=str(device),
        )

    def _remembered(
        self, what: str, compute: Callable[[], Any], graph: Graph, **told: Any
    ) -> Any:
        """Compute something, or read from `memory` what came of it before.

        `told` is all that it follows from beside the graph.
        """
        # The fingerprint stands for the graph, which would cost a hash a call.
        told["fingerprint"] = graph.fingerprint if self.model.memory else ""
        try:
            memory = check_memory(self.model.memory)
            cached = memory.cache(_computed, ignore=["compute"])
            return cached(what=what, compute=compute, **told)
        except OSError as error:
            place = getattr(self.model.memory, "location", self.model.memory)
            raise StorageError(
                f"memory={str(place)!r} can't be used: {error.strerror or error}. Make "
                "room, name a folder elsewhere, or leave memory=None."
            ) from error


class _Arrived:
    """What reaches each node, and what follows from it alone, each worked out once.

    Fits of a search that differ in nothing it depends on share it.
    """

    def __init__(self, information: Tensor) -> None:
        self.information = information
        self._known: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # On disk what follows would take more room than time to work out.
        return {"information": self.information, "_known": {}}

    def gain(self, clarity_weight: float) -> tuple[Tensor, Tensor]:
        """Return the gain and its relative ranks."""

        def ranked() -> tuple[Tensor, Tensor]:
            gain = information_gain(self.information, clarity_weight)
            return gain, relative_ranks(gain)

        return self._once(("gain", clarity_weight), ranked)

    def distribution(self, kind: Any) -> Tensor:
        """Return the distribution over the classes that pairs are chosen by."""
        return self._once(
            ("distribution", kind), lambda: label_distribution(self.information, kind)
        )

    def log_says(self) -> Tensor:
        """Return the logarithm of what the propagated labels say of each node."""
        return self._once(
            "log_says", lambda: teacher_distribution(self.information).double().log()
        )

    def says(self, sharpness: float) -> Tensor:
        """Return what the propagated labels say of each node, sharpened."""
        return self._once(
            ("says", sharpness), lambda: (sharpness * self.log_says()).softmax(1)
        )

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]


def _arcs(graph: Graph) -> Arcs:
    return arcs_of(graph.adjacency)


def _labels(evidence: GraphEvidence) -> dict[str, Any]:
    return {"labels": evidence.codes, "n_classes": evidence.n_classes}


def _computed(what: str, compute: Callable[[], Any], **told: Any) -> Any:
    """Compute what `what` and `told` name; no other argument tells calls apart."""
    return compute()
