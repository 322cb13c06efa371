"""The protocol: nothing is learnt from test nodes before the choice, nothing lost."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from benchmarks import data as benchmark_data
from benchmarks.accuracy import lab as laboratory
from benchmarks.accuracy import methods, run
from benchmarks.accuracy.comparison import adjusted, paired
from benchmarks.accuracy.experiments import EXPERIMENTS, Experiment
from benchmarks.accuracy.fits import Fit
from benchmarks.accuracy.lab import Lab, OutOfTimeError, unpack
from benchmarks.accuracy.protocol import (
    Budget,
    Cell,
    Method,
    candidates,
    choose,
    evaluate,
)
from benchmarks.data import draw_split, visible_labels
from sktifa import GNNClassifier, make_block_graph
from sktifa.training import engine

CELL = Cell("GCN", "block", 5)
BUDGET = Budget(candidates=3, splits=1, finalists=2, final_splits=2)


@pytest.fixture
def block(monkeypatch):
    """A graph that the labs know by name; what is cached of the last one goes."""
    data = make_block_graph(300, 3, random_state=0)
    monkeypatch.setitem(benchmark_data.LOADERS, "block", lambda: data)
    for cached in (laboratory.graph_of, laboratory.split_of):
        cached.cache_clear()
    yield data
    for cached in (laboratory.graph_of, laboratory.split_of):
        cached.cache_clear()


@pytest.fixture
def gcn():
    return Method(
        GNNClassifier(max_iter=5, hidden_size=8),
        {"learning_rate": [1e-4, 0.003, 0.05]},
    )


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_parts_of_a_split_are_apart(block, setting):
    split = draw_split(block, 3, 5, setting)
    y = block.target
    assert np.bincount(y[split.train]).tolist() == [5, 5, 5]
    assert np.bincount(y[split.val]).tolist() == [30, 30, 30]
    parts = np.concatenate([split.train, split.val, split.test])
    assert len(np.unique(parts)) == len(parts)
    assert np.isin(split.train, split.seen).all()
    if setting == "transductive":
        assert len(parts) == len(y)
    else:
        assert not np.isin(np.r_[split.val, split.test], split.seen).any()
    hidden = np.setdiff1d(np.arange(len(y)), split.train)
    assert (visible_labels(block, split.train)[hidden] == -1).all()


def test_unlabelled_nodes_are_in_no_part(block):
    block.target[::10] = -1
    for setting in ("transductive", "inductive"):
        split = draw_split(block, 0, 5, setting)
        parts = np.concatenate([split.train, split.val, split.test])
        assert (block.target[parts] >= 0).all()


def test_poisoned_test_labels_change_no_choice(block, gcn, tmp_path):
    budget = Budget(candidates=3, splits=1, finalists=2, final_splits=1)

    def chosen(checkpoint):
        lab = Lab(tmp_path / checkpoint)
        parameters = choose(gcn, CELL, budget, lab)
        scores = [one["val"] for one in lab.known.values()]
        return parameters, scores

    # The split is drawn, and stays, before the labels are poisoned.
    split = laboratory.split_of("block", 0, 5, "transductive")
    before = chosen("clean.jsonl")
    block.target[split.test] = (block.target[split.test] + 1) % 3
    assert chosen("poisoned.jsonl") == before
    assert len(set(before[1])) > 1


def test_estimators_are_given_no_label_of_test_or_validation_nodes(
    block, tmp_path, monkeypatch
):
    class Spy(ClassifierMixin, BaseEstimator):
        def fit(self, X, y, X_val=None, y_val=None):
            seen.append((X.nodes[y >= 0], X_val.nodes))
            self.classes_ = np.unique(y[y >= 0])
            return self

        def predict_proba(self, X):
            return np.ones((len(X), len(self.classes_)))

    seen = []
    lab = Lab(tmp_path / "spy.jsonl")
    outcomes = evaluate(Method(Spy()), CELL, {}, splits=2, seeds=3, lab=lab)
    # Without a random_state more seeds would be the same model again.
    assert [len(row) for row in outcomes] == [1, 1]
    for number, (labeled, val) in enumerate(seen):
        split = draw_split(block, number, 5, "transductive")
        np.testing.assert_array_equal(labeled, split.train)
        np.testing.assert_array_equal(val, split.val)


def test_choice_is_the_best_on_validation(block, gcn, tmp_path):
    lab = Lab(tmp_path / "checkpoint.jsonl")
    parameters = choose(gcn, CELL, BUDGET, lab)
    # At a rate of 1e-4 five epochs leave the network as it was drawn.
    assert parameters == {"learning_rate": 0.05}
    # Three candidates on one split, two of them on another; the test is not looked at.
    assert len(lab.known) == 3 + 2
    assert not any("test" in outcome for outcome in lab.known.values())


def test_larger_budget_begins_with_the_smaller_ones_candidates():
    space = {"hidden_size": [4, 8, 16], "dropout": [0.0, 0.5], "tol": [0.0, 1.0]}
    method = Method(GNNClassifier(), space)
    some, all_of_them = candidates(method, 6), candidates(method, 100)
    assert all_of_them[:6] == some
    # Every value as often as the others, and the whole space once.
    for name, values in space.items():
        counts = Counter(one[name] for one in some)
        assert set(counts.values()) == {6 // len(values)}
    assert len({str(one) for one in all_of_them}) == len(all_of_them) == 12
    halves = Method(GNNClassifier(), [{"tol": [0.0]}, space])
    assert sum("dropout" in one for one in candidates(halves, 2)) == 1


def test_half_of_the_candidates_are_the_plainer_methods(gcn):
    space = {"dropout": [0.0, 0.2, 0.4], "learning_rate": [1e-4, 1e-3]}
    plain = replace(gcn, space=space)
    adding = replace(plain, adds={"learning_rate": [0.05], "hidden_size": [4, 16]})
    drawn = candidates(adding, 6)
    assert drawn[:3] == candidates(plain, 3)
    assert all(one["learning_rate"] == 0.05 for one in drawn[3:])
    assert sorted(one["dropout"] for one in drawn[3:]) == space["dropout"]


def test_first_candidate_is_the_default_of_the_class():
    # The class's rate, not the estimator's; its dropout, which is in neither space; but
    # the encoder, as that is no choice.
    spaces = [
        {"encoder": ["mlp"], "learning_rate": [0.1, 0.2], "dropout": [dropout]}
        for dropout in (0.1, 0.2)
    ]
    drawn = Method(GNNClassifier(learning_rate=0.3), spaces)
    trying = replace(drawn, tries_default=True)
    first, *others = candidates(trying, 3)
    assert first == {"encoder": "mlp", "learning_rate": 0.01, "dropout": 0.5}
    # The others are those that are drawn without it, as many as there is room for.
    assert others == candidates(drawn, 2)
    assert candidates(trying, 100)[1:] == candidates(drawn, 100)
    # Where it is drawn as well, it is there once.
    inside = replace(trying, space={"learning_rate": [0.1, 0.01, 0.2]})
    rates = [one["learning_rate"] for one in candidates(inside, 100)]
    assert rates[0] == 0.01 and sorted(rates) == [0.01, 0.1, 0.2]


def _keys(estimator, candidates):
    """Return the keys by which the first split's models are known."""
    return [
        Fit(
            clone(estimator).set_params(random_state=0, **parameters),
            *("block", 5, "transductive", 0, False),
        ).key
        for parameters in candidates
    ]


