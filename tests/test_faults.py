"""Things that go wrong around a fit: each is brought about, none is made worse."""

import errno
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from sktifa import (
    BatchedGridSearchCV,
    GNNClassifier,
    Graph,
    TIFAGCLClassifier,
    make_block_graph,
)
from sktifa.exceptions import NotEnoughMemoryError, ParameterError, StorageError

BOTH = pytest.mark.parametrize("classifier", [GNNClassifier, TIFAGCLClassifier])
FAST = {"max_iter": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def data():
    return make_block_graph(60, 3, random_state=0)


# ------------------------------------------------------------ what is no number


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("max_iter", [1, 5])
@BOTH
def test_a_model_whose_loss_is_finite_is_kept(
    data, classifier, max_iter, early_stopping, recwarn
):
    model = classifier(
        learning_rate=1e20,
        max_iter=max_iter,
        early_stopping=early_stopping,
        random_state=0,
        device="cpu",
    ).fit(data.graph, data.target)
    assert np.isfinite(model.predict_proba(data.graph)).all()
    assert model.best_iter_ == 0
    said = [str(w.message) for w in recwarn if w.category is ConvergenceWarning]
    if max_iter == 5 or not early_stopping:  # else validation chose the first model
        (message,) = said
        assert "epoch 0 is kept" in message
        assert "lower learning_rate" in message
        assert "memory" not in message


@pytest.mark.filterwarnings("ignore:The loss became")
def test_a_search_does_not_choose_what_diverges(data):
    search = BatchedGridSearchCV(
        GNNClassifier(**FAST), {"learning_rate": [1e300, 0.01]}, cv=2
    ).fit(data.graph, data.target)
    assert search.best_params_ == {"learning_rate": 0.01}


@pytest.mark.parametrize("size", [1.7e308, 5e-324])
@BOTH
def test_only_ratios_of_weights_count(data, classifier, size):
    graph, y = data.graph, data.target
    plain = classifier(**FAST).fit(graph, y)
    weight = np.full(60, size)
    weighted = classifier(**FAST).fit(graph, y, sample_weight=weight)
    by_class = classifier(class_weight=dict.fromkeys(range(3), size), **FAST)
    by_class.fit(graph, y)
    assert weighted.loss_curve_ == by_class.loss_curve_ == plain.loss_curve_
    assert plain.score(graph, y, sample_weight=weight) == plain.score(graph, y)


@pytest.mark.parametrize(
    ("class_weight", "sample_weight"),
    [
        ({0: 0, 1: 0, 2: 0}, None),
        (None, np.zeros(60)),
        ({0: 0, 1: 0}, np.r_[np.ones(40), np.zeros(20)]),
    ],
)
def test_weights_that_leave_nothing_are_refused(data, class_weight, sample_weight):
    order = np.argsort(data.target, kind="stable")
    model = GNNClassifier(class_weight=class_weight, **FAST)
    with pytest.raises(ValueError, match="weight"):
        model.fit(data.graph[order], data.target[order], sample_weight=sample_weight)


# ------------------------------------------------------- threads, torch's modes


def _fitted_proba(data, number):
    """Fit one of eight unlike models; GAT draws from torch's global generator."""
    classifier = (GNNClassifier, TIFAGCLClassifier)[number % 2]
    encoder = ("gcn", "sage", "gat", "appnp")[number // 2]
    model = classifier(encoder, early_stopping=True, **{**FAST, "random_state": number})
    part = np.arange(0, 60, 2)
    model.fit(data.graph[part], data.target[part])
    return model.predict_proba(data.graph)


@pytest.fixture(scope="module")
def alone(data):
    return [_fitted_proba(data, number) for number in range(8)]


def test_eight_threads_fit_what_one_alone_does(data, alone):
    before = (
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            together = list(pool.map(lambda k: _fitted_proba(data, k), range(8)))
            np.testing.assert_array_equal(together, alone)
    after = (
        torch.get_rng_state().tolist(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
    )
    assert after == before


def test_whatever_mode_the_user_has_set(users_mode, data, alone):
    with users_mode:
        before = torch.get_default_dtype()
        with ThreadPoolExecutor(2) as pool:  # the default dtype is all threads'
            others = list(pool.map(lambda k: _fitted_proba(data, k), range(4)))
        here = [_fitted_proba(data, number) for number in range(4)]
        assert torch.get_default_dtype() == before
    np.testing.assert_array_equal(here, alone[:4])
    np.testing.assert_array_equal(others, alone[:4])


def test_no_grad_around_a_fit(data, alone):
    with torch.no_grad():
        np.testing.assert_array_equal(_fitted_proba(data, 1), alone[1])
        assert not torch.is_grad_enabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_predicts():
    """The threads of our kernels are not in the child: it starts its own."""
    code = """
import os
import signal

from sktifa import GNNClassifier, make_block_graph

data = make_block_graph(3000, 3, random_state=0)
model = GNNClassifier(max_iter=1, random_state=0, device="cpu")
before = model.fit(data.graph, data.target).predict(data.graph)
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(int((model.predict(data.graph) != before).any()))
assert os.waitpid(child, 0)[1] == 0
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# ----------------------------------------------------------------------- memory


def _needs_memory_after(n_steps):
    class Grows(torch.nn.Linear):
        done = 0

        def forward(self, x, edge_index):
            if self.training:
                if self.done == n_steps:
                    raise RuntimeError(
                        "[enforce fail at alloc_cpu.cpp:114] DefaultCPUAllocator: "
                        "can't allocate memory: you tried to allocate 9 bytes."
                    )
                self.done += 1
            return super().forward(x)

    return Grows


def test_out_of_memory_keeps_the_best_model(data):
    model = GNNClassifier(_needs_memory_after(2), **FAST)
    with pytest.warns(ConvergenceWarning, match="Out of memory after 2 epochs"):
        model.fit(data.graph, data.target)
    assert model.n_iter_ == len(model.loss_curve_) == 2
    assert np.isfinite(model.predict_proba(data.graph)).all()


@pytest.mark.parametrize(
    "parameters", [{"encoder": _needs_memory_after(0)}, {"hidden_size": 10**12}]
)
def test_what_never_fits_in_memory_says_its_size(data, parameters):
    with pytest.raises(NotEnoughMemoryError, match="60 nodes × 16 features"):
        GNNClassifier(**parameters, **FAST).fit(data.graph, data.target)


# ------------------------------------------------------------------------- disk


def _search(path):
    return BatchedGridSearchCV(
        GNNClassifier(**FAST), {"hidden_size": [4, 8]}, cv=2, checkpoint=path
    )


def test_a_checkpoint_that_cannot_be_written_is_noticed_before_training(
    data, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(
        "sktifa.training.engine.train", lambda *args, **options: pytest.fail("trained")
    )
    with pytest.raises(StorageError, match="search.jsonl"):
        _search(tmp_path / "file" / "search.jsonl").fit(data.graph, data.target)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_checkpoint_is_a_file(data):
    with pytest.raises(ParameterError, match="'/dev/full' is a folder or device"):
        _search("/dev/full").fit(data.graph, data.target)


def test_a_full_disk_names_the_checkpoint_and_leaves_it_whole(
    data, tmp_path, monkeypatch
):
    path = tmp_path / "search.jsonl"
    of_path = type(path).open
    n_written = 0

    def opened(self, mode="r", **options):
        nonlocal n_written
        if self == path and mode == "a":
            n_written += 1
            if n_written > 2:  # the first writes nothing
                raise OSError(errno.ENOSPC, "No space left on device")
        return of_path(self, mode, **options)

    monkeypatch.setattr(type(path), "open", opened)
    with pytest.raises(StorageError, match="search.jsonl.*No space left on device"):
        _search(path).fit(data.graph, data.target)
    monkeypatch.undo()
    assert len(path.read_text().splitlines()) == 1
    _search(path).fit(data.graph, data.target)
    assert len(path.read_text().splitlines()) == 4


def test_a_full_disk_names_the_cache(data, tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = tmp_path / "cache"
    model = TIFAGCLClassifier(memory=str(folder), **FAST)
    monkeypatch.setattr(os, "makedirs", full)
    with pytest.raises(StorageError, match="cache.*No space left on device"):
        model.fit(data.graph, data.target)


def test_a_result_that_cannot_be_cached_is_used_all_the_same(
    data, tmp_path, monkeypatch
):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    plain = TIFAGCLClassifier(**FAST).fit(data.graph, data.target)
    monkeypatch.setattr(joblib.numpy_pickle, "dump", full)
    with pytest.warns(Warning, match="Unable to cache to disk"):
        model = TIFAGCLClassifier(memory=str(tmp_path), **FAST).fit(
            data.graph, data.target
        )
    assert model.loss_curve_ == plain.loss_curve_


def test_a_full_temporary_disk_is_told_before_anything_is_written(
    tmp_path, monkeypatch
):
    file = tmp_path / "features.npy"
    np.save(file, np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    made = make_block_graph(60, 3, random_state=0)
    graph = Graph.from_clean(made.graph.adjacency, np.load(file, mmap_mode="r"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def full(handle, offset, length):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match=r"960 bytes .*scratch.*set TMPDIR"):
        graph.subgraph(np.arange(30))
    assert not list(scratch.iterdir())
