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
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sktifa.tensors.jit import njit
from sktifa.tensors.kernels import MOST_GRADIENT, Drawn
from sktifa.tensors.kernels.plain import judge, step_sizes, validate

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
    "spread_over",
    "step_sizes",
    "transposed_matmul",
    "validate",
]

_MOST = np.float32(MOST_GRADIENT)
_NO_ORDER = np.zeros(0, dtype=np.int32)
# A draw is a number of 24 bits, which a float32 holds.
_BITS = np.float32(1 << 24)
# Sums in any order, but NaN stays NaN: a model that diverges must show it.
_FAST = {"contract", "reassoc", "nsz"}
# Numbers that a part must have to work on: handing one over takes 20 microseconds.
_LEAST = 1 << 17
# Rows of a dense product that are multiplied at a time. It doesn't depend on the
# number of threads, so neither does the order of a sum.
_ROWS = 4096
# Entries of the vectors that an unrolled loop works on.
_VECTORS = 64
# A row of so many floats fills a vector.
_WIDE = 16

_LOCAL = threading.local()


@contextmanager
def spread_over(n_threads: int) -> Iterator[None]:
    """Let kernels called in this thread use so many threads."""
    before = getattr(_LOCAL, "n_threads", 1)
    _LOCAL.n_threads = n_threads
    try:
        yield
    finally:
        _LOCAL.n_threads = before


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
    n_threads = getattr(_LOCAL, "n_threads", 1)
    n_parts = min(n_threads, work // _LEAST, n_rows)
    if n_parts < 2:
        call(0, n_rows)
        return
    if cost is None:
        # Whole vectors: what a loop leaves over rounds otherwise.
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
    order: Tensor | None = None,
) -> Tensor:
    """Multiply a sparse matrix by the dense one of each model.

    Parameters
    ----------
    crow, col : Tensor of int32
        CSR pattern.
    values : Tensor of float32, shape (n_stored,)
        Stored values.
    dense : Tensor of float32, shape (n_models, n_columns, width)
        Each model's factor.
    drawn : Drawn, default=None
        Dropout of the values.
    order : Tensor of int32, shape (n_stored,), default=None
        For a transposed matrix: where each value stands in the original one. The
        nodes of `drawn` are the columns then, else the rows.

    Returns
    -------
    Tensor of float32, shape (n_models, n_rows, width)
    """
    rows = crow.shape[0] - 1
    out = torch.empty(dense.shape[0], rows, dense.shape[2])
    if not out.numel():
        return out
    blocks = dense.detach().contiguous().numpy()
    pattern = crow.numpy(), col.numpy(), values.numpy()
    target = out.numpy()
    work = (len(pattern[1]) + rows) * dense.shape[0] * dense.shape[2]
    if drawn is None:
        _spread(
            lambda begin, end: _product(*pattern, blocks, target, begin, end),
            rows,
            work,
            pattern[0],
        )
        return out
    keeps_nodes = drawn.keep.shape[1] > 1
    arguments = (
        _NO_ORDER if order is None else order.numpy(),
        drawn.seed.numpy(),
        drawn.keep.numpy(),
        drawn.scale.numpy(),
        keeps_nodes and order is None,
        keeps_nodes and order is not None,
    )
    _spread(
        lambda begin, end: _drawn_product(
            *pattern, blocks, target, *arguments, begin, end
        ),
        rows,
        work,
        pattern[0],
    )
    return out


def add_arcs(
    out: Tensor, dense: Tensor, target: Tensor, source: Tensor, weight: Tensor
) -> None:
    """Add `weight` times the row `source` of `dense` to the row `target` of `out`.

    Parameters
    ----------
    out, dense : Tensor of float32, shape (n_models, n_nodes, width)
        The former is written to.
    target, source : Tensor of int64, shape (n_arcs,)
        Nodes, counted through all models.
    weight : Tensor of float32, shape (n_arcs,)
        0 is no arc.
    """
    width = out.shape[2]
    _add_arcs(
        out.numpy().reshape(-1, width),
        dense.detach().numpy().reshape(-1, width),
        target.numpy(),
        source.numpy(),
        weight.numpy(),
    )


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    if right.shape[1] < _WIDE:  # a row of seven classes fills no vector
        out.copy_((right.T @ left.T).T)
    else:
        torch.mm(left, right, out=out)


