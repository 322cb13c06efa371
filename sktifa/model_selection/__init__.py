"""Splits of labelled nodes, the paper's protocol, and searches that train in stacks."""

from sktifa.model_selection.paper import paper_grid, paper_preset
from sktifa.model_selection.search import BatchedGridSearchCV, BatchedRandomizedSearchCV
from sktifa.model_selection.splits import (
    LabeledNodeKFold,
    LabeledNodeShuffleSplit,
    predefined_validation_split,
)

__all__ = [
    "BatchedGridSearchCV",
    "BatchedRandomizedSearchCV",
    "LabeledNodeKFold",
    "LabeledNodeShuffleSplit",
    "paper_grid",
    "paper_preset",
    "predefined_validation_split",
]
