"""The kernels in numba. They hold no lock: threads train stacks beside each other.

Tensors are contiguous.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sktifa.tensors.jit import njit
from sktifa.tensors.kernels import Drawn

__all__ = [
    "activate",
    "activate_backward",
    "adam",
    "copy_where",
    "csr_product",
    "drop",
]

_UNSCALED = np.ones((1, 1), dtype=np.float32)
_NO_ORDER = np.zeros(0, dtype=np.int32)
# A draw is a number of 24 bits, which a float32 holds.
_BITS = np.float32(1 << 24)
# Sums in any order, but NaN stays NaN: a model that diverges must show it.
_FAST = {"contract", "reassoc", "nsz"}


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
    rows, width = crow.shape[0] - 1, dense.shape[1]
    out = torch.empty(n_rows, width)
    if not out.numel():
        return out
    n_blocks = n_rows // rows
    blocks = dense.detach().contiguous().numpy().reshape(n_blocks, -1, width)
    pattern = crow.numpy(), col.numpy(), values.numpy()
    target = out.numpy().reshape(n_blocks, rows, width)
    if drawn is None:
        _product(*pattern, blocks, target)
        return out
    keeps_nodes = drawn.keep.shape[1] > 1
    _drawn_product(
        *pattern,
        blocks,
        target,
        _NO_ORDER if order is None else order.numpy(),
        drawn.seed.numpy(),
        drawn.keep.numpy(),
        drawn.scale.numpy(),
        keeps_nodes and order is None,
        keeps_nodes and order is not None,
    )
    return out


def drop(values: Tensor, drawn: Drawn) -> Tensor:
    """Draw dropout of one dense matrix for each block.

    Parameters
    ----------
    values : Tensor of float32, shape (n_nodes, width)
        The same for each block.
    drawn : Drawn
        Dropout of the entries.

    Returns
    -------
    Tensor of float32, shape (n_blocks, n_nodes, width)
    """
    out = torch.empty(len(drawn.scale), *values.shape)
    keep = drawn.keep.expand(-1, len(values)).contiguous().numpy()
    parts = values.numpy(), out.numpy(), drawn.seed.numpy(), keep
    _drop(*parts, drawn.scale.numpy())
    return out


def activate(h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
    """Add the bias, cut off what is negative and drop entries.

    Parameters
    ----------
    h : Tensor of float32, shape (n_blocks * n_nodes, width)
        The blocks below each other.
    bias : Tensor of float32, shape (n_blocks, width)
        Each block's.
    drawn : Drawn, default=None
        Dropout of the entries, with a probability a block.

    Returns
    -------
    Tensor of float32, shape (n_blocks * n_nodes, width)
    """
    out = torch.empty_like(h)
    shape = len(bias), -1, h.shape[1]
    blocks, target = h.detach().numpy().reshape(shape), out.numpy().reshape(shape)
    offset = bias.detach().contiguous().numpy()
    if drawn is None:
        _activate(blocks, offset, target)
    else:
        keep, scale = drawn.keep.numpy(), drawn.scale.numpy()
        _activate_drawn(blocks, offset, target, drawn.seed.numpy(), keep, scale)
    return out


def activate_backward(grad: Tensor, out: Tensor, drawn: Drawn | None) -> Tensor:
    """Return the gradient of `h`, given that of what `activate` returned.

    Parameters
    ----------
    grad, out : Tensor of float32, shape (n_blocks * n_nodes, width)
        The gradient, and what `activate` returned: what is 0 there has none.
    drawn : Drawn or None
        As for `activate`.

    Returns
    -------
    Tensor of float32, shape (n_blocks * n_nodes, width)
    """
    of_h = torch.empty_like(out)
    scale = _UNSCALED if drawn is None else drawn.scale.numpy()
    shape = len(scale), -1
    _activate_backward(
        grad.contiguous().numpy().reshape(shape),
        out.numpy().reshape(shape),
        of_h.numpy().reshape(shape),
        scale,
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
    _adam(
        parameter.detach().numpy().reshape(n_models, -1),
        grad.contiguous().numpy().reshape(n_models, -1),
        mean.numpy().reshape(n_models, -1),
        square.numpy().reshape(n_models, -1),
        size.numpy(),
        np.float32(root),
        weight_decay.numpy().ravel(),
        np.float32(1 - betas[0]),
        np.float32(1 - betas[1]),
        np.float32(eps),
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


@njit(inline="always")
def _mix(key: np.uint32) -> np.uint32:
    # The finaliser of MurmurHash3. Numba makes 64 bits of 32, unless told.
    key ^= np.uint32(key >> np.uint32(16))
    key = np.uint32(key * np.uint32(0x85EBCA6B))
    key ^= np.uint32(key >> np.uint32(13))
    key = np.uint32(key * np.uint32(0xC2B2AE35))
    return np.uint32(key ^ np.uint32(key >> np.uint32(16)))


@njit(inline="always")
def _draw(seed: np.int64, entry: int) -> np.float32:
    """Return a number in [0, 2^24) for an entry."""
    low, high = np.uint32(seed), np.uint32(seed >> 32)
    key = _mix(np.uint32(_mix(np.uint32(np.uint32(entry) ^ low)) + high))
    return np.float32(np.uint32(key >> np.uint32(8)))


@njit(fastmath=_FAST, error_model="numpy")
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
) -> None:
    for block in range(out.shape[0]):
        for row in range(out.shape[1]):
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
) -> None:
    n_blocks, n_rows, _ = out.shape
    longest = 0
    for row in range(n_rows):
        longest = max(longest, int(crow[row + 1] - crow[row]))
    # A row's survivors: what is dropped is not multiplied by.
    kept_col = np.empty(longest, dtype=np.int32)
    kept_values = np.empty(longest, dtype=np.float32)
    for block in range(n_blocks):
        factor, limit = scale[block, 0], keep[block, 0] * _BITS
        for row in range(n_rows):
            if keeps_rows:
                limit = keep[block, row] * _BITS
            count = 0
            for place in range(crow[row], crow[row + 1]):
                column = col[place]
                if keeps_columns:
                    limit = keep[block, column] * _BITS
                entry = order[place] if order.shape[0] else place
                kept_col[count] = column
                kept_values[count] = values[place] * factor
                # No branch: which way a draw goes can't be guessed.
                count += _draw(seed[block], entry) < limit
            _add_rows(out[block, row], dense[block], kept_col, kept_values, count)


@njit(fastmath=_FAST, error_model="numpy")
def _drop(
    values: NDArray[np.float32],
    out: NDArray[np.float32],
    seed: NDArray[np.int64],
    keep: NDArray[np.float32],
    scale: NDArray[np.float32],
) -> None:
    n_blocks, n_nodes, width = out.shape
    for block in range(n_blocks):
        factor = scale[block, 0]
        for node in range(n_nodes):
            limit = keep[block, node] * _BITS
            for j in range(width):
                is_kept = _draw(seed[block], node * width + j) < limit
                out[block, node, j] = values[node, j] * factor if is_kept else 0


@njit(fastmath=_FAST, error_model="numpy")
def _activate(
    h: NDArray[np.float32], bias: NDArray[np.float32], out: NDArray[np.float32]
) -> None:
    n_blocks, n_nodes, width = h.shape
    for block in range(n_blocks):
        for node in range(n_nodes):
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
) -> None:
    n_blocks, n_nodes, width = h.shape
    for block in range(n_blocks):
        limit, factor = keep[block, 0] * _BITS, scale[block, 0]
        for node in range(n_nodes):
            for j in range(width):
                value = (h[block, node, j] + bias[block, j]) * factor
                is_kept = _draw(seed[block], node * width + j) < limit
                out[block, node, j] = 0 if value < 0 or not is_kept else value


@njit(fastmath=_FAST, error_model="numpy")
def _activate_backward(
    grad: NDArray[np.float32],
    out: NDArray[np.float32],
    of_h: NDArray[np.float32],
    scale: NDArray[np.float32],
) -> None:
    for block in range(out.shape[0]):
        factor = scale[block, 0]
        for place in range(out.shape[1]):
            passed = grad[block, place] * factor
            of_h[block, place] = passed if out[block, place] > 0 else 0


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
) -> None:
    for model in range(parameter.shape[0]):
        step, decay = size[model] * root, weight_decay[model]
        for place in range(parameter.shape[1]):
            p = parameter[model, place]
            g = grad[model, place] + p * decay
            m = mean[model, place] + first * (g - mean[model, place])
            # In this order: the square of a large gradient is no float32.
            s = square[model, place] * (1 - second) + second * g * g
            mean[model, place], square[model, place] = m, s
            parameter[model, place] = p + step * m / (np.sqrt(s) + eps * root)
