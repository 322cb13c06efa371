"""ogbn-products, for who has the data: the official split, inductive, SAINT-TIFA.

    python -m benchmarks.accuracy.products --root FOLDER --device cuda
    python -m benchmarks.accuracy.products --stand-in FOLDER --nodes 20000

FOLDER holds `ogbn_products` in ogb's own layout. The second command writes a block
graph of its shape there, to try the first (with `--results ELSEWHERE`). The time and
memory to expect are told before anything is trained. A checkpoint keeps each model: a
run that was interrupted goes on. All that `python -m benchmarks.accuracy` takes can be
given as well.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from benchmarks._report import RESULTS
from benchmarks.accuracy import __main__ as command
from benchmarks.accuracy.experiments import PRODUCTS_2
from benchmarks.accuracy.lab import graph_of
from benchmarks.accuracy.methods import METHODS
from sktifa import make_block_graph

__all__ = ["expectation", "write_stand_in"]

# The shape of ogbn-products, and its split by sales rank.
SHAPE = {"n_classes": 47, "average_degree": 53.0, "n_features": 100}
SHARES = {"train": 0.08, "valid": 0.02, "test": 0.9}
# The paper's encoders and sampler, with and without contrast.
SHOWN = [name for name in PRODUCTS_2 if "SAINT-TIFA" in name]
SEEDS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="default: SKTIFA_DATA")
    parser.add_argument("--stand-in", type=Path, metavar="FOLDER")
    parser.add_argument("--nodes", type=int, default=20_000, help="of the stand-in")
    parser.add_argument("--methods", nargs="*", choices=PRODUCTS_2, default=SHOWN)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options, others = parser.parse_known_args()
    if options.stand_in:
        write_stand_in(options.stand_in, options.nodes)
        return
    if options.root:
        os.environ["SKTIFA_DATA"] = str(options.root)
    print(expectation(graph_of("products"), len(options.methods) * options.seeds))
    command.main(
        ["table2", "--graphs", "products", "--methods", *options.methods]
        + ["--splits", "1", "--seeds", str(options.seeds), *others]
    )


def expectation(data: Bunch, n_models: int) -> str:
    """Tell what training on one GPU takes, by what was measured at products' shape."""
    report = json.loads((RESULTS / "scale_products_cuda.json").read_text())
    of = {row["what"]: row["value"] for row in report["rows"]}
    estimator = METHODS[SHOWN[-1]].estimator
    n_roots, n_seen = estimator.sampler.n_roots, int(data.train_mask.sum())
    steps = -(-n_seen // n_roots)
    share = data.graph.n_nodes / of["nodes"]
    # Once before training, and once an epoch for validation.
    around = of["statistics in all"] + of["copy graph and features"]
    predict = of[f"{n_roots:,} roots: prediction, graph on the device"]
    epoch = steps * of[f"{n_roots:,} roots: a step"] / 1e3 + share * predict
    model = share * around + estimator.max_iter * epoch
    return (
        f"{data.graph}; training sees {n_seen:,} nodes, {steps} steps an epoch.\n"
        f"On one {report['device']} expect at most {model:.0f} s a GraphSAGE, several "
        f"times that a GAT, for {n_models} models {n_models * model / 60:.0f} minutes "
        f"and more, and at most {share * of['peak memory']:.0f} GB on the GPU."
    )


def write_stand_in(root: Path, n_nodes: int) -> None:
    """Write a block graph of ogbn-products' shape in ogb's own layout."""
    data = make_block_graph(n_nodes, random_state=0, homophily=0.8, **SHAPE)
    folder = root / "ogbn_products"
    if folder.exists():
        raise FileExistsError(f"{folder} is there already: name another folder")
    # Each edge once: ogb adds the other direction.
    upper = data.graph.adjacency.tocoo()
    edges = np.transpose(upper.coords)
    edges = edges[edges[:, 0] < edges[:, 1]]
    order = np.random.default_rng(0).permutation(n_nodes)
    ends = np.cumsum([0, *(int(share * n_nodes) for share in SHARES.values())])
    ends[-1] = n_nodes
    tables = {
        "raw/edge": edges,
        "raw/num-node-list": [[n_nodes]],
        "raw/num-edge-list": [[len(edges)]],
        "raw/node-feat": data.graph.features.round(4),
        "raw/node-label": data.target[:, None],
        **{
            f"split/sales_ranking/{part}": order[begin:end, None]
            for part, begin, end in zip(SHARES, ends, ends[1:], strict=False)
        },
    }
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(table).to_csv(path, header=False, index=False)
    print(f"{folder}: {data.graph}")


if __name__ == "__main__":
    main()
