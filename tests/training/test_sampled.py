"""Training on sampled subgraphs, transductive and inductive."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy import sparse

from sktifa import GNNClassifier, Graph, TIFAGCLClassifier
from sktifa.datasets import make_block_graph
from sktifa.device import free_memory
from sktifa.sampling import NeighborSampler, SAINTTIFASampler
from sktifa.sampling.prefetch import record_stream
from sktifa.tensors.features import Features

QUICK = {"max_iter": 15, "device": "cpu", "random_state": 0}
SAMPLERS = [
    "saint-rw",
    "saint-tifa",
    "neighbor",
    SAINTTIFASampler(100, walk_length=2, device="cpu", normalize=True),
]


@pytest.fixture(scope="module")
def made():
    made = make_block_graph(
        900, 3, average_degree=8, class_separation=1.0, random_state=0
    )
    rng = np.random.default_rng(0)
    order = rng.permutation(900)
    return made.graph, made.target, order[:90], order[90:240], order[240:]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("model", [GNNClassifier, TIFAGCLClassifier])
def test_learns_on_subgraphs(model, sampler, made):
    graph, y, train, val, test = made
    fitted = model("sage", sampler=sampler, **{**QUICK, "max_iter": 20}).fit(
        graph[train], y[train], X_val=graph[val], y_val=y[val]
    )
    chance = np.bincount(y[test]).max() / len(test)
    assert fitted.score(graph[test], y[test]) > chance + 0.15
    assert len(fitted.validation_scores_) == fitted.n_iter_ + 1
    again = model("sage", sampler=sampler, **{**QUICK, "max_iter": 20}).fit(
        graph[train], y[train], X_val=graph[val], y_val=y[val]
    )
    np.testing.assert_array_equal(
        fitted.predict_proba(graph), again.predict_proba(graph)
    )


@pytest.mark.cuda
@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("sampler", ["saint-tifa", "neighbor"])
def test_learns_on_subgraphs_on_a_gpu(sampler, resident, made, monkeypatch, gpu):
    graph, y, train, val, test = made
    share = 0.3 if resident else 0.0  # else features stay in host memory
    monkeypatch.setattr("sktifa.training.sources._RESIDENT_SHARE", share)
    model = TIFAGCLClassifier(
        "sage", sampler=sampler, max_iter=20, device=gpu, random_state=0
    ).fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
    chance = np.bincount(y[test]).max() / len(test)
    assert model.score(graph[test], y[test]) > chance + 0.15


def test_a_pickled_model_does_not_hold_the_graph(made):
    graph, y, train, _, _ = made
    model = GNNClassifier(sampler="saint-rw", **{**QUICK, "max_iter": 1})
    stored = pickle.dumps(model.fit(graph[train], y[train]))
    assert len(stored) < graph.features.nbytes / 2
    np.testing.assert_array_equal(
        pickle.loads(stored).predict(graph), model.predict(graph)
    )


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
@pytest.mark.parametrize("sampler", [None, "saint-tifa"])
def test_plain_arrays(setting, sampler, made):
    graph, y, train, _, test = made
    labels = y.copy()
    labels[test] = -1
    model = TIFAGCLClassifier(setting=setting, sampler=sampler, **QUICK)
    model.fit(graph.features, labels)
    assert model.gain_.shape == (900,)
    assert model.predict(graph.features[test]).shape == test.shape


@pytest.mark.parametrize("encoder", ["gcn", "sage", "gat"])
def test_a_subgraph_that_is_the_whole_graph_is_a_full_batch(encoder, made):
    graph, y, train, val, _ = made
    options = {**QUICK, "dropout": 0.0, "max_iter": 5}
    fits = [
        GNNClassifier(encoder, sampler=sampler, **options).fit(
            graph[train], y[train], X_val=graph[val], y_val=y[val]
        )
        for sampler in (None, SAINTTIFASampler(900, walk_length=0, sharpness=0))
    ]
    np.testing.assert_allclose(fits[0].loss_curve_, fits[1].loss_curve_, rtol=1e-4)
    np.testing.assert_allclose(
        fits[0].predict_proba(graph), fits[1].predict_proba(graph), atol=1e-3
    )


def test_weights_come_from_the_whole_graph(made):
    graph, y, train, _, _ = made
    options = {**QUICK, "max_iter": 1, "early_stopping": False}
    full = TIFAGCLClassifier(**options).fit(graph[train], y[train])
    sampled = TIFAGCLClassifier(
        sampler=SAINTTIFASampler(50, device="cpu"), **options
    ).fit(graph[train], y[train])
    np.testing.assert_allclose(sampled.gain_, full.gain_, atol=1e-4)
    rank_error = np.abs(sampled.loss_weights_ - full.loss_weights_)
    assert np.median(rank_error) < 1e-3


@pytest.mark.parametrize("sampler", [None, *SAMPLERS], ids=str)
@pytest.mark.parametrize("model", [GNNClassifier, TIFAGCLClassifier])
@pytest.mark.parametrize("validates", ["given", "held out"])
def test_inductive_training_never_sees_other_nodes(model, sampler, validates, made):
    graph, y, train, val, test = made
    # Unlabelled nodes may be training nodes, too.
    options = {**QUICK, "max_iter": 3}
    chosen, targets = np.r_[train, test[:300]], y.copy()
    targets[test] = -1
    given = {"X_val": graph[val], "y_val": y[val]} if validates == "given" else {}
    hidden = np.setdiff1d(np.arange(900), np.r_[chosen, val if given else []])
    features, adjacency = graph.features.copy(), graph.adjacency.tolil()
    features[hidden] = 1e6
    # Hidden nodes are tied to everything, training nodes included.
    adjacency[hidden[:5], :] = 1
    adjacency[:, hidden[:5]] = 1
    adjacency.setdiag(0)
    poisoned = Graph(adjacency.tocsr(), features)
    fits = []
    for seen in (graph, poisoned):
        if given:
            given["X_val"] = seen[val]
        fits.append(
            model("sage", sampler=sampler, setting="inductive", **options).fit(
                seen[chosen], targets[chosen], **given
            )
        )
    assert fits[0].loss_curve_ == fits[1].loss_curve_
    assert fits[0].validation_losses_ == fits[1].validation_losses_
    np.testing.assert_array_equal(
        fits[0].predict_proba(graph), fits[1].predict_proba(graph)
    )
    if model is TIFAGCLClassifier:
        np.testing.assert_array_equal(fits[0].gain_, fits[1].gain_)
        assert np.isnan(fits[0].gain_[hidden]).all()
        assert np.isfinite(fits[0].gain_[train]).sum() >= 0.75 * len(train)
    # The test can fail: transductive training does see them.
    if sampler is None and given:
        other = model("sage", **options).fit(poisoned[chosen], targets[chosen])
        assert not np.allclose(other.loss_curve_, fits[0].loss_curve_)


def test_poisoned_validation_nodes_change_no_update(made):
    graph, y, train, val, _ = made
    features = graph.features.copy()
    features[val] = 1e6
    fits = [
        GNNClassifier(setting="inductive", **QUICK).fit(
            seen[train], y[train], X_val=seen[val], y_val=y[val]
        )
        for seen in (graph, graph.with_features(features)[:])
    ]
    assert fits[0].loss_curve_ == fits[1].loss_curve_
    assert fits[0].validation_losses_ != fits[1].validation_losses_


def test_the_setting_is_told(made, capsys):
    graph, y, train, _, _ = made
    model = GNNClassifier(
        setting="inductive", verbose=1, **{**QUICK, "max_iter": 2}
    ).fit(graph[train], y[train])
    assert "inductive, epoch 2" in capsys.readouterr().out
    assert "setting='inductive'" in repr(model)
    with pytest.raises(ValueError, match="setting"):
        GNNClassifier(setting="semi").fit(graph, y)


def test_auto_is_a_full_batch_where_it_fits(made, monkeypatch):
    graph, y, train, _, _ = made
    options = {**QUICK, "max_iter": 2, "sampler": "auto"}
    assert not hasattr(GNNClassifier(**options).fit(graph[train], y[train]), "sampler_")
    monkeypatch.setattr("sktifa.classifiers.prepare.free_memory", lambda device: 1e5)
    sampled = GNNClassifier(**options).fit(graph[train], y[train])
    assert sampled.sampler_.sharpness > 0
    assert free_memory(torch.device("cpu")) > 1e6


def test_prediction_memory_changes_nothing(made):
    graph, y, train, _, _ = made
    model = GNNClassifier("gat", **QUICK).fit(graph[train], y[train])
    whole, hidden = model.predict_proba(graph), model.embed(graph[train])
    model.set_params(prediction_memory=200_000)
    np.testing.assert_allclose(model.predict_proba(graph), whole, atol=1e-5)
    np.testing.assert_allclose(model.embed(graph[train]), hidden, atol=1e-5)


# Reads a graph whose features (400 MB) and edges are memory maps, with less memory
# to spare than the features take: the system counts what is private to the process,
# and file pages are not.
MEMORY_MAPPED = """
import resource, sys
import numpy as np
from sktifa import TIFAGCLClassifier, GNNClassifier
from sktifa.graph import Graph
from sktifa.sampling import SAINTTIFASampler
from scipy import sparse

