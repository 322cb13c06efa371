"""The commands as they are typed: files in, files out, exit codes."""

import csv
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import sktifa
from sktifa import GNNClassifier, make_block_graph
from sktifa.cli import main
from sktifa.cli.answers import confidence_interval

# Runs a command as where optional packages are not installed.
CORE_ALONE = """
import sys
from importlib.machinery import PathFinder

class Core(PathFinder):
    @classmethod
    def find_spec(cls, name, *args):
        if name.split(".")[0] in ("matplotlib", "pandas", "polars", "pyarrow", "skrub"):
            return None
        return super().find_spec(name, *args)

sys.meta_path = [Core if f is PathFinder else f for f in sys.meta_path]
from sktifa.cli import main
sys.exit(main(sys.argv[1:]))
"""
FAST = ["--epochs", "20", "--device", "cpu", "--folds", "2"]


@pytest.fixture
def files(tmp_path):
    """Two files as people have them, and the true classes."""
    made = make_block_graph(60, 3, homophily=0.95, random_state=0)
    names = np.array(["red, dark", "green", "blue"])[made.target]
    rng = np.random.default_rng(0)
    labelled = rng.permutation(60) < 24
    # Numbers as ids, one of them a word: text here, whole numbers in the edges.
    ids = [str(1000 + i) for i in range(59)] + ["last"]
    arcs = made.graph.adjacency.tocoo()
    with open(tmp_path / "nodes.csv", "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "size", "town", "colour"])
        for i in range(60):
            size = "" if i == 3 else f"{1e4 * made.graph.features[i, 0] + 5e4:.1f}"
            town = ["Ulm", "Bern"][int(made.graph.features[i, 1] > 0)]
            writer.writerow([ids[i], size, town, names[i] if labelled[i] else ""])
    with open(tmp_path / "edges.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target"])
        pairs = [(i, j) for i, j in zip(*arcs.coords, strict=True) if 59 not in (i, j)]
        # Both ways, some again, and a loop.
        writer.writerows([ids[i], ids[j]] for i, j in [*pairs, *pairs[:5], (7, 7)])
    return tmp_path, ids, names, labelled


def typed(folder, *more, command="classify"):
    return [
        command,
        *("--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv")),
        *("--label", "colour", *map(str, more)),
    ]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sktifa", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture
def untrained(monkeypatch):
    """Fail if anything trains."""

    def fit(*args, **kwargs):
        raise AssertionError("trained before all was checked")

    monkeypatch.setattr(GNNClassifier, "fit", fit)


# ------------------------------------------------------------------- classify


def test_two_files_become_predictions_by_name_and_a_report(files):
    folder, ids, names, labelled = files
    out, report = folder / "predictions.csv", folder / "report.html"
    done = run(*typed(folder, "--out", out, "--report", report, *FAST))
    # Quiet in a pipe.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    table = pd.read_csv(out, dtype={"node": str})
    assert table["node"].tolist() == ids
    assert table["label"].isna().tolist() == (~labelled).tolist()
    classes = ["blue", "green", "red, dark"]
    chances = table[[f"probability_{name}" for name in classes]].to_numpy()
    assert np.allclose(chances.sum(axis=1), 1, atol=1e-5)
    assert np.array(classes)[chances.argmax(axis=1)].tolist() == list(
        table["prediction"]
    )
    assert (chances.max(axis=1) == table["confidence"]).all()
    assert (table["gain"] >= 0).all()
    assert table["gain"][59] < table["gain"].median()
    right = table["prediction"] == names
    assert right[~labelled].mean() > 0.6
    page = report.read_text(encoding="utf-8")
    for words in ("red, dark", "labels held back", "24 of 60 nodes", "nodes.csv"):
        assert words in page
    assert "<script" not in page


