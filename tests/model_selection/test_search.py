"""Batched searches: scikit-learn's results, failures, interruptions, distribution."""

import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.callback import ProgressBar
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, PredefinedSplit, RandomizedSearchCV

from sktifa import GNNClassifier, LabeledNodeKFold, TIFAGCLClassifier
from sktifa.exceptions import ParameterError, TrainingError
from sktifa.model_selection import BatchedGridSearchCV, BatchedRandomizedSearchCV
from sktifa.tensors.kernels import cpu

FIXED = {"dropout": 0.0, "device": "cpu", "random_state": 3, "min_iter": 3}


@pytest.fixture(scope="module")
def small(digits):
    return digits.graph.subgraph(np.arange(400)), digits.target[:400]


def counting(monkeypatch):
    """Count the models that are trained, however it is done."""
    from sktifa.model_selection import search

    counts = {"stacked": 0, "alone": 0}
    train, alone = search.engine.train, search._fit_and_score

    def counted_train(problems, *args, **options):
        kind = "alone" if problems[0].why_alone else "stacked"
        counts[kind] += len(problems)
        return train(problems, *args, **options)

    def counted_alone(*args, **kwargs):
        counts["alone"] += 1
        return alone(*args, **kwargs)

    monkeypatch.setattr(search.engine, "train", counted_train)
    monkeypatch.setattr(search, "_fit_and_score", counted_alone)
    return counts


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (
            GNNClassifier(max_iter=15, n_iter_no_change=3, **FIXED),
            [
                {"learning_rate": [0.003, 0.05], "weight_decay": [0.0, 0.02]},
                {"encoder": ["sage", "mlp"], "n_layers": [3], "residual": [True]},
                {"learning_rate_decay": [0.7], "monitor": ["accuracy"]},
                {"early_stopping": [False], "class_weight": ["balanced"]},
                {"feature_norm": ["l2"], "hidden_size": [16]},
            ],
        ),
        (
            TIFAGCLClassifier(
                max_iter=12, n_iter_no_change=4, feature_mask_rate=0.0, **FIXED
            ),
            [
                {"temperature": [0.7, 1.0], "weight_max": [1.0, 3.0]},
                {"pairing": [None, "uniform"], "perturbation": ["uniform"]},
                {"target": ["training"], "pair_weight": [0.3]},
                {"divergence": ["perturbed_to_clean"], "restart_probability": [0.4]},
                {"max_iter": [3], "perturbation_rate": [0.1], "n_positives": [2]},
            ],
        ),
    ],
    ids=["gnn", "tifa"],
)
def test_same_numbers_as_grid_search(small, model, grid, monkeypatch):
    graph, y = small
    counts = counting(monkeypatch)
    options = {
        "cv": LabeledNodeKFold(2),
        "scoring": ["accuracy", "neg_log_loss"],
        "refit": "neg_log_loss",
        "return_train_score": True,
    }
    ours = BatchedGridSearchCV(model, grid, **options).fit(graph, y)
    assert counts == {"stacked": len(ours.cv_results_["params"]) * 2, "alone": 0}
    theirs = GridSearchCV(model, grid, **options).fit(graph, y)
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    for name, values in theirs.cv_results_.items():
        if name.startswith(("split", "mean_t", "std_t")):
            # On the CPU a stack's models are those of `fit`, bit for bit.
            np.testing.assert_array_equal(ours.cv_results_[name], values)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    assert ours.best_params_ == theirs.best_params_
    assert ours.n_splits_ == theirs.n_splits_ == 2
    assert ours.multimetric_ and set(ours.scorer_) == set(theirs.scorer_)
    np.testing.assert_array_equal(ours.predict(graph), theirs.predict(graph))
    assert ours.score(graph, y) == pytest.approx(theirs.score(graph, y))


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_equal_bit_for_bit_with_dropout_and_perturbation(small, batch_size):
    graph, y = small
    few = np.arange(0, 400, 8)
    fold = np.full(400, 0)
    fold[few] = -1
    seeds = {"random_state": list(range(4)), "dropout": [0.3, 0.6]}
    seeds["trust"] = ["cross-fitted", "tifa"]
    model = TIFAGCLClassifier(
        encoder="appnp", max_iter=12, target_information=1.0, device="cpu"
    )
    options = {
        "cv": PredefinedSplit(fold),
        "refit": False,
        "scoring": "neg_log_loss",
    }
    scores = [
        search.fit(graph, y).cv_results_["mean_test_score"]
        for search in (
            BatchedGridSearchCV(model, seeds, batch_size=batch_size, **options),
            GridSearchCV(model, seeds, **options),
        )
    ]
    np.testing.assert_array_equal(*scores)
    assert len(np.unique(scores[0])) > 5


