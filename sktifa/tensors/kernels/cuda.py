"""The kernels in Triton. What they take and return is told in `cpu`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.kernels import MOST_GRADIENT, Drawn, Halves

if TYPE_CHECKING:
    from sktifa.tensors.sparse import Adjacency

__all__ = [
    "activate",
    "activate_backward",
    "adam",
    "add_arcs",
    "copy_where",
    "csr_product",
    "drop",
    "in_halves",
    "judge",
    "matmul",
    "propagate",
    "step_sizes",
    "transposed_matmul",
    "validate",
]

# How many of a row's neighbours a product reads at a time. A tile belongs to one warp,
# so that no sum over neighbours leaves it, and has 512 entries, or 2048 where rows are
# wide (measured on an H100: a third faster than 1024 for both).
_MOST_NEIGHBORS = 16
# Programs that share long rows, or a model's validation nodes.
_MOST_SPLITS, _MOST_PARTS = 8, 64
# Numbers that partial sums may take.
_MOST_PARTIAL = 1 << 24
_CHUNK, _WARPS = 1024, 4
# A tile of a dense product: its nodes or features, how many of the others are read at a
# time, and its columns at most. Programs that fill a GPU, and how many nodes one is
# worth.
_TILE, _STEP, _MOST_UNITS = 128, 32, 64
_PROGRAMS, _LEAST_NODES = 528, 128
# Models that a kernel which reads all of them counts with at least, so that it is not
# compiled anew for each number that is left of a stack.
_MODELS = 64
# Numbers that Triton takes for a whole number of vectors.
_VECTOR = 16
# Of numbers that are cut in halves: those that are 0 have the least of all.
_LEAST_EXPONENT = 40
_LEAST = tl.constexpr(_LEAST_EXPONENT)


def csr_product(
    crow: Tensor,
    col: Tensor,
    values: Tensor,
    dense: Tensor,
    *,
    drawn: Drawn | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """Multiply a sparse matrix by the dense one of each model.

    Without dropout this is cuSPARSE's: all models' columns are one wide matrix, and
    its products are balanced where some rows have very many entries.
    """
    rows = crow.shape[0] - 1
    n_models, n_columns, width = dense.shape
    if drawn is None:
        matrix = torch.sparse_csr_tensor(
            crow, col, values, (rows, n_columns), check_invariants=False
        )
        if n_models == 1:
            return (matrix @ dense[0])[None]
        wide = dense.transpose(0, 1).reshape(n_columns, -1)
        return (matrix @ wide).view(rows, n_models, width).transpose(0, 1).contiguous()
    dense = dense.contiguous()
    # A transposed matrix of features has few rows, some of them very long.
    splits = 1
    if order is not None:
        room = _MOST_PARTIAL // max(1, n_models * rows * width)
        splits = max(1, min(_MOST_SPLITS, 64 // n_models, room))
    out = dense.new_empty(splits, n_models, rows, width)
    if not out.numel():
        return dense.new_zeros(n_models, rows, width)
    wide = triton.next_power_of_2(width)
    tile = 2048 if wide >= 32 else 512
    degree = col.shape[0] // max(rows, 1) + 1
    at_once = min(triton.next_power_of_2(degree), _MOST_NEIGHBORS, max(1, tile // wide))
    together = max(1, tile // (wide * at_once))
    keeps = 1 if drawn.keep.shape[1] == 1 else 3 if order is not None else 2
    with torch.cuda.device_of(dense):
        _product[(triton.cdiv(rows, together), n_models, splits)](
            crow,
            col,
            values,
            dense,
            out,
            order,
            drawn.seed,
            drawn.keep,
            drawn.scale,
            rows,
            n_columns,
            width,
            KEEPS=keeps,
            ORDERED=order is not None,
            ROWS=together,
            NEIGHBORS=at_once,
            WIDTH=wide,
            num_warps=1,
        )
    return out[0] if splits == 1 else out.sum(0)


def add_arcs(
    out: Tensor, dense: Tensor, target: Tensor, source: Tensor, weight: Tensor
) -> None:
    """Add `weight` times the row `source` of `dense` to the row `target` of `out`."""
    count, width = len(weight), out.shape[2]
    if not count or not width:
        return
    wide = triton.next_power_of_2(width)
    together = max(1, _CHUNK // wide)
    with torch.cuda.device_of(out):
        _add_arcs[(triton.cdiv(count, together),)](
            out,
            dense.contiguous(),
            target,
            source,
            weight,
            count,
            width,
            ARCS=together,
            WIDTH=wide,
            num_warps=_WARPS,
        )


@triton.jit
def _add_arcs(
    out,
    dense,
    target,
    source,
    weight,
    count,
    width,
    ARCS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    arc = tl.program_id(0) * ARCS + tl.arange(0, ARCS)
    share = tl.load(weight + arc, mask=arc < count, other=0.0)
    # What weighs nothing fills up the arrays.
    there = share != 0
    begin = tl.load(source + arc, mask=there, other=0) * width
    end = tl.load(target + arc, mask=there, other=0) * width
    unit = tl.arange(0, WIDTH)[None, :]
    there = there[:, None] & (unit < width)
    message = tl.load(dense + begin[:, None] + unit, mask=there, other=0.0)
    message *= share[:, None]
    tl.atomic_add(out + end[:, None] + unit, message, mask=there, sem="relaxed")


def propagate(
    scores: Tensor,
    graph: Adjacency,
    scale: Tensor,
    flips: tuple[Tensor, Tensor, Tensor] | None,
    steps: int,
    teleport: float,
) -> Tensor:
    """Take steps of ``h <- (1 - teleport) D A D h + teleport * scores`` from scores on.

    All models' columns are one wide matrix, of which each step but the last makes
    ``D h``: it adds to what `scores` give, which is there beforehand. Long rows are cut
    into parts, so that no program has more to do than others. Columns are filled up to
    whole tiles, so that few kernels serve whatever is left of a stack.
    """
    n_models, n_nodes, width = scores.shape
    out = torch.empty_like(scores)
    if not out.numel():
        return out
    length, begin, row = graph.row_parts
    columns = _columns_at_once(n_models, width)
    n_blocks = triton.cdiv(n_models * width, columns)
    total = n_blocks * columns
    # Each state begins where vectors begin.
    states = torch.empty(
        steps, triton.cdiv(n_nodes * total, 16) * 16, device=scores.device
    )
    of_model = n_nodes if len(scale) > 1 else 0
    tile = 2048 if columns >= 32 else 512
    at_once = min(length, _MOST_NEIGHBORS, tile // columns)
    together = max(1, tile // (columns * at_once))
    units = triton.next_power_of_2(width)
    arcs = max(1, 256 // units)
    n_programs = triton.cdiv(len(row), together) * n_blocks
    n_arcs = 0 if flips is None else len(flips[2])
    # Never read without arcs, but one kernel is compiled for both.
    target, source, weight = flips or (row, row, graph.loop_values)
    with torch.cuda.device_of(scores):
        rows = _CHUNK // columns
        _open_propagation[(triton.cdiv(n_nodes, rows) * n_blocks,)](
            scores,
            scale,
            states,
            out,
            n_models,
            n_nodes,
            total,
            width,
            of_model,
            states.stride(0),
            steps,
            teleport,
            NODES=rows,
            COLUMNS=columns,
            num_warps=_WARPS,
        )
        for step in range(steps):
            last = step == steps - 1
            _propagation_step[(n_programs + triton.cdiv(n_arcs, arcs),)](
                graph.crow,
                graph.col,
                graph.loop_values,
                begin,
                row,
                scale,
                states[step],
                out if last else states[step + 1],
                target,
                source,
                weight,
                len(row),
                n_arcs,
                n_models,
                n_nodes,
                total,
                width,
                of_model,
                n_programs,
                1 - teleport,
                int(last),
                LENGTH=length,
                PARTS=together,
                NEIGHBORS=at_once,
                COLUMNS=columns,
                ARCS=arcs,
                UNITS=units,
                num_warps=1,
            )
    return out


def _room_for(n_models: int) -> int:
    """Return how many models a kernel counts with that reads all of them."""
    return max(_MODELS, triton.next_power_of_2(n_models))


def _columns_at_once(n_models: int, width: int) -> int:
    """Return a tile's columns: for one model its own, for more one of two widths."""
    columns = triton.next_power_of_2(n_models * width)
    return columns if n_models == 1 and columns <= 64 else min(max(columns, 32), 64)


