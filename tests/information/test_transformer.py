"""The information gain as a step of a pipeline."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import ttest_1samp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from sktifa import LabelPropagationTIG, make_block_graph
from sktifa.exceptions import GraphError, LabelError, LabelWarning
from sktifa.graph import Graph
from sktifa.information.loss_weights import loss_weights
from sktifa.information.tig import (
    annotated_information,
    clarity,
    class_prototypes,
    feature_affinity,
    information_gain,
    intensity,
)


def _random_graph(seed=0, n=50, isolated=4, sparse_features=False, names=None):
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < 0.1, 1) * rng.uniform(0.5, 2, (n, n))
    dense[-isolated:] = dense[:, -isolated:] = 0
    features = np.maximum(rng.normal(size=(n, 6)), 0)
    features[3] = 0
    if sparse_features:
        features = sparse.csr_array(features)
    codes = np.full(n, -1)
    codes[:12] = np.arange(12) % 3
    return Graph(dense + dense.T, features, feature_names=names), codes


def _objects(codes):
    return np.array([None if c < 0 else "abc"[c] for c in codes], dtype=object)


def test_raw_columns():
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(clarity_weight=0.3, columns="raw")
    transformer.fit(graph, _objects(codes))
    found = transformer.transform(graph)
    information = annotated_information(graph, codes, 3)
    expected = np.column_stack(
        [
            information,
            intensity(information),
            clarity(information),
            information_gain(information, 0.3),
        ]
    )
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(transformer.gain_, expected[:, -1])
    np.testing.assert_allclose(
        transformer.loss_weights(1, 2), loss_weights(expected[:, -1], 1, 2)
    )
    assert transformer.classes_.tolist() == ["a", "b", "c"]
    assert transformer.n_features_in_ == 6
    assert not hasattr(transformer, "feature_names_in_")


def test_relative_columns():
    graph, codes = _random_graph()
    found = LabelPropagationTIG(clarity_weight=0.3).fit(graph, codes).transform(graph)
    information = annotated_information(graph, codes, 3)
    smoothed = information + 1e-3 * information.mean()
    shares = smoothed / smoothed.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found[:, :3], 3 * shares)
    np.testing.assert_allclose(found[:, 4], shares.max(axis=1) - 1)
    for column, values in (
        (3, information.max(axis=1)),
        (5, information_gain(information, 0.3)),
    ):
        # The share of nodes that have less, and half of those that have as much.
        values = values.astype(np.float32)
        expected = [((values < v).mean() + (values <= v).mean()) / 2 for v in values]
        np.testing.assert_allclose(found[:, column], expected)
    # No label reaches the last nodes.
    np.testing.assert_allclose(found[-4:, :3], 1)


def test_columns_of_a_node_do_not_depend_on_the_others_asked_for():
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG().fit(graph, codes)
    np.testing.assert_allclose(
        transformer.transform(graph[[30]]), transformer.transform(graph)[[30]]
    )


def test_a_selection_fits_like_the_whole_and_gets_its_own_rows():
    graph, codes = _random_graph()
    labelled = np.flatnonzero(codes >= 0)
    whole = LabelPropagationTIG().fit(graph, codes)
    part = LabelPropagationTIG().fit(graph[labelled], codes[labelled])
    rows = [9, 30, 2]
    np.testing.assert_allclose(
        part.transform(graph[rows]), whole.transform(graph)[rows], rtol=1e-12
    )
    # A graph made anew from the same parts is the same graph.
    again = Graph(graph.adjacency, graph.features)
    np.testing.assert_array_equal(part.transform(again), whole.transform(graph))


def test_cross_fitting_leaves_out_the_labels_of_a_fold():
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(cv=4, random_state=3, columns="raw")
    found = transformer.fit_transform(graph, codes)
    unlabelled = codes < 0
    np.testing.assert_allclose(
        found[unlabelled], transformer.transform(graph)[unlabelled]
    )
    seen = np.zeros(len(codes), dtype=int)
    folds = transformer._folds(codes)
    assert len(folds) == 4
    for fold, withheld in folds:
        seen[fold] += 1
        # 12 labels, 3 classes: a label of each class in each fold.
        assert sorted(codes[fold]) == [0, 1, 2]
        assert sorted(fold) == sorted(withheld)
        others = codes.copy()
        others[fold] = -1
        expected = annotated_information(graph, others, 3)
        np.testing.assert_allclose(found[fold, :3], expected[fold])
    np.testing.assert_array_equal(seen, codes >= 0)
    # The order of the nodes, or that one stands twice, changes nothing.
    some = [5, 40, 0, 5]
    part = clone(transformer).fit(graph, codes)
    y = np.where(codes >= 0, codes, -1)
    every_label = np.r_[np.arange(12), 40, 5]
    again = part.fit_transform(graph[every_label], y[every_label])
    np.testing.assert_allclose(again[[5, 12, 0, 13]], found[some])


def test_one_label_of_a_class_is_said():
    graph, codes = _random_graph()
    codes = np.where(np.arange(len(codes)) < 10, codes, -1)
    names = np.array(["a", "b", "c", None], dtype=object)
    assert np.bincount(codes[codes >= 0]).tolist() == [4, 3, 3]
    codes[[4, 7]] = -1
    transformer = LabelPropagationTIG(device="cpu")
    with pytest.warns(LabelWarning, match="class 'b' has one label") as caught:
        transformer.fit_transform(graph, names[codes])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transformer.fit(graph, codes).transform(graph)


def test_as_many_folds_as_there_are_labels():
    graph, codes = _random_graph()
    most = LabelPropagationTIG(cv=10**9, random_state=0).fit_transform(graph, codes)
    np.testing.assert_array_equal(
        most, LabelPropagationTIG(cv=4, random_state=0).fit_transform(graph, codes)
    )


def test_without_cross_fitting():
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(cv=None)
    np.testing.assert_array_equal(
        transformer.fit_transform(graph, codes), transformer.transform(graph)
    )


@pytest.mark.filterwarnings("ignore:class . has one label")
@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 4, 9), (2, 3, 4), (7, 7, 5)])
def test_every_fold_leaves_as_many_labels_of_each_class(counts):
    codes = np.repeat([0, 1, 2, -1], [*counts, 3])
    transformer = LabelPropagationTIG(cv=3, random_state=0)
    transformer.classes_ = np.arange(3)
    folds = transformer._folds(codes)
    described = np.concatenate([fold for fold, _ in folds])
    np.testing.assert_array_equal(np.sort(described), np.flatnonzero(codes >= 0))
    for fold, withheld in folds:
        assert set(fold) <= set(withheld) and len(set(withheld)) == len(withheld)
        # A third of each class, rounded up.
        held_out = [-(-count // 3) for count in counts]
        assert np.bincount(codes[withheld]).tolist() == held_out


# ---------------------------------------------------------------- random labels


@pytest.fixture(scope="module")
def communities():
    """A graph in which labels would spread well, were they not random."""
    return make_block_graph(
        150, 3, average_degree=5, n_features=8, random_state=0
    ).graph


def _random_labels(graph, counts, n_repeats):
    for seed in range(n_repeats):
        rng = np.random.default_rng(seed)
        nodes = rng.choice(graph.n_nodes, sum(counts), replace=False)
        yield nodes, np.repeat(np.arange(len(counts)), counts), seed


def _share_of_least(columns, y):
    """How often a row's own class is the least of its shares; ties count in part."""
    shares = columns[:, :3]
    least = shares == shares.min(axis=1, keepdims=True)
    return (least[np.arange(len(y)), y] / least.sum(axis=1)).mean()


