"""Networks that are trained first and teach the one that is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from sktifa import SAINTTIFASampler, TIFAGCLClassifier, make_block_graph
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
        fitted._logits(data.graph),
        np.float32(expected.logits),
    )
    assert fitted.n_iter_ == 12
    untaught = model(n_teachers=0).fit(data.graph, y)
    assert not np.array_equal(fitted._logits(data.graph), untaught._logits(data.graph))


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


def test_sampled_training_has_no_teachers(data, y):
    sampled = model(sampler=SAINTTIFASampler(20))
    with pytest.raises(ParameterError, match=r"n_teachers=2 .* set n_teachers=0"):
        sampled.fit(data.graph, y)


def test_an_interrupt_of_a_teacher_keeps_the_teacher(data, y, monkeypatch):
    loop, begun = engine.Run.loop, []

    def interrupted(run, reader, history):
        begun.append(run)
        monkeypatch.setattr(run.source, "advance", lambda: _advance(run))
        loop(run, reader, history)

    def _advance(run):
        if len(begun) == 2 and int(run.epoch) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(engine.Run, "loop", interrupted)
    with pytest.warns(match="interrupted after 5 epochs"):
        fitted = model().fit(data.graph, y)
    assert len(begun) == 2
    assert fitted.n_iter_ == 5
    assert fitted.predict(data.graph).shape == (240,)


def test_a_teacher_that_can_not_be_trained_is_an_error(data, y):
    with pytest.raises(TrainingError, match="the first training loss is"):
        model(weight_max=1e39).fit(data.graph, y)
