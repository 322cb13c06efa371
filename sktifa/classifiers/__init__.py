"""The estimators: a supervised graph classifier, and TIFA-GCL on top of it."""

from sktifa.classifiers.gnn import GNNClassifier
from sktifa.classifiers.tifa import TIFAGCLClassifier

__all__ = ["GNNClassifier", "TIFAGCLClassifier"]
