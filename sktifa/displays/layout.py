"""Where to draw the nodes of a graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from sktifa.graph import Graph
from sktifa.graph.adjacency import with_values

__all__ = ["spring_layout"]

# Nodes that push all others in a step: a fresh sample each time stands for all.
_PUSHING = 300
_STEPS = 120
# Keeps nodes in one spot from flying apart.
_SOFT = np.float32(0.01)
_SMOOTHINGS = 60


def spring_layout(
    graph: Graph, random_state: int | np.random.RandomState | None = 0
) -> NDArray[np.float32]:
    """Place all nodes so that edges are short and nodes apart, centred, in radius 1.

    Edges pull their ends together, all nodes push each other off, and a weak pull to
    the middle keeps components from drifting away (Fruchterman and Reingold, 1991).
    What pushes a node in a step is a sample of the others, so that a step takes time in
    proportion to nodes and edges.
    """
    rng = check_random_state(random_state)
    n = graph.n_nodes
    position = _start(graph, rng)
    # Distances are in lengths of an edge alone; n nodes apart by it fill this radius.
    radius = np.float32(np.sqrt(n / np.pi))
    position *= radius
    incidence = _incidence(graph)
    for step in range(_STEPS):
        # A push falls off with the distance: the sum of (x_i - x_j) / |x_i - x_j|^2.
        others = position[rng.choice(n, min(_PUSHING, n), replace=False)]
        push = 1 / (euclidean_distances(position, others, squared=True) + _SOFT)
        push *= n / len(others)
        move = position * push.sum(axis=1, keepdims=True) - push @ others
        along = incidence @ position
        move -= incidence.T @ (along * np.linalg.norm(along, axis=1, keepdims=True))
        away = np.linalg.norm(position, axis=1, keepdims=True)
        move -= 2 * position * away / radius
        length = np.linalg.norm(move, axis=1, keepdims=True)
        most = 0.2 * radius * (1 - step / _STEPS)
        position += move * np.minimum(1, most / np.maximum(length, 1e-9))
    position -= position.mean(axis=0)
    return position / max(np.linalg.norm(position, axis=1).max(), 1e-9)


def _start(graph: Graph, rng: np.random.RandomState) -> NDArray[np.float32]:
    """Begin with two slow directions of diffusion, which unfold the graph."""
    n = graph.n_nodes
    values = rng.normal(size=(n, 8)).astype(np.float32)
    degree = np.maximum(np.diff(graph.adjacency.indptr), 1)[:, None]
    pattern = with_values(graph.adjacency, np.ones(graph.adjacency.nnz, np.float32))
    for _ in range(_SMOOTHINGS):
        values = (values + pattern @ values / degree) / 2
        values -= values.mean(axis=0)
    slow = np.linalg.svd(values, full_matrices=False)[0][:, :2]
    if slow.shape[1] < 2:
        return rng.normal(size=(n, 2)).astype(np.float32)
    # By rank, so that a few far nodes don't leave the others in one spot.
    ranks = np.argsort(np.argsort(slow, axis=0), axis=0) / max(n - 1, 1)
    return (2 * ranks - 1 + 0.05 * rng.normal(size=(n, 2))).astype(np.float32)


def _incidence(graph: Graph) -> sparse.csr_array:
    """Give each edge a row with 1 at one end and -1 at the other."""
    ends = np.stack(sparse.triu(graph.adjacency).tocoo().coords, axis=1)
    signs = np.tile(np.array([1, -1], dtype=np.float32), len(ends))
    begin = np.arange(0, ends.size + 1, 2)
    return sparse.csr_array(
        (signs, ends.ravel(), begin), shape=(len(ends), graph.n_nodes)
    )