def test_core_dependencies_are_enough(files):
    folder, ids, *_ = files
    out = folder / "out.csv"
    arguments = typed(folder, "--out", out, "--report", folder / "r.html", *FAST)
    done = subprocess.run(
        [sys.executable, "-c", CORE_ALONE, *arguments], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(out.read_text().splitlines()) == 61
    arguments = typed(folder, "--out", folder / "out.parquet")
    done = subprocess.run(
        [sys.executable, "-c", CORE_ALONE, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install sktifa[parquet]" in done.stderr


def test_parquet_in_and_out(files):
    folder, ids, *_ = files
    for name in ("nodes", "edges"):
        frame = pd.read_csv(folder / f"{name}.csv", dtype={"id": str})
        frame.to_parquet(folder / f"{name}.parquet")
    out = folder / "out.parquet"
    arguments = [word.replace(".csv", ".parquet") for word in typed(folder)]
    assert main([*arguments, "--out", str(out), *FAST]) == 0
    assert pd.read_parquet(out)["node"].tolist() == ids


def test_runs_repeat_and_write_over_with_force_alone(files, capsys):
    folder, *_ = files
    out = folder / "out.csv"
    arguments = typed(folder, "--out", out, *FAST)
    assert main(arguments) == 0
    first = out.read_text()
    out.write_text("mine")
    assert main(arguments) == 2
    assert out.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0
    assert out.read_text() == first


def test_a_search_chooses_and_says_what(files, capsys):
    folder, *_ = files
    arguments = typed(folder, "--out", folder / "out.csv", *FAST, "--search", "2")
    assert main([*arguments, "--verbose"]) == 0
    said = capsys.readouterr().err
    assert "best of 2 candidates: {" in said
    assert "labels held back" in said


def test_single_labels_leave_nothing_to_check_by(files, capsys):
    folder, _, names, _ = files
    nodes = pd.read_csv(folder / "nodes.csv", dtype=str)
    first = ~pd.Series(names).duplicated()
    nodes["colour"] = pd.Series(names).where(first)
    nodes.to_csv(folder / "nodes.csv", index=False)
    report = folder / "report.html"
    arguments = typed(folder, "--out", folder / "out.csv", "--report", report, *FAST)
    assert main(arguments) == 0
    assert "no class has two labels" in capsys.readouterr().err
    assert "Most doubtful" in report.read_text()


def test_labels_that_mark_none(files, capsys):
    folder, *_ = files
    nodes = pd.read_csv(folder / "nodes.csv", dtype=str)
    codes = pd.Categorical(nodes["colour"]).codes
    nodes["colour"] = np.where(codes < 0, -1, codes)
    nodes.to_csv(folder / "nodes.csv", index=False)
    out = folder / "out.csv"
    arguments = typed(folder, "--out", out, *FAST)
    assert main([*arguments, "--missing-label=-1"]) == 0
    assert "-1 is taken" not in capsys.readouterr().err
    assert {*pd.read_csv(out)["prediction"]} <= {0, 1, 2}
    assert "probability_-1" not in pd.read_csv(out)
    assert main([*arguments, "--force"]) == 0
    assert "-1 is taken for a class" in capsys.readouterr().err
    assert "probability_-1" in pd.read_csv(out)


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--out", "none/out.csv"], "nothing can be written to the folder .*none"),
        (["--out", "."], "is a folder"),
        (["--out", "out.xlsx"], "must end in .csv or .parquet"),
        (["--out", "nodes.csv", "--force"], "is given for another file too"),
        (["--out", "out.csv", "--report", "out.csv"], "must end in .htm or .html"),
        (["--out", "out.csv", "--report", "none/r.html"], "--report: nothing can be"),
        (["--out", "out.csv", "--nodes", "none.csv"], "--nodes: none.csv is not there"),
        (["--out", "out.csv", "--edges", "."], "--edges: . is a folder"),
        (["--out", "out.csv", "--device", "tpu"], "device"),
        (["--out", "out.csv", "--features", "colour"], "which is the label"),
    ],
)
def test_wrong_arguments_are_said_before_anything_trains(
    files, capsys, monkeypatch, more, message
):
    folder, *_ = files
    monkeypatch.chdir(folder)
    before = sorted(os.listdir())
    assert main([*typed(folder), *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sktifa: ")
    assert re.search(message, error), error
    assert sorted(os.listdir()) == before


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    "wrong", [["--epochs", "0"], ["--folds", "1"], ["--seed", "x"]]
)
def test_counts_are_checked(files, wrong):
    folder, *_ = files
    with pytest.raises(SystemExit) as exit:
        main(typed(folder, "--out", folder / "out.csv", *wrong))
    assert exit.value.code == 2


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize(
    ("nodes", "more", "message"),
    [
        (
            "id,colour\n1000,a\n1001,b\n1000,a\n",
            [],
            "in line 2 of nodes.csv and in line 4",
        ),
        ("id,colour\n1,a\n2\n", [], "line 3 of nodes.csv has 1 fields"),
        ("id,colour\n1,a\n2,b\n", [], "line 2 of edges.csv has source 1"),
        ("id,colour\n1,a\n2,\n", [], "all labels are 'a'"),
        ("id,colour\n1,\n2,NA\n", [], "no node has a label"),
        ("id,colour\n1,0.5\n2,1.7\n", [], "holds amounts or times"),
        ("id,shade\n1,a\n2,b\n", [], "nodes.csv has no column 'colour'"),
        (
            "id,colour\n1,a\n2,b\n",
            ["--source", "from"],
            "name the right one with --source",
        ),
    ],
)
def test_wrong_data_are_named_with_their_line(files, capsys, nodes, more, message):
    folder, *_ = files
    (folder / "nodes.csv").write_text(nodes)
    assert main(typed(folder, "--out", folder / "out.csv", *more)) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "out.csv").exists()


@pytest.mark.skipif(os.name == "nt", reason="no SIGINT to send")
def test_ctrl_c_ends_all_and_not_one_fit(files):
    folder, *_ = files
    arguments = typed(folder, "--out", folder / "out.csv", "--verbose")
    running = subprocess.Popen(
        [sys.executable, "-m", "sktifa", *arguments, "--epochs", "1000000"],
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in running.stderr:
        if "labels:" in line:
            break
    time.sleep(5)  # the first of the fits is under way
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=60)[1].endswith("sktifa: interrupted\n")
    assert running.returncode == 130
    assert not (folder / "out.csv").exists()


def test_a_share_and_its_interval():
    # Brown, Cai and DasGupta (2001) print Wilson's interval for 0 of 10: 0 to .278.
    low, high = confidence_interval(0, 10)
    assert (round(low, 3), round(high, 3)) == (0, 0.278)


# -------------------------------------------------------------- other commands


def test_diagnose_prints_what_there_is_to_know(files, capsys):
    folder, *_ = files
    assert main(typed(folder, command="diagnose")) == 0
    printed = capsys.readouterr().out
    assert "60" in printed
    assert "red, dark" in printed


def test_demo_on_a_planetoid_graph_prints_and_draws(data_root, tmp_path, capsys):
    picture = tmp_path / "demo.png"
    arguments = ["demo", "--data", "Cora", "--root", str(data_root), "--splits", "1"]
    arguments += ["--epochs", "10", "--picture", str(picture)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    for method in ("propagation", "GCN", "uniform-GCL", "TIFA-GCL"):
        assert method in printed
    assert picture.stat().st_size > 10_000
    assert main(arguments) == 2


def test_demo_on_a_terminal_without_unicode(tmp_path):
    picture = tmp_path / "demo.svg"
    done = run(
        *["demo", "--splits", 2, "--epochs", 1, "--picture", picture],
        PYTHONIOENCODING="ascii",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "+/-" in done.stdout
    assert picture.exists()


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("picture", ["none/demo.png", ".", "demo", "demo.xyz"])
def test_demo_checks_where_the_picture_goes(tmp_path, monkeypatch, picture):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--picture", picture]) == 2
    assert not os.listdir()


def test_missing_files_are_said_in_one_line(tmp_path, capsys):
    arguments = ["demo", "--data", "Cora", "--root", str(tmp_path)]
    from sktifa.exceptions import DatasetError

    def missing(*args, **kwargs):
        raise DatasetError(f"no raw files in {tmp_path}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sktifa.cli.demo.fetch_planetoid", missing)
        assert main([*arguments, "--picture", str(tmp_path / "demo.png")]) == 1
    assert capsys.readouterr().err == f"sktifa: no raw files in {tmp_path}\n"


def test_version_and_help(capsys):
    for arguments, words in [
        (["--version"], f"sktifa {sktifa.__version__}"),
        (["--help"], "exit codes"),
        (["classify", "--help"], "calibrated"),
        (["demo", "--help"], "--labels"),
    ]:
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        assert exit.value.code == 0
        assert words in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["unknown"])
