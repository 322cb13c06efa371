"""The classifiers on real graphs, and what they promise about themselves."""

import pickle
import warnings
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from torch import nn

from sktifa import GNNClassifier, Graph, TIFAGCLClassifier, paper_preset
from sktifa.exceptions import (
    GraphError,
    LabelError,
    NotEnoughMemoryError,
    ParameterError,
    TrainingError,
)
from sktifa.information.tig import annotated_information, information_gain

UNIFORM = {"weighting": "uniform", "perturbation": "uniform", "pairing": "uniform"}
QUICK = {"max_iter": 20, "device": "cpu", "random_state": 0}


def split(y, per_class=20, seed=0):
    rng = np.random.default_rng(seed)
    chosen = [
        rng.permutation(np.flatnonzero(y == c))[: 2 * per_class]
        for c in np.unique(y[y >= 0])
    ]
    train = np.concatenate([c[:per_class] for c in chosen])
    val = np.concatenate([c[per_class:] for c in chosen])
    test = np.setdiff1d(np.flatnonzero(y >= 0), np.concatenate(chosen))
    return train, val, test


@pytest.mark.parametrize(
    "model",
    [GNNClassifier(), TIFAGCLClassifier(), TIFAGCLClassifier(**UNIFORM)],
    ids=["gcn", "tifa", "uniform"],
)
def test_learns_cora(model, cora, device):
    graph, y = cora.graph, cora.target
    train, val, test = split(y)
    model = clone(model).set_params(max_iter=60, device=device.type, random_state=0)
    model.set_params(monitor="loss")
    model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
    assert model.score(graph[test], y[test]) > 0.74
    assert len(model.loss_curve_) == model.n_iter_ == 60
    assert len(model.validation_scores_) == model.n_iter_ + 1
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    proba = model.predict_proba(graph)
    np.testing.assert_allclose(proba.sum(1), 1)
    np.testing.assert_array_equal(
        model.classes_[model.decision_function(graph).argmax(1)], model.predict(graph)
    )
    assert model.embed(graph[test]).shape == (len(test), 64)
    # The model that is kept is the best one seen, not the last.
    losses = model.validation_losses_
    assert losses[model.best_iter_] == min(losses)
    of_val = -np.log(proba[val, y[val]]).mean()
    assert of_val == pytest.approx(losses[model.best_iter_], rel=1e-3)


