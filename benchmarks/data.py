"""The benchmark graphs and the paper's splits (Appendix C.5)."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch

from sktifa import LabeledNodeShuffleSplit, fetch_amazon, fetch_planetoid

PLANETOID = ("Cora", "CiteSeer", "PubMed")
GRAPHS = (*PLANETOID, "Photo", "Computers")


def load(name: str) -> Bunch:
    """Load a graph: all nodes of the citation graphs, else the largest component."""
    if name in PLANETOID:
        return fetch_planetoid(name)
    return fetch_amazon(name, largest_component=True)


def paper_splits(
    data: Bunch, n_splits: int, *, labels: int = 20, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Draw splits: `labels` nodes a class to train, 30 to validate, the rest test."""
    splitter = LabeledNodeShuffleSplit(
        n_splits=n_splits,
        train_per_class=labels,
        val_per_class=30,
        random_state=seed,
    )
    return list(splitter.split_with_validation(data.graph, data.target))
