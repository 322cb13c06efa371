import gc
import os
import pickle
import shutil
import socket
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.csgraph import connected_components

from sktifa import datasets
from sktifa.exceptions import DatasetError, NotEnoughMemoryError, ParameterError
from sktifa.raw_files import read_npz

# Counts and the list of nodes are those of data/README.md beside the raw files.
COUNTS = {
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "photo": (7650, 119081, 745, 8),
    "computers": (13752, 245861, 767, 10),
    "dblp": (17716, 52867, 1639, 4),
    "minesweeper": (10000, 39402, 7, 2),
    "tolokers": (11758, 519000, 10, 2),
}
CITESEER_ABSENT = [2407, 2489, 2553, 2682, 2781, 2953, 3042, 3063, 3212, 3214]
CITESEER_ABSENT += [3250, 3292, 3305, 3306, 3309]


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_real_graphs(name, request):
    data = request.getfixturevalue(name)
    graph = data.graph
    n_classes = len(data.target_names)
    counts = (graph.n_nodes, graph.n_edges, graph.n_features, n_classes)
    assert counts == COUNTS[name]
    assert data.target.shape == (graph.n_nodes,)
    assert set(data.target) - {-1} == set(range(n_classes))
    assert f"{graph.n_nodes:,} nodes" in data.DESCR


def test_public_splits(cora, citeseer, pubmed):
    for data, n_train in ((cora, 140), (citeseer, 120), (pubmed, 60)):
        sizes = [m.sum() for m in (data.train_mask, data.val_mask, data.test_mask)]
        assert sizes == [n_train, 500, 1000]
        assert not (data.train_mask & data.test_mask).any()
        assert np.bincount(data.target[data.train_mask]).tolist() == [20] * (
            n_train // 20
        )


def test_citeseer_made_up_labels_are_unlabelled(citeseer):
    assert np.flatnonzero(citeseer.target == -1).tolist() == CITESEER_ABSENT
    graph = citeseer.graph
    assert graph.features[CITESEER_ABSENT].nnz == 0
    assert (np.diff(graph.adjacency.indptr)[CITESEER_ABSENT] > 0).all()
    for mask in (citeseer.train_mask, citeseer.val_mask, citeseer.test_mask):
        assert not mask[CITESEER_ABSENT].any()


def test_ten_splits(tolokers):
    assert tolokers.train_mask.shape == (11758, 10)


@pytest.mark.parametrize(
    ("fetch", "name", "n_nodes", "n_edges"),
    [
        (datasets.fetch_planetoid, "CiteSeer", 2120, 3679),
        (datasets.fetch_amazon, "Photo", 7487, 119043),
        (datasets.fetch_amazon, "Computers", 13381, 245778),
        (datasets.fetch_citation_full, "DBLP", 16191, 51913),
    ],
)
def test_largest_component(data_root, fetch, name, n_nodes, n_edges):
    data = fetch(name, root=data_root, largest_component=True)
    assert (data.graph.n_nodes, data.graph.n_edges) == (n_nodes, n_edges)
    assert connected_components(data.graph.adjacency)[0] == 1
    whole = fetch(name, root=data_root)
    assert_array_equal(data.target, whole.target[data.graph.parent_nodes])


def test_nothing_is_written_or_printed(data_root, tmp_path, capsys, monkeypatch):
    shutil.copytree(data_root / "Planetoid" / "Cora", tmp_path / "Planetoid" / "Cora")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    monkeypatch.setenv("SKTIFA_DATA", str(tmp_path))
    datasets.fetch_planetoid("cora")
    assert sorted(tmp_path.rglob("*")) == before
    assert capsys.readouterr() == ("", "")


def test_files_right_in_the_root(data_root):
    data = datasets.fetch_planetoid("Cora", root=data_root / "Planetoid")
    assert data.graph.n_nodes == 2708


