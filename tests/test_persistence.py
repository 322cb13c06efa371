"""Models in files: what is written comes back, and what is opened runs nothing."""

import errno
import json
import os
import pickle
import warnings
from pathlib import Path

import joblib
import numpy as np
import pytest

from sktifa import GNNClassifier, Graph, TIFAGCLClassifier, make_block_graph
from sktifa.exceptions import GraphError, GraphWarning, ParameterError, StorageError
from sktifa.persistence import load, save

FILES = Path(__file__).parent / "files"
FAST = {"max_iter": 3, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def data():
    return make_block_graph(60, 3, random_state=0)


@pytest.fixture(
    params=[
        lambda: GNNClassifier(class_weight={"0": 2, "1": 1}, **FAST),
        lambda: GNNClassifier("gat", feature_norm="standard", **FAST),
        lambda: TIFAGCLClassifier(setting="inductive", **FAST),
    ],
    ids=["weighted", "gat", "inductive"],
)
def model(request, data):
    part = np.arange(0, 60, 2)
    return request.param().fit(data.graph[part], data.target[part].astype(str))


def _joblib_round_trip(model, path):
    joblib.dump(model, path)
    return joblib.load(path)


def _own_round_trip(model, path):
    save(model, path)
    return load(path)


@pytest.mark.parametrize("round_trip", [_joblib_round_trip, _own_round_trip])
def test_what_is_written_comes_back(model, data, tmp_path, round_trip):
    again = round_trip(model, tmp_path / "model")
    graph = data.graph
    np.testing.assert_array_equal(
        again.predict_proba(graph), model.predict_proba(graph)
    )
    np.testing.assert_array_equal(again.predict(graph), model.predict(graph))
    assert again.get_params() == model.get_params()
    assert again.loss_curve_ == model.loss_curve_
    assert again.fitted_on_ == model.fitted_on_
    assert again.classes_.dtype.kind == model.classes_.dtype.kind
    assert vars(again).keys() == vars(model).keys()
    assert os.listdir(tmp_path) == ["model"]
    model.set_output(transform="polars")
    again = round_trip(model, tmp_path / "model")
    assert again.predict(graph).columns == ["node", "prediction"]


@pytest.mark.parametrize(
    ("file", "n_nodes"),
    [("model_0_1_0.npz", None), ("model_0_1_0.safetensors", 60)],
)
def test_models_of_0_1_0_open(file, n_nodes, data):
    model = load(FILES / file)
    assert model.classes_.tolist() == ["a", "b", "c"]
    expected = np.load(FILES / f"{file}_proba.npy")
    np.testing.assert_allclose(model.predict_proba(data.graph), expected, rtol=1e-4)
    assert (model.fitted_on_ or {}).get("n_nodes") == n_nodes


@pytest.mark.parametrize("round_trip", [lambda model, _: model, _own_round_trip])
def test_a_pickle_from_before_models_knew_their_graph_opens(round_trip, data, tmp_path):
    file = FILES / "model_before_fitted_on.joblib"
    model = round_trip(joblib.load(file), tmp_path / "model")
    assert model.fitted_on_ is None
    assert model.seen_.nodes.tolist() == list(range(0, 60, 2))
    expected = np.load(FILES / f"{file.name}_proba.npy")
    np.testing.assert_allclose(model.predict_proba(data.graph), expected, rtol=1e-4)


def test_any_reader_of_safetensors_reads_what_is_in_the_file(model, data, tmp_path):
    path = tmp_path / "model.safetensors"
    save(model, path)
    content = path.read_bytes()
    # The format's own words: eight bytes of length, then JSON.
    length = int.from_bytes(content[:8], "little")
    tensors = json.loads(content[8 : 8 + length])
    told = json.loads(tensors.pop("__metadata__")["sktifa"])
    assert told["texts"]["classes_"] == ["0", "1", "2"]
    assert told["attributes"]["fitted_on_"] == {
        "n_nodes": 60,
        "n_edges": data.graph.n_edges,
        "n_features": data.graph.n_features,
        "fingerprint": data.graph.fingerprint,
    }
    state = model.__getstate__()["_network_state"]
    assert {f"network/{name}" for name in state} <= tensors.keys()
    for name, value in state.items():
        begin, end = tensors[f"network/{name}"]["data_offsets"]
        assert content[8 + length :][begin:end] == value.tobytes()


def test_a_model_without_features_tells_of_other_nodes(data, tmp_path):
    graph = Graph(data.graph.adjacency)
    save(GNNClassifier(**FAST).fit(graph, data.target), tmp_path / "model")
    model = load(tmp_path / "model")
    again = Graph(data.graph.adjacency.copy())
    assert again.fingerprint == model.fitted_on_["fingerprint"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(again)
    other = Graph(data.graph.adjacency[::-1, ::-1])
    with pytest.warns(GraphWarning, match="node 0 of this graph") as told:
        model.predict(other[:5])
    assert told[0].filename == __file__
    with pytest.raises(GraphError, match="knows the nodes of fit alone"):
        model.predict(graph.subgraph(np.arange(9)).with_features(None))
    with_features = GNNClassifier(**FAST).fit(data.graph, data.target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_features.predict(data.graph.subgraph(np.arange(9)))


def test_another_format_says_which_version_reads_it(data, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    monkeypatch.setattr("sktifa.persistence._FORMAT", 99)
    save(GNNClassifier(**FAST).fit(data.graph, data.target), path)
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"written by sktifa 0.*format 99"):
        load(path)


def test_a_full_disk_leaves_the_old_file_whole(data, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    model = GNNClassifier(**FAST).fit(data.graph, data.target)
    save(model, path)
    before = path.read_bytes()

    def full(part, content):
        with part.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="model.safetensors.*No space left"):
        save(model, path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.safetensors"]


class _Planted:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_planted_command_does_not_run(tmp_path):
    planted, path = tmp_path / "it_ran", tmp_path / "model"
    path.write_bytes(pickle.dumps(_Planted(planted)))
    with pytest.raises(StorageError, match="not a whole file"):
        load(path)
    with path.open("wb") as file:
        np.savez(file, header=np.array([_Planted(planted)], dtype=object))
    with pytest.raises(StorageError, match="not a whole file"):
        load(path)
    assert not planted.exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"<html>"])
def test_what_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(StorageError, match="model' is not a whole file"):
        load(path)


def _own(n_features, n_classes):
    import torch

    class Own(torch.nn.Linear):
        def forward(self, x, edge_index):
            return super().forward(x)

    return Own(n_features, n_classes)


def test_what_cannot_be_saved_is_said(data, tmp_path):
    graph, y = data.graph, data.target
    for model, word in [
        (GNNClassifier(), "not fitted"),
        (GNNClassifier(_own, **FAST).fit(graph, y), "your own code"),
        (GNNClassifier(**FAST).fit(graph.features, y), "keeps its rows"),
    ]:
        with pytest.raises(ParameterError, match=word):
            save(model, tmp_path / "model")
    assert not os.listdir(tmp_path)


def test_skops_trusts_our_classes_alone(model, data):
    skops = pytest.importorskip("skops.io")
    written = skops.dumps(model)
    untrusted = skops.get_untrusted_types(data=written)
    assert untrusted and all(name.startswith("sktifa.") for name in untrusted)
    again = skops.loads(written, trusted=untrusted)
    graph = data.graph
    np.testing.assert_array_equal(again.predict(graph), model.predict(graph))


def test_skops_tells_of_what_is_planted(data, tmp_path):
    skops = pytest.importorskip("skops.io")
    model = GNNClassifier(**FAST).fit(data.graph, data.target)
    clean = set(skops.get_untrusted_types(data=skops.dumps(model)))
    model.planted_ = _Planted(tmp_path / "it_ran")
    written = skops.dumps(model)
    assert set(skops.get_untrusted_types(data=written)) > clean
    with pytest.raises(TypeError, match="[Uu]ntrusted"):
        skops.loads(written, trusted=sorted(clean))
    assert not (tmp_path / "it_ran").exists()


def test_a_graph_too_large_to_hash_in_a_moment_is_told_by_its_size(
    monkeypatch, tmp_path
):
    data = make_block_graph(40, 2, n_features=3, random_state=0)
    monkeypatch.setattr("sktifa.classifiers.prepare._MOST_TO_HASH", 10)
    model = GNNClassifier("mlp", max_iter=2, random_state=0).fit(
        data.graph, data.target
    )
    assert model.fitted_on_["fingerprint"] is None
    assert model.fitted_on_["n_nodes"] == 40
    save(model, tmp_path / "model.sktifa")
    assert load(tmp_path / "model.sktifa").fitted_on_ == model.fitted_on_
