"""The demo, as it is typed."""

import subprocess
import sys

import pytest

from sktifa.cli import main


def test_demo_on_a_planetoid_graph_prints_and_draws(data_root, tmp_path, capsys):
    picture = tmp_path / "demo.png"
    status = main(
        ["demo", "--data", "Cora", "--root", str(data_root), "--splits", "1"]
        + ["--epochs", "10", "--picture", str(picture)]
    )
    printed = capsys.readouterr().out
    assert status == 0
    for method in ("propagation", "GCN", "uniform-GCL", "TIFA-GCL"):
        assert method in printed
    assert picture.stat().st_size > 10_000


def test_missing_files_are_said_in_one_line(tmp_path, capsys, monkeypatch):
    from sktifa import datasets
    from sktifa.exceptions import DatasetError

    def missing(*args, **kwargs):
        raise DatasetError(f"no raw files in {tmp_path}")

    monkeypatch.setattr("sktifa.cli.fetch_planetoid", missing)
    assert main(["demo", "--data", "Cora", "--root", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert datasets.fetch_planetoid is not missing


def test_python_dash_m_shows_help():
    done = subprocess.run(
        [sys.executable, "-m", "sktifa", "demo", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--labels" in done.stdout
    with pytest.raises(SystemExit):
        main(["unknown"])
