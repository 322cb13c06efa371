"""The benchmark graphs and how their nodes are split (Appendix C.5, READING 22-23)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from sktifa import (
    LabeledNodeShuffleSplit,
    fetch_amazon,
    fetch_citation_full,
    fetch_coauthor,
    fetch_ogbn,
    fetch_planetoid,
    load_digits_graph,
)

PLANETOID = ("Cora", "CiteSeer", "PubMed")
GRAPHS = (*PLANETOID, "Photo", "Computers")

# All nodes of the citation graphs, else the largest component; the small graphs first.
LOADERS: dict[str, Callable[[], Bunch]] = {
    "digits": load_digits_graph,
    **{name: partial(fetch_planetoid, name) for name in PLANETOID},
    "DBLP": partial(fetch_citation_full, "DBLP"),
    "Photo": partial(fetch_amazon, "Photo", largest_component=True),
    "Computers": partial(fetch_amazon, "Computers", largest_component=True),
    "Physics": partial(fetch_coauthor, "Physics"),
    "products": partial(fetch_ogbn, "products", download_if_missing=False),
}

Setting = Literal["transductive", "inductive"]


def load(name: str) -> Bunch:
    """Load a graph: all nodes of the citation graphs, else the largest component."""
    return LOADERS[name]()


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


@dataclass(frozen=True)
class Split:
    """Nodes that training sees, and those of them or of the others that have a part."""

    seen: NDArray[np.int64]
    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def draw_split(data: Bunch, number: int, labels: int, setting: Setting) -> Split:
    """Draw one of the numbered splits that all methods share.

    Transductive training sees all nodes. Inductive training sees half of them, drawn
    at random, `labels` of each class labelled; validation and test nodes are among the
    others. A graph with splits of its own (ogbn's) keeps those: training sees the
    training nodes alone.
    """
    y = data.target
    if "train_mask" in data and setting == "inductive":
        train, val, test = (
            np.flatnonzero(data[f"{part}_mask"]) for part in ("train", "val", "test")
        )
        return Split(train, train, val, test)
    if setting == "transductive":
        train, val, test = paper_splits(data, number + 1, labels=labels)[number]
        return Split(np.arange(len(y)), train[y[train] >= 0], val, test)
    order = np.random.default_rng(number).permutation(np.flatnonzero(y >= 0))
    seen, others = np.array_split(order, 2)
    classes = np.unique(y[y >= 0])
    train = np.concatenate([seen[y[seen] == c][:labels] for c in classes])
    val = np.concatenate([others[y[others] == c][:30] for c in classes])
    return Split(np.sort(seen), np.sort(train), val, np.setdiff1d(others, val))


def visible_labels(data: Bunch, train: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the labels of the training nodes alone; all others are hidden (-1)."""
    y = np.full_like(data.target, -1)
    y[train] = data.target[train]
    return y
