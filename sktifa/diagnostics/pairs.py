"""Whether nodes of like annotated information share a class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from sktifa.checks import as_numbers, check_count
from sktifa.exceptions import ParameterError
from sktifa.graph import Graph, as_graph
from sktifa.information.tig import label_distribution
from sktifa.labels import encode_labels

__all__ = ["PairQuality", "pair_quality"]

# Anchors ranked at a time.
_BLOCK = 256


@dataclass(frozen=True)
class PairQuality:
    """Share of pairs of one class by rank of their label distance (figure 2).

    Parameters
    ----------
    same_class : ndarray of float64, shape (n_bins,)
        In each bin of ranks, the nearest first.
    neighbors : float
        Among pairs that an edge joins; NaN where none does.
    overall : float
        Among all pairs.
    """

    same_class: NDArray[np.float64]
    neighbors: float
    overall: float


def pair_quality(
    graph: Graph,
    y: ArrayLike,
    information: ArrayLike,
    *,
    n_bins: int = 20,
    max_anchors: int = 2000,
    missing_label: int | float | str | None = -1,
    random_state: int | np.random.RandomState | None = 0,
) -> PairQuality:
    """Measure how well label distance finds nodes of one class (figure 2).

    For each node all others are ranked by KL(p_i ‖ p_j), p being the distribution of
    the annotated information that arrives (Eq. 12). Equal distances are ranked at
    random.

    Parameters
    ----------
    graph : Graph
        The graph, or a selection of the nodes to look at.
    y : array-like of shape (len(graph),)
        Their true classes, all that are known: pairs need both.
    information : array-like of shape (len(graph), n_classes)
        What reaches them from the labels of training, from
        :func:`~sktifa.information.tig.annotated_information` (paper: Z*).
    n_bins : int, default=20
        Bins of equal size that the ranks are cut into.
    max_anchors : int, default=2000
        Where more nodes are labelled, as many, drawn at random, rank all others.
    missing_label : int, float, str or None, default=-1
        Marks nodes of unknown class.
    random_state : int, RandomState or None, default=0
        Draws the anchors and the order of ties.

    Returns
    -------
    PairQuality

    Raises
    ------
    LabelError
        If `y` has another length or no label.
    ParameterError
        If `information` has another length or `n_bins` does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.diagnostics import pair_quality
    >>> from sktifa.graph import Graph
    >>> path = Graph(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    >>> information = [[0.9, 0.1], [0.7, 0.3], [0.3, 0.7], [0.1, 0.9]]
    >>> pair_quality(path, [0, 0, 1, 1], information, n_bins=3)
    PairQuality(same_class=array([1., 0., 0.]), neighbors=0.66..., overall=0.33...)
    """
    graph = as_graph(graph)
    codes, _ = encode_labels(y, missing_label, of=graph)
    distribution = label_distribution(as_numbers(information, "information"))
    if len(distribution) != len(codes):
        raise ParameterError(
            f"information has {len(distribution)} rows for {len(codes)} nodes: give "
            "that of the same nodes as y."
        )
    rng = check_random_state(random_state)
    known = rng.permutation(np.flatnonzero(codes >= 0))
    if check_count(n_bins, "n_bins", low=1) >= len(known):
        raise ParameterError(
            f"n_bins must be below the {len(known)} labelled nodes, got {n_bins}."
        )
    check_count(max_anchors, "max_anchors", low=1)
    p, labels = distribution[known], codes[known]
    surprise = -np.log(p).T
    starts = np.arange(n_bins) * (len(known) - 1) // n_bins
    sums = np.zeros(n_bins)
    n_anchors = min(max_anchors, len(known))
    for first in range(0, n_anchors, _BLOCK):
        block = np.arange(first, min(first + _BLOCK, n_anchors))
        # The entropy of p_i is the same in all of an anchor's row. Rounded, so that
        # equal distances are ties.
        distance = np.round(p[block] @ surprise, 10)
        distance[np.arange(len(block)), block] = np.inf
        ranked = np.argsort(distance, axis=1, kind="stable")[:, :-1]
        same = labels[ranked] == labels[block, None]
        sums += np.add.reduceat(same, starts, axis=1, dtype=np.float64).sum(axis=0)
    sizes = np.diff(np.append(starts, len(known) - 1))
    within = np.bincount(labels).astype(np.float64)
    return PairQuality(
        sums / (n_anchors * sizes),
        _share_of_edges(graph, codes),
        float((within * (within - 1)).sum() / (len(known) * (len(known) - 1))),
    )


def _share_of_edges(graph: Graph, codes: NDArray[np.int64]) -> float:
    everywhere = np.full(graph.n_nodes, -1)
    everywhere[graph.nodes] = codes
    row, col = sparse.triu(graph.adjacency).tocoo().coords
    known = (everywhere[row] >= 0) & (everywhere[col] >= 0)
    if not known.any():
        return float("nan")
    return float((everywhere[row] == everywhere[col])[known].mean())
