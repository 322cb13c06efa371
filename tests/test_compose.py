"""Transformers inside a graph, and meta-estimators over numbers of nodes."""

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import IsolationForest
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)

from sktifa import (
    BatchedGridSearchCV,
    GNNClassifier,
    Graph,
    LabelPropagationTIG,
    OnFeatures,
    OnNodes,
    make_block_graph,
)
from sktifa.exceptions import GraphError, LabelError

FAST = {"max_iter": 20, "random_state": 0, "device": "cpu"}
BLOCKS = make_block_graph(120, 3, random_state=0)
G, Y = BLOCKS.graph, BLOCKS.target
SOME = np.arange(0, 120, 3)


def test_features_change_and_nothing_else():
    found = OnFeatures(StandardScaler()).fit(G[SOME]).transform(G[SOME])
    assert isinstance(found, Graph)
    np.testing.assert_array_equal(found.nodes, SOME)
    assert (found.adjacency != G.adjacency).nnz == 0
    X = G.features.astype(float)
    expected = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(found.features, expected, rtol=1e-3, atol=1e-5)


def test_statistics_of_the_selected_nodes_alone():
    found = OnFeatures(StandardScaler(), statistics="selected").fit(G[SOME])
    X = G.features.astype(float)
    expected = (X - X[SOME].mean(axis=0)) / X[SOME].std(axis=0)
    got = found.transform(G).features
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


def with_other_features(unseen):
    features = np.array(G.features)
    features[unseen] = 1e3
    return G.with_features(features)


def test_inductive_training_sees_none_of_the_unseen():
    unseen = np.setdiff1d(np.arange(120), SOME)
    models = [
        make_pipeline(
            OnFeatures(StandardScaler(), statistics="selected"),
            GNNClassifier(setting="inductive", **FAST),
        ).fit(graph[SOME], Y[SOME])
        for graph in (G, with_other_features(unseen))
    ]
    one, other = (model.predict_proba(G) for model in models)
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("statistics", ["all", "selected"])
def test_labels_come_from_labelled_selected_nodes_alone(statistics):
    y = Y[SOME].copy()
    y[::2] = -1
    known = SOME[1::2]
    select = OnFeatures(SelectKBest(k=3), statistics=statistics).fit(G[SOME], y)
    expected, _ = f_classif(G.features[known], Y[known])
    np.testing.assert_allclose(select.transformer_.scores_, expected)
    others = np.setdiff1d(np.arange(120), known)
    again = clone(select).fit(with_other_features(others)[SOME], y)
    np.testing.assert_array_equal(again.transformer_.scores_, expected)
    best = np.sort(np.argsort(expected)[-3:])
    np.testing.assert_array_equal(select.transform(G).features, G.features[:, best])


def test_labels_of_any_kind_reach_the_transformer():
    y = pd.Series(np.array(["a", "b", "c"])[Y], dtype="string")
    y[1::2] = pd.NA
    select = OnFeatures(SelectKBest(k=3)).fit(G, y)
    expected, _ = f_classif(G.features[::2], Y[::2])
    np.testing.assert_allclose(select.transformer_.scores_, expected)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_cross_fitted_columns_stay_what_they_were_in_fit(container):
    """A labelled node's own label is not in its columns, then or later."""
    bins = container((G.features[:, :3] > 0).astype(np.float32))
    graph = G.with_features(bins)
    encoder = TargetEncoder(cv=StratifiedKFold(3))
    step = OnFeatures(encoder)
    found = step.fit_transform(graph[SOME], Y[SOME])
    rows = np.asarray(graph)
    of_labelled = clone(encoder).fit_transform(rows[SOME], Y[SOME])
    of_all = clone(encoder).fit(rows[SOME], Y[SOME]).transform(rows)
    assert not np.allclose(of_labelled, of_all[SOME])
    expected = of_all
    expected[SOME] = of_labelled
    np.testing.assert_allclose(found.features, expected, rtol=1e-6)
    np.testing.assert_allclose(step.transform(graph).features, expected, rtol=1e-6)
    # Another graph has no nodes of fit.
    other = graph.with_features(1 - rows)
    of_other = step.transformer_.transform(1 - rows)
    np.testing.assert_allclose(step.transform(other).features, of_other, rtol=1e-6)