def _p_value(scores, chance, alternative="two-sided"):
    """Of a score a repeat, which are independent of each other where rows are not."""
    if np.ptp(scores) < 1e-12:
        return 1.0 if np.isclose(scores[0], chance) else 0.0
    return ttest_1samp(scores, chance, alternative=alternative).pvalue


@pytest.mark.filterwarnings("ignore:class . has one label")
@pytest.mark.parametrize(
    ("counts", "n_repeats"),
    [
        ((1, 1, 1), 200),
        ((2, 2, 2), 300),
        ((3, 3, 3), 300),
        ((5, 5, 5), 200),
        ((20, 20, 20), 80),
        ((2, 5, 9), 200),
    ],
    ids=str,
)
def test_cross_fitted_columns_tell_nothing_of_random_labels(
    counts, n_repeats, communities
):
    """Neither by themselves nor to a classifier that has learned on other draws.

    Each of five tests a case rejects at 1e-4: all 30 together would fail by accident
    once in 300 seeds.
    """
    draws = []
    for nodes, y, seed in _random_labels(communities, counts, n_repeats):
        transformer = LabelPropagationTIG(random_state=seed, device="cpu")
        draws.append((transformer.fit_transform(communities[nodes], y), y))
    base = np.array(counts) / sum(counts)
    if len(set(counts)) == 1:
        least = [_share_of_least(columns, y) for columns, y in draws]
        assert _p_value(least, 1 / 3) > 1e-4, np.mean(least)
    for c in range(3):
        # What arrives from a class is as much for its own nodes as for the others.
        gaps = [
            columns[y == c, c].mean() - columns[y != c, c].mean()
            for columns, y in draws
        ]
        assert _p_value(gaps, 0) > 1e-4, np.mean(gaps)
    half = n_repeats // 2
    X, y = (np.concatenate(part) for part in zip(*draws[:half], strict=True))
    for model in (
        LogisticRegression(C=100, max_iter=1000),
        DecisionTreeClassifier(min_samples_leaf=20, random_state=0),
    ):
        model.fit(X, y)
        # By how much it raises the probability of the right class.
        lifts = [
            (model.predict_proba(columns)[np.arange(len(y)), y] - base[y]).mean()
            for columns, y in draws[half:]
        ]
        assert _p_value(lifts, 0, "greater") > 1e-4, np.mean(lifts)


