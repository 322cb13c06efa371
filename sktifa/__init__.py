"""Semi-supervised node classification for scikit-learn users."""

from importlib.metadata import version

from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
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
from sktifa.graph import Graph
from sktifa.model_selection import LabeledNodeKFold, LabeledNodeShuffleSplit
from sktifa.presets import paper_preset
from sktifa.sampling.random_walk import SAINTTIFASampler
from sktifa.tig import LabelPropagationTIG

__version__ = version("sktifa")

__all__ = [
    "GNNClassifier",
    "Graph",
    "LabelPropagationTIG",
    "LabeledNodeKFold",
    "LabeledNodeShuffleSplit",
    "SAINTTIFASampler",
    "TIFAGCLClassifier",
    "fetch_amazon",
    "fetch_citation_full",
    "fetch_coauthor",
    "fetch_heterophilous",
    "fetch_ogbn",
    "fetch_planetoid",
    "load_digits_graph",
    "make_block_graph",
    "paper_preset",
]
