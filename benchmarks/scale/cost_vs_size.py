"""What a graph of n nodes costs, at a fixed degree: near-linear, on a log-log picture.

python -m benchmarks.scale.cost_vs_size
python -m benchmarks.scale.cost_vs_size --largest 30000   # on a CPU
"""

from __future__ import annotations

import argparse
import os
import shutil

import numpy as np
import torch

from benchmarks._report import RESULTS, parse
from benchmarks.scale._common import keep, peak_memory, timed, training
from sktifa import Graph, TIFAGCLClassifier
from sktifa.datasets import make_block_graph
from sktifa.device import resolve_device
from sktifa.information.loss_weights import loss_weights
from sktifa.information.tig import annotated_information, information_gain
from sktifa.sampling import SAINTTIFASampler
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.training.sources import NodeFeatures

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_400_000)
CLASSES, DEGREE = 10, 20.0


def time_of_statistics(graph: Graph, y: np.ndarray, device: torch.device) -> float:
    placed = DeviceGraph.from_graph(graph, device)
    resident = NodeFeatures(graph.features, device).resident
    features = graph.features if resident is None else resident

    def compute() -> None:
        z = annotated_information(placed, y, CLASSES, features=features)
        loss_weights(information_gain(z))

    return timed(compute, device)


def measure(n_nodes: int, roots: int, device: torch.device) -> dict[str, float]:
    made = make_block_graph(
        n_nodes,
        CLASSES,
        average_degree=DEGREE,
        degree_exponent=4.0,
        n_features=64,
        device=str(device),
        random_state=0,
    )
    graph = made.graph
    y = np.where(np.random.default_rng(0).random(n_nodes) < 0.05, made.target, -1)

    def restart() -> None:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)

    row: dict[str, float] = {"nodes": n_nodes, "arcs": graph.adjacency.nnz}
    restart()
    row["statistics s"] = time_of_statistics(graph, y, device)
    row["statistics GB"] = peak_memory(device)
    restart()
    model = TIFAGCLClassifier(
        "sage",
        hidden_size=128,
        n_layers=3,
        sampler=SAINTTIFASampler(
            roots, walk_length=3, device=str(device), random_state=0
        ),
        device=str(device),
        random_state=0,
    )
    with training(model, graph, y, device) as fit:
        row["epoch s"] = timed(fit.epoch, device, 1)
        row["step s"] = row["epoch s"] / model.sampler_.n_subgraphs_
        row["training GB"] = peak_memory(device)
        restart()
        row["prediction s"] = timed(fit.evaluate, device)
        row["prediction GB"] = peak_memory(device)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--roots", type=int, default=5_000)
    parser.add_argument("--device", default="auto")
    options = parse(parser)
    device = resolve_device(options.device)
    rows = []
    for n_nodes in SIZES:
        if n_nodes <= options.largest:
            rows.append(measure(n_nodes, options.roots, device))
            print(rows[-1], flush=True)
    slopes = {}
    if len(rows) > 1:
        # Of the larger half: small graphs cost what a launch costs.
        part = rows[len(rows) // 2 - 1 :]
        size = np.log([row["nodes"] for row in part])
        for what in ("statistics s", "epoch s", "prediction s"):
            cost = np.log([row[what] for row in part])
            slopes[what] = float(np.polyfit(size, cost, 1)[0])
    print("exponents:", slopes)
    name = f"scale_cost_vs_size_{device.type}"
    draw(rows, RESULTS / f"{name}.png")
    keep(
        name,
        rows,
        seeds=[0],
        device=device,
        commit=options.commit,
        options=vars(options),
        exponents=slopes,
    )


def draw(rows: list[dict[str, float]], path: os.PathLike[str]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    nodes = [row["nodes"] for row in rows]
    for axis, unit, title in zip(
        panels, (" s", " GB"), ("seconds", "peak memory, GB"), strict=True
    ):
        for what in rows[0]:
            if what.endswith(unit):
                axis.loglog(nodes, [row[what] for row in rows], "o-", label=what)
        first = min(row[w] for row in rows[:1] for w in row if w.endswith(unit))
        axis.loglog(nodes, [first * n / nodes[0] for n in nodes], "k:", label="linear")
        axis.set(xlabel="nodes", ylabel=title)
        axis.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
    if os.environ.get("OUT"):
        shutil.copy(path, os.environ["OUT"])


if __name__ == "__main__":
    main()
