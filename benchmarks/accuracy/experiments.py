"""The tables and figures that train models: their cells, and what is told of each.

Numbering is the paper's. `Experiment.tell` makes the records that are kept as JSON;
figures are drawn from those alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from benchmarks.accuracy.comparison import paired
from benchmarks.accuracy.lab import graph_of, split_of, unpack
from benchmarks.accuracy.methods import (
    ABLATIONS,
    CONTRASTS,
    DEPTHS,
    ENCODERS,
    METHODS,
    NEGATIVES,
    TABLE_2,
    WALKS,
)
from benchmarks.accuracy.protocol import Budget, Cell
from benchmarks.accuracy.run import Trial
from benchmarks.data import GRAPHS, PLANETOID, visible_labels
from sktifa.diagnostics import accuracy_by_gain, radial_decay
from sktifa.information.loss_weights import tie_averaged_ranks
from sktifa.information.tig import (
    annotated_information,
    clarity,
    information_gain,
    intensity,
)

__all__ = ["EXPERIMENTS", "INDUCTIVE_BUDGET", "Experiment"]

Record = dict[str, Any]
Trials = Mapping[Cell, Trial]

N_BINS = 10
# Dots of a scatter.
MOST_SHOWN = 3000


@dataclass(frozen=True)
class Experiment:
    """A table or figure.

    Parameters
    ----------
    cells : sequence of Cell
        What is trained.
    against : mapping of str to str
        Methods that are compared on the same splits: one, and the other.
    add : callable, default=None
        Returns what a trial's record holds beside the usual.
    splits, seeds : int
        By which each cell is tested.
    budget : Budget
        By which hyper-parameters are chosen.
    """

    cells: Sequence[Cell]
    against: Sequence[tuple[str, str]] = ()
    add: Callable[[Trial], Record] | None = None
    splits: int = 20
    seeds: int = 5
    budget: Budget = Budget()

    def size(self, cell: Cell) -> tuple[int, int]:
        """Return how many splits, and seeds on each, a cell is tested by."""
        if cell.graph == "products":  # it has one split, ogb's own
            return 1, self.splits * self.seeds
        # Four networks stand behind each model that was taught.
        is_taught = METHODS[cell.method].changes.get("n_teachers")
        return self.splits, 1 if is_taught else self.seeds

    def tell(self, trials: Trials) -> list[Record]:
        """Return a record of each cell that was run."""
        add = self.add or (lambda trial: {})
        return [trial.record() | add(trial) for trial in trials.values()]

    def compare(self, records: Sequence[Record]) -> None:
        """Tell each record of its method's rivals, by as many splits and one budget.

        Records may be of several runs.
        """
        by_cell = {(r["method"], r["graph"], r["labels"]): r for r in records}
        for record in records:
            minus = {}
            for ours, other in self.against:
                rival = by_cell.get((other, record["graph"], record["labels"]))
                if record["method"] == ours and rival and _comparable(record, rival):
                    minus[other] = paired(record["test"], rival["test"])
            record.pop("minus", None)
            if minus:
                record["minus"] = minus


def _comparable(one: Record, other: Record) -> bool:
    n_splits = {one["n_splits"], other["n_splits"]}
    budgets = [r["budget"] for r in (one, other) if r["budget"]]
    # One value is no sample.
    return len(n_splits) == 1 and len(one["test"]) > 1 and budgets[1:] == budgets[:-1]


def cells(
    methods: Iterable[str],
    graphs: Iterable[str],
    labels: Iterable[int] = (20,),
    measure: str | None = None,
) -> list[Cell]:
    """Return all combinations, the smallest graphs first."""
    return [
        Cell(method, graph, count, measure)
        for graph, count, method in product(graphs, labels, methods)
    ]


# ------------------------------------------------------- accuracy by what arrives


@lru_cache(maxsize=500)
def _information(graph: str, split: int, labels: int) -> np.ndarray:
    """Return Z* of the test nodes."""
    data, nodes = graph_of(graph), split_of(graph, split, labels, "transductive")
    codes = visible_labels(data, nodes.train)
    information = annotated_information(data.graph, codes, int(codes.max()) + 1)
    return information[nodes.test].astype(np.float32)


def _right(trial: Trial, split: int) -> np.ndarray:
    """Return how often each test node of a split was right, over the seeds."""
    cell = trial.cell
    n = len(split_of(cell.graph, split, cell.labels, "transductive").test)
    return np.mean([unpack(one["right"], n) for one in trial.outcomes[split]], axis=0)


def by_gain(trial: Trial) -> Record:
    """Tell accuracy by bin of the gain, the smallest first, a row a split."""
    cell, rows = trial.cell, []
    for split in range(len(trial.outcomes)):
        gain = information_gain(_information(cell.graph, split, cell.labels))
        rows.append(100 * accuracy_by_gain(gain, _right(trial, split), N_BINS))
    # NaN is no JSON: ties, such as nodes that no label reaches, leave bins empty.
    told = [[None if np.isnan(v) else round(float(v), 3) for v in row] for row in rows]
    return {"by_gain": told}


def by_cell(trial: Trial) -> Record:
    """Tell accuracy by intensity and clarity over all splits, and a GCN's nodes."""
    cell = trial.cell
    right, count = np.zeros((2, N_BINS, N_BINS))
    for split in range(len(trial.outcomes)):
        arrived = _information(cell.graph, split, cell.labels)
        grid = radial_decay(
            intensity(arrived), clarity(arrived), _right(trial, split), N_BINS
        )
        right += np.nan_to_num(grid.accuracy) * grid.count
        count += grid.count
    told = {"right": right.round(2).tolist(), "count": count.astype(int).tolist()}
    return told if cell.method != "GCN" else told | {"nodes": _dots(trial)}


