"""A graph that scikit-learn can index like an array of its nodes."""

from sktifa.graph.anything import as_graph, is_feature_matrix, validated
from sktifa.graph.container import Graph
from sktifa.graph.whole import Whole

__all__ = ["Graph", "as_graph", "is_feature_matrix", "validated"]

# What pickles call it that were made when all of this was one file.
_Whole = Whole