def test_sparse_rows_are_replaced_too():
    graph = G.with_features(sparse.csr_array(np.maximum(G.features, 0)))
    step = OnFeatures(SelectKBest(k=3)).fit(graph[SOME], Y[SOME])
    found = step.transform(graph).features
    assert sparse.issparse(found)
    best = step.transformer_.get_support()
    np.testing.assert_array_equal(found.toarray(), graph.features.toarray()[:, best])


def test_selections_share_the_transformed_graph():
    step = OnFeatures(PCA(4, random_state=0)).fit(G)
    one, other = step.transform(G[SOME]), step.transform(G[:10])
    assert one.features is other.features
    anew = clone(step).fit_transform(G[5:])
    assert anew.fingerprint == one.fingerprint
    # Refitted, it forgets what the graph became.
    step.set_params(transformer__n_components=2).fit(G)
    assert step.transform(G).n_features == 2


def test_sparse_features_stay_sparse_where_the_transformer_takes_them():
    graph = G.with_features(sparse.csr_array(np.maximum(G.features, 0)))
    assert sparse.issparse(OnFeatures(MaxAbsScaler()).fit_transform(graph).features)
    assert OnFeatures(TruncatedSVD(3)).fit_transform(graph).n_features == 3
    centred = OnFeatures(StandardScaler()).fit_transform(graph).features
    np.testing.assert_allclose(centred.mean(axis=0), 0, atol=1e-5)


def test_compiled_transformers_get_sparse_features_that_they_may_write_to():
    graph = G.with_features(sparse.csr_array(np.maximum(G.features, 0)))
    before = graph.features.copy()
    made = OnFeatures(PolynomialFeatures()).fit_transform(graph).features
    expected = PolynomialFeatures().fit_transform(before.toarray())
    np.testing.assert_allclose(made.toarray(), expected, rtol=1e-6)

    class Careless(MaxAbsScaler):
        def transform(self, X):
            X.data[:] = 0
            return X

    assert OnFeatures(Careless()).fit_transform(graph).features.sum() == 0
    assert (graph.features != before).nnz == 0


@pytest.mark.parametrize(
    "wrapped", [lambda step: step, lambda step: make_pipeline(MaxAbsScaler(), step)]
)
def test_transformers_that_name_nothing_make_columns_without_names(wrapped):
    table = pd.DataFrame({"age": [1.0, 2, 3], "pay": [5.0, 7, 9]})
    graph = Graph(np.ones((3, 3)), table)
    transformer = wrapped(FunctionTransformer(np.sqrt))
    found = OnFeatures(transformer).fit_transform(graph)
    assert found.feature_names is None
    expected = transformer.fit_transform(table)
    np.testing.assert_allclose(found.features, expected, rtol=1e-6)


def test_columns_have_names():
    table = pd.DataFrame({"age": [1.0, 2, 3], "sex": [0.0, 1, 0], "pay": [5.0, 7, 9]})
    graph = Graph(np.ones((3, 3)), table, node_names=["ann", "bob", "cat"])
    columns = ColumnTransformer(
        [("scaled", StandardScaler(), ["pay"])], remainder="passthrough"
    )
    step = OnFeatures(columns).fit(graph)
    found = step.transform(graph[["cat"]])
    assert found.feature_names == ["scaled__pay", "remainder__age", "remainder__sex"]
    assert step.get_feature_names_out().tolist() == found.feature_names
    assert found.node_names.tolist() == ["ann", "bob", "cat"]
    np.testing.assert_allclose(found.features[:, 0], [-1.2247, 0, 1.2247], rtol=1e-4)
    assert step.feature_names_in_.tolist() == ["age", "sex", "pay"]
    with pytest.raises(ValueError, match="feature names should match"):
        OnFeatures(StandardScaler()).fit(graph).transform(
            Graph(np.ones((3, 3)), table[["pay", "sex", "age"]])
        )


