"""``sktifa demo``: four classifiers on a real graph."""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.utils import Bunch

from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.cli.terminal import at_least, check_outputs, progress
from sktifa.datasets import fetch_amazon, fetch_planetoid, load_digits_graph
from sktifa.diagnostics import accuracy_by_gain
from sktifa.displays import GainBinsDisplay
from sktifa.graph import Graph
from sktifa.information.transformer import LabelPropagationTIG
from sktifa.model_selection import LabeledNodeShuffleSplit

__all__ = ["add_parser"]

PLANETOID = ("Cora", "CiteSeer", "PubMed")
AMAZON = ("Photo", "Computers")
N_BINS = 5


def add_parser(commands: Any) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "demo", help="classify a real graph with few labels, four ways"
    )
    parser.add_argument(
        "--data",
        default="digits",
        choices=["digits", *PLANETOID, *AMAZON],
        help="graph to classify; digits needs no files (default: %(default)s)",
    )
    parser.add_argument("--root", help="folder with the raw files, in PyG's layout")
    for option, default, words in (
        ("--labels", 5, "labels a class (default: %(default)s)"),
        ("--splits", 3, "random splits (default: %(default)s)"),
        ("--epochs", 400, "at most (default: %(default)s)"),
    ):
        parser.add_argument(option, type=at_least(1), default=default, help=words)
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path("sktifa-demo.png"),
        help="where to save the picture (default: %(default)s)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write over a picture that is there"
    )
    parser.set_defaults(run=run, verbose=False)


def run(arguments: argparse.Namespace) -> None:
    """Classify one graph four ways over a few splits, and show where TIFA helps."""
    endings = _picture_endings()
    if endings:
        check_outputs(
            [("--picture", arguments.picture, endings)], force=arguments.force
        )
    console = Console()
    plus_minus = "±" if console.encoding.startswith("utf") else "+/-"
    data = _load(arguments.data, arguments.root)
    graph, target = data.graph, data.target
    console.print(
        f"{arguments.data}: {graph.n_nodes:,} nodes, {graph.n_edges:,} edges, "
        f"{len(np.unique(target[target >= 0]))} classes; "
        f"{arguments.labels} labels a class, as many for validation, "
        f"{arguments.splits} random splits."
    )
    splitter = LabeledNodeShuffleSplit(
        n_splits=arguments.splits,
        train_per_class=arguments.labels,
        val_per_class=arguments.labels,
        random_state=0,
    )
    splits = list(splitter.split_with_validation(graph, target))
    # Of each split accuracy, in all and by bin, and seconds.
    found: dict[str, list[tuple[float, np.ndarray, float]]] = defaultdict(list)
    jobs = [
        (seed, split, name)
        for seed, split in enumerate(splits)
        for name in ("label propagation", *_classifiers(0, arguments.epochs))
    ]
    with progress([name for *_, name in jobs]) as step:
        for seed, (train, val, test), name in jobs:
            step()
            begin = time.perf_counter()
            gain, propagated = _propagate(graph, target, train)
            if name == "label propagation":
                predicted = propagated
            else:
                model = _classifiers(seed, arguments.epochs)[name]
                model.fit(
                    graph[train], target[train], X_val=graph[val], y_val=target[val]
                )
                predicted = model.predict(graph)
            seconds = time.perf_counter() - begin
            correct = predicted[test] == target[test]
            by_gain = accuracy_by_gain(gain[test], correct, N_BINS)
            found[name].append((correct.mean(), by_gain, seconds))
    table = Table(title="accuracy on the unlabelled nodes, in %", title_justify="left")
    table.add_column("method")
    between = [f"bin {i}" for i in range(2, N_BINS)]
    for heading in ("all", "least", *between, "most", "seconds"):
        table.add_column(heading, justify="right")
    bins = {}
    for name, runs in found.items():
        accuracy, by_bin, times = zip(*runs, strict=True)
        bins[name] = np.nanmean(by_bin, axis=0)
        cells = [f"{100 * value:.1f}" for value in (np.mean(accuracy), *bins[name])]
        if len(runs) > 1:
            cells[0] += f" {plus_minus} {100 * np.std(accuracy, ddof=1):.1f}"
        table.add_row(name, *cells, f"{np.mean(times):.1f}")
    console.print(table)
    console.print(
        "The columns in between split the test nodes by how much annotated "
        f"information reaches them; {plus_minus} is the spread over splits."
    )
    if arguments.data == "digits":
        console.print(
            "Images tied to their nearest neighbours suit label propagation. Where "
            "edges and features tell different things, encoders are ahead of it: try "
            "make demo DATA=Cora ROOT=folder."
        )
    if not endings:
        console.print("No picture: pip install sktifa\\[plot] brings matplotlib.")
        return
    display = GainBinsDisplay(bins).plot()
    display.ax_.set_title(f"{arguments.data}, {arguments.labels} labels a class")
    display.figure_.savefig(arguments.picture, dpi=150)
    console.print(f"Picture: {arguments.picture}")


def _picture_endings() -> list[str]:
    """Return how a picture's name may end; nothing where none can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    from matplotlib.backend_bases import FigureCanvasBase

    return [f".{name}" for name in FigureCanvasBase.get_supported_filetypes()]


def _load(name: str, root: str | None) -> Bunch:
    if name in PLANETOID:
        return fetch_planetoid(name, root=root)
    if name in AMAZON:
        return fetch_amazon(name, root=root, largest_component=True)
    return load_digits_graph()


def _classifiers(seed: int, max_iter: int) -> dict[str, GNNClassifier]:
    shared: dict[str, Any] = {"random_state": seed, "max_iter": max_iter}
    return {
        "GCN": GNNClassifier(**shared),
        "uniform-GCL": TIFAGCLClassifier(
            weighting="uniform", perturbation="uniform", pairing="uniform", **shared
        ),
        "TIFA-GCL": TIFAGCLClassifier(**shared),
    }


def _propagate(
    graph: Graph, target: np.ndarray, train: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return every node's information gain, and its class by label propagation."""
    spread = LabelPropagationTIG().fit(graph[train], target[train])
    information = spread.transform(graph)[:, : len(spread.classes_)]
    return spread.gain_, spread.classes_[information.argmax(axis=1)]
