"""What the benchmarks of scale share."""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._report import print_table, write_report
from sktifa import GNNClassifier, Graph
from sktifa.classifiers.prepare import prepare
from sktifa.training.engine import Run, computing


def keep(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    seeds: Sequence[int],
    device: torch.device,
    commit: str,
    **extra: Any,
) -> None:
    """Print a table, and write the report."""
    print_table(rows)
    print(write_report(name, rows, seeds=seeds, device=device, commit=commit, **extra))


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


class Training:
    """What `fit` does on a sampler's subgraphs, to run and measure it by the epoch."""

    def __init__(self, run: Run) -> None:
        self._run, self.encoder = run, run.encoder

    def epoch(self) -> float:
        """Make an epoch's updates, and return the loss."""
        self._run.update()
        return self._run.last_loss.item()

    def evaluate(self) -> torch.Tensor:
        """Return every node's logits."""
        (logits,) = self._run.source.evaluate(self.encoder)
        return logits


@contextlib.contextmanager
def training(
    model: GNNClassifier, graph: Graph, y: np.ndarray, device: torch.device
) -> Iterator[Training]:
    """Prepare a fit, its model and its sampler; what is recorded goes in the end."""
    # All labelled nodes train; that some validate lets the whole graph be evaluated.
    problem = prepare(model, graph, y, device, X_val=graph, y_val=y)
    with computing(device):
        run = Run([problem], device)
        run.source = problem.source(device)
        run.set_up()
        run.record()
        try:
            yield Training(run)
        finally:
            run.forget_recordings()
            run.source.close()


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
