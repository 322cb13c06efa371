"""The command line: ``sktifa demo``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.datasets import fetch_amazon, fetch_planetoid, load_digits_graph
from sktifa.diagnostics import accuracy_by_gain
from sktifa.displays import GainBinsDisplay
from sktifa.exceptions import SktifaError
from sktifa.graph import Graph
from sktifa.information.transformer import LabelPropagationTIG
from sktifa.model_selection import LabeledNodeShuffleSplit

__all__ = ["main"]

PLANETOID = ("Cora", "CiteSeer", "PubMed")
AMAZON = ("Photo", "Computers")
N_BINS = 5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="sktifa", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="classify a real graph with few labels, four ways"
    )
    demo.add_argument(
        "--data",
        default="digits",
        choices=["digits", *PLANETOID, *AMAZON],
        help="graph to classify; digits needs no files (default: %(default)s)",
    )
    demo.add_argument("--root", help="folder with the raw files, in PyG's layout")
    demo.add_argument(
        "--labels", type=int, default=5, help="labels a class (default: %(default)s)"
    )
    demo.add_argument(
        "--splits", type=int, default=3, help="random splits (default: %(default)s)"
    )
    demo.add_argument(
        "--epochs", type=int, default=400, help="at most (default: %(default)s)"
    )
    demo.add_argument(
        "--picture",
        type=Path,
        default=Path("sktifa-demo.png"),
        help="where to save the picture (default: %(default)s)",
    )
    arguments = parser.parse_args(argv)
    try:
        return run_demo(arguments)
    except SktifaError as error:
        print(f"sktifa: {error}", file=sys.stderr)
        return 1


def run_demo(arguments: argparse.Namespace) -> int:
    """Classify one graph four ways over a few splits, and show where TIFA helps."""
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    console = Console()
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
    accuracy: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    by_gain: dict[str, list[np.ndarray]] = {}
    jobs = [
        (seed, split, name)
        for seed, split in enumerate(splits)
        for name in ("label propagation", *_classifiers(0, arguments.epochs))
    ]
    for seed, (train, val, test), name in track(
        jobs, description="fitting", console=console
    ):
        begin = time.perf_counter()
        gain, propagated = _propagate(graph, target, train)
        if name == "label propagation":
            predicted = propagated
        else:
            model = _classifiers(seed, arguments.epochs)[name]
            model.fit(graph[train], target[train], X_val=graph[val], y_val=target[val])
            predicted = model.predict(graph)
        seconds.setdefault(name, []).append(time.perf_counter() - begin)
        correct = predicted[test] == target[test]
        accuracy.setdefault(name, []).append(correct.mean())
        by_gain.setdefault(name, []).append(
            accuracy_by_gain(gain[test], correct, N_BINS)
        )
    table = Table(title="accuracy on the unlabelled nodes, in %", title_justify="left")
    table.add_column("method")
    for heading in ("all", *_bin_names(), "seconds"):
        table.add_column(heading, justify="right")
    bins = {name: np.nanmean(values, axis=0) for name, values in by_gain.items()}
    for name, values in accuracy.items():
        spread = f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
        table.add_row(
            name,
            f"{100 * np.mean(values):.1f}{spread}",
            *(f"{100 * value:.1f}" for value in bins[name]),
            f"{np.mean(seconds[name]):.1f}",
        )
    console.print(table)
    console.print(
        "The columns in between split the test nodes by how much annotated "
        "information reaches them; ± is the spread over splits."
    )
    if arguments.data == "digits":
        console.print(
            "Images tied to their nearest neighbours suit label propagation. Where "
            "edges and features tell different things, encoders are ahead of it: try "
            "make demo DATA=Cora ROOT=folder."
        )
    try:
        display = GainBinsDisplay(bins).plot()
    except ModuleNotFoundError:
        console.print("No picture: pip install sktifa[plot] brings matplotlib.")
        return 0
    display.ax_.set_title(f"{arguments.data}, {arguments.labels} labels a class")
    display.figure_.savefig(arguments.picture, dpi=150)
    console.print(f"Picture: {arguments.picture}")
    return 0


def _bin_names() -> list[str]:
    names = [f"bin {i + 1}" for i in range(N_BINS)]
    names[0], names[-1] = "least", "most"
    return names


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
