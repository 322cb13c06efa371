"""Accuracy by information gain, against a plain loop."""

import numpy as np
import pytest

from sktifa.diagnostics import accuracy_by_gain
from sktifa.displays import GainBinsDisplay
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
