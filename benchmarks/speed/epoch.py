"""Time and memory of one training epoch on the CPU or a GPU, beside PyG's GCN.

``python -m benchmarks.speed.epoch`` times, in one run and on the same graphs,

- PyG's plain GCN as its users write it: `GCNConv` twice, dense features;
- our supervised GCN;
- full TIFA-GCL: perturbation drawn, three forward passes, validation included.

Every epoch counts the optimiser's step and the validation forward pass; PyG's is also
timed without validation, which is the stricter bar.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.base import clone

from benchmarks._report import in_new_process, parse, report
from benchmarks.data import GRAPHS, load, paper_splits
from benchmarks.speed.pyg import PlainScript
from sktifa import GNNClassifier, TIFAGCLClassifier

WARM_UP, EPOCHS = 5, 40


class _Clock:
    """A scikit-learn callback that notes when each epoch ends, on the CPU."""

    def __init__(self) -> None:
        self.times = []

    def setup(self, estimator, context):  # noqa: ANN001, ANN201, D102
        pass

    def teardown(self, estimator, context):  # noqa: ANN001, ANN201, D102
        pass

    def on_fit_task_begin(self, estimator, context):  # noqa: ANN001, ANN201, D102
        pass

    def on_fit_task_end(self, estimator, context):  # noqa: ANN001, ANN201, D102
        self.times.append(time.perf_counter())


def time_pyg(data, train, val, device: str, validate: bool) -> float:  # noqa: ANN001
    """Return PyG's median milliseconds an epoch."""
    script = PlainScript(data, train, val, device)
    times = []
    for _ in range(WARM_UP + EPOCHS):
        begin = time.perf_counter()
        script.step()
        if validate:
            script.validate()
        elif device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times[WARM_UP:]))


def time_on_gpu(model, data, train, val, device: str) -> float:  # noqa: ANN001
    """Return an estimator's milliseconds an epoch: what 400 more of them take."""
    graph, y = data.graph, data.target

    def seconds(max_iter: int) -> float:
        fresh = clone(model).set_params(
            max_iter=max_iter, n_iter_no_change=10**6, device=device, random_state=0
        )
        begin = time.perf_counter()
        fresh.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
        torch.cuda.synchronize()
        return time.perf_counter() - begin

    seconds(10)  # compiles
    few, many = (min(seconds(n) for _ in range(3)) for n in (100, 500))
    return 1e3 * (many - few) / 400


def time_ours(model, data, train, val, device: str) -> float:  # noqa: ANN001
    """Return an estimator's median milliseconds an epoch."""
    if device != "cpu":
        return time_on_gpu(model, data, train, val, device)
    clock = _Clock()
    model = clone(model).set_params(
        max_iter=WARM_UP + EPOCHS, n_iter_no_change=10**6, device=device, random_state=0
    )
    model.set_callbacks(clock)
    graph, y = data.graph, data.target
    model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
    # The last entry is the whole fit's.
    return 1e3 * float(np.median(np.diff(clock.times[:-1])[WARM_UP:]))


def peak_memory(name: str, commit: str) -> float:
    """Return the MiB that a TIFA-GCL fit adds to a process that holds the data."""
    told = in_new_process(
        "benchmarks.speed.epoch", f"--memory-of={name}", f"--commit={commit}"
    )
    return float(told.split()[-1])


def _print_peak_memory(name: str) -> None:
    data = load(name)
    train, val, _ = paper_splits(data, 1)[0]
    graph, y = data.graph, data.target
    # Loading may have peaked higher than training does: start the peak anew.
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    TIFAGCLClassifier(max_iter=10, device="cpu", random_state=0).fit(
        graph[train], y[train], X_val=graph[val], y_val=y[val]
    )
    print(_memory("VmHWM") - before)


def _memory(field: str) -> float:
    """Return a figure of this process's memory in MiB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def main() -> None:
    """Print the table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory-of", choices=GRAPHS)
    options = parse(parser)
    if options.memory_of:
        _print_peak_memory(options.memory_of)
        return
    device = options.device
    rows = []
    for name in GRAPHS:
        data = load(name)
        train, val, _ = paper_splits(data, 1)[0]
        pyg_train = time_pyg(data, train, val, device, validate=False)
        pyg = time_pyg(data, train, val, device, validate=True)
        gcn = time_ours(GNNClassifier(), data, train, val, device)
        tifa = time_ours(TIFAGCLClassifier(), data, train, val, device)
        row = {
            "graph": name,
            "PyG GCN, training step ms": pyg_train,
            "PyG GCN, epoch ms": pyg,
            "our GCN, epoch ms": gcn,
            "TIFA-GCL, epoch ms": tifa,
            "GCN faster than PyG's step": pyg_train / gcn,
            "GCN faster than PyG's epoch": pyg / gcn,
            "TIFA-GCL against PyG's step": pyg_train / tifa,
        }
        if device == "cpu":
            row["TIFA-GCL fit, MiB above the data"] = peak_memory(name, options.commit)
        rows.append(row)
        print(f"{name} done", flush=True)
    report("speed_epoch", rows, options)


if __name__ == "__main__":
    main()
