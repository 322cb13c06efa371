"""Predictions by node name, and arrays for those that index them."""

import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sktifa import (
    BatchedGridSearchCV,
    GNNClassifier,
    Graph,
    OnFeatures,
    OnNodes,
    TIFAGCLClassifier,
    make_block_graph,
)
from sktifa.displays import GainBinsDisplay
from sktifa.exceptions import MissingPackageError

pl = pytest.importorskip("polars")

FAST = {"max_iter": 3, "random_state": 0, "device": "cpu"}
DATA = make_block_graph(60, 2, random_state=0)
NAMES = [f"n{i}" for i in range(60)]
GRAPH = Graph(DATA.graph.adjacency, DATA.graph.features, node_names=NAMES)
Y = np.array(["no", "yes"])[DATA.target]


@pytest.fixture
def named():
    with sklearn.config_context(transform_output="pandas"):
        yield


@pytest.mark.parametrize("classifier", [GNNClassifier, TIFAGCLClassifier])
def test_pandas_has_names_in_the_index(classifier):
    model = classifier(**FAST).fit(GRAPH, Y)
    part = GRAPH[["n7", "n2", "n7"]]
    arrays = model.predict(part), model.predict_proba(part)
    scores = model.decision_function(part)
    assert all(type(array) is np.ndarray for array in arrays)
    model.set_output(transform="pandas")
    predicted = model.predict(part)
    expected = pd.Series(arrays[0], pd.Index(["n7", "n2", "n7"], name="node"))
    pd.testing.assert_series_equal(predicted, expected.rename("prediction"))
    chances = model.predict_proba(part)
    assert chances.columns.tolist() == ["no", "yes"]
    assert chances.index.tolist() == ["n7", "n2", "n7"]
    np.testing.assert_array_equal(chances.to_numpy(), arrays[1])
    decision = model.decision_function(part)
    np.testing.assert_array_equal(decision.to_numpy(), scores)
    assert decision.index.tolist() == ["n7", "n2", "n7"]
    model.set_output(transform="default")
    assert type(model.predict(part)) is np.ndarray


def test_polars_has_names_in_a_column():
    model = GNNClassifier(**FAST).fit(GRAPH, Y)
    expected = model.predict(GRAPH[:2]).tolist()
    shares = model.predict_proba(GRAPH[:2])
    model.set_output(transform="polars")
    assert model.predict(GRAPH[:2]).to_dict(as_series=False) == {
        "node": ["n0", "n1"],
        "prediction": expected,
    }
    chances = model.predict_proba(GRAPH[:2])
    assert chances.columns == ["node", "no", "yes"]
    np.testing.assert_array_equal(chances.drop("node").to_numpy(), shares)


def test_a_class_may_be_called_node():
    y = np.where(Y == "no", "node", "edge")
    model = GNNClassifier(**FAST).fit(GRAPH, y).set_output(transform="polars")
    assert model.predict_proba(GRAPH).columns == ["node_", "edge", "node"]


def test_nodes_without_names_are_called_by_number_and_rows_by_their_index():
    model = GNNClassifier(**FAST).set_output(transform="pandas")
    model.fit(DATA.graph, Y)
    assert model.predict(DATA.graph[[5, 3]]).index.tolist() == [5, 3]
    rows = pd.DataFrame(DATA.graph.features, index=NAMES)
    rows.columns = rows.columns.astype(str)
    model.fit(rows, Y)
    assert model.predict(rows[:2]).index.tolist() == ["n0", "n1"]
    model.fit(rows.to_numpy(), Y)
    assert model.predict(rows.to_numpy()[:2].tolist()).index.tolist() == [0, 1]
    assert isinstance(
        model.set_output(transform="polars").predict(rows.to_numpy()), pl.DataFrame
    )


def test_names_of_any_kind_stay_what_they_are():
    names = [(1, "a"), "b", 3]
    graph = Graph(np.ones((3, 3)), node_names=names)
    model = GNNClassifier(**FAST).fit(graph, ["x", "y", "x"])
    predicted = model.set_output(transform="pandas").predict(graph)
    assert predicted.index.tolist() == names
    in_polars = model.set_output(transform="polars").predict(graph)
    assert in_polars["node"].to_list() == ["(1, 'a')", "b", "3"]


