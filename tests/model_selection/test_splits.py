"""Splitters: who is where, that draws are uniform, and use inside scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingRandomSearchCV,
    ParameterGrid,
    RandomizedSearchCV,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from sktifa import (
    BatchedGridSearchCV,
    GNNClassifier,
    TIFAGCLClassifier,
    paper_preset,
)
from sktifa.exceptions import LabelError, ParameterError
from sktifa.graph import Graph
from sktifa.model_selection import (
    LabeledNodeKFold,
    LabeledNodeShuffleSplit,
    paper_grid,
    predefined_validation_split,
)


@pytest.fixture
def path_graph():
    n = 200
    edges = np.stack([np.arange(n - 1), np.arange(1, n)])
    edges = np.hstack([edges, edges[::-1]])
    return Graph.from_edge_index(edges, np.arange(2.0 * n).reshape(n, 2))


@pytest.fixture
def labels():
    """Three classes of 60, 40 and 30 nodes; 70 nodes without a label."""
    y = np.repeat([0, 1, 2, -1], [60, 40, 30, 70])
    return np.random.default_rng(0).permutation(y)


class Unlabelled(DummyClassifier):
    """Checks what it is given: all unlabelled nodes in fit, none in score."""

    def fit(self, X, y, sample_weight=None):
        assert isinstance(X, Graph) and len(X) == len(y)
        self.n_unlabelled_ = int((y == -1).sum())
        return super().fit(np.zeros((len(y), 1)), y)

    def score(self, X, y, sample_weight=None):
        check_is_fitted(self)
        assert self.n_unlabelled_ == 70 and (y != -1).all()
        return super().score(np.zeros((len(y), 1)), y)


def test_kfold_tests_each_labelled_node_once(path_graph, labels):
    tested = []
    for train, test in LabeledNodeKFold(5).split(path_graph, labels):
        assert np.isin(np.flatnonzero(labels == -1), train).all()
        assert len(train) + len(test) == 200 and not len(np.intersect1d(train, test))
        assert np.bincount(labels[test]).tolist() == [12, 8, 6]
        tested.append(test)
    assert sorted(np.concatenate(tested)) == np.flatnonzero(labels != -1).tolist()


def test_kfold_without_unlabelled_nodes_is_stratified_kfold(path_graph):
    from sklearn.model_selection import StratifiedKFold

    y = np.random.default_rng(1).integers(3, size=200)
    ours = LabeledNodeKFold(4, shuffle=True, random_state=7).split(path_graph, y)
    theirs = StratifiedKFold(4, shuffle=True, random_state=7).split(y, y)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_kfold_names_the_class_that_is_too_small():
    y = np.array(["a"] * 9 + ["tiny"] * 3 + [None] * 4, dtype=object)
    cv = LabeledNodeKFold(5, missing_label=None)
    with pytest.raises(LabelError, match="class 'tiny' has 3 labelled nodes"):
        next(cv.split(np.zeros((16, 1)), y))
    assert len(list(LabeledNodeKFold(3, missing_label=None).split(y, y))) == 3


def test_shuffle_split_counts(path_graph, labels):
    cv = LabeledNodeShuffleSplit(6, train_per_class=5, val_per_class=10, random_state=3)
    splits = list(cv.split_with_validation(path_graph, labels))
    assert len(splits) == cv.get_n_splits(path_graph, labels) == 6
    for train, val, test in splits:
        together = np.sort(np.concatenate([train, val, test]))
        np.testing.assert_array_equal(together, np.arange(200))
        counts = [np.bincount(labels[p] + 1, minlength=4) for p in (train, val, test)]
        assert np.array(counts).tolist() == [
            [70, 5, 5, 5],
            [0, 10, 10, 10],
            [0, 45, 25, 15],
        ]
    assert len({tuple(train) for train, _, _ in splits}) == 6


def test_shuffle_split_yields_pairs_of_the_same_draw(path_graph, labels):
    protocol = dict(n_splits=3, train_per_class=4, val_per_class=6, random_state=0)
    cv = LabeledNodeShuffleSplit(**protocol)
    on_val = LabeledNodeShuffleSplit(score_on="validation", **protocol)
    for (train, test), (same, val), triple in zip(
        cv.split(path_graph, labels),
        on_val.split(path_graph, labels),
        cv.split_with_validation(path_graph, labels),
        strict=True,
    ):
        for a, b in zip((train, val, test), triple, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(train, same)


def test_shuffle_split_draws_uniformly(labels):
    """Each node of a class trains equally often. Error rate 1e-3, seed fixed."""
    rng = np.random.RandomState(5)
    cv = LabeledNodeShuffleSplit(
        400, train_per_class=6, val_per_class=0, random_state=rng
    )
    times = np.zeros(200)
    for train, _ in cv.split(labels, labels):
        times[train] += 1
    assert (times[labels == -1] == 400).all()
    # Draws without replacement vary less than chisquare assumes: conservative.
    assert chisquare(times[labels == 2]).pvalue > 1e-3
    assert chisquare(times[labels == 0]).pvalue > 1e-3


def test_shuffle_split_leaves_the_global_generator_alone(labels):
    before = np.random.get_state()[1].copy()
    cv = LabeledNodeShuffleSplit(1, train_per_class=1, val_per_class=1, random_state=0)
    list(cv.split(labels, labels))
    np.testing.assert_array_equal(before, np.random.get_state()[1])


def test_shuffle_split_names_the_class_that_is_too_small(path_graph, labels):
    cv = LabeledNodeShuffleSplit(train_per_class=20, val_per_class=10)
    with pytest.raises(LabelError, match="class 2 has 30 labelled nodes.* 31"):
        next(cv.split(path_graph, labels))


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (LabeledNodeKFold(1), "n_splits .* got 1"),
        (LabeledNodeShuffleSplit(0), "n_splits .* got 0"),
        (LabeledNodeShuffleSplit(train_per_class=0), "train_per_class .* got 0"),
        (LabeledNodeShuffleSplit(val_per_class=-1), "val_per_class .* got -1"),
        (LabeledNodeShuffleSplit(train_per_class=2.5), "train_per_class .* got 2.5"),
        (LabeledNodeShuffleSplit(score_on="train"), "score_on is 'train'"),
        (
            LabeledNodeShuffleSplit(val_per_class=0, score_on="validation"),
            "val_per_class .* got 0",
        ),
    ],
)
def test_bad_parameters(cv, message, labels):
    with pytest.raises(ParameterError, match=message):
        next(cv.split(labels, labels))


def test_lengths_must_agree(path_graph, labels):
    with pytest.raises(ValueError, match="y has 199 entries"):
        next(LabeledNodeKFold().split(path_graph, labels[:-1]))


def test_repr_and_clone():
    cv = LabeledNodeShuffleSplit(3, train_per_class=5, random_state=0)
    assert repr(cv).startswith("LabeledNodeShuffleSplit(missing_label=-1, n_splits=3")
    assert repr(clone(cv, safe=False)) == repr(cv)
    assert "shuffle=False" in repr(LabeledNodeKFold())


@pytest.mark.parametrize(
    "cv",
    [
        LabeledNodeKFold(3),
        LabeledNodeKFold(3, shuffle=True, random_state=0),
        LabeledNodeShuffleSplit(
            3, train_per_class=5, val_per_class=5, score_on="validation", random_state=0
        ),
    ],
    ids=["kfold", "shuffled", "shuffle-split"],
)
def test_grid_search(cv, path_graph, labels):
    grid = {"strategy": ["most_frequent", "stratified"]}
    model = Unlabelled(random_state=0)
    search = GridSearchCV(model, grid, cv=cv, error_score="raise")
    search.fit(path_graph, labels)
    assert search.n_splits_ == 3 and search.cv_results_["params"][1]
    scores = cross_val_score(model, path_graph, labels, cv=cv, error_score="raise")
    assert scores.shape == (3,)


def test_predefined_validation(path_graph, labels):
    train = np.flatnonzero(labels == 0)[:9]
    val = np.zeros(200, dtype=bool)
    val[np.flatnonzero(labels == 1)[:4]] = True
    nodes, cv = predefined_validation_split(train, val)
    ((a, b),) = cv.split()
    np.testing.assert_array_equal(nodes[a], train)
    np.testing.assert_array_equal(nodes[b], np.flatnonzero(val))
    search = GridSearchCV(DummyClassifier(), {"strategy": ["prior"]}, cv=cv)
    search.fit(path_graph[nodes], labels[nodes])
    assert search.best_score_ == 0.0


def test_predefined_validation_refuses_overlap_and_empty_sets():
    with pytest.raises(ParameterError, match="1 nodes are in both.* first is 3"):
        predefined_validation_split([1, 3], [3, 4])
    with pytest.raises(ParameterError, match="val is empty"):
        predefined_validation_split([1, 3], np.zeros(5, dtype=bool))


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_paper_grid_holds_the_bold_values_and_valid_parameters(setting):
    grid = paper_grid(setting, "all")
    bold = paper_preset(setting)
    names = {name for part in grid for name in part}
    assert len(names) == 12
    # Sizes as printed in Appendix C.
    sizes = [len({v for part in grid for v in part[name]}) for name in sorted(names)]
    assert sorted(sizes) == sorted([5, 6, 6, 6, 8, 9, 7, 7, 5, 4, 4, 5])
    assert any(all(bold[name] in part[name] for name in names) for part in grid)
    for part in grid:
        for name, values in part.items():
            TIFAGCLClassifier(**{name: values[0]})._validate_params()
            TIFAGCLClassifier(**{name: values[-1]})._validate_params()
        assert max(part["weight_min"]) <= min(part["weight_max"])
    assert grid[0]["hidden_size"][0] == bold["hidden_size"]
    pairs = ParameterGrid(
        [{k: p[k] for k in ("weight_min", "weight_max")} for p in grid]
    )
    assert len(pairs) == 9 + 9 + 9 + 8 + 7 + 6 + 5 + 4
    with pytest.raises(ParameterError, match="part must be"):
        paper_grid(part="decoder")
    with pytest.raises(ParameterError, match="setting must be"):
        paper_grid("both")


def test_paper_grid_in_searches_and_pipelines(digits):
    graph, y = digits.graph[::6], digits.target[::6]
    pipeline = make_pipeline("passthrough", GNNClassifier(max_iter=2, device="cpu"))
    grid = paper_grid(part="encoder", prefix="gnnclassifier__")
    assert len(ParameterGrid(grid)) == 5 * 4 * 4 * 5
    options = {"cv": LabeledNodeKFold(2), "random_state": 0, "refit": False}
    RandomizedSearchCV(pipeline, grid, n_iter=2, **options).fit(graph, y)
    HalvingRandomSearchCV(
        pipeline, grid, n_candidates=3, min_resources=150, **options
    ).fit(graph, y)


@pytest.mark.parametrize("kind", [GridSearchCV, BatchedGridSearchCV])
def test_the_papers_protocol_looks_at_no_test_label(digits, kind):
    graph, y = digits.graph, digits.target
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, val, test = order[:100], order[100:250], order[250:]
    poisoned = y.copy()
    poisoned[test] = rng.permutation(y[test])
    found = []
    for labels in (y, poisoned):
        nodes, cv = predefined_validation_split(train, val)
        model = TIFAGCLClassifier(max_iter=8, device="cpu", random_state=0)
        grid = {"pair_weight": [0.0, 0.25], "learning_rate": [0.001, 0.01]}
        search = kind(model, grid, cv=cv, refit=False)
        search.fit(graph[nodes], labels[nodes], X_val=graph[val], y_val=labels[val])
        best = clone(model).set_params(**search.best_params_)
        best.fit(graph[train], labels[train], X_val=graph[val], y_val=labels[val])
        found.append((search.cv_results_["mean_test_score"], best.predict_proba(graph)))
    for clean, other in zip(*found, strict=True):
        np.testing.assert_array_equal(clean, other)


@pytest.mark.parametrize("kind", ["graph", "pyg", "networkx", "array", "nothing"])
def test_what_is_split_may_be_any_graph(kind, path_graph, labels):
    X = {
        "graph": path_graph,
        "pyg": path_graph.to_pyg(),
        "networkx": path_graph.to_networkx(),
        "array": np.zeros((200, 1)),
        "nothing": None,
    }[kind]
    few = {"train_per_class": 5, "val_per_class": 5, "random_state": 0}
    for cv in (LabeledNodeKFold(2), LabeledNodeShuffleSplit(1, **few)):
        expected = [test.tolist() for _, test in cv.split(path_graph, labels)]
        assert [test.tolist() for _, test in cv.split(X, labels)] == expected


def test_labels_of_any_container_are_split(path_graph, labels):
    hidden = pd.Series(np.array(["a", "b", "c"])[labels], dtype="string")
    hidden[labels < 0] = pd.NA
    few = {"train_per_class": 5, "val_per_class": 5, "random_state": 0}
    for cv in (LabeledNodeKFold(2), LabeledNodeShuffleSplit(1, **few)):
        expected = [test.tolist() for _, test in cv.split(path_graph, labels)]
        found = [test.tolist() for _, test in cv.split(path_graph, hidden)]
        assert found == expected
