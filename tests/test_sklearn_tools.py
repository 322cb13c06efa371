"""Each scikit-learn tool of the guide's tables: works, is refused, or is remarked on.

On this graph the edges tell the classes and the features hardly do, so a tool that
loses the edges can't pass for one that works.
"""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE, SelectKBest, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    permutation_test_score,
    train_test_split,
    validation_curve,
)
from sklearn.multiclass import (
    OneVsOneClassifier,
    OneVsRestClassifier,
    OutputCodeClassifier,
)
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, TargetEncoder
from sklearn.semi_supervised import SelfTrainingClassifier

from sktifa import (
    GNNClassifier,
    LabelPropagationTIG,
    OnFeatures,
    OnNodes,
    make_block_graph,
)
from sktifa.exceptions import GraphError, GraphWarning, LabelError, ParameterError

FAST = {"max_iter": 40, "random_state": 0, "device": "cpu"}
M = GNNClassifier(**FAST)
BLOCKS = make_block_graph(240, 3, random_state=0)
G, Y = BLOCKS.graph, BLOCKS.target
ORDER = np.random.default_rng(0).permutation(240)
TRAIN, TEST = ORDER[:80], ORDER[80:]
X, y = G[TRAIN], Y[TRAIN]
BINARY = (Y == 1).astype(int)
MASKED = np.where(np.isin(np.arange(240), TRAIN), Y, -1)

# What an estimator of arrays makes of the features, and M of the graph.
ON_ARRAY = (
    LogisticRegression().fit(G.features[TRAIN], y).score(G.features[TEST], Y[TEST])
)
ON_GRAPH = GNNClassifier(**FAST).fit(X, y).score(G[TEST], Y[TEST])


def test_the_graph_tells_what_the_features_do_not():
    assert ON_GRAPH > 0.85
    assert ON_ARRAY < 0.55


def fitted(tool, labels=Y):
    """Return the accuracy on the test nodes."""
    tool.fit(X, labels[TRAIN])
    return np.mean(tool.predict(G[TEST]) == labels[TEST])


def searched(search, **parameters):
    return fitted(search(M, {"dropout": [0.2, 0.5]}, cv=2, **parameters))


def from_halving(search):
    budget = {"resource": "max_iter", "min_resources": 20, "max_resources": 40}
    return searched(search, **budget)


def predicted_across():
    return np.mean(cross_val_predict(M, X, y, cv=4) == y)


def split_once():
    parts = train_test_split(G, Y, train_size=80, stratify=Y, random_state=0)
    X_train, X_test, y_train, y_test = parts
    return GNNClassifier(**FAST).fit(X_train, y_train).score(X_test, y_test)


def with_two_outputs():
    both = np.column_stack([Y == 0, Y == 1]).astype(int)
    return fitted(MultiOutputClassifier(M), both)


def with_threshold(tool, **options):
    return fitted(tool(M, **options), BINARY)


def frozen():
    return fitted(FrozenEstimator(GNNClassifier(**FAST).fit(X, y)))


def confusion():
    model = GNNClassifier(**FAST).fit(X, y)
    matrix = ConfusionMatrixDisplay.from_estimator(model, G[TEST], Y[TEST])
    return np.trace(matrix.confusion_matrix) / len(TEST)


def in_a_vote():
    pair = [("a", M), ("b", GNNClassifier(encoder="sage", **FAST))]
    return fitted(VotingClassifier(pair, voting="soft"))


def stacked():
    return fitted(
        StackingClassifier([("a", M)], LogisticRegression(), cv=2, passthrough=True)
    )


