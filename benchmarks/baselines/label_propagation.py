"""Label propagation, alone: what the graph says without a network (Eq. 1)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines._base import WholeGraphClassifier
from sktifa.graph import Graph
from sktifa.information.propagation import label_propagation
from sktifa.information.tig import class_prototypes, feature_affinity


class LabelPropagationClassifier(WholeGraphClassifier):
    """Classify by the labels that arrive along edges (Zhou et al., 2004).

    Parameters
    ----------
    restart_probability : float, default=0.15
        Of the propagation.
    aggregate : {"sum", "mean"}, default="sum"
        Over the labelled nodes of a class.
    feature_affinity : bool, default=False
        Weigh what arrives by the likeness of a node's features to the class's mean
        (Eq. 16); nodes that no label reaches are then classified by that alone.
    device : str, default="cpu"
        Where to compute.
    """

    def __init__(
        self,
        *,
        restart_probability: float = 0.15,
        aggregate: Literal["sum", "mean"] = "sum",
        feature_affinity: bool = False,
        device: str = "cpu",
    ) -> None:
        self.restart_probability = restart_probability
        self.aggregate = aggregate
        self.feature_affinity = feature_affinity
        self.device = device

    def _scores(self, graph: Graph, codes: NDArray[np.int64]) -> NDArray[np.floating]:
        n_classes = len(self.classes_)
        sources = (codes[:, None] == np.arange(n_classes)).astype(float)
        if self.aggregate == "mean":
            sources /= sources.sum(axis=0)
        scores = label_propagation(
            graph.adjacency,
            sources,
            restart_probability=self.restart_probability,
            device=self.device,
        )
        affinity = np.ones_like(scores)
        if self.feature_affinity:
            prototypes = class_prototypes(graph.features, codes, n_classes)
            affinity = feature_affinity(graph.features, prototypes)
        # The second summand speaks where no label arrives.
        scores = scores * affinity + 1e-12 * affinity
        return scores / scores.sum(axis=1, keepdims=True)
