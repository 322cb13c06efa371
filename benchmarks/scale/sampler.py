"""Subgraph sampling, beside PyG's C++ random walk sampler.

``python -m benchmarks.scale.sampler`` draws subgraphs from a block graph, on the CPU
of 500,000 nodes and 12 M arcs, on a GPU of ogbn-products' shape (2,449,029 nodes,
130 M arcs), and prints milliseconds a subgraph: uniform steps, SAINT-TIFA's steps,
and PyG's `GraphSAINTRandomWalkSampler` where torch-sparse is installed (it walks on
the CPU, by uniform steps). All draw roots, walk, and induce; none fetches features.

The bar: on the CPU no slower than PyG's; on an H100 at most 2 ms for 20,000 x 3.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks._report import median_time, parse, print_table, write_report
from sktifa.datasets import make_block_graph
from sktifa.device import resolve_device
from sktifa.graph import Graph
from sktifa.information.tig import annotated_information
from sktifa.sampling import SAINTTIFASampler

# Degrees fall off so that subgraphs are as large as those of PEERS.md.
SHAPES = {
    "cpu": {
        "n_nodes": 500_000,
        "average_degree": 24.0,
        "n_classes": 10,
        "degree_exponent": 4.0,
    },
    "cuda": {
        "n_nodes": 2_449_029,
        "average_degree": 53.1,
        "n_classes": 47,
        "degree_exponent": 4.0,
    },
}
DRAWS = ((6_000, 2), (20_000, 3))
LABELLED = 0.08


def main() -> None:
    """Measure, print, write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--n-nodes", type=int, help="another size of the same shape")
    parser.add_argument("--repeat", type=int, default=30)
    options = parse(parser)
    device = resolve_device(options.device)
    shape = SHAPES["cuda" if device.type == "cuda" else "cpu"]
    if options.n_nodes:
        shape = {**shape, "n_nodes": options.n_nodes}
    made = make_block_graph(**shape, n_features=100, device=str(device), random_state=0)
    graph = made.graph
    print(f"{graph}, {2 * graph.n_edges:,} arcs")
    unlabelled = np.random.default_rng(0).random(graph.n_nodes) >= LABELLED
    codes = np.where(unlabelled, -1, made.target)

    information, seconds = timed(
        device,
        lambda: annotated_information(graph, codes, shape["n_classes"], device=device),
    )
    statistics = {"Z*": seconds}
    fitted = {}
    for name, sharpness in (("uniform", 0.0), ("saint-tifa", 0.25)):
        sampler = SAINTTIFASampler(
            sharpness=sharpness, device=str(device), random_state=0
        )
        sampler.fit(graph, information=information)  # compiles
        fitted[name], statistics[f"fit {name}"] = timed(
            device, lambda s=sampler: s.fit(graph, information=information)
        )
    print({name: f"{seconds:.2f} s" for name, seconds in statistics.items()})

    rows = []
    for n_roots, walk_length in DRAWS:
        for name, sampler in fitted.items():
            sampler.set_params(n_roots=n_roots, walk_length=walk_length)
            subgraph = sampler.sample_subgraph()
            seconds = median_time(sampler.sample_subgraph, options.repeat, warm_up=3)
            rows.append(
                row(name, n_roots, walk_length, len(subgraph), subgraph.col, seconds)
            )
        if (draw := pyg_sampler(graph, n_roots, walk_length)) is not None:
            nodes, adjacency = draw()
            seconds = median_time(draw, options.repeat, warm_up=3)
            col = adjacency.storage.col()
            rows.append(row("PyG, C++", n_roots, walk_length, len(nodes), col, seconds))
    print_table(rows)
    peak = None
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) / 2**30
        print(f"peak GPU memory {peak:.1f} GiB")
    write_report(
        f"sampler_{device.type}",
        rows,
        seeds=[0],
        device=device,
        commit=options.commit,
        shape=shape,
        n_arcs=2 * graph.n_edges,
        statistics_s=statistics,
        peak_gib=peak,
    )


def timed(device: torch.device, fn: Callable[[], Any]) -> tuple[Any, float]:
    """Return a call's result and its seconds, work on the GPU included."""
    start = time.perf_counter()
    result = fn()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, time.perf_counter() - start


def row(
    name: str,
    n_roots: int,
    walk_length: int,
    n_nodes: int,
    col: torch.Tensor,
    seconds: float,
) -> dict[str, Any]:
    """Return one line of the table."""
    return {
        "sampler": name,
        "roots x steps": f"{n_roots:,} x {walk_length}",
        "nodes": n_nodes,
        "arcs": len(col),
        "ms": 1e3 * seconds,
    }


def pyg_sampler(graph: Graph, n_roots: int, walk_length: int) -> Callable | None:
    """Return a call that draws a subgraph by PyG's sampler, without features."""
    try:
        import torch_sparse  # noqa: F401
    except ImportError:
        return None
    from torch_geometric.data import Data
    from torch_geometric.loader import GraphSAINTRandomWalkSampler

    arcs = graph.adjacency.tocoo()
    edge_index = torch.from_numpy(np.stack(arcs.coords).astype(np.int64))
    data = Data(edge_index=edge_index, num_nodes=graph.n_nodes)
    sampler = GraphSAINTRandomWalkSampler(
        data, batch_size=n_roots, walk_length=walk_length
    )
    return lambda: sampler[0]


if __name__ == "__main__":
    main()
