"""Which defaults: settings of one recipe beside each other, on validation and test.

``python -m benchmarks.accuracy.defaults --device cuda`` fits a few settings of
`TIFAGCLClassifier` and `GNNClassifier` on the same splits of the five graphs, with 20
and 5 labels a class, no search. Defaults are chosen by the validation columns.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from scipy.stats import wilcoxon

from benchmarks._report import parse, print_table, write_report
from benchmarks.data import GRAPHS, load, paper_splits
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.classifiers.prepare import prepare
from sktifa.training.engine import train

UNIFORM = {"weighting": "uniform", "perturbation": "uniform"}
ALONE = {"target_information": 0.0, "teacher_weight": 0.0}
SETTINGS: dict[str, GNNClassifier] = {
    "GCN": GNNClassifier(),
    "uniform contrast": TIFAGCLClassifier(**UNIFORM, **ALONE),
    "ours": TIFAGCLClassifier(),
    "ours, uniform weights": TIFAGCLClassifier(**UNIFORM),
    "ours, uniform trust": TIFAGCLClassifier(trust="uniform"),
    "ours, trust by gain alone": TIFAGCLClassifier(trust="tifa"),
}


def outcomes(
    model: GNNClassifier,
    graph: Any,
    y: Any,
    splits: Any,
    device: torch.device,
    *,
    stops: bool = True,
) -> tuple[list[float], list[float]]:
    """Return validation and test accuracy of each split, in percent.

    Unless it `stops` by its validation nodes, a model does not see their labels.
    """
    models = [
        type(model)(
            **{**model.get_params(), "random_state": 100 + i, "device": str(device)}
        )
        for i in range(len(splits))
    ]
    problems = []
    for m, (tr, val, _) in zip(models, splits, strict=True):
        given = {"X_val": graph[val], "y_val": y[val]} if stops else {}
        problems.append(prepare(m, graph[tr], y[tr], device, **given))
    trained = train(problems, device, with_logits=True)
    right = [
        m.classes_[t.logits.argmax(1)] == y
        for m, t in zip(models, trained, strict=True)
    ]
    parts = [
        (100 * ok[val].mean(), 100 * ok[test].mean())
        for ok, (_, val, test) in zip(right, splits, strict=True)
    ]
    return [v for v, _ in parts], [t for _, t in parts]


def row(graph: str, labels: int, told: dict[str, tuple[list, list]]) -> dict[str, Any]:
    """Sum up one graph: accuracies, and what ours is ahead, paired by split."""
    summed: dict[str, Any] = {"graph": graph, "labels": labels}
    for name, (val, test) in told.items():
        summed[name] = f"{np.mean(test):.1f} ± {np.std(test):.1f} ({np.mean(val):.1f})"
    for name, (_, test) in told.items():
        if name != "ours":
            ahead = np.subtract(told["ours"][1], test)
            error = ahead.std(ddof=1) / np.sqrt(len(ahead))
            p = wilcoxon(ahead).pvalue if ahead.any() else 1.0
            summed[f"minus {name}"] = f"{ahead.mean():+.2f} ± {error:.2f}, p {p:.3f}"
    return summed


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", nargs="+", default=GRAPHS, choices=GRAPHS)
    parser.add_argument("--splits", type=int, default=10)
    options = parse(parser)
    device, rows, kept = torch.device(options.device), [], {}
    for name in options.graphs:
        data = load(name)
        for labels in (20, 5):
            splits = paper_splits(data, options.splits, labels=labels)
            told = {
                setting: outcomes(model, data.graph, data.target, splits, device)
                for setting, model in SETTINGS.items()
            }
            rows.append(row(name, labels, told))
            kept[f"{name}, {labels} labels"] = told
            print_table(rows[-1:])
    seeds = range(options.splits)
    write_report(
        "defaults",
        rows,
        seeds=seeds,
        device=device,
        commit=options.commit,
        splits=kept,
    )


if __name__ == "__main__":
    main()