def test_the_statistics_notice_a_label_withheld_alone(communities):
    """Control of the test above: what came about before is found."""
    least = []
    for nodes, y, _ in _random_labels(communities, (3, 3, 3), 40):
        rows = []
        for node in nodes:
            codes = np.full(communities.n_nodes, -1)
            codes[nodes] = y
            codes[node] = -1
            rows.append(annotated_information(communities, codes, 3)[node])
        least.append(_share_of_least(np.array(rows), y))
    assert np.mean(least) > 0.42 and _p_value(least, 1 / 3) < 1e-4


def test_the_leak_that_cross_fitting_mends(cora):
    """Without it the next step learns to read a node's own label from its columns."""
    graph, target = cora.graph, cora.target
    scores = {5: [], None: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        train = np.concatenate(
            [rng.permutation(np.flatnonzero(target == c))[:20] for c in range(7)]
        )
        test = np.setdiff1d(np.arange(len(target)), train)
        for cv, found in scores.items():
            transformer = LabelPropagationTIG(cv=cv, random_state=0)
            columns = transformer.fit_transform(graph[train], target[train])
            model = make_pipeline(
                StandardScaler(), LogisticRegression(C=100, max_iter=1000)
            ).fit(columns, target[train])
            found.append(
                (
                    model.score(columns, target[train]),
                    model.score(transformer.transform(graph[test]), target[test]),
                )
            )
    leaking, fitted = np.mean(scores[None], axis=0), np.mean(scores[5], axis=0)
    # Measured on these splits: .58 against .68 on the test nodes.
    assert leaking[0] == 1
    assert fitted[0] < 0.95
    assert fitted[1] > leaking[1] + 0.05


@pytest.mark.parametrize("labels_a_class", [2, 5, 20])
def test_a_classifier_takes_the_columns_as_they_are(labels_a_class, cora):
    """Without a scaler between, and not at chance as with raw columns (CASES B.3)."""
    blocks = make_block_graph(600, 3, random_state=0)
    for data in (blocks, cora):
        graph, target = data.graph, data.target
        scores = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            train = np.concatenate(
                [
                    rng.permutation(np.flatnonzero(target == c))[:labels_a_class]
                    for c in range(target.max() + 1)
                ]
            )
            test = np.setdiff1d(np.arange(len(target)), train)
            transformer = LabelPropagationTIG(random_state=0, device="cpu")
            pipes = [
                make_pipeline(transformer, LogisticRegression(max_iter=1000)),
                make_pipeline(
                    transformer, StandardScaler(), LogisticRegression(max_iter=1000)
                ),
                make_pipeline(
                    clone(transformer).set_params(columns="raw"),
                    LogisticRegression(max_iter=1000),
                ),
            ]
            scores.append(
                [
                    pipe.fit(graph[train], target[train]).score(
                        graph[test], target[test]
                    )
                    for pipe in pipes
                ]
            )
        direct, scaled, raw = np.mean(scores, axis=0)
        assert direct > scaled - 0.01
        assert direct > raw + 0.2


def test_another_graph_is_refused():
    graph, codes = _random_graph()
    other, _ = _random_graph(1)
    transformer = LabelPropagationTIG().fit(graph, codes)
    with pytest.raises(GraphError, match="not the graph of fit"):
        transformer.transform(other)
    with pytest.raises(GraphError, match="fitted on a graph"):
        transformer.transform(np.ones((3, 6)))


def test_refused_labels():
    graph, codes = _random_graph()
    with pytest.raises(LabelError, match="49 entries"):
        LabelPropagationTIG().fit(graph, codes[1:])
    with pytest.raises(LabelError, match="all of one class"):
        LabelPropagationTIG().fit(graph, np.where(codes == 0, 0, -1))
    with pytest.raises(LabelError, match="one-dimensional"):
        LabelPropagationTIG().fit(graph, np.eye(3)[codes])
    with pytest.raises(LabelError, match="requires y"):
        LabelPropagationTIG().fit(graph, None)


@pytest.mark.parametrize(
    "options",
    [
        {"restart_probability": 0},
        {"clarity_weight": 2},
        {"normalization": "rows"},
        {"aggregate": "median"},
        {"cv": 1},
        {"n_neighbors": 0},
        {"tol": 0},
        {"columns": "log"},
    ],
)
def test_parameters_are_checked_in_fit(options):
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(**options)
    with pytest.raises(ValueError, match=next(iter(options))):
        transformer.fit(graph, codes)
    with pytest.raises(ValueError, match=next(iter(options))):
        transformer.fit_transform(graph, codes)


def test_names_and_pandas():
    names = list("uvwxyz")
    graph, codes = _random_graph(names=names)
    transformer = LabelPropagationTIG().set_output(transform="pandas")
    table = transformer.fit_transform(graph, _objects(codes))
    columns = [f"share_{c}" for c in "abc"] + ["intensity_rank", "clarity", "gain_rank"]
    assert isinstance(table, pd.DataFrame)
    assert table.columns.tolist() == columns
    assert transformer.get_feature_names_out().tolist() == columns
    raw = [f"information_{c}" for c in "abc"] + ["intensity", "clarity", "gain"]
    transformer.set_params(columns="raw")
    assert transformer.get_feature_names_out().tolist() == raw
    assert transformer.feature_names_in_.tolist() == names
    assert transformer.transform(graph[[3, 4]]).shape == (2, 6)
    transformer.fit(_random_graph()[0], codes)
    assert not hasattr(transformer, "feature_names_in_")


@pytest.mark.parametrize("sparse_features", [False, True], ids=["dense", "csr"])
def test_as_graph_appends_the_cross_fitted_columns(sparse_features):
    names = list("uvwxyz")
    graph, codes = _random_graph(sparse_features=sparse_features, names=names)
    columns = LabelPropagationTIG(columns="raw", random_state=0)
    columns = columns.fit_transform(graph, codes)
    transformer = LabelPropagationTIG(as_graph=True, random_state=0)
    found = transformer.fit_transform(graph, codes)
    assert isinstance(found, Graph)
    assert sparse.issparse(found.features) == sparse_features
    expected = np.hstack([graph.__array__(), columns.astype(np.float32)])
    np.testing.assert_array_equal(found.__array__(), expected)
    assert found.feature_names[:7] == [*names, "information_0"]
    # Fitting and predicting see one and the same graph.
    part = transformer.transform(graph[[4, 20]])
    assert part.nodes.tolist() == [4, 20]
    assert part.fingerprint == found.fingerprint


def test_set_output_leaves_a_graph_alone():
    from sklearn import config_context

    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(as_graph=True)
    assert transformer.set_output(transform="pandas") is transformer
    pipeline = make_pipeline(transformer).set_output(transform="pandas")
    assert isinstance(pipeline.fit_transform(graph, codes), Graph)
    with config_context(transform_output="pandas"):
        assert isinstance(transformer.fit(graph, codes).transform(graph), Graph)
    # What was set before as_graph is remembered, and harmless.
    late = LabelPropagationTIG().set_output(transform="pandas")
    late.set_params(as_graph=True)
    assert isinstance(late.fit_transform(graph, codes), Graph)
    assert not hasattr(late, "get_feature_names_out")


def test_as_graph_needs_a_graph():
    with pytest.raises(GraphError, match="Graph.from_features"):
        LabelPropagationTIG(as_graph=True).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, pd.DataFrame])
