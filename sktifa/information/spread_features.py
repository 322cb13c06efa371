"""What features that are spread along the edges tell of the classes.

A linear model of them is no network: it does not learn from its own predictions. With
few labels it is about as good as a GCN, and errs elsewhere than propagated labels do,
which hardly look at features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from sktifa.graph import Graph
from sktifa.information.propagation import label_propagation

__all__ = ["spread_features_say"]

# Inverse strength of regularisation, for rows of a mean square norm of 1.
_C = 100.0
# No class is less likely by so much, in logarithms, whatever features lie far out.
_FLOOR = -14.0
# Relative error of the propagation.
_TOL = 1e-3


def spread_features_say(
    graph: Graph,
    features: Any,
    codes: NDArray[np.integer],
    n_classes: int,
    *,
    restart_probability: float = 0.15,
    device: str | torch.device = "cpu",
) -> Tensor:
    r"""Return the logarithm of each class's probability, float64 of (n_nodes, k).

    Logistic regression on :math:`M X`, where :math:`M = \alpha (I - (1 - \alpha)
    D^{-1/2} A D^{-1/2})^{-1}` propagates (Eq. 1) features, (n_nodes, h), as they are
    given. Dense ones have a constant among them, as their zero means nothing. `codes`
    are -1 where unlabelled. :math:`M X` is not made: M is symmetric, so that its rows
    of labelled nodes are what these spread, and :math:`(M X) W = M (X W)`.
    """

    def spread(sources: NDArray[np.float64]) -> NDArray[np.float64]:
        return label_propagation(
            graph.adjacency,
            sources,
            restart_probability=restart_probability,
            normalization="symmetric",
            tol=_TOL,
            device=device,
        )

    labelled = np.flatnonzero(codes >= 0)
    sources = np.zeros((graph.n_nodes, len(labelled)))
    sources[labelled, np.arange(len(labelled))] = 1
    reached = spread(sources)
    constant = 0.0
    if not sparse.issparse(features):
        total = np.einsum("ij,ij->", features, features, dtype=np.float64)
        constant = np.sqrt(total / graph.n_nodes)
    rows = np.column_stack([reached.T @ features, constant * reached.sum(0)])
    norm = np.sqrt((rows**2).sum(1).mean()) or 1.0
    model = LogisticRegression(C=_C, fit_intercept=False, max_iter=1000)
    model.fit(rows / norm, codes[labelled])
    weights = model.coef_ / norm
    if len(weights) == 1:  # of two classes, the second against the first
        weights = np.concatenate([-weights, weights]) / 2
    scores = np.zeros((graph.n_nodes, n_classes))
    scores[:, model.classes_] = spread(
        features @ weights[:, :-1].T + constant * weights[:, -1]
    )
    return torch.from_numpy(scores).log_softmax(1).clamp_(min=_FLOOR)
