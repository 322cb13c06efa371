"""The kernels in plain PyTorch, for devices that have no others.

What they take and return is told in `cpu`, but for those that do as well there; the
draws are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from sktifa.tensors.kernels import MOST_GRADIENT, Drawn

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
    "step_sizes",
    "transposed_matmul",
    "validate",
]

_WORD = 0xFFFFFFFF


def csr_product(
    crow: Tensor,
    col: Tensor,
    values: Tensor,
    dense: Tensor,
    *,
    drawn: Drawn | None = None,
    order: Tensor | None = None,
) -> Tensor:
    """Multiply a sparse matrix by the dense one of each model."""
    counts = crow.diff().long()
    row = torch.repeat_interleave(counts, output_size=col.shape[0])
    column = col.long()
    messages = dense.index_select(1, column)
    if drawn is None:
        messages = messages * values[:, None]
    else:
        entry = torch.arange(col.shape[0], device=col.device)
        keep = drawn.keep
        if keep.shape[1] > 1:
            keep = keep.index_select(1, row if order is None else column)
        kept = _uniform(drawn.seed, entry if order is None else order.long()) < keep
        messages = messages * (values * kept * drawn.scale)[:, :, None]
    out = dense.new_zeros(dense.shape[0], counts.shape[0], dense.shape[2])
    return out.index_add_(1, row, messages)


def add_arcs(
    out: Tensor, dense: Tensor, target: Tensor, source: Tensor, weight: Tensor
) -> None:
    """Add `weight` times the row `source` of `dense` to the row `target` of `out`."""
    messages = dense.flatten(0, 1).index_select(0, source) * weight[:, None]
    out.view(-1, out.shape[2]).index_add_(0, target, messages)


def matmul(x: Tensor, weight: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's matrices."""
    if drawn is not None:
        x = drop(x[0], drawn)
    return x @ weight


def transposed_matmul(x: Tensor, grad: Tensor, *, drawn: Drawn | None = None) -> Tensor:
    """Multiply each model's transposed ``x`` by its ``grad``."""
    if drawn is not None:
        x = drop(x[0], drawn)
    return x.mT @ grad


def drop(values: Tensor, drawn: Drawn) -> Tensor:
    """Draw dropout of one dense matrix for each model."""
    kept = _drawn_entries(drawn, *values.shape)
    return values * kept * drawn.scale[:, :, None]


def activate(h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
    """Add the bias, cut off what is negative and drop entries."""
    out = (h + bias[:, None]).relu()
    if drawn is not None:
        kept = _drawn_entries(drawn, *h.shape[1:])
        out = torch.where(kept, out * drawn.scale[:, :, None], 0.0)
    return out


def activate_backward(grad: Tensor, out: Tensor, drawn: Drawn | None) -> Tensor:
    """Return the gradient of `h`, given that of what `activate` returned."""
    if drawn is not None:
        grad = grad * drawn.scale[:, :, None]
    return torch.where(out > 0, grad, 0.0)


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
    """Update stacked parameters by Adam, with L2 regularisation."""
    shape = (-1,) + (1,) * (parameter.dim() - 1)
    grad = grad + parameter * weight_decay.view(shape)
    grad = grad.clamp(-MOST_GRADIENT, MOST_GRADIENT)
    mean.lerp_(grad, 1 - betas[0])
    square.mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])
    parameter.add_(size.view(shape) * root * mean / (square.sqrt() + eps * root))


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
    """Count a step in `n_steps`, and say what `adam` takes it with: `size` and `root`.

    `n_steps` is int64, what is returned float32, all else float64. `epoch` are those
    done. A model's learning rate, of `rates`, is multiplied by `decay` in each epoch
    after the first `min_iter`, and is `least` at the least.
    """
    epochs = (epoch - min_iter).clamp(min=0)
    rate = torch.maximum(rates * decay**epochs, least)
    n_steps += 1
    done = n_steps.to(rate.dtype)
    first, second = betas
    return (-rate / (1 - first**done)).float(), (1 - second**done).sqrt().float()


def copy_where(chosen: Tensor, source: Tensor, target: Tensor) -> None:
    """Copy the chosen models' parameters."""
    target.copy_(
        torch.where(chosen.view(-1, *[1] * (source.dim() - 1)), source, target)
    )


