"""Labels of every type, and what is refused with which words."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.class_weight import compute_class_weight

from sktifa import GNNClassifier, make_block_graph
from sktifa.exceptions import LabelError, LabelWarning, ParameterError
from sktifa.graph import Graph
from sktifa.labels import (
    align_labels,
    check_enough_classes,
    class_weights,
    encode_labels,
    find_classes,
    node_weights,
)

pl = pytest.importorskip("polars")

CASES = {
    "integers": ([5, -1, 2, 5], -1, [1, -1, 0, 1], [2, 5]),
    "other marker": ([5, 0, 2, -1], 0, [2, -1, 1, 0], [-1, 2, 5]),
    "floats with NaN": ([1.0, np.nan, 0.0], -1, [1, -1, 0], [0.0, 1.0]),
    "booleans": ([True, False, True], -1, [1, 0, 1], [False, True]),
    "strings": (["b", "a", "b"], -1, [1, 0, 1], ["a", "b"]),
    "string marker": (["b", "?", "a"], "?", [1, -1, 0], ["a", "b"]),
    "objects with None": (["b", None, "a"], -1, [1, -1, 0], ["a", "b"]),
    "objects with NaN": (["b", np.nan, "a"], None, [1, -1, 0], ["a", "b"]),
    "numbers as objects": ([3, None, 1], -1, [1, -1, 0], [1, 3]),
}


@pytest.mark.parametrize("case", CASES)
def test_codes_and_classes(case):
    y, missing_label, codes, classes = CASES[case]
    if case.startswith(("objects", "numbers")):
        y = np.array(y, dtype=object)
    found, found_classes = encode_labels(y, missing_label)
    assert found.dtype == np.int64
    assert found.tolist() == codes
    assert found_classes.tolist() == classes


def test_objects_may_hold_the_numeric_marker():
    codes, classes = encode_labels(np.array(["b", -1, "a"], dtype=object))
    assert codes.tolist() == [1, -1, 0]
    assert classes.tolist() == ["a", "b"]


# Three labels, the second of them hidden, and the type that classes must have.
CONTAINERS = {
    "masked array": (np.ma.array([1, 9, 0], mask=[0, 1, 0]), int),
    "masked strings": (np.ma.array(["b", "x", "a"], mask=[0, 1, 0]), str),
    "list of strings with NaN": (["b", np.nan, "a"], str),
    "tuple of strings with None": (("b", None, "a"), str),
    "list of strings with -1": (["b", -1, "a"], str),
    "digit strings": (["1", None, "0"], str),
    "objects with NA": (np.array([True, pd.NA, False], dtype=object), bool),
    "objects with NaT": (np.array(["b", pd.NaT, "a"], dtype=object), str),
    "dates": (np.array(["2021-01-01", "NaT", "2020-01-01"], "M8[D]"), None),
    "tensor": (torch.tensor([1, -1, 0]), int),
    "tensor with gradient": (torch.tensor([1.0, -1, 0], requires_grad=True), float),
    "Int64": (pd.Series([1, None, 0], dtype="Int64"), int),
    "boolean": (pd.Series([True, None, False], dtype="boolean"), bool),
    "category": (pd.Series(["b", None, "a"], dtype="category"), str),
    "category of numbers": (pd.Series([1, None, 0], dtype="category"), (int, float)),
    "string": (pd.Series(["b", pd.NA, "a"], dtype="string"), str),
    "float": (pd.Series([1.0, None, 0.0]), float),
    "Index": (pd.Index(["b", None, "a"]), str),
    "Categorical": (pd.Categorical(["b", None, "a"]), str),
    "arrow-backed": (pd.Series([1, None, 0], dtype="int64[pyarrow]"), int),
    "polars integers": (pl.Series([1, None, 0]), int),
    "polars booleans": (pl.Series([True, None, False]), bool),
    "polars strings": (pl.Series(["b", None, "a"]), str),
    "polars category": (pl.Series(["b", None, "a"], dtype=pl.Categorical), str),
    "NumPy's strings with None": (
        np.array(["b", None, "a"], dtype=np.dtypes.StringDType(na_object=None)),
        str,
    ),
    "Arrow": (pa.array([1, None, 0]), int),
    "Arrow booleans": (pa.chunked_array([[True, None], [False]]), bool),
    "Arrow dictionary": (pa.array(["b", None, "a"]).dictionary_encode(), str),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_labels_of_any_container(name):
    y, kind = CONTAINERS[name]
    codes, classes = encode_labels(y)
    assert codes.tolist() == [1, -1, 0]
    assert len(classes) == 2
    if kind is not None:
        assert all(isinstance(label, kind) for label in classes.tolist())
        # NumPy's own types, which scikit-learn's metrics know.
        assert classes.dtype != object or kind is str


def test_a_classifier_answers_in_the_type_of_the_labels():
    blocks = make_block_graph(60, 2, random_state=0)
    for y in (
        pd.Series(blocks.target == 1, dtype="boolean"),
        pd.Series(blocks.target, dtype="Int64"),
        pd.Series(np.array(["0", "1"])[blocks.target]),
    ):
        hidden = y.copy()
        hidden[::3] = None
        model = GNNClassifier(max_iter=3, random_state=0, device="cpu")
        model.fit(blocks.graph, hidden)
        assert set(model.predict(blocks.graph).tolist()) <= set(y.tolist())
        labelled = hidden.notna().to_numpy()
        right = model.predict(blocks.graph)[labelled] == y[labelled].to_numpy()
        assert model.score(blocks.graph, hidden) == pytest.approx(right.mean())


@pytest.mark.parametrize("y", [[b"a", b"b"], np.array([b"a", "b"], dtype=object)])
def test_bytes_are_refused(y):
    with pytest.raises(LabelError, match="np.char.decode"):
        encode_labels(y)


@pytest.mark.parametrize(
    "y",
    [
        [1 + 2j, 2],
        np.array([(1, 2)], dtype=[("a", int), ("b", int)]),
        [frozenset([1]), frozenset([2])],
        np.array([{"a": 1}, {"b": 2}], dtype=object),
    ],
    ids=["complex", "records", "sets", "dicts"],
)
def test_what_names_no_class_is_refused(y):
    with pytest.raises(LabelError, match="Unknown label type"):
        encode_labels(y)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"y": [3, 1]}),
        pl.DataFrame({"y": [3, 1]}),
        pa.table({"y": [3, 1]}),
        np.array([[3], [1]]),
    ],
    ids=["pandas", "polars", "Arrow", "NumPy"],
)
def test_the_column_of_a_table(table):
    with pytest.warns(DataConversionWarning, match="column-vector"):
        codes, classes = encode_labels(table)
    assert classes[codes].tolist() == [3, 1]


@pytest.mark.parametrize("y", [[-1, 1, 1], [-1.0, 1.0, -1.0]])
def test_one_class_beside_the_mark_names_missing_label(y):
    with pytest.raises(LabelError, match=r"all of one class .*missing_label=None"):
        check_enough_classes(y, *encode_labels(y))
    codes, classes = encode_labels(y, missing_label=None)
    check_enough_classes(y, codes, classes, None)
    assert classes.tolist() == [-1, 1]


def test_minus_one_beside_zero_and_one_is_not_swallowed_without_a_word():
    y = [-1, 0, 1, -1, 0, 1]
    with pytest.warns(LabelWarning, match="2 entries that are -1 .*missing_label=None"):
        check_enough_classes(y, *encode_labels(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Mostly unlabelled, as usual; other classes; another mark.
        for y in ([-1, 0, 1, -1], [-1, 0, 1, 2], [None, 0, 1], ["a", "b", -1]):
            check_enough_classes(y, *encode_labels(y))


def test_weights_of_classes_go_by_their_labels():
    codes = np.array([0, 1, 1, -1])
    strings = np.array(["0", "1"])
    assert class_weights({"0": 1, "1": 2}, codes, strings).tolist() == [1, 2]
    assert class_weights({1: 5}, codes, np.array([0, 1])).tolist() == [1, 5]
    assert class_weights({True: 5}, codes, np.array([False, True])).tolist() == [1, 5]
    assert class_weights(None, codes, strings).tolist() == [1, 1]
    balanced = compute_class_weight("balanced", classes=strings, y=strings[codes[:3]])
    np.testing.assert_allclose(class_weights("balanced", codes, strings), balanced)
    # A fold without a class may come with its weight.
    assert class_weights({"0": 3, "1": 2, "2": 9}, codes, strings).tolist() == [3, 2]
    with pytest.raises(ParameterError, match="2, which is none of the classes"):
        class_weights({"0": 1, 2: 1}, codes, strings)
    with pytest.raises(ParameterError, match="is -1"):
        class_weights({"0": -1, "1": 1}, codes, strings)


def test_weights_of_nodes():
    assert node_weights(None, 2).tolist() == [1, 1]
    assert node_weights(np.array([1, 2.5], dtype=object), 2).tolist() == [1, 2.5]
    assert node_weights(torch.tensor([1, 2]), 2).tolist() == [1, 2]
    for weights, words in (
        ([1], r"shape \(1,\), but there are 2"),
        ([1, -1], r"sample_weight\[1\] is -1"),
        ([np.nan, 1], r"sample_weight\[0\] is nan"),
        (["a", "b"], "must hold numbers"),
        ([0, 0], "zero for every node"),
        (np.ma.array([1, 2], mask=[0, 1]), "masked entries"),
    ):
        with pytest.raises(LabelError, match=words):
            node_weights(weights, 2)


def test_labels_of_another_type_are_not_just_wrong():
    assert find_classes(np.array([2.0, 3.0]), np.array([1, 2])).tolist() == [1, -1]
    with pytest.raises(LabelError, match="of the same type"):
        find_classes(np.array(["1"]), np.array([1, 2]))


def test_a_series_in_another_order_is_refused():
    graph = Graph(np.ones((3, 3)))
    y = pd.Series([3, 1, 2], index=[2, 0, 1])
    with pytest.raises(LabelError, match=r"another order: .*y.loc\[graph.nodes\]"):
        encode_labels(y, of=graph)
    with pytest.raises(LabelError, match="another order"):
        encode_labels(y[:2], of=graph[[0, 2]])
    # What sktifa and scikit-learn cut alike has the numbers of the selected nodes.
    shuffled = [2, 0, 1]
    codes, classes = encode_labels(y.sort_index().iloc[shuffled], of=graph[shuffled])
    assert classes[codes].tolist() == [3, 1, 2]
    encode_labels(y.reset_index(drop=True), of=graph)
    encode_labels(y, of=3)


def test_round_trip():
    y = np.random.default_rng(0).choice([-1, 4, 7, 9], 300)
    codes, classes = encode_labels(y)
    np.testing.assert_array_equal(np.where(codes >= 0, classes[codes], -1), y)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([-1, -1], "none of the 2 nodes has a label"),
        ([], "none of the 0 nodes"),
        ([[1], [0]], "one-dimensional"),
        ([0.0, 1.5], r"continuous. y\[1\] is 1.5"),
        ([0.0, np.inf], r"y\[1\] is inf"),
        (["a", "-1"], "use dtype object"),
        (np.array(["a", 1], dtype=object), "don't compare"),
    ],
)
def test_refused_with_the_reason(y, words):
    with pytest.raises(LabelError, match=words):
        encode_labels(y)


def test_length_speaks_of_the_selection():
    graph = Graph(np.ones((4, 4)))
    encode_labels([1, 0], of=graph[[0, 2]])
    with pytest.raises(LabelError, match=r"4 entries, but 2 .* y_val\[idx\]"):
        encode_labels([1, 0, 1, 0], of=graph[[0, 2]], name="y_val")
    with pytest.raises(LabelError, match="3 entries, but 4"):
        encode_labels([1, 0, 1], of=graph)
    with pytest.raises(LabelError, match="3 entries for 4 rows"):
        encode_labels([1, 0, 1], of=4)


def test_a_series_follows_the_names_of_the_nodes():
    path = np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1)
    graph = Graph(path, node_names=["ann", "bob", "cat"])
    shuffled = pd.Series([3, 1, 2], index=["cat", "ann", "bob"])
    assert align_labels(shuffled, graph).tolist() == [1, 2, 3]
    assert align_labels(shuffled, graph[["cat", "bob"]]).tolist() == [3, 2]
    few = shuffled[["bob"]]
    assert align_labels(few, graph).tolist() == [-1, 2, -1]
    assert align_labels(few, graph, missing_label=0).tolist() == [0, 2, 0]
    words = pd.Series({"cat": "x"})
    assert align_labels(words, graph).tolist() == [None, None, "x"]
    nullable = pd.Series([True, None], index=["bob", "cat"], dtype="boolean")
    codes, classes = encode_labels(align_labels(nullable, graph))
    assert (codes.tolist(), classes.tolist()) == ([-1, 0, -1], [True])
    with pytest.raises(LabelError, match="'eve', which is no node"):
        align_labels(pd.Series({"bob": 1, "eve": 2}), graph)
    with pytest.raises(LabelError, match="node 'bob' twice"):
        align_labels(pd.Series([1, 2], index=["bob", "bob"]), graph)


def test_labels_without_names_go_by_position():
    by_position = pd.Series([3, 1, 2])
    graph = Graph(np.ones((3, 3)), node_names=[2, 0, 1])
    assert align_labels(by_position, graph) is by_position
    filtered = pd.Series([3, 1, 2], index=[10, 20, 30])
    assert align_labels(filtered, graph) is filtered
    twice = graph[[2, 2, 0]]
    drawn = pd.Series([3, 3, 1], index=[1, 1, 2])
    assert align_labels(drawn, twice) is drawn
    assert align_labels([1, 2, 3], graph) == [1, 2, 3]


def test_a_series_follows_node_names_into_a_fit():
    """Labels by name give the same model as labels in the order of the nodes."""
    blocks = make_block_graph(30, 2, random_state=0)
    names = [f"node {i}" for i in range(30)]
    graph = Graph(blocks.graph.adjacency, blocks.graph.features, node_names=names)
    y = pd.Series(blocks.target, index=names)
    shuffled = y.sample(frac=1, random_state=0)
    options = {"max_iter": 3, "random_state": 0, "device": "cpu"}
    by_name = GNNClassifier(**options).fit(graph, shuffled)
    in_order = GNNClassifier(**options).fit(graph, y.to_numpy())
    np.testing.assert_array_equal(
        by_name.predict_proba(graph), in_order.predict_proba(graph)
    )
    assert by_name.score(graph, shuffled) == in_order.score(graph, y.to_numpy())
