"""Graph perturbation with negative feedback (Algorithm 2 of the paper).

Nodes are drawn one after another, without replacement, with probability proportional
to ``exp(t w)``. Each draw changes a few of the node's edges and makes the nodes around
it less likely to be drawn.

An exponential race draws such a sequence exactly, in one pass. Every node gets a clock
that rings after Exp(1) / rate; the node whose clock rings first is the next drawn. When
a rate is multiplied by ``decay`` at time ``now``, what is left of that node's clock is
again exponential, and becomes ``(clock - now) / decay``.

A perturbation doesn't depend on the model: the next one can be drawn in another thread
while the current one is trained on, for training on a GPU too.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from sktifa.checks import as_numbers, check_count, check_real, check_sparse
from sktifa.device import free_memory
from sktifa.exceptions import (
    GraphError,
    NotEnoughMemoryError,
    ParameterError,
    PerturbationWarning,
)
from sktifa.tensors.jit import njit

__all__ = ["GraphPerturber", "Perturbation", "PerturbationSettings"]


@dataclass(frozen=True)
class PerturbationSettings:
    """How a graph is perturbed; the parameters of :class:`GraphPerturber`."""

    sharpness: float = 1.0
    perturbed_nodes: float = 0.4
    perturbation_rate: float | None = None
    edges_added: int = 1
    edges_removed: int = 2
    decay: float = 0.5
    decay_hops: int = 1

    def __post_init__(self) -> None:
        check_real(self.sharpness, "sharpness", low=-np.finfo(np.float64).max)
        check_real(self.perturbed_nodes, "perturbed_nodes", high=1)
        if self.perturbation_rate is not None:
            check_real(self.perturbation_rate, "perturbation_rate")
        check_real(self.decay, "decay", high=1)
        for name in ("edges_added", "edges_removed", "decay_hops"):
            check_count(getattr(self, name), name)


@dataclass(frozen=True)
class Perturbation:
    """What one perturbation changes in a graph.

    Parameters
    ----------
    nodes : ndarray of int64, shape (n_perturbed,)
        The perturbed nodes, in the order drawn.
    removed_arcs : ndarray of int64, shape (2 * n_removed,)
        Positions in the adjacency's `indices` and `data`, ascending, of both
        directions of every original edge that is gone.
    added_edges : ndarray of int64, shape (2, n_added)
        End nodes of the new edges, each edge once; the first row holds the node that
        was perturbed. None of them is an edge of the original graph.
    """

    nodes: np.ndarray
    removed_arcs: np.ndarray
    added_edges: np.ndarray

    @property
    def n_flipped_edges(self) -> int:
        """Undirected edges in which the two graphs differ."""
        return len(self.removed_arcs) // 2 + self.added_edges.shape[1]


class GraphPerturber:
    r"""Draws perturbed views of a graph (Algorithm 2 of the paper).

    A view is complete when the share `perturbed_nodes` of the nodes has been drawn, or
    when ``||A_p - A||_F`` reaches :math:`\sigma = \sqrt{2 \cdot rate \cdot |E|}` with
    `perturbation_rate`, that is, when ``rate * |E|`` undirected edges are flipped,
    whichever comes first. A drawn node first gains edges to non-neighbours and then
    loses edges, maybe some of those just gained, both uniformly and by its neighbours
    in the graph as perturbed so far. An edge that is removed and added again counts as
    untouched.

    As printed, Algorithm 2 takes a softmax over the probabilities after each decay,
    which makes them almost uniform and gives the drawn node its chance back. Here a
    drawn node is out, its surroundings decay, and probabilities keep their ratios.
    Masking features is left to the training step.

    Parameters
    ----------
    adjacency : csr_array of shape (n_nodes, n_nodes)
        Symmetric, without diagonal, indices sorted: ``Graph.adjacency``. It isn't
        changed. Weights play no part.
    loss_weights : array-like of shape (n_nodes,)
        Contrastive loss weights (paper: w). Equal ones, with ``decay=1``, perturb
        uniformly.
    sharpness : float, default=1.0
        Sharpens the drawing probabilities (paper: t).
    perturbed_nodes : float, default=0.4
        Share of the nodes to perturb, in [0, 1], rounded to whole nodes. 1 sets no
        limit.
    perturbation_rate : float or None, default=None
        Share of the edges to flip (paper, by way of sigma); None sets no limit.
    edges_added : int, default=1
        Edges that a drawn node gains, or as many as it has non-neighbours (paper:
        n_add).
    edges_removed : int, default=2
        Edges that a drawn node loses, or as many as it has (paper: n_rmv).
    decay : float, default=0.5
        Multiplies the probability of nodes near a drawn one, in [0, 1] (paper: d_r).
        With 0 they are never drawn.
    decay_hops : int, default=1
        How far in the original graph the decay reaches (paper: d_h).

    Raises
    ------
    ParameterError
        A parameter is outside its range, or `loss_weights` is not finite or not one a
        node.
    GraphError
        The adjacency is not symmetric, has a diagonal, or is not sorted.
    NotEnoughMemoryError
        The edges to add would not fit in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array, issparse
    >>> path = csr_array(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    >>> perturber = GraphPerturber(path, np.ones(5), perturbed_nodes=0.4)
    >>> view = perturber.draw(np.random.default_rng(0))
    >>> len(view.nodes), len(view.removed_arcs) % 2
    (2, 0)
    """

    def __init__(
        self,
        adjacency: csr_array,
        loss_weights: ArrayLike,
        *,
        sharpness: float = 1.0,
        perturbed_nodes: float = 0.4,
        perturbation_rate: float | None = None,
        edges_added: int = 1,
        edges_removed: int = 2,
        decay: float = 0.5,
        decay_hops: int = 1,
    ) -> None:
        if not issparse(adjacency) or adjacency.format != "csr":
            raise GraphError(
                f"adjacency must be a csr_array, got {type(adjacency).__name__}: "
                "Graph(adjacency).adjacency is one."
            )
        check_sparse(adjacency, "adjacency")
        n_nodes = adjacency.shape[0]
        weights = np.asarray(as_numbers(loss_weights, "loss_weights"), dtype=np.float64)
        if weights.shape != (n_nodes,):
            raise ParameterError(
                f"loss_weights has shape {weights.shape}; the graph needs one weight "
                f"for each of its {n_nodes} nodes, shape ({n_nodes},)."
            )
        if not np.isfinite(weights).all():
            first = int(np.argmin(np.isfinite(weights)))
            raise ParameterError(
                f"loss_weights[{first}] is {weights[first]}; weights must be finite."
            )
        PerturbationSettings(  # which checks them
            sharpness,
            perturbed_nodes,
            perturbation_rate,
            edges_added,
            edges_removed,
            decay,
            decay_hops,
        )

        self._indptr = adjacency.indptr.astype(np.int64)
        # Writable copies: one compiled kernel fits all arrays.
        self._indices = np.array(adjacency.indices)
        self._reverse = _reverse_arcs(adjacency)
        # Only ratios matter; the largest rate is 1, so that none overflows.
        with np.errstate(over="ignore"):
            exponent = sharpness * weights
        if not np.isfinite(exponent).all():
            raise ParameterError(
                f"sharpness={sharpness} times the loss weights is beyond floating "
                "point: lower sharpness."
            )
        self._rates = np.exp(exponent - exponent.max(initial=-np.inf))
        self._max_nodes = round(perturbed_nodes * n_nodes)
        self._max_flips = np.inf
        if perturbation_rate is not None:
            self._max_flips = perturbation_rate * adjacency.nnz / 2
        # Limited, as no node can gain more.
        self._edges_added = min(int(edges_added), max(n_nodes - 1, 0))
        self._edges_removed = min(int(edges_removed), max(n_nodes - 1, 0))
        self._decay = float(decay)
        # With a decay of 1 the surroundings need no visit.
        self._decay_hops = 0 if decay == 1 else min(int(decay_hops), n_nodes)
        if 40 * self.most_added > free_memory():
            raise NotEnoughMemoryError(
                f"edges_added={edges_added} to {self._max_nodes} nodes don't fit in "
                "memory: lower edges_added or perturbed_nodes."
            )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self._rates)

    @property
    def n_arcs(self) -> int:
        """Number of arcs of the original graph."""
        return len(self._indices)

    @property
    def most_drawn(self) -> int:
        """Nodes that one draw can perturb at most."""
        return self._max_nodes

    @property
    def most_removed(self) -> int:
        """Undirected edges that one draw can remove at most."""
        return min(self._max_nodes * self._edges_removed, len(self._indices) // 2)

    @property
    def most_added(self) -> int:
        """Edges that one draw can add at most."""
        return self._max_nodes * self._edges_added

    def draw(self, rng: np.random.Generator) -> Perturbation:
        """Draw one perturbed view; equal states of `rng` give equal views.

        May be called from several threads at once, each with a generator of its own.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness; advances.

        Returns
        -------
        Perturbation
            What changes against the original graph.

        Warns
        -----
        PerturbationWarning
            A `perturbation_rate` was asked for and there is nothing left to flip, or
            no node left to draw, before it is reached.
        """
        n_nodes = len(self._rates)
        with np.errstate(divide="ignore", over="ignore"):
            clocks = rng.standard_exponential(n_nodes) / self._rates
        nodes, kept, added, flips = _race(
            self._indptr,
            self._indices,
            self._reverse,
            clocks,
            self._max_nodes,
            self._max_flips,
            self._edges_added,
            self._edges_removed,
            self._decay,
            self._decay_hops,
            rng,
        )
        limited = len(nodes) == self._max_nodes < n_nodes and flips > 0
        if flips < self._max_flips < np.inf and not limited:
            warnings.warn(
                f"The perturbation ended with {flips} flipped edges, short of the "
                f"{self._max_flips:g} that perturbation_rate asks for: no node or edge "
                "is left to change. Lower perturbation_rate, or raise edges_added or "
                "edges_removed.",
                PerturbationWarning,
                stacklevel=2,
            )
        return Perturbation(nodes, np.flatnonzero(~kept), added)


def _reverse_arcs(adjacency: csr_array) -> np.ndarray:
    """Position of arc (j, i) for every arc (i, j) of a sorted symmetric CSR matrix."""
    rows = np.repeat(
        np.arange(adjacency.shape[0], dtype=adjacency.indices.dtype),
        np.diff(adjacency.indptr),
    )
    columns = adjacency.indices
    # Stored arcs are ordered by (row, column): ordered by (column, row), the k-th one
    # is the reverse of the k-th stored.
    reverse = np.argsort(columns, kind="stable")
    wrong = (columns[reverse] != rows) | (rows[reverse] != columns) | (rows == columns)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise GraphError(
            "The adjacency must be symmetric, without diagonal, duplicates or unsorted "
            f"indices; this fails at arc ({rows[first]}, {columns[first]}), or at "
            "another arc of these nodes. Graph(adjacency).adjacency mends it."
        )
    return reverse


@njit()
def _sift_down(heap, keys, position, size):
    """Restore the heap below a position whose key has grown."""
    node = heap[position]
    while True:
        child = 2 * position + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[heap[child]] >= keys[node]:
            break
        heap[position] = heap[child]
        position = child
    heap[position] = node


@njit()
def _slow_down(node, now, decay, hops, indptr, indices, clocks, visited, queue):
    """Decay the rates of all nodes within some hops of a drawn one, once each."""
    visited[node] = node
    queue[0] = node
    begin, end = 0, 1
    for _ in range(hops):
        level_end = end
        for position in range(begin, level_end):
            near = queue[position]
            for arc in range(indptr[near], indptr[near + 1]):
                other = indices[arc]
                if visited[other] != node:
                    visited[other] = node
                    queue[end] = other
                    end += 1
                    if decay > 0:
                        clocks[other] = now + (clocks[other] - now) / decay
                    else:
                        clocks[other] = np.inf
        begin = level_end
        if begin == end:
            break


@njit()
def _race(
    indptr,
    indices,
    reverse,
    clocks,
    max_nodes,
    max_flips,
    edges_added,
    edges_removed,
    decay,
    decay_hops,
    rng,
):
    n_nodes = len(clocks)
    drawn = np.empty(max_nodes, np.int64)
    n_drawn = 0
    flips = 0
    kept = np.ones(len(indices), np.bool_)

    # Added edges, and for each node a linked list of those that end there: the two
    # ends of edge e are the list entries 2e and 2e + 1.
    capacity = edges_added * max_nodes
    ends = np.empty(2 * capacity, np.int64)
    added_kept = np.ones(capacity, np.bool_)
    following = np.empty(2 * capacity, np.int64)
    last = np.full(n_nodes, -1, np.int64)
    n_added = 0

    # Scratch space. A node is drawn once at most, so its number stamps its visits.
    adjacent = np.full(n_nodes, -1, np.int64)
    visited = np.full(n_nodes, -1, np.int64)
    queue = np.empty(n_nodes, np.int64)
    incident = np.empty(n_nodes, np.int64)

    # Clocks only ever move back. So a key in the heap is a lower bound of its node's
    # clock, and is brought up to date when it comes to the top.
    keys = clocks.copy()
    heap = np.arange(n_nodes)
    size = n_nodes
    for position in range(size // 2 - 1, -1, -1):
        _sift_down(heap, keys, position, size)

    while n_drawn < max_nodes and flips < max_flips and size > 0:
        node = heap[0]
        now = keys[node]
        if clocks[node] > now:
            keys[node] = clocks[node]
            _sift_down(heap, keys, 0, size)
            continue
        if now == np.inf:  # only nodes of rate 0 are left
            break
        size -= 1
        heap[0] = heap[size]
        if size > 0:
            _sift_down(heap, keys, 0, size)
        drawn[n_drawn] = node
        n_drawn += 1

        # The node's edges at present: original arcs, and below 0 the added ones.
        degree = 0
        for arc in range(indptr[node], indptr[node + 1]):
            if kept[arc]:
                adjacent[indices[arc]] = node
                incident[degree] = arc
                degree += 1
        entry = last[node]
        while entry >= 0:
            if added_kept[entry // 2]:
                adjacent[ends[entry ^ 1]] = node
                incident[degree] = -1 - entry // 2
                degree += 1
            entry = following[entry]

        # A try hits one of the f non-neighbours with probability f / n: so few of them
        # that this is slow means a degree for which the look above was as slow.
        for _ in range(min(edges_added, n_nodes - 1 - degree)):
            other = rng.integers(0, n_nodes)
            while other == node or adjacent[other] == node:
                other = rng.integers(0, n_nodes)
            adjacent[other] = node
            row = indices[indptr[node] : indptr[node + 1]]
            slot = np.searchsorted(row, other)
            if slot < len(row) and row[slot] == other:  # a removed edge returns
                arc = indptr[node] + slot
                kept[arc] = kept[reverse[arc]] = True
                flips -= 1
                incident[degree] = arc
            else:
                for entry, end in ((2 * n_added, node), (2 * n_added + 1, other)):
                    ends[entry] = end
                    following[entry] = last[end]
                    last[end] = entry
                incident[degree] = -1 - n_added
                n_added += 1
                flips += 1
            degree += 1

        for _ in range(min(edges_removed, degree)):
            choice = rng.integers(0, degree)
            edge = incident[choice]
            degree -= 1
            incident[choice] = incident[degree]
            if edge >= 0:
                kept[edge] = kept[reverse[edge]] = False
                flips += 1
            else:
                added_kept[-1 - edge] = False
                flips -= 1

        _slow_down(
            node, now, decay, decay_hops, indptr, indices, clocks, visited, queue
        )

    added = np.empty((2, added_kept[:n_added].sum()), np.int64)
    count = 0
    for edge in range(n_added):
        if added_kept[edge]:
            added[0, count] = ends[2 * edge]
            added[1, count] = ends[2 * edge + 1]
            count += 1
    return drawn[:n_drawn], kept, added, flips
