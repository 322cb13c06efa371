"""Semi-supervised node classification for scikit-learn users."""

from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.compose import OnFeatures, OnNodes
from sktifa.datasets import (
    fetch_amazon,
    fetch_citation_full,
    fetch_coauthor,
    fetch_heterophilous,
    fetch_ogbn,
    fetch_planetoid,
    load_digits_graph,
    make_block_graph,
)
from sktifa.diagnostics import diagnose
from sktifa.graph import Graph
from sktifa.information.transformer import LabelPropagationTIG
from sktifa.model_selection import (
    BatchedGridSearchCV,
    BatchedRandomizedSearchCV,
    LabeledNodeKFold,
    LabeledNodeShuffleSplit,
    paper_grid,
    paper_preset,
)
from sktifa.persistence import load, save
from sktifa.sampling import NeighborSampler, SAINTTIFASampler
from sktifa.versions import show_versions

__version__ = "0.1.0"

__all__ = [
    "BatchedGridSearchCV",
    "BatchedRandomizedSearchCV",
    "GNNClassifier",
    "Graph",
    "LabelPropagationTIG",
    "LabeledNodeKFold",
    "LabeledNodeShuffleSplit",
    "NeighborSampler",
    "OnFeatures",
    "OnNodes",
    "SAINTTIFASampler",
    "TIFAGCLClassifier",
    "diagnose",
    "fetch_amazon",
    "fetch_citation_full",
    "fetch_coauthor",
    "fetch_heterophilous",
    "fetch_ogbn",
    "fetch_planetoid",
    "load",
    "load_digits_graph",
    "make_block_graph",
    "paper_grid",
    "paper_preset",
    "save",
    "show_versions",
]