def test_missing_files_without_network(tmp_path, monkeypatch):
    folder = tmp_path / "Amazon" / "Photo" / "raw"
    with pytest.raises(DatasetError, match=str(folder)) as caught:
        datasets.fetch_amazon("Photo", root=tmp_path, download_if_missing=False)
    assert isinstance(caught.value, FileNotFoundError)
    assert list(tmp_path.iterdir()) == []

    def refuse(url, timeout):
        assert timeout <= 10
        raise OSError("the network is down")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(DatasetError, match="Photo.*SKTIFA_DATA.*network is down"):
        datasets.fetch_amazon("Photo", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_missing_is_fetched(cora, data_root, tmp_path, monkeypatch):
    served = data_root / "Planetoid" / "Cora" / "raw"
    raw = tmp_path / "Planetoid" / "Cora" / "raw"
    shutil.copytree(served, raw)
    (raw / "ind.cora.tx").unlink()
    with pytest.raises(DatasetError, match=f"{raw} lacks ind.cora.tx: put"):
        datasets.fetch_planetoid(root=tmp_path, download_if_missing=False)
    monkeypatch.setattr(datasets, "_PLANETOID", served.as_uri() + "/")
    fetched = datasets.fetch_planetoid(root=tmp_path)
    assert fetched.graph.fingerprint == cora.graph.fingerprint
    assert sorted(p.name for p in raw.iterdir()) == sorted(os.listdir(served))
    shutil.rmtree(raw)
    assert datasets.fetch_planetoid(root=tmp_path).graph.n_nodes == 2708


# ------------------------------------------------------------ files gone bad

FILES = {
    "cora": (datasets.fetch_planetoid, "Cora", "Planetoid/Cora/raw"),
    "photo": (datasets.fetch_amazon, "Photo", "Amazon/Photo/raw"),
    "minesweeper": (
        datasets.fetch_heterophilous,
        "Minesweeper",
        "HeterophilousGraphDataset/minesweeper/raw",
    ),
}
DAMAGE = {
    "page of a website": lambda content: b"<!DOCTYPE html><html>Not found</html>",
    "Git LFS pointer": lambda content: b"version https://git-lfs.github.com/spec/v1",
    "is empty": lambda content: b"",
    "is damaged": lambda content: content[: len(content) // 2],
    "byte-order mark": lambda content: b"\xef\xbb\xbf" + content,
}


@pytest.fixture
def copied(data_root, tmp_path):
    def copy(name):
        fetch, spelt, folder = FILES[name]
        shutil.copytree(data_root / folder, tmp_path / folder)
        return lambda: fetch(spelt, root=tmp_path), tmp_path / folder

    return copy


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cora", "ind.cora.allx"),
        ("cora", "ind.cora.graph"),
        ("cora", "ind.cora.ty"),
        ("cora", "ind.cora.test.index"),
        ("photo", "amazon_electronics_photo.npz"),
        ("minesweeper", "minesweeper.npz"),
    ],
)
def test_a_damaged_file_is_named(copied, name, file, damage):
    fetch, raw = copied(name)
    path = raw / file
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    if file == "ind.cora.test.index" and damage == "is damaged":
        path.write_text("1708\n17o9\n")
    with pytest.raises(DatasetError, match=f"{path} .*{damage}.*Delete it") as caught:
        fetch()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_damaged_file_is_closed(tmp_path, monkeypatch):
    path, left_open = tmp_path / "graph.npz", []
    np.savez(path, labels=np.arange(1000))
    path.write_bytes(path.read_bytes()[:2000])
    monkeypatch.setattr(sys, "unraisablehook", left_open.append)
    with warnings.catch_warnings(action="error", category=ResourceWarning):
        with pytest.raises(DatasetError, match="is damaged"):
            read_npz(path, ["labels"])
        gc.collect()
    assert not left_open


def change(path, **arrays):
    with np.load(path) as file:
        np.savez(path, **{**file, **arrays})


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"attr_indices": lambda a: a + 10**8}, "attr has an entry in row 0, column 1"),
        ({"adj_indices": lambda a: a - 9}, "adj has an entry in row .*, column -"),
        ({"adj_indptr": lambda a: a[:-1]}, "adj is a damaged sparse matrix"),
        ({"adj_shape": lambda a: a + 1}, "adj is a damaged sparse matrix"),
        ({"labels": lambda a: a[1:]}, "target has 7649 entries for 7650 nodes"),
        ({"labels": lambda a: a.astype(object)}, "could run a command"),
    ],
)
def test_an_npz_file_with_bad_arrays_is_named(copied, arrays, match):
    fetch, raw = copied("photo")
    path = raw / "amazon_electronics_photo.npz"
    with np.load(path) as file:
        arrays = {key: change(file[key]) for key, change in arrays.items()}
    change(path, **arrays)
    with pytest.raises(DatasetError, match=match):
        fetch()


def test_an_npz_file_without_an_array(copied):
    fetch, raw = copied("minesweeper")
    np.savez(raw / "minesweeper.npz", edges=np.zeros((1, 2), int))
    with pytest.raises(
        DatasetError, match="minesweeper.npz .*no array 'node_features'"
    ):
        fetch()


