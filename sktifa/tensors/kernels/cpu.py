"""The kernels in numba. They hold no lock: threads train models beside each other.

Every kernel works on a range of rows, so that a fit that has cores to itself spreads
them (:func:`spread_over`). A row comes out the same whatever range it is in: a model
is the same however many threads trained it. Tensors are contiguous.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.jit import njit
from sktifa.tensors.kernels import MOST_GRADIENT, Drawn
from sktifa.tensors.kernels.memory import empty
from sktifa.tensors.kernels.plain import judge, step_sizes
from sktifa.tensors.kernels.vectors import (
    LANES,
    add,
    draw,
    first_lanes,
    load,
    load_where,
    multiply,
    multiply_add,
    n_lanes,
    narrow_load,
    narrow_zeros,
    pack,
    positive,
    store,
    store_where,
    where,
    zeros,
)

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
    "judge",
    "matmul",
    "propagate",
    "spread_over",
    "step_sizes",
    "transposed_csr_product",
    "transposed_matmul",
    "validate",
]

_MOST = np.float32(MOST_GRADIENT)
_NO_SEED = np.zeros(0, dtype=np.int64)
_NO_CHANCE = np.zeros((0, 0), dtype=np.float32)
# Sums in any order, but NaN stays NaN: a model that diverges must show it.
_FAST = {"contract", "reassoc", "nsz"}
# Nanoseconds of work, about, that a part must have: handing one over takes half.
_LEAST = 150_000
# Rows of a dense product that are multiplied at a time. It doesn't depend on the
# number of threads, so neither does the order of a sum.
_ROWS = 4096
# Entries of the vectors that an unrolled loop works on.
_VECTORS = 64
# Sums that a transposed product is shared out to, at most.
_MOST_SUMS = 8

_LOCAL = threading.local()


@contextmanager
def spread_over(n_threads: int | Callable[[], int]) -> Iterator[None]:
    """Let kernels called in this thread use so many threads; a function is asked."""
    before = getattr(_LOCAL, "n_threads", 1)
    _LOCAL.n_threads = n_threads
    try:
        yield
    finally:
        _LOCAL.n_threads = before


def _threads() -> int:
    n_threads = getattr(_LOCAL, "n_threads", 1)
    return n_threads() if callable(n_threads) else n_threads


@cache
def _pool(n_threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        n_threads,
        thread_name_prefix="sktifa-kernel",
        # What PyTorch adds up depends on its number of threads.
        initializer=torch.set_num_threads,
        initargs=(1,),
    )


# A forked child has the pools, but none of their threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def _spread(
    call: Callable[[int, int], object],
    n_rows: int,
    work: int,
    cost: NDArray[np.integer] | None = None,
) -> None:
    """Call `call(begin, end)` for parts of all rows, as threads allow.

    `cost` says, cumulated, what the rows take; None means all the same.
    """
    n_threads = _threads()
    n_parts = min(n_threads, work // _LEAST, n_rows)
    if n_parts < 2:
        call(0, n_rows)
        return
    if cost is None:
        # Whole vectors: what a loop over numbers leaves over may round otherwise.
        unit = _VECTORS if n_rows > _LEAST else 1
        ends = np.linspace(0, n_rows // unit, n_parts + 1).astype(int) * unit
        ends[-1] = n_rows
    else:
        ends = np.searchsorted(cost, np.linspace(0, cost[-1], n_parts + 1))
        ends[0], ends[-1] = 0, n_rows
    parts = [
        _pool(n_threads - 1).submit(call, int(a), int(b))
        for a, b in zip(ends[1:], ends[2:], strict=False)
    ]
    try:
        call(0, int(ends[1]))
    finally:
        wait(parts)
    for part in parts:
        part.result()


def csr_product(
    crow: Tensor,
    col: Tensor,
    values: Tensor,
    dense: Tensor,
    *,
    drawn: Drawn | None = None,
) -> Tensor:
    """Multiply a sparse matrix by the dense one of each model.

    After dropout of its values; from (n_models, n_columns, width) to (n_models, n_rows,
    width), in float32. The pattern is int32.
    """
    rows, width = len(crow) - 1, dense.shape[2]
    if drawn is None and width < LANES:  # MKL fills no rows up
        shape = rows, dense.shape[1]
        matrix = torch.sparse_csr_tensor(
            crow, col, values, shape, check_invariants=False
        )
        return torch.stack([matrix @ one for one in dense.detach()])
    dense = _whole_vectors(dense)
    out = empty(dense.shape[0], rows, dense.shape[2])
    parts = _csr_arguments(crow, col, values, drawn)
    factors = dense.numpy(), out.numpy()
    room = _row_of(dense.shape[1])
    _spread(
        lambda begin, end: _product(*parts, *room(), *factors, False, begin, end),
        rows,
        _csr_nanoseconds(parts, factors[0]),
        parts[0],
    )
    return _first_columns(out, width)


def transposed_csr_product(
    crow: Tensor,
    col: Tensor,
    values: Tensor,
    dense: Tensor,
    n_columns: int,
    *,
    drawn: Drawn | None = None,
) -> Tensor:
    """Multiply a transposed sparse matrix by the dense one of each model.

    The matrix, and the dropout, are those before it is transposed, as for
    :func:`csr_product`. From (n_models, n_rows, width) to (n_models, n_columns, width).
    """
    rows, width = len(crow) - 1, dense.shape[2]
    dense = _whole_vectors(dense)
    parts = _csr_arguments(crow, col, values, drawn)
    # Each part adds up to a matrix of its own: as many as are worth that.
    n_parts = max(1, min(_MOST_SUMS, len(col) // (64 * n_columns + 1)))
    sums = empty(n_parts, dense.shape[0], n_columns, dense.shape[2])
    ends = np.searchsorted(parts[0], np.linspace(0, len(col), n_parts + 1))
    ends[0], ends[-1] = 0, rows
    n_models = len(dense)
    factor, outs, room = dense.numpy(), sums.numpy(), _row_of(n_columns)

    def add_up(begin: int, end: int) -> None:
        for part, models in _parts_and_models(begin, end, n_models):
            out = outs[part, models]
            out.fill(0)
            drawn_of = (array[models] for array in parts[3:])
            some = int(ends[part]), int(ends[part + 1])
            _product(*parts[:3], *drawn_of, *room(), factor[models], out, True, *some)

    _spread(add_up, n_parts * n_models, 2 * _csr_nanoseconds(parts, factor))
    return _first_columns(_total(sums), width)


def propagate(
    scores: Tensor,
    graph: Adjacency,
    scale: Tensor,
    flips: tuple[Tensor, Tensor, Tensor] | None,
    steps: int,
    teleport: float,
) -> Tensor:
    """Take steps of ``h <- (1 - teleport) D A D h + teleport * scores`` from scores on.

    A state is ``D h``, of which a step is ``(1 - teleport) D^2 A`` times it, and
    `teleport` times the first. A is the graph's arcs, with a loop at each node, and for
    each model what `flips` add: `target`, `source` and `weight`, as :func:`add_arcs`
    takes them. The diagonal of D is `scale`, (n_models or 1, n_nodes, 1). At least one
    step is taken.
    """
    n_models, n_nodes, width = scores.shape
    lanes = _lanes(width)
    shape = n_models, n_nodes, width + -width % len(lanes)
    state, *others = (empty(*shape) for _ in range(1 + min(steps, 2)))
    start, out = state, empty(*scores.shape)
    _scale_rows(scores.detach(), scale, state)
    factor = scale * scale * (1 - teleport)
    if flips is not None:
        target, source, weight = flips
        weight = weight * factor.view(-1).index_select(0, target)
    parts = tuple(part.numpy() for part in graph.by_degree)
    rest = factor.numpy(), start.numpy(), np.float32(teleport), lanes
    work = len(parts[1]) * n_models * (shape[2] // len(lanes))
    for step in range(steps):
        there = others[step % 2]
        call = partial(_propagation_step, *parts, state.numpy(), there.numpy(), *rest)
        _spread(call, n_nodes, work, parts[0])
        if flips is not None:
            add_arcs(there, state, target, source, weight)
        state = there
    _scale_rows(state, 1 / scale, out)
    return out


def _lanes(width: int) -> tuple[int, ...]:
    """Return a tuple as long as the vectors that rows of a width are cut into."""
    return (0,) * min(LANES, max(4, 1 << (width - 1).bit_length()))


def _scale_rows(rows: Tensor, factor: Tensor, out: Tensor) -> None:
    """Multiply each node's row; rows of `out` may be longer, and end in zeros."""
    parts = rows.numpy(), factor.numpy(), out.numpy()
    call = partial(_scaled_rows, *parts)
    _spread(call, out.shape[1], out.numel())


