"""What a bug report should say of the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys

__all__ = ["show_versions"]

_PACKAGES = (
    "sktifa",
    "scikit-learn",
    "torch",
    "torch-geometric",
    "numpy",
    "scipy",
    "numba",
    "joblib",
    "safetensors",
    "pandas",
    "networkx",
    "matplotlib",
)


def show_versions() -> None:
    """Print the versions, threads and devices that a bug report needs.

    Examples
    --------
    >>> import sktifa
    >>> sktifa.show_versions()  # doctest: +ELLIPSIS
    python: 3...
    """
    import torch

    facts = {
        "python": sys.version.replace("\n", " "),
        "system": platform.platform(),
        **{package: _version(package) for package in _PACKAGES},
        "cores": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "CUDA": torch.version.cuda,
    }
    for i in range(torch.cuda.device_count()):
        facts[f"cuda:{i}"] = torch.cuda.get_device_name(i)
    for name, fact in facts.items():
        print(f"{name}: {fact}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