def test_edges_to_nodes_that_are_not_there(copied):
    fetch, raw = copied("minesweeper")
    change(raw / "minesweeper.npz", edges=np.array([[0, 99_999]]))
    with pytest.raises(DatasetError, match="minesweeper/raw .*joins 0 and 99999"):
        fetch()


class Command:
    """What runs a command when a pickle of it is opened."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("file", ["x", "allx", "y", "ally", "tx", "ty", "graph"])
def test_a_command_in_a_pickle_is_not_run(copied, tmp_path, file):
    fetch, raw = copied("cora")
    (raw / f"ind.cora.{file}").write_bytes(pickle.dumps(Command(tmp_path / "trace")))
    with pytest.raises(DatasetError, match=f"ind.cora.{file} .*posix.mkdir.*command"):
        fetch()
    assert not (tmp_path / "trace").exists()


def test_a_command_in_an_npz_file_is_not_run(copied, tmp_path):
    fetch, raw = copied("photo")
    path = raw / "amazon_electronics_photo.npz"
    command = np.array([Command(tmp_path / "trace")], dtype=object)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "class_names": command})  # public files have such, too
    assert fetch().target_names[0] == "0"
    np.savez(path, **{**arrays, "labels": command})
    with pytest.raises(DatasetError, match="photo.npz holds Python objects"):
        fetch()
    assert not (tmp_path / "trace").exists()


def test_a_command_in_a_loaders_cache_is_not_run(copied, tmp_path):
    fetch, raw = copied("cora")
    processed = raw.parent / "processed"
    processed.mkdir()
    for name in ("data.pt", "pre_filter.pt", "pre_transform.pt"):
        torch.save(Command(tmp_path / "trace"), processed / name)
    fetch()
    assert not (tmp_path / "trace").exists()


def test_unknown_name():
    with pytest.raises(ParameterError, match="'cra'.*'Cora', 'CiteSeer', 'PubMed'"):
        datasets.fetch_planetoid("cra")
    with pytest.raises(ParameterError, match="no graph None"):
        datasets.fetch_ogbn(None)
    with pytest.raises(ParameterError, match="root must be a path or None, got 5"):
        datasets.fetch_planetoid(root=5)


def test_digits(digits):
    assert digits.graph.shape == (1797, 64)
    assert digits.graph.features.max() == 1
    arcs = digits.graph.adjacency.tocoo()
    same = digits.target[arcs.coords[0]] == digits.target[arcs.coords[1]]
    assert same.mean() > 0.9
    few = datasets.load_digits_graph(n_neighbors=3).graph
    assert few.n_edges < digits.graph.n_edges


# ------------------------------------------------------------------- block graph


def test_block_graph_has_what_was_asked(device):
    data = datasets.make_block_graph(
        20_000,
        5,
        average_degree=12,
        homophily=0.7,
        class_separation=3,
        n_features=30,
        device=device,
        random_state=0,
    )
    graph = data.graph
    again = type(graph)(graph.adjacency, graph.features, directed="error")
    assert again.fingerprint == graph.fingerprint  # well formed
    # Repeated edges, most of them between hubs, were merged.
    assert 0.9 * 12 < 2 * graph.n_edges / 20_000 < 12
    arcs = graph.adjacency.tocoo()
    same = data.target[arcs.coords[0]] == data.target[arcs.coords[1]]
    # 120,000 edges: a standard error of 0.0013; merged repeats take a little away.
    assert_allclose(same.mean(), 0.7, atol=0.01)
    degrees = np.diff(graph.adjacency.indptr)
    assert 10 * degrees.mean() < degrees.max() < 2 * np.sqrt(20_000 * 12)
    # Two classes' means are, on average over pairs, the asked distance apart.
    means = np.array([graph.features[data.target == c].mean(0) for c in range(5)])
    gaps = np.linalg.norm(means[:, None] - means, axis=2)[np.triu_indices(5, 1)]
    assert_allclose(gaps.mean(), 3, rtol=0.25)
    assert_allclose(np.bincount(data.target) / 20_000, 0.2, atol=0.015)


def test_block_graph_degrees_follow_the_power_law():
    data = datasets.make_block_graph(
        50_000, 2, average_degree=40, degree_exponent=3.0, random_state=1
    )
    degrees = np.diff(data.graph.adjacency.indptr)
    # Beyond a few times the smallest expected degree, the share above d falls as
    # d^(1 - exponent): doubling d leaves a quarter. 50,000 nodes leave about 3,100
    # above 80 and 780 above 160: three standard errors are 13 %.
    ratio = (degrees > 160).sum() / (degrees > 80).sum()
    assert_allclose(ratio, 1 / 4, rtol=0.2)
    even = datasets.make_block_graph(
        50_000, 2, average_degree=40, degree_exponent=np.inf, random_state=1
    )
    degrees = np.diff(even.graph.adjacency.indptr)
    assert_allclose(degrees.var(), 40, rtol=0.05)  # Poisson


def test_block_graph_other_class_is_drawn_evenly():
    data = datasets.make_block_graph(
        30_000, 3, homophily=0.0, degree_exponent=np.inf, random_state=0
    )
    arcs = data.graph.adjacency.tocoo()
    table = np.zeros((3, 3))
    np.add.at(table, (data.target[arcs.coords[0]], data.target[arcs.coords[1]]), 1)
    assert np.diag(table).sum() == 0
    assert_allclose(table[~np.eye(3, dtype=bool)] / table.sum(), 1 / 6, rtol=0.04)


def test_block_graph_is_repeatable(device):
    first, second, other = (
        datasets.make_block_graph(500, random_state=seed, device=device).graph
        for seed in (0, 0, 1)
    )
    assert first.fingerprint == second.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_nodes", 0),
        ("n_classes", 1),
        ("average_degree", -1),
        ("homophily", 1.5),
        ("degree_exponent", 2.0),
        ("n_features", 0),
        ("n_nodes", 10.5),
        ("n_nodes", "60"),
        ("n_nodes", True),
        ("n_nodes", 2**63),
        ("average_degree", 1e12),
        ("average_degree", float("nan")),
        ("average_degree", None),
        ("homophily", "0.5"),
        ("degree_exponent", float("nan")),
        ("class_separation", float("inf")),
        ("class_separation", -1.0),
    ],
)
def test_block_graph_refuses(name, value):
    with pytest.raises(ParameterError, match=name):
        datasets.make_block_graph(**{name: value})


def test_block_graph_beyond_the_memory():
    with pytest.raises(NotEnoughMemoryError, match="lower n_nodes"):
        datasets.make_block_graph(10**12)
    with pytest.raises(NotEnoughMemoryError, match="n_features"):
        datasets.make_block_graph(100, n_features=10**12)


def test_block_graph_of_one_node_and_no_edges():
    assert datasets.make_block_graph(1).graph.n_edges == 0
    assert datasets.make_block_graph(50, average_degree=0).graph.n_edges == 0


# --------------------------------------------------------------------------- ogb


@pytest.fixture
def ogb_root(tmp_path):
    """A tiny ogbn-arxiv in ogb's own layout: a directed path of six nodes."""
    folder = tmp_path / "ogbn_arxiv"
    tables = {
        "raw/edge": [[0, 1], [1, 2], [2, 3], [3, 4]],
        "raw/num-node-list": [[6]],
        "raw/num-edge-list": [[4]],
        "raw/node-feat": np.arange(12).reshape(6, 2) / 10,
        "raw/node_year": [[2000]] * 6,
        "raw/node-label": [[0], [1], [2], [0], [1], [39]],
        "split/time/train": [[0], [1], [2]],
        "split/time/valid": [[3]],
        "split/time/test": [[4], [5]],
    }
    for name, table in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(table).to_csv(path, header=False, index=False)
    (folder / "RELEASE_v1.txt").touch()
    return tmp_path


