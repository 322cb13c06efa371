"""What may stand in the brackets of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sktifa.checks import as_array, check_positions
from sktifa.exceptions import NodeIndexError

if TYPE_CHECKING:
    from sktifa.graph.container import Graph

__all__ = ["as_index"]


def as_index(given: Any, graph: Graph) -> slice | NDArray[Any]:
    """Take what stands in the brackets as a slice, positions or names of nodes."""
    if isinstance(given, tuple):
        # scikit-learn indexes with (indices, ...).
        given, *rest = given or (slice(None),)
        if any(r is not Ellipsis and r != slice(None) for r in rest):
            raise NodeIndexError(
                "a graph is indexed by its nodes alone: sktifa.OnFeatures applies "
                "transformers to its columns, with_features() makes the same "
                "graph with others"
            )
    if given is Ellipsis:
        return slice(None)
    if isinstance(given, slice):
        try:
            given.indices(len(graph))
        except TypeError:
            raise NodeIndexError(
                f"{given} has ends that are no whole numbers; nodes are selected "
                "by name with select()"
            ) from None
        return given
    if str(getattr(given, "dtype", None)) == "torch.uint8":
        raise NodeIndexError(
            "a tensor of uint8 may be a mask or positions: use index.bool() "
            "or index.long()"
        )
    index = as_array(_in_order(given, graph), "index")
    if index.size and _are_text(index):
        return np.atleast_1d(index)
    return check_positions(index, len(graph))


def _in_order(index: Any, graph: Graph) -> Any:
    """Bring a Series of booleans that names the nodes into their order."""
    is_mask = str(getattr(index, "dtype", None)) in ("bool", "boolean")
    if graph.node_names is None or not is_mask or not hasattr(index, "iloc"):
        return index
    names = graph.names_or_numbers()
    if not index.index.isin(names).any():
        return index
    if not index.index.is_unique or not np.isin(names, index.index).all():
        raise NodeIndexError(
            "the index of the mask has some of the selected nodes' names, but not "
            "each once: reindex it, or give mask.to_numpy() to go by position"
        )
    return index.loc[names]


def _are_text(index: NDArray[Any]) -> bool:
    """Whether these are names rather than positions."""
    if index.dtype.kind == "O":
        return all(isinstance(name, str) for name in index.flat)
    return index.dtype.kind in "UT"
