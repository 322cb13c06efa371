"""The exponential race that draws a perturbation, many of them in one call.

A perturbation doesn't depend on the model, so that those to come can be drawn while
the models train: by threads on the CPU, which hold no lock, and on a GPU by a kernel
that runs a race in each of its programs. Draws are hashes
(:mod:`sktifa.tensors.hashing`) of the race's key: a race ends the same wherever it is
drawn, and whatever is drawn beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.hashing import FACTORS, KEY_STEP, STEP
from sktifa.tensors.jit import njit

__all__ = ["ArcWeights", "LaidOut", "Race", "Widths"]

# A compiled kernel takes no tuple of another module.
_FACTOR_1, _FACTOR_2 = FACTORS


@dataclass(frozen=True)
class Widths:
    """Room in a row for the most that a race can change."""

    removed: int  # arcs
    added: int  # edges
    drawn: int  # nodes

    @property
    def flips(self) -> int:
        """Arcs that a perturbed graph differs in."""
        return self.removed + 2 * self.added

    @property
    def parts(self) -> list[int]:
        """A row's: arcs removed, sources and targets of edges added, nodes drawn."""
        return [self.removed, self.added, self.added, self.drawn]


@dataclass(frozen=True)
class ArcWeights:
    """Weights of a graph, on the device that the flips are wanted on."""

    arc: Tensor  # all float32
    degree: Tensor  # their sums by node
    added: Tensor  # of an edge that is added, ()

    @cached_property
    def lost(self) -> Tensor:
        """What each arc loses that is removed, and after the last one nothing."""
        return functional.pad(-self.arc, (0, 1))


@dataclass
class LaidOut:
    """What races come to, as layers take it; leading dimensions tell races apart."""

    # Ends of the arcs that differ, int32, both directions of each edge, and what their
    # weights change by, float32; 0 is no arc. The last dimension is `widths.flips`.
    target: Tensor
    source: Tensor
    change: Tensor
    # Weighted degrees, float32, and which nodes were drawn, bool, of (..., n_nodes).
    degree: Tensor
    drawn: Tensor

    def each(self, do: Callable[[Tensor], Tensor]) -> LaidOut:
        """Do the same to all tensors."""
        return LaidOut(*(do(part) for part in vars(self).values()))