WORKS = {
    "Pipeline": lambda: fitted(make_pipeline(OnFeatures(StandardScaler()), M)),
    "GridSearchCV": lambda: searched(GridSearchCV),
    "RandomizedSearchCV": lambda: searched(RandomizedSearchCV, n_iter=2),
    "HalvingGridSearchCV": lambda: from_halving(HalvingGridSearchCV),
    "HalvingRandomSearchCV": lambda: from_halving(HalvingRandomSearchCV),
    "cross_val_score": lambda: cross_val_score(M, X, y, cv=4).mean(),
    "cross_validate": lambda: cross_validate(M, X, y, cv=4)["test_score"].mean(),
    "cross_val_predict": predicted_across,
    "learning_curve": lambda: learning_curve(M, X, y, cv=4, train_sizes=[0.9, 1.0])[2][
        -1
    ].mean(),
    "validation_curve": lambda: (
        validation_curve(M, X, y, param_name="dropout", param_range=[0.5], cv=4)[1]
        .ravel()
        .mean()
    ),
    "permutation_test_score": lambda: permutation_test_score(
        M, X, y, cv=4, n_permutations=1
    )[0],
    "train_test_split": split_once,
    "VotingClassifier": in_a_vote,
    "StackingClassifier": stacked,
    "CalibratedClassifierCV": lambda: fitted(CalibratedClassifierCV(M, cv=2)),
    "OneVsRestClassifier": lambda: fitted(OneVsRestClassifier(M)),
    "OutputCodeClassifier": lambda: fitted(
        OutputCodeClassifier(GNNClassifier(missing_label=None, **FAST), random_state=0)
    ),
    "MultiOutputClassifier": with_two_outputs,
    "TunedThresholdClassifierCV": lambda: with_threshold(
        TunedThresholdClassifierCV, cv=2, scoring="accuracy"
    ),
    "FixedThresholdClassifier": lambda: with_threshold(FixedThresholdClassifier),
    "FrozenEstimator": frozen,
    "DummyClassifier": lambda: fitted(DummyClassifier()),
    "ConfusionMatrixDisplay": confusion,
}


def behind(transformer):
    return lambda: fitted(make_pipeline(transformer, M))


UNION = FeatureUnion([("a", StandardScaler()), ("b", PCA(2))])
SEQUENTIAL = {"n_features_to_select": 6, "cv": 2}
REFUSED = {
    "BaggingClassifier": lambda: fitted(BaggingClassifier(M)),
    "AdaBoostClassifier": lambda: fitted(AdaBoostClassifier(M)),
    "OneVsOneClassifier": lambda: fitted(OneVsOneClassifier(M)),
    "SelfTrainingClassifier": lambda: fitted(SelfTrainingClassifier(M)),
    "ClassifierChain": lambda: ClassifierChain(M).fit(X, y[:, None] == [0, 1]),
    "RFE": lambda: fitted(RFE(M)),
    "SequentialFeatureSelector": lambda: fitted(
        SequentialFeatureSelector(M, **SEQUENTIAL)
    ),
    "StandardScaler in a pipeline": behind(StandardScaler()),
    "PCA in a pipeline": behind(PCA(4)),
    "SelectKBest in a pipeline": behind(SelectKBest(k=4)),
    "TargetEncoder in a pipeline": behind(TargetEncoder()),
    "FunctionTransformer of arrays": behind(FunctionTransformer(np.abs)),
    "ColumnTransformer": behind(ColumnTransformer([("a", StandardScaler(), [0])])),
    "LabelPropagationTIG in a pipeline": behind(LabelPropagationTIG(device="cpu")),
    "FeatureUnion of transformers of arrays": behind(UNION),
    "sklearn.inspection.permutation_importance": lambda: permutation_importance(
        GNNClassifier(**FAST).fit(X, y), G[TEST], Y[TEST]
    ),
    "unlabelled nodes in VotingClassifier": lambda: VotingClassifier([("a", M)]).fit(
        G, MASKED
    ),
    'unlabelled nodes in scoring="accuracy"': lambda: cross_val_score(
        M, G, MASKED, cv=2, scoring="accuracy", error_score="raise"
    ),
    "X_val as long as X in GridSearchCV": lambda: GridSearchCV(
        M, {"dropout": [0.5]}, cv=2, error_score="raise"
    ).fit(X, y, X_val=G[TEST[:80]], y_val=Y[TEST[:80]]),
}
FEATURES_ALONE = {
    "LogisticRegression": LogisticRegression(),
    "RandomForestClassifier": RandomForestClassifier(10, random_state=0),
    "KNeighborsClassifier": KNeighborsClassifier(),
    "StandardScaler": StandardScaler(),
    "PCA": PCA(2),
    "SelectKBest": SelectKBest(k=2),
}