def test_feature_matrix_goes_through_a_neighbour_graph(container):
    rng = np.random.default_rng(0)
    X = rng.random((40, 5)) + np.eye(5)[np.arange(40) % 3]
    X[::2, 4] = 0
    X = X.astype(np.float32)
    y = np.where(np.arange(40) < 30, np.arange(40) % 3, -1)
    names = {"columns": list("abcde")} if container is pd.DataFrame else {}
    transformer = LabelPropagationTIG(n_neighbors=5, cv=None, columns="raw")
    found = transformer.fit_transform(container(X, **names), y)

    graph = Graph.from_features(X, n_neighbors=5)
    information = annotated_information(graph, y, 3)
    np.testing.assert_allclose(transformer.gain_, information_gain(information))
    affinity = feature_affinity(X, class_prototypes(X, y, 3))
    influence = information / affinity
    # Literally: the mean of the five training rows of largest cosine.
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    for i in range(20):
        nearest = np.argsort(-(unit @ unit[i]), kind="stable")[:5]
        expected = influence[nearest].mean(axis=0) * affinity[i]
        np.testing.assert_allclose(found[i, :3], expected, atol=1e-6)
    # A row's output depends on the training set alone.
    new = container(X[:7] + 0.25, **names)
    rows = container(X[2:3] + 0.25, **names)
    np.testing.assert_allclose(
        transformer.transform(rows)[0], transformer.transform(new)[2], atol=1e-12
    )


