"""Fixtures that all tests share: real graphs, where they are, and devices."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.utils import Bunch

from sktifa import datasets

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device here")
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(skip)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """Each device in turn; CUDA is skipped where there is none."""
    return torch.device(request.param)


@pytest.fixture(params=["cuda", "cuda:1"])
def gpu(request):
    """The current GPU, and another one: tests that take it are marked `cuda`."""
    if request.param == "cuda:1" and torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device here")
    return request.param


@pytest.fixture(scope="session")
def blocks():
    """Three blocks, and by `labelled(n)` their first nodes' classes, n of each."""
    made = datasets.make_block_graph(240, 3, random_state=0)

    def labelled(n):
        y = np.full(240, -1)
        for c in range(3):
            y[np.flatnonzero(made.target == c)[:n]] = c
        return y

    return Bunch(**made, labelled=labelled)


@pytest.fixture(scope="session")
def data_root(tmp_path_factory):
    """Folder of the raw benchmark graphs, a copy that tests may write to."""
    source = Path(os.environ.get("SKTIFA_DATA") or SHARED)
    if not (source / "Planetoid" / "Cora" / "raw").is_dir():
        pytest.skip(f"no raw graphs in {source}; SKTIFA_DATA can name their folder")
    copy = tmp_path_factory.mktemp("data") / "raw_graphs"
    shutil.copytree(source, copy)
    return copy


def _graph_fixture(fetch, name, **options):
    @pytest.fixture(scope="session", name=name.lower())
    def fixture(data_root):
        return fetch(name, root=data_root, download_if_missing=False, **options)

    fixture.__doc__ = f"The Bunch of {name}, whole."
    return fixture


cora = _graph_fixture(datasets.fetch_planetoid, "Cora")
citeseer = _graph_fixture(datasets.fetch_planetoid, "CiteSeer")
pubmed = _graph_fixture(datasets.fetch_planetoid, "PubMed")
photo = _graph_fixture(datasets.fetch_amazon, "Photo")
computers = _graph_fixture(datasets.fetch_amazon, "Computers")
physics = _graph_fixture(datasets.fetch_coauthor, "Physics")
dblp = _graph_fixture(datasets.fetch_citation_full, "DBLP")
minesweeper = _graph_fixture(datasets.fetch_heterophilous, "Minesweeper")
tolokers = _graph_fixture(datasets.fetch_heterophilous, "Tolokers")


@pytest.fixture(scope="session")
def digits():
    """The Bunch of scikit-learn's digits as a graph: always there."""
    return datasets.load_digits_graph()


@contextmanager
def _default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(
    params=[
        lambda: _default_dtype(torch.float64),
        lambda: torch.device("meta"),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        torch.inference_mode,
    ],
    ids=["float64", "meta", "autocast", "inference"],
)
def users_mode(request):
    """A mode of torch that a user may have set, as a context."""
    return request.param()