folder, n, width = sys.argv[1], 400_000, 256
arrays = {name: np.load(f"{folder}/{name}.npy", mmap_mode="r")
          for name in ("features", "indptr", "indices", "data")}
adjacency = sparse.csr_array(
    (arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, n))
graph = Graph.from_clean(adjacency, arrays["features"])
def fit(graph, n, setting="transductive", nodes=400):
    model = TIFAGCLClassifier("sage", max_iter=1, setting=setting,
        hidden_size=8, device="cpu",
        sampler=SAINTTIFASampler(n, walk_length=1, device="cpu"),
        early_stopping=False, random_state=0, prediction_memory=50_000_000)
    labels = np.where(np.arange(nodes) < 400, np.arange(nodes) % 2, -1)
    return model.fit(graph[np.arange(nodes)], labels)
small = Graph.from_clean(adjacency[:1000][:, :1000], np.ones((1000, width), "f4"))
fit(small, 500).predict(small)   # compiled before the limit
status = open("/proc/self/status").read()
used = int(status.split("VmData:")[1].split()[0])
limit = used * 1024 + 250_000_000
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    np.array(arrays["features"])
except MemoryError:
    print("the limit holds")
model = fit(graph, 4_000)
print(model.predict(graph).shape)
model = fit(graph, 4_000, "inductive", n - 1000)
print(model.n_iter_)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA")
def test_memory_maps_are_never_loaded_whole(tmp_path):
    n, width = 400_000, 256
    features = np.lib.format.open_memmap(
        tmp_path / "features.npy", "w+", np.float32, (n, width)
    )
    block = np.random.default_rng(0).normal(size=(1000, width)).astype(np.float32)
    for begin in range(0, n, 1000):
        features[begin : begin + 1000] = block
    features.flush()
    # A ring.
    nodes = np.arange(n)
    ends = np.sort(np.stack([(nodes - 1) % n, (nodes + 1) % n], 1), 1).astype(np.int32)
    np.save(tmp_path / "indices.npy", ends.ravel())
    np.save(tmp_path / "indptr.npy", np.arange(0, 2 * n + 1, 2, dtype=np.int32))
    np.save(tmp_path / "data.npy", np.ones(2 * n, dtype=np.float32))
    # glibc keeps what is freed below this, and learns to keep more: what is counted
    # would depend on its mood.
    allocator = {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_MAPPED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **allocator},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:3] == ["the limit holds", f"({n},)", "1"]