def test_step_of_a_grid_search(cora):
    graph, target = cora.graph, cora.target
    rng = np.random.default_rng(0)
    train = np.concatenate(
        [rng.permutation(np.flatnonzero(target == c))[:20] for c in range(7)]
    )
    search = GridSearchCV(
        make_pipeline(
            LabelPropagationTIG(random_state=0), LogisticRegression(max_iter=1000)
        ),
        {"labelpropagationtig__restart_probability": [0.05, 0.3]},
        cv=3,
        error_score="raise",
    ).fit(graph[train], target[train])
    test = np.setdiff1d(np.arange(len(target)), train)
    assert search.score(graph[test], target[test]) > 0.5


def test_clone_and_pickle():
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(random_state=1).fit(graph, codes)
    assert clone(transformer).get_params() == transformer.get_params()
    again = pickle.loads(pickle.dumps(transformer))
    np.testing.assert_array_equal(again.transform(graph), transformer.transform(graph))


def test_whatever_mode_the_user_has_set(users_mode):
    graph, codes = _random_graph()
    transformer = LabelPropagationTIG(random_state=7, tol=1e-4, device="cpu")
    expected = transformer.fit_transform(graph, codes)
    with users_mode:
        found = transformer.fit_transform(graph, codes)
    np.testing.assert_array_equal(found, expected)


def test_same_seed_same_folds():
    graph, codes = _random_graph()
    first, second = (
        LabelPropagationTIG(random_state=7).fit_transform(graph, codes)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@parametrize_with_checks([LabelPropagationTIG(cv=None)])
def test_scikit_learn_checks_without_cross_fitting(estimator, check):
    """Nothing is excused where fit_transform is fit, then transform."""
    check(estimator)