def test_ogb_layout_is_read_twice(ogb_root, capsys):
    folder = ogb_root / "ogbn_arxiv"
    for name in ("arxiv", "ogbn-arxiv"):  # the second time from what was kept
        data = datasets.fetch_ogbn(name, root=ogb_root)
        assert (data.graph.n_nodes, data.graph.n_edges) == (6, 4)
        assert data.target.tolist() == [0, 1, 2, 0, 1, 39]
        assert_allclose(data.graph.features[5], [1.0, 1.1])
        assert data.train_mask.tolist() == [1, 1, 1, 0, 0, 0]
        assert data.val_mask.tolist() == [0, 0, 0, 1, 0, 0]
        assert data.test_mask.tolist() == [0, 0, 0, 0, 1, 1]
        assert len(data.target_names) == 40
    kept = sorted(p.name for p in (folder / "processed").iterdir())
    assert kept == ["edge.npy", "node-feat.npy", "node-label.npy"]
    assert capsys.readouterr() == ("", "")


def test_ogb_tables_that_changed_are_read_again(ogb_root):
    datasets.fetch_ogbn("arxiv", root=ogb_root)
    raw = ogb_root / "ogbn_arxiv" / "raw" / "edge.csv.gz"
    pd.DataFrame([[0, 5]]).to_csv(raw, header=False, index=False)
    kept = ogb_root / "ogbn_arxiv" / "processed" / "edge.npy"
    os.utime(kept, ns=(0, 0))
    assert datasets.fetch_ogbn("arxiv", root=ogb_root).graph.n_edges == 1


