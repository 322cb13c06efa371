"""What is kept as evidence is whole, and of one piece."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks._report import RESULTS
from benchmarks.accuracy import page
from benchmarks.accuracy.experiments import EXPERIMENTS
from benchmarks.accuracy.methods import METHODS
from benchmarks.accuracy.run import read_tuned

TOLD = {
    name: json.loads((RESULTS / f"{name}.json").read_text()) for name in EXPERIMENTS
}
# Of the graphs alone: no model, no accuracy.
FACTS = {
    name: json.loads((RESULTS / f"{name}.json").read_text())
    for name in ("table4", "figure2")
}


def test_every_table_and_figure_of_the_paper_is_told():
    numbered = {f"table{i}" for i in range(1, 7)} | {f"figure{i}" for i in range(1, 8)}
    assert numbered <= {name for name, told in (TOLD | FACTS).items() if told}


@pytest.mark.parametrize("name", TOLD | FACTS)
def test_records_have_the_same_keys(name):
    needed = (
        "method graph test_mean test_std val_mean n_splits n_seeds params device commit"
    )
    for record in (TOLD | FACTS)[name]:
        assert set(needed.split()) <= record.keys()
        assert (record["test_mean"] is None) == (name in FACTS)


@pytest.mark.parametrize("name", TOLD)
def test_records_say_what_they_are_of(name):
    for record in TOLD[name]:
        # Of one split, by seed.
        n_splits, n_seeds = record["n_splits"], record["n_seeds"]
        assert len(record["test"]) == (n_splits if n_splits > 1 else n_seeds)


@pytest.mark.parametrize("name", TOLD)
def test_parameters_are_those_that_were_tuned(name):
    tuned = read_tuned(RESULTS, [name])
    for record in TOLD[name]:
        method = METHODS[record["method"]]
        chooser = method.like or record["method"]
        if not METHODS[chooser].space:
            assert record["params"] == dict(method.changes)
            continue
        chosen = tuned[record["graph"]][chooser][record["labels"]]
        # JSON has lists for tuples.
        told = json.loads(json.dumps({**chosen, **method.changes}))
        assert record["params"] == told, (record["method"], record["graph"])


def test_commits_are_in_the_history():
    root = Path(__file__).parents[2]

    def git(*arguments):
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True
        )
        return done.stdout.split()

    is_whole = shutil.which("git") and git("rev-parse", "--is-shallow-repository")
    if is_whole != ["false"]:
        pytest.skip("the history is not here")
    history = git("rev-list", "HEAD")
    for name, records in (TOLD | FACTS).items():
        for commit in {c for r in records for c in r["commit"].split(", ")}:
            assert any(known.startswith(commit) for known in history), (name, commit)


def test_page_is_made_of_the_records():
    assert page.PAGE.read_text() == page.page()
