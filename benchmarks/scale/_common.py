"""What the benchmarks of scale share."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks._report import print_table, write_report
from sktifa import GNNClassifier, Graph
from sktifa.training.engine import _Steps, make_optimizer, split_generator
from sktifa.training.sources import SampledBatches


def keep(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    seeds: Sequence[int],
    device: torch.device,
    **extra: Any,
) -> None:
    """Print a table and write the report, also to $OUT where that is set."""
    print_table(rows)
    path = write_report(name, rows, seeds=seeds, device=device, **extra)
    if os.environ.get("OUT"):
        shutil.copy(path, os.environ["OUT"])
    print(path)


def wait(device: torch.device) -> None:
    """Wait for a GPU to finish what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(work: Callable[[], Any], device: torch.device, repeat: int = 3) -> float:
    """Return the median of several runs in seconds, after one that warms up."""
    times = []
    for _ in range(repeat + 1):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def peak_memory(device: torch.device) -> float:
    """Return the most memory used so far in GB: on the GPU, else by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def training_steps(
    model: GNNClassifier, graph: Graph, y: np.ndarray, device: torch.device
) -> tuple[nn.Module, SampledBatches, _Steps]:
    """Set up what `fit` would run, to run and measure it epoch by epoch."""
    random_state = np.random.RandomState(0)
    generator, rng = split_generator(random_state, device)
    selected, codes, weight = model._training_nodes(graph, y, None)
    labeled = np.flatnonzero(codes >= 0)
    network = model._network(graph.n_features, 0).to(device)
    sampler = model._make_sampler(selected, device, rng)
    source = model._sampled_source(
        sampler,
        selected,
        selected.nodes[labeled],
        codes[labeled],
        weight[labeled],
        device,
        rng,
        validates=True,
    )
    optimizer = make_optimizer(network, model.learning_rate, model.weight_decay)
    steps = _Steps(network, source, model._objective(), None, optimizer, generator)
    steps.capture_if_possible()
    return network, source, steps


@contextlib.contextmanager
def utilization(device: torch.device) -> Iterator[dict[str, float]]:
    """Measure the share of time in which a kernel runs, as the driver tells it.

    Unlike a profiler this slows nothing; some seconds are needed.
    """
    told: dict[str, float] = {}
    if device.type != "cuda":
        yield told
        return
    uuid = torch.cuda.get_device_properties(device).uuid
    command = "nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits"
    with subprocess.Popen(
        [*command.split(), "-lms", "100", "-i", f"GPU-{uuid}"],
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        yield told
        wait(device)
        reader.terminate()
        output, _ = reader.communicate()
    shares = [float(line) for line in output.split() if line.strip().isdigit()]
    # The first ones are of the time before.
    told["gpu busy by nvidia-smi"] = float(np.mean(shares[15:])) / 100


@contextlib.contextmanager
def gpu_busy(device: torch.device) -> Iterator[dict[str, float]]:
    """Measure the share of time in which the GPU runs a kernel or a copy.

    Intervals on all streams are united; the time is that from the first to the last.
    """
    told: dict[str, float] = {}
    if device.type != "cuda":
        yield told
        return
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CUDA]
    ) as profiler:
        yield told
        wait(device)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    runs = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    )
    busy, reach = 0.0, runs[0][0]
    for begin, end in runs:
        busy += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    told["gpu busy"] = busy / (reach - runs[0][0])
    told["kernels"] = len(runs)