def validate(
    logits: Tensor,
    nodes: tuple[Tensor, Tensor, Tensor, Tensor],
    sizes: Tensor,
    temperatures: Tensor,
    as_it_is: int,
) -> Tensor:
    """Return each model's cross-entropy, accuracy and least cross-entropy of all.

    The last is at the best of `temperatures`, of which number `as_it_is` is 1. `nodes`
    are the model, index, target and weight of :class:`LabeledNodes`, model by model;
    `sizes` says how many each has, in int64. All else is float32.
    """
    model, index, target, weight = nodes
    n_models, n_temperatures = len(logits), len(temperatures)
    logits = logits.flatten(0, 1).index_select(0, index)
    right = (logits.argmax(1) == target).float()
    scaled = logits / temperatures[:, None, None]
    losses = functional.cross_entropy(
        scaled.flatten(0, 1), target.repeat(n_temperatures), reduction="none"
    )
    losses = losses.view(n_temperatures, -1) * weight
    each = torch.cat([right[None], losses]).T
    summed = each.new_zeros(n_models, 1 + n_temperatures).index_add(0, model, each)
    losses = summed[:, 1:]
    accuracy = summed[:, 0] / sizes.clamp(min=1)
    return torch.stack([losses[:, as_it_is], accuracy, losses.amin(1)])


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
    """Find the models that are the best so far, and those that go on.

    `reached` is what `validate` returned; without, a model is at its best in the end. A
    model whose last loss isn't finite has come to its end. `alive` (bool), `best_score`
    and `best_epoch` (float64) are written to. What is `watched` is a model's score: the
    last of `reached`, the first or the second. A better one is better by `tol`; models
    train for `min_iter` epochs at least, `max_iter` at most, and `patience` without a
    better one.

    Returns cross-entropy, accuracy, `last_loss`, `alive` and `best_epoch`, (5,
    n_models), and whose state is to be kept. What is `watched` is int64, the limits
    float64.
    """
    here = alive & last_loss.isfinite()
    goes_on = epoch < max_iter
    if reached is None:
        chosen = here & ~goes_on
        val_loss = accuracy = torch.zeros_like(last_loss)
    else:
        val_loss, accuracy, calibrated = reached
        scores = torch.stack([-calibrated, -val_loss, accuracy])
        score = scores.gather(0, watched[None])[0].to(epoch.dtype)
        chosen = here & (score > best_score + tol)
        torch.where(chosen, score, best_score, out=best_score)
    torch.where(chosen, epoch, best_epoch, out=best_epoch)
    if reached is not None:
        waits = (epoch < min_iter) | (epoch - best_epoch < patience)
        goes_on = goes_on & waits
    alive.copy_(here & goes_on)
    rows = [val_loss, accuracy, last_loss, alive, best_epoch]
    return torch.stack([row.float() for row in rows]), chosen


def _drawn_entries(drawn: Drawn, n_nodes: int, width: int) -> Tensor:
    """Tell which entries of each model's dense matrix survive."""
    entry = torch.arange(n_nodes * width, device=drawn.seed.device)
    uniform = _uniform(drawn.seed, entry).view(-1, n_nodes, width)
    return uniform < drawn.keep[:, :, None]


def _uniform(seed: Tensor, entry: Tensor) -> Tensor:
    """Return a number in [0, 1) for each entry, by each seed."""
    low, high = seed[:, None] & _WORD, (seed[:, None] >> 32) & _WORD
    first = _mix((low + 0x9E3779B9) & _WORD)
    second = _mix(high ^ first)
    # All in 64 bits, of which the lower 32 count.
    key = ((entry * 0x7FEB352D + first) & _WORD) ^ second
    for factor in (0x846CA68B, 0x7FEB352D):
        key = ((key ^ (key >> 15)) * factor) & _WORD
    return (key >> 8).float() / (1 << 24)


def _mix(key: Tensor) -> Tensor:
    # The finaliser of MurmurHash3.
    key = key ^ (key >> 16)
    key = (key * 0x85EBCA6B) & _WORD
    key = key ^ (key >> 13)
    key = (key * 0xC2B2AE35) & _WORD
    return key ^ (key >> 16)