def test_set_output_is_the_transformers():
    step = OnFeatures(StandardScaler()).set_output(transform="pandas")
    assert isinstance(step.fit_transform(G.features), pd.DataFrame)
    assert isinstance(clone(step).fit_transform(G), Graph)


def test_a_plain_array_is_transformed_as_by_the_transformer():
    X = np.array(G.features)
    encoder = TargetEncoder(cv=StratifiedKFold(3))
    np.testing.assert_array_equal(
        OnFeatures(encoder).fit_transform(X > 0, Y), encoder.fit_transform(X > 0, Y)
    )
    pipe = make_pipeline(OnFeatures(StandardScaler()), GNNClassifier(**FAST))
    by_hand = make_pipeline(StandardScaler(), GNNClassifier(**FAST))
    np.testing.assert_array_equal(
        pipe.fit(X, Y).predict(X), by_hand.fit(X, Y).predict(X)
    )


def test_a_search_reaches_into_the_transformer():
    pipe = make_pipeline(OnFeatures(PCA(random_state=0)), GNNClassifier(**FAST))
    grid = {"onfeatures__transformer__n_components": [1, 8]}
    search = GridSearchCV(pipe, grid, cv=2).fit(G, Y)
    assert search.best_params_ == {"onfeatures__transformer__n_components": 8}
    assert search.best_estimator_[0].transform(G).n_features == 8


def test_pickles_leave_the_graph_behind(tmp_path):
    step = OnFeatures(StandardScaler()).fit(G)
    expected = step.transform(G)
    joblib.dump(step, tmp_path / "step.joblib")
    found = joblib.load(tmp_path / "step.joblib").transform(G)
    np.testing.assert_array_equal(found.features, expected.features)


def test_refusals():
    with pytest.raises(LabelError, match="requires y"):
        OnFeatures(SelectKBest(k=2)).fit(G)
    with pytest.raises(LabelError, match="40 entries, but 120"):
        OnFeatures(SelectKBest(k=2)).fit(G, Y[SOME])
    fewer = OnFeatures(FunctionTransformer(lambda X: X[1:]))
    with pytest.raises(GraphError, match="119 rows of 120"):
        fewer.fit(G).transform(G)
    with pytest.raises(ValueError, match="'transformer' parameter"):
        OnFeatures(IsolationForest()).fit(G)
    with pytest.raises(ValueError, match="X has 2 features"):
        OnFeatures(StandardScaler()).fit(G).transform(
            G.with_features(G.features[:, :2])
        )


@pytest.mark.parametrize(
    "step",
    [
        OnFeatures(StandardScaler()),
        make_pipeline(
            OnFeatures(StandardScaler()),
            LabelPropagationTIG(as_graph=True, device="cpu", random_state=0),
        ),
    ],
    ids=["features", "features and information"],
)
def test_validation_nodes_pass_the_steps_too(step):
    train, val = SOME, np.arange(1, 120, 3)
    options = {**FAST, "early_stopping": True, "n_iter_no_change": 3, "max_iter": 60}
    pipe = make_pipeline(step, GNNClassifier(**options))
    pipe.fit(
        G[train], Y[train], gnnclassifier__X_val=G[val], gnnclassifier__y_val=Y[val]
    )
    made = clone(step).fit_transform(G[train], Y[train])
    whole = Graph(made.adjacency, made.features)
    by_hand = GNNClassifier(**options).fit(
        whole[train], Y[train], X_val=whole[val], y_val=Y[val]
    )
    assert pipe[-1].validation_losses_ == by_hand.validation_losses_


