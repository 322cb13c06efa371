"""A fit's time beside that of an earlier revision, on the same machine, by turns.

``git worktree add ../before 2c0a3a4`` makes a checkout of the revision in which one
model and stacks were still trained by two engines, and ``python -m
benchmarks.speed.before --checkout ../before --before 2c0a3a4`` times whole fits of
both, preparation and validation included: of a GCN and of the paper's method, as many
epochs each, in processes that take turns.

The bar: nowhere slower by more than 3 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from benchmarks._report import parse, report
from benchmarks.data import GRAPHS, load, paper_splits
from benchmarks.speed import _fits

BAR = 1.03


def main() -> None:
    """Print the table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--before", required=True, help="that checkout's commit")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", nargs="*", choices=GRAPHS, default=GRAPHS)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    options = parse(parser)
    checkouts = {
        "before": options.checkout.resolve(),
        "now": Path(__file__).parents[2],
    }
    seconds: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.graphs:
            _hand_over(name, Path(folder))
        given = [folder, options.device, str(options.epochs), *options.graphs]
        for turn in range(options.turns):
            for revision, checkout in checkouts.items():
                done = subprocess.run(
                    [sys.executable, _fits.__file__, *given],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                    env={**os.environ, "PYTHONPATH": str(checkout)},
                )
                for graph, kind, took in json.loads(done.stdout.splitlines()[-1]):
                    seconds.setdefault((graph, kind, revision), []).append(took)
            print(f"turn {turn + 1} is over", flush=True)
    rows = []
    for name in options.graphs:
        for kind in _fits.KINDS:
            before, now = (np.median(seconds[name, kind, r]) for r in checkouts)
            rows.append(
                {
                    "graph": name,
                    "classifier": kind,
                    "before, s": float(before),
                    "now, s": float(now),
                    "now / before": float(now / before),
                }
            )
    threads = torch.get_num_threads()
    name = (
        f"speed_before_{threads}_threads" if options.device == "cpu" else "speed_before"
    )
    report(name, rows, options, before=options.before, bar=BAR, epochs=options.epochs)


def _hand_over(name: str, folder: Path) -> None:
    """Write a graph down as either revision can read it."""
    data = load(name)
    train, val, _ = paper_splits(data, 1)[0]
    features = data.graph.features
    parts = {"adjacency": data.graph.adjacency, "features": features}
    for part, matrix in parts.items():
        sparse.save_npz(folder / f"{name}-{part}.npz", sparse.csr_array(matrix))
    np.savez(
        folder / f"{name}.npz",
        y=data.target,
        train=train,
        val=val,
        is_dense=not sparse.issparse(features),
    )


if __name__ == "__main__":
    main()
