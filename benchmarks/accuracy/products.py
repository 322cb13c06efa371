"""ogbn-products, for who has the data: the official split, inductive, SAINT-TIFA.

    python -m benchmarks.accuracy.products --root FOLDER --device cuda
    python -m benchmarks.accuracy.products --root FOLDER --minutes 0    # expect alone

FOLDER holds `ogbn_products` as ogb leaves it, with `raw`, `split` and maybe `mapping`
inside. What time and memory to expect is told before anything is trained. Training sees
the training nodes and the edges between them; prediction is on the whole graph. The
learning rate is that chosen on Computers for Table 2; dropout and L2 are not, as they
suit 20 labels a class. A checkpoint keeps each model, so that a run that was
interrupted goes on when it is called again; options of `python -m benchmarks.accuracy`,
such as `--minutes`, are taken as well.

To try it without the data, on a block graph of its shape:

    python -m benchmarks.accuracy.products --stand-in FOLDER --nodes 20000
    python -m benchmarks.accuracy.products --root FOLDER --results ELSEWHERE --seeds 1
"""

from __future__ import annotations

import argparse
import json
import os
import resource
from collections.abc import Sequence
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
from sktifa.exceptions import DatasetError

__all__ = ["expectation", "write_stand_in"]

# The shape of ogbn-products, and its split by sales rank.
SHAPE = {"n_classes": 47, "average_degree": 53.0, "n_features": 100}
SHARES = {"train": 0.08, "valid": 0.02, "test": 0.9}
# The paper's encoders and sampler, with and without contrast.
SHOWN = [name for name in PRODUCTS_2 if "SAINT-TIFA" in name]
SEEDS = 10
# A GAT against a GraphSAGE, by results/inductive_sage_gat.json: 2 to 8.
_GAT_COSTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, metavar="FOLDER", help="with the data; or SKTIFA_DATA"
    )
    parser.add_argument(
        "--stand-in", type=Path, metavar="FOLDER", help="write a block graph there"
    )
    parser.add_argument(
        "--nodes", type=int, default=20_000, help="of that (default: %(default)s)"
    )
    parser.add_argument(
        "--methods",
        nargs="*",
        choices=PRODUCTS_2,
        default=SHOWN,
        metavar="METHOD",
        help=f"default: {'; '.join(SHOWN)}. Others: "
        + "; ".join(name for name in PRODUCTS_2 if name not in SHOWN),
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=SEEDS,
        help="models of each method (default: %(default)s)",
    )
    options, others = parser.parse_known_args()
    if options.stand_in:
        try:
            write_stand_in(options.stand_in, options.nodes)
        except FileExistsError as error:
            parser.error(str(error))
        return
    if options.root:
        os.environ["SKTIFA_DATA"] = str(options.root)
    try:
        data = graph_of("products")
    except (DatasetError, ImportError) as error:
        parser.error(str(error))
    print(expectation(data, options.methods, options.seeds), flush=True)
    command.main(
        ["table2", "--graphs", "products", "--methods", *options.methods]
        + ["--splits", "1", "--seeds", str(options.seeds), *others]
    )


def expectation(data: Bunch, methods: Sequence[str], n_seeds: int) -> str:
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
    # A smaller subgraph takes no less: its kernels wait to be launched.
    epoch = steps * of[f"{n_roots:,} roots: a step"] / 1e3 + share * predict
    model = share * around + estimator.max_iter * epoch
    numbers = {"GraphSAGE and its like": 0, "GAT": 0}
    for method in methods:
        kind = "GAT" if "GAT" in method else "GraphSAGE and its like"
        numbers[kind] += n_seeds
    costs = {"GraphSAGE and its like": model, "GAT": _GAT_COSTS * model}
    times = [
        f"{number} model{'s' * (number != 1)} of {kind} at most "
        + _seconds(number * costs[kind])
        for kind, number in numbers.items()
        if number
    ]
    on_gpu = max(share * of["peak memory"], 0.1)
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{data.graph}\n"
        f"Training sees {n_seen:,} nodes, by subgraphs of {n_roots:,} roots, {steps} "
        f"an epoch, for at most {estimator.max_iter} epochs.\n"
        f"Time, by what one {report['device']} took: {'; '.join(times)}. A CPU takes a "
        "hundred times that.\n"
        f"Memory: {on_gpu:.1f} GB of the GPU's, for GAT up to half of what is free; "
        f"reading the data took {host:.1f} GB of the host's."
    )


def _seconds(seconds: float) -> str:
    """Round a time to what is known of it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


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
