"""GPU kernels of our own, written in Triton, for training many models at once.

A stack's step is bound by memory: what these kernels save is reading and writing.
Dropout of features is drawn where a value is used and again in the backward pass, so
that no mask is ever stored; Adam reads and writes each parameter once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["Drawn", "adam", "copy_where", "csr_product"]

# How many of a row's neighbours a product reads at a time. A tile belongs to one warp,
# so that no sum over neighbours leaves it, and has 512 entries, or 2048 where rows are
# wide (measured on an H100: a third faster than 1024 for both).
_MOST_NEIGHBORS = 16
_CHUNK, _WARPS = 1024, 4


class Drawn:
    """A draw of dropout on the stored values of stacked sparse matrices.

    Parameters
    ----------
    seed : Tensor of int64, shape (1,)
        The same seed draws the same values, by row or by column.
    keep : Tensor of float32, shape (n_blocks, 1) or (n_blocks, n_nodes)
        Probability that a value survives, of a block or of each of its nodes.
    scale : Tensor of float32, shape (n_blocks, 1)
        What a block's survivors are multiplied by.
    """

    def __init__(self, seed: Tensor, keep: Tensor, scale: Tensor) -> None:
        self.seed, self.keep, self.scale = seed, keep.contiguous(), scale.contiguous()


def csr_product(
    crow: Tensor,
    col: Tensor,
    values: Tensor,
    dense: Tensor,
    n_rows: int,
    *,
    drawn: Drawn | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """Multiply a CSR matrix, or several of one pattern, by a dense one.

    Parameters
    ----------
    crow, col : Tensor of int32
        Pattern of a block.
    values : Tensor of float32, shape (n_stored,)
        Stored values, the same in each block.
    dense : Tensor of float32, shape (n_blocks * n_columns, width)
        The blocks below each other.
    n_rows : int
        Rows of all blocks together.
    drawn : Drawn, default=None
        Dropout of the values.
    order : Tensor of int32, shape (n_stored,), default=None
        For a transposed matrix: where each value stands in the original one. The
        nodes of `drawn` are the columns then, else the rows.

    Returns
    -------
    Tensor of float32, shape (n_rows, width)
    """
    rows = crow.shape[0] - 1
    n_blocks = n_rows // max(rows, 1)
    dense = dense.contiguous()
    width = dense.shape[1]
    out = torch.empty(n_rows, width, dtype=dense.dtype, device=dense.device)
    if not out.numel():
        return out
    wide = triton.next_power_of_2(width)
    tile = 2048 if wide >= 32 else 512
    degree = col.shape[0] // max(rows, 1) + 1
    at_once = min(triton.next_power_of_2(degree), _MOST_NEIGHBORS, max(1, tile // wide))
    together = max(1, tile // (wide * at_once))
    keeps = 0
    if drawn is not None:
        keeps = 1 if drawn.keep.shape[1] == 1 else 3 if order is not None else 2
    with torch.cuda.device_of(dense):
        _product[(triton.cdiv(rows, together), n_blocks)](
            crow,
            col,
            values,
            dense,
            out,
            order,
            drawn and drawn.seed,
            drawn and drawn.keep,
            drawn and drawn.scale,
            rows,
            dense.shape[0] // n_blocks,
            col.shape[0],
            width,
            KEEPS=keeps,
            ORDERED=order is not None,
            ROWS=together,
            NEIGHBORS=at_once,
            WIDTH=wide,
            num_warps=1,
        )
    return out


@triton.jit
def _mix(key):
    # The finaliser of MurmurHash3.
    key ^= key >> 16
    key *= 0x85EBCA6B
    key ^= key >> 13
    key *= 0xC2B2AE35
    return key ^ (key >> 16)


@triton.jit
def _uniform(seed, entry):
    """Return a number in [0, 1) for each entry.

    All threads that share a value draw it for themselves: a hash costs them a tenth
    of what a generator for cryptography does.
    """
    low, high = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    key = _mix(_mix(entry.to(tl.uint32) ^ low) + high)
    return (key >> 8).to(tl.float32) * (1 / (1 << 24))


@triton.jit
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
    n_stored,
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
    done = 0
    while done < longest:
        place = begin[:, None] + done + tl.arange(0, NEIGHBORS)[None, :]
        there = place < end[:, None]
        column = tl.load(col + place, mask=there, other=0)
        value = tl.load(values + place, mask=there, other=0.0)
        if KEEPS:
            entry = place
            if ORDERED:
                entry = tl.load(order + place, mask=there, other=0)
            draw = _uniform(tl.load(seed), block * n_stored + entry)
            if KEEPS == 1:
                chance = tl.load(keep + block)
            elif KEEPS == 2:
                chance = tl.load(keep + block * n_rows + row, mask=is_row, other=0.0)
                chance = chance[:, None]
            else:
                chance = tl.load(
                    keep + block * n_columns + column, mask=there, other=0.0
                )
            value = tl.where(draw < chance, value * tl.load(scale + block), 0.0)
        source = (first + column) * width
        part = tl.load(
            dense + source[:, :, None] + unit[None, None, :],
            mask=there[:, :, None] & is_unit[None, None, :],
            other=0.0,
        )
        total += tl.sum(value[:, :, None] * part, axis=1)
        done += NEIGHBORS
    target = (block.to(tl.int64) * n_rows + row) * width
    tl.store(
        out + target[:, None] + unit[None, :],
        total,
        mask=is_row[:, None] & is_unit[None, :],
    )


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
    CHUNK: tl.constexpr,
):
    model = tl.program_id(1)
    place = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    there = place < count
    at = model.to(tl.int64) * count + place
    p = tl.load(parameter + at, mask=there)
    g = tl.load(grad + at, mask=there) + p * tl.load(weight_decay + model)
    m = tl.load(mean + at, mask=there)
    s = tl.load(square + at, mask=there)
    m += first * (g - m)
    s += second * (g * g - s)
    r = tl.load(root)
    p += tl.load(size + model) * r * m / (tl.sqrt(s) + eps * r)
    tl.store(mean + at, m, mask=there)
    tl.store(square + at, s, mask=there)
    tl.store(parameter + at, p, mask=there)


def copy_where(chosen: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy the chosen models' parameters; the others cost nothing.

    Parameters
    ----------
    chosen : Tensor of bool, shape (n_models,)
        Which.
    source, target : Tensor of float32, shape (n_models, ...)
        From and to.
    """
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
