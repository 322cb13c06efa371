"""What the search benchmarks share: the candidates, and where results go."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ParameterSampler

from benchmarks._report import print_table, write_report
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


def report(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    options: argparse.Namespace,
    **extra: Any,
) -> None:
    """Print the table, write the report, and copy it to $OUT where that is set."""
    print_table(rows)
    where = "cpu" if options.device == "cpu" else "gpu"
    path = write_report(
        f"{name}_{where}",
        rows,
        seeds=[0],
        device=options.device,
        commit=options.commit,
        **extra,
    )
    if os.environ.get("OUT"):
        shutil.copy(path, os.environ["OUT"])


def mean_best(search: Any) -> float:
    """Return the best mean validation score, to see that both found the same."""
    return float(np.max(search.cv_results_["mean_test_score"]))