@dataclass(frozen=True)
class Race:
    """What races on one symmetric graph need, of one model or several."""

    crow: Tensor  # int64
    col: Tensor  # int32, ascending in a row
    reverse: Tensor  # int32 or int64: position of each arc's reverse
    # What a node's clock runs at, before any decay: float64 of (n_models, n_nodes).
    rates: Tensor
    # Most nodes to draw, edges that one gains and loses, and hops of the decay: int64
    # of (n_models, 4).
    counts: Tensor
    # Flipped edges that end a race, and the decay: float64 of (n_models, 2).
    limits: Tensor
    widths: Widths

    @classmethod
    def stacked(cls, races: Sequence[Race]) -> Race:
        """Put races on the same graph side by side."""
        widths = [race.widths for race in races]
        return replace(
            races[0],
            rates=torch.cat([race.rates for race in races]),
            counts=torch.cat([race.counts for race in races]),
            limits=torch.cat([race.limits for race in races]),
            widths=Widths(
                max(w.removed for w in widths),
                max(w.added for w in widths),
                max(w.drawn for w in widths),
            ),
        )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.rates.shape[1]

    @property
    def n_arcs(self) -> int:
        """Number of arcs."""
        return len(self.col)

    def run(self, models: Tensor, keys: Tensor, rows: Tensor, flips: Tensor) -> None:
        """Run races on the CPU; may be called from several threads at once.

        A race is of a model and has a key of its draws, int64 both. Its row, int32 of
        (n_races, sum(widths.parts)), takes what it changes: positions of removed arcs,
        ascending; both ends of added edges; the nodes drawn, in order. Parts are filled
        up with n_arcs, -1, -1 and n_nodes. `flips` takes the number of undirected edges
        in which the graphs differ.
        """
        shared = self.crow.numpy(), self.col.numpy(), self.reverse.numpy()
        parts = self.widths.parts
        fill = np.repeat([self.n_arcs, -1, -1, self.n_nodes], parts)
        bounds = np.cumsum(parts)[:-1]
        rates, changed, n_flips = self.rates.numpy(), rows.numpy(), flips.numpy()
        times, lists, stamps, ends, kept, added_kept = self._scratch()
        for i, (model, key) in enumerate(
            zip(models.tolist(), keys.tolist(), strict=True)
        ):
            changed[i] = fill
            stamps[:], kept[:] = -1, True
            n_flips[i] = _race(
                *shared,
                rates[model],
                key,
                *self.counts[model].tolist(),
                *self.limits[model].tolist(),
                *np.split(changed[i], bounds),
                *times,
                *lists,
                *stamps,
                *ends,
                kept,
                added_kept,
            )

    def _scratch(self) -> tuple[NDArray[Any], ...]:
        """Return room for a race to work in.

        Two times of each node, five lists of nodes or arcs, three numbers of each node
        that begin at -1, two numbers of each end of an added edge, which arcs are kept,
        and which added edges.
        """
        n_added = int((self.counts[:, 0] * self.counts[:, 1]).max())
        return (
            np.empty((2, self.n_nodes)),
            np.empty((5, self.n_nodes + 1), np.int64),
            np.empty((3, self.n_nodes), np.int64),
            np.empty((2, 2 * n_added), np.int64),
            np.empty(self.n_arcs, np.bool_),
            np.empty(n_added, np.bool_),
        )

    def room(self, n: int, device: torch.device, pinned: bool = False) -> LaidOut:
        """Make room for what so many races come to."""

        def empty(width: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(n, width, dtype=dtype, device=device, pin_memory=pinned)

        flips = self.widths.flips
        return LaidOut(
            empty(flips, torch.int32),
            empty(flips, torch.int32),
            empty(flips, torch.float32),
            empty(self.n_nodes, torch.float32),
            empty(self.n_nodes, torch.bool),
        )

    def lay_out(
        self, rows: Tensor, weights: ArcWeights, firsts: Tensor, out: LaidOut
    ) -> None:
        """Turn rows into arcs that differ, on the CPU.

        Rows are of :meth:`run`, and `out`, which takes the arcs, of :meth:`room`.
        `firsts` are added to the nodes of each race.
        """
        removed, *ends, nodes = rows.split(self.widths.parts, 1)
        arc, shape = removed.flatten(), removed.shape
        # What fills rows up is an arc without weight, from node 0 to itself.
        to, of, lost = (
            part.index_select(0, arc).view(shape)
            for part in (self._target, self._source, weights.lost)
        )
        gained = weights.added * (ends[0] >= 0)
        a, b = (end.clamp(min=0) for end in ends)
        target, source = torch.cat([to, a, b], 1), torch.cat([of, b, a], 1)
        torch.cat([lost, gained, gained], 1, out=out.change)
        out.degree.copy_(weights.degree)
        out.degree.scatter_add_(1, target.long(), out.change).clamp_(min=0)
        first = firsts.int()[:, None]
        torch.add(target, first, out=out.target)
        torch.add(source, first, out=out.source)
        drawn = torch.zeros(len(rows), self.n_nodes + 1, dtype=torch.bool)
        out.drawn.copy_(drawn.scatter_(1, nodes.long(), True)[:, :-1])

    @cached_property
    def _target(self) -> Tensor:
        """Where each arc leads, and after the last one node 0."""
        return functional.pad(self.col[self.reverse], (0, 1))

    @cached_property
    def _source(self) -> Tensor:
        return functional.pad(self.col, (0, 1))


@njit(error_model="numpy", no_cpython_wrapper=True)
def _mixed(key, number):
    """``sktifa.tensors.hashing.mixed`` of one number."""
    bits = key * KEY_STEP + (number + 1) * STEP
    bits = (bits ^ ((bits >> 30) & ((1 << 34) - 1))) * _FACTOR_1
    bits = (bits ^ ((bits >> 27) & ((1 << 37) - 1))) * _FACTOR_2
    return bits ^ ((bits >> 31) & ((1 << 33) - 1))


@njit(error_model="numpy", no_cpython_wrapper=True)
def _below(bits, size):
    """Turn bits into a uniform number below `size`."""
    return (((bits >> 32) & 0xFFFFFFFF) * size) >> 32


@njit(error_model="numpy", no_cpython_wrapper=True)
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


@njit(error_model="numpy", no_cpython_wrapper=True)
def _slow_down(node, now, decay, hops, crow, col, clocks, visited, queue):
    """Decay the rates of all nodes within some hops of a drawn one, once each."""
    visited[node] = node
    queue[0] = node
    begin, end = 0, 1
    for _ in range(hops):
        level_end = end
        for position in range(begin, level_end):
            near = queue[position]
            for arc in range(crow[near], crow[near + 1]):
                other = col[arc]
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


@njit(error_model="numpy", no_cpython_wrapper=True)
def _bucket_of(clock, begin, scale, n_buckets):
    """Return where a clock belongs; after all buckets come those beyond."""
    place = (clock - begin) * scale
    return np.int64(place) if place < n_buckets else n_buckets


@njit(error_model="numpy", no_cpython_wrapper=True)
def _deal(wanted, clocks, first, after):
    """Deal the nodes beyond all buckets anew; return where these begin, and 1 / width.

    They reach about twice as far as it would take to draw those that are wanted, if no
    clock moved any more. A width of infinity: there are no nodes that can be drawn.
    """
    count, begin, beyond = 0, np.inf, -1
    node = first[-1]
    while node >= 0:
        following, clock = after[node], clocks[node]
        if clock < np.inf:
            after[node], beyond = beyond, node
            begin = min(begin, clock)
            count += 1
        node = following
    if count == 0:
        return 0.0, 0.0
    step = count // 512 + 1
    some = np.empty((count - 1) // step + 1)
    node = beyond
    for place in range(count):
        if place % step == 0:
            some[place // step] = clocks[node]
        node = after[node]
    some.sort()
    n_buckets = len(first) - 1
    reach = some[min(len(some) - 1, len(some) * wanted // count)] - begin
    scale = n_buckets / (2 * reach)
    if not 0 < scale < np.inf:  # as good as together
        scale = 1.0
    first[:] = -1
    node = beyond
    while node >= 0:
        following = after[node]
        bucket = _bucket_of(clocks[node], begin, scale, n_buckets)
        after[node], first[bucket] = first[bucket], node
        node = following
    return begin, scale


@njit(error_model="numpy")
def _race(
    crow,
    col,
    reverse,
    rates,
    key,
    max_nodes,
    edges_added,
    edges_removed,
    hops,
    max_flips,
    decay,
    removed,
    sources,
    targets,
    drawn,
    clocks,
    keys,
    heap,
    first,
    after,
    queue,
    incident,
    adjacent,
    visited,
    last,
    ends,
    following,
    kept,
    added_kept,
):
    """Run one race, and return the number of edges in which the graphs differ.

    The two ends of added edge e are the entries 2e and 2e + 1 of linked lists, one for
    each node: `last` is where a node's begins, and `following` leads on. A node is
    drawn once at most, so its number stamps who is `adjacent` and `visited`.
    """
    n_nodes, n_arcs = len(rates), len(col)
    n_drawn = flips = n_added = 0
    # A number for each node's clock, and others for the choices, one after another.
    # (For literals as arguments numba would compile functions anew.)
    clock_key, choice_key = _mixed(key, np.int64(0)), _mixed(key, np.int64(1))
    n_choices = np.int64(0)

    # Clocks only ever move back. So a node's bucket, and its key in the heap, are lower
    # bounds, and are brought up to date when it is their turn. In the heap are those of
    # the bucket in turn alone: one or two, mostly.
    first[:] = -1
    for node in range(n_nodes):
        share = ((_mixed(clock_key, node) >> 11) & ((1 << 53) - 1)) * 2.0**-53
        clocks[node] = np.inf
        if rates[node] > 0:
            clocks[node] = -math.log1p(-share) / rates[node]
        after[node], first[n_nodes] = first[n_nodes], node
    bucket, size = n_nodes, 0
    begin = scale = 0.0

    while n_drawn < max_nodes and flips < max_flips:
        if size == 0:
            bucket += 1
            while bucket < n_nodes and first[bucket] < 0:
                bucket += 1
            if bucket >= n_nodes:
                begin, scale = _deal(max_nodes - n_drawn, clocks, first, after)
                if scale == 0:  # only nodes of rate 0 are left
                    break
                bucket = 0
            node, first[bucket] = first[bucket], -1
            while node >= 0:
                further = after[node]
                later = _bucket_of(clocks[node], begin, scale, n_nodes)
                if later > bucket:
                    after[node], first[later] = first[later], node
                else:
                    heap[size], keys[node] = node, clocks[node]
                    size += 1
                node = further
            for position in range(size // 2 - 1, -1, -1):
                _sift_down(heap, keys, position, size)
            continue
        node = heap[0]
        now = keys[node]
        later = _bucket_of(clocks[node], begin, scale, n_nodes)
        if clocks[node] > now and later == bucket:
            keys[node] = clocks[node]
            _sift_down(heap, keys, np.int64(0), size)
            continue
        size -= 1
        heap[0] = heap[size]
        if size > 0:
            _sift_down(heap, keys, np.int64(0), size)
        if later > bucket:
            after[node], first[later] = first[later], node
            continue
        drawn[n_drawn] = node
        n_drawn += 1

        # The node's edges at present: original arcs, and below 0 the added ones.
        degree = 0
        for arc in range(crow[node], crow[node + 1]):
            if kept[arc]:
                adjacent[col[arc]] = node
                incident[degree] = arc
                degree += 1
        entry = last[node]
        while entry >= 0:
            if added_kept[entry >> 1]:
                adjacent[ends[entry ^ 1]] = node
                incident[degree] = -1 - (entry >> 1)
                degree += 1
            entry = following[entry]

        # A try hits one of the f non-neighbours with probability f / n: so few of them
        # that this is slow means a degree for which the look above was as slow.
        for _ in range(edges_added):
            if degree == n_nodes - 1:
                break
            other = node
            while other == node or adjacent[other] == node:
                other = _below(_mixed(choice_key, n_choices), n_nodes)
                n_choices += 1
            adjacent[other] = node
            arc, end = crow[node], crow[node + 1]
            while arc < end:
                middle = (arc + end) >> 1
                if col[middle] < other:
                    arc = middle + 1
                else:
                    end = middle
            if arc < crow[node + 1] and col[arc] == other:  # a removed one
                kept[arc] = kept[reverse[arc]] = True
                flips -= 1
                incident[degree] = arc
            else:
                entry = 2 * n_added
                ends[entry], ends[entry + 1] = node, other
                following[entry], following[entry + 1] = last[node], last[other]
                last[node], last[other] = entry, entry + 1
                added_kept[n_added] = True
                incident[degree] = -1 - n_added
                n_added += 1
                flips += 1
            degree += 1

        for _ in range(edges_removed):
            if degree == 0:
                break
            choice = _below(_mixed(choice_key, n_choices), degree)
            n_choices += 1
            edge = incident[choice]
            degree -= 1
            incident[choice] = incident[degree]
            if edge >= 0:
                kept[edge] = kept[reverse[edge]] = False
                flips += 1
            else:
                added_kept[-1 - edge] = False
                flips -= 1

        _slow_down(node, now, decay, hops, crow, col, clocks, visited, queue)

    n_removed = 0
    for arc in range(n_arcs):
        if not kept[arc]:
            removed[n_removed] = arc
            n_removed += 1
    n_left = 0
    for edge in range(n_added):
        if added_kept[edge]:
            sources[n_left] = ends[2 * edge]
            targets[n_left] = ends[2 * edge + 1]
            n_left += 1
    return flips
