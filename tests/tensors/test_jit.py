"""The cache of compiled kernels: there where it can be, never in the way."""

import importlib.util
import sys
from pathlib import Path

import numba
import pytest

SOURCE = """
from sktifa.tensors.jit import njit

@njit()
def _half(x):
    return x / 2

@njit()
def mean(values):
    total = 0.0
    for value in values:
        total += _half(value) * 2
    return total / len(values)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder with a module of kernels, and no cache but the one beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    (tmp_path / "kernels.py").write_text(SOURCE)
    return tmp_path


def load(package: Path):
    """Import the module anew, as another process would."""
    spec = importlib.util.spec_from_file_location("kernels", package / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    # numba imports a cached function's module by name.
    sys.modules["kernels"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def forget():
    yield
    sys.modules.pop("kernels", None)


def test_a_kernel_is_compiled_once_for_all_processes(package):
    assert load(package).mean((1.0, 3.0)) == 2
    kernel = load(package).mean
    assert kernel((1.0, 3.0)) == 2
    assert sum(kernel.stats.cache_hits.values()) == 1


def test_no_folder_can_be_written(package):
    # A file in the folder's place: also root, who may write anywhere, is stopped.
    (package / "__pycache__").touch()
    kernel = load(package).mean
    assert kernel((1.0, 3.0)) == 2
    assert kernel.stats.cache_path is None


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 1, 40])
def test_a_file_that_was_cut_off_is_replaced(package, suffix, left):
    load(package).mean((1.0, 3.0))
    cut = list((package / "__pycache__").glob(f"*.{suffix}"))
    assert len(cut) == 2
    for path in cut:
        path.write_bytes(path.read_bytes()[:left])
    assert load(package).mean((1.0, 3.0)) == 2
    kernel = load(package).mean
    assert kernel((1.0, 3.0)) == 2
    assert sum(kernel.stats.cache_hits.values()) == 1


def test_the_disk_is_full_when_a_kernel_is_saved(package, monkeypatch):
    kernel = load(package).mean

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_data", full)
    assert kernel((1.0, 3.0)) == 2
