"""The race of :mod:`sktifa.contrast.perturbation` for a GPU: many nodes at once.

The exact race goes node by node, which suits one core of a CPU. Two things make the
same law parallel. *Who is drawn when* depends on the neighbours alone: in each round,
the nodes that ring before all of their neighbours are final, and slow those. *What
a drawn node changes* depends on the nodes drawn before it only through edges that
they share, each of which has two ends, drawn once each: so all nodes decide at once,
and again in the light of the others' decisions, until none changes.

Draws are hashes (:mod:`sktifa.tensors.hashing`), shapes are fixed and nothing waits
for the device: a draw can be recorded as a CUDA graph, and a model's views are the same
alone and beside others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sktifa.contrast.perturbation import PerturbationSettings
from sktifa.tensors.hashing import exponential, integers, mixed

__all__ = ["RoundsPerturber", "RoundsViews"]

# Ends of the rounds, as shares of the nodes to draw.
_ROUNDS = (0.02, 0.08, 0.25, 0.5, 0.8, 1.0)
# Times that all nodes decide on their edges.
_SWEEPS = 3
# Edges that a node looks at beyond those that it adds or removes, in case that some are
# there already, or gone. And the most changes that it pays to look for in this way.
_SPARE = 5
_MOST_CHANGES = 16
# Where a word holds a count of nodes above, and a sum of their times below.
_COUNT = 44
_TIME_STEPS = 1 << 28
_SHORTEST, _LAST_TIME = 1e-300, 3e38
# Hits within a round from which on their times count as those of so many.
_MOST_HITS = 512


@dataclass(frozen=True)
class RoundsViews:
    """Several views of a graph.

    Attributes
    ----------
    removed_arcs : Tensor of int64, shape (n_views, n_removed)
        Positions of arcs, both directions, each once; past the end is no arc.
    added_edges : Tensor of int64, shape (n_views, 2, n_added)
        Node pairs, each edge once. The first node was perturbed.
    is_added : Tensor of bool, shape (n_views, n_added)
        False where a pair is no edge.
    nodes : Tensor of bool, shape (n_views, n_nodes)
        The perturbed nodes.
    """

    removed_arcs: Tensor
    added_edges: Tensor
    is_added: Tensor
    nodes: Tensor


class RoundsPerturber:
    """Draws views of a graph where it lies.

    They follow the law of :class:`~sktifa.contrast.perturbation.GraphPerturber`, but
    for three things that are rare: a node adjacent to nearly all others may gain fewer
    edges, one whose edges are nearly all gone may lose fewer, and a node that many
    neighbours slow within one round may be drawn a little too often. A
    `perturbation_rate` out of reach ends without a warning.

    Parameters
    ----------
    crow, col : Tensor
        CSR pattern of a symmetric graph without diagonal, columns ascending.
    weights : Tensor of shape (n_nodes,)
        Loss weights (paper: w).
    settings : PerturbationSettings
        That :meth:`takes` takes.

    Examples
    --------
    >>> import torch
    >>> crow, col = torch.tensor([0, 1, 3, 5, 7, 8]), [1, 0, 2, 1, 3, 2, 4, 3]
    >>> settings = PerturbationSettings(perturbed_nodes=0.4)
    >>> rounds = RoundsPerturber(crow, torch.tensor(col), torch.ones(5), settings)
    >>> rounds.draw(torch.tensor([0]), n_views=3).nodes.sum(1)
    tensor([2, 2, 2])
    """

    def __init__(
        self,
        crow: Tensor,
        col: Tensor,
        weights: Tensor,
        settings: PerturbationSettings,
    ) -> None:
        self.n_nodes, self.n_arcs = len(weights), len(col)
        self._device = device = col.device
        n, crow, col = self.n_nodes, crow.long(), col.long()
        exponent = settings.sharpness * weights.double()
        self._rates = (exponent - exponent.max()).exp()
        degree = crow.diff()
        nodes = torch.arange(n, device=device)
        row = torch.repeat_interleave(nodes, degree, output_size=len(col))
        self.crow, self.degree = crow, degree
        # With an arc before the first, at which sums start from 0.
        self.arc_row, self.arc_col = (
            functional.pad(ends.int(), (1, 0)) for ends in (row, col)
        )
        # Ends of all arcs in order, and a last one that is none.
        self.arc = functional.pad(row * n + col, (0, 1), value=n * n)
        self.col = functional.pad(col, (0, 1))
        rate = settings.perturbation_rate
        self.most_flips = np.inf if rate is None else rate * len(col) / 2
        self._n_drawn = round(settings.perturbed_nodes * n)
        self.n_added = settings.edges_added
        self.n_removed = settings.edges_removed
        self._decay = settings.decay if settings.decay_hops else 1.0
        # Without a wait: a sampler's thread goes on while the device works.
        early = torch.from_numpy(_earliness(self._decay))
        self._early = early.to(device, non_blocking=True)

    @staticmethod
    def takes(settings: PerturbationSettings) -> bool:
        """Whether a perturbation can be drawn in rounds.

        Not one whose decay reaches further than the neighbours, or that changes a node
        in more than 16 edges.
        """
        hops = 0 if settings.decay == 1 else settings.decay_hops
        changes = max(settings.edges_added, settings.edges_removed)
        return hops <= 1 and changes <= _MOST_CHANGES

    def draw(self, seed: Tensor, n_views: int) -> RoundsViews:
        """Draw some views.

        Parameters
        ----------
        seed : Tensor of int64, shape (1,)
            Equal seeds and settings draw equal views.
        n_views : int
            How many.

        Returns
        -------
        RoundsViews
        """
        key = mixed(seed, torch.arange(n_views, device=self._device))
        clocks = self._race(key).sort(dim=1, stable=True)
        most = max(1, self._n_drawn)
        nodes = clocks.indices[:, :most]
        place = torch.arange(nodes.shape[1], device=self._device)
        is_drawn = (place < self._n_drawn) & (clocks.values[:, :most] < torch.inf)
        changes = _Changes(self, key, nodes, is_drawn)
        for _ in range(_SWEEPS):
            changes.decide()
        return changes.views()

    def _race(self, key: Tensor) -> Tensor:
        """Return when each node's clock rings; right for those that are drawn."""
        node = torch.arange(self.n_nodes, device=self._device)
        bits = mixed(mixed(key[:, None], 0), node)
        clocks = exponential(bits) / self._rates
        if self._decay == 1 or not self.n_arcs:
            return clocks
        # Where the sums over each row's arcs end, with one before the first row.
        group = torch.arange(len(key), device=self._device)[:, None]
        ends = group * len(self.arc_row) + self.crow
        waiting = torch.ones_like(clocks, dtype=torch.bool)
        until = clocks.new_zeros(len(key), 1)
        for share in _ROUNDS:
            # The last node of the round among all clocks in order.
            last = max(0, math.ceil(share * self._n_drawn) - 1)
            since = until
            until = clocks.float().sort(dim=1).values[:, last, None].double()
            until.clamp_(max=_LAST_TIME)
            rules = since, until - since, ends
            # Those that ring although slowed by all neighbours that might ring before
            # are sure to ring, and slow the others.
            rings = waiting & (clocks <= until)
            slowed = self._slowed(clocks, clocks, rings, *rules)
            rings &= slowed <= until
            slowed = self._slowed(clocks, slowed, rings, *rules)
            clocks = torch.where(waiting, slowed, clocks)
            waiting = waiting & ~rings
        # Neighbours that still wait for one another: the first ones ring.
        rings = waiting & (clocks <= until)
        slowed = self._slowed(clocks, clocks, rings, *rules)
        return torch.where(waiting, slowed, clocks)

    def _slowed(
        self,
        clocks: Tensor,
        now: Tensor,
        rings: Tensor,
        since: Tensor,
        span: Tensor,
        ends: Tensor,
    ) -> Tensor:
        """Let the clocks that ring slow those neighbours that ring later by now.

        Ringing is counted from `since`, in whole steps, whose sums are the same in any
        order.
        """
        step = span.clamp(min=_SHORTEST) / _TIME_STEPS
        time = (now - since) / step
        word = time.clamp(0, _TIME_STEPS).long().add_(1 << _COUNT).mul_(rings)
        time = time.float()
        later = time.index_select(1, self.arc_row)
        words = word.index_select(1, self.arc_col)
        words.mul_(later > time.index_select(1, self.arc_col))
        words = words.flatten().cumsum(0)[ends].diff(dim=1)
        hits = words >> _COUNT
        mean = (words & ((1 << _COUNT) - 1)) / hits.clamp(min=1) * step
        mean = since + mean * self._early[hits.clamp(max=_MOST_HITS)]
        left = (clocks - mean).clamp_(min=_SHORTEST) / self._decay**hits
        return torch.where(hits > 0, mean + left, clocks)


