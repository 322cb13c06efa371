"""What TIFA-GCL is compared with: each a scikit-learn estimator on a `Graph`.

`PUBLISHED` in tests/benchmarks/test_baselines.py has what their own papers print, and
which of them print nothing that compares.
"""

from benchmarks.baselines.contrastive import (
    GRACEClassifier,
    GraphCLClassifier,
    GraphMixClassifier,
    MultiViewClassifier,
    NodeAugClassifier,
)
from benchmarks.baselines.label_propagation import LabelPropagationClassifier
from benchmarks.baselines.node2vec import Node2VecClassifier

__all__ = [
    "GRACEClassifier",
    "GraphCLClassifier",
    "GraphMixClassifier",
    "LabelPropagationClassifier",
    "MultiViewClassifier",
    "Node2VecClassifier",
    "NodeAugClassifier",
]
