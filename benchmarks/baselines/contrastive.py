"""Contrastive and mixing methods: a network of ours with one more term.

Each takes the network that it trains, whose parameters are reached as `network__…`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from benchmarks.baselines.terms import (
    AugmentedNodes,
    Mixup,
    NodeContrast,
    ViewContrast,
)
from sktifa import GNNClassifier, Graph, TIFAGCLClassifier
from sktifa.training.terms import Term

# TIFA's own contrast and what it trusts, switched off: views alone are drawn.
_VIEWS_ALONE = {
    "weight_min": 0.0,
    "weight_max": 0.0,
    "pairing": None,
    "perturbation": "uniform",
    "target_information": 0.0,
    "teacher_weight": 0.0,
    "trust": "tifa",
}


class TermClassifier(ClassifierMixin, BaseEstimator):
    """What the methods share: their network is trained with their term.

    Parameters
    ----------
    network : GNNClassifier or TIFAGCLClassifier
        Of which a clone is trained.
    weight : float, default=1
        Of the term.
    """

    # The network's parameters that make the method what it is.
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, network: GNNClassifier, *, weight: float = 1.0) -> None:
        self.network = network
        self.weight = weight

    @abstractmethod
    def _term(self) -> Term:
        """Return the method's loss."""

    def made(self) -> GNNClassifier:
        """Return the network before it is trained, with the term."""
        return clone(self.network).set_params(extra_terms=[self._term()])

    def fit(
        self,
        X: Graph,
        y: ArrayLike,
        X_val: Graph | None = None,
        y_val: ArrayLike | None = None,
    ) -> TermClassifier:
        """Train the network."""
        self.network_ = self.made().fit(X, y, X_val, y_val)
        self.classes_ = self.network_.classes_
        return self

    def predict_proba(self, X: Graph) -> NDArray[Any]:
        """Return the probability of each class."""
        return self.network_.predict_proba(X)

    def predict(self, X: Graph) -> NDArray[Any]:
        """Return the most probable class."""
        return self.network_.predict(X)


class GRACEClassifier(TermClassifier):
    """GRACE (Zhu et al., 2020): InfoNCE of nodes in two perturbed views.

    Edges are removed and features masked; the negatives are other nodes of both views.

    Parameters
    ----------
    network, weight
        See :class:`TermClassifier`.
    temperature : float, default=0.5
        Of the similarities.
    """

    settings: ClassVar[dict[str, Any]] = {
        **_VIEWS_ALONE,
        "perturbed_nodes": 1.0,
        "edges_added": 0,
        "edges_removed": 1,
        "feature_mask_rate": 0.3,
    }

    def __init__(
        self,
        network: TIFAGCLClassifier,
        *,
        weight: float = 1.0,
        temperature: float = 0.5,
    ) -> None:
        super().__init__(network, weight=weight)
        self.temperature = temperature

    def _term(self) -> Term:
        return NodeContrast(self.weight, self.temperature, within=True)


class GraphCLClassifier(GRACEClassifier):
    """GraphCL (You et al., 2020) of nodes instead of graphs: NT-Xent of two views.

    Edges are added and removed and features masked; negatives are other nodes of the
    other view.
    """

    settings: ClassVar[dict[str, Any]] = {
        **GRACEClassifier.settings,
        "perturbed_nodes": 0.5,
        "edges_added": 1,
        "edges_removed": 1,
    }

    def _term(self) -> Term:
        return NodeContrast(self.weight, self.temperature, within=False)


class MultiViewClassifier(GRACEClassifier):
    """MVGRL (Hassani & Khasahmadi, 2020): the graph against its diffusion."""

    settings: ClassVar[dict[str, Any]] = {}

    def _term(self) -> Term:
        return ViewContrast(self.weight, self.temperature, within=False)


class NodeAugClassifier(TermClassifier):
    """NodeAug (Wang et al., 2020): few perturbed nodes agree with themselves.

    Edges are added and removed uniformly, where NodeAug prefers important ones.
    """

    settings: ClassVar[dict[str, Any]] = {
        **_VIEWS_ALONE,
        # Uniform too, but the neighbours within two hops of a drawn node are spared.
        "perturbation": "tifa",
        "sharpness": 0.0,
        "decay": 1e-6,
        "decay_hops": 2,
        "perturbed_nodes": 0.1,
        "edges_added": 1,
        "edges_removed": 1,
        "feature_mask_rate": 0.3,
    }

    def _term(self) -> Term:
        return AugmentedNodes(self.weight)


class GraphMixClassifier(TermClassifier):
    """GraphMix (Verma et al., 2021): mixed nodes train the weights without edges.

    Parameters
    ----------
    network, weight
        See :class:`TermClassifier`.
    consistency : float, default=1
        Weight of nodes without a label.
    """

    def __init__(
        self, network: GNNClassifier, *, weight: float = 1.0, consistency: float = 1.0
    ) -> None:
        super().__init__(network, weight=weight)
        self.consistency = consistency

    def _term(self) -> Term:
        return Mixup(self.weight, self.consistency)
