"""What every benchmark shares: timing, a printed table, and a report as JSON.

A report says on what it was measured: machine, versions, device, commit and seeds.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "numpy",
    "scipy",
    "torch",
    "torch-geometric",
    "scikit-learn",
    "numba",
    "scikit-network",
    "sktifa",
)


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read a benchmark's arguments, the commit that is measured among them."""
    parser.add_argument("--commit", default=commit(), help="of the code, without .git")
    options = parser.parse_args()
    if options.commit is None:
        parser.error("there is no .git here: name the code's commit by --commit")
    return options


def in_new_process(module: str, *arguments: str, **environment: str) -> str:
    """Run a module in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return done.stdout


def median_time(fn: Callable[[], Any], repeat: int = 5, warm_up: int = 1) -> float:
    """Return the median of several calls' wall-clock times, in seconds.

    On a GPU `fn` must wait for its result itself.
    """
    for _ in range(warm_up):
        fn()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows as a Markdown table."""
    if rows:
        print(markdown_table(rows))


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a Markdown table; a column is there if any row has it."""
    header = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[shown(row.get(key, "")) for key in header] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True))
        + " |"
        for line in (header, rule, *cells)
    )


def write_report(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    seeds: Sequence[int],
    device: str | torch.device,
    commit: str,
    **extra: Any,
) -> Path:
    """Write ``results/<name>.json``, also to $OUT where that is set; return its path.

    Parameters
    ----------
    name : str
        Of the benchmark; a second run overwrites the first.
    rows : sequence of mappings
        What was measured.
    seeds : sequence of int
        Of splits and models.
    device : str or torch.device
        Where it ran.
    commit : str
        Of the code that ran.
    **extra
        Whatever else a reader needs: hyper-parameters, the bar to reach.

    Returns
    -------
    Path
    """
    report = {
        "name": name,
        "timestamp": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "torch_threads": torch.get_num_threads(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "device": device_name(torch.device(device)),
        "versions": _versions(),
        "seeds": list(seeds),
        **extra,
        "rows": list(rows),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(report, indent=2, default=_plain) + "\n")
    if os.environ.get("OUT"):
        shutil.copy(path, os.environ["OUT"])
    return path


def report(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    options: argparse.Namespace,
    **extra: Any,
) -> None:
    """Print the table, and write the report by the name of where it ran."""
    print_table(rows)
    where = "cpu" if options.device == "cpu" else "gpu"
    write_report(
        f"{name}_{where}",
        rows,
        seeds=[0],
        device=options.device,
        commit=options.commit,
        **extra,
    )


def shown(value: Any) -> str:
    """Return a value as a reader wants it: three digits of a number."""
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _plain(value: Any) -> Any:
    """Turn what JSON doesn't know, NumPy's numbers and arrays, into what it does."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return str(value)


def commit() -> str | None:
    """Return the commit, with ``+dirty`` where tracked or new files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        head = git("rev-parse", "HEAD")
        # What was just written makes no code differ.
        written = ("benchmarks/results", "docs/figures", "docs/results.md")
        others = [f":(exclude,top){path}" for path in written]
        changes = git("status", "--porcelain", "--", ":/", *others)
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}+dirty" if changes else head


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
