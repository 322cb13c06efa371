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
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.base import clone
from torch.nn import functional
from torch_geometric.nn import GCNConv

from benchmarks._report import print_table, write_report
from benchmarks.data import GRAPHS, load, paper_splits
from sktifa import GNNClassifier, TIFAGCLClassifier

WARM_UP, EPOCHS = 5, 40


class PlainGCN(torch.nn.Module):
    """Two layers of PyG's GCNConv, hidden 64, dropout 0.5."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.first = GCNConv(n_features, 64)
        self.second = GCNConv(64, n_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = functional.dropout(x, 0.5, self.training)
        x = torch.relu(self.first(x, edge_index))
        x = functional.dropout(x, 0.5, self.training)
        return self.second(x, edge_index)


class _Clock:
    """A scikit-learn callback that notes when each epoch ends."""

    def __init__(self, device: str) -> None:
        self.device, self.times = device, []

    def setup(self, estimator, context):  # noqa: ANN001, ANN201, D102
        pass

    def teardown(self, estimator, context):  # noqa: ANN001, ANN201, D102
        pass

    def on_fit_task_begin(self, estimator, context):  # noqa: ANN001, ANN201, D102
        pass

    def on_fit_task_end(self, estimator, context):  # noqa: ANN001, ANN201, D102
        if self.device != "cpu":
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())


def time_pyg(data, train, val, device: str, validate: bool) -> float:  # noqa: ANN001
    """Return PyG's median milliseconds an epoch."""
    pyg = data.graph.to_pyg(data.target).to(device)
    # Unlabelled nodes count among the training nodes, for scikit-learn's sake.
    train = train[data.target[train] >= 0]
    train, val = (torch.from_numpy(i).to(device) for i in (train, val))
    model = PlainGCN(pyg.num_features, int(data.target.max()) + 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.005)
    times = []
    for _ in range(WARM_UP + EPOCHS):
        begin = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        out = model(pyg.x, pyg.edge_index)
        functional.cross_entropy(out[train], pyg.y[train]).backward()
        optimizer.step()
        if validate:
            model.eval()
            with torch.no_grad():
                out = model(pyg.x, pyg.edge_index)
                functional.cross_entropy(out[val], pyg.y[val]).item()
        elif device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times[WARM_UP:]))


def time_ours(model, data, train, val, device: str) -> float:  # noqa: ANN001
    """Return an estimator's median milliseconds an epoch."""
    clock = _Clock(device)
    model = clone(model).set_params(
        max_iter=WARM_UP + EPOCHS, n_iter_no_change=10**6, device=device, random_state=0
    )
    model.set_callbacks(clock)
    graph, y = data.graph, data.target
    model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
    # The last entry is the whole fit's.
    return 1e3 * float(np.median(np.diff(clock.times[:-1])[WARM_UP:]))


def peak_memory(name: str) -> float:
    """Return the MiB that a TIFA-GCL fit adds to a process that holds the data."""
    command = [sys.executable, "-m", "benchmarks.speed.epoch", "--memory-of", name]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ
    )
    return float(done.stdout.split()[-1])


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
    arguments = parser.parse_args()
    if arguments.memory_of:
        _print_peak_memory(arguments.memory_of)
        return
    device = arguments.device
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
            row["TIFA-GCL fit, MiB above the data"] = peak_memory(name)
        rows.append(row)
        print(f"{name} done", flush=True)
    print_table(rows)
    where = "cpu" if device == "cpu" else "gpu"
    write_report(f"speed_epoch_{where}", rows, seeds=[0], device=device)


if __name__ == "__main__":
    main()
