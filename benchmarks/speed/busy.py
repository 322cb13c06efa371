"""Small fits on a busy machine: beside processes that spin, and with it idle.

``python -m benchmarks.speed.busy`` fits small graphs with and without two processes
beside that never rest. The bar: at most three times as long, where fair shares of two
cores alone give two.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sklearn.base import clone

from benchmarks._report import median_time, parse, print_table, write_report
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.datasets import make_block_graph

SIZES = (100, 500, 2500)
N_FITS = 5


def main() -> None:
    """Print the table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES, help="nodes")
    parser.add_argument("--spinning", type=int, default=2, help="processes beside")
    parser.add_argument("--repeat", type=int, default=3)
    options = parse(parser)
    rows = []
    for size in options.sizes:
        made = make_block_graph(size, 5, n_features=32, device="cpu", random_state=0)
        # A tenth of the nodes is labelled.
        y = np.where(np.arange(size) % 10 == 0, made.target, -1)
        for model in (GNNClassifier(), TIFAGCLClassifier()):
            model.set_params(max_iter=100, device="cpu")

            def fits(model=model, graph=made.graph, y=y) -> None:  # noqa: ANN001
                for seed in range(N_FITS):
                    clone(model).set_params(random_state=seed).fit(graph, y)

            idle = median_time(fits, options.repeat)
            with spinning(options.spinning):
                busy = median_time(fits, options.repeat, warm_up=0)
            rows.append(
                {
                    "nodes": size,
                    "classifier": type(model).__name__,
                    "idle, s a fit": idle / N_FITS,
                    "busy, s a fit": busy / N_FITS,
                    "busy / idle": busy / idle,
                }
            )
            print(rows[-1], flush=True)
    print_table(rows)
    write_report(
        "speed_busy_cpu",
        rows,
        seeds=range(N_FITS),
        device="cpu",
        commit=options.commit,
        spinning=options.spinning,
        bar=3,
    )


@contextmanager
def spinning(count: int) -> Iterator[None]:
    """Keep processes beside busy."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