@pytest.mark.parametrize("encoder", ["gcn", "gat"], ids=["stacked", "alone"])
def test_our_search_leaves_validation_nodes_whole(encoder):
    """As many as there are nodes: scikit-learn would cut them by its folds."""
    val = np.arange(1, 120, 3)
    options = {**FAST, "encoder": encoder, "dropout": 0.0, "early_stopping": True}
    options["n_iter_no_change"] = 2
    search = BatchedGridSearchCV(
        GNNClassifier(**options), {"hidden_size": [8]}, cv=2, error_score="raise"
    )
    y_val = np.array(["a", "b", "c"])[Y[val]]
    y = np.array(["a", "b", "c"])[Y]
    assert len(val) == len(SOME)
    search.fit(G[SOME], y[SOME], X_val=G[val], y_val=y_val)
    model = GNNClassifier(**options, hidden_size=8)
    scores = []
    for train, test in search._checked_cv_orig.split(G[SOME], y[SOME]):
        model.fit(G[SOME[train]], y[SOME[train]], X_val=G[val], y_val=y_val)
        scores.append(model.score(G[SOME[test]], y[SOME[test]]))
    assert search.best_score_ == pytest.approx(np.mean(scores))
    expected = model.fit(G[SOME], y[SOME], X_val=G[val], y_val=y_val)
    np.testing.assert_allclose(
        search.best_estimator_.validation_losses_, expected.validation_losses_
    )


@pytest.mark.parametrize("encoder", ["gcn", "gat"], ids=["stacked", "alone"])
def test_our_search_scores_labelled_nodes_alone(encoder):
    masked = np.where(np.isin(np.arange(120), SOME), Y, -1)
    model = GNNClassifier(**{**FAST, "encoder": encoder})
    by_scorer, by_score = (
        BatchedGridSearchCV(model, {"hidden_size": [8]}, cv=2, scoring=scoring)
        .fit(G, masked)
        .best_score_
        for scoring in ("accuracy", None)
    )
    assert by_scorer == by_score > 0.5


def test_numbers_of_nodes_stand_for_the_graph():
    nodes = SOME[:, None]
    model = OnNodes(GNNClassifier(**FAST), G).fit(nodes.astype(float), Y[SOME])
    expected = GNNClassifier(**FAST).fit(G[SOME], Y[SOME])
    everyone = G.nodes[:, None]
    np.testing.assert_array_equal(model.predict(everyone), expected.predict(G))
    np.testing.assert_array_equal(
        model.decision_function(nodes), expected.decision_function(G[SOME])
    )
    np.testing.assert_array_equal(
        model.predict_proba(nodes), expected.predict_proba(G[SOME])
    )
    weights = np.linspace(0.1, 2, len(SOME))
    model.fit(nodes, Y[SOME], sample_weight=weights)
    expected.fit(G[SOME], Y[SOME], sample_weight=weights)
    np.testing.assert_array_equal(model.predict(everyone), expected.predict(G))
    assert not hasattr(OnNodes(make_pipeline(PCA()), G), "predict_proba")
    # A selection stands for its whole graph: numbers are those of all nodes.
    OnNodes(GNNClassifier(**FAST), G[:3]).fit(nodes, Y[SOME])


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (G[:2], r"graph.nodes\[:, None\]"),
        ([0, 1], "one column"),
        ([[0], [120]], r"X\[1\] is 120"),
        ([[0.5], [1]], r"X\[0\] is 0.5"),
        ([[-1], [1]], r"X\[0\] is -1"),
    ],
)
def test_what_is_no_node_is_refused(X, words):
    with pytest.raises(GraphError, match=words):
        OnNodes(LogisticRegression(), G).fit(X, [0, 1])


def test_our_search_takes_any_graph():
    search = BatchedGridSearchCV(GNNClassifier(**FAST), {"hidden_size": [8]}, cv=2)
    expected = search.fit(G, Y).best_score_
    assert search.fit(G.to_pyg(), Y).best_score_ == expected
