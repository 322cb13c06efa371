"""The race of :mod:`sktifa.contrast.race` in Triton: each program runs one.

A race goes node by node, and each step waits for the last one's memory; but hundreds of
them, of different models and epochs, run side by side. Nodes lie in chunks. The
earliest clock of each chunk is held in registers, as a lower bound: clocks only ever
move back. The chunk with the lowest bound is read, and either its bound is brought up
to date, or its first node is the next drawn.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sktifa.contrast.race import ArcWeights, LaidOut, Race
from sktifa.device import free_memory
from sktifa.tensors.hashing import FACTORS, KEY_STEP, STEP, exponential, mixed

__all__ = ["GpuRaces", "races_at_once"]

# Races side by side: more of them slow down one another.
_MOST_RACES = 2048
# Bytes of scratch space at most, and for each node and edge added; and what two draws
# come to, for each entry of a row.
_MOST_SCRATCH = 1 << 33
_OF_NODE, _OF_ADDED, _OF_ROW = 24 + 10, 17, 32
# Neighbours that are looked at together.
_BLOCK = 64
_SCAN = 1024
# What a kernel reads of a module.
_STEP, _KEY_STEP = tl.constexpr(STEP), tl.constexpr(KEY_STEP)
_FACTOR_1, _FACTOR_2 = (tl.constexpr(factor) for factor in FACTORS)


def races_at_once(race: Race, device: torch.device) -> int:
    """Return how many races a GPU has room for; 0 if none."""
    bytes_of_race = race.n_arcs + _OF_NODE * race.n_nodes
    bytes_of_race += _OF_ADDED * race.widths.added + _OF_ROW * sum(race.widths.parts)
    room = min(_MOST_SCRATCH, free_memory(device) // 8)
    return min(_MOST_RACES, room // max(1, bytes_of_race))


class GpuRaces:
    """Runs races of all models on a GPU, in scratch space of their own."""

    def __init__(self, race: Race, device: torch.device) -> None:
        self.widths, n = race.widths, race.n_nodes
        self.n_arcs, self.n_nodes = race.n_arcs, n

        def put(part: Tensor, dtype: torch.dtype) -> Tensor:
            return part.to(device, dtype)

        self.crow, self.col, self.reverse = (
            put(part, torch.int32) for part in (race.crow, race.col, race.reverse)
        )
        self.rates = put(race.rates, torch.float64)
        self.counts = put(race.counts, torch.int32)
        self.limits = put(race.limits, torch.float64)
        self.is_far = int(race.counts[:, 3].max()) > 1
        # About as many chunks as nodes in one.
        self.chunk = max(32, triton.next_power_of_2(round(n**0.5)))
        self.n_chunks = triton.next_power_of_2(triton.cdiv(n, self.chunk))
        self.n_at_once = max(1, races_at_once(race, device))

    def run(self, models: Tensor, keys: Tensor, rows: Tensor, flips: Tensor) -> None:
        """Run races; as :meth:`Race.run`, with tensors on the device."""
        for start in range(0, len(keys), self.n_at_once):
            part = slice(start, start + self.n_at_once)
            self._run(models[part], keys[part], rows[part], flips[part])

    def _run(self, models: Tensor, keys: Tensor, rows: Tensor, flips: Tensor) -> None:
        n_races, n = len(keys), self.n_nodes
        device, widths = keys.device, self.widths
        node = torch.arange(n, device=device)
        clocks = rows.new_full(
            (n_races, self.n_chunks * self.chunk), torch.inf, dtype=torch.float64
        )
        clocks[:, :n] = exponential(mixed(mixed(keys, 0)[:, None], node))
        clocks[:, :n] /= self.rates[models]
        least = clocks.view(n_races, self.n_chunks, self.chunk).amin(2)
        gone = torch.zeros(n_races, self.n_arcs, dtype=torch.bool, device=device)
        last = rows.new_full((n_races, n), -1)
        added = rows.new_empty(n_races, 4 * widths.added)
        added_gone = gone.new_zeros(n_races, widths.added)
        incident = rows.new_empty(n_races, 2 * n)
        stamps = rows.new_full((n_races if self.is_far else 0, 2 * n), -1)
        # How many nodes were drawn, and edges added.
        made = rows.new_empty(n_races, 2)
        sizes = n, self.n_arcs, widths.removed, widths.added, widths.drawn
        with torch.cuda.device_of(keys):
            _races[(n_races,)](
                self.crow,
                self.col,
                self.reverse,
                self.counts,
                self.limits,
                models,
                mixed(keys, 1),
                clocks,
                least,
                gone,
                last,
                added,
                added_gone,
                incident,
                stamps,
                rows,
                made,
                flips,
                *sizes,
                CHUNK=self.chunk,
                N_CHUNKS=self.n_chunks,
                BLOCK=_BLOCK,
                FAR=self.is_far,
                num_warps=1,
            )
            _write_rows[(n_races,)](
                gone, added, added_gone, made, rows, *sizes, SCAN=_SCAN
            )

    def lay_out(
        self,
        rows: Tensor,
        weights: ArcWeights,
        firsts: Tensor,
        out: LaidOut,
    ) -> None:
        """Turn rows into arcs that differ; as :meth:`Race.lay_out`."""
        widths = self.widths
        out.degree.copy_(weights.degree)
        out.drawn.zero_()
        if not rows.numel():
            return
        most = max(widths.removed, widths.added, widths.drawn)
        with torch.cuda.device_of(rows):
            _lay_out[(len(rows), triton.cdiv(most, _SCAN))](
                self.col,
                self.reverse,
                weights.arc,
                weights.added,
                rows,
                firsts,
                out.target,
                out.source,
                out.change,
                out.degree,
                out.drawn.view(torch.uint8),
                self.n_nodes,
                self.n_arcs,
                widths.removed,
                widths.added,
                widths.drawn,
                SCAN=_SCAN,
            )
        out.degree.clamp_(min=0)


@triton.jit(do_not_specialize=["n_nodes", "n_arcs", "n_removed", "n_added", "n_most"])
def _lay_out(
    col,
    reverse,
    arc_weight,
    added_weight,
    rows,
    firsts,
    targets,
    sources,
    changes,
    degrees,
    are_drawn,
    n_nodes,
    n_arcs,
    n_removed,
    n_added,
    n_most,
    SCAN: tl.constexpr,
):
    race = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * SCAN + tl.arange(0, SCAN)
    first = tl.load(firsts + race).to(tl.int32)
    row = rows + race * (n_removed + 2 * n_added + n_most)
    begin = race * (n_removed + 2 * n_added)
    target, source, change = targets + begin, sources + begin, changes + begin
    degree = degrees + race * n_nodes

    is_place = place < n_removed
    arc = tl.load(row + place, mask=is_place, other=n_arcs)
    there = arc < n_arcs
    back = tl.load(reverse + arc, mask=there, other=0)
    a = tl.load(col + back, mask=there, other=0)
    b = tl.load(col + arc, mask=there, other=0)
    weight = -tl.load(arc_weight + arc, mask=there, other=0.0)
    tl.store(target + place, a + first, mask=is_place)
    tl.store(source + place, b + first, mask=is_place)
    tl.store(change + place, weight, mask=is_place)
    tl.atomic_add(degree + a, weight, mask=there, sem="relaxed")

    is_place = place < n_added
    a = tl.load(row + n_removed + place, mask=is_place, other=-1)
    b = tl.load(row + n_removed + n_added + place, mask=is_place, other=-1)
    there = a >= 0
    weight = tl.where(there, tl.load(added_weight), 0.0)
    a = tl.maximum(a, 0)
    b = tl.maximum(b, 0)
    to = n_removed + place
    tl.store(target + to, a + first, mask=is_place)
    tl.store(source + to, b + first, mask=is_place)
    tl.store(change + to, weight, mask=is_place)
    tl.store(target + to + n_added, b + first, mask=is_place)
    tl.store(source + to + n_added, a + first, mask=is_place)
    tl.store(change + to + n_added, weight, mask=is_place)
    tl.atomic_add(degree + a, weight, mask=there, sem="relaxed")
    tl.atomic_add(degree + b, weight, mask=there, sem="relaxed")

    node = tl.load(
        row + n_removed + 2 * n_added + place, mask=place < n_most, other=n_nodes
    )
    tl.store(are_drawn + race * n_nodes + node, 1, mask=node < n_nodes)


@triton.jit
def _below(key, number, size):
    """Draw a uniform number below `size`, by the hash of `sktifa.tensors.hashing`."""
    bits = key * _KEY_STEP + (number + 1) * _STEP
    bits = (bits ^ ((bits >> 30) & 0x3FFFFFFFF)) * _FACTOR_1
    bits = (bits ^ ((bits >> 27) & 0x1FFFFFFFFF)) * _FACTOR_2
    bits = bits ^ ((bits >> 31) & 0x1FFFFFFFF)
    return ((((bits >> 32) & 0xFFFFFFFF) * size) >> 32).to(tl.int32)


@triton.jit
def _is_among(values, count, value, BLOCK: tl.constexpr):
    """Whether a value is among the first ones of a list."""
    lanes = tl.arange(0, BLOCK)
    found = 0
    start = 0
    while start < count:
        there = tl.load(values + start + lanes, mask=start + lanes < count, other=-1)
        found = tl.maximum(found, tl.max((there == value).to(tl.int32), 0))
        start += BLOCK
    return found > 0


@triton.jit
def _arc_to(col, first, end, node, BLOCK: tl.constexpr):
    """Position of the arc to a node in a row; -1 where there is none."""
    lanes = tl.arange(0, BLOCK)
    found = -1
    start = first
    while start < end:
        arc = start + lanes
        other = tl.load(col + arc, mask=arc < end, other=-1)
        found = tl.maximum(found, tl.max(tl.where(other == node, arc, -1), 0))
        start += BLOCK
    return found


@triton.jit
def _slow(clocks, others, there, now, decay):
    """Let the clocks of some nodes go slower from now on."""
    clock = tl.load(clocks + others, mask=there, other=0)
    tl.store(clocks + others, _slowed(clock, now, decay), mask=there)


@triton.jit
def _slowed(clock, now, decay):
    later = now + (clock - now) / decay
    return tl.where(decay > 0, later, float("inf"))


@triton.jit
def _change_few(
    node,
    first,
    in_row,
    back,
    other,
    edge,
    place,
    degree,
    slot,
    gone,
    last,
    ends,
    following,
    added_gone,
    edges_added,
    edges_removed,
    key,
    n_choices,
    n_added,
    flips,
    n_nodes,
    BLOCK: tl.constexpr,
):
    """Add and remove edges of a node that has few, which are listed in registers."""
    lanes = tl.arange(0, BLOCK)
    to_add = tl.minimum(edges_added, n_nodes - 1 - degree)
    while to_add > 0:
        chosen = _below(key, n_choices, n_nodes)
        n_choices += 1
        same = other == chosen
        taken = tl.max((same & (place >= 0)).to(tl.int32), 0)
        if (taken == 0) & (chosen != node):
            returned = tl.max(tl.where(same & in_row, lanes, -1), 0)
            if returned >= 0:  # a removed edge
                tl.store(gone + first + returned, 0)
                tl.store(gone + tl.max(tl.where(lanes == returned, back, 0), 0), 0)
                place = tl.where(lanes == returned, degree, place)
                flips -= 1
            else:
                _link(node, chosen, n_added, last, ends, following)
                here = lanes == slot
                other = tl.where(here, chosen, other)
                edge = tl.where(here, -1 - n_added, edge)
                place = tl.where(here, degree, place)
                slot += 1
                n_added += 1
                flips += 1
            degree += 1
            to_add -= 1
            tl.debug_barrier()

    to_remove = tl.minimum(edges_removed, degree)
    while to_remove > 0:
        chosen = place == _below(key, n_choices, degree)
        n_choices += 1
        degree -= 1
        removed = tl.max(tl.where(chosen, edge, -2147483648), 0)
        # The last one takes its place.
        from_place = tl.max(tl.where(chosen, place, -1), 0)
        place = tl.where(place == degree, from_place, place)
        place = tl.where(chosen, -1, place)
        if removed >= 0:
            tl.store(gone + removed, 1)
            tl.store(gone + tl.max(tl.where(chosen, back, 0), 0), 1)
            flips += 1
        else:
            tl.store(added_gone + (-1 - removed), 1)
            flips -= 1
        to_remove -= 1
    return n_choices, n_added, flips


@triton.jit
def _link(node, other, edge, last, ends, following):
    """Enter an added edge in the lists of both its ends."""
    entry = 2 * edge
    tl.store(ends + entry, node)
    tl.store(ends + entry + 1, other)
    tl.store(following + entry, tl.load(last + node))
    tl.store(following + entry + 1, tl.load(last + other))
    tl.store(last + node, entry)
    tl.store(last + other, entry + 1)


@triton.jit
def _change_many(
    node,
    first,
    end,
    col,
    reverse,
    gone,
    last,
    ends,
    following,
    added_gone,
    others,
    edges,
    edges_added,
    edges_removed,
    key,
    n_choices,
    n_added,
    flips,
    n_nodes,
    BLOCK: tl.constexpr,
):
    """Add and remove edges of a node that has many, which are listed in memory."""
    lanes = tl.arange(0, BLOCK)
    entry = tl.load(last + node)
    degree = 0
    start = first
    while start < end:
        arc = start + lanes
        there = arc < end
        other = tl.load(col + arc, mask=there, other=-1)
        there = there & (tl.load(gone + arc, mask=there, other=1) == 0)
        place = degree + tl.cumsum(there.to(tl.int32), 0) - 1
        tl.store(others + place, other, mask=there)
        tl.store(edges + place, arc, mask=there)
        degree += tl.sum(there.to(tl.int32), 0)
        start += BLOCK
    while entry >= 0:
        if tl.load(added_gone + entry // 2) == 0:
            tl.store(others + degree, tl.load(ends + (entry ^ 1)))
            tl.store(edges + degree, -1 - entry // 2)
            degree += 1
        entry = tl.load(following + entry)
    tl.debug_barrier()

    to_add = tl.minimum(edges_added, n_nodes - 1 - degree)
    while to_add > 0:
        other = _below(key, n_choices, n_nodes)
        n_choices += 1
        taken = _is_among(others, degree, other, BLOCK) | (other == node)
        if not taken:
            arc = _arc_to(col, first, end, other, BLOCK)
            edge = arc
            if arc >= 0:  # a removed edge returns
                tl.store(gone + arc, 0)
                tl.store(gone + tl.load(reverse + arc), 0)
                flips -= 1
            else:
                _link(node, other, n_added, last, ends, following)
                edge = -1 - n_added
                n_added += 1
                flips += 1
            tl.store(others + degree, other)
            tl.store(edges + degree, edge)
            degree += 1
            to_add -= 1
            tl.debug_barrier()

    to_remove = tl.minimum(edges_removed, degree)
    while to_remove > 0:
        choice = _below(key, n_choices, degree)
        n_choices += 1
        edge = tl.load(edges + choice)
        degree -= 1
        final = tl.load(edges + degree)
        tl.debug_barrier()
        tl.store(edges + choice, final)
        if edge >= 0:
            tl.store(gone + edge, 1)
            tl.store(gone + tl.load(reverse + edge), 1)
            flips += 1
        else:
            tl.store(added_gone + (-1 - edge), 1)
            flips -= 1
        to_remove -= 1
        tl.debug_barrier()
    return n_choices, n_added, flips


# A compiled kernel serves all graphs: sizes are plain numbers to it.
@triton.jit(
    do_not_specialize=["n_nodes", "n_arcs", "n_removed", "n_added_most", "n_most"]
)
def _races(
    crow,
    col,
    reverse,
    counts,
    limits,
    models,
    keys,
    clocks,
    least,
    gone,
    last,
    added,
    added_gone,
    incident,
    stamps,
    rows,
    made,
    flips_out,
    n_nodes,
    n_arcs,
    n_removed,
    n_added_most,
    n_most,
    CHUNK: tl.constexpr,
    N_CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
    FAR: tl.constexpr,
):
    race = tl.program_id(0).to(tl.int64)
    model = tl.load(models + race)
    key = tl.load(keys + race)
    max_nodes = tl.load(counts + 4 * model)
    edges_added = tl.load(counts + 4 * model + 1)
    edges_removed = tl.load(counts + 4 * model + 2)
    hops = tl.load(counts + 4 * model + 3)
    max_flips = tl.load(limits + 2 * model)
    decay = tl.load(limits + 2 * model + 1)

    clocks += race * N_CHUNKS * CHUNK
    gone += race * n_arcs
    last += race * n_nodes
    # Added edges, and for each node a linked list of those that end there: the two
    # ends of edge e are the list entries 2e and 2e + 1.
    ends = added + race * 4 * n_added_most
    following = ends + 2 * n_added_most
    added_gone += race * n_added_most
    # A drawn node's edges: their other ends, and what they are.
    others = incident + race * 2 * n_nodes
    edges = others + n_nodes
    visited = stamps + race * 2 * n_nodes
    queue = visited + n_nodes
    drawn_out = rows + race * (n_removed + 2 * n_added_most + n_most)
    drawn_out += n_removed + 2 * n_added_most

    lanes = tl.arange(0, BLOCK)
    in_chunk = tl.arange(0, CHUNK)
    chunks = tl.arange(0, N_CHUNKS)
    bounds = tl.load(least + race * N_CHUNKS + chunks)
    n_drawn = 0
    n_added = 0
    flips = 0
    n_choices = key * 0
    running = (max_nodes > 0) & (max_flips > 0)
    while running:
        bound, chunk = tl.min(bounds, 0, return_indices=True)
        at_chunk = tl.load(clocks + chunk * CHUNK + in_chunk)
        now, first_in_chunk = tl.min(at_chunk, 0, return_indices=True)
        if now > bound:
            bounds = tl.where(chunks == chunk, now, bounds)
        elif now == float("inf"):  # only nodes of rate 0 are left
            running = False
        else:
            node = chunk * CHUNK + first_in_chunk
            rest = tl.where(in_chunk == first_in_chunk, float("inf"), at_chunk)
            bounds = tl.where(chunks == chunk, tl.min(rest, 0), bounds)
            tl.store(clocks + node, float("inf"))
            tl.store(drawn_out + n_drawn, node)
            n_drawn += 1

            first = tl.load(crow + node)
            end = tl.load(crow + node + 1)
            entry = tl.load(last + node)
            # Each lane holds an edge: its other end, its arc or, below 0, which of the
            # added ones it is, and its place among those that are there, -1 for none.
            # All is read as early as can be: what is waited for is memory.
            arc = first + lanes
            in_row = arc < end
            other = tl.load(col + arc, mask=in_row, other=-1)
            there = tl.load(gone + arc, mask=in_row, other=1) == 0
            back = tl.load(reverse + arc, mask=in_row, other=0)
            near = clocks + other
            clock = tl.load(near, mask=in_row, other=0)
            place = tl.where(there, tl.cumsum(there.to(tl.int32), 0) - 1, -1)
            degree = tl.sum(there.to(tl.int32), 0)
            edge = arc
            slot = end - first
            is_few = slot + edges_added <= BLOCK
            while (entry >= 0) & is_few:
                if tl.load(added_gone + entry // 2) == 0:
                    here = lanes == slot
                    other = tl.where(here, tl.load(ends + (entry ^ 1)), other)
                    edge = tl.where(here, -1 - entry // 2, edge)
                    place = tl.where(here, degree, place)
                    degree += 1
                    slot += 1
                    is_few = slot + edges_added <= BLOCK
                entry = tl.load(following + entry)
            if is_few:
                n_choices, n_added, flips = _change_few(
                    node,
                    first,
                    in_row,
                    back,
                    other,
                    edge,
                    place,
                    degree,
                    slot,
                    gone,
                    last,
                    ends,
                    following,
                    added_gone,
                    edges_added,
                    edges_removed,
                    key,
                    n_choices,
                    n_added,
                    flips,
                    n_nodes,
                    BLOCK,
                )
            else:
                n_choices, n_added, flips = _change_many(
                    node,
                    first,
                    end,
                    col,
                    reverse,
                    gone,
                    last,
                    ends,
                    following,
                    added_gone,
                    others,
                    edges,
                    edges_added,
                    edges_removed,
                    key,
                    n_choices,
                    n_added,
                    flips,
                    n_nodes,
                    BLOCK,
                )

            if FAR:
                tl.store(visited + node, node)
                tl.store(queue, node)
                tl.debug_barrier()
                level = 0
                begin = 0
                found = 1
                while (level < hops) & (begin < found):
                    level_end = found
                    while begin < level_end:
                        reached = tl.load(queue + begin)
                        start = tl.load(crow + reached)
                        stop = tl.load(crow + reached + 1)
                        while start < stop:
                            arc = start + lanes
                            there = arc < stop
                            other = tl.load(col + arc, mask=there, other=0)
                            stamp = tl.load(visited + other, mask=there, other=0)
                            there = there & (stamp != node)
                            tl.store(visited + other, node, mask=there)
                            place = found + tl.cumsum(there.to(tl.int32), 0) - 1
                            tl.store(queue + place, other, mask=there)
                            _slow(clocks, other, there, now, decay)
                            found += tl.sum(there.to(tl.int32), 0)
                            start += BLOCK
                            tl.debug_barrier()
                        begin += 1
                    level += 1
            elif hops > 0:
                tl.store(near, _slowed(clock, now, decay), mask=in_row)
                start = first + BLOCK
                while start < end:
                    arc = start + lanes
                    there = arc < end
                    other = tl.load(col + arc, mask=there, other=0)
                    _slow(clocks, other, there, now, decay)
                    start += BLOCK
            tl.debug_barrier()
            running = (n_drawn < max_nodes) & (flips < max_flips)
    tl.store(made + 2 * race, n_drawn)
    tl.store(made + 2 * race + 1, n_added)
    tl.store(flips_out + race, flips)


# Of its own, as it looks at many arcs at once: a race would hold the registers for that
# all the while, and keep kernels that train off its core.
@triton.jit(
    do_not_specialize=["n_nodes", "n_arcs", "n_removed", "n_added_most", "n_most"]
)
def _write_rows(
    gone,
    added,
    added_gone,
    made,
    rows,
    n_nodes,
    n_arcs,
    n_removed,
    n_added_most,
    n_most,
    SCAN: tl.constexpr,
):
    """Write down what a race has come to, and fill up the row."""
    race = tl.program_id(0).to(tl.int64)
    gone += race * n_arcs
    ends = added + race * 4 * n_added_most
    added_gone += race * n_added_most
    removed_out = rows + race * (n_removed + 2 * n_added_most + n_most)
    source_out = removed_out + n_removed
    target_out = source_out + n_added_most
    drawn_out = target_out + n_added_most
    n_drawn = tl.load(made + 2 * race)
    n_added = tl.load(made + 2 * race + 1)

    scan = tl.arange(0, SCAN)
    count = 0
    start = 0
    while start < n_arcs:
        arc = start + scan
        there = tl.load(gone + arc, mask=arc < n_arcs, other=0) != 0
        place = count + tl.cumsum(there.to(tl.int32), 0) - 1
        tl.store(removed_out + place, arc, mask=there)
        count += tl.sum(there.to(tl.int32), 0)
        start += SCAN
    while count < n_removed:
        tl.store(removed_out + count + scan, n_arcs, mask=count + scan < n_removed)
        count += SCAN
    count = 0
    start = 0
    while start < n_added:
        edge = start + scan
        there = edge < n_added
        there = there & (tl.load(added_gone + edge, mask=there, other=1) == 0)
        place = count + tl.cumsum(there.to(tl.int32), 0) - 1
        source = tl.load(ends + 2 * edge, mask=there, other=0)
        target = tl.load(ends + 2 * edge + 1, mask=there, other=0)
        tl.store(source_out + place, source, mask=there)
        tl.store(target_out + place, target, mask=there)
        count += tl.sum(there.to(tl.int32), 0)
        start += SCAN
    while count < n_added_most:
        there = count + scan < n_added_most
        tl.store(source_out + count + scan, -1, mask=there)
        tl.store(target_out + count + scan, -1, mask=there)
        count += SCAN
    while n_drawn < n_most:
        tl.store(drawn_out + n_drawn + scan, n_nodes, mask=n_drawn + scan < n_most)
        n_drawn += SCAN