def test_masked_labels_and_a_selection_are_the_same(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    masked = np.full_like(y, -1)
    masked[train] = y[train]
    in_order = np.sort(train)
    for model in (GNNClassifier(**QUICK), TIFAGCLClassifier(**QUICK)):
        a = clone(model).fit(graph, masked)
        b = clone(model).fit(graph[in_order], y[in_order])
        np.testing.assert_array_equal(a.predict_proba(graph), b.predict_proba(graph))


def test_same_seed_same_model_bit_for_bit_and_no_global_seed(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    a, b, c = (
        TIFAGCLClassifier(**{**QUICK, "random_state": seed}).fit(graph[train], y[train])
        for seed in (3, 3, 4)
    )
    assert a.loss_curve_ == b.loss_curve_ != c.loss_curve_
    np.testing.assert_array_equal(a.predict_proba(graph), b.predict_proba(graph))
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_array_equal(numpy_state, np.random.get_state()[1])


@pytest.mark.cuda
def test_gpu_equals_cpu_without_dropout(cora, gpu):
    graph, y = cora.graph, cora.target
    train, val, _ = split(y)
    options = {**QUICK, "dropout": 0.0, "feature_mask_rate": 0.0}
    fits = [
        TIFAGCLClassifier(**{**options, "device": device}).fit(
            graph[train], y[train], X_val=graph[val], y_val=y[val]
        )
        for device in ("cpu", gpu)
    ]
    # 20 steps of Adam in float32: sums in another order, nothing else.
    np.testing.assert_allclose(fits[0].loss_curve_, fits[1].loss_curve_, rtol=1e-3)
    np.testing.assert_allclose(
        fits[0].predict_proba(graph), fits[1].predict_proba(graph), atol=5e-3
    )
    np.testing.assert_allclose(fits[0].gain_, fits[1].gain_, rtol=1e-5, atol=1e-9)


@pytest.mark.cuda
def test_a_model_trained_on_a_gpu_opens_on_a_cpu(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    model = GNNClassifier(**{**QUICK, "device": "cuda"}).fit(graph[train], y[train])
    state = model.__getstate__()
    loaded = GNNClassifier()
    loaded.__setstate__(pickle.loads(pickle.dumps(state)))
    assert next(loaded.network_.parameters()).device.type == "cpu"
    np.testing.assert_allclose(
        loaded.predict_proba(graph), model.predict_proba(graph), atol=1e-4
    )


def test_gain_and_weights_are_those_of_the_training_nodes(cora):
    graph, y = cora.graph, cora.target
    train, val, _ = split(y)
    model = TIFAGCLClassifier(**QUICK)
    model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
    labels = np.full_like(y, -1)
    labels[train] = y[train]
    expected = information_gain(annotated_information(graph, labels, 7))
    np.testing.assert_allclose(model.gain_, expected, rtol=1e-6, atol=1e-12)
    order = np.argsort(model.gain_)
    assert np.all(np.diff(model.loss_weights_[order]) <= 1e-12)
    assert model.loss_weights_.min() >= 0.2
    assert model.loss_weights_.max() <= 2.2
    uniform = TIFAGCLClassifier(**QUICK, weighting="uniform")
    uniform.fit(graph[train], y[train])
    np.testing.assert_allclose(uniform.loss_weights_, 1.2)


def test_validation_labels_never_train(cora):
    graph, y = cora.graph, cora.target
    train, val, test = split(y)
    fits = []
    for poison in (False, True):
        target = y.copy()
        if poison:
            target[test] = (target[test] + 1) % 7
        masked = np.full_like(y, -1)
        masked[train] = target[train]
        fits.append(
            TIFAGCLClassifier(**QUICK).fit(
                graph, masked, X_val=graph[val], y_val=target[val]
            )
        )
    np.testing.assert_array_equal(
        fits[0].predict_proba(graph), fits[1].predict_proba(graph)
    )


def test_early_stopping_holds_out_a_stratified_share(cora):
    graph, y = cora.graph, cora.target
    train, val, _ = split(y, per_class=20)
    options = {
        "device": "cpu",
        "random_state": 0,
        "n_iter_no_change": 5,
        "min_iter": 10,
    }
    model = GNNClassifier(**options, early_stopping=True).fit(graph[train], y[train])
    assert model.n_iter_ < 400
    assert model.n_iter_ - model.best_iter_ >= 5
    chosen = GNNClassifier(**options).fit(
        graph[train], y[train], X_val=graph[val], y_val=y[val]
    )
    assert chosen.n_iter_ < 400, "a given validation set is always used"
    off = GNNClassifier(**QUICK, early_stopping=False).fit(
        graph[train], y[train], X_val=graph[val], y_val=y[val]
    )
    assert off.validation_scores_ is None
    # 20 labels a class are too few for "auto", 2 are too few altogether.
    assert GNNClassifier(**QUICK).fit(graph[train], y[train]).validation_scores_ is None
    few, _, _ = split(y, per_class=2)
    model = GNNClassifier(**QUICK, early_stopping=True).fit(graph[few], y[few])
    assert model.validation_scores_ is None
    many = np.flatnonzero(y >= 0)
    full = GNNClassifier(**QUICK).fit(graph[many], y[many])
    assert len(full.validation_scores_) == full.n_iter_ + 1


def test_warm_start_goes_on(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    model = GNNClassifier(**QUICK, warm_start=True, early_stopping=False)
    first = model.fit(graph[train], y[train]).loss_curve_
    second = model.fit(graph[train], y[train]).loss_curve_
    assert second[0] < first[0]
    # Dropout makes the two differ, but by far less than a fresh start's 1.9.
    assert second[0] == pytest.approx(first[-1], abs=0.1)
    model.set_params(hidden_size=8)
    with pytest.raises(ParameterError, match="warm_start"):
        model.fit(graph[train], y[train])


@pytest.mark.parametrize("model", [TIFAGCLClassifier, GNNClassifier])
def test_two_features_bend_a_boundary(model):
    """No straight line parts the moons; with half of two features dropped none does."""
    X, y = make_moons(400, noise=0.1, random_state=0)
    known = np.where(np.arange(400) < 40, y, -1)
    ours = model(device="cpu", random_state=0).fit(X, known)
    line = LogisticRegression().fit(X[:40], y[:40])
    assert ours.score(X[40:], y[40:]) > line.score(X[40:], y[40:]) + 0.05


def test_class_weight_and_sample_weight(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    base = GNNClassifier(**QUICK, early_stopping=False)
    by_class = clone(base).set_params(
        class_weight={c: 1.0 if c == 3 else 1e-3 for c in range(7)}
    )
    by_class.fit(graph[train], y[train])
    assert (by_class.predict(graph) == 3).mean() > 0.95
    by_sample = clone(base).fit(
        graph[train], y[train], sample_weight=np.where(y[train] == 3, 1.0, 1e-3)
    )
    np.testing.assert_allclose(by_class.loss_curve_, by_sample.loss_curve_, rtol=1e-5)
    with pytest.raises(LabelError, match="only one class has weight"):
        base.fit(graph[train], y[train], sample_weight=(y[train] == 3).astype(float))


@pytest.mark.parametrize("missing", [-1, None, np.nan])
def test_string_labels(cora, missing):
    if missing == -1:
        pytest.skip("-1 marks unlabelled numbers")
    graph, y = cora.graph, cora.target
    train, _, test = split(y)
    names = np.array([f"topic {c}" for c in range(7)], dtype=object)
    labels = np.full(len(y), missing, dtype=object)
    labels[train] = names[y[train]]
    model = TIFAGCLClassifier(**QUICK, missing_label=missing).fit(graph, labels)
    assert model.classes_.tolist() == names.tolist()
    assert (model.predict(graph[test]) == names[y[test]]).mean() > 0.5


def test_inductive_prediction_runs_the_encoder_on_another_graph(cora):
    graph, y = cora.graph, cora.target
    train, val, test = split(y)
    seen = graph.subgraph(np.sort(np.concatenate([train, val])))
    model = GNNClassifier(max_iter=60, device="cpu", random_state=0)
    target = y[seen.parent_nodes]
    model.fit(seen, target)
    assert model.score(graph[test], y[test]) > 0.6
    other = GNNClassifier(**QUICK)
    in_val = np.isin(seen.parent_nodes, val)
    other.fit(seen[~in_val], target[~in_val], X_val=graph[val], y_val=y[val])
    assert other.validation_scores_ is not None


def test_verbose_prints_every_so_many_epochs_and_names_are_kept(cora, capsys):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    names = [f"word {i}" for i in range(graph.n_features)]
    named = graph.with_features(graph.features, feature_names=names)
    model = GNNClassifier(**QUICK, verbose=5).fit(named[train], y[train])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("epoch ")[1].split(":")[0] for line in printed] == [
        "5",
        "10",
        "15",
        "20",
    ]
    assert model.feature_names_in_.tolist() == names
    swapped = graph.with_features(graph.features, feature_names=names[::-1])
    with pytest.raises(GraphError, match="feature 0 is named 'word 1432'"):
        model.predict(swapped)


def test_saved_networks_are_not_shared_between_clones(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    model = GNNClassifier(**QUICK).fit(graph[train], y[train])
    assert not hasattr(clone(model), "network_")


# ------------------------------------------------------------------- faults


def tiny(n=6):
    path = np.diag(np.ones(n - 1), 1)
    return Graph(path + path.T, np.eye(n, dtype=np.float32)), np.arange(n) % 2


@pytest.mark.parametrize("model", [GNNClassifier, TIFAGCLClassifier])
def test_tiny_graphs_with_nothing_set(model):
    for n in (2, 3, 6):
        graph, y = tiny(n)
        fitted = model(max_iter=5, random_state=0).fit(graph, y)
        assert fitted.predict(graph).shape == (n,)
        assert fitted.decision_function(graph).shape == (n,)
    # Nodes without any edge, too.
    lonely = Graph(np.zeros((4, 4)), np.eye(4))
    assert len(model(max_iter=5).fit(lonely, [0, 1, -1, -1]).predict(lonely)) == 4


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1, 0], "y has 3 entries, but 6 of"),
        ([-1] * 6, "label"),
        ([1] * 6, "one class"),
        (None, "requires y"),
    ],
)
def test_bad_labels(y, message):
    graph, _ = tiny()
    with pytest.raises(ValueError, match=message):
        TIFAGCLClassifier(**QUICK).fit(graph, y)


def test_bad_graphs_and_parameters():
    graph, y = tiny()
    model = TIFAGCLClassifier(**QUICK).fit(graph, y)
    with pytest.raises(GraphError, match="has 2 features, but .* fitted with 6"):
        model.predict(graph.with_features(np.ones((6, 2))))
    with pytest.raises(GraphError, match=r"fitted on a graph and got an array"):
        model.predict(np.eye(6))
    with pytest.raises(ParameterError, match="X_val and y_val together"):
        model.fit(graph, y, X_val=graph)
    with pytest.raises(LabelError, match="y_val has the class"):
        model.fit(graph, y, X_val=graph[[0]], y_val=[5])
    with pytest.raises(ParameterError, match="weight_min"):
        clone(model).set_params(weight_min=3.0).fit(graph, y)
    with pytest.raises(ValueError, match="dropout"):
        clone(model).set_params(dropout=1.5).fit(graph, y)
    if not torch.cuda.is_available():
        with pytest.raises(ParameterError, match="cuda"):
            clone(model).set_params(device="cuda").fit(graph, y)
    # The estimator goes on working after each of these.
    assert model.fit(graph, y).predict(graph).shape == (6,)


class Exploding(nn.Module):
    """Raises `error`, or returns NaN, from the `at`-th training pass on."""

    def __init__(self, n_in, n_out, at, error):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.calls, self.at, self.error = 0, at, error

    def forward(self, x, edge_index):
        if self.training:
            self.calls += 1
            if self.calls >= self.at:
                if self.error is not None:
                    raise self.error
                return self.linear(x) * torch.nan
        return self.linear(x)


@pytest.mark.parametrize(
    ("error", "warning", "message"),
    [
        (None, ConvergenceWarning, "loss became nan in epoch 4"),
        (KeyboardInterrupt(), UserWarning, "interrupted after 3 epochs"),
        (torch.OutOfMemoryError("CUDA"), ConvergenceWarning, "Out of memory after 3"),
        (MemoryError(), ConvergenceWarning, "Out of memory after 3 epochs"),
    ],
)
def test_the_best_model_so_far_is_kept(error, warning, message):
    graph, y = tiny()
    model = GNNClassifier(lambda i, o: Exploding(i, o, 4, error), **QUICK)
    with pytest.warns(warning, match=message):
        model.fit(graph, y)
    assert model.n_iter_ == 3
    assert np.isfinite(model.predict_proba(graph)).all()


@pytest.mark.parametrize(
    ("error", "raised"),
    [(None, TrainingError), (MemoryError(), NotEnoughMemoryError)],
)
def test_nothing_to_keep_is_an_error(error, raised):
    graph, y = tiny()
    model = GNNClassifier(lambda i, o: Exploding(i, o, 1, error), **QUICK)
    with pytest.raises(raised):
        model.fit(graph, y)
    model.set_params(encoder="gcn").fit(graph, y)


def test_score_skips_unlabelled_nodes(cora):
    graph, y = cora.graph, cora.target
    train, val, test = split(y)
    model = GNNClassifier(**QUICK).fit(graph[train], y[train])
    masked = np.full_like(y, -1)
    masked[test] = y[test]
    assert model.score(graph, masked) == model.score(graph[test], y[test])
    weight = np.random.default_rng(0).random(len(y))
    assert model.score(graph, masked, weight) == pytest.approx(
        np.average(model.predict(graph[test]) == y[test], weights=weight[test])
    )
    with pytest.raises(LabelError):
        model.score(graph, np.full_like(y, -1))


def test_interrupting_one_fit_of_a_search_ends_the_search():
    graph, y = tiny(12)
    calls = []

    class Interrupted(nn.Linear):
        def forward(self, x, edge_index):
            if self.training:
                calls.append(1)
                raise KeyboardInterrupt
            return super().forward(x)

    search = GridSearchCV(
        GNNClassifier(Interrupted, **QUICK), {"dropout": [0.1, 0.2]}, cv=2
    )
    with pytest.warns(UserWarning, match="interrupted"):
        with pytest.raises(KeyboardInterrupt):
            search.fit(graph, y)
    assert len(calls) == 1


class OneColumn(nn.Linear):
    def forward(self, x, edge_index):
        return super().forward(x)[:, :1]


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (OneColumn, r"of shape \(6, 2\).* returned \(6, 1\)"),
        (lambda i, o: nn.Linear(i, o), r"called as forward\(x, edge_index\)"),
        (lambda: nn.Linear(2, 2), r"called as encoder\(n_features, n_classes\)"),
    ],
)
def test_modules_that_cannot_be_encoders(encoder, message):
    graph, y = tiny()
    with pytest.raises(ParameterError, match=message):
        GNNClassifier(encoder, **QUICK).fit(graph, y)


