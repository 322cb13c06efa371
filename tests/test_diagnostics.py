"""Numbers that show where a classifier is right, against plain loops."""

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_distances

from sktifa.diagnostics import accuracy_by_gain, madgap, radial_decay
from sktifa.displays import GainBinsDisplay, RadialDecayDisplay
from sktifa.exceptions import ParameterError


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


def test_shapes_must_agree():
    with pytest.raises(ParameterError, match="one length"):
        accuracy_by_gain([1, 2], [1])


def test_display_draws_a_line_for_each_classifier():
    gain, y = np.arange(20), np.arange(20) % 2
    display = GainBinsDisplay.from_predictions(
        gain, y, {"right": y, "wrong": 1 - y}, n_bins=4
    ).plot()
    lines = {line.get_label(): line.get_ydata() for line in display.ax_.get_lines()}
    np.testing.assert_array_equal(lines["right"], np.ones(4))
    np.testing.assert_array_equal(lines["wrong"], np.zeros(4))


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


def test_radial_decay_display_is_drawn():
    y = np.array([0, 1, 0, 1])
    plane = [0.4, 0.3, 0.2, 0.1], [0.0, -0.1, -0.2, -0.3]
    display = RadialDecayDisplay.from_predictions(
        *plane, y, y, baseline=1 - y, n_bins=2
    )
    np.testing.assert_array_equal(display.values, [[1, np.nan], [np.nan, 1]])
    image = display.plot().ax_.images[0]
    assert image.get_clim() == (-1, 1)


def test_madgap_equals_a_loop_over_pairs():
    graph = nx.disjoint_union(nx.grid_2d_graph(3, 5), nx.path_graph(4))
    x = np.random.default_rng(0).normal(size=(19, 3))
    x[7] = 0
    distance = cosine_distances(x)
    near, remote = [], []
    for i, hops in nx.all_pairs_shortest_path_length(graph):
        near += [distance[i, j] for j, hop in hops.items() if 1 <= hop <= 2]
        remote += [distance[i, j] for j, hop in hops.items() if hop >= 4]
    expected = np.mean(remote) - np.mean(near)
    adjacency = nx.to_scipy_sparse_array(graph)
    assert madgap(x, adjacency, near=2, remote=4) == pytest.approx(expected)


def test_madgap_of_a_graph_without_remote_pairs():
    adjacency = nx.to_scipy_sparse_array(nx.complete_graph(5))
    assert np.isnan(madgap(np.eye(5), adjacency))
    with pytest.raises(ParameterError, match="row for each of the 5"):
        madgap(np.eye(4), adjacency)
    with pytest.raises(ParameterError, match="near < remote"):
        madgap(np.eye(5), adjacency, near=8)
