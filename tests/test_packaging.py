"""What a user installs: the wheel alone, with the core dependencies and no more."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What users may have and the core does without: importing it costs seconds.
HEAVY = ("torch_geometric", "polars", "skrub", "matplotlib", "networkx", "dask")


def run(*command, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_import_is_light():
    """torch_geometric alone would take longer than all the rest."""
    code = f"import sktifa, sys; print(*set(sys.modules) & {set(HEAVY)})"
    assert run(sys.executable, "-c", code).split() == []


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_a_fresh_environment(tmp_path):
    build = tmp_path / "dist"
    # Through the sdist, so that this is tried too.
    run(sys.executable, "-m", "build", "--outdir", build, ROOT)
    (wheel,) = build.glob("*.whl")
    (_,) = build.glob("*.tar.gz")
    files = zipfile.ZipFile(wheel).namelist()
    assert "sktifa/py.typed" in files
    assert {name.split("/")[0].split("-")[0] for name in files} == {"sktifa"}

    run(sys.executable, "-m", "venv", tmp_path / "env")
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    pinned = ROOT / "constraints.txt"
    # The checkout must not be taken for what is installed.
    away = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pip = scripts / "python", "-m", "pip", "install", "-q", "-c", pinned, wheel
    run(*pip, cwd=tmp_path, env=away)
    told = run(
        *(scripts / "sktifa", "demo", "--splits", 1, "--epochs", 3),
        cwd=tmp_path,
        env=away,
    )
    assert "TIFA-GCL" in told and "sktifa[plot]" in told
    assert not (tmp_path / "sktifa-demo.png").exists()