def _dots(trial: Trial) -> Record:
    """Tell ranks of the first split's nodes, those that a label reaches."""
    cell = trial.cell
    arrived, first = _information(cell.graph, 0, cell.labels), _right(trial, 0)
    reached = np.flatnonzero(intensity(arrived) > 0)
    ranks = [
        tie_averaged_ranks(-measure(arrived[reached])) / len(reached)
        for measure in (intensity, clarity)
    ]
    shown = np.random.default_rng(0).permutation(len(reached))[:MOST_SHOWN]
    return {
        "intensity_rank": ranks[0][shown].round(4).tolist(),
        "clarity_rank": ranks[1][shown].round(4).tolist(),
        "right": first[reached][shown].round(2).tolist(),
    }


def measured(name: str) -> Callable[[Trial], Record]:
    """Tell the mean of what was measured beside the accuracy, and its spread."""

    def add(trial: Trial) -> Record:
        values = np.array([[one[name] for one in row] for row in trial.outcomes])
        by_split = values.mean(axis=1)
        spread = by_split.std(ddof=1) if len(by_split) > 1 else 0.0
        return {f"{name}_mean": float(by_split.mean()), f"{name}_std": float(spread)}

    return add


# ------------------------------------------------------------------ the experiments

BASELINES = (
    "GCN",
    "GAT",
    "GraphSAGE",
    "GraphMix",
    "GRACE",
    "NodeAug",
    "MultiView",
    "GraphCL",
    "uniform-GCL",
)
SAME_ENCODERS = "uniform-GCL, our encoders"
DISTILLED = "ours, distilled"
STUDIED = (
    "GCN",
    "APPNP",
    "Label propagation",
    "uniform-GCL",
    SAME_ENCODERS,
    "TIFA-GCL",
    "ours, trust uniform",
    "ours",
    "defaults",
    "defaults, trust uniform",
    f"{SAME_ENCODERS}, distilled",
    DISTILLED,
    "defaults, distilled",
)
# On ogbn-products Node2vec takes days.
INDUCTIVE_2 = [f"Inductive {', '.join(row)}" for row in TABLE_2]
# Models on subgraphs are trained one by one.
INDUCTIVE_BUDGET = Budget(candidates=6, splits=2, finalists=2, final_splits=4)
COMPARED_2 = (
    ("SAINT-RW, No", "Neighbor, No"),
    ("SAINT-RW, uniform-GCL", "SAINT-RW, No"),
    ("SAINT-RW, TIFA-GCL", "SAINT-RW, uniform-GCL"),
    ("SAINT-TIFA, TIFA-GCL", "SAINT-TIFA, uniform-GCL"),
    ("SAINT-TIFA, No", "SAINT-RW, No"),
    ("SAINT-TIFA, TIFA-GCL", "SAINT-RW, TIFA-GCL"),
)
PRODUCTS_2 = [f"Products {', '.join(row)}" for row in TABLE_2 if row[0] != "Node2vec"]