def test_randomized_search_draws_as_scikit_learn_does(small):
    graph, y = small
    model = GNNClassifier(max_iter=8, **FIXED)
    grid = {"learning_rate": [0.001, 0.01, 0.05, 0.1], "weight_decay": [0, 0.1]}
    options = {"n_iter": 5, "cv": LabeledNodeKFold(2), "random_state": 1}
    ours = BatchedRandomizedSearchCV(model, grid, **options).fit(graph, y)
    theirs = RandomizedSearchCV(model, grid, **options).fit(graph, y)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    assert ours.best_params_ == theirs.best_params_
    assert clone(ours).get_params()["n_iter"] == 5


def test_unlabelled_nodes_sample_weight_and_validation_set(small):
    graph, y = small
    y = np.where(np.arange(400) % 3 == 0, y, -1)
    weight = np.random.default_rng(0).uniform(0.1, 2, 400)
    model = GNNClassifier(max_iter=10, **FIXED)
    val = np.flatnonzero(np.arange(400) % 3 == 1)
    given = {"X_val": graph[val], "y_val": np.resize(np.arange(10), len(val))}
    for params in ({"sample_weight": weight}, given):
        results = [
            search(model, {"tol": [0, 0.1]}, cv=LabeledNodeKFold(2), refit=False)
            .fit(graph, y, **params)
            .cv_results_["split1_test_score"]
            for search in (BatchedGridSearchCV, GridSearchCV)
        ]
        np.testing.assert_allclose(*results, atol=0.016)


def test_what_cannot_be_stacked_is_fitted_one_by_one_and_said(small, monkeypatch):
    graph, y = small
    counts = counting(monkeypatch)
    grid = {"encoder": ["gcn", "gat"], "sampler": [None, "saint-rw"]}
    model = GNNClassifier(max_iter=3, device="cpu", random_state=0)
    with pytest.warns(UserWarning, match="one by one") as caught:
        search = BatchedGridSearchCV(model, grid, cv=LabeledNodeKFold(2)).fit(graph, y)
    assert counts == {"stacked": 2, "alone": 6}
    text = " ".join(str(w.message) for w in caught)
    assert "encoder='gat'" in text and "sampler='saint-rw'" in text
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    X = np.asarray(graph)
    with pytest.warns(UserWarning, match="LogisticRegression"):
        BatchedGridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2).fit(X, y)


def test_a_failed_candidate_scores_error_score_and_says_why(small):
    graph, y = small
    model = TIFAGCLClassifier(max_iter=3, device="cpu", random_state=0)
    grid = {"weight_min": [0.2, 9.0], "hidden_size": [8]}
    search = BatchedGridSearchCV(model, grid, cv=LabeledNodeKFold(2), error_score=-1.0)
    with pytest.warns(FitFailedWarning, match=r"weight_min=9.0 is above weight_max"):
        search.fit(graph, y)
    assert search.cv_results_["mean_test_score"][1] == -1
    assert search.best_params_["weight_min"] == 0.2
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        clone(search).set_params(param_grid={"weight_min": [9.0]}).fit(graph, y)
    with pytest.raises(ValueError, match="weight_min=9.0"):
        clone(search).set_params(error_score="raise").fit(graph, y)


