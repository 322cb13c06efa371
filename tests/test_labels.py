"""Labels of every type, and what is refused with which words."""

import numpy as np
import pandas as pd
import pytest

from sktifa.exceptions import LabelError
from sktifa.graph import Graph
from sktifa.labels import align_labels, check_labels_length, encode_labels

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


@pytest.mark.parametrize(
    "y",
    [
        pd.Series([2, None, 1], dtype="Int64"),
        pd.Series(["b", None, "a"], dtype="category"),
        pd.Series(["b", pd.NA, "a"], dtype="string"),
    ],
    ids=["Int64", "category", "string"],
)
def test_pandas_columns(y):
    codes, _ = encode_labels(y)
    assert codes.tolist() == [1, -1, 0]


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
    check_labels_length(graph[[0, 2]], [1, 0])
    with pytest.raises(LabelError, match=r"4 entries, but 2 .* y\[idx\]"):
        check_labels_length(graph[[0, 2]], [1, 0, 1, 0])
    with pytest.raises(LabelError, match="3 entries, but 4"):
        check_labels_length(graph, [1, 0, 1])


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
    nameless = pd.Series([3, 1, 2], index=[2, 1, 0])
    assert align_labels(nameless, Graph(np.ones((3, 3)))) is nameless
    assert align_labels([1, 2, 3], graph) == [1, 2, 3]