EXPERIMENTS: dict[str, Experiment] = {
    "study": Experiment(
        cells(STUDIED, GRAPHS, labels=(20, 10, 5)),
        against=[
            ("uniform-GCL", "GCN"),
            ("TIFA-GCL", "uniform-GCL"),
            ("ours", SAME_ENCODERS),
            ("ours", "ours, trust uniform"),
            ("ours", "GCN"),
            ("ours", "APPNP"),
            ("ours", "Label propagation"),
            ("ours", "TIFA-GCL"),
            ("ours", "defaults"),
            ("defaults", "GCN"),
            ("defaults", "Label propagation"),
            ("defaults", "defaults, trust uniform"),
            (DISTILLED, "ours"),
            (DISTILLED, SAME_ENCODERS),
            (DISTILLED, f"{SAME_ENCODERS}, distilled"),
            (DISTILLED, "GCN"),
            (DISTILLED, "TIFA-GCL"),
            ("defaults, distilled", "defaults"),
        ],
        add=by_gain,
        seeds=3,
    ),
    "table1": Experiment(
        cells((*BASELINES, "TIFA-GCL", "ours", DISTILLED), GRAPHS),
        against=[
            *(("TIFA-GCL", other) for other in BASELINES),
            *(("ours", other) for other in (*BASELINES, "TIFA-GCL")),
        ],
    ),
    "table2": Experiment(
        [
            *cells(INDUCTIVE_2, ("DBLP", "Computers", "Physics")),
            *cells(PRODUCTS_2, ("products",)),
        ],
        against=[
            (f"{prefix} {encoder}, {row}", f"{prefix} {encoder}, {x}")
            for prefix in ("Inductive", "Products")
            for encoder in ("GraphSAGE", "GAT")
            for row, x in COMPARED_2
        ],
        splits=10,
        seeds=1,
        budget=INDUCTIVE_BUDGET,
    ),
    "table3": Experiment(
        cells(
            [
                "GCN",
                "GRACE",
                *(
                    name
                    for whole, parts in ABLATIONS.items()
                    for name in (whole, *(f"{whole}, {part}" for part in parts))
                ),
            ],
            PLANETOID,
        ),
        against=[
            (f"{whole}, {part}", whole)
            for whole, parts in ABLATIONS.items()
            for part in parts
        ],
    ),
    "table5": Experiment(
        cells(
            [f"{depth} layers{contrast}" for depth in DEPTHS for contrast in CONTRASTS],
            ("Cora",),
            measure="madgap",
        ),
        against=[
            (f"{depth} layers, TIFA-GCL", f"{depth} layers, uniform-GCL")
            for depth in DEPTHS
        ],
        add=measured("madgap"),
        seeds=1,
    ),
    "table6": Experiment(
        cells(WALKS.values(), ("DBLP", "Computers"), measure="transition_std"),
        against=[
            (name, WALKS[0, length])
            for (sharpness, length), name in WALKS.items()
            if sharpness
        ],
        add=measured("transition_std"),
        splits=10,
        seeds=1,
        budget=INDUCTIVE_BUDGET,
    ),
    "figure1": Experiment(
        cells(("GCN", "uniform-GCL"), ("Cora",)),
        against=[("uniform-GCL", "GCN")],
        add=by_cell,
    ),
    "figure3": Experiment(
        cells(
            [
                f"Encoder {name}{contrast}"
                for name in ENCODERS
                for contrast in CONTRASTS
            ],
            ("Cora",),
            labels=(20, 10, 5),
        ),
        against=[
            (f"Encoder {name}, TIFA-GCL", f"Encoder {name}, uniform-GCL")
            for name in ENCODERS
        ],
        splits=10,
        seeds=1,
    ),
    "figure4": Experiment(
        cells(("uniform-GCL", "TIFA-GCL", SAME_ENCODERS, "ours"), GRAPHS),
        against=[("TIFA-GCL", "uniform-GCL"), ("ours", SAME_ENCODERS)],
        add=by_gain,
    ),
    "figure5": Experiment(
        cells(("GCN", "uniform-GCL"), ("CiteSeer", "PubMed")),
        against=[("uniform-GCL", "GCN")],
        add=by_cell,
    ),
    "figure6": Experiment(
        cells(("GCN", "uniform-GCL"), GRAPHS),
        against=[("uniform-GCL", "GCN")],
        add=by_gain,
    ),
    "figure7": Experiment(
        cells(NEGATIVES.values(), ("Cora",)),
        # The middle of the grid, and the middle of each edge.
        against=[
            (NEGATIVES[200, 100], NEGATIVES[edge])
            for edge in ((5, 100), (1600, 100), (200, 10), (200, 400))
        ],
        seeds=1,
    ),
}
