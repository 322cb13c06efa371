"""What models of a stack share, and what each has of its own: fields say it themselves.

A dataclass that takes part in training marks its fields with :func:`shared` or
:func:`own`. From that follow the key that tells which models can be one, and the
tensors with an entry a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, field, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["own", "pick", "shared", "stack", "stack_key"]

T = TypeVar("T")


def shared(default: Any = MISSING) -> Any:
    """Mark a field in which the models of a stack must agree."""
    return field(default=default, metadata={"own": False})


def own(default: Any = MISSING) -> Any:
    """Mark a field of which each model of a stack has its own.

    Numbers become a column, float32 of shape (n_models, 1); arrays and tensors get a
    leading dimension of n_models.
    """
    return field(default=default, metadata={"own": True})


def stack_key(value: Any) -> Any:
    """Return what two values must agree in to be stacked; it can be hashed."""
    if isinstance(value, tuple):
        return tuple(stack_key(part) for part in value)
    if not is_dataclass(value):
        return value
    parts = []
    for part in fields(value):
        item = getattr(value, part.name)
        is_own = part.metadata.get("own", False)
        if not is_own or (
            is_dataclass(item) and any("own" in f.metadata for f in fields(item))
        ):
            parts.append(stack_key(item))
        else:
            # Whether it is there is something that all must agree in.
            parts.append(item is None)
    return (type(value), *parts)


def stack(values: Sequence[T], device: torch.device) -> T:
    """Make one dataclass of several: own fields get an entry a model."""
    first: Any = values[0]
    if isinstance(first, tuple):
        parts: Any = zip(*values, strict=True)
        return tuple(stack(part, device) for part in parts)  # type: ignore[return-value]
    changed = {}
    for part in fields(first):
        if part.metadata.get("own", False):
            items = [getattr(value, part.name) for value in values]
            changed[part.name] = _stacked(items, device)
    return replace(first, **changed)


def pick(stacked: T, places: Tensor) -> T:
    """Return some entries of what :func:`stack` has made."""
    value: Any = stacked
    if isinstance(value, tuple):
        return tuple(pick(part, places) for part in value)  # type: ignore[return-value]
    changed = {}
    for part in fields(value):
        item = getattr(value, part.name)
        if item is None or not part.metadata.get("own", False):
            continue
        is_tensor = isinstance(item, Tensor)
        changed[part.name] = (
            item.index_select(0, places) if is_tensor else pick(item, places)
        )
    return replace(value, **changed)


def _stacked(items: Sequence[Any], device: torch.device) -> Any:
    first = items[0]
    if first is None:
        return None
    if is_dataclass(first):
        return stack(items, device)
    if isinstance(first, Tensor):
        return torch.stack(list(items)).to(device)
    if isinstance(first, np.ndarray) and first.ndim:
        return torch.stack([torch.from_numpy(np.array(i)).to(device) for i in items])
    column = torch.tensor([float(item) for item in items], dtype=torch.float32)
    return column[:, None].to(device)