def _earliness(decay: float) -> np.ndarray:
    """When one stroke slows a clock as hits at even distances do, by their number.

    Hits at ordered times ``t_m`` act as if all came at their mean weighted by
    ``decay^m``; of h evenly spread ones, ``t_m`` is ``m / (h + 1)`` of the time. What
    is returned is that mean as a share of the plain one.
    """
    weights = max(decay, 1e-9) ** np.arange(_MOST_HITS)
    weighted = np.cumsum(weights * np.arange(1, _MOST_HITS + 1))
    share = 2 * weighted / np.cumsum(weights)
    return np.pad(share / np.arange(2, _MOST_HITS + 2), (1, 0))


class _Changes:
    """What the nodes of one draw change, each given what those before it change.

    Each view has its nodes in the order drawn, K places. Edges are told by their other
    end: row k of the tables `gained` and `lost` names those that the node at place k
    chose, -1 for none.

    An edge matters to its two ends only, and the one drawn first chooses first. So the
    nodes decide all at once, in sweeps: after the k-th, those are right that depend on
    a chain of k - 1 others at most, and long chains are rare.
    """

    def __init__(
        self,
        rounds: RoundsPerturber,
        key: Tensor,
        nodes: Tensor,
        is_drawn: Tensor,
    ) -> None:
        device = nodes.device
        self.rounds, self.nodes = rounds, nodes
        self.n_places = nodes.shape[1]
        self.group = torch.arange(len(nodes), device=device)[:, None, None]
        self.place = torch.arange(self.n_places, device=device)[:, None]
        self.node = nodes[:, :, None]
        self._let_draw(is_drawn)
        self.gains = _Picker(rounds.n_added, nodes)
        self.losses = _Picker(rounds.n_removed, nodes)

        def bits(purpose: int, width: int) -> Tensor:
            number = torch.arange(width, device=device) << 32
            return mixed(mixed(key[:, None, None], purpose), self.node + number)

        # Where a node looks for new neighbours, and how it goes through its edges.
        n = rounds.n_nodes
        n_nodes = nodes.new_full((), n)
        partner, is_candidate = self.gains.choices(bits(1, self.gains.width), n_nodes)
        ends = self.node * n + partner
        self.partner, self.partner_place = partner, self._places_of(partner)
        self.is_candidate = is_candidate & (partner != self.node) & self.is_drawn
        self.was_arc = rounds.arc[torch.searchsorted(rounds.arc, ends)] == ends
        self.edge_bits = bits(2, self.losses.width)
        self.gained = nodes.new_full((*nodes.shape, max(1, rounds.n_added)), -1)
        self.lost = nodes.new_full((*nodes.shape, max(1, rounds.n_removed)), -1)

    def decide(self) -> None:
        """Let all nodes choose, in the light of the last choices of those before."""
        rounds, lost = self.rounds, _with_empty_row(self.lost)
        is_edge = self._names(_with_empty_row(self.gained), self.partner_place)
        is_edge |= self.was_arc
        is_edge &= ~self._names(lost, self.partner_place)
        chosen, gains = self.gains.first(self.is_candidate & ~is_edge)
        self.gained = self.partner.gather(2, chosen).masked_fill_(~gains, -1)
        self.is_new = gains & ~self.was_arc.gather(2, chosen)

        # A node's edges: original ones, its own new ones, new ones of nodes before it.
        first, n_come, come = self._come()
        start, degree = rounds.crow[self.node], rounds.degree[self.node]
        size = degree + rounds.n_added + n_come
        edge, is_candidate = self.losses.choices(self.edge_bits, size)
        own = edge - degree
        is_old = own < 0
        is_own = (own < rounds.n_added) & ~is_old
        own_slot = own.clamp(0, self.gained.shape[2] - 1)
        arc = (start + edge).masked_fill_(~is_old, rounds.n_arcs)
        come_from = come[(first + own - rounds.n_added).clamp_(0, len(come) - 1)]
        other = torch.where(is_own, self.gained.gather(2, own_slot), come_from)
        other = torch.where(is_old, rounds.col[arc], other)
        # An edge that was lost may be back by the node's own choice.
        is_edge = (self.gained[:, :, None] == other[..., None]).any(3) & is_old
        is_edge |= ~self._names(lost, self._places_of(other))
        is_edge = torch.where(is_own, self.is_new.gather(2, own_slot), is_edge)
        chosen, loses = self.losses.first(is_candidate & self.is_drawn & is_edge)
        self.lost = other.gather(2, chosen).masked_fill_(~loses, -1)
        self.lost_arc = arc.gather(2, chosen).masked_fill_(~loses, rounds.n_arcs)

    def views(self) -> RoundsViews:
        """Return what the choices come to."""
        rounds, n, end = self.rounds, self.rounds.n_nodes, self.rounds.n_arcs
        if rounds.most_flips < np.inf:
            self._stop_at_limit()
        gained, lost = _with_empty_row(self.gained), _with_empty_row(self.lost)
        same = self.gained[..., None] == self.lost[:, :, None]
        # The end of an edge that is drawn later has the last word.
        is_gone = self.lost_arc < end
        is_gone &= ~self._names(gained, self._places_of(self.lost, later=True))
        is_added = self.is_new & ~same.any(3)
        is_added &= ~self._names(lost, self._places_of(self.gained, later=True))
        # Choices that the sweeps have left at odds: the end drawn first has it.
        before = self._places_of(self.lost)
        is_gone &= same.any(2) | ~self._names(lost, before)
        before = self._places_of(self.gained)
        is_added &= self._names(lost, before) | ~self._names(gained, before)
        back = torch.searchsorted(rounds.arc, self.lost * n + self.node)
        arcs = torch.stack([self.lost_arc, back], dim=1)
        edges = torch.stack([self.node.expand_as(self.gained), self.gained], dim=1)
        return RoundsViews(
            arcs.masked_fill_(~is_gone[:, None], end).flatten(1),
            edges.clamp_(min=0).flatten(2),
            is_added.flatten(1),
            self.places < self.n_places,
        )

    def _let_draw(self, is_drawn: Tensor) -> None:
        self.is_drawn = is_drawn[..., None]
        # Nodes that are not drawn have the place after the last, whose row is empty.
        self.places = self.nodes.new_full(
            (len(self.nodes), self.rounds.n_nodes), self.n_places
        ).scatter_(1, self.nodes, self.place.T.masked_fill(~is_drawn, self.n_places))

    def _places_of(self, others: Tensor, later: bool = False) -> Tensor:
        """Places of others that were drawn before the node, or later; else the last."""
        place = self.places.gather(1, others.clamp(min=0).flatten(1)).view_as(others)
        is_other = place <= self.place if later else place >= self.place
        return place.masked_fill_(is_other, self.n_places)

    def _names(self, table: Tensor, place: Tensor) -> Tensor:
        """Whether the row at a place names the node."""
        return (table[self.group, place] == self.node[..., None]).any(3)

    def _come(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sort new edges by their other end: a node's first, its number, from whom."""
        n, n_slots = self.rounds.n_nodes, self.gained[0].numel()
        width = self.gained.shape[2]
        slot = torch.arange(n_slots, device=self.nodes.device).view(-1, width)
        ends = (self.group * n + self.gained) * n_slots + slot
        ends.masked_fill_(~self.is_new, len(self.nodes) * n * n_slots)
        ends = ends.flatten().sort().values
        of_node = (self.group * n + self.node) * n_slots
        first = torch.searchsorted(ends, of_node)
        before = torch.searchsorted(ends, of_node + self.place * width)
        group = (ends // (n * n_slots)).clamp_(max=len(self.nodes) - 1)
        return first, before - first, self.nodes[group, ends % n_slots // width]

    def _stop_at_limit(self) -> None:
        """Undo the choices of nodes after the one that reaches the limit of flips."""
        gains, loses = (self.gained >= 0).sum(2), (self.lost >= 0).sum(2)
        old = (self.lost_arc < self.rounds.n_arcs).sum(2)
        flips = 2 * (self.is_new.sum(2) + old) - gains - loses
        before = functional.pad(flips.cumsum(1)[:, :-1], (1, 0))
        is_over = (before >= self.rounds.most_flips).cumsum(1) > 0
        self._let_draw(self.is_drawn[..., 0] & ~is_over)
        over = is_over[..., None]
        self.is_new = self.is_new & ~over
        self.gained = self.gained.masked_fill(over, -1)
        self.lost = self.lost.masked_fill(over, -1)
        self.lost_arc = self.lost_arc.masked_fill(over, self.rounds.n_arcs)


def _with_empty_row(table: Tensor) -> Tensor:
    return functional.pad(table, (0, 0, 0, 1), value=-1)


class _Picker:
    """Picks the first `count` entries of those that a node looks through."""

    def __init__(self, count: int, nodes: Tensor) -> None:
        most, self.width = max(1, count), max(1, count) + _SPARE
        self.position = number = torch.arange(self.width, device=nodes.device)
        self.is_asked = number[:most] < count
        self.numbers = (number[:most] + 1).expand(*nodes.shape, most).contiguous()
        self.is_before = number < number[:, None]

    def choices(self, bits: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Choose numbers below `size`, in random order, and say which of them count.

        All numbers, where the width has room for them; otherwise independent ones, of
        which those count that have not come before.
        """
        missing = self.position >= size
        order = (bits & ((1 << 62) - 1)).masked_fill_(missing, 1 << 62).argsort(dim=-1)
        order.masked_fill_(missing, 0)
        choice = torch.where(size <= self.width, order, integers(bits, size))
        again = (choice[..., None] == choice[..., None, :]) & self.is_before
        return choice, ~(again.any(-1) | missing)

    def first(self, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Find the first wanted entries of each row, and say which there are."""
        chosen = torch.searchsorted(wanted.cumsum(-1), self.numbers)
        is_there = (chosen < self.width) & self.is_asked
        return chosen.clamp_(max=self.width - 1), is_there
