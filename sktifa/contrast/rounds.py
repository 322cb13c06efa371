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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sktifa.contrast.perturbation import GraphPerturber, PerturbationSettings
from sktifa.tensors.hashing import exponential, integers, mixed

__all__ = ["BlockViews", "RoundsPerturber"]

# Ends of the rounds, as shares of the nodes to draw; the last ones take up the nodes
# that had to wait for a neighbour.
_ROUNDS = (0.02, 0.1, 0.25, 0.5, 0.75, 1.0, 1.0)
# Times that all nodes decide on their edges.
_SWEEPS = 4
# Edges that a node looks at beyond those that it adds or removes, in case that some are
# there already, or gone. And the most changes that it pays to look for in this way.
_SPARE = 5
_MOST_CHANGES = 16
# Arcs, counted for each model and view, that are raced at a time: about 1 GB.
_ARCS_AT_ONCE = 1 << 24
# Where a word holds a count of nodes above, and a sum of their times below.
_COUNT = 44
_TIME_STEPS = 1 << 28
_SMALLEST, _LAST = 1e-300, 3e38


@dataclass(frozen=True)
class BlockViews:
    """Several views of a block-diagonal graph, a block a model.

    Attributes
    ----------
    removed_arcs : Tensor of int64, shape (n_views, n_removed)
        Positions in the arcs of all blocks, both directions, each once; past the end
        is no arc.
    added_edges : Tensor of int64, shape (n_views, 2, n_added)
        Node pairs, each edge once. The first node was perturbed.
    is_added : Tensor of bool, shape (n_views, n_added)
        False where a pair is no edge.
    nodes : Tensor of bool, shape (n_views, n_models, n_nodes)
        The perturbed nodes.
    """

    removed_arcs: Tensor
    added_edges: Tensor
    is_added: Tensor
    nodes: Tensor


