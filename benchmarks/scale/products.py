"""A graph of ogbn-products' shape on one GPU: does the sampler keep out of the way?

    python -m benchmarks.scale.products
    python -m benchmarks.scale.products --nodes 20000 --roots 1000   # on a CPU

Bars (one H200): statistics .6 s; with 20,000 roots x 3 steps 2 ms a subgraph and 1.3 s
an epoch; GPU busy 90 % of it, prediction 3 s. Trains once with each number of roots,
and measures the accuracy on the unlabelled nodes after `--epochs` epochs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks._report import parse
from benchmarks.scale._common import (
    Training,
    gpu_busy,
    keep,
    peak_memory,
    timed,
    training,
    utilization,
    wait,
)
from sktifa import Graph, TIFAGCLClassifier
from sktifa.datasets import make_block_graph
from sktifa.device import resolve_device
from sktifa.information.loss_weights import loss_weights
from sktifa.information.tig import (
    annotated_information,
    information_gain,
    label_distribution,
)
from sktifa.sampling import SAINTTIFASampler
from sktifa.sampling.walker import arc_distances
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.training.sources import NodeFeatures

NODES, CLASSES, FEATURES, DEGREE, LABELED = 2_449_029, 47, 100, 53.0, 0.08


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--degree", type=float, default=DEGREE)
    parser.add_argument("--roots", type=int, nargs="*", default=[20_000, 80_000])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--walk-length", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--normalization", choices=["none", "layer"], default="layer")
    parser.add_argument("--device", default="auto")
    options = parse(parser)
    device = resolve_device(options.device)
    rows = []

    def tell(what: str, value: float, unit: str, bar: str = "") -> None:
        rows.append({"what": what, "value": value, "unit": unit, "bar": bar})
        print(f"{what}: {value:.4g} {unit} {bar}", flush=True)

    start = time.perf_counter()
    made = make_block_graph(
        options.nodes,
        CLASSES,
        average_degree=options.degree,
        degree_exponent=4.0,  # subgraphs as large as those of PEERS.md
        n_features=FEATURES,
        class_separation=4.0,
        device=str(device),
        random_state=0,
    )
    graph, target = made.graph, made.target
    tell("make the graph", time.perf_counter() - start, "s")
    tell("nodes", graph.n_nodes, "")
    tell("arcs", graph.adjacency.nnz, "")
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(graph.n_nodes) < LABELED, target, -1)

    # Statistics, from a graph that is on the device, and with the copy.
    wait(device)
    start = time.perf_counter()
    whole: dict[str, Any] = {
        "graph": DeviceGraph.from_graph(graph, device),
        "features": NodeFeatures(graph.features, device),
    }
    wait(device)
    tell("copy graph and features", time.perf_counter() - start, "s")
    parts: dict[str, torch.Tensor] = {}

    resident = whole["features"].resident
    features = graph.features if resident is None else resident

    def information() -> None:
        parts["z"] = annotated_information(
            whole["graph"], y, CLASSES, features=features
        )

    def weights() -> None:
        gain = information_gain(parts["z"])
        parts["w"] = loss_weights(gain, 0.2, 2.2)

    def distances() -> None:
        arc_distances(whole["graph"], label_distribution(parts["z"]))

    spent = 0.0
    for name, work in (
        ("label propagation and TIG", information),
        ("gain and loss weights", weights),
        ("arc distances", distances),
    ):
        seconds = timed(work, device)
        spent += seconds
        tell(name, seconds, "s")
    tell("statistics in all", spent, "s", "<= 0.6")
    parts.clear()

    whole.clear()
    for roots in options.roots:
        measure_training(graph, y, target, roots, options, device, tell)
    tell("peak memory", peak_memory(device), "GB")
    keep(
        f"scale_products_{device.type}",
        rows,
        seeds=[0],
        device=device,
        commit=options.commit,
        setting="transductive",
        options=vars(options),
    )


def measure_training(
    graph: Graph,
    y: np.ndarray,
    target: np.ndarray,
    roots: int,
    options: argparse.Namespace,
    device: torch.device,
    tell: Callable[..., None],
) -> None:
    sampler = SAINTTIFASampler(
        roots,
        walk_length=options.walk_length,
        device=str(device),
        random_state=0,
    )
    model = TIFAGCLClassifier(
        "sage",
        hidden_size=options.hidden,
        n_layers=options.layers,
        # Without, learning begins only after many epochs.
        normalization=None if options.normalization == "none" else "layer",
        weight_decay=0.0,
        sampler=sampler,
        device=str(device),
        random_state=0,
    )
    setting = f"{roots:,} roots: "
    start = time.perf_counter()
    with training(model, graph, y, device) as fit:
        wait(device)
        tell(setting + "set up training", time.perf_counter() - start, "s")
        measure_epochs(fit, model, setting, options.epochs, device, tell)
        seconds = timed(fit.evaluate, device)
        tell(setting + "prediction, graph on the device", seconds, "s", "<= 3")
        predicted = fit.evaluate().argmax(1).cpu().numpy()
        model.network_ = fit.encoder.eval()
    hidden = y < 0
    tell(setting + "accuracy", float((predicted[hidden] == target[hidden]).mean()), "")
    if roots == options.roots[-1]:
        tell(
            "predict(graph), copies included",
            timed(lambda: model.predict(graph), device, 2),
            "s",
            "<= 3",
        )


def measure_epochs(
    fit: Training,
    model: TIFAGCLClassifier,
    setting: str,
    epochs: int,
    device: torch.device,
    tell: Callable[..., None],
) -> None:
    sampler = model.sampler_
    sizes = []

    def draw() -> None:
        for _ in range(10):
            subgraph = sampler.sample_subgraph()
            sizes.append((len(subgraph), len(subgraph.col)))

    bars = ("<= 2", "<= 1.3") if sampler.n_roots == 20_000 else ("", "")
    tell(setting + "sampler, a subgraph", timed(draw, device) * 100, "ms", bars[0])
    tell(setting + "nodes of a subgraph", float(np.mean(sizes, 0)[0]), "")
    tell(setting + "arcs of a subgraph", float(np.mean(sizes, 0)[1]), "")

    seconds = timed(fit.epoch, device, repeat=2)
    tell(setting + "TIFA-GCL epoch", seconds, "s", bars[1])
    tell(setting + "steps of an epoch", sampler.n_subgraphs_, "")
    tell(setting + "a step", 1e3 * seconds / sampler.n_subgraphs_, "ms")
    with gpu_busy(device) as told:
        loss = fit.epoch()
    with utilization(device) as undisturbed:
        for _ in range(epochs - 4):
            loss = fit.epoch()
    for name, value in {**told, **undisturbed}.items():
        tell(setting + name, value, "", ">= 0.9" if name.startswith("gpu") else "")
    tell(setting + f"loss after {epochs} epochs", loss, "")


if __name__ == "__main__":
    main()