def test_a_diverging_model_leaves_the_others_alone(small):
    graph, y = small
    model = GNNClassifier(max_iter=10, **FIXED)
    cv = LabeledNodeKFold(2)
    grid = {"learning_rate": [0.01, 1e38]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        both = BatchedGridSearchCV(model, grid, cv=cv, refit=False).fit(graph, y)
        grid = {"learning_rate": [0.01]}
        one = BatchedGridSearchCV(model, grid, cv=cv, refit=False).fit(graph, y)
    assert (
        both.cv_results_["mean_test_score"][0] == one.cv_results_["mean_test_score"][0]
    )
    huge = graph.with_features(np.full((400, 300), 3e38, dtype=np.float32))
    with pytest.raises(TrainingError, match="first training loss"):
        BatchedGridSearchCV(model, grid, cv=cv, error_score="raise").fit(huge, y)


def test_an_interrupted_search_goes_on(small, tmp_path, monkeypatch):
    from sktifa.model_selection import search

    graph, y = small
    path = tmp_path / "deep" / "results.jsonl"
    model = TIFAGCLClassifier(max_iter=4, device="cpu", random_state=0)
    batched = BatchedGridSearchCV(
        model,
        {"learning_rate": [0.001, 0.01, 0.05]},
        cv=LabeledNodeKFold(2),
        batch_size=2,
        checkpoint=path,
        refit=False,
    )
    expected = clone(batched).set_params(checkpoint=None).fit(graph, y).cv_results_
    train, calls = search.engine.train, []

    def breaks(problems, *args, **options):
        calls.append(len(problems))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(problems, *args, **options)

    monkeypatch.setattr(search.engine, "train", breaks)
    with pytest.raises(KeyboardInterrupt):
        batched.fit(graph, y)
    lines = path.read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0])["parameters"] == {"learning_rate": 0.001}
    with path.open("a") as file:
        file.write('{"key": "half a li')
    batched.fit(graph, y)
    assert calls == [2, 2, 2, 2]
    for name in ("split0_test_score", "split1_test_score"):
        np.testing.assert_array_equal(batched.cv_results_[name], expected[name])
    # All is known now; another seed, other labels or another graph is not.
    batched.fit(graph, y)
    assert len(calls) == 4
    other = model.set_params(random_state=1)
    batched.set_params(estimator=other).fit(graph, y)
    assert len(calls) == 7
    batched.fit(graph, y[::-1].copy())
    assert len(calls) == 10


