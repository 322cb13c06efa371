"""Diagnostics: numbers against loops, warnings against graphs that deserve them."""

import json

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import cosine_distances

from sktifa import make_block_graph
from sktifa.diagnostics import (
    accuracy_by_gain,
    correctness,
    diagnose,
    madgap,
    pair_quality,
    radial_decay,
)
from sktifa.exceptions import GraphError, LabelError, ParameterError
from sktifa.graph import Graph
from sktifa.information.tig import annotated_information, label_distribution


def _topics(report):
    return [advice.topic for advice in report.warnings]


# ------------------------------------------------------------------------ by gain


def test_bins_equal_a_sort_where_there_are_no_ties():
    rng = np.random.default_rng(0)
    gain, correct = rng.permutation(100) / 7, rng.random(100) < 0.6
    expected = [part.mean() for part in np.split(correct[np.argsort(gain)], 4)]
    np.testing.assert_allclose(accuracy_by_gain(gain, correct, 4), expected)


def test_ties_share_a_bin():
    gain = np.r_[np.zeros(6), 1, 2, 3, 4]
    by_bin = accuracy_by_gain(gain, np.r_[np.ones(6), 0, 0, 0, 0], 5)
    # The six nodes of rank 2.5 are all in the second bin.
    np.testing.assert_array_equal(by_bin, [np.nan, 1, np.nan, 0, 0])


@pytest.mark.parametrize(
    ("correct", "n_bins", "message"),
    [
        ([1], 5, "one length"),
        (["a", "b"], 5, "dtype"),
        ([[1, 0]], 5, "one dimension"),
        ([1, 0], 0, "n_bins must be a whole number"),
    ],
)
def test_what_can_not_be_binned(correct, n_bins, message):
    with pytest.raises(ParameterError, match=message):
        accuracy_by_gain([1, 2], correct, n_bins)


@pytest.mark.parametrize(
    ("true", "predicted"),
    [
        ([1, 2], ["1", "2"]),
        (np.array(["1", "2"], dtype=object), [1, 2]),
        ([True, False], ["True", "False"]),
    ],
)
def test_text_is_not_compared_with_numbers(true, predicted):
    with pytest.raises(LabelError, match="can't be compared"):
        correctness(true, predicted)


def test_labels_that_are_compared():
    assert correctness([True, False], [1, 1]).tolist() == [True, False]
    mixed = np.array(["a", "b"], dtype=object)
    assert correctness(mixed, ["a", "c"]).tolist() == [True, False]
    with pytest.raises(LabelError, match="2 labels and 1 predictions"):
        correctness([1, 2], [1])


def test_radial_decay_equals_a_loop_over_nodes():
    rng = np.random.default_rng(0)
    strength, clear = rng.permutation(60) + 1.0, -rng.permutation(60)
    correct = rng.random(60)
    grid = radial_decay(strength, clear, correct, 3)
    sums, counts = np.zeros((3, 3)), np.zeros((3, 3), int)
    for i in range(60):
        # How many are stronger, and clearer.
        cell = (strength > strength[i]).sum() // 20, (clear > clear[i]).sum() // 20
        sums[cell] += correct[i]
        counts[cell] += 1
    np.testing.assert_array_equal(grid.count, counts)
    known = counts > 0
    np.testing.assert_allclose(grid.accuracy[known], sums[known] / counts[known])
    assert np.isnan(grid.accuracy[~known]).all()


def test_radial_decay_leaves_out_what_no_label_reaches():
    grid = radial_decay([0, 0, 0.2, 0.1], [0, 0, 0, -0.1], [0, 0, 1, 1], 2)
    assert grid.count.sum() == 2
    np.testing.assert_array_equal(grid.accuracy[grid.count > 0], 1)
    with pytest.raises(ParameterError, match="one length"):
        radial_decay([1, 2], [1, 2], [1])


# ------------------------------------------------------------------- oversmoothing


def _graph_of_parts(seed=0, n=90):
    """A sparse random graph: long paths, small components, isolated nodes."""
    edges = nx.gnm_random_graph(n, int(1.1 * n), seed=seed)
    return Graph.from_networkx(edges), dict(nx.all_pairs_shortest_path_length(edges))


def test_madgap_equals_a_loop_over_all_pairs():
    graph, hops = _graph_of_parts()
    embedding = np.random.default_rng(0).normal(size=(90, 5))
    embedding[7] = 0
    distance = cosine_distances(embedding)
    distance[7], distance[:, 7] = 1, 1
    far, close = [], []
    for i in range(90):
        for j in range(90):
            apart = hops[i].get(j)  # None where no path joins them
            if i != j and apart is not None and apart <= 3:
                close.append(distance[i, j])
            elif apart is not None and apart >= 8:
                far.append(distance[i, j])
    expected = np.mean(far) - np.mean(close)
    assert madgap(embedding, graph) == pytest.approx(expected)
    assert madgap(sparse.csr_array(embedding), graph) == pytest.approx(
        expected, abs=1e-6
    )
    # Scaling a node's embedding does not turn it.
    longer = embedding * np.arange(1, 91)[:, None]
    assert madgap(longer, graph) == pytest.approx(expected)


