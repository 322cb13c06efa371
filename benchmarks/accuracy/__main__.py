"""Rebuilds the paper's tables and figures.

    python -m benchmarks.accuracy table1 figure4 --device cuda --minutes 9 --jobs 8
    python -m benchmarks.accuracy all --minutes 0       # tell what is known, train none
    python -m benchmarks.accuracy table1 --graphs Cora --candidates 3 --splits 2
    python -m benchmarks.accuracy table1 study --plan     # models, epochs, seconds

Fits are dealt to processes, which share a GPU best under CUDA's MPS
(`nvidia-cuda-mps-control -d` before). Outcomes are kept in a checkpoint as they come:
the same command again goes on where it was, and a larger budget where a smaller one
ended. Records and tuned hyper-parameters
are kept in benchmarks/results, figures in docs/figures. Where that is another
machine's, `--results` names a folder for all of it; checkpoints of several machines are
one when they are joined:

    cp benchmarks/results/checkpoint.jsonl there/
    python -m … --results there --train-only
    cat there/checkpoint.jsonl elsewhere/checkpoint.jsonl > …
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._report import RESULTS, commit, print_table
from benchmarks.accuracy.comparison import adjusted
from benchmarks.accuracy.experiments import EXPERIMENTS, INDUCTIVE_BUDGET, Record
from benchmarks.accuracy.facts import FACTS
from benchmarks.accuracy.figures import DRAW
from benchmarks.accuracy.lab import graph_of
from benchmarks.accuracy.methods import METHODS
from benchmarks.accuracy.protocol import Budget, Cell
from benchmarks.accuracy.run import collect, plan, read_tuned, run, write_tuned
from benchmarks.data import LOADERS
from sktifa.exceptions import DatasetError

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
NAMES = sorted(EXPERIMENTS | FACTS)
# What every record tells, of those that no model stands behind.
NO_MODEL = dict.fromkeys(
    ("method", "graph", "test_mean", "test_std", "val_mean")
    + ("n_splits", "n_seeds", "params")
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names",
        nargs="+",
        choices=[*NAMES, "all"],
        metavar="NAME",
        help=f"{', '.join(NAMES)}, or all",
    )
    parser.add_argument(
        "--graphs",
        nargs="*",
        choices=LOADERS,
        metavar="GRAPH",
        help=f"these alone, of {', '.join(LOADERS)}",
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        choices=METHODS,
        metavar="METHOD",
        help="these alone; any other word lists all there are",
    )
    parser.add_argument(
        "--labels", nargs="*", type=int, metavar="N", help="these counts alone"
    )
    for name, default in vars(Budget()).items():
        parser.add_argument(
            "--" + {"splits": "tuning_splits"}.get(name, name).replace("_", "-"),
            type=int,
            dest=f"budget_{name}",
            metavar="N",
            help=f"to choose by (default: {default}; of tables 2 and 6, "
            f"{getattr(INDUCTIVE_BUDGET, name)})",
        )
    parser.add_argument("--splits", type=int, help="to test by")
    parser.add_argument("--seeds", type=int, help="to test by, on each split")
    parser.add_argument("--tuned", action="store_true", help="use tuned.yaml's choice")
    parser.add_argument(
        "--device", default="cpu", help="auto, cpu, cuda or cuda:1 (default: cpu)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument(
        "--together", type=int, default=20, help="fits dealt to a process at once"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=1e9,
        help="after these nothing begins, nor what would not end before",
    )
    parser.add_argument(
        "--plan", action="store_true", help="tell what there is to train, alone"
    )
    parser.add_argument(
        "--train-only", action="store_true", help="leave the telling to another run"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of what is kept"
    )
    parser.add_argument("--commit", default=commit(), help="of the code, without .git")
    options = parser.parse_args(arguments)
    if options.commit is None and options.minutes and not options.plan:
        parser.error("there is no .git here: name the code's commit by --commit")
    if "all" in options.names:
        options.names = NAMES
    return options


def wanted(name: str, options: argparse.Namespace) -> dict[Cell, tuple[int, int]]:
    """Return an experiment's cells, as far as they are asked for, and their sizes."""
    experiment = EXPERIMENTS[name]
    if options.splits:
        experiment = replace(experiment, splits=options.splits)
    if options.seeds:
        experiment = replace(experiment, seeds=options.seeds)
    return {
        cell: experiment.size(cell)
        for cell in experiment.cells
        if (options.graphs is None or cell.graph in options.graphs)
        and (options.methods is None or cell.method in options.methods)
        and (options.labels is None or cell.labels in options.labels)
    }