class RoundsPerturber:
    """Draws views of copies of one graph, each copy by settings of its own.

    They follow the law of :class:`~sktifa.contrast.perturbation.GraphPerturber`, but
    for three things that are rare: a node adjacent to nearly all others may gain fewer
    edges, one whose edges are nearly all gone may lose fewer, and a node that many
    neighbours slow within one round may be drawn a little too often. A
    `perturbation_rate` out of reach ends without a warning.

    Parameters
    ----------
    perturbers : sequence of GraphPerturber
        Of the same graph; what :meth:`takes` refuses can't be drawn in rounds.
    device : torch.device
        Where to draw.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> path = csr_array(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1))
    >>> one = GraphPerturber(path, np.ones(5), perturbed_nodes=0.4)
    >>> rounds = RoundsPerturber([one, one, one], torch.device("cpu"))
    >>> views = rounds.draw(torch.tensor([0, 1, 2]), torch.tensor(0), n_views=2)
    >>> views.nodes.sum(2)
    tensor([[2, 2, 2],
            [2, 2, 2]])
    """

    def __init__(
        self, perturbers: Sequence[GraphPerturber], device: torch.device
    ) -> None:
        first = perturbers[0]
        self._lay_out(
            torch.from_numpy(first._indptr).to(device),
            torch.from_numpy(first._indices).to(device),
            torch.from_numpy(np.stack([p._rates for p in perturbers])).to(device),
            [
                (
                    p._max_nodes,
                    p._max_flips,
                    p._edges_added,
                    p._edges_removed,
                    p._decay if p._decay_hops else 1.0,
                )
                for p in perturbers
            ],
        )

    @classmethod
    def of_subgraph(
        cls,
        crow: Tensor,
        col: Tensor,
        weights: Tensor,
        settings: PerturbationSettings,
    ) -> RoundsPerturber:
        """Prepare one model's views of a graph that lies on a device.

        Parameters
        ----------
        crow, col : Tensor
            CSR pattern of a symmetric graph without diagonal, columns ascending.
        weights : Tensor of shape (n_nodes,)
            Loss weights (paper: w).
        settings : PerturbationSettings
            That :meth:`takes` takes.
        """
        self = cls.__new__(cls)
        n, exponent = len(weights), settings.sharpness * weights.double()
        rate = settings.perturbation_rate
        self._lay_out(
            crow,
            col,
            (exponent - exponent.max()).exp()[None],
            [
                (
                    round(settings.perturbed_nodes * n),
                    np.inf if rate is None else rate * len(col) / 2,
                    settings.edges_added,
                    settings.edges_removed,
                    settings.decay if settings.decay_hops else 1.0,
                )
            ],
        )
        return self

    @staticmethod
    def takes(perturber: GraphPerturber | PerturbationSettings) -> bool:
        """Whether a perturbation can be drawn in rounds.

        Not one whose decay reaches further than the neighbours, or that changes a node
        in more than 16 edges.
        """
        if isinstance(perturber, PerturbationSettings):
            p = perturber
            hops = 0 if p.decay == 1 else p.decay_hops
            changes = max(p.edges_added, p.edges_removed)
        else:
            hops = perturber._decay_hops
            changes = max(perturber._edges_added, perturber._edges_removed)
        return hops <= 1 and changes <= _MOST_CHANGES

    def _lay_out(
        self,
        crow: Tensor,
        col: Tensor,
        rates: Tensor,
        rules: Sequence[tuple[int, float, int, int, float]],
    ) -> None:
        self._n_models, self._n_nodes = rates.shape
        self._n_arcs, self._device = len(col), col.device
        device, n = col.device, self._n_nodes
        crow, col = crow.long(), col.long()
        degree = crow.diff()
        nodes = torch.arange(n, device=device)
        row = torch.repeat_interleave(nodes, degree, output_size=len(col))
        self._crow, self._degree = crow, degree
        self._arc_row, self._arc_col = row.int(), col.int()
        # Ends of all arcs in order, and a last one that is none.
        self._arc = functional.pad(row * n + col, (0, 1), value=n * n)
        self._col = functional.pad(col, (0, 1))
        self._rates = rates.double()
        count, flips, added, removed, decay = zip(*rules, strict=True)
        self._most = max(1, *count)
        self._most_added = max(1, *added)
        self._most_removed = max(1, *removed)
        self._slows = min(decay) < 1 and len(col) > 0
        self._limited = min(flips) < np.inf

        def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        self._count = column(count, torch.int64)
        self._flips = column(flips, torch.float64)
        self._added = column(added, torch.int64)[:, :, None]
        self._removed = column(removed, torch.int64)[:, :, None]
        self._decay = column(decay, torch.float64)
        shares = column(_ROUNDS, torch.float64)[:, :, None]
        # Position of the last node of each round among all clocks in order.
        self._last = (self._count * shares).ceil().long().sub_(1).clamp_(min=0)

    def draw(self, seeds: Tensor, first_view: Tensor, n_views: int) -> BlockViews:
        """Draw some views of all models.

        Parameters
        ----------
        seeds : Tensor of int64, shape (n_models,)
            Equal seeds and settings draw equal views, whatever the models beside.
        first_view : Tensor of int64, scalar
            Number of the first view; the others follow.
        n_views : int
            How many of each model.

        Returns
        -------
        BlockViews
        """
        at_once = max(1, _ARCS_AT_ONCE // max(1, self._n_models * self._n_arcs))
        parts = [
            self._draw(seeds, first_view + start, min(at_once, n_views - start))
            for start in range(0, n_views, at_once)
        ]
        if len(parts) == 1:
            return parts[0]
        names = BlockViews.__dataclass_fields__
        return BlockViews(*(torch.cat([getattr(p, k) for p in parts]) for k in names))

    def _draw(self, seeds: Tensor, first_view: Tensor, n_views: int) -> BlockViews:
        views = first_view + torch.arange(n_views, device=self._device)
        key = mixed(seeds, views[:, None]).flatten()
        clocks = self._race(key, n_views).sort(dim=1, stable=True)
        nodes = clocks.indices[:, : self._most]
        place = torch.arange(nodes.shape[1], device=self._device)
        is_drawn = place < self._count.repeat(n_views, 1)
        is_drawn &= clocks.values[:, : self._most] < torch.inf
        changes = _Changes(self, key, n_views, nodes, is_drawn)
        for _ in range(_SWEEPS):
            changes.decide()
        return changes.views()

    def _race(self, key: Tensor, n_views: int) -> Tensor:
        """Return when each node's clock rings; right for those that are drawn."""
        node = torch.arange(self._n_nodes, device=self._device)
        bits = mixed(mixed(key[:, None], 0), node)
        clocks = exponential(bits) / self._rates.repeat(n_views, 1)
        if not self._slows:
            return clocks
        decay = self._decay.repeat(n_views, 1)
        waiting = torch.ones_like(clocks, dtype=torch.bool)
        since = torch.zeros_like(decay)
        for last in self._last.repeat(1, n_views, 1):
            until = clocks.float().sort(dim=1).values.gather(1, last).clamp_(max=_LAST)
            # Those that ring although slowed by all neighbours that might ring before
            # are sure to ring, and slow the others.
            rings = waiting & (clocks <= until)
            slowed = self._slowed(clocks, clocks, rings, since, decay)
            rings &= slowed <= until
            slowed = self._slowed(clocks, slowed, rings, since, decay)
            clocks = slowed.where(waiting, clocks)
            waiting = waiting & ~rings
            since = until
        # Neighbours that still wait for one another: the first ones ring.
        rings = waiting & (clocks <= since)
        slowed = self._slowed(clocks, clocks, rings, since, decay)
        return slowed.where(waiting, clocks)

    def _slowed(
        self, clocks: Tensor, now: Tensor, rings: Tensor, since: Tensor, decay: Tensor
    ) -> Tensor:
        """Let the clocks that ring slow those neighbours that ring later by now."""
        col, row = self._arc_col, self._arc_row
        ring = now.masked_fill(~rings, 0)
        end = ring.amax(1, keepdim=True).clamp_(min=_SMALLEST)
        # In whole steps, whose sums are the same in any order.
        word = ring.div_(end).mul_(_TIME_STEPS).long().add_(1 << _COUNT)
        word.masked_fill_(~rings, 0)
        time = (now / end).float()
        is_later = time.index_select(1, row) > time.index_select(1, col)
        words = self._row_sums(word.index_select(1, col).mul_(is_later))
        hits = words >> _COUNT
        mean = (words & ((1 << _COUNT) - 1)) / hits * (end / _TIME_STEPS)
        stroke = _one_stroke(mean, since, hits, decay)
        left = (clocks - stroke).clamp_(min=_SMALLEST) / decay.pow(hits)
        return torch.where(hits > 0, stroke + left, clocks)

    def _row_sums(self, of_arcs: Tensor) -> Tensor:
        """Sum integers over each row's arcs; sums that overflow still differ right."""
        group = torch.arange(len(of_arcs), device=self._device)[:, None]
        ends = group * of_arcs.shape[1] + self._crow - 1
        sums = of_arcs.flatten().cumsum(0)
        sums = sums.take(ends.clamp(min=0)).masked_fill_(ends < 0, 0)
        return sums.diff(dim=1)


class _Changes:
    """What the nodes of one draw change, each given what those before it change.

    G views of a model each have their nodes in the order drawn, K places. Edges are
    told by their other end: row k of the tables `gained` and `lost` names those that
    the node at place k chose, -1 for none.

    An edge matters to its two ends only, and the one drawn first chooses first. So the
    nodes decide all at once, in sweeps: after the k-th, those are right that depend on
    a chain of k - 1 others at most, and long chains are rare.
    """

    def __init__(
        self,
        rounds: RoundsPerturber,
        key: Tensor,
        n_views: int,
        nodes: Tensor,
        is_drawn: Tensor,
    ) -> None:
        device = nodes.device
        self.rounds, self.n_views, self.nodes = rounds, n_views, nodes
        self.n_places = nodes.shape[1]
        self.group = torch.arange(len(nodes), device=device)[:, None, None]
        self.place = torch.arange(self.n_places, device=device)[:, None]
        self.node = nodes[:, :, None]
        self.added = rounds._added.repeat(n_views, 1, 1)
        self.removed = rounds._removed.repeat(n_views, 1, 1)
        self._let_draw(is_drawn)

        def bits(purpose: int, width: int) -> Tensor:
            number = torch.arange(width, device=device) << 32
            return mixed(mixed(key[:, None, None], purpose), self.node + number)

        # Where a node looks for new neighbours, and how it goes through its edges.
        n = rounds._n_nodes
        self.partner, self.may_gain = _choices(
            bits(1, rounds._most_added + _SPARE), n, self.added + _SPARE
        )
        self.may_gain &= self.partner != self.node
        ends = self.node * n + self.partner
        self.was_arc = rounds._arc[torch.searchsorted(rounds._arc, ends)] == ends
        self.edge_bits = bits(2, rounds._most_removed + _SPARE)
        self.gained = nodes.new_full((*nodes.shape, rounds._most_added), -1)
        self.lost = nodes.new_full((*nodes.shape, rounds._most_removed), -1)

    def decide(self) -> None:
        """Let all nodes choose, in the light of the last choices of those before."""
        is_edge = (self.was_arc | self._in_row_of(self.partner, self.gained)) & (
            ~self._in_row_of(self.partner, self.lost)
        )
        chosen, gains = _first(
            self.may_gain & self.is_drawn & ~is_edge, self.added, self.gained.shape[2]
        )
        self.gained = self.partner.gather(2, chosen).where(gains, -1)
        self.is_new = gains & ~self.was_arc.gather(2, chosen)

        # A node's edges: original ones, its own new ones, new ones of nodes before it.
        rounds, (first, n_come, come) = self.rounds, self._come()
        start, degree = rounds._crow[self.node], rounds._degree[self.node]
        edge, may_lose = _choices(
            self.edge_bits, degree + self.added + n_come, self.removed + _SPARE
        )
        own = edge - degree
        is_old, is_own = own < 0, (own >= 0) & (own < self.added)
        own_slot = own.clamp(0, self.gained.shape[2] - 1)
        arc = (start + edge).where(is_old, rounds._n_arcs)
        come_from = come[(first + own - self.added).clamp_(0, len(come) - 1)]
        other = torch.where(is_own, self.gained.gather(2, own_slot), come_from)
        other = rounds._col[arc].where(is_old, other)
        # An edge that was lost may be back by the node's own choice.
        is_back = is_old & (self.gained[:, :, None] == other[..., None]).any(3)
        is_edge = torch.where(
            is_own,
            self.is_new.gather(2, own_slot),
            is_back | ~self._in_row_of(other, self.lost),
        )
        chosen, loses = _first(
            may_lose & self.is_drawn & is_edge, self.removed, self.lost.shape[2]
        )
        self.lost = other.gather(2, chosen).where(loses, -1)
        self.lost_arc = arc.gather(2, chosen).where(loses, rounds._n_arcs)

    def views(self) -> BlockViews:
        """Return what the choices come to."""
        rounds, n, end = self.rounds, self.rounds._n_nodes, self.rounds._n_arcs
        if rounds._limited:
            self._stop_at_limit()
        # The end of an edge that is drawn later has the last word.
        is_gone = (self.lost_arc < end) & ~self._in_row_of(
            self.lost, self.gained, later=True
        )
        is_added = self.is_new & ~self._in_row_of(self.gained, self.lost, later=True)
        is_added &= ~(self.gained[..., None] == self.lost[:, :, None]).any(3)
        back = torch.searchsorted(rounds._arc, self.lost * n + self.node)
        arcs = torch.stack([self.lost_arc, back], dim=1)
        edges = torch.stack([self.node.expand_as(self.gained), self.gained], dim=1)
        model = (self.group % rounds._n_models)[..., None]
        edges = edges.clamp_(min=0) + model * n
        arcs = (arcs + model * end).where(is_gone[:, None], rounds._n_models * end)
        shape = self.n_views, rounds._n_models
        return BlockViews(
            arcs.view(self.n_views, -1),
            edges.view(*shape, 2, -1).transpose(1, 2).flatten(2),
            is_added.view(self.n_views, -1),
            (self.places < self.n_places).view(*shape, n),
        )

    def _let_draw(self, is_drawn: Tensor) -> None:
        self.is_drawn = is_drawn[..., None]
        # Nodes that are not drawn have the place after the last, whose row is empty.
        self.places = self.nodes.new_full(
            (len(self.nodes), self.rounds._n_nodes), self.n_places
        ).scatter_(1, self.nodes, self.place[:, 0].where(is_drawn, self.n_places))

    def _in_row_of(self, others: Tensor, table: Tensor, later: bool = False) -> Tensor:
        """Whether others that were drawn before (or later) name the node."""
        place = self.places.gather(1, others.clamp(min=0).flatten(1)).view_as(others)
        if later:
            place = place.where(place > self.place, self.n_places)
        else:
            place = place.where(place < self.place, self.n_places)
        table = functional.pad(table, (0, 0, 0, 1), value=-1)
        return (table[self.group, place] == self.node[..., None]).any(3)

    def _come(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sort new edges by their other end: a node's first, its number, from whom."""
        n, n_slots = self.rounds._n_nodes, self.gained[0].numel()
        width = self.gained.shape[2]
        slot = torch.arange(n_slots, device=self.nodes.device).view(-1, width)
        ends = (self.group * n + self.gained) * n_slots + slot
        none = len(self.nodes) * n * n_slots
        ends = ends.where(self.is_new, none).flatten().sort().values
        of_node = (self.group * n + self.node) * n_slots
        first = torch.searchsorted(ends, of_node)
        before = torch.searchsorted(ends, of_node + self.place * width)
        group = ends // (n * n_slots)
        place = ends % n_slots // width
        come = self.nodes[group.clamp_(max=len(self.nodes) - 1), place]
        return first, before - first, come

    def _stop_at_limit(self) -> None:
        """Undo the choices of nodes after the one that reaches the limit of flips."""
        gains, loses = (self.gained >= 0).sum(2), (self.lost >= 0).sum(2)
        old = (self.lost_arc < self.rounds._n_arcs).sum(2)
        flips = 2 * (self.is_new.sum(2) + old) - gains - loses
        before = functional.pad(flips.cumsum(1)[:, :-1], (1, 0))
        limit = self.rounds._flips.repeat(self.n_views, 1)
        is_over = (before >= limit).cumsum(1) > 0
        self._let_draw(self.is_drawn[..., 0] & ~is_over)
        over = is_over[..., None]
        self.is_new = self.is_new & ~over
        self.gained, self.lost = (
            self.gained.where(~over, -1),
            self.lost.where(~over, -1),
        )
        self.lost_arc = self.lost_arc.where(~over, self.rounds._n_arcs)


def _one_stroke(mean: Tensor, since: Tensor, hits: Tensor, decay: Tensor) -> Tensor:
    """When one stroke slows a clock as much as all hits with this mean time would do.

    Hits at ordered times ``t_m`` slow it as if all came at their mean weighted by
    ``decay^m``. Of evenly spread ones, ``t_m`` is ``m / (h + 1)`` of the way.
    """
    power = decay.pow(hits)
    weighted = (1 - power * (1 + hits * (1 - decay))) / ((1 - decay) * (1 - power))
    share = (2 * weighted / (hits + 1)).where(decay < 1, 1)
    return torch.where(mean > since, since + share * (mean - since), mean)


def _choices(bits: Tensor, size: Tensor | int, width: Tensor) -> tuple[Tensor, Tensor]:
    """Choose numbers below `size`, in random order, and say which of them count.

    All numbers, where the width has room for them; otherwise independent ones, of
    which those count that have not come before.
    """
    position = torch.arange(bits.shape[-1], device=bits.device)
    there = position < size
    order = (bits & ((1 << 62) - 1)).where(there, 1 << 62).argsort(dim=-1)
    choice = order.where(there, 0).where(width >= size, integers(bits, size))
    again = (choice[..., :, None] == choice[..., None, :]).tril(-1).any(-1)
    return choice, there & (position < width) & ~again


def _first(wanted: Tensor, count: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Find the first `count` wanted entries of each row, and say which there are."""
    number = torch.arange(width, device=wanted.device)
    so_far = wanted.cumsum(-1)
    numbers = (number + 1).expand(*wanted.shape[:-1], width).contiguous()
    chosen = torch.searchsorted(so_far, numbers)
    last = wanted.shape[-1] - 1
    return chosen.clamp(max=last), (chosen <= last) & (number < count)