def test_default_is_the_first_with_what_is_added_too(gcn):
    adding = replace(gcn, adds={"hidden_size": [4, 16]}, tries_default=True)
    plain = {"learning_rate": 0.01}
    assert candidates(adding, 2) == [plain, plain | {"hidden_size": 64}]


def test_ours_begins_with_the_models_of_uniform_contrast():
    plain, ours = (
        _keys(methods.METHODS[name].estimator, candidates(methods.METHODS[name], n)[:9])
        for name, n in (("uniform-GCL, our encoders", 9), ("ours", 18))
    )
    assert ours == plain


def test_plan_counts_what_is_trained(block, gcn, tmp_path, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    changed = Method(gcn.estimator, like="GCN", changes={"dropout": 0.1})
    monkeypatch.setitem(methods.METHODS, "changed", changed)
    path = tmp_path / "checkpoint.jsonl"
    cells = {Cell("changed", "block", 5): (2, 2), CELL: (2, 1)}

    def planned():
        return run.plan(cells, BUDGET, {}, path)

    # Three candidates on one split, two of them on another, and the test.
    first, second = planned()
    assert (first["method"], first["models"], first["to train"]) == ("GCN", 7, 7)
    # The choice is shared.
    assert (second["models"], second["to train"]) == (5 + 4, 4)
    assert first["models x epochs"] == 7 * 5
    # A method that is no cell of its own chooses all the same, and tests nothing.
    alone = run.plan({Cell("changed", "block", 5): (2, 2)}, BUDGET, {}, path)
    assert [row["to train"] for row in alone] == [5, 4]
    assert not path.exists()
    run.run(cells, BUDGET, {}, n_jobs=1, checkpoint=path, commit="abc")
    assert [row["to train"] for row in planned()] == [0, 0]
    assert len(set(path.read_text().split("\n"))) == 1 + 7 + 4


def test_largest_graphs_come_first(block, gcn, tmp_path, monkeypatch):
    for name in ("Cora", "Photo"):
        monkeypatch.setitem(benchmark_data.LOADERS, name, lambda: block)
    changed = Method(gcn.estimator, like="GCN", changes={"dropout": 0.1})
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    monkeypatch.setitem(methods.METHODS, "MLP", gcn)
    monkeypatch.setitem(methods.METHODS, "changed", changed)
    names = ["MLP", "changed", "GCN"]
    cells = {Cell(m, g, 5): (1, 1) for g in ("Cora", "Photo") for m in names}
    rows = run.plan(cells, BUDGET, {}, tmp_path / "checkpoint.jsonl")
    # Within a graph as asked for, and what takes over a choice last.
    assert [(row["graph"], row["method"]) for row in rows] == [
        ("Photo", "MLP"),
        ("Photo", "GCN"),
        ("Cora", "MLP"),
        ("Cora", "GCN"),
        ("Photo", "changed"),
        ("Cora", "changed"),
    ]


def test_stack_that_would_not_end_in_time_is_not_begun(block, gcn, tmp_path):
    path = tmp_path / "checkpoint.jsonl"
    evaluate(gcn, CELL, {}, splits=1, seeds=1, lab=Lab(path))
    outcome = json.loads(path.read_text())
    path.write_text(json.dumps({**outcome, "seconds": 100.0}) + "\n")
    lab = Lab(path, deadline=time.time() + 60)
    with pytest.raises(OutOfTimeError):
        evaluate(gcn, CELL, {}, splits=2, seeds=1, lab=lab)
    lab = Lab(path, deadline=time.time() + 160)
    assert len(evaluate(gcn, CELL, {}, splits=2, seeds=1, lab=lab)) == 2


def test_cell_that_fails_leaves_the_others_alone(
    block, gcn, tmp_path, monkeypatch, capsys
):
    class Broken(GNNClassifier):
        @staticmethod
        def objective(model):
            raise RuntimeError("no such kernel")

    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    broken = replace(gcn, estimator=Broken(max_iter=5))
    monkeypatch.setitem(methods.METHODS, "broken", broken)
    path = tmp_path / "checkpoint.jsonl"
    cells = {Cell("broken", "block", 5): (1, 1), CELL: (1, 1)}
    run.run(cells, BUDGET, {}, n_jobs=1, checkpoint=path, commit="abc")
    assert list(run.collect(cells, BUDGET, {}, path)) == [CELL]
    # Nothing is said of candidates that failed for a reason that isn't theirs.
    assert "Broken" not in path.read_text()
    assert "failed\nTraceback" in capsys.readouterr().out


def test_fits_of_all_cells_are_dealt(block, gcn, tmp_path, monkeypatch):
    """Several at work train what one does, nothing twice, and a cell alone, too."""
    changed = Method(gcn.estimator, like="GCN", changes={"dropout": 0.1})
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    monkeypatch.setitem(methods.METHODS, "MLP", replace(gcn, space={"dropout": [0.2]}))
    monkeypatch.setitem(methods.METHODS, "changed", changed)
    cells = {Cell(m, "block", 5): (2, 2) for m in ("changed", "GCN", "MLP")}
    trained, train, most = [], laboratory.train, []

    def counted(fits, *rest):
        trained.extend(fit.key for fit in fits)
        most.append(len(fits))
        return train(fits, *rest)

    monkeypatch.setattr(laboratory, "train", counted)
    told = []
    for n_jobs in (1, 3):
        monkeypatch.setattr(run, "_pool", lambda n: ThreadPoolExecutor(n))
        path = tmp_path / f"{n_jobs}.jsonl"
        trained.clear()
        given = {"checkpoint": path, "commit": "abc", "together": 2}
        run.run(cells, BUDGET, {}, n_jobs=n_jobs, **given)
        assert len(trained) == len(set(trained))
        trials = run.collect(cells, BUDGET, {}, path)
        assert list(trials) == list(cells)
        told.append([(trial.chosen, trial.test.tolist()) for trial in trials.values()])
    assert told[0] == told[1]
    assert max(most) == 2


def test_interrupted_run_goes_on_where_it_was(block, gcn, tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.jsonl"
    whole = Lab(tmp_path / "whole.jsonl")
    expected = choose(gcn, CELL, BUDGET, whole)
    outcomes = evaluate(gcn, CELL, expected, splits=2, seeds=2, lab=whole)

    trained, begun = [], laboratory.train

    def counted(fits, *rest):
        trained.extend(fit.key for fit in fits)
        if len(trained) == 4:
            raise KeyboardInterrupt
        return begun(fits, *rest)

    monkeypatch.setattr(laboratory, "train", counted)
    with pytest.raises(KeyboardInterrupt):
        choose(gcn, CELL, BUDGET, Lab(path, together=1))
    assert len(path.read_text().split()) > 0
    with path.open("a") as file:
        file.write('{"key": "half a li')
    lab = Lab(path, together=1)
    assert choose(gcn, CELL, BUDGET, lab) == expected
    again = evaluate(gcn, CELL, expected, splits=2, seeds=2, lab=lab)
    # The fit that was interrupted is the only one that was begun twice.
    assert len(trained) == len(set(trained)) + 1
    told = [[(one["key"], one["test"], one["right"]) for one in r] for r in again]
    assert told == [[(o["key"], o["test"], o["right"]) for o in r] for r in outcomes]


def test_fit_that_is_interrupted_is_not_done(block, gcn, tmp_path, monkeypatch):
    """Left to itself, it would keep what it had learnt until then."""
    estimator = clone(gcn.estimator).set_params(sampler="neighbor")
    update, n_updates = engine.Run.update, []

    def interrupted(run):
        n_updates.append(1)
        if len(n_updates) == 3:
            raise KeyboardInterrupt
        return update(run)

    monkeypatch.setattr(engine.Run, "update", interrupted)
    lab = Lab(tmp_path / "checkpoint.jsonl")
    fit = Fit(estimator, "block", 5, "transductive", 0, False)
    with pytest.raises(KeyboardInterrupt):
        lab.outcomes([fit])
    assert not lab.known
    (done,) = lab.outcomes([fit])
    assert done["epochs"] == estimator.max_iter


def test_processes_end_with_the_one_that_started_them():
    script = """
import os, signal
from benchmarks.accuracy.run import _pool

_pool(2).submit(os.getpid).result()
os.kill(os.getpid(), signal.SIGKILL)
"""
    # Returns when the last of them has let go of the pipe.
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL


def test_lab_without_time_trains_nothing(block, gcn, tmp_path):
    lab = Lab(tmp_path / "checkpoint.jsonl", deadline=0)
    with pytest.raises(OutOfTimeError):
        choose(gcn, CELL, BUDGET, lab)
    assert not (tmp_path / "checkpoint.jsonl").exists()


def test_what_was_not_run_is_left_out(block, gcn, tmp_path, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    monkeypatch.setitem(methods.METHODS, "other", Method(GNNClassifier("mlp")))
    path, other = tmp_path / "checkpoint.jsonl", Cell("other", "block", 5)
    run.try_cell(CELL, 2, 2, BUDGET, {}, Lab(path, commit="abc"))
    trials = run.collect({CELL: (2, 2), other: (2, 2)}, BUDGET, {}, path)
    assert list(trials) == [CELL]
    record = trials[CELL].record()
    needed = "method graph test_mean test_std val_mean n_splits n_seeds params device"
    assert set(needed.split()) < set(record)
    assert record["commit"] == "abc"
    assert record["test_mean"] == pytest.approx(np.mean(record["test"]), abs=1e-3)
    json.dumps(record)


def test_what_is_spent_is_told_by_run(block, gcn, tmp_path, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    path, day = tmp_path / "checkpoint.jsonl", 86400

    def spent(begin, splits, **lab):
        lab = Lab(path, begin=begin, **lab)
        return run.try_cell(CELL, splits, 2, BUDGET, {}, lab).spent

    began = time.time() - day
    (first,) = spent(began, 1, jobs=3, commit="abc")["runs"]
    assert (first["models"], first["jobs"], first["commit"]) == (5 + 2, 3, "abc")
    assert first["wall"] == pytest.approx(time.time() - began, abs=60)
    assert 0 < first["seconds"] < 3 * day
    # Another run trains another split alone, and the choice is known.
    again = spent(began + 60, 2)
    assert [one["models"] for one in again["runs"]] == [7, 2]
    assert again["runs"][0] == first
    assert again["models"] == 9
    # Outcomes from before runs were recorded are in none.
    lines = [json.loads(line) for line in path.read_text().split("\n") if line]
    for line in lines[:7]:
        del line["run"], line["wall"], line["jobs"]
    path.write_text("\n".join(map(json.dumps, lines)))
    told = spent(began, 2)
    assert told["runs"] == again["runs"][1:]
    assert told["models"] == 9


@pytest.mark.filterwarnings("ignore:The loss became")
def test_losses_that_became_infinite_are_told(block, gcn, tmp_path, monkeypatch):
    wild = GNNClassifier(learning_rate=1e30, max_iter=5, early_stopping=False)
    monkeypatch.setitem(methods.METHODS, "GCN", replace(gcn, estimator=wild, space={}))
    trial = run.try_cell(CELL, 2, 2, BUDGET, {}, Lab(tmp_path / "checkpoint.jsonl"))
    assert trial.record()["diverged"] == 4
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    trial = run.try_cell(CELL, 2, 2, BUDGET, {}, Lab(tmp_path / "other.jsonl"))
    assert trial.record()["diverged"] == 0


def test_choices_that_others_take_over_are_kept(block, gcn, tmp_path, monkeypatch):
    monkeypatch.setitem(methods.METHODS, "GCN", gcn)
    ablated = Method(gcn.estimator, like="GCN", changes={"dropout": 0.1})
    monkeypatch.setitem(methods.METHODS, "GCN, ablated", ablated)
    path, cell = tmp_path / "checkpoint.jsonl", Cell("GCN, ablated", "block", 5)
    trial = run.try_cell(cell, 1, 1, BUDGET, {}, Lab(path))
    run.write_tuned("study", [trial], tmp_path)
    # Its own changes are no choice.
    chosen = {"block": {"GCN": {5: {"learning_rate": 0.05}}}}
    assert run.read_tuned(tmp_path, ["study"]) == chosen
    # Another experiment may have another budget.
    assert run.read_tuned(tmp_path, ["table1"]) == {}
    assert trial.parameters == {"learning_rate": 0.05, "dropout": 0.1}


def test_right_nodes_say_the_accuracy(block, gcn, tmp_path):
    lab = Lab(tmp_path / "checkpoint.jsonl")
    outcome = evaluate(gcn, CELL, {}, splits=1, seeds=1, lab=lab)[0][0]
    n = len(laboratory.split_of("block", 0, 5, "transductive").test)
    assert unpack(outcome["right"], n).mean() == pytest.approx(outcome["test"])


def test_keys_tell_models_apart_but_not_devices(gcn):
    def key(**parameters):
        estimator = GNNClassifier(**parameters)
        return Fit(estimator, "Cora", 20, "transductive", 0, False).key

    assert key() == key(device="cuda", verbose=1)
    assert len({key(), key(dropout=0.4), key(random_state=0)}) == 3


def test_paired_comparison_is_scipys():
    rng = np.random.default_rng(0)
    ours, other = rng.normal(81, 1, 20), rng.normal(80.5, 1, 20)
    told = paired(ours, other)
    t = stats.ttest_rel(ours, other)
    assert told["difference"] / told["standard_error"] == pytest.approx(t.statistic)
    assert told["p"] == stats.wilcoxon(ours, other).pvalue
    # By hand: all 2^3 signs of three differences are as likely; two are as extreme.
    assert paired([3, 2, 4], [1, 1, 1])["p"] == pytest.approx(2 / 8)
    assert paired([1, 2], [1, 2])["p"] == 1


def test_holm_by_hand():
    assert adjusted([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjusted([]) == []


def test_every_cell_is_of_a_known_method_and_graph():
    for name, experiment in EXPERIMENTS.items():
        for cell in experiment.cells:
            assert cell.method in methods.METHODS, name
            assert cell.graph in benchmark_data.LOADERS, name
        told = {method for pair in experiment.against for method in pair}
        assert told <= {cell.method for cell in experiment.cells}, name


@pytest.mark.parametrize("name", ["table2", "table6"])
def test_both_sides_of_an_inductive_comparison_are_tuned_alike(name):
    for one, other in EXPERIMENTS[name].against:
        own, rival = methods.METHODS[one], methods.METHODS[other]
        if own.like or rival.like:
            assert (own.like or one) == (rival.like or other)
        else:
            assert own.space == rival.space


def test_what_two_runs_told_is_compared():
    def record(method, test, budget=None):
        cell = {"method": method, "graph": "Cora", "labels": 20}
        return cell | {"test": test, "n_splits": len(test), "budget": budget}

    experiment = Experiment((), against=[("A", "B"), ("A", "C"), ("A", "D")])
    ours = record("A", [80.0, 81.0, 83.0], {"candidates": 40})
    # The second was chosen by less, and the third tested on fewer splits.
    other = record("B", [79.0, 81.0, 80.0]), record("C", [1.0] * 3, {"candidates": 8})
    stale = ours | {"minus": {"C": {"difference": 9}}}
    records = [stale, *other, record("D", [1.0, 2.0])]
    experiment.compare(records)
    assert list(stale["minus"]) == ["B"]
    assert stale["minus"]["B"]["difference"] == pytest.approx(4 / 3)
    assert all("minus" not in record for record in records[1:])