def _parts_and_models(
    begin: int, end: int, n_models: int
) -> Iterator[tuple[int, slice]]:
    """Cut a range of parts times models, these side by side, at the parts."""
    while begin < end:
        part, first = divmod(begin, n_models)
        last = min(n_models, first + end - begin)
        yield part, slice(first, last)
        begin += last - first


def _csr_arguments(
    crow: Tensor, col: Tensor, values: Tensor, drawn: Drawn | None
) -> tuple[NDArray[Any], ...]:
    return crow.numpy(), col.numpy(), values.numpy(), *_draw_arguments(drawn)


def _draw_arguments(drawn: Drawn | None) -> tuple[NDArray[Any], ...]:
    """Return what kernels take of a draw: without one, no seeds."""
    if drawn is None:
        return _NO_SEED, _NO_CHANCE, _NO_CHANCE
    return drawn.seed.numpy(), drawn.keep.numpy(), drawn.scale.numpy()


def _row_of(n_columns: int) -> Callable[[], tuple[NDArray[Any], ...]]:
    """Return what makes room for the columns and values that are kept of a row."""
    size = n_columns + LANES
    return lambda: (np.empty(size, np.int32), np.empty(size, np.float32))


def _csr_nanoseconds(
    parts: tuple[NDArray[Any], ...], dense: NDArray[np.float32]
) -> int:
    """Say about how long a product takes."""
    n_models, _, width = dense.shape
    return (len(parts[1]) + len(parts[0])) * n_models * (width // LANES + 1) // 2


def _whole_vectors(dense: Tensor) -> Tensor:
    """Fill up rows to whole vectors."""
    missing = -dense.shape[2] % LANES
    dense = dense.detach()
    if not missing:
        return dense.contiguous()
    n_models, n_rows, width = dense.shape
    filled = empty(n_models, n_rows, width + missing)
    filled[:, :, :width] = dense
    filled[:, :, width:] = 0
    return filled


def _first_columns(dense: Tensor, width: int) -> Tensor:
    if width == dense.shape[2]:
        return dense
    return empty(*dense.shape[:2], width).copy_(dense[:, :, :width])


def _total(parts: Tensor) -> Tensor:
    """Add up, in order."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def add_arcs(
    out: Tensor, dense: Tensor, target: Tensor, source: Tensor, weight: Tensor
) -> None:
    """Add `weight` times the row `source` of `dense` to the row `target` of `out`.

    Rows are nodes, int64, counted through all models; a weight of 0 is no arc.
    """
    width = out.shape[2]
    _add_arcs(
        out.numpy().reshape(-1, width),
        dense.detach().numpy().reshape(-1, width),
        target.numpy(),
        source.numpy(),
        weight.numpy(),
        _lanes(width),
    )


def matmul(x: Tensor, weight: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's matrices; sums don't depend on models or threads.

    `x`, (n_models or 1, n, m), is one for all, which dropout may be drawn of, or one
    each.
    """
    if drawn is not None:
        x = drop(x[0], drawn)
    n_models, n = weight.shape[0], x.shape[1]
    out = empty(n_models, n, weight.shape[2])
    x, weight = x.detach().expand(n_models, -1, -1), weight.detach()

    def rows(begin: int, end: int) -> None:
        for part, models in _parts_and_models(begin, end, n_models):
            some = slice(part * _ROWS, (part + 1) * _ROWS)
            for model in range(n_models)[models]:
                torch.mm(x[model, some], weight[model], out=out[model, some])

    n_parts = -(-n // _ROWS)
    _spread(rows, n_parts * n_models, _dense_nanoseconds(x, weight.shape[2]))
    return out


def _dense_nanoseconds(x: Tensor, width: int) -> int:
    return x.numel() * (width + 8) // 32


def transposed_matmul(x: Tensor, grad: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's transposed ``x``, as for `matmul`, by its ``grad``."""
    if drawn is not None:
        x = drop(x[0], drawn)
    n_models, n, width = grad.shape
    x, grad = x.detach().expand(n_models, -1, -1), grad.detach()
    n_parts = max(-(-n // _ROWS), 1)
    parts = empty(n_parts, n_models, x.shape[2], width)

    def sums(begin: int, end: int) -> None:
        for part, models in _parts_and_models(begin, end, n_models):
            rows = slice(part * _ROWS, (part + 1) * _ROWS)
            for model in range(n_models)[models]:
                torch.mm(x[model, rows].T, grad[model, rows], out=parts[part, model])

    _spread(sums, n_parts * n_models, _dense_nanoseconds(x, width))
    return _total(parts)


def drop(values: Tensor, drawn: Drawn) -> Tensor:
    """Draw dropout of one dense matrix for each model: (n_models, n_nodes, width)."""
    out = empty(len(drawn.scale), *values.shape)
    keep = drawn.keep.expand(-1, len(values)).contiguous().numpy()
    parts = values.numpy(), out.numpy(), drawn.seed.numpy(), keep
    scale = drawn.scale.numpy()
    _spread(
        lambda begin, end: _drop(*parts, scale, begin, end), len(values), out.numel()
    )
    return out


def activate(h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
    """Add the bias, (n_models, width), cut off what is negative and drop entries."""
    out = empty(*h.shape)
    parts = h.detach().numpy(), bias.detach().contiguous().numpy(), out.numpy()
    draw = _draw_arguments(drawn)
    _spread(
        lambda begin, end: _activate(*parts, *draw, begin, end), h.shape[1], h.numel()
    )
    return out


def activate_backward(grad: Tensor, out: Tensor, drawn: Drawn | None) -> Tensor:
    """Return the gradient of `h`, given that of what `activate` returned, and this.

    What is 0 there has none.
    """
    of_h = empty(*out.shape)
    scale = torch.ones(len(out), 1) if drawn is None else drawn.scale
    parts = grad.numpy(), out.numpy(), scale.numpy(), of_h.numpy()
    _spread(
        lambda begin, end: _activate_backward(*parts, begin, end),
        out.shape[1],
        out.numel(),
    )
    return of_h


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
    """Update stacked parameters by Adam, with L2 regularisation, in one pass.

    All but `grad` of the first four are written to. Of each model, `size` is its
    negative step size, corrected for the start of `mean`; `root` corrects the start of
    `square`.
    """
    n_models = len(parameter)
    parts = [
        tensor.detach().contiguous().numpy().reshape(n_models, -1)
        for tensor in (parameter, grad, mean, square)
    ]
    constants = (
        size.numpy(),
        np.float32(root),
        weight_decay.numpy().ravel(),
        np.float32(1 - betas[0]),
        np.float32(1 - betas[1]),
        np.float32(eps),
    )
    _spread(
        lambda begin, end: _adam(*parts, *constants, begin, end),
        parts[0].shape[1],
        parameter.numel(),
    )


def copy_where(chosen: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy the chosen models' parameters; the others cost nothing."""
    for model in chosen.nonzero()[:, 0].tolist():
        target[model].copy_(source[model])


def validate(
    logits: Tensor,
    nodes: tuple[Tensor, Tensor, Tensor, Tensor],
    sizes: Tensor,
    temperatures: Tensor,
    as_it_is: int,
) -> Tensor:
    """Return each model's cross-entropy, accuracy and least cross-entropy of all.

    What it takes is told in :mod:`~sktifa.tensors.kernels.plain`. A CPU's vectors are
    filled along a row, and a row of seven classes fills none: scores are laid down
    first, model by model, as where a vector is cut depends on what lies before it.
    """
    _, index, target, weight = nodes
    scores = logits.flatten(0, 1).index_select(0, index)
    figures = []
    of_models = (part.split(sizes.tolist()) for part in (scores, target, weight))
    for rows, classes, shares in zip(*of_models, strict=True):
        lying = rows.T.contiguous()[:, None] / temperatures[:, None]
        logs = functional.log_softmax(lying, 0)
        losses = -(logs.gather(0, classes.expand(1, *logs.shape[1:]))[0] @ shares)
        right = (rows.argmax(1) == classes).sum() / max(len(rows), 1)
        figures.append(torch.stack([losses[as_it_is], right, losses.amin()]))
    return torch.stack(figures, 1)


@njit(error_model="numpy", no_cpython_wrapper=True, forceinline=True)
def _keep(
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    begin: np.uintp,
    end: np.uintp,
    seed: np.int64,
    keep: np.float32,
    kept_col: NDArray[np.int32],
    kept_values: NDArray[np.float32],
) -> int:
    """Draw what is kept of a row, lay it down without gaps, and return how much it is.

    Which way a draw goes can't be guessed: to branch would cost more.
    """
    n_kept = 0
    for place in range(begin, end, np.uintp(LANES)):
        mask = first_lanes(end - place) & draw(seed, place, keep)
        pack(kept_col, n_kept, col, place, mask)
        pack(kept_values, n_kept, values, place, mask)
        n_kept += n_lanes(mask)
    return n_kept


@njit(error_model="numpy")
def _product(
    crow: NDArray[np.int32],
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
    kept_col: NDArray[np.int32],
    kept_values: NDArray[np.float32],
    dense: NDArray[np.float32],
    out: NDArray[np.float32],
    transposed: bool,
    begin: int,
    end: int,
) -> None:
    n_blocks, width, n_rows = out.shape[0], out.shape[2], len(crow) - 1
    n_columns = out.shape[1] if transposed else dense.shape[1]
    # Numba asks of every index that has a sign whether it is negative.
    for block in range(n_blocks):
        start = block * n_columns * width
        place = (block * n_rows + begin) * width
        for row in range(np.uintp(begin), np.uintp(end)):
            at, stop = np.uintp(crow[row]), np.uintp(crow[row + np.uintp(1)])
            of_row, weights, factor = col, values, np.float32(1)
            if len(seed):
                chance = keep[block, row if keep.shape[1] > 1 else np.uintp(0)]
                n_kept = _keep(
                    col, values, at, stop, seed[block], chance, kept_col, kept_values
                )
                at, stop = np.uintp(0), np.uintp(n_kept)
                of_row, weights, factor = kept_col, kept_values, scale[block, 0]
            if transposed:
                _scatter(
                    out, start, dense, place, width, factor, of_row, weights, at, stop
                )
            else:
                _combine(
                    out, place, dense, start, width, factor, of_row, weights, at, stop
                )
            place += width


@njit(error_model="numpy", no_cpython_wrapper=True, forceinline=True)
def _combine(
    out: NDArray[np.float32],
    place: int,
    dense: NDArray[np.float32],
    start: int,
    width: int,
    factor: np.float32,
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    begin: np.uintp,
    end: np.uintp,
) -> None:
    """Set a row of `out` to `factor` times a combination of rows of `dense`.

    Both are flat: the row is at `place`, and those of `dense` begin at `start`. Which
    they are, columns say from `begin` to `end`, and values what they weigh.
    """
    tile = 0
    while tile + 4 * LANES <= width:
        a = b = c = d = zeros()
        for k in range(begin, end):
            row = start + np.intp(col[k]) * width + tile
            value = values[k]
            a = multiply_add(value, load(dense, row), a)
            b = multiply_add(value, load(dense, row + LANES), b)
            c = multiply_add(value, load(dense, row + 2 * LANES), c)
            d = multiply_add(value, load(dense, row + 3 * LANES), d)
        store(out, place + tile, multiply(factor, a))
        store(out, place + tile + LANES, multiply(factor, b))
        store(out, place + tile + 2 * LANES, multiply(factor, c))
        store(out, place + tile + 3 * LANES, multiply(factor, d))
        tile += 4 * LANES
    while tile < width:
        a = zeros()
        for k in range(begin, end):
            row = start + np.intp(col[k]) * width + tile
            a = multiply_add(values[k], load(dense, row), a)
        store(out, place + tile, multiply(factor, a))
        tile += LANES


@njit(error_model="numpy", no_cpython_wrapper=True, forceinline=True)
def _scatter(
    out: NDArray[np.float32],
    start: int,
    dense: NDArray[np.float32],
    place: int,
    width: int,
    factor: np.float32,
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    begin: np.uintp,
    end: np.uintp,
) -> None:
    """Add multiples of a row of `dense` to rows of `out`; see :func:`_combine`."""
    tile = 0
    while tile + 4 * LANES <= width:
        a = multiply(factor, load(dense, place + tile))
        b = multiply(factor, load(dense, place + tile + LANES))
        c = multiply(factor, load(dense, place + tile + 2 * LANES))
        d = multiply(factor, load(dense, place + tile + 3 * LANES))
        for k in range(begin, end):
            row = start + np.intp(col[k]) * width + tile
            value = values[k]
            # All are read before one is written, as none depends on another.
            e = multiply_add(value, a, load(out, row))
            f = multiply_add(value, b, load(out, row + LANES))
            g = multiply_add(value, c, load(out, row + 2 * LANES))
            h = multiply_add(value, d, load(out, row + 3 * LANES))
            store(out, row, e)
            store(out, row + LANES, f)
            store(out, row + 2 * LANES, g)
            store(out, row + 3 * LANES, h)
        tile += 4 * LANES
    while tile < width:
        a = multiply(factor, load(dense, place + tile))
        for k in range(begin, end):
            row = start + np.intp(col[k]) * width + tile
            store(out, row, multiply_add(values[k], a, load(out, row)))
        tile += LANES


@njit(error_model="numpy")
def _scaled_rows(
    rows: NDArray[np.float32],
    factor: NDArray[np.float32],
    out: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, n_nodes, width = rows.shape
    filled = out.shape[2]
    for block in range(n_blocks):
        of_model = block if len(factor) > 1 else 0
        for node in range(begin, end):
            row = block * n_nodes + node
            for j in range(0, filled, LANES):
                there, here = first_lanes(width - j), first_lanes(filled - j)
                value = load_where(rows, row * width + j, there & here)
                value = multiply(factor[of_model, node, 0], value)
                store_where(out, row * filled + j, value, here)


@njit(error_model="numpy")
def _propagation_step(
    crow: NDArray[np.int32],
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    nodes: NDArray[np.int32],
    state: NDArray[np.float32],
    out: NDArray[np.float32],
    factor: NDArray[np.float32],
    start: NDArray[np.float32],
    teleport: np.float32,
    lanes: tuple[int, ...],
    begin: int,
    end: int,
) -> None:
    """Set `out` to `factor` times the sum of `state`, and `teleport` times `start`."""
    n_blocks, n_nodes, width = out.shape
    for block in range(n_blocks):
        of_model = block if len(factor) > 1 else 0
        first = block * n_nodes * width
        for tile in range(first, first + width, len(lanes)):
            for row in range(np.uintp(begin), np.uintp(end)):
                total = narrow_zeros(lanes)
                for k in range(np.uintp(crow[row]), np.uintp(crow[row + np.uintp(1)])):
                    near = narrow_load(state, tile + np.intp(col[k]) * width, lanes)
                    total = multiply_add(values[k], near, total)
                node = np.uintp(nodes[row])
                place = tile + np.intp(node) * width
                total = multiply(factor[of_model, node, 0], total)
                own = narrow_load(start, place, lanes)
                store(out, place, multiply_add(teleport, own, total))


@njit(error_model="numpy")
def _drop(
    values: NDArray[np.float32],
    out: NDArray[np.float32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, n_nodes, width = out.shape
    for block in range(n_blocks):
        for node in range(begin, end):
            row = node * width
            place = block * n_nodes * width + row
            for j in range(0, width, LANES):
                here = first_lanes(width - j)
                kept = here & draw(seed[block], row + j, keep[block, node])
                value = multiply(scale[block, 0], load_where(values, row + j, kept))
                store_where(out, place + j, value, here)


@njit(error_model="numpy")
def _activate(
    h: NDArray[np.float32],
    bias: NDArray[np.float32],
    out: NDArray[np.float32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, n_nodes, width = h.shape
    for block in range(n_blocks):
        for node in range(begin, end):
            row = node * width
            place = block * n_nodes * width + row
            for j in range(0, width, LANES):
                here = first_lanes(width - j)
                value = load_where(h, place + j, here)
                value = add(value, load_where(bias, block * width + j, here))
                kept = positive(value)
                if len(seed):
                    kept &= draw(seed[block], row + j, keep[block, 0])
                    value = multiply(scale[block, 0], value)
                store_where(out, place + j, where(kept, value), here)


@njit(error_model="numpy")
def _activate_backward(
    grad: NDArray[np.float32],
    out: NDArray[np.float32],
    scale: NDArray[np.float32],
    of_h: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, n_nodes, width = grad.shape
    for block in range(n_blocks):
        row = block * n_nodes * width
        stop = row + end * width
        for place in range(row + begin * width, stop, LANES):
            here = first_lanes(stop - place)
            kept = here & positive(load_where(out, place, here))
            value = multiply(scale[block, 0], load_where(grad, place, kept))
            store_where(of_h, place, value, here)


@njit(error_model="numpy")
def _add_arcs(
    out: NDArray[np.float32],
    dense: NDArray[np.float32],
    target: NDArray[np.int64],
    source: NDArray[np.int64],
    weight: NDArray[np.float32],
    lanes: tuple[int, ...],
) -> None:
    width = out.shape[1]
    vectors = width - width % len(lanes)
    for arc in range(len(target)):
        value = weight[arc]
        if value != 0:
            to, of = np.intp(target[arc]) * width, np.intp(source[arc]) * width
            for j in range(0, vectors, len(lanes)):
                total = narrow_load(out, to + j, lanes)
                near = narrow_load(dense, of + j, lanes)
                store(out, to + j, multiply_add(value, near, total))
            for j in range(vectors, width):
                out[target[arc], j] += value * dense[source[arc], j]


@njit(fastmath={"contract"}, error_model="numpy")
def _adam(
    parameter: NDArray[np.float32],
    grad: NDArray[np.float32],
    mean: NDArray[np.float32],
    square: NDArray[np.float32],
    size: NDArray[np.float32],
    root: np.float32,
    weight_decay: NDArray[np.float32],
    first: np.float32,
    second: np.float32,
    eps: np.float32,
    begin: int,
    end: int,
) -> None:
    # All of it in float32, without a branch, so that it is done in vectors.
    rest, least = np.float32(1) - second, eps * root
    for model in range(parameter.shape[0]):
        step, decay = size[model] * root, weight_decay[model]
        for place in range(np.uintp(begin), np.uintp(end)):
            p = parameter[model, place]
            g = grad[model, place] + p * decay
            # Adam is blind to a gradient's size: its square stays a float32.
            g = _MOST if g > _MOST else g
            g = -_MOST if g < -_MOST else g
            m = mean[model, place] + first * (g - mean[model, place])
            s = square[model, place] * rest + second * g * g
            mean[model, place] = m
            square[model, place] = s
            parameter[model, place] = p + step * m / (np.sqrt(s) + least)