@triton.jit(do_not_specialize=["n_models", "n_nodes", "of_model", "steps"])
def _open_propagation(
    scores,
    scale,
    states,
    out,
    n_models,
    n_nodes,
    total,
    width,
    of_model,
    of_state,
    steps,
    teleport,
    NODES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Lay out what the scores give each state: the first one, and the others' share."""
    n_blocks = total // COLUMNS
    column = tl.program_id(0) % n_blocks * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    node = tl.program_id(0) // n_blocks * NODES + tl.arange(0, NODES)[:, None]
    is_node = node < n_nodes
    node = node.to(tl.int64)
    model, unit = column // width, column % width
    there = is_node & (model < n_models)
    at = (model.to(tl.int64) * n_nodes + node) * width + unit
    score = tl.load(scores + at, mask=there, other=0.0)
    scaled = score * tl.load(scale + model * of_model + node, mask=there, other=0.0)
    tl.store(out + at, teleport * score, mask=there)
    states += node * total + column
    tl.store(states, scaled, mask=is_node)
    for _ in range(1, steps):
        states += of_state
        tl.store(states, teleport * scaled, mask=is_node)


@triton.jit(
    do_not_specialize=[
        "n_parts",
        "n_arcs",
        "n_models",
        "n_nodes",
        "of_model",
        "n_programs",
        "is_last",
    ]
)
def _propagation_step(
    crow,
    col,
    values,
    begin,
    row,
    scale,
    state,
    out,
    target,
    source,
    weight,
    n_parts,
    n_arcs,
    n_models,
    n_nodes,
    total,
    width,
    of_model,
    n_programs,
    share,
    is_last,
    LENGTH: tl.constexpr,
    PARTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ARCS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Add the neighbours' states: first programs for rows, then those for flips."""
    program = tl.program_id(0)
    if program < n_programs:
        _send_along_rows(
            program,
            crow,
            col,
            values,
            begin,
            row,
            scale,
            state,
            out,
            n_parts,
            n_models,
            n_nodes,
            total,
            width,
            of_model,
            share,
            is_last,
            LENGTH,
            PARTS,
            NEIGHBORS,
            COLUMNS,
        )
    else:
        _send_along_flips(
            program - n_programs,
            scale,
            state,
            out,
            target,
            source,
            weight,
            n_arcs,
            n_nodes,
            total,
            width,
            of_model,
            share,
            is_last,
            ARCS,
            UNITS,
        )


@triton.jit
def _send_along_rows(
    program,
    crow,
    col,
    values,
    begin,
    row,
    scale,
    state,
    out,
    n_parts,
    n_models,
    n_nodes,
    total,
    width,
    of_model,
    share,
    is_last,
    LENGTH: tl.constexpr,
    PARTS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    n_blocks = total // COLUMNS
    column = program % n_blocks * COLUMNS + tl.arange(0, COLUMNS)
    part = program // n_blocks * PARTS + tl.arange(0, PARTS)
    node = tl.load(row + part, mask=part < n_parts, other=n_nodes)
    is_node = node < n_nodes
    first = tl.load(begin + part, mask=is_node, other=0)
    end = tl.load(crow + node + 1, mask=is_node, other=0)
    end = tl.minimum(end, first + LENGTH)
    message = tl.zeros([PARTS, COLUMNS], dtype=tl.float32)
    longest = tl.max(end - first, axis=0)
    for done in range(0, longest, NEIGHBORS):
        slot = first[:, None] + done + tl.arange(0, NEIGHBORS)[None, :]
        there = slot < end[:, None]
        neighbor = tl.load(col + slot, mask=there, other=0).to(tl.int64)
        value = tl.load(values + slot, mask=there, other=0.0)
        theirs = tl.load(
            state + neighbor[:, :, None] * total + column[None, None, :],
            mask=there[:, :, None],
            other=0.0,
        )
        message += tl.sum(value[:, :, None] * theirs, axis=1)
    _add_messages(
        out,
        message,
        node.to(tl.int64)[:, None],
        (column // width)[None, :],
        (column % width)[None, :],
        is_node[:, None] & (column < n_models * width)[None, :],
        scale,
        n_nodes,
        total,
        width,
        of_model,
        share,
        is_last,
    )


@triton.jit
def _send_along_flips(
    program,
    scale,
    state,
    out,
    target,
    source,
    weight,
    n_arcs,
    n_nodes,
    total,
    width,
    of_model,
    share,
    is_last,
    ARCS: tl.constexpr,
    UNITS: tl.constexpr,
):
    arc = program * ARCS + tl.arange(0, ARCS)
    value = tl.load(weight + arc, mask=arc < n_arcs, other=0.0)
    # What weighs nothing fills up the arrays.
    is_arc = value != 0
    end = tl.load(target + arc, mask=is_arc, other=0).to(tl.int32)
    neighbor = tl.load(source + arc, mask=is_arc, other=0).to(tl.int32)
    model = end // n_nodes
    node = (end - model * n_nodes).to(tl.int64)[:, None]
    neighbor = (neighbor - model * n_nodes).to(tl.int64)[:, None]
    model, unit = model[:, None], tl.arange(0, UNITS)[None, :]
    there = is_arc[:, None] & (unit < width)
    theirs = tl.load(
        state + neighbor * total + model * width + unit, mask=there, other=0.0
    )
    _add_messages(
        out,
        value[:, None] * theirs,
        node,
        model,
        unit,
        there,
        scale,
        n_nodes,
        total,
        width,
        of_model,
        share,
        is_last,
    )


@triton.jit
def _add_messages(
    out,
    message,
    node,
    model,
    unit,
    there,
    scale,
    n_nodes,
    total,
    width,
    of_model,
    share,
    is_last,
):
    factor = tl.load(scale + model * of_model + node, mask=there, other=0.0)
    message *= share * factor
    # The last step's result is laid out as scores are, and isn't scaled for a next one.
    if is_last:
        at = (model.to(tl.int64) * n_nodes + node) * width + unit
    else:
        message *= factor
        at = node * total + model * width + unit
    tl.atomic_add(out + at, message, mask=there, sem="relaxed")


def in_halves(values: Tensor) -> Halves:
    """Cut a matrix into halves, which tensor cores multiply twice as fast."""
    unit = _unit_of(_largest_of(values[None]))
    scaled = values / unit
    first = scaled.half()
    rest = (scaled - first.float()).half()
    parts = [first, rest] if rest.any() else [first]
    # Each row begins where vectors begin.
    padded = [functional.pad(p, (0, -values.shape[1] % _VECTOR)) for p in parts]
    return Halves(torch.stack(padded), unit, values.shape[1])


def matmul(x: Tensor | Halves, weight: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's matrices.

    Features, which all models share, are read once for all of them, and drawn in the
    tile that they are multiplied in.
    """
    n_models, n_features, width = weight.shape
    if drawn is None and n_models == 1 and isinstance(x, Tensor):
        return x @ weight
    left, right = _Left(x), _Right(weight, isinstance(x, Halves))
    n_nodes = left.n_rows
    out = torch.empty(n_models, n_nodes, width, device=weight.device)
    if not out.numel():
        return out
    units = _units_at_once(width)
    grid = triton.cdiv(n_nodes, _TILE) * n_models, triton.cdiv(width, units)
    with torch.cuda.device_of(weight):
        _model_product[grid](
            *left.given,
            *right.given,
            out,
            *_draw_of(drawn),
            n_models,
            n_nodes,
            n_features,
            width,
            DRAWN=drawn is not None,
            PARTS=left.n_parts,
            NODES=_TILE,
            FEATURES=_STEP,
            UNITS=units,
            num_warps=_TILE // 16,
            num_stages=3,
        )
    return out


def transposed_matmul(
    x: Tensor | Halves, grad: Tensor, *, drawn: Drawn | None = None
) -> Tensor:
    """Multiply each model's transposed ``x`` by its ``grad``.

    The sum over nodes is cut into parts, which are added up in their order.
    """
    n_models, n_nodes, width = grad.shape
    if drawn is None and n_models == 1 and isinstance(x, Tensor):
        return x.mT @ grad
    left = _Left(x)
    n_features = left.n_columns
    if not n_nodes * n_features * width:
        return grad.new_zeros(n_models, n_features, width)
    units = _units_at_once(width)
    features = min(_TILE, max(64, triton.next_power_of_2(n_features)))
    tiles = triton.cdiv(n_features, features) * n_models
    most_parts = triton.cdiv(_PROGRAMS, tiles * triton.cdiv(width, units))
    length = max(triton.cdiv(n_nodes, most_parts), _LEAST_NODES)
    length = triton.cdiv(length, _STEP) * _STEP
    n_parts = triton.cdiv(n_nodes, length)
    out = torch.empty(n_parts, n_models, n_features, width, device=grad.device)
    grid = tiles * n_parts, triton.cdiv(width, units)
    with torch.cuda.device_of(grad):
        _transposed_product[grid](
            *left.given,
            *_Right(grad, isinstance(x, Halves)).given,
            out,
            *_draw_of(drawn),
            n_models,
            n_nodes,
            n_features,
            width,
            length,
            DRAWN=drawn is not None,
            PARTS=left.n_parts,
            NODES=_STEP,
            FEATURES=features,
            UNITS=units,
            num_warps=features // 16,
            num_stages=3,
        )
    return out[0] if n_parts == 1 else out.sum(0)


def _draw_of(drawn: Drawn | None) -> tuple[Tensor | int | None, ...]:
    """Return seeds, chances with their strides, and scales."""
    if drawn is None:
        return None, None, 0, 0, None
    n_chances = drawn.keep.shape[1]
    return drawn.seed, drawn.keep, n_chances, int(n_chances > 1), drawn.scale


def _units_at_once(width: int) -> int:
    """Return the columns of a tile: all, if there is room, so that draws serve them."""
    return max(16, min(triton.next_power_of_2(width), _MOST_UNITS))


class _Left:
    """A product's first factor: a matrix of each model, or one of all, or halves."""

    def __init__(self, x: Tensor | Halves) -> None:
        if isinstance(x, Halves):
            self.n_parts, self.n_rows, _ = x.parts.shape
            self.n_columns = x.n_columns
            of_model, of_part = 0, x.parts.stride(0)
            values, unit = x.parts, x.unit
        else:
            self.n_parts = 0
            _, self.n_rows, self.n_columns = x.shape
            of_model, of_part = x.stride(0) if len(x) > 1 else 0, 0
            values, unit = x, None
        self.given = values, unit, values.stride(1), of_model, of_part


class _Right:
    """A product's second factor, laid down as tensor cores take it.

    A number of float32 is cut in two. Where the first factor is of 16 bits, so is each
    of the two, after a division by a power of two that leaves the matrix's largest
    number below the largest of 16 bits. Otherwise the two are of 32 bits, of which
    tensor cores read the first 19. Each part is transposed, and filled up with zeros to
    a whole number of steps.
    """

    def __init__(self, factor: Tensor, short: bool) -> None:
        n_models, length, width = factor.shape
        padded = triton.cdiv(length, _STEP) * _STEP
        dtype = torch.float16 if short else torch.float32
        out = factor.new_empty(2, n_models, width, padded, dtype=dtype)
        largest = _largest_of(factor) if short else None
        units = min(triton.next_power_of_2(width), _STEP)
        grid = padded // _STEP, triton.cdiv(width, units), n_models
        if out.numel():
            _cut[grid](
                factor,
                largest,
                out,
                *factor.stride(),
                length,
                padded,
                width,
                SHORT=short,
                LENGTH=_STEP,
                UNITS=units,
                num_warps=_WARPS,
            )
        self.given = out, largest


def _largest_of(factor: Tensor) -> Tensor:
    """Return the bits of each matrix's largest number, signs left out."""
    factor, count = factor.contiguous(), factor[0].numel()
    largest = torch.zeros(len(factor), dtype=torch.int32, device=factor.device)
    if count:
        at_once = 8 * _CHUNK
        _largest[(triton.cdiv(count, at_once), len(factor))](
            factor, largest, count, CHUNK=at_once, num_warps=_WARPS
        )
    return largest


def _unit_of(largest: Tensor) -> Tensor:
    """Return, as `_unit` does, what numbers are divided by before they are cut."""
    exponent = (largest >> 23).clamp(_LEAST_EXPONENT, 254)
    return ((exponent - 14) << 23).view(torch.float32)


@triton.jit
def _unit(largest):
    exponent = tl.minimum(tl.maximum(largest >> 23, _LEAST), 254)
    return ((exponent - 14) << 23).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["count"])
def _largest(factor, largest, count, CHUNK: tl.constexpr):
    model = tl.program_id(1)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    value = tl.load(
        factor + model.to(tl.int64) * count + place, mask=place < count, other=0.0
    )
    # As whole numbers, bits are in the order of what they stand for; NaN is above all.
    bits = tl.abs(value).to(tl.int32, bitcast=True)
    tl.atomic_max(largest + model, tl.max(bits, 0), sem="relaxed")


@triton.jit(do_not_specialize=["length"])
def _cut(
    factor,
    largest,
    out,
    of_model,
    of_place,
    of_unit,
    length,
    padded,
    width,
    SHORT: tl.constexpr,
    LENGTH: tl.constexpr,
    UNITS: tl.constexpr,
):
    place = tl.program_id(0) * LENGTH + tl.arange(0, LENGTH)[:, None]
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    model = tl.program_id(2).to(tl.int64)
    value = tl.load(
        factor + model * of_model + place.to(tl.int64) * of_place + unit * of_unit,
        mask=(place < length) & (unit < width),
        other=0.0,
    )
    if SHORT:
        value = value / _unit(tl.load(largest + model))
        first = value.to(tl.float16)
        rest = (value - first.to(tl.float32)).to(tl.float16)
    else:
        first, rest = _halves(value)
    out += (model * width + unit) * padded + place
    tl.store(out, first, mask=unit < width)
    out += tl.num_programs(2).to(tl.int64) * width * padded
    tl.store(out, rest, mask=unit < width)


@triton.jit
def _halves(values):
    first = values.to(tl.uint32, bitcast=True) & 0xFFFFE000
    first = first.to(tl.float32, bitcast=True)
    return first, values - first


# Models vary fastest, so that features that one has read are in the cache for others.
@triton.jit(do_not_specialize=["n_models", "n_nodes", "keep_of_model", "keep_of_node"])
def _model_product(
    x,
    x_unit,
    stride,
    of_model,
    of_part,
    halves,
    largest,
    out,
    seed,
    keep,
    keep_of_model,
    keep_of_node,
    scale,
    n_models,
    n_nodes,
    n_features,
    width,
    DRAWN: tl.constexpr,
    PARTS: tl.constexpr,
    NODES: tl.constexpr,
    FEATURES: tl.constexpr,
    UNITS: tl.constexpr,
):
    model = (tl.program_id(0) % n_models).to(tl.int64)
    node = tl.program_id(0) // n_models * NODES + tl.arange(0, NODES)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    x += model * of_model
    padded = tl.cdiv(n_features, FEATURES) * FEATURES
    total = tl.zeros([NODES, UNITS], dtype=tl.float32)
    for first in range(0, n_features, FEATURES):
        feature = first + tl.arange(0, FEATURES)
        values, rest = _features(
            x,
            of_part,
            seed,
            keep,
            keep_of_model,
            keep_of_node,
            model,
            node,
            feature,
            n_nodes,
            n_features,
            stride,
            DRAWN,
            PARTS,
        )
        total = _dot(
            values,
            rest,
            halves,
            feature,
            unit,
            total,
            model,
            n_models,
            padded,
            width,
            PARTS,
        )
    total = _scaled(total, x_unit, largest, scale, model, DRAWN, PARTS)
    row = model * n_nodes + node
    tl.store(
        out + row[:, None] * width + unit[None, :],
        total,
        mask=(node < n_nodes)[:, None] & (unit < width)[None, :],
    )


@triton.jit(do_not_specialize=["n_models", "n_nodes", "keep_of_model", "keep_of_node"])
def _transposed_product(
    x,
    x_unit,
    stride,
    of_model,
    of_part,
    halves,
    largest,
    out,
    seed,
    keep,
    keep_of_model,
    keep_of_node,
    scale,
    n_models,
    n_nodes,
    n_features,
    width,
    length,
    DRAWN: tl.constexpr,
    PARTS: tl.constexpr,
    NODES: tl.constexpr,
    FEATURES: tl.constexpr,
    UNITS: tl.constexpr,
):
    n_tiles = tl.cdiv(n_features, FEATURES)
    tile = tl.program_id(0) // n_models
    model = (tl.program_id(0) % n_models).to(tl.int64)
    feature = tile % n_tiles * FEATURES + tl.arange(0, FEATURES)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    part = tile // n_tiles
    x += model * of_model
    padded = tl.cdiv(n_nodes, NODES) * NODES
    total = tl.zeros([FEATURES, UNITS], dtype=tl.float32)
    for first in range(part * length, min(part * length + length, n_nodes), NODES):
        node = first + tl.arange(0, NODES)
        values, rest = _features(
            x,
            of_part,
            seed,
            keep,
            keep_of_model,
            keep_of_node,
            model,
            node,
            feature,
            n_nodes,
            n_features,
            stride,
            DRAWN,
            PARTS,
        )
        total = _dot(
            tl.trans(values),
            tl.trans(rest),
            halves,
            node,
            unit,
            total,
            model,
            n_models,
            padded,
            width,
            PARTS,
        )
    total = _scaled(total, x_unit, largest, scale, model, DRAWN, PARTS)
    row = (part * n_models + model) * n_features + feature
    tl.store(
        out + row[:, None] * width + unit[None, :],
        total,
        mask=(feature < n_features)[:, None] & (unit < width)[None, :],
    )


@triton.jit
def _features(
    x,
    of_part,
    seed,
    keep,
    keep_of_model,
    keep_of_node,
    model,
    node,
    feature,
    n_nodes,
    n_features,
    stride,
    DRAWN: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Read a tile of features, and drop what the model drops, as `_drop` does.

    They come in two parts, the second of which is the first again where there is one.
    What lies beyond a row's features, up to the next row, is read with it.
    """
    is_node = node < n_nodes
    there = is_node[:, None] & (feature < stride)[None, :]
    x += node.to(tl.int64)[:, None] * stride + feature[None, :]
    values = tl.load(x, mask=there, other=0.0)
    if DRAWN:
        keep += model * keep_of_model + node * keep_of_node
        chance = tl.load(keep, mask=is_node, other=0.0)[:, None]
        # Of 24 bits: as whole numbers they are compared sooner.
        limit = tl.ceil(chance * (1 << 24)).to(tl.uint32)
        draw = _bits(tl.load(seed + model), node[:, None] * n_features + feature) >> 8
        kept = draw < limit
        values = tl.where(kept, values, 0.0)
    rest = values
    if PARTS == 0:
        values, rest = _halves(values)
    elif PARTS == 2:
        rest = tl.load(x + of_part, mask=there, other=0.0)
        if DRAWN:
            rest = tl.where(kept, rest, 0.0)
    return values, rest


@triton.jit
def _dot(
    left_first,
    left_rest,
    halves,
    place,
    unit,
    total,
    model,
    n_models,
    padded,
    width,
    PARTS: tl.constexpr,
):
    """Add a product of tiles, about as exact as float32's, to a total.

    At the end is an addition, so that the product is there before the next tile is
    drawn: tensor cores read the values from registers while they multiply, and a
    product that is left running meanwhile has them overwritten (Triton 3.6 does not see
    that).
    """
    halves += model * width * padded + unit.to(tl.int64)[:, None] * padded
    halves += place[None, :]
    is_unit = (unit < width)[:, None]
    right_first = tl.trans(tl.load(halves, mask=is_unit, other=0.0))
    halves += n_models.to(tl.int64) * width * padded
    right_rest = tl.trans(tl.load(halves, mask=is_unit, other=0.0))
    if PARTS != 1:
        total = tl.dot(left_rest, right_first, total, input_precision="tf32")
    total = tl.dot(left_first, right_rest, total, input_precision="tf32")
    return tl.dot(left_first, right_first, total, input_precision="tf32") + 0.0


@triton.jit
def _scaled(
    total,
    x_unit,
    largest,
    scale,
    model,
    DRAWN: tl.constexpr,
    PARTS: tl.constexpr,
):
    if PARTS > 0:
        total *= tl.load(x_unit)
        total *= _unit(tl.load(largest + model))
    if DRAWN:
        total *= tl.load(scale + model)
    return total


@triton.jit
def _mix(key):
    # The finaliser of MurmurHash3.
    key ^= key >> 16
    key *= 0x85EBCA6B
    key ^= key >> 13
    key *= 0xC2B2AE35
    return key ^ (key >> 16)


@triton.jit
def _bits(seed, entry):
    """Return 32 bits for each entry, the upper 24 of which are random.

    Two words are made of the seed, once, so that little is left to do for each entry.
    """
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    first = _mix(low + 0x9E3779B9)
    second = _mix(high ^ first)
    key = (entry.to(tl.uint32) * 0x7FEB352D + first) ^ second
    key = (key ^ (key >> 15)) * 0x846CA68B
    return (key ^ (key >> 15)) * 0x7FEB352D


@triton.jit
def _uniform(seed, entry):
    """Return a number in [0, 1) for each entry.

    All threads that share a value draw it for themselves: a hash costs them a tenth
    of what a generator for cryptography does.
    """
    return (_bits(seed, entry) >> 8).to(tl.float32) * (1 / (1 << 24))


# A graph of one more model would be compiled for anew, were its size divisible by 16.
@triton.jit(do_not_specialize=["n_rows", "n_columns"])
def _product(
    crow,
    col,
    values,
    dense,
    out,
    order,
    seed,
    keep,
    scale,
    n_rows,
    n_columns,
    width,
    KEEPS: tl.constexpr,
    ORDERED: tl.constexpr,
    ROWS: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    block = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < n_rows
    begin = tl.load(crow + row, mask=is_row, other=0)
    end = tl.load(crow + row + 1, mask=is_row, other=0)
    unit = tl.arange(0, WIDTH)
    is_unit = unit < width
    total = tl.zeros([ROWS, WIDTH], dtype=dense.dtype.element_ty)
    first = block.to(tl.int64) * n_columns
    longest = tl.max(end - begin, axis=0)
    split, n_splits = tl.program_id(2), tl.num_programs(2)
    done = split * NEIGHBORS
    while done < longest:
        place = begin[:, None] + done + tl.arange(0, NEIGHBORS)[None, :]
        there = place < end[:, None]
        column = tl.load(col + place, mask=there, other=0)
        value = tl.load(values + place, mask=there, other=0.0)
        entry = place
        if ORDERED:
            entry = tl.load(order + place, mask=there, other=0)
        draw = _uniform(tl.load(seed + block), entry)
        if KEEPS == 1:
            chance = tl.load(keep + block)
        elif KEEPS == 2:
            chance = tl.load(keep + block * n_rows + row, mask=is_row, other=0.0)
            chance = chance[:, None]
        else:
            chance = tl.load(keep + block * n_columns + column, mask=there, other=0.0)
        value = tl.where(draw < chance, value * tl.load(scale + block), 0.0)
        source = (first + column) * width
        part = tl.load(
            dense + source[:, :, None] + unit[None, None, :],
            mask=there[:, :, None] & is_unit[None, None, :],
            other=0.0,
        )
        total += tl.sum(value[:, :, None] * part, axis=1)
        done += n_splits * NEIGHBORS
    target = split.to(tl.int64) * tl.num_programs(1) + block
    target = (target * n_rows + row) * width
    tl.store(
        out + target[:, None] + unit[None, :],
        total,
        mask=is_row[:, None] & is_unit[None, :],
    )


def drop(values: Tensor, drawn: Drawn) -> Tensor:
    """Draw dropout of one dense matrix for each block."""
    n_blocks, (n_nodes, width) = len(drawn.scale), values.shape
    values = values.contiguous()
    out = torch.empty(n_blocks, n_nodes, width, device=values.device)
    with torch.cuda.device_of(values):
        _drop[(triton.cdiv(n_nodes * width, _CHUNK), n_blocks)](
            values,
            out,
            drawn.seed,
            drawn.keep,
            drawn.scale,
            n_nodes,
            width,
            OF_NODE=drawn.keep.shape[1] > 1,
            CHUNK=_CHUNK,
            num_warps=_WARPS,
        )
    return out


@triton.jit
def _drop(
    values,
    out,
    seed,
    keep,
    scale,
    n_nodes,
    width,
    OF_NODE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    block = tl.program_id(1)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = place < n_nodes * width
    draw = _uniform(tl.load(seed + block), place)
    if OF_NODE:
        chance = tl.load(keep + block * n_nodes + place // width, mask=there, other=0.0)
    else:
        chance = tl.load(keep + block)
    value = tl.load(values + place, mask=there) * tl.load(scale + block)
    at = block.to(tl.int64) * n_nodes * width + place
    tl.store(out + at, tl.where(draw < chance, value, 0.0), mask=there)


def activate(h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
    """Add the bias, cut off what is negative and drop entries."""
    h = h.contiguous()
    out = torch.empty_like(h)
    count = h[0].numel()
    with torch.cuda.device_of(h):
        _activate[(triton.cdiv(count, _CHUNK), len(bias))](
            h,
            bias.contiguous(),
            out,
            drawn and drawn.seed,
            drawn and drawn.keep,
            drawn and drawn.scale,
            count,
            h.shape[2],
            DRAWN=drawn is not None,
            CHUNK=_CHUNK,
            num_warps=_WARPS,
        )
    return out


@triton.jit
def _activate(
    h,
    bias,
    out,
    seed,
    keep,
    scale,
    count,
    width,
    DRAWN: tl.constexpr,
    CHUNK: tl.constexpr,
):
    block = tl.program_id(1)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = place < count
    at = block.to(tl.int64) * count + place
    value = tl.load(h + at, mask=there)
    value += tl.load(bias + block * width + place % width, mask=there)
    # NaN stays NaN.
    value = tl.where(value < 0, 0.0, value)
    if DRAWN:
        draw = _uniform(tl.load(seed + block), place)
        value = tl.where(
            draw < tl.load(keep + block), value * tl.load(scale + block), 0
        )
    tl.store(out + at, value, mask=there)


def activate_backward(grad: Tensor, out: Tensor, drawn: Drawn | None) -> Tensor:
    """Return the gradient of `h`, given that of what `activate` returned."""
    of_h = torch.empty_like(out)
    count = out[0].numel()
    with torch.cuda.device_of(out):
        _activate_backward[(triton.cdiv(count, _CHUNK), len(out))](
            grad.contiguous(),
            out,
            of_h,
            drawn and drawn.scale,
            count,
            DRAWN=drawn is not None,
            CHUNK=_CHUNK,
            num_warps=_WARPS,
        )
    return of_h


@triton.jit
def _activate_backward(
    grad, out, of_h, scale, count, DRAWN: tl.constexpr, CHUNK: tl.constexpr
):
    block = tl.program_id(1)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = place < count
    at = block.to(tl.int64) * count + place
    passed = tl.load(grad + at, mask=there)
    if DRAWN:
        passed *= tl.load(scale + block)
    passed = tl.where(tl.load(out + at, mask=there, other=0.0) > 0, passed, 0.0)
    tl.store(of_h + at, passed, mask=there)


def adam(
    parameter: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    size: Tensor,
    root: Tensor,
    weight_decay: Tensor,
) -> None:
    """Update stacked parameters by Adam, with L2 regularisation, in one pass."""
    count = parameter[0].numel()
    with torch.cuda.device_of(parameter):
        _adam[(triton.cdiv(count, _CHUNK), len(parameter))](
            parameter,
            grad.contiguous(),
            mean,
            square,
            size.contiguous(),
            root,
            weight_decay.contiguous(),
            count,
            1 - betas[0],
            1 - betas[1],
            eps,
            MOST=MOST_GRADIENT,
            CHUNK=_CHUNK,
            num_warps=_WARPS,
        )


@triton.jit
def _adam(
    parameter,
    grad,
    mean,
    square,
    size,
    root,
    weight_decay,
    count,
    first,
    second,
    eps,
    MOST: tl.constexpr,
    CHUNK: tl.constexpr,
):
    model = tl.program_id(1)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = place < count
    at = model.to(tl.int64) * count + place
    p = tl.load(parameter + at, mask=there)
    g = tl.load(grad + at, mask=there) + p * tl.load(weight_decay + model)
    # Adam's step is blind to the size of a gradient: its square stays a float32.
    g = tl.where(g > MOST, MOST, tl.where(g < -MOST, -MOST, g))
    m = tl.load(mean + at, mask=there)
    s = tl.load(square + at, mask=there)
    m += first * (g - m)
    s = s * (1 - second) + second * g * g
    r = tl.load(root)
    p += tl.load(size + model) * r * m / (tl.sqrt(s) + eps * r)
    tl.store(mean + at, m, mask=there)
    tl.store(square + at, s, mask=there)
    tl.store(parameter + at, p, mask=there)


def copy_where(chosen: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy the chosen models' parameters; the others cost nothing."""
    count = source[0].numel()
    with torch.cuda.device_of(source):
        _copy_where[(triton.cdiv(count, _CHUNK), len(source))](
            chosen, source, target, count, CHUNK=_CHUNK, num_warps=_WARPS
        )


@triton.jit
def _copy_where(chosen, source, target, count, CHUNK: tl.constexpr):
    model = tl.program_id(1)
    if tl.load(chosen + model):
        place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
        at = model.to(tl.int64) * count + place
        value = tl.load(source + at, mask=place < count)
        tl.store(target + at, value, mask=place < count)


def step_sizes(
    n_steps: Tensor,
    epoch: Tensor,
    *,
    rates: Tensor,
    decay: Tensor,
    least: Tensor,
    min_iter: Tensor,
    betas: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """Count a step, and say what `adam` takes it with."""
    n_models = len(rates)
    size = torch.empty(n_models, device=rates.device)
    root = torch.empty((), device=rates.device)
    with torch.cuda.device_of(rates):
        _step_sizes[(1,)](
            n_steps,
            epoch,
            rates,
            decay,
            least,
            min_iter,
            size,
            root,
            n_models,
            LOG_FIRST=math.log(betas[0]),
            LOG_SECOND=math.log(betas[1]),
            MODELS=_room_for(n_models),
            num_warps=1,
        )
    return size, root


@triton.jit(do_not_specialize=["n_models"])
def _step_sizes(
    n_steps,
    epoch,
    rates,
    decay,
    least,
    min_iter,
    size,
    root,
    n_models,
    LOG_FIRST: tl.constexpr,
    LOG_SECOND: tl.constexpr,
    MODELS: tl.constexpr,
):
    model = tl.arange(0, MODELS)
    there = model < n_models
    steps = tl.load(n_steps) + 1
    epochs = tl.load(epoch) - tl.load(min_iter + model, mask=there, other=0.0)
    log_decay = tl.log(tl.load(decay + model, mask=there, other=1.0))
    # A decay to 0 hasn't begun before the first of these epochs.
    decayed = tl.where(epochs > 0, tl.exp(epochs * log_decay), 1.0)
    rate = tl.load(rates + model, mask=there, other=0.0) * decayed
    rate = tl.maximum(rate, tl.load(least + model, mask=there, other=0.0))
    done = steps.to(tl.float64)
    tl.store(
        size + model, (-rate / (1 - tl.exp(done * LOG_FIRST))).to(tl.float32), there
    )
    tl.store(root, tl.sqrt(1 - tl.exp(done * LOG_SECOND)).to(tl.float32))
    tl.debug_barrier()  # all have read what one of them writes
    tl.store(n_steps, steps)


def validate(
    logits: Tensor,
    nodes: tuple[Tensor, Tensor, Tensor, Tensor],
    sizes: Tensor,
    temperatures: Tensor,
    as_it_is: int,
) -> Tensor:
    """Return each model's cross-entropy, accuracy and least cross-entropy of all."""
    n_models, _, width = logits.shape
    _, index, target, weight = nodes
    units = triton.next_power_of_2(width)
    at_once = max(1, _CHUNK // units)
    each = triton.cdiv(len(index), n_models)
    n_parts = max(1, min(_MOST_PARTS, each // (8 * at_once)))
    figures = triton.next_power_of_2(1 + len(temperatures))
    sums = torch.empty(n_parts, n_models, figures, device=logits.device)
    out = torch.empty(3, n_models, device=logits.device)
    with torch.cuda.device_of(logits):
        _add_losses[(n_models, n_parts)](
            logits.contiguous(),
            index,
            target,
            weight,
            sizes,
            temperatures,
            sums,
            width,
            N_TEMPERATURES=len(temperatures),
            FIGURES=figures,
            MODELS=_room_for(n_models),
            NODES=at_once,
            UNITS=units,
            num_warps=_WARPS,
        )
        _read_losses[(n_models,)](
            sums,
            sizes,
            out,
            n_parts,
            AS_IT_IS=as_it_is,
            N_TEMPERATURES=len(temperatures),
            FIGURES=figures,
            PARTS=triton.next_power_of_2(n_parts),
            num_warps=1,
        )
    return out


@triton.jit
def _add_losses(
    logits,
    index,
    target,
    weight,
    sizes,
    temperatures,
    sums,
    width,
    N_TEMPERATURES: tl.constexpr,
    FIGURES: tl.constexpr,
    MODELS: tl.constexpr,
    NODES: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Add up a part of a model's losses at each temperature, and what is right."""
    model, part, n_parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    size = tl.load(sizes + model).to(tl.int32)
    others = tl.arange(0, MODELS)
    first = tl.sum(tl.load(sizes + others, mask=others < model, other=0), axis=0)
    unit = tl.arange(0, UNITS)[None, :]
    number = tl.arange(0, FIGURES)[None, :]
    figures = tl.zeros([NODES, FIGURES], dtype=tl.float32)
    for done in range(part * NODES, size, n_parts * NODES):
        place = done + tl.arange(0, NODES)
        there = place < size
        node = tl.load(index + first + place, mask=there, other=0)
        own = tl.load(target + first + place, mask=there, other=0)
        share = tl.load(weight + first + place, mask=there, other=0.0)
        scores = tl.load(
            logits + node[:, None] * width + unit,
            mask=there[:, None] & (unit < width),
            other=-float("inf"),
        )
        # Nodes past the end are sure of the first class, and weigh nothing.
        scores = tl.where(there[:, None] | (unit > 0), scores, 0.0)
        right = there & (tl.argmax(scores, axis=1) == own)
        figures += tl.where(number == N_TEMPERATURES, right.to(tl.float32)[:, None], 0)
        for i in range(N_TEMPERATURES):
            scaled = scores / tl.load(temperatures + i)
            top = tl.max(scaled, axis=1)
            total = tl.sum(tl.exp(scaled - top[:, None]), axis=1)
            of_own = tl.sum(tl.where(unit == own[:, None], scaled, 0.0), axis=1)
            loss = share * (tl.log(total) + top - of_own)
            figures += tl.where(number == i, loss[:, None], 0.0)
    sums += (part * tl.num_programs(0) + model) * FIGURES
    tl.store(sums + tl.arange(0, FIGURES), tl.sum(figures, axis=0))


@triton.jit(do_not_specialize=["n_parts"])
def _read_losses(
    sums,
    sizes,
    out,
    n_parts,
    AS_IT_IS: tl.constexpr,
    N_TEMPERATURES: tl.constexpr,
    FIGURES: tl.constexpr,
    PARTS: tl.constexpr,
):
    model, n_models = tl.program_id(0), tl.num_programs(0)
    part, number = tl.arange(0, PARTS)[:, None], tl.arange(0, FIGURES)
    at = (part * n_models + model) * FIGURES + number[None, :]
    figures = tl.sum(tl.load(sums + at, mask=part < n_parts, other=0.0), axis=0)
    loss = tl.sum(tl.where(number == AS_IT_IS, figures, 0.0), axis=0)
    right = tl.sum(tl.where(number == N_TEMPERATURES, figures, 0.0), axis=0)
    is_loss = number < N_TEMPERATURES
    least = tl.min(tl.where(is_loss, figures, float("inf")), axis=0)
    # The least of numbers, of which one is none, is none.
    has_nan = tl.max((figures != figures).to(tl.int32), axis=0) > 0
    size = tl.maximum(tl.load(sizes + model), 1).to(tl.float32)
    tl.store(out + model, loss)
    tl.store(out + n_models + model, right / size)
    tl.store(out + 2 * n_models + model, tl.where(has_nan, float("nan"), least))


def judge(
    reached: Tensor | None,
    last_loss: Tensor,
    *,
    epoch: Tensor,
    alive: Tensor,
    best_score: Tensor,
    best_epoch: Tensor,
    watched: Tensor,
    tol: Tensor,
    min_iter: Tensor,
    max_iter: Tensor,
    patience: Tensor,
) -> tuple[Tensor, Tensor]:
    """Find the models that are the best so far, and those that go on."""
    n_models = len(alive)
    figures = torch.empty(5, n_models, device=alive.device)
    chosen = torch.empty_like(alive)
    with torch.cuda.device_of(alive):
        _judge[(1,)](
            reached,
            last_loss,
            epoch,
            alive,
            best_score,
            best_epoch,
            watched,
            tol,
            min_iter,
            max_iter,
            patience,
            figures,
            chosen,
            n_models,
            MODELS=_room_for(n_models),
            num_warps=1,
        )
    return figures, chosen


@triton.jit(do_not_specialize=["n_models"])
def _judge(
    reached,
    last_loss,
    epoch,
    alive,
    best_score,
    best_epoch,
    watched,
    tol,
    min_iter,
    max_iter,
    patience,
    figures,
    chosen,
    n_models,
    MODELS: tl.constexpr,
):
    model = tl.arange(0, MODELS)
    there = model < n_models
    now = tl.load(epoch)
    loss = tl.load(last_loss + model, mask=there, other=0.0)
    here = tl.load(alive + model, mask=there, other=0) != 0
    here &= tl.abs(loss) < float("inf")
    best = tl.load(best_epoch + model, mask=there, other=0.0)
    goes_on = now < tl.load(max_iter + model, mask=there, other=0.0)
    val_loss = tl.zeros([MODELS], dtype=tl.float32)
    accuracy = val_loss
    if reached is None:
        better = here & (now >= tl.load(max_iter + model, mask=there, other=0.0))
        best = tl.where(better, now, best)
    else:
        val_loss = tl.load(reached + model, mask=there, other=0.0)
        accuracy = tl.load(reached + n_models + model, mask=there, other=0.0)
        calibrated = tl.load(reached + 2 * n_models + model, mask=there, other=0.0)
        number = tl.load(watched + model, mask=there, other=0)
        score = tl.where(number == 1, -val_loss, accuracy)
        score = tl.where(number == 0, -calibrated, score).to(tl.float64)
        before = tl.load(best_score + model, mask=there, other=0.0)
        better = here & (score > before + tl.load(tol + model, mask=there, other=0.0))
        best = tl.where(better, now, best)
        waits = now < tl.load(min_iter + model, mask=there, other=0.0)
        waits |= now - best < tl.load(patience + model, mask=there, other=0.0)
        goes_on &= waits
        tl.debug_barrier()  # all have read what one of them writes
        tl.store(best_score + model, tl.where(better, score, before), mask=there)
    goes_on &= here
    tl.debug_barrier()
    tl.store(best_epoch + model, best, mask=there)
    tl.store(alive + model, goes_on, mask=there)
    tl.store(chosen + model, better, mask=there)
    tl.store(figures + model, val_loss, mask=there)
    tl.store(figures + n_models + model, accuracy, mask=there)
    tl.store(figures + 2 * n_models + model, loss, mask=there)
    tl.store(figures + 3 * n_models + model, goes_on.to(tl.float32), mask=there)
    tl.store(figures + 4 * n_models + model, best.to(tl.float32), mask=there)
