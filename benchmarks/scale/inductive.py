"""Inductive learning on real graphs (the paper's Tables 2 and 6, on smaller graphs).

    python -m benchmarks.scale.inductive                # Table 2's comparisons
    python -m benchmarks.scale.inductive --grid         # Table 6: t x walk length
    python -m benchmarks.scale.inductive --seeds 1 --epochs 3 --graphs Computers

Half of the nodes are seen in training, 20 of each class labelled. Validation (30 a
class) and test nodes are among the others: training never sees their features or
edges; prediction uses the whole graph. GraphSAGE and GAT train on subgraphs of
SAINT-RW or SAINT-TIFA, by cross-entropy alone, with uniform contrast and with TIFA's.
Hyper-parameters are the defaults, chosen on no test score.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any

import joblib
import numpy as np
import torch

from benchmarks._report import parse, print_table
from benchmarks.scale._common import keep
from sktifa import (
    GNNClassifier,
    TIFAGCLClassifier,
    fetch_amazon,
    fetch_citation_full,
    fetch_coauthor,
)
from sktifa.device import resolve_device
from sktifa.sampling import SAINTTIFASampler

LOADERS = {
    "Computers": lambda: fetch_amazon("Computers", largest_component=True),
    "Physics": lambda: fetch_coauthor("Physics"),
    "DBLP": lambda: fetch_citation_full("DBLP"),
}
UNIFORM = {"weighting": "uniform", "perturbation": "uniform", "pairing": "uniform"}
METHODS = {
    "supervised": (GNNClassifier, {}),
    "uniform-GCL": (TIFAGCLClassifier, UNIFORM),
    "TIFA-GCL": (TIFAGCLClassifier, {}),
}
LENGTHS, SHARPNESS = (2, 3, 4, 5), (0.0, 0.25, 0.5, 1.0, 2.0)


def split(y: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Return seen nodes, their labels (-1: hidden), validation and test nodes."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    seen, others = order[: len(y) // 2], order[len(y) // 2 :]
    labels = np.full(len(y), -1)
    held = []
    for c in np.unique(y):
        chosen = seen[y[seen] == c][:20]
        labels[chosen] = c
        held.append(others[y[others] == c][:30])
    val = np.concatenate(held)
    return seen, labels[seen], val, np.setdiff1d(others, val)


def run(
    data: Any,
    encoder: str,
    sharpness: float,
    walk_length: int,
    method: str,
    seed: int,
    device: str,
    roots: int,
    epochs: int,
    deadline: float,
) -> dict[str, float] | None:
    if time.time() > deadline:
        return None
    torch.set_num_threads(1)
    graph, y = data.graph, data.target
    seen, labels, val, test = split(y, seed)
    sampler = SAINTTIFASampler(
        roots, walk_length=walk_length, sharpness=sharpness, device=device
    )
    cls, settings = METHODS[method]
    model = cls(
        encoder,
        hidden_size=128 if encoder == "sage" else 64,
        setting="inductive",
        sampler=sampler,
        max_iter=epochs,
        n_iter_no_change=20,
        min_iter=10,
        # Many processes share a GPU.
        prediction_memory=1 << 30,
        device=device,
        random_state=seed,
        **settings,
    )
    start = time.perf_counter()
    model.fit(graph[seen], labels, X_val=graph[val], y_val=y[val])
    return {
        "accuracy": 100 * model.score(graph[test], y[test]),
        "transition std": model.sampler_.transition_std_,
        "epochs": model.n_iter_,
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="*", default=list(LOADERS))
    parser.add_argument("--encoders", nargs="*", default=["sage", "gat"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--roots", type=int, default=2000)
    parser.add_argument("--grid", action="store_true", help="Table 6")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, help="processes; default: 4 a GPU, or 2")
    parser.add_argument(
        "--minutes", type=float, default=7, help="after these no fit begins"
    )
    options = parse(parser)
    deadline = time.time() + 60 * options.minutes
    device = resolve_device(options.device)
    if options.grid:
        cases = [
            (g, "sage", t, length, "TIFA-GCL")
            for g, t, length in itertools.product(options.graphs, SHARPNESS, LENGTHS)
        ]
    else:
        cases = [
            (g, encoder, t, 3, method)
            for g, encoder, t, method in itertools.product(
                options.graphs, options.encoders, (0.0, 0.25), METHODS
            )
        ]
    data = {name: LOADERS[name]() for name in options.graphs}
    # Seed by seed: where time runs out, all cases have the same seeds.
    jobs = [(case, seed) for seed in range(options.seeds) for case in cases]
    places = [options.device]
    if device.type == "cuda":
        places = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    n_jobs = options.jobs or (2 if device.type == "cpu" else 4 * len(places))
    results = joblib.Parallel(n_jobs, verbose=2)(
        joblib.delayed(run)(
            data[case[0]], *case[1:], seed, places[i % len(places)], options.roots,
            options.epochs, deadline,
        )
        for i, (case, seed) in enumerate(jobs)
    )  # fmt: skip
    by_seed = [results[i : i + len(cases)] for i in range(0, len(results), len(cases))]
    by_seed = [part for part in by_seed if None not in part]
    print(f"{len(by_seed)} of {options.seeds} seeds were finished.")
    rows = []
    for at, (name, encoder, sharpness, length, method) in enumerate(cases):
        part = [of_seed[at] for of_seed in by_seed]
        scores = np.array([one["accuracy"] for one in part])
        rows.append(
            {
                "graph": name,
                "encoder": encoder,
                "sampler": "SAINT-TIFA" if sharpness else "SAINT-RW",
                "t": sharpness,
                "walk length": length,
                "method": method,
                "accuracy": scores.mean(),
                "std": scores.std(ddof=min(1, len(scores) - 1)),
                "transition std": np.mean([one["transition std"] for one in part]),
                "epochs": np.mean([one["epochs"] for one in part]),
                "s a fit": np.mean([one["seconds"] for one in part]),
                "scores": scores.round(2).tolist(),
            }
        )
    differences = paired(rows)
    print_table(differences)
    keep(
        "inductive_" + ("grid" if options.grid else "_".join(options.encoders)),
        rows,
        seeds=list(range(len(by_seed))),
        device=device,
        commit=options.commit,
        setting="inductive",
        split="half of the nodes seen, 20 labels a class; validation 30 a class",
        paired_differences=differences,
        options=vars(options),
    )


def paired(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare on the same seeds: TIFA's contrast to uniform, its sampler to RW."""
    told = []
    for one, other in itertools.permutations(rows, 2):
        same = all(one[k] == other[k] for k in ("graph", "encoder", "walk length"))
        contrast = one["t"] == other["t"] and (one["method"], other["method"]) == (
            "TIFA-GCL",
            "uniform-GCL",
        )
        sampler = one["method"] == other["method"] and one["t"] > other["t"] == 0
        if same and (contrast or sampler):
            difference = np.subtract(one["scores"], other["scores"])
            n = len(difference)
            told.append(
                {
                    "graph": one["graph"],
                    "encoder": one["encoder"],
                    "walk length": one["walk length"],
                    "of": f"{one['method']}, {one['sampler']} t={one['t']}",
                    "against": f"{other['method']}, {other['sampler']}",
                    "difference": difference.mean(),
                    "standard error": difference.std(ddof=min(1, n - 1)) / n**0.5,
                }
            )
    return told


if __name__ == "__main__":
    main()
