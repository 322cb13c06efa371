"""Graph perturbation with negative feedback (Algorithm 2 of the paper).

Nodes are drawn one after another, without replacement, with probability proportional
to ``exp(t w)``. Each draw changes a few of the node's edges and makes the nodes around
it less likely to be drawn.

An exponential race draws such a sequence exactly, in one pass. Every node gets a clock
that rings after Exp(1) / rate; the node whose clock rings first is the next drawn. When
a rate is multiplied by ``decay`` at time ``now``, what is left of that node's clock is
again exponential, and becomes ``(clock - now) / decay``.

The race itself is in :mod:`sktifa.contrast.race`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from sktifa.checks import as_numbers, check_count, check_real, check_sparse
from sktifa.contrast.race import Race, Widths
from sktifa.device import free_memory
from sktifa.exceptions import (
    GraphError,
    NotEnoughMemoryError,
    ParameterError,
    PerturbationWarning,
)
from sktifa.tensors.jit import njit

__all__ = [
    "Arcs",
    "GraphPerturber",
    "Perturbation",
    "PerturbationSettings",
    "arcs_of",
    "paired",
]

# Bytes that are there, without a look at the memory: it takes milliseconds.
_FEW = 1 << 26


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
    """What one perturbation changes in a graph."""

    # All int64. The perturbed nodes, in the order drawn.
    nodes: np.ndarray
    # Positions in the adjacency's arrays, ascending, of both directions of every
    # original edge that is gone.
    removed_arcs: np.ndarray
    # Ends of the new edges, (2, n_added), each once, that of the perturbed node first.
    # None of them is an edge of the original graph.
    added_edges: np.ndarray

    @property
    def n_flipped_edges(self) -> int:
        """Undirected edges in which the two graphs differ."""
        return len(self.removed_arcs) // 2 + self.added_edges.shape[1]


@dataclass(frozen=True)
class Arcs:
    """The arcs of a symmetric graph, columns ascending, as races read them."""

    crow: torch.Tensor  # int64
    col: torch.Tensor  # int32
    reverse: torch.Tensor  # int32 or int64: position of arc (j, i) for every arc (i, j)


def arcs_of(adjacency: csr_array) -> Arcs:
    """Check a sorted symmetric CSR matrix, and pair its arcs."""
    if not issparse(adjacency) or adjacency.format != "csr":
        raise GraphError(
            f"adjacency must be a csr_array, got {type(adjacency).__name__}: "
            "Graph(adjacency).adjacency is one."
        )
    check_sparse(adjacency, "adjacency")
    return paired(adjacency.indptr, adjacency.indices)


def paired(indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> Arcs:
    """Pair the arcs of a symmetric pattern, or say which arc has no reverse."""
    crow, col = indptr.astype(np.int64), indices.astype(np.int32)
    reverse = np.empty(len(col), np.int32 if len(col) < 2**31 else np.int64)
    wrong = _pair(crow, col, reverse)
    if wrong >= 0:
        row = np.searchsorted(crow, wrong, "right") - 1
        raise GraphError(
            "The adjacency must be symmetric, without diagonal, duplicates or unsorted "
            f"indices; this fails at arc ({row}, {col[wrong]}), or at another arc of "
            "these nodes. Graph(adjacency).adjacency mends it."
        )
    return Arcs(*(torch.from_numpy(part) for part in (crow, col, reverse)))


@njit()
def _pair(crow, col, reverse):  # noqa: ANN001, ANN202
    """Find each arc's reverse; return the first arc that has none, or -1."""
    n_nodes = len(crow) - 1
    met = np.zeros(n_nodes, np.int64)
    for node in range(n_nodes):
        last = -1
        for arc in range(crow[node], crow[node + 1]):
            other = col[arc]
            if other <= last or other == node or other >= n_nodes:
                return arc
            # Nodes come in order, as they stand in the other's row.
            back = crow[other] + met[other]
            if back >= crow[other + 1] or col[back] != node:
                return arc
            reverse[arc] = back
            met[other] += 1
            last = other
    return -1


