"""Two methods on the same splits: is the difference more than chance?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["adjusted", "paired"]


def paired(ours: ArrayLike, other: ArrayLike) -> dict[str, Any]:
    """Compare accuracies on the same splits, each the mean over its seeds.

    Parameters
    ----------
    ours, other : array-like of shape (n_splits,)
        Accuracy in percent.

    Returns
    -------
    dict
        `difference`, its `standard_error` over splits, and the two-sided `p` of
        Wilcoxon's signed-rank test (1 where all differences are zero). The splits
        share nodes, so that both are a little too sure of themselves.
    """
    difference = np.subtract(ours, other)
    n = len(difference)
    error = float(difference.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    p = float(stats.wilcoxon(difference).pvalue) if difference.any() else 1.0
    return {
        "difference": float(difference.mean()),
        "standard_error": error,
        "p": p,
    }


def adjusted(p: Sequence[float]) -> list[float]:
    """Raise p-values for how many comparisons were made (Holm)."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    told = np.empty_like(p)
    told[order] = np.minimum(raised, 1)
    return told.tolist()
