"""What the search benchmarks share: the candidates, and how they are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ParameterSampler

from sktifa.model_selection import paper_grid

# What the paper tunes and a stack shares is tuned elsewhere: its width and depth.
_ARCHITECTURE = ("hidden_size", "n_layers")


def candidates(n: int, seed: int = 0) -> list[dict[str, list[Any]]]:
    """Draw candidates from the paper's grids, as a `param_grid` of single points."""
    grid = [
        {name: v for name, v in part.items() if name not in _ARCHITECTURE}
        for part in paper_grid(part="all")
    ]
    drawn = ParameterSampler(grid, n, random_state=seed)
    return [{name: [value] for name, value in point.items()} for point in drawn]


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def mean_best(search: Any) -> float:
    """Return the best mean validation score, to see that both found the same."""
    return float(np.max(search.cv_results_["mean_test_score"]))