class GraphPerturber:
    r"""Draws perturbed views of a graph (Algorithm 2 of the paper).

    A view is complete when the share `perturbed_nodes` of the nodes has been drawn, or
    when ``||A_p - A||_F`` reaches :math:`\sigma = \sqrt{2 \cdot rate \cdot |E|}` with
    `perturbation_rate`, that is, when ``rate * |E|`` undirected edges are flipped,
    whichever comes first; 1 and None set no limit. A drawn node first gains
    `edges_added` (n_add) edges to non-neighbours and then loses `edges_removed`
    (n_rmv), maybe some of those just gained, or as many as there are, both uniformly
    and by its neighbours in the graph as perturbed so far. An edge that is removed and
    added again counts as untouched.

    Nodes are drawn by their loss weights (w), sharpened by `sharpness` (t); equal
    weights, with a `decay` of 1, perturb uniformly. As printed, Algorithm 2 takes a
    softmax over the probabilities after each decay, which makes them almost uniform and
    gives the drawn node its chance back. Here a drawn node is out, and probabilities
    keep their ratios: those within `decay_hops` (d_h) of it in the original graph are
    multiplied by `decay` (d_r); with 0 they are never drawn. Masking features is left
    to the training step.

    `graph` is a symmetric adjacency, without diagonal, indices sorted, or the arcs of
    one. It isn't changed; its weights play no part. `settings` are the fields of
    :class:`PerturbationSettings`.

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
        self, graph: csr_array | Arcs, loss_weights: ArrayLike, **settings: Any
    ) -> None:
        chosen = PerturbationSettings(**settings)
        arcs = graph if isinstance(graph, Arcs) else arcs_of(graph)
        n_nodes, n_arcs = len(arcs.crow) - 1, len(arcs.col)
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
        # Only ratios matter; the largest rate is 1, so that none overflows.
        with np.errstate(over="ignore"):
            exponent = chosen.sharpness * weights
        if not np.isfinite(exponent).all():
            raise ParameterError(
                f"sharpness={chosen.sharpness} times the loss weights is beyond "
                "floating point: lower sharpness."
            )
        rates = np.exp(exponent - exponent.max(initial=-np.inf))
        # No node can gain or lose more than it has others.
        most = max(n_nodes - 1, 0)
        n_drawn = round(chosen.perturbed_nodes * n_nodes)
        n_added = min(int(chosen.edges_added), most)
        n_removed = min(int(chosen.edges_removed), most)
        widths = Widths(
            2 * min(n_drawn * n_removed, n_arcs // 2), n_drawn * n_added, n_drawn
        )
        if 40 * widths.added > _FEW and 40 * widths.added > free_memory():
            raise NotEnoughMemoryError(
                f"edges_added={chosen.edges_added} to {n_drawn} nodes don't fit in "
                "memory: lower edges_added or perturbed_nodes."
            )
        # With a decay of 1 the surroundings need no visit.
        hops = 0 if chosen.decay == 1 else min(int(chosen.decay_hops), n_nodes)
        self._max_flips = np.inf
        if chosen.perturbation_rate is not None:
            self._max_flips = chosen.perturbation_rate * n_arcs / 2
        self.race = Race(
            arcs.crow,
            arcs.col,
            arcs.reverse,
            torch.from_numpy(rates)[None],
            torch.tensor([[n_drawn, n_added, n_removed, hops]]),
            torch.tensor([[self._max_flips, chosen.decay]], dtype=torch.float64),
            widths,
        )

    def draw(self, rng: np.random.Generator) -> Perturbation:
        """Draw one perturbed view; equal states of `rng` give equal views.

        May be called from several threads at once, each with a generator of its own.
        Warns where a `perturbation_rate` was asked for and there is nothing left to
        flip, or no node left to draw, before it is reached.
        """
        race = self.race
        key = torch.from_numpy(rng.integers(2**62, size=1))
        row = torch.empty(1, sum(race.widths.parts), dtype=torch.int32)
        flips = torch.empty(1, dtype=torch.int64)
        race.run(torch.zeros_like(key), key, row, flips)
        ends = np.cumsum(race.widths.parts)[:-1]
        removed, source, target, drawn = np.split(row[0].numpy().astype(np.int64), ends)
        nodes = drawn[drawn < race.n_nodes]
        self.warn_if_short(len(nodes), int(flips))
        added = np.stack([source, target])[:, source >= 0]
        return Perturbation(nodes, removed[removed < race.n_arcs], added)

    def warn_if_short(self, n_drawn: int, n_flips: int) -> None:
        """Warn where a view has fewer flips than `perturbation_rate` asks for."""
        limited = n_drawn == self.race.widths.drawn < self.race.n_nodes and n_flips > 0
        if n_flips < self._max_flips < np.inf and not limited:
            warnings.warn(
                f"The perturbation ended with {n_flips} flipped edges, short of the "
                f"{self._max_flips:g} that perturbation_rate asks for: no node or edge "
                "is left to change. Lower perturbation_rate, or raise edges_added or "
                "edges_removed.",
                PerturbationWarning,
                stacklevel=3,
            )
