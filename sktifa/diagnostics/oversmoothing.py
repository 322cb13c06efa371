"""MADGap: how far layers have blurred what tells remote nodes from neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state

from sktifa.checks import check_count, check_matrix
from sktifa.contrast.ranking import hops_from
from sktifa.exceptions import GraphError, ParameterError
from sktifa.graph import Graph, as_graph
from sktifa.graph.features import as_dense

__all__ = ["madgap"]


def madgap(
    embedding: ArrayLike,
    graph: Graph,
    *,
    near: int = 3,
    remote: int = 8,
    max_anchors: int = 4096,
    random_state: int | np.random.RandomState | None = 0,
) -> float:
    """Compare cosine distances of remote nodes with those of neighbours (table 5).

    The mean cosine distance of pairs at least `remote` hops apart minus that of pairs
    at most `near` hops apart. Near 0 the embedding no longer tells a node's
    surroundings from the rest of the graph: it is over-smoothed. Pairs that no path
    joins count in neither. Nodes whose embedding is 0 have distance 1 to all others.

    Parameters
    ----------
    embedding : array-like of shape (graph.n_nodes, n_dimensions)
        Embedding or class probabilities of every node of the whole graph.
    graph : Graph
        The whole graph counts, whatever is selected.
    near : int, default=3
        Most hops of neighbours.
    remote : int, default=8
        Fewest hops of remote nodes, more than `near` and at most 255.
    max_anchors : int, default=4096
        In a larger graph, pairs of as many nodes, drawn at random, with all others
        stand for all.
    random_state : int, RandomState or None, default=0
        Draws them.

    Returns
    -------
    float
        NaN where the graph has no neighbours or no remote pairs.

    Raises
    ------
    GraphError
        If `embedding` does not have a row for every node of the whole graph.
    ParameterError
        Unless ``1 <= near < remote <= 255`` and ``max_anchors >= 1``.

    References
    ----------
    Chen et al., "Measuring and relieving the over-smoothing problem for graph neural
    networks from the topological view", AAAI 2020. They average over each node's pairs
    first, then over nodes; here every pair counts alike.

    Examples
    --------
    A path of ten nodes whose embedding turns slowly from one end to the other:

    >>> import numpy as np
    >>> from sktifa.diagnostics import madgap
    >>> from sktifa.graph import Graph
    >>> path = Graph(np.diag(np.ones(9), 1) + np.diag(np.ones(9), -1))
    >>> angle = np.linspace(0, np.pi / 2, 10)
    >>> round(madgap(np.c_[np.cos(angle), np.sin(angle)], path), 3)
    0.819
    """
    graph = as_graph(graph)
    unit = check_matrix(embedding, "embedding", dtype=np.float64)
    if unit.shape[0] != graph.n_nodes:
        raise GraphError(
            f"embedding must have a row for each of the graph's {graph.n_nodes} nodes, "
            f"got shape {unit.shape}: give that of the whole graph."
        )
    near = check_count(near, "near", low=1)
    if check_count(remote, "remote", high=255) <= near:
        raise ParameterError(
            f"hops need near < remote, got near={near} and remote={remote}."
        )
    max_anchors = check_count(max_anchors, "max_anchors", low=1)
    unit = normalize(unit)
    anchors = np.arange(graph.n_nodes)
    if graph.n_nodes > max_anchors:
        rng = check_random_state(random_state)
        anchors = np.sort(rng.choice(graph.n_nodes, max_anchors, replace=False))
    _, component = connected_components(graph.adjacency, connection="strong")
    pattern = graph.adjacency.indptr, graph.adjacency.indices
    sums, counts = np.zeros(2), np.zeros(2)
    for first in range(0, len(anchors), 64):
        block = anchors[first : first + 64]
        distance = 1 - as_dense(unit[block] @ unit.T)
        hops = hops_from(*pattern, block, remote - 1)
        beyond = (hops == remote) & (component[block, None] == component)
        for which, pairs in enumerate((beyond, (hops > 0) & (hops <= near))):
            sums[which] += distance[pairs].sum()
            counts[which] += np.count_nonzero(pairs)
    if not counts.all():
        return float("nan")
    far, neighbours = sums / counts
    return float(far - neighbours)