def test_a_checkpoint_knows_scorers_again_and_forgets_failed_scores(small, tmp_path):
    graph, y = small
    broken = True

    def metric(y_true, y_pred):
        if broken:
            raise RuntimeError("disk full")
        return (y_true == y_pred).mean()

    def scorer(estimator, X, y):
        return metric(y, estimator.predict(X))

    path = tmp_path / "scores.jsonl"
    search = BatchedGridSearchCV(
        GNNClassifier(max_iter=3, device="cpu", random_state=0),
        {"dropout": [0.1, 0.2]},
        cv=LabeledNodeKFold(2),
        refit=False,
        scoring=scorer,
        checkpoint=path,
    )
    with pytest.warns(UserWarning, match="Scoring failed"):
        search.fit(graph, y)
    assert not path.read_text()
    broken = False
    search.fit(graph, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(path.read_text().splitlines()) == 4
    other = clone(search).set_params(scoring=make_scorer(accuracy_score))
    for lines in (8, 8):
        other.fit(graph, y)
        assert len(path.read_text().splitlines()) == lines
    unseeded = LabeledNodeKFold(2, shuffle=True)
    with pytest.warns(UserWarning, match="cv has no random_state"):
        clone(other).set_params(cv=unseeded).fit(graph, y)
    with pytest.raises(ParameterError, match="folder"):
        clone(other).set_params(checkpoint=tmp_path).fit(graph, y)


def test_whole_numbers_are_rates_too(small):
    graph, y = small
    model = TIFAGCLClassifier(max_iter=3, device="cpu", random_state=0)
    grid = {"feature_mask_rate": [0, 1], "dropout": [0]}
    search = BatchedGridSearchCV(
        model, grid, cv=LabeledNodeKFold(2), error_score="raise", refit=False
    ).fit(graph, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_progress_bar_counts_candidates_and_folds(small, capsys):
    graph, y = small
    model = GNNClassifier(max_iter=3, device="cpu")
    search = BatchedGridSearchCV(
        model, {"tol": [0, 0.1], "encoder": ["gcn", "gat"]}, cv=LabeledNodeKFold(2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.set_callbacks(ProgressBar()).fit(graph, y)
    shown = capsys.readouterr().out
    assert "search" in shown and "GNNClassifier" in shown


class Recorder:
    def __init__(self):
        self.tasks = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context):
        self.tasks.append(("end", context.task_name, context.task_id))


def test_callbacks_are_called_as_by_grid_search(small):
    graph, y = small
    calls = []
    for search in (BatchedGridSearchCV, GridSearchCV):
        recorder = Recorder()
        search(
            GNNClassifier(max_iter=3, device="cpu"),
            {"tol": [0, 0.1]},
            cv=LabeledNodeKFold(2),
        ).set_callbacks(recorder).fit(graph, y)
        calls.append(recorder.tasks)
    assert sorted(calls[0]) == sorted(calls[1])
    assert calls[0][0] == calls[1][0] and calls[0][-1] == calls[1][-1]


@pytest.mark.slow
def test_processes_share_the_work(small):
    graph, y = small
    model = GNNClassifier(max_iter=5, **FIXED)
    grid = {"learning_rate": [0.01, 0.02, 0.05]}
    results = [
        BatchedGridSearchCV(
            model, grid, cv=LabeledNodeKFold(2), n_jobs=n_jobs, batch_size=2
        )
        .fit(graph, y)
        .cv_results_["mean_test_score"]
        for n_jobs in (None, 2)
    ]
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("features", ["sparse", "dense"])
def test_a_model_is_the_same_whatever_is_trained_beside_it(small, features):
    graph, y = small
    if features == "dense":
        rng = np.random.default_rng(0)
        graph = graph.with_features(rng.normal(size=(400, 9)))
    model = TIFAGCLClassifier(max_iter=12, device="cpu", random_state=0)
    grid = {"learning_rate": [0.01, 0.03], "dropout": [0.2, 0.6], "n_layers": [3]}
    scores = [
        BatchedGridSearchCV(
            model,
            grid,
            cv=LabeledNodeKFold(2),
            scoring="neg_log_loss",
            batch_size=size,
            refit=False,
        )
        .fit(graph, y)
        .cv_results_["split0_test_score"]
        for size in (None, 1, 3)
    ]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4)
    np.testing.assert_allclose(scores[2], scores[0], rtol=1e-4)
    assert len(np.unique(scores[0].round(4))) == 4


def test_ctrl_c_ends_the_threads_too(small, monkeypatch):
    from sktifa.training import engine

    graph, y = small
    model = GNNClassifier(max_iter=100_000, early_stopping=False, device="cpu")
    run, started, ended = engine.Run.loop, [], []

    def noted(stack, *args):
        started.append(stack)
        if len(started) == 2:
            raise KeyboardInterrupt
        try:
            run(stack, *args)
        finally:
            ended.append(stack)

    monkeypatch.setattr(engine.Run, "loop", noted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    grid = {"learning_rate": [0.01, 0.03]}
    before = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        BatchedGridSearchCV(model, grid, cv=LabeledNodeKFold(2)).fit(graph, y)
    assert len(ended) == 1  # though it had 100,000 epochs to go
    assert torch.get_num_threads() == before


def test_searches_in_two_threads_leave_pytorch_its_threads(small):
    graph, y = small

    def threads_of_a_new_thread():
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    def search(seed):
        model = GNNClassifier(max_iter=40, device="cpu", random_state=seed)
        grid = {"learning_rate": [0.01, 0.03]}
        cv = LabeledNodeKFold(2)
        return BatchedGridSearchCV(model, grid, cv=cv, refit=False).fit(graph, y)

    before = torch.get_num_threads(), threads_of_a_new_thread()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(search, range(4)))
    assert (torch.get_num_threads(), threads_of_a_new_thread()) == before


def test_who_trains_the_last_models_has_all_threads(small, monkeypatch):
    graph, y = small
    model = TIFAGCLClassifier(device="cpu", random_state=0, early_stopping=False)
    grid, cv = {"max_iter": [2, 30]}, LabeledNodeKFold(2)
    expected = GridSearchCV(model, grid, cv=cv, refit=False).fit(graph, y)
    asked, threads = [], cpu._threads

    def noted():
        asked.append(threads())
        return asked[-1]

    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(cpu, "_threads", noted)
    monkeypatch.setattr(cpu, "_LEAST", 1)  # the graph is small
    batched = BatchedGridSearchCV(model, grid, cv=cv, refit=False).fit(graph, y)
    assert set(asked) == {1, 2}
    name = "mean_test_score"
    np.testing.assert_array_equal(batched.cv_results_[name], expected.cv_results_[name])


def test_deep_networks_with_dropout(small):
    graph, y = small
    model = TIFAGCLClassifier(
        n_layers=24, residual=True, max_iter=2, device="cpu", random_state=0
    )
    search = BatchedGridSearchCV(
        model, {"dropout": [0.5]}, cv=LabeledNodeKFold(2), error_score="raise"
    ).fit(graph, y)
    assert np.isfinite(search.best_score_)


@pytest.mark.cuda
def test_gpu_finds_what_the_cpu_finds(small, gpu):
    graph, y = small
    grid = {"learning_rate": [0.01, 0.03], "pairing": ["tifa", None]}
    # Perturbations are drawn otherwise on a GPU.
    model = TIFAGCLClassifier(
        max_iter=15, feature_mask_rate=0.0, perturbed_nodes=0.0, **FIXED
    )
    scores = [
        BatchedGridSearchCV(
            clone(model).set_params(device=device),
            grid,
            cv=LabeledNodeKFold(2),
            scoring="neg_log_loss",
            refit=False,
        )
        .fit(graph, y)
        .cv_results_["mean_test_score"]
        for device in ("cpu", gpu)
    ]
    np.testing.assert_allclose(*scores, atol=5e-3)
