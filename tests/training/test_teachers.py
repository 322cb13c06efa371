"""Networks that are trained first and teach the one that is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.model_selection import StratifiedKFold

from sktifa import SAINTTIFASampler, TIFAGCLClassifier, callers, make_block_graph
from sktifa.classifiers.prepare import prepare
from sktifa.exceptions import ParameterError, TrainingError
from sktifa.model_selection import BatchedGridSearchCV
from sktifa.training import engine

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data():
    return make_block_graph(240, 3, random_state=0)


@pytest.fixture(scope="module")
def y(data):
    hidden = np.full(240, -1)
    hidden[::8] = data.target[::8]
    return hidden


def model(**parameters) -> TIFAGCLClassifier:
    settings = {"max_iter": 12, "hidden_size": 8, "n_teachers": 2, "device": "cpu"}
    return TIFAGCLClassifier(**settings | {"random_state": 3} | parameters)


def test_the_lesson_is_the_sharpened_mean_of_what_teachers_predict(data, y):
    problem = prepare(model(), data.graph, y, CPU)
    first, second = (
        np.random.default_rng(i).normal(size=(240, 3)).astype(np.float32)
        for i in (1, 2)
    )
    *others, lesson = problem.taught([first, second]).terms
    assert tuple(others) == problem.terms

    def probabilities(logits):
        powers = np.exp(logits.astype(float))
        return powers / powers.sum(1, keepdims=True)

    cubed = ((probabilities(first) + probabilities(second)) / 2) ** 3
    expected = cubed / cubed.sum(1, keepdims=True)
    np.testing.assert_allclose(lesson.lesson.numpy(), expected, rtol=1e-5)


def test_a_taught_fit_is_a_fit_of_what_its_teachers_become(data, y):
    problem = prepare(model(), data.graph, y, CPU)
    assert len({one.encoder_seed for one in (problem, *problem.teachers)}) == 3
    assert len({one.perturbations.seed for one in (problem, *problem.teachers)}) == 3
    lessons = [
        engine.train([one], CPU, with_logits=True)[0].logits for one in problem.teachers
    ]
    (expected,) = engine.train([problem.taught(lessons)], CPU, with_logits=True)
    fitted = model().fit(data.graph, y)
    np.testing.assert_array_equal(
        fitted._scores(data.graph),
        np.float32(expected.logits),
    )
    assert fitted.n_iter_ == 12
    untaught = model(n_teachers=0).fit(data.graph, y)
    assert not np.array_equal(fitted._scores(data.graph), untaught._scores(data.graph))


def test_a_search_scores_what_fit_makes(data, y):
    """Bit for bit, in stacks of taught and of untaught models."""
    grid = {"n_teachers": [0, 1, 2], "learning_rate": [0.01, 0.02]}
    nodes, labels = data.graph[y >= 0], y[y >= 0]
    folds = list(StratifiedKFold(2).split(labels, labels))
    search = BatchedGridSearchCV(model(), grid, cv=folds, refit=False)
    results = search.fit(nodes, labels).cv_results_
    for place, parameters in enumerate(results["params"]):
        for number, (train, test) in enumerate(folds):
            alone = model(**parameters).fit(nodes[train], labels[train])
            score = alone.score(nodes[test], labels[test])
            assert score == results[f"split{number}_test_score"][place]


class Unfit(SAINTTIFASampler):
    def fit(self, *arguments, **more):
        raise AssertionError("fitted in vain")


@pytest.mark.parametrize("sampler", [Unfit(20), "saint-tifa", "auto"])
def test_sampled_training_has_no_teachers_and_says_so_at_once(
    data, y, monkeypatch, sampler
):
    monkeypatch.setattr("sktifa.classifiers.prepare.free_memory", lambda device: 0)
    monkeypatch.setattr("sktifa.classifiers.prepare.SAINTTIFASampler", Unfit)
    with pytest.raises(ParameterError, match=r"n_teachers=2 .* set n_teachers=0"):
        model(sampler=sampler).fit(data.graph, y)


@pytest.fixture
def interrupt(monkeypatch):
    """Press Ctrl-C in the fifth epoch of one of the networks."""
    loop, begun = engine.Run.loop, []

    def at(network):
        def interrupted(run, reader, history):
            begun.append(run)
            monkeypatch.setattr(run.source, "advance", lambda: advance(run))
            loop(run, reader, history)

        def advance(run):
            if len(begun) == network and int(run.epoch) == 5:
                raise KeyboardInterrupt

        monkeypatch.setattr(engine.Run, "loop", interrupted)

    yield at
    # Two interrupted fits in a row end the loop that they are in.
    callers._last_was_interrupted = False


@pytest.mark.parametrize(
    ("network", "message", "n_iter"),
    [
        (1, "^Teacher 1: Training interrupted after 5 epochs; the model of", 5),
        (2, "^Teacher 1: Training interrupted; this network is kept", 12),
        (3, "^Training interrupted after 5 epochs; the model of epoch", 5),
    ],
)
def test_an_interrupt_keeps_the_model_or_else_the_first_teacher(
    data, y, interrupt, network, message, n_iter
):
    interrupt(network)
    with pytest.warns(match=message) as told:
        fitted = model().fit(data.graph, y)
    assert {warning.filename for warning in told} == {__file__}
    assert fitted.n_iter_ == len(fitted.loss_curve_) == n_iter
    assert np.isfinite(fitted.predict_proba(data.graph)).all()
    if network == 2:
        teacher = prepare(model(), data.graph, y, CPU).teachers[0]
        (expected,) = engine.train([teacher], CPU, with_logits=True)
        np.testing.assert_array_equal(fitted._scores(data.graph), expected.logits)


@pytest.mark.parametrize("network", [1, 2])
def test_an_interrupt_of_a_teacher_leaves_what_a_warm_start_goes_on_from(
    data, y, interrupt, network
):
    fitted = model(n_teachers=0, warm_start=True, verbose=100).fit(data.graph, y)
    before = fitted.predict_proba(data.graph)
    fitted.set_params(n_teachers=2)
    interrupt(network)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(data.graph, y)
    np.testing.assert_array_equal(fitted.predict_proba(data.graph), before)


def test_a_warm_start_goes_on_taught(data, y):
    fitted = model(warm_start=True).fit(data.graph, y)
    before = fitted.predict_proba(data.graph)
    fitted.set_params(learning_rate=1e-12).fit(data.graph, y)
    np.testing.assert_allclose(fitted.predict_proba(data.graph), before, atol=1e-6)


def test_verbose_tells_whose_epochs_these_are(data, y, capsys):
    model(verbose=6).fit(data.graph, y)
    told = [line.split(": loss")[0] for line in capsys.readouterr().out.splitlines()]
    assert told == [
        f"transductive, {network}epoch {epoch}"
        for network in ("teacher 1, ", "teacher 2, ", "")
        for epoch in (6, 12)
    ]


class Told:
    def __init__(self):
        self.ended = []

    def setup(self, estimator, context):
        self.n_expected = context.max_subtasks

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.ended.append((context.task_name, fitted_estimator is not None))


def test_callbacks_hear_of_every_epoch_and_see_the_model_alone(data, y):
    told, scores = Told(), ScoringMonitor(scoring="accuracy")
    fitted = model().set_callbacks(told, scores, ProgressBar())
    fitted.fit(data.graph, y)
    teachers, epochs = [("teacher epoch", False)] * 24, [("epoch", True)] * 12
    assert told.ended == [*teachers, *epochs, ("fit", True)]
    assert told.n_expected == 36
    rows = [row for row in scores.get_logs().data if row["task_name"] == "epoch"]
    assert len(rows) == len(fitted.loss_curve_) == 12


def test_a_warning_tells_which_teacher_it_is_of(data, y, monkeypatch):
    update = engine.Run.update

    def updated(run):
        update(run)
        if run.all[0].teacher == 2 and int(run.epoch) == 4:
            run.last_loss.fill_(torch.nan)

    monkeypatch.setattr(engine.Run, "update", updated)
    with pytest.warns(match="^Teacher 2: The loss became nan in epoch 4"):
        fitted = model().fit(data.graph, y)
    assert fitted.n_iter_ == 12


def test_a_teacher_that_can_not_be_trained_is_an_error(data, y):
    with pytest.raises(TrainingError, match="the first training loss is"):
        model(weight_max=1e39).fit(data.graph, y)
