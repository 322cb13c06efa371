"""The information that displays show: where it comes from, how its axes are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sktifa.checks import check_positions
from sktifa.exceptions import ParameterError
from sktifa.graph import Graph, as_graph
from sktifa.information.tig import annotated_information
from sktifa.labels import align_labels, encode_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["informed", "name_plane"]


def informed(
    X: Any,
    y: ArrayLike,
    labeled: ArrayLike,
    missing_label: int | float | str | None,
    restart_probability: float = 0.15,
) -> tuple[Graph, NDArray[Any], NDArray[np.float64], NDArray[np.int64]]:
    """Work out what reaches each selected node from the labels that training saw.

    `y` are all known labels of the nodes of `X`, and `labeled` the positions in `X`, or
    a mask, of those whose labels training saw. Returned are `X` as a graph, the labels
    in the order of its nodes, the information (paper: Z*), a row for each of them, and
    the positions of the nodes whose labels training did not see.
    """
    graph = as_graph(X)
    y = np.asarray(align_labels(y, graph, missing_label))
    codes, classes = encode_labels(y, missing_label, of=graph)
    mask = np.zeros(len(graph), dtype=bool)
    mask[check_positions(np.asarray(labeled), len(graph))] = True
    if not (mask & (codes >= 0)).any():
        raise ParameterError(
            "labeled names no node with a label: give the nodes that training saw."
        )
    seen = np.full(graph.n_nodes, -1)
    seen[graph.nodes[mask]] = codes[mask]
    information = annotated_information(
        graph, seen, len(classes), restart_probability=restart_probability
    )
    return graph, y, information[graph.nodes], np.flatnonzero(~mask)


def name_plane(ax: Axes) -> None:
    """Label the axes of intensity and clarity, as all pictures of them have them."""
    ax.set(
        xlabel="rank of intensity (%, strongest first)",
        ylabel="rank of clarity (%, clearest first)",
    )