def test_bad_class_weights_and_ranks():
    graph, y = tiny()
    for value in (-2.0, np.nan):
        with pytest.raises(ParameterError, match=r"class_weight\[0\]"):
            GNNClassifier(**QUICK, class_weight={0: value, 1: 1}).fit(graph, y)
    for ranks, sampler in product([(1.5, 3), (1, 2, 3), (9, 3)], [None, "saint-rw"]):
        model = TIFAGCLClassifier(**QUICK, negative_ranks=ranks, sampler=sampler)
        with pytest.raises(ParameterError, match="negative_ranks"):
            model.fit(graph, y)


def test_strong_negatives_stay_finite(cora):
    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    model = TIFAGCLClassifier(
        max_iter=200,
        early_stopping=False,
        negative_weight=1.0,
        pair_weight=1.0,
        device="cpu",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(graph[train], y[train])
    assert all(torch.isfinite(p).all() for p in model.network_.parameters())
    assert model.n_iter_ == 200


def test_paper_preset_is_accepted_and_unknown_settings_are_not():
    graph, y = tiny()
    for setting in ("transductive", "inductive"):
        model = TIFAGCLClassifier(**paper_preset(setting)).set_params(**QUICK)
        model.fit(graph, y)
        assert model.learning_rate_decay == 0.95
    with pytest.raises(ParameterError, match="transductive"):
        paper_preset("semi")


def test_memory_reuses_static_work(cora, tmp_path, monkeypatch):
    from sktifa.classifiers import contrast
    from sktifa.information.evidence import GraphEvidence

    graph, y = cora.graph, cora.target
    train, _, _ = split(y)
    model = TIFAGCLClassifier(**{**QUICK, "max_iter": 2}, memory=str(tmp_path))
    first = model.fit(graph[train], y[train])
    expected = first.gain_, first.predict_proba(graph)

    def fail(*args, **kwargs):
        raise AssertionError("computed again")

    for work in ("propagated_labels", "feature_affinity", "nearest_pairs"):
        monkeypatch.setattr(contrast, work, fail)
    monkeypatch.setattr(GraphEvidence, "skill", property(fail))
    again = clone(model).fit(graph[train], y[train])
    np.testing.assert_array_equal(again.gain_, expected[0])
    np.testing.assert_array_equal(again.predict_proba(graph), expected[1])


@pytest.mark.cuda
@pytest.mark.parametrize("decay", [1.0, 0.95])
def test_captured_epochs_equal_eager_ones(cora, decay, monkeypatch):
    from sktifa.training import engine

    graph, y = cora.graph, cora.target
    train, val, _ = split(y)
    fits = []
    for captured in (True, False):
        if not captured:
            monkeypatch.setattr(
                engine.Run,
                "record",
                lambda run: vars(run).update(
                    _evaluate=run.evaluate, _update=run.update
                ),
            )
        model = TIFAGCLClassifier(
            max_iter=15,
            device="cuda",
            random_state=0,
            learning_rate_decay=decay,
            min_iter=3,
        )
        model.fit(graph[train], y[train], X_val=graph[val], y_val=y[val])
        fits.append(model)
    # The same draws; atomic additions may sum them in another order.
    np.testing.assert_allclose(fits[0].loss_curve_, fits[1].loss_curve_, rtol=5e-3)
    np.testing.assert_allclose(
        fits[0].validation_losses_, fits[1].validation_losses_, rtol=5e-3
    )
