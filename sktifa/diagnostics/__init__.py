"""What a graph and its labels promise, and where in it a classifier is right."""

from sktifa.diagnostics.advice import Advice
from sktifa.diagnostics.bins import accuracy_by_gain, correctness, radial_decay
from sktifa.diagnostics.findings import diagnose
from sktifa.diagnostics.oversmoothing import madgap
from sktifa.diagnostics.pairs import PairQuality, pair_quality
from sktifa.diagnostics.report import GraphReport
from sktifa.information.evidence import GraphEvidence, graph_helps

__all__ = [
    "Advice",
    "GraphEvidence",
    "GraphReport",
    "PairQuality",
    "accuracy_by_gain",
    "correctness",
    "diagnose",
    "graph_helps",
    "madgap",
    "pair_quality",
    "radial_decay",
]