def matmul(x: Tensor, weight: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's matrices; sums don't depend on models or threads.

    Parameters
    ----------
    x : Tensor of float32, shape (n_models or 1, n, m)
        One for all, or one each.
    weight : Tensor of float32, shape (n_models, m, width)
        Each model's.
    drawn : Drawn, default=None
        Dropout of an `x` that is one for all.

    Returns
    -------
    Tensor of float32, shape (n_models, n, width)
    """
    if drawn is not None:
        x = drop(x[0], drawn)
    n_models, n = weight.shape[0], x.shape[1]
    out = torch.empty(n_models, n, weight.shape[2])
    x, weight = x.detach().expand(n_models, -1, -1), weight.detach()

    def rows(begin: int, end: int) -> None:
        for model in range(n_models):
            for first in range(begin * _ROWS, min(end * _ROWS, n), _ROWS):
                part = slice(first, first + _ROWS)
                _multiply(x[model, part], weight[model], out[model, part])

    _spread(rows, -(-n // _ROWS), n * n_models * (x.shape[2] + weight.shape[2]))
    return out


def transposed_matmul(x: Tensor, grad: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's transposed ``x`` by its ``grad``.

    Parameters
    ----------
    x : Tensor of float32, shape (n_models or 1, n, m)
        One for all, or one each.
    grad : Tensor of float32, shape (n_models, n, width)
        Each model's.
    drawn : Drawn, default=None
        Dropout of an `x` that is one for all.

    Returns
    -------
    Tensor of float32, shape (n_models, m, width)
    """
    if drawn is not None:
        x = drop(x[0], drawn)
    n_models, n, width = grad.shape
    x, grad = x.detach().expand(n_models, -1, -1), grad.detach()
    n_parts = max(-(-n // _ROWS), 1)
    parts = torch.empty(n_parts, n_models, x.shape[2], width)

    def sums(begin: int, end: int) -> None:
        for part in range(begin, end):
            rows = slice(part * _ROWS, (part + 1) * _ROWS)
            for model in range(n_models):
                _multiply(x[model, rows].T, grad[model, rows], parts[part, model])

    _spread(sums, n_parts, n * n_models * (x.shape[2] + width))
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def drop(values: Tensor, drawn: Drawn) -> Tensor:
    """Draw dropout of one dense matrix for each model.

    Parameters
    ----------
    values : Tensor of float32, shape (n_nodes, width)
        The same for each model.
    drawn : Drawn
        Dropout of the entries.

    Returns
    -------
    Tensor of float32, shape (n_models, n_nodes, width)
    """
    out = torch.empty(len(drawn.scale), *values.shape)
    keep = drawn.keep.expand(-1, len(values)).contiguous().numpy()
    parts = values.numpy(), out.numpy(), drawn.seed.numpy(), keep
    scale = drawn.scale.numpy()
    _spread(
        lambda begin, end: _drop(*parts, scale, begin, end), len(values), out.numel()
    )
    return out


def activate(h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
    """Add the bias, cut off what is negative and drop entries.

    Parameters
    ----------
    h : Tensor of float32, shape (n_models, n_nodes, width)
        Each model's.
    bias : Tensor of float32, shape (n_models, width)
        Each model's.
    drawn : Drawn, default=None
        Dropout of the entries, with a probability a model.

    Returns
    -------
    Tensor of float32, shape (n_models, n_nodes, width)
    """
    out = torch.empty_like(h)
    parts = h.detach().numpy(), bias.detach().contiguous().numpy(), out.numpy()
    if drawn is None:
        _spread(lambda begin, end: _activate(*parts, begin, end), h.shape[1], h.numel())
        return out
    draw = drawn.seed.numpy(), drawn.keep.numpy(), drawn.scale.numpy()
    _spread(
        lambda begin, end: _activate_drawn(*parts, *draw, begin, end),
        h.shape[1],
        h.numel(),
    )
    return out


def activate_backward(grad: Tensor, out: Tensor, drawn: Drawn | None) -> Tensor:
    """Return the gradient of `h`, given that of what `activate` returned.

    Parameters
    ----------
    grad, out : Tensor of float32, shape (n_models, n_nodes, width)
        The gradient, and what `activate` returned: what is 0 there has none.
    drawn : Drawn or None
        As for `activate`.

    Returns
    -------
    Tensor of float32, shape (n_models, n_nodes, width)
    """
    of_h = torch.empty_like(out)
    scale = np.ones(len(out), np.float32)
    if drawn is not None:
        scale *= drawn.scale.numpy()[:, 0]
    parts = grad.contiguous().numpy(), out.numpy(), of_h.numpy()
    _spread(
        lambda begin, end: _activate_backward(*parts, scale, begin, end),
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

    Parameters
    ----------
    parameter, grad, mean, square : Tensor of float32, shape (n_models, ...)
        All but `grad` are written to.
    betas, eps : float
        Adam's constants.
    size : Tensor of float32, shape (n_models,)
        Each model's negative step size, corrected for the start of `mean`.
    root : Tensor of float32, shape ()
        Corrects the start of `square`.
    weight_decay : Tensor of float32, shape (n_models,)
        Each model's.
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
        4 * parameter.numel(),
    )


def copy_where(chosen: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy the chosen models' parameters; the others cost nothing.

    Parameters
    ----------
    chosen : Tensor of bool, shape (n_models,)
        Which.
    source, target : Tensor of float32, shape (n_models, ...)
        From and to.
    """
    for model in chosen.nonzero()[:, 0].tolist():
        target[model].copy_(source[model])


@njit(no_cpython_wrapper=True)
def _mix(key: np.uint32) -> np.uint32:
    # The finaliser of MurmurHash3. Numba makes 64 bits of 32, unless told.
    key ^= np.uint32(key >> np.uint32(16))
    key = np.uint32(key * np.uint32(0x85EBCA6B))
    key ^= np.uint32(key >> np.uint32(13))
    key = np.uint32(key * np.uint32(0xC2B2AE35))
    return np.uint32(key ^ np.uint32(key >> np.uint32(16)))


@njit(no_cpython_wrapper=True)
def _draw(seed: np.int64, entry: np.uint32) -> np.float32:
    """Return a number in [0, 2^24) for an entry."""
    low, high = np.uint32(seed), np.uint32(seed >> 32)
    key = _mix(np.uint32(_mix(np.uint32(entry ^ low)) + high))
    return np.float32(np.uint32(key >> np.uint32(8)))


@njit(fastmath=_FAST, error_model="numpy", no_cpython_wrapper=True)
def _add_rows(
    out: NDArray[np.float32],
    dense: NDArray[np.float32],
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    count: int,
) -> None:
    """Set `out` to a combination of rows, four at a time."""
    width = out.shape[0]
    for j in range(width):
        out[j] = 0
    k = 0
    while k + 4 <= count:
        a, b, c, d = (
            dense[col[k]],
            dense[col[k + 1]],
            dense[col[k + 2]],
            dense[col[k + 3]],
        )
        va, vb, vc, vd = values[k], values[k + 1], values[k + 2], values[k + 3]
        for j in range(width):
            out[j] += va * a[j] + vb * b[j] + vc * c[j] + vd * d[j]
        k += 4
    while k < count:
        a, va = dense[col[k]], values[k]
        for j in range(width):
            out[j] += va * a[j]
        k += 1


@njit(fastmath=_FAST, error_model="numpy")
def _product(
    crow: NDArray[np.int32],
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    out: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    for block in range(out.shape[0]):
        for row in range(begin, end):
            first, last = crow[row], crow[row + 1]
            _add_rows(
                out[block, row],
                dense[block],
                col[first:last],
                values[first:last],
                last - first,
            )


@njit(fastmath=_FAST, error_model="numpy")
def _drawn_product(
    crow: NDArray[np.int32],
    col: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    out: NDArray[np.float32],
    order: NDArray[np.int32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
    keeps_rows: bool,
    keeps_columns: bool,
    begin: int,
    end: int,
) -> None:
    n_blocks = out.shape[0]
    longest = 0
    for row in range(begin, end):
        if crow[row + 1] - crow[row] > longest:
            longest = crow[row + 1] - crow[row]
    # A row's survivors: what is dropped is not multiplied by.
    kept_col = np.empty(longest, dtype=np.int32)
    kept_values = np.empty(longest, dtype=np.float32)
    for block in range(n_blocks):
        factor, limit = scale[block, 0], keep[block, 0] * _BITS
        for row in range(begin, end):
            if keeps_rows:
                limit = keep[block, row] * _BITS
            count = np.int64(0)  # a literal would compile `_add_rows` once more
            for place in range(crow[row], crow[row + 1]):
                column = col[place]
                if keeps_columns:
                    limit = keep[block, column] * _BITS
                entry = order[place] if order.shape[0] else place
                kept_col[count] = column
                kept_values[count] = values[place] * factor
                # No branch: which way a draw goes can't be guessed.
                count += _draw(seed[block], np.uint32(entry)) < limit
            _add_rows(out[block, row], dense[block], kept_col, kept_values, count)


@njit(fastmath=_FAST, error_model="numpy")
def _drop(
    values: NDArray[np.float32],
    out: NDArray[np.float32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, _, width = out.shape
    for block in range(n_blocks):
        factor = scale[block, 0]
        for node in range(begin, end):
            limit = keep[block, node] * _BITS
            for j in range(width):
                is_kept = _draw(seed[block], np.uint32(node * width + j)) < limit
                out[block, node, j] = values[node, j] * factor if is_kept else 0


@njit(fastmath=_FAST, error_model="numpy")
def _activate(
    h: NDArray[np.float32],
    bias: NDArray[np.float32],
    out: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, _, width = h.shape
    for block in range(n_blocks):
        for node in range(begin, end):
            for j in range(width):
                value = h[block, node, j] + bias[block, j]
                out[block, node, j] = 0 if value < 0 else value


@njit(fastmath=_FAST, error_model="numpy")
def _activate_drawn(
    h: NDArray[np.float32],
    bias: NDArray[np.float32],
    out: NDArray[np.float32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    n_blocks, _, width = h.shape
    for block in range(n_blocks):
        limit, factor = keep[block, 0] * _BITS, scale[block, 0]
        for node in range(begin, end):
            for j in range(width):
                value = (h[block, node, j] + bias[block, j]) * factor
                is_kept = _draw(seed[block], np.uint32(node * width + j)) < limit
                out[block, node, j] = 0 if value < 0 or not is_kept else value


@njit(fastmath=_FAST, error_model="numpy")
def _activate_backward(
    grad: NDArray[np.float32],
    out: NDArray[np.float32],
    of_h: NDArray[np.float32],
    scale: NDArray[np.float32],
    begin: int,
    end: int,
) -> None:
    for block in range(out.shape[0]):
        factor = scale[block]
        for node in range(begin, end):
            for j in range(out.shape[2]):
                passed = grad[block, node, j] * factor
                of_h[block, node, j] = passed if out[block, node, j] > 0 else 0


@njit(fastmath=_FAST, error_model="numpy")
def _add_arcs(
    out: NDArray[np.float32],
    dense: NDArray[np.float32],
    target: NDArray[np.int64],
    source: NDArray[np.int64],
    weight: NDArray[np.float32],
) -> None:
    for arc in range(len(target)):
        value = weight[arc]
        if value != 0:
            to, of = out[target[arc]], dense[source[arc]]
            for j in range(out.shape[1]):
                to[j] += value * of[j]


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
    for model in range(parameter.shape[0]):
        step, decay = size[model] * root, weight_decay[model]
        for place in range(begin, end):
            p = parameter[model, place]
            g = grad[model, place] + p * decay
            # Adam is blind to a gradient's size: its square stays a float32.
            if g > _MOST:
                g = _MOST
            elif g < -_MOST:
                g = -_MOST
            m = mean[model, place] + first * (g - mean[model, place])
            s = square[model, place] * (1 - second) + second * g * g
            mean[model, place], square[model, place] = m, s
            parameter[model, place] = p + step * m / (np.sqrt(s) + eps * root)