@pytest.mark.parametrize(
    "around",
    [
        lambda gnn: make_pipeline(OnFeatures(StandardScaler()), gnn),
        lambda gnn: GridSearchCV(gnn, {"hidden_size": [4, 8]}, cv=2),
        lambda gnn: GridSearchCV(
            make_pipeline(OnFeatures(StandardScaler()), gnn),
            {"gnnclassifier__hidden_size": [4, 8]},
            cv=2,
            scoring="roc_auc",
        ),
        lambda gnn: BatchedGridSearchCV(gnn, {"hidden_size": [4, 8]}, cv=2),
    ],
    ids=["pipeline", "search", "search of a pipeline", "batched search"],
)
def test_names_come_through(around):
    gnn = GNNClassifier(**FAST).set_output(transform="pandas")
    tool = around(gnn).fit(GRAPH, Y)
    assert tool.predict(GRAPH[["n5"]]).index.tolist() == ["n5"]
    assert tool.predict_proba(GRAPH[["n5"]]).columns.tolist() == ["no", "yes"]
    assert 0 <= tool.score(GRAPH, Y) <= 1


def test_names_come_through_thresholds_and_numbers_of_nodes(named):
    gnn = GNNClassifier(**FAST)
    tool = FixedThresholdClassifier(gnn).fit(GRAPH, Y)
    assert tool.predict_proba(GRAPH[:2]).index.tolist() == ["n0", "n1"]
    on_nodes = OnNodes(gnn, GRAPH).fit(GRAPH.nodes[:, None], Y)
    assert on_nodes.predict([[4], [2]]).index.tolist() == ["n4", "n2"]


@pytest.mark.parametrize(
    "tool",
    [
        lambda gnn: VotingClassifier([("a", gnn), ("b", gnn)], voting="soft"),
        lambda gnn: VotingClassifier([("a", gnn), ("b", gnn)]),
        lambda gnn: StackingClassifier([("a", gnn)], LogisticRegression(), cv=2),
        lambda gnn: CalibratedClassifierCV(gnn, cv=2),
        lambda gnn: OneVsRestClassifier(gnn),
        lambda gnn: TunedThresholdClassifierCV(gnn, cv=2),
    ],
)
def test_those_that_index_predictions_get_arrays(tool, named):
    fitted = tool(GNNClassifier(**FAST)).fit(GRAPH, Y)
    predicted = fitted.predict(GRAPH)
    with sklearn.config_context(transform_output="default"):
        again = tool(GNNClassifier(**FAST)).fit(GRAPH, Y)
        np.testing.assert_array_equal(predicted, again.predict(GRAPH))


def test_scores_and_displays_are_what_they_are_of_arrays(named):
    gnn = GNNClassifier(**FAST)
    with sklearn.config_context(transform_output="default"):
        expected = gnn.fit(GRAPH, Y).score(GRAPH, Y)
        areas = cross_val_score(gnn, GRAPH, Y, scoring="roc_auc", cv=2)
        across = cross_val_predict(gnn, GRAPH, Y, cv=2, method="predict_proba")
    assert gnn.fit(GRAPH, Y).score(GRAPH, Y) == expected
    np.testing.assert_array_equal(
        cross_val_score(gnn, GRAPH, Y, scoring="roc_auc", cv=2), areas
    )
    np.testing.assert_array_equal(
        cross_val_predict(gnn, GRAPH, Y, cv=2, method="predict_proba"), across
    )
    chances = gnn.predict_proba(GRAPH)
    assert roc_auc_score(Y, chances["yes"]) == pytest.approx(
        roc_auc_score(Y, chances.to_numpy()[:, 1])
    )
    GainBinsDisplay.from_estimator(gnn, GRAPH, Y, gain=np.arange(60))


def test_what_is_no_library_is_refused_and_what_is_missing_named(monkeypatch):
    model = GNNClassifier(**FAST).fit(GRAPH, Y)
    with pytest.raises(ValueError, match="output config must be in"):
        model.set_output(transform="arrow").predict(GRAPH)
    model.set_output(transform="pandas").predict(GRAPH)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="pip install pandas"):
        model.predict(GRAPH)