def test_ogb_binary_layout(tmp_path):
    folder = tmp_path / "ogbn_papers100M"
    (folder / "raw").mkdir(parents=True)
    edges, features = np.array([[0, 1], [1, 2]]), np.eye(3, dtype=np.float32)
    np.savez(folder / "raw" / "data.npz", edge_index=edges, node_feat=features)
    labels = np.array([[3.0], [np.nan], [171]])
    np.savez(folder / "raw" / "node-label.npz", node_label=labels)
    for node, part in enumerate(("train", "valid", "test")):
        path = folder / "split" / "time" / f"{part}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame([node]).to_csv(path, header=False, index=False)
    data = datasets.fetch_ogbn("papers100M", root=tmp_path)
    assert data.graph.n_edges == 2
    assert data.target.tolist() == [3, -1, 171]
    assert data.val_mask.tolist() == [0, 1, 0]


def test_ogb_without_files(tmp_path):
    with pytest.raises(DatasetError, match=str(tmp_path / "ogbn_products")):
        datasets.fetch_ogbn("products", root=tmp_path, download_if_missing=False)
    assert list(tmp_path.iterdir()) == []


def test_ogb_is_fetched_and_unpacked(ogb_root, tmp_path, monkeypatch):
    served = tmp_path / "served"
    packed = shutil.copytree(ogb_root / "ogbn_arxiv", served / "arxiv")
    shutil.make_archive(served / "arxiv", "zip", served, "arxiv")
    shutil.rmtree(ogb_root / "ogbn_arxiv")
    shutil.rmtree(packed)
    monkeypatch.setattr(datasets, "_OGB", served.as_uri() + "/")
    before = socket.getdefaulttimeout()
    home = tmp_path / "new"
    assert datasets.fetch_ogbn("arxiv", root=home).graph.n_nodes == 6
    assert [path.name for path in home.iterdir()] == ["ogbn_arxiv"]
    assert socket.getdefaulttimeout() == before
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD" not in os.environ


def test_ogb_without_network(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("the network is down")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(DatasetError, match="ogbn_products.*network is down"):
        datasets.fetch_ogbn("products", root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ogb_archive_that_is_none(tmp_path, monkeypatch):
    (tmp_path / "arxiv.zip").write_text("<html>")
    monkeypatch.setattr(datasets, "_OGB", tmp_path.as_uri() + "/")
    with pytest.raises(DatasetError, match="ogbn_arxiv.*not a zip file"):
        datasets.fetch_ogbn("arxiv", root=tmp_path / "new")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", ["raw/edge", "split/time/valid"])
def test_a_damaged_ogb_file_is_named(ogb_root, file, damage):
    path = ogb_root / "ogbn_arxiv" / f"{file}.csv.gz"
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(DatasetError, match=f"{path} .*{damage}"):
        datasets.fetch_ogbn("arxiv", root=ogb_root)


def test_commands_in_an_ogb_folder_are_not_run(ogb_root, tmp_path):
    folder = ogb_root / "ogbn_arxiv"
    (folder / "processed").mkdir()
    command = Command(tmp_path / "trace")
    torch.save(command, folder / "processed" / "data_processed")
    torch.save(command, folder / "split" / "time" / "split_dict.pt")
    assert datasets.fetch_ogbn("arxiv", root=ogb_root).graph.n_nodes == 6
    kept = folder / "processed" / "edge.npy"
    np.save(kept, np.array([command], dtype=object))
    with pytest.raises(DatasetError, match="edge.npy holds Python objects"):
        datasets.fetch_ogbn("arxiv", root=ogb_root)
    kept.write_bytes(pickle.dumps(command))
    with pytest.raises(DatasetError, match="edge.npy holds Python objects"):
        datasets.fetch_ogbn("arxiv", root=ogb_root)
    assert not (tmp_path / "trace").exists()
