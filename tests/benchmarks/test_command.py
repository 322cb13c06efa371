"""The commands, end to end on graphs made for the test."""

import json

import numpy as np
import pytest
import yaml
from sklearn.base import clone

from benchmarks import data as benchmark_data
from benchmarks.accuracy import __main__ as command
from benchmarks.accuracy import lab, methods, products
from benchmarks.accuracy.protocol import Method
from sktifa import GNNClassifier, fetch_ogbn, make_block_graph
from sktifa.exceptions import DatasetError

FEW = ["--candidates", "2", "--tuning-splits", "1", "--final-splits", "2"]


@pytest.fixture(autouse=True)
def nothing_is_cached():
    for cached in (lab.graph_of, lab.split_of):
        cached.cache_clear()
    yield
    for cached in (lab.graph_of, lab.split_of):
        cached.cache_clear()


@pytest.fixture
def small(monkeypatch):
    """Cora and CiteSeer are small here, and GCN is the only quick method."""
    for seed, name in enumerate(("Cora", "CiteSeer")):
        made = make_block_graph(300, 3, random_state=seed)
        monkeypatch.setitem(benchmark_data.LOADERS, name, lambda made=made: made)
    quick = Method(
        GNNClassifier(max_iter=3, hidden_size=4), {"learning_rate": [0.01, 0.05]}
    )
    monkeypatch.setitem(methods.METHODS, "GCN", quick)


def table1(results, *options):
    command.main(
        ["table1", "--methods", "GCN", *FEW, "--splits", "2", "--seeds", "1"]
        + ["--results", str(results), "--commit", "abc", *options]
    )
    path = results / "table1.json"
    return json.loads(path.read_text()) if path.exists() else []


def test_table_is_told_graph_by_graph(small, tmp_path, capsys):
    assert [r["graph"] for r in table1(tmp_path, "--graphs", "Cora")] == ["Cora"]
    records = table1(tmp_path, "--graphs", "CiteSeer")
    # What an earlier command told stays.
    assert [r["graph"] for r in records] == ["Cora", "CiteSeer"]
    assert [len(r["test"]) for r in records] == [2, 2]
    assert {r["commit"] for r in records} == {"abc"}
    # Two candidates on both splits, and the choice with another seed.
    assert [r["spent"]["models"] for r in records] == [6, 6]
    tuned = yaml.safe_load((tmp_path / "tuned.yaml").read_text())
    assert tuned["table1"]["Cora"]["GCN"][20] == records[0]["params"]
    lines = (tmp_path / "checkpoint.jsonl").read_text()
    assert table1(tmp_path, "--graphs", "Cora", "CiteSeer") == records
    assert (tmp_path / "checkpoint.jsonl").read_text() == lines
    assert "2 of 2 cells" in capsys.readouterr().out


def test_graphs_that_are_not_there_are_left_out(small, tmp_path, monkeypatch, capsys):
    def missing():
        raise DatasetError("no file")

    monkeypatch.setitem(benchmark_data.LOADERS, "PubMed", missing)
    graphs = ["--graphs", "Cora", "PubMed", "--results", str(tmp_path)]
    budget = [*FEW, "--splits", "1", "--seeds", "1", "--commit", "abc"]
    command.main(["table1", "table4", "--methods", "GCN", *graphs, *budget])
    for name in ("table1", "table4"):
        records = json.loads((tmp_path / f"{name}.json").read_text())
        assert [record["graph"] for record in records] == ["Cora"]
    assert "PubMed is left out: no file" in capsys.readouterr().out


def test_no_time_tells_what_is_known(small, tmp_path, capsys):
    assert table1(tmp_path, "--graphs", "Cora", "--minutes", "0") == []
    assert "0 of 1 cells" in capsys.readouterr().out


def test_tuned_parameters_are_taken_over(small, tmp_path):
    (tmp_path / "tuned.yaml").write_text(
        "table1: {Cora: {GCN: {20: {learning_rate: 0.3}}}}"
    )
    (record,) = table1(tmp_path, "--graphs", "Cora", "--tuned")
    assert record["params"] == {"learning_rate": 0.3}
    assert record["candidates"] == 0


def test_commit_must_be_known(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        command.parse(["table1", "--commit"])
    monkeypatch.setattr(command, "commit", lambda: None)
    with pytest.raises(SystemExit):
        command.parse(["table1"])
    assert "--commit" in capsys.readouterr().err


def test_products_that_are_not_there_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SKTIFA_DATA", "")
    monkeypatch.setattr("sys.argv", ["products", "--root", str(tmp_path / "none")])
    with pytest.raises(SystemExit):
        products.main()
    assert "raw/edge.csv.gz" in capsys.readouterr().err


def test_products_from_files_to_record(tmp_path, monkeypatch, capsys):
    products.write_stand_in(tmp_path, 3000)
    data = fetch_ogbn("products", root=tmp_path, download_if_missing=False)
    assert data.graph.n_features == 100
    assert data.train_mask.sum() == 240
    masks = [data[f"{part}_mask"] for part in ("train", "val", "test")]
    np.testing.assert_array_equal(np.sum(masks, axis=0), 1)
    with pytest.raises(FileExistsError, match="ogbn_products"):
        products.write_stand_in(tmp_path, 3000)

    name = "Products GraphSAGE, SAINT-TIFA, TIFA-GCL"
    quick = clone(methods.METHODS[name].estimator).set_params(max_iter=2, hidden_size=8)
    monkeypatch.setitem(methods.METHODS, name, Method(quick, setting="inductive"))
    monkeypatch.setenv("SKTIFA_DATA", "")
    arguments = ["products", "--root", str(tmp_path), "--methods", name]
    arguments += ["--seeds", "2", "--results", str(tmp_path), "--commit", "abc"]
    monkeypatch.setattr("sys.argv", arguments)
    products.main()
    told = capsys.readouterr().out
    assert "Training sees 240 nodes, by subgraphs of 20,000 roots, 1 an epoch" in told
    assert "2 models of GraphSAGE and its like at most" in told
    assert told.index("GB of the GPU's") < told.index("1 of 1 cells")
    (record,) = json.loads((tmp_path / "table2.json").read_text())
    assert record["setting"] == "inductive"
    assert (record["n_splits"], record["n_seeds"]) == (1, 2)
    assert record["test_mean"] == pytest.approx(np.mean(record["test"]), abs=1e-3)