@pytest.mark.parametrize("tool", WORKS)
def test_works(tool):
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphWarning)
        # Some tools shuffle labels: then it doesn't.
        warnings.filterwarnings("default", "The graph does not seem to help")
        accuracy = WORKS[tool]()
    if tool == "DummyClassifier":
        assert accuracy == np.mean(Y[TEST] == np.bincount(y).argmax())
    else:
        assert accuracy > ON_GRAPH - 0.1


@pytest.mark.parametrize("tool", REFUSED)
def test_refused_with_the_reason(tool):
    with pytest.raises((GraphError, LabelError, ParameterError, IndexError)) as error:
        REFUSED[tool]()
    mends = "OnFeatures|OnNodes|give a sktifa.Graph|labeled|scoring=None|X_val whole"
    assert re.search(mends, str(error.value))


def test_refused_where_the_work_is_sent_to_other_processes():
    union = FeatureUnion([("a", StandardScaler()), ("b", PCA(2))], n_jobs=2)
    with pytest.raises(GraphError, match="OnFeatures"):
        make_pipeline(union, M).fit(X, y)
    pair = [("a", M), ("b", M)]
    for meta in (
        VotingClassifier(pair, n_jobs=2),
        StackingClassifier(pair, n_jobs=2),
        CalibratedClassifierCV(M, n_jobs=2),
    ):
        with pytest.raises(LabelError, match="takes -1 for one more class"):
            meta.fit(G, MASKED)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_validation_nodes_are_cut_only_where_they_are_as_many_as_nodes(n_jobs):
    """The length of a training fold is no reason to refuse."""
    search = GridSearchCV(
        M, {"dropout": [0.5]}, cv=2, n_jobs=n_jobs, error_score="raise"
    )
    fits = search.fit(X, y, X_val=G[TEST[:40]], y_val=Y[TEST[:40]])
    assert fits.best_score_ > ON_ARRAY
    with pytest.raises(ParameterError, match="X_val had 80 entries"):
        search.fit(X, y, X_val=G[TEST[:80]], y_val=Y[TEST[:80]])
    for tool in (
        lambda params: cross_val_predict(M, X, y, cv=2, n_jobs=n_jobs, params=params),
        lambda params: cross_val_score(
            M, X, y, cv=2, n_jobs=n_jobs, params=params, error_score="raise"
        ),
        lambda params: CalibratedClassifierCV(M, cv=2, n_jobs=n_jobs).fit(
            X, y, **params
        ),
    ):
        tool({"X_val": G[TEST[:40]], "y_val": Y[TEST[:40]]})
        with pytest.raises(ParameterError, match="X_val had 80 entries"):
            tool({"X_val": G[TEST[:80]], "y_val": Y[TEST[:80]]})
    rows = np.asarray(G)
    with pytest.raises(ParameterError, match="X_val had 80 entries"):
        search.fit(rows[TRAIN], y, X_val=rows[TEST[:80]], y_val=Y[TEST[:80]])


@pytest.mark.parametrize("tool", FEATURES_ALONE)
def test_reads_the_features_alone_and_says_so(tool):
    method = "predict" if is_classifier(FEATURES_ALONE[tool]) else "transform"
    with pytest.warns(GraphWarning, match=rf"{tool} reads the graph .* np.asarray"):
        estimator = FEATURES_ALONE[tool].fit(X, y)
    with pytest.warns(GraphWarning):
        found = getattr(estimator, method)(G[TEST])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = FEATURES_ALONE[tool].fit(np.asarray(X), y)
        expected = getattr(rows, method)(np.asarray(G[TEST]))
    # A graph's features become float64, an array's stay float32.
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_guide_lists_these_tools():
    guide = Path(__file__).parents[1] / "docs" / "guide" / "sklearn_tools.md"
    tables = guide.read_text().split("\n## ")[1:]
    for table, tools in zip(tables, (WORKS, REFUSED, FEATURES_ALONE), strict=True):
        rows = re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE)
        listed = [row.replace("`", "") for row in rows if row not in ("Tool", "---")]
        assert listed == list(tools)