def test_madgap_of_a_sample_is_near_that_of_all():
    graph, _ = _graph_of_parts(seed=1, n=400)
    embedding = np.random.default_rng(0).normal(size=(400, 8))
    for _ in range(2):  # neighbours become alike
        embedding = embedding + graph.adjacency @ embedding
    exact = madgap(embedding, graph)
    one, other = (
        madgap(embedding, graph, max_anchors=200, random_state=seed) for seed in (1, 2)
    )
    assert exact > 0.2 and one != other
    assert [one, other] == pytest.approx([exact, exact], rel=0.1)


def test_madgap_falls_to_nothing_where_all_embeddings_are_alike():
    graph, _ = _graph_of_parts()
    assert madgap(np.ones((90, 3)), graph) == pytest.approx(0, abs=1e-12)


def test_madgap_errors_and_graphs_without_pairs():
    graph, _ = _graph_of_parts()
    with pytest.raises(GraphError, match="each of the graph's 90 nodes"):
        madgap(np.ones((10, 3)), graph)
    with pytest.raises(ParameterError, match="near=3 and remote=3"):
        madgap(np.ones((90, 3)), graph, remote=3)
    with pytest.raises(ParameterError, match="max_anchors"):
        madgap(np.ones((90, 3)), graph, max_anchors=0)
    assert np.isnan(madgap(np.eye(2), Graph([[0, 1], [1, 0]])))
    assert np.isnan(madgap(np.eye(2), Graph(sparse.csr_array((2, 2)))))


# --------------------------------------------------------------------------- pairs