def budget_of(name: str, options: argparse.Namespace) -> Budget:
    """Return an experiment's budget, with what the command says of it."""
    said = {field: getattr(options, f"budget_{field}") for field in vars(Budget())}
    changes = {field: value for field, value in said.items() if value is not None}
    return replace(EXPERIMENTS[name].budget, **changes)


def available(graphs: Iterable[str]) -> list[str]:
    """Leave out the graphs that are not here."""
    here = []
    for name in dict.fromkeys(graphs):
        try:
            graph_of(name)
        except (DatasetError, ImportError) as error:
            print(f"{name} is left out: {error}")
        else:
            here.append(name)
    return here


def facts(name: str, options: argparse.Namespace) -> list[Record]:
    """Return what a table or figure tells of the graphs that are here and asked for."""
    tell, graphs = FACTS[name]
    asked = [g for g in graphs if options.graphs is None or g in options.graphs]
    place = {"device": "cpu", "commit": options.commit}
    return [
        NO_MODEL | record | place
        for graph in available(asked)
        for record in tell(graph)
    ]


def keep(name: str, records: Sequence[Record], results: Path) -> None:
    """Write records, and the figure if they have one.

    Records of cells that are not among these stay as they were, but for what they are
    compared with.
    """
    path = results / f"{name}.json"
    before = json.loads(path.read_text()) if path.exists() else []
    merged = {_cell_of(record): record for record in [*before, *records]}
    if name in EXPERIMENTS:
        order = [(c.method, c.graph, c.labels) for c in EXPERIMENTS[name].cells]
        merged = {cell: merged[cell] for cell in order if cell in merged}
        EXPERIMENTS[name].compare(list(merged.values()))
    if not merged:
        return
    told = list(merged.values())
    path.write_text(json.dumps(told, indent=1) + "\n")
    print(path)
    if name in DRAW:
        folder = FIGURES if results == RESULTS else results
        folder.mkdir(parents=True, exist_ok=True)
        DRAW[name](told).savefig(folder / f"{name}.png", dpi=120)
        print(folder / f"{name}.png")


def _cell_of(record: Record) -> tuple[Any, ...]:
    return record["method"], record["graph"], record.get("labels")


def shown(records: Sequence[Record]) -> None:
    """Print a line a record, and the comparisons with p-values raised by Holm."""
    keys = ("method", "graph", "labels", "test_mean", "test_std", "val_mean")
    print_table([{key: record[key] for key in keys} for record in records])
    compared = [
        {"method": r["method"], "minus": other, "graph": r["graph"], **told}
        for r in records
        for other, told in r.get("minus", {}).items()
    ]
    for row, p in zip(compared, adjusted([row["p"] for row in compared]), strict=True):
        row["p (Holm)"] = p
    print_table(compared)


def main(arguments: Sequence[str] | None = None) -> None:
    begin = time.time()
    options = parse(arguments)
    results: Path = options.results
    results.mkdir(parents=True, exist_ok=True)
    checkpoint = results / "checkpoint.jsonl"
    tuned = read_tuned(results, options.names) if options.tuned else {}
    by_budget: dict[Budget, dict[Cell, tuple[int, int]]] = {}
    for name in options.names:
        if name in FACTS:
            continue
        cells = by_budget.setdefault(budget_of(name, options), {})
        for cell, (splits, seeds) in wanted(name, options).items():
            most = cells.get(cell, (0, 0))
            cells[cell] = max(splits, most[0]), max(seeds, most[1])
    if options.plan:
        rows = [
            row
            for budget, cells in by_budget.items()
            for row in plan(cells, budget, tuned, checkpoint)
        ]
        counts = [
            key
            for key in next(iter(rows), {})
            if key not in ("method", "graph", "labels")
        ]
        total = {key: sum(row[key] for row in rows) for key in counts}
        print_table([*rows, {"method": "all", **total}])
        return
    for budget, cells in by_budget.items() if options.minutes else ():
        here = available(cell.graph for cell in cells)
        run(
            {cell: size for cell, size in cells.items() if cell.graph in here},
            budget,
            tuned,
            n_jobs=options.jobs,
            checkpoint=checkpoint,
            device=options.device,
            commit=options.commit,
            deadline=begin + 60 * options.minutes,
            together=options.together,
            begin=begin,
        )
    if options.train_only:
        return
    for name in options.names:
        if name in FACTS:
            keep(name, facts(name, options), results)
            continue
        asked = wanted(name, options)
        trials = collect(asked, budget_of(name, options), tuned, checkpoint)
        print(f"\n{name}: {len(trials)} of {len(asked)} cells")
        records = EXPERIMENTS[name].tell(trials)
        keep(name, records, results)
        shown(records)
        if not options.tuned:
            write_tuned(name, list(trials.values()), results)


if __name__ == "__main__":
    main()
