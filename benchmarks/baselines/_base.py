"""What baselines without a network share: labels in, predictions out."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from sktifa.graph import Graph
from sktifa.labels import encode_labels


class WholeGraphClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that works out the scores of all nodes when it is fitted."""

    classes_: NDArray[Any]

    def fit(
        self,
        X: Graph,
        y: ArrayLike,
        X_val: Graph | None = None,
        y_val: ArrayLike | None = None,
    ) -> WholeGraphClassifier:
        """Score all nodes; labels that are -1 are unknown, `X_val` is not needed."""
        codes, self.classes_ = encode_labels(y, -1)
        everyone = np.full(X.n_nodes, -1)
        everyone[X.nodes] = codes
        self.scores_ = self._scores(X, everyone)
        return self

    @abstractmethod
    def _scores(self, graph: Graph, codes: NDArray[np.int64]) -> NDArray[np.floating]:
        """Return the probability of each class, for all nodes of the whole graph."""

    def predict_proba(self, X: Graph) -> NDArray[np.floating]:
        """Return the probability of each class."""
        return self.scores_[X.nodes]

    def predict(self, X: Graph) -> NDArray[Any]:
        """Return the most probable class."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
