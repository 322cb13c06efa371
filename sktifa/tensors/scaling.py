"""Features of unlike scales: what is done to them before they are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.preprocessing import normalize

from sktifa.tensors.arrays import row_blocks

__all__ = ["FeatureNorm", "Scaling"]

FeatureNorm = Literal["auto", "standard", "l1", "l2", "max"]
# Dense features filled less than this are a bag of words that nobody made sparse.
_MOSTLY_ZERO = 0.5
# Floats of working memory for each feature that is read.
_WORK = 16


@dataclass(frozen=True)
class Scaling:
    """A scaling of features, learned from those of training."""

    # The norm that each row is scaled to.
    norm: Literal["l1", "l2", "max"] | None = None
    # What is taken from each column, and what that is divided by, (n_features,).
    mean: NDArray[np.float32] | None = None
    scale: NDArray[np.float32] | None = None

    @classmethod
    def learned(cls, features: Any, kind: FeatureNorm | None) -> Scaling:
        """Learn a scaling from features of training, read block by block.

        "standard" takes the mean from each column and divides by its standard deviation
        (sparse features keep their zeros: they are only divided). "auto" does so for
        dense features that are real numbers, and leaves 0/1, counts, and features that
        are sparse or mostly zero.
        """
        if kind in (None, "l1", "l2", "max"):
            return cls(kind)
        is_sparse = sparse.issparse(features)
        if kind == "auto" and (is_sparse or not _is_real_valued(features)):
            return cls()
        mean, square = _moments(features, is_sparse)
        scale = np.sqrt(square)
        # A column that is constant but for rounding has nothing to tell.
        scale[scale <= 1e-6 * np.maximum(np.abs(mean), np.finfo(np.float32).tiny)] = 1
        scale = scale.astype(np.float32)
        scale[scale == 0] = 1
        return cls(None, None if is_sparse else mean.astype(np.float32), scale)

    @property
    def changes(self) -> bool:
        """Whether features are changed at all."""
        return self.norm is not None or self.scale is not None

    def __call__(self, features: Any, *, in_place: bool = False) -> Any:
        """Scale the features of some nodes; only dense ones may be in place."""
        if self.norm is not None:
            return normalize(features, norm=self.norm, copy=not in_place)
        if self.scale is None:
            return features
        if sparse.issparse(features):
            return sparse.csr_array(features.multiply(1 / self.scale))
        mean: Any = self.mean
        scaled = np.subtract(features, mean, out=features if in_place else None)
        scaled /= self.scale
        return scaled


def _is_real_valued(features: NDArray[np.float32]) -> bool:
    """Tell measurements from 0/1, counts and bags of words."""
    blocks = list(row_blocks(features.shape[0], _WORK * features.shape[1]))
    parts = (np.asarray(features[rows]) for rows in blocks)
    if all(((part >= 0) & (part == np.rint(part))).all() for part in parts):
        return False
    filled: Any = sum(np.count_nonzero(features[rows]) for rows in blocks)
    return bool(filled >= _MOSTLY_ZERO * features.size)


def _moments(
    features: Any, is_sparse: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the columns' means and variances, in two passes."""
    n, width = features.shape
    mean = np.zeros(width)
    if is_sparse:
        mean = np.asarray(features.sum(axis=0, dtype=np.float64)).ravel() / n
        squares = features.astype(np.float64).power(2)
        square = np.asarray(squares.sum(axis=0)).ravel() / n
        return mean, np.maximum(square - mean**2, 0)
    for rows in row_blocks(n, _WORK * width):
        mean += np.asarray(features[rows]).sum(axis=0, dtype=np.float64)
    mean /= n
    variance = np.zeros(width)
    for rows in row_blocks(n, _WORK * width):
        part = np.asarray(features[rows], dtype=np.float64) - mean
        variance += (part**2).sum(axis=0)
    return mean, variance / n
