"""Searches spread over the workers of a local dask cluster, and over GPUs."""

import multiprocessing

import joblib
import numpy as np
import pytest
import torch
from joblib.parallel import ThreadingBackend
from sklearn.model_selection import GridSearchCV

from sktifa import GNNClassifier, LabeledNodeKFold
from sktifa.device import resolve_device
from sktifa.model_selection import BatchedGridSearchCV


@pytest.mark.slow
def test_grid_search_on_a_dask_cluster_of_two_processes(digits):
    distributed = pytest.importorskip("distributed")
    graph, y = digits.graph[::4], digits.target[::4]
    model = GNNClassifier(max_iter=5, device="cpu", random_state=0, dropout=0)
    grid = {"learning_rate": [0.01, 0.03]}
    searches = [
        GridSearchCV(model, grid, cv=LabeledNodeKFold(2), n_jobs=-1),
        BatchedGridSearchCV(
            model, grid, cv=LabeledNodeKFold(2), n_jobs=-1, batch_size=2
        ),
    ]
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config("dask"),
    ):
        assert len(client.scheduler_info()["workers"]) == 2
        spread = [s.fit(graph, y).cv_results_["mean_test_score"] for s in searches]
    alone = GridSearchCV(model, grid, cv=LabeledNodeKFold(2)).fit(graph, y)
    for scores in spread:
        np.testing.assert_allclose(
            scores, alone.cv_results_["mean_test_score"], atol=0.005
        )


class AllAtTheEnd(ThreadingBackend):
    """Hands over no result before all are there, as ray's backend."""

    supports_return_generator = False


def test_backend_that_cannot_stream_results(digits):
    graph, y = digits.graph[::9], digits.target[::9]
    model = GNNClassifier(max_iter=5, device="cpu", random_state=0, dropout=0)
    search = BatchedGridSearchCV(
        model,
        {"learning_rate": [0.01, 0.02, 0.03]},
        cv=LabeledNodeKFold(2),
        batch_size=2,
        n_jobs=2,
        refit=False,
    )
    expected = search.fit(graph, y).cv_results_["mean_test_score"]
    joblib.register_parallel_backend("all-at-the-end", AllAtTheEnd)
    with joblib.parallel_config("all-at-the-end"):
        scores = search.fit(graph, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


class Process:
    def __init__(self, name):
        self.name = name


def pretend(monkeypatch, *, n_gpus, name, worker=True):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: n_gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(multiprocessing, "current_process", lambda: Process(name))
    parent = Process("MainProcess") if worker else None
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LokyProcess-1", "cuda:1"),
        ("LokyProcess-6", "cuda:2"),
        ("Dask Worker process (from Nanny)-4", "cuda:0"),
    ],
)
def test_workers_take_turns_on_several_gpus(monkeypatch, name, expected):
    pretend(monkeypatch, n_gpus=4, name=name)
    assert resolve_device("auto") == torch.device(expected)
    assert resolve_device("cuda:3") == torch.device("cuda:3")
    pretend(monkeypatch, n_gpus=4, name="MainProcess", worker=False)
    assert resolve_device("auto") == torch.device("cuda")


def test_processes_on_one_gpu_are_warned_against(monkeypatch):
    pretend(monkeypatch, n_gpus=1, name="LokyProcess-2")
    for device in ("auto", "cuda"):
        with pytest.warns(UserWarning, match="n_jobs > 1 with one GPU"):
            assert resolve_device(device) == torch.device("cuda")