@pytest.mark.parametrize(
    "meta",
    [
        lambda inner: BaggingClassifier(inner, n_estimators=3, random_state=0),
        lambda inner: AdaBoostClassifier(inner, n_estimators=2, random_state=0),
        lambda inner: OneVsOneClassifier(inner),
        lambda inner: SelfTrainingClassifier(inner, max_iter=2),
    ],
    ids=["bagging", "boosting", "one against one", "self-training"],
)
def test_what_is_refused_works_with_numbers_of_nodes(meta):
    nodes = G.nodes[:, None]
    model = meta(OnNodes(M, G))
    if isinstance(model, SelfTrainingClassifier):
        model.fit(nodes, MASKED)
    else:
        model.fit(nodes[TRAIN], y)
    assert model.score(nodes[TEST], Y[TEST]) > ON_GRAPH - 0.1


@pytest.mark.parametrize(
    "transformer",
    [
        StandardScaler(),
        PCA(8),
        SelectKBest(k=8),
        UNION,
        ColumnTransformer([("a", StandardScaler(), [0, 1])], remainder="passthrough"),
        FunctionTransformer(np.tanh),
        RFE(LogisticRegression(), n_features_to_select=8),
        SequentialFeatureSelector(LogisticRegression(), **SEQUENTIAL),
    ],
    ids=lambda transformer: type(transformer).__name__,
)
def test_what_is_refused_works_on_features(transformer):
    """Better than any estimator of arrays alone: the edges are there."""
    accuracy = fitted(make_pipeline(OnFeatures(transformer), GNNClassifier(**FAST)))
    assert accuracy > ON_ARRAY + 0.15


def test_a_model_of_an_array_refuses_a_graph():
    rows = GNNClassifier(**FAST).fit(np.asarray(X), y)
    with pytest.raises(GraphError, match="was fitted on an array"):
        rows.predict(G)
    pipe = make_pipeline(StandardScaler(), GNNClassifier(**FAST)).fit(np.asarray(X), y)
    with pytest.raises(GraphError, match=r"OnFeatures\(StandardScaler"):
        pipe.predict(G)


def test_estimators_of_arrays_beside_a_graph_classifier():
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    for meta in (
        VotingClassifier([("a", M), ("b", scaled)], voting="soft"),
        StackingClassifier([("a", M), ("b", scaled)], cv=2),
    ):
        with pytest.warns(GraphWarning, match="StandardScaler reads the graph"):
            assert fitted(meta) > ON_ARRAY


def test_the_warning_points_at_who_called():
    with pytest.warns(GraphWarning) as caught:
        LogisticRegression().fit(X, y)
    assert caught[0].filename == __file__


@pytest.mark.slow
def test_the_edges_of_cora(cora):
    """.836 with the graph, .319 where a scaler lost it."""
    graph, labels, train = cora.graph, cora.target, cora.train_mask
    model = GNNClassifier(max_iter=60, random_state=0, device="cpu")
    for lost in (make_pipeline(StandardScaler(), model), BaggingClassifier(model)):
        with pytest.raises(GraphError):
            lost.fit(graph[train], labels[train])
    pipe = make_pipeline(OnFeatures(StandardScaler(with_mean=False)), model)
    pipe.fit(graph[train], labels[train])
    scaled = StandardScaler(with_mean=False).fit_transform(graph.features)
    by_hand = graph.with_features(scaled)
    expected = model.fit(by_hand[train], labels[train]).predict(by_hand)
    np.testing.assert_array_equal(pipe.predict(graph), expected)
    nodes = graph.nodes[:, None]
    bagging = BaggingClassifier(OnNodes(model, graph), n_estimators=3, random_state=0)
    bagging.fit(nodes[train], labels[train])
    test = cora.test_mask
    assert bagging.score(nodes[test], labels[test]) > 0.7
