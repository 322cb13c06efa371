"""Subgraphs a second on 1, 2 and 4 GPUs of one host.

    python -m benchmarks.scale.multi_gpu
    python -m benchmarks.scale.multi_gpu --processes 1 2 --nodes 5000 --roots 500 \\
        --device cpu

starts itself under torchrun for each number of processes. Bars: 1.8 x on two, 3.4 x on
four.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks._report import parse
from benchmarks.scale._common import keep, peak_memory, training, wait
from sktifa import TIFAGCLClassifier, distributed
from sktifa.datasets import make_block_graph
from sktifa.device import resolve_device
from sktifa.sampling import SAINTTIFASampler

CLASSES = 47


def work(options: argparse.Namespace) -> None:
    """Train some epochs in this process, one of several, and tell how fast it went."""
    distributed.join()
    device = distributed.local_device(resolve_device(options.device))
    made = make_block_graph(
        options.nodes,
        CLASSES,
        average_degree=options.degree,
        degree_exponent=4.0,
        n_features=100,
        device=str(device),
        random_state=0,
    )
    if device.type == "cuda":
        torch.cuda.empty_cache()
    rng = np.random.default_rng(0)
    y = np.where(rng.random(options.nodes) < 0.08, made.target, -1)
    model = TIFAGCLClassifier(
        "sage",
        hidden_size=128,
        n_layers=3,
        sampler=SAINTTIFASampler(
            options.roots, walk_length=3, device=str(device), random_state=0
        ),
        device=str(device),
        random_state=0,
    )
    seconds = []
    with training(model, made.graph, y, device) as fit:
        for _ in range(options.epochs + 1):  # the first one warms up
            distributed.agree(None)
            wait(device)
            start = time.perf_counter()
            fit.epoch()
            wait(device)
            distributed.agree(None)
            seconds.append(time.perf_counter() - start)
    n_ranks = distributed.n_ranks()
    n_steps = -(-model.sampler_.n_subgraphs_ // n_ranks)
    if distributed.rank() == 0:
        epoch = float(np.median(seconds[1:]))
        told = {
            "processes": n_ranks,
            "epoch s": epoch,
            "subgraphs a second": n_steps * n_ranks / epoch,
            "peak GB": peak_memory(device),
        }
        Path(options.tell).write_text(json.dumps(told))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--nodes", type=int, default=2_449_029)
    parser.add_argument("--degree", type=float, default=53.0)
    parser.add_argument("--roots", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tell", help=argparse.SUPPRESS)
    options = parse(parser)
    if options.tell:
        work(options)
        return
    there = torch.cuda.device_count()
    rows = []
    for count in options.processes:
        if resolve_device(options.device).type == "cuda" and count > there:
            print(f"{count} GPUs: not run, there are {there}.")
            continue
        with tempfile.TemporaryDirectory() as folder:
            tell = Path(folder) / "told.json"
            command = [
                sys.executable, "-m", "torch.distributed.run", "--standalone",
                f"--nproc_per_node={count}", "-m", "benchmarks.scale.multi_gpu",
                f"--nodes={options.nodes}", f"--degree={options.degree}",
                f"--roots={options.roots}", f"--epochs={options.epochs}",
                f"--device={options.device}", f"--commit={options.commit}",
                f"--tell={tell}",
            ]  # fmt: skip
            threads = str(max(1, (os.cpu_count() or 1) // (2 * count)))
            environment = {**os.environ, "OMP_NUM_THREADS": threads}
            subprocess.run(command, check=True, env=environment)
            rows.append(json.loads(tell.read_text()))
        rows[-1]["speed-up"] = (
            rows[-1]["subgraphs a second"] / rows[0]["subgraphs a second"]
        )
        print(rows[-1], flush=True)
    keep(
        f"scale_multi_{resolve_device(options.device).type}",
        rows,
        seeds=[0],
        device=resolve_device(options.device),
        commit=options.commit,
        gpus_there=there,
        options={k: v for k, v in vars(options).items() if k != "tell"},
        bars={"2": 1.8, "4": 3.4},
    )


if __name__ == "__main__":
    main()
