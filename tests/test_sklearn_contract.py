"""scikit-learn's contract: its own checks, and a graph in everything it offers."""

import copy
import warnings

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    PredefinedSplit,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from sktifa import (
    GNNClassifier,
    Graph,
    LabeledNodeKFold,
    LabeledNodeShuffleSplit,
    LabelPropagationTIG,
    NeighborSampler,
    OnFeatures,
    SAINTTIFASampler,
    TIFAGCLClassifier,
)
from sktifa.exceptions import LabelError

# Checks that an estimator is known to fail, each with its reason.
UNLABELED = {
    "check_classifiers_classes": "-1 means unlabelled, and the check uses it as a class"
}
EXPECTED_FAILURES = {
    GNNClassifier: UNLABELED,
    TIFAGCLClassifier: UNLABELED,
    LabelPropagationTIG: dict.fromkeys(
        ["check_transformer_general", "check_transformer_data_not_an_array"],
        "fit_transform is cross-fitted so that a labelled node never sees its own "
        "label; scikit-learn excuses TargetEncoder for the same",
    ),
    SAINTTIFASampler: {},
    NeighborSampler: {},
    OnFeatures: {},
}
FAST = {"max_iter": 40, "device": "cpu", "random_state": 0}


@pytest.mark.parametrize(
    "estimator",
    [
        GNNClassifier(**{**FAST, "max_iter": 60}),
        TIFAGCLClassifier(**{**FAST, "max_iter": 60}),
        LabelPropagationTIG(device="cpu"),
        SAINTTIFASampler(device="cpu"),
        NeighborSampler(),
        OnFeatures(StandardScaler()),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_check_estimator(estimator):
    expected = EXPECTED_FAILURES[type(estimator)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            estimator, expected_failed_checks=expected, on_fail=None, on_skip=None
        )
    by_status = {"failed": {}, "xfail": {}, "skipped": {}, "passed": {}}
    for result in results:
        by_status[result["status"]][result["check_name"]] = repr(result["exception"])
    assert not by_status["failed"]
    # What is listed must really fail, and hardly anything may be skipped.
    assert set(by_status["xfail"]) == set(expected)
    assert len(by_status["skipped"]) <= 1, by_status["skipped"]
    assert len(by_status["passed"]) > 30


@pytest.fixture(scope="module")
def part(cora):
    """A real graph small enough to fit often: three classes of Cora, half labelled."""
    graph = cora.graph.subgraph(np.flatnonzero(np.isin(cora.target, [0, 1, 2])))
    y = cora.target[graph.parent_nodes]
    labeled = np.flatnonzero(np.random.default_rng(0).random(len(y)) < 0.3)
    return graph, y, labeled


@pytest.mark.parametrize(
    "model", [GNNClassifier(**FAST), TIFAGCLClassifier(**FAST)], ids=["gcn", "tifa"]
)
class TestMetaEstimators:
    """A selection ``graph[labeled]`` is X everywhere; the whole graph comes along."""

    def test_grid_search(self, model, part):
        graph, y, labeled = part
        search = GridSearchCV(model, {"hidden_size": [8, 32]}, cv=3)
        search.fit(graph[labeled], y[labeled])
        assert search.best_score_ > 0.7
        assert len(search.predict(graph)) == graph.n_nodes

    def test_grid_search_in_two_processes(self, model, part):
        graph, y, labeled = part
        grid = {"hidden_size": [8, 32]}
        scores = [
            GridSearchCV(model, grid, cv=3, n_jobs=n_jobs)
            .fit(graph[labeled], y[labeled])
            .cv_results_["mean_test_score"]
            for n_jobs in (1, 2)
        ]
        np.testing.assert_allclose(*scores, atol=0.02)

    def test_other_searches(self, model, part):
        graph, y, labeled = part
        for search in (
            RandomizedSearchCV(
                model, {"dropout": [0.2, 0.5, 0.7]}, n_iter=2, cv=2, random_state=0
            ),
            HalvingGridSearchCV(
                model,
                {"learning_rate": [0.01, 0.02, 0.03]},
                cv=2,
                resource="max_iter",
                min_resources=10,
                max_resources=30,
            ),
        ):
            search.fit(graph[labeled], y[labeled])
            assert search.best_score_ > 0.5

    def test_masked_labels_with_our_splitter(self, model, part):
        graph, y, labeled = part
        masked = np.full_like(y, -1)
        masked[labeled] = y[labeled]
        splitter = LabeledNodeKFold(3, random_state=0)
        scores = cross_val_score(model, graph, masked, cv=splitter)
        assert scores.min() > 0.6
        shuffled = LabeledNodeShuffleSplit(
            2, train_per_class=20, val_per_class=10, random_state=0
        )
        assert cross_val_score(model, graph, masked, cv=shuffled).min() > 0.5

    def test_predefined_split(self, model, part):
        graph, y, labeled = part
        fold = np.where(np.arange(len(labeled)) % 3 == 0, 0, -1)
        search = GridSearchCV(
            model, {"hidden_size": [8, 16]}, cv=PredefinedSplit(fold)
        ).fit(graph[labeled], y[labeled])
        assert search.n_splits_ == 1

    def test_cross_validation_functions(self, model, part):
        graph, y, labeled = part
        X, y = graph[labeled], y[labeled]
        predicted = cross_val_predict(model, X, y, cv=2, method="predict_proba")
        assert predicted.shape == (len(labeled), 3)
        result = cross_validate(model, X, y, cv=2, return_estimator=True)
        assert len(result["estimator"]) == 2
        sizes, train, test = learning_curve(model, X, y, cv=2, train_sizes=[0.5, 1.0])
        assert test.shape == (2, 2)
        train, test = validation_curve(
            model, X, y, param_name="dropout", param_range=[0.2, 0.6], cv=2
        )
        assert test.shape == (2, 2)

    def test_ensembles(self, model, part):
        graph, y, labeled = part
        X, y_labeled = graph[labeled], y[labeled]
        named = [("a", model), ("b", clone(model).set_params(random_state=1))]
        for meta in (
            VotingClassifier(named, voting="soft"),
            StackingClassifier(named, LogisticRegression(), cv=2),
            StackingClassifier(named[:1], LogisticRegression(), cv=2, passthrough=True),
            CalibratedClassifierCV(model, cv=2),
            OneVsRestClassifier(model),
        ):
            meta.fit(X, y_labeled)
            assert meta.score(graph, y) > 0.6, type(meta).__name__

    def test_tuned_threshold(self, model, part):
        graph, y, labeled = part
        binary = (y == 1).astype(int)
        meta = TunedThresholdClassifierCV(model, cv=2)
        meta.fit(graph[labeled], binary[labeled])
        assert meta.score(graph, binary) > 0.7
        assert meta.estimator_.decision_function(graph).ndim == 1

    def test_pipeline_of_graph_transformer_and_classifier(self, model, part):
        graph, y, labeled = part
        pipe = make_pipeline(LabelPropagationTIG(as_graph=True, device="cpu"), model)
        pipe.fit(graph[labeled], y[labeled])
        assert pipe.score(graph, y) > 0.7
        assert pipe[-1].n_features_in_ == graph.n_features + 3 + 3
        name = f"{type(model).__name__.lower()}__hidden_size"
        search = GridSearchCV(pipe, {name: [8, 16]}, cv=2)
        assert search.fit(graph[labeled], y[labeled]).best_score_ > 0.5

    def test_clone_shares_the_graph_and_html_repr_renders(self, model, part):
        graph, _, _ = part
        assert clone(graph, safe=False) is graph
        assert type(model).__name__ in model._repr_html_()

    def test_persistence(self, model, part, tmp_path):
        graph, y, labeled = part
        fitted = clone(model).fit(graph[labeled], y[labeled])
        joblib.dump(fitted, tmp_path / "model.joblib")
        loaded = joblib.load(tmp_path / "model.joblib")
        np.testing.assert_array_equal(
            loaded.predict_proba(graph), fitted.predict_proba(graph)
        )

    def test_scoring_monitor_and_progress_bar(self, model, part, capsys):
        graph, y, labeled = part
        monitor = ScoringMonitor(scoring="accuracy")
        fitted = clone(model).set_params(max_iter=5)
        fitted.set_callbacks(monitor, ProgressBar())
        fitted.fit(graph[labeled], y[labeled])
        epochs = [row for row in monitor.get_logs().data if row["task_name"] == "epoch"]
        assert len(epochs) == 5
        assert all(0 <= row["accuracy"] <= 1 for row in epochs)
        search = GridSearchCV(clone(model).set_params(max_iter=3), {}, cv=2)
        search.set_callbacks(ProgressBar())
        search.fit(graph[labeled], y[labeled])

    def test_a_callback_stops_training(self, model, part):
        graph, y, labeled = part
        fitted = clone(model).set_callbacks(_StopAfter(4))
        fitted.fit(graph[labeled], y[labeled])
        assert fitted.n_iter_ == 4
        assert len(fitted.loss_curve_) == 4


class _StopAfter:
    def __init__(self, n_epochs):
        self.n_epochs, self.seen = n_epochs, 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.seen += 1
        return self.seen >= self.n_epochs


def test_label_propagation_feeds_any_classifier(part):
    graph, y, labeled = part
    pipe = make_pipeline(LabelPropagationTIG(device="cpu"), LogisticRegression())
    pipe.fit(graph[labeled], y[labeled])
    assert pipe.score(graph, y) > 0.7


def _local_encoder():
    class Local(nn.Linear):
        def forward(self, x, edge_index):
            return super().forward(x)

    return Local


def test_an_encoder_of_a_notebook_travels(part):
    """A class that no module has: copied, and sent to two processes and back."""
    graph, y, labeled = part
    X, y_labeled = graph[labeled], y[labeled]
    model = GNNClassifier(_local_encoder(), **FAST).fit(X, y_labeled)
    copied = copy.deepcopy(model)
    np.testing.assert_array_equal(copied.predict(graph), model.predict(graph))
    vote = VotingClassifier([("a", clone(model)), ("b", clone(model))], n_jobs=2)
    np.testing.assert_array_equal(
        vote.fit(X, y_labeled).predict(graph), model.predict(graph)
    )


class _Interrupted(nn.Linear):
    """Ctrl-C in the second epoch of each fit."""

    fits = 0

    def forward(self, x, edge_index):
        if self.training:
            self.epochs = getattr(self, "epochs", 0) + 1
            if self.epochs == 2:
                _Interrupted.fits += 1
                raise KeyboardInterrupt
        return super().forward(x)


@pytest.mark.filterwarnings("ignore:Training interrupted")
@pytest.mark.parametrize(
    ("loop", "presses"),
    [
        (lambda model, X, y: cross_val_score(model, X, y, cv=2), 1),
        (lambda model, X, y: CalibratedClassifierCV(model, cv=2).fit(X, y), 1),
        (lambda model, X, y: OneVsRestClassifier(model).fit(X, y), 1),
        (
            lambda model, X, y: VotingClassifier([("a", model), ("b", model)]).fit(
                X, y
            ),
            1,
        ),
        (lambda model, X, y: [clone(model).fit(X, y) for _ in range(9)], 2),
    ],
    ids=["cross-validation", "calibration", "one against rest", "vote", "own loop"],
)
def test_ctrl_c_ends_a_loop_of_fits(loop, presses, part):
    """scikit-learn's with the first, the user's own when it is pressed again."""
    graph, y, labeled = part
    X, y = graph[labeled], y[labeled]
    GNNClassifier(max_iter=1, device="cpu").fit(X, y)
    model = GNNClassifier(_Interrupted, max_iter=5, device="cpu")
    _Interrupted.fits = 0
    with pytest.raises(KeyboardInterrupt):
        loop(model, X, y)
    assert _Interrupted.fits == presses
    # A fit by itself keeps its model, in a pipeline too.
    GNNClassifier(max_iter=1, device="cpu").fit(X, y)
    pipe = make_pipeline(OnFeatures(StandardScaler()), model).fit(X, y)
    assert pipe[-1].n_iter_ == 1
    # Pressed again, it ends the loop; the model is kept all the same.
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert len(model.predict(graph)) == graph.n_nodes


@pytest.mark.parametrize("fitted", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    "model", [GNNClassifier(**FAST), LabelPropagationTIG(device="cpu")]
)
def test_rows_may_come_dense_where_they_were_sparse(fitted, model):
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    model = clone(model).fit(fitted(X), y)
    method = getattr(model, "predict_proba", None) or model.transform
    np.testing.assert_allclose(
        method(sparse.csr_array(X[::7])), method(X[::7]), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("model", [GNNClassifier(**FAST), TIFAGCLClassifier(**FAST)])
def test_messages_speak_of_what_was_given(model, part):
    graph, y, labeled = part
    X, y = graph[labeled], y[labeled]
    with pytest.raises(LabelError, match="y_val has 3 entries"):
        model.fit(X, y, X_val=X, y_val=y[:3])
    with pytest.raises(LabelError, match=r"y_val\[0\] is 0.5"):
        model.fit(X, y, X_val=X, y_val=np.full(len(y), 0.5))
    with pytest.raises(LabelError, match="has a label in y_val"):
        model.fit(X, y, X_val=X, y_val=np.full(len(y), -1))
    with pytest.raises(LabelError, match="y_val has the class 9"):
        model.fit(X, y, X_val=X, y_val=np.full(len(y), 9))
    with pytest.raises(LabelError, match="y_val has labels like 'a'"):
        model.fit(X, y, X_val=X, y_val=np.full(len(y), "a"))
    model = clone(model).set_params(max_iter=2)
    model.fit(X, y, sample_weight=np.ones(len(y), dtype=object))
    with pytest.raises(LabelError, match="y has 3 entries"):
        model.score(X, y[:3])
    with pytest.raises(LabelError, match=r"sample_weight has shape \(3,\)"):
        model.score(X, y, sample_weight=[1, 1, 1])
    with pytest.raises(LabelError, match="zero for every node"):
        model.score(X, y, sample_weight=np.zeros(len(y)))
    masked = np.where(np.arange(len(y)) > 3, y, -1)
    with pytest.raises(LabelError, match="no labelled node has a sample_weight"):
        model.score(X, masked, sample_weight=masked == -1)
    with pytest.raises(LabelError, match="y has labels like '0'"):
        model.score(X, y.astype(str))


def test_what_scikit_learn_cannot_tell_from_a_class(part):
    """Unlabelled nodes count as a class for most of it: refused, with the mend."""
    graph, y, labeled = part
    masked = np.full_like(y, -1)
    masked[labeled] = y[labeled]
    model = GNNClassifier(**FAST)
    for meta in (
        VotingClassifier([("a", model)]),
        StackingClassifier([("a", model)], cv=2),
        CalibratedClassifierCV(model, cv=2),
        OneVsRestClassifier(model),
        OneVsRestClassifier(model, n_jobs=2),
    ):
        name = type(meta).__name__
        with pytest.raises(LabelError, match=rf"{name} takes -1 for one more class"):
            meta.fit(graph, masked)
    # A pipeline and a search pass them on; our score, and somebody's own, know them.
    pipe = make_pipeline(OnFeatures(StandardScaler()), model).fit(graph, masked)
    assert pipe.score(graph, masked) > 0.7
    with pytest.raises(LabelError, match="accuracy_score takes -1 for one more class"):
        get_scorer("accuracy")(pipe, graph, masked)

    def of_labelled(y_true, y_pred):
        return np.mean(y_true[y_true >= 0] == y_pred[y_true >= 0])

    own = make_scorer(of_labelled)
    assert own(pipe, graph, masked) == pytest.approx(pipe.score(graph, masked))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_plain_arrays_go_through_a_neighbor_graph(container):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    masked = np.full_like(y, -1)
    masked[::20] = y[::20]
    model = TIFAGCLClassifier(**FAST).fit(container(X), masked)
    assert model.score(container(X), y) > 0.85
    # New rows look at the training rows only: any batch of them gives the same.
    together = model.predict_proba(container(X[:6]))
    alone = np.vstack([model.predict_proba(container(X[i : i + 1])) for i in range(6)])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_read_only_memory_maps_are_not_written_to(part, tmp_path):
    graph, y, labeled = part
    joblib.dump((graph, y), tmp_path / "graph.joblib")
    mapped, y_mapped = joblib.load(tmp_path / "graph.joblib", mmap_mode="r")
    assert isinstance(mapped, Graph)
    model = TIFAGCLClassifier(**FAST).fit(mapped[labeled], y_mapped[labeled])
    assert model.fit(graph[labeled], y[labeled]).score(mapped, y_mapped) > 0.6