def test_pair_quality_equals_a_loop():
    made = make_block_graph(80, 3, random_state=0)
    graph, y = made.graph, made.target.copy()
    codes = np.where(np.arange(80) < 15, y, -1)
    information = annotated_information(graph, codes, 3)
    y[70:] = -1
    p = label_distribution(information)
    sums, n_pairs = np.zeros(4), np.zeros(4)
    edges, overall = [], []
    for i in range(70):
        divergence = (p[i] * np.log(p[i] / p[:70])).sum(axis=1)
        divergence[i] = np.inf
        ranked = np.argsort(divergence)[:-1]
        for rank, j in enumerate(ranked):
            # 69 ranks in four bins begin at 0, 17, 34 and 51.
            place = min(rank // 17, 3)
            sums[place] += y[i] == y[j]
            n_pairs[place] += 1
            overall.append(y[i] == y[j])
        row = graph.adjacency[[i]].indices
        edges += [y[i] == y[j] for j in row if j < 70]
    found = pair_quality(graph, y, information, n_bins=4)
    np.testing.assert_allclose(found.same_class, sums / n_pairs)
    assert found.neighbors == pytest.approx(np.mean(edges))
    assert found.overall == pytest.approx(np.mean(overall))
    few = pair_quality(graph, y, information, n_bins=4, max_anchors=50)
    assert few.same_class == pytest.approx(found.same_class, abs=0.1)


def test_equal_distances_are_not_ranked_by_number():
    # All nodes alike, sorted by class: any order by number would find classes.
    graph = Graph(sparse.csr_array((100, 100)), np.ones((100, 1)))
    found = pair_quality(graph, np.arange(100) // 50, np.zeros((100, 2)), n_bins=4)
    assert found.same_class == pytest.approx(np.full(4, 49 / 99), abs=0.1)
    assert np.isnan(found.neighbors)


def test_pair_quality_refuses_what_does_not_fit():
    graph = make_block_graph(20, 2, random_state=0).graph
    y = np.arange(20) % 2
    with pytest.raises(ParameterError, match="3 rows for 20"):
        pair_quality(graph, y, np.ones((3, 2)))
    with pytest.raises(ParameterError, match="below the 20 labelled"):
        pair_quality(graph, y, np.ones((20, 2)), n_bins=20)


# ------------------------------------------------------------------------ diagnose


def test_report_counts_what_is_there():
    # Two paths of three nodes and an isolated one; labels on the first path alone.
    edges = [[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]]
    features = np.array([[1, 0], [2, 0], [0, 0], [2, 1], [0, 1], [1, 0], [1, 1.0]])
    graph = Graph.from_edge_index(edges, features, node_names=list("pqrstuv"))
    y = np.array(["b", None, "a", None, None, None, None], dtype=object)
    report = diagnose(graph, y)
    assert report.graph == {
        "nodes": 7,
        "edges": 4,
        "weighted": False,
        "components": 3,
        "largest_component": 3,
        "isolated": 1,
        "degree": {"min": 0, "median": 1.0, "mean": 8 / 7, "max": 2},
    }
    assert report.labels == {
        "labelled": 2,
        "classes": {"a": 1, "b": 1},
        "unreached": 4,
        "largest_unreached": 3,
        "node_unreached": "s",
    }
    found = report.features
    assert found["kind"] == "dense" and found["filled"] == pytest.approx(8 / 14)
    assert found["empty_rows"] == pytest.approx(1 / 7)
    assert found["smallest"] == {"name": "column 1", "scale": 1.0}
    assert found["largest"]["scale"] == pytest.approx(np.sqrt((1 + 4 + 4 + 1 + 1) / 5))
    assert report.homophily == {"edge": None, "adjusted": None}
    assert report.graph_helps is None
    assert _topics(report) == ["isolated", "unreached", "labels"]
    assert "node 's' is in the largest, of 3" in report.warnings[1].mend


def test_report_of_a_selection_is_that_of_the_graph():
    made = make_block_graph(300, 3, random_state=0)
    y = np.where(np.arange(300) < 60, made.target, -1)
    chosen = np.random.default_rng(0).permutation(60)
    one = diagnose(made.graph, y)
    other = diagnose(made.graph[chosen], made.target[chosen])
    assert one.to_dict() == other.to_dict()


def test_report_is_json_text_and_html():
    made = make_block_graph(300, 3, random_state=0)
    names = np.array(["<b>x</b>", "y", "z"])
    report = diagnose(made.graph, names[made.target])
    again = json.loads(json.dumps(report.to_dict()))
    assert again["graph"]["nodes"] == 300
    assert again["homophily"]["edge"]["value"] == report.homophily["edge"].value
    assert "<b>x</b>: " in str(report)
    html = report._repr_html_()
    assert "<b>x</b>" not in html and "&lt;b&gt;x&lt;/b&gt;: " in html
    assert html.count("<tr>") == html.count("</tr>") == 13


def test_good_graphs_get_no_warnings(digits):
    y = np.where(np.arange(1797) % 9 == 0, digits.target, -1)
    report = diagnose(digits.graph, y)
    assert report.graph_helps is True and report.warnings == ()
    assert report.accuracy["label_propagation"].value > 0.9


def test_unlike_scales_are_named():
    made = make_block_graph(300, 3, random_state=0)
    features = np.array(made.graph.features)
    features[:, 4] = features[:, 4] * 1e4 + 5e4
    names = [f"f{i}" for i in range(16)]
    names[4] = "income"
    report = diagnose(made.graph.with_features(features, names), made.target)
    assert _topics(report) == ["scale"]
    assert "income is of size 4.9e+04, f" in report.warnings[0].message
    # Words that are rare are not small.
    rare = sparse.random_array((300, 50), density=0.02, rng=0)
    rare.data[:] = 1
    assert _topics(diagnose(made.graph.with_features(rare), made.target)) == []


def test_no_features_are_no_features():
    made = make_block_graph(300, 3, random_state=0)
    for nothing in (None, np.zeros((300, 2))):
        report = diagnose(made.graph.with_features(nothing), made.target)
        assert _topics(report) == ["features"]
        assert report.graph_helps is True
    assert (
        diagnose(made.graph.with_features(None), made.target).accuracy["features"]
        is None
    )


def test_imbalance_is_said():
    made = make_block_graph(600, 2, random_state=0)
    y = made.target.copy()
    y[np.flatnonzero(y == 1)[20:]] = -1
    assert _topics(diagnose(made.graph, y)) == ["imbalance"]


def test_edges_that_tell_nothing_are_said():
    made = make_block_graph(800, 2, homophily=0.5, random_state=0)
    report = diagnose(made.graph, made.target)
    assert report.graph_helps is False and _topics(report) == ["graph"]
    assert "adjusted homophily" in report.warnings[0].message
    assert "don't rely on contrast" in report.warnings[0].mend
    assert report.expectation.startswith("nothing good")


def test_one_class_can_not_be_diagnosed():
    graph = make_block_graph(20, 2, random_state=0).graph
    with pytest.raises(LabelError, match="all of one class"):
        diagnose(graph, np.zeros(20))
    with pytest.raises(LabelError, match="19 entries"):
        diagnose(graph, np.zeros(19))


def test_arrays_become_graphs(digits):
    rows = np.array(digits.graph.features)[:400]
    report = diagnose(rows, digits.target[:400])
    assert report.graph["nodes"] == 400 and report.graph_helps is True


@pytest.mark.parametrize("name", ["cora", "minesweeper", "tolokers"])
def test_real_graphs(name, request):
    data = request.getfixturevalue(name)
    report = diagnose(data.graph, data.target)
    assert report.graph_helps is (name == "cora")
    assert ("graph" in _topics(report)) is (name != "cora")