def test_neighbor_sampler_as_user_object(made):
    graph, y, train, _, _ = made
    sampler = NeighborSampler((5, 3), batch_size=32, seeds="all")
    model = GNNClassifier("sage", sampler=sampler, **QUICK).fit(graph[train], y[train])
    assert model.sampler_ is not sampler and not hasattr(sampler, "graph_")
    assert model.sampler_.n_subgraphs_ == 29


@pytest.mark.parametrize("sampler", ["saint-rw", "saint-tifa"])
@pytest.mark.parametrize("model", [GNNClassifier, TIFAGCLClassifier])
def test_sampled_training_is_as_good_as_the_full_batch(model, sampler, cora):
    graph, y = cora.graph, cora.target
    train, test = np.flatnonzero(cora.train_mask), np.flatnonzero(cora.test_mask)
    walks = SAINTTIFASampler(
        500, sharpness=0.25 * (sampler == "saint-tifa"), device="cpu", random_state=0
    )
    scores = [
        model(
            "sage",
            feature_norm="l1",
            sampler=sampled,
            early_stopping=False,
            # Six subgraphs an epoch; the full batch makes one update.
            max_iter=60 if sampled is None else 10,
            device="cpu",
            random_state=0,
        )
        .fit(graph[train], y[train])
        .score(graph[test], y[test])
        for sampled in (None, walks)
    ]
    assert scores[0] > 0.7
    assert scores[1] > scores[0] - 0.05, scores


@pytest.mark.cuda
def test_every_tensor_of_sparse_features_is_told_of_the_stream_that_reads_it(
    monkeypatch,
):
    cuda = torch.device("cuda")
    features = Features.from_matrix(sparse.random_array((50, 9), rng=0).tocsr(), cuda)
    told = set()
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda part, stream: told.add(part.data_ptr())
    )
    record_stream(features, torch.cuda.Stream())
    pattern = features.pattern
    parts = [features.values, pattern.crow, pattern.col, *pattern.transposed]
    assert {part.data_ptr() for part in parts} <= told
