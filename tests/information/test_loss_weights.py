"""Ranks against a literal count, weights against the paper's formula."""

import numpy as np
import pytest
import torch

from sktifa.exceptions import ParameterError
from sktifa.information.loss_weights import loss_weights, tie_averaged_ranks, trust


def _counted_ranks(gain):
    """Count what is smaller, and half of the others that are equal."""
    return [np.sum(gain < value) + (np.sum(gain == value) - 1) / 2 for value in gain]


def test_ranks_count_what_is_smaller():
    gain = np.random.default_rng(0).integers(0, 40, 200) / 7
    np.testing.assert_array_equal(tie_averaged_ranks(gain), _counted_ranks(gain))


def test_ties_do_not_depend_on_the_order_of_nodes():
    rng = np.random.default_rng(1)
    gain = np.r_[np.zeros(60), rng.random(40)]
    order = rng.permutation(100)
    np.testing.assert_array_equal(
        tie_averaged_ranks(gain[order]), tie_averaged_ranks(gain)[order]
    )
    assert np.unique(loss_weights(gain)[:60]).size == 1


def test_gains_equal_in_float32_are_ties_wherever_they_are(device):
    gain = np.array([0.1, 0.1 + 1e-10, 0.2, 0.1 - 1e-10])
    found = tie_averaged_ranks(torch.tensor(gain, device=device))
    assert found.tolist() == tie_averaged_ranks(gain).tolist() == [1, 1, 3, 1]
    for function in (loss_weights, trust):
        of_tensor = function(torch.tensor(gain, device=device))
        assert of_tensor.dtype == torch.float64 and of_tensor.device.type == device.type
        np.testing.assert_allclose(of_tensor.cpu(), function(gain), rtol=1e-15)


def test_trust_is_the_square_of_the_relative_rank():
    gain = np.array([0.3, 0.0, 0.1, 0.2, 0.0])
    ranks = np.array([4, 0.5, 2, 3, 0.5])
    np.testing.assert_allclose(trust(gain), (ranks / 5) ** 2, rtol=1e-15)
    # At the least 0.3 where any label arrives, (2 / 5)^2 being less.
    at_least = [0.64, 0.01, 0.3, 0.36, 0.01]
    np.testing.assert_allclose(trust(gain, 0.3), at_least, rtol=1e-12)
    assert trust(np.empty(0)).size == 0


def test_weights_follow_the_cosine_of_the_rank():
    gain = np.array([0.3, 0.0, 0.1, 0.2])
    ranks = np.array([3, 0, 1, 2])
    expected = 1 + 0.5 * (1 + np.cos(np.pi * ranks / 4))
    np.testing.assert_allclose(loss_weights(gain, 1, 2), expected, rtol=1e-15)


def test_the_least_informed_node_weighs_most():
    gain = np.random.default_rng(2).random(500)
    weights = loss_weights(gain, 0.2, 2.2)
    assert weights.argmax() == gain.argmin()
    assert weights[gain.argmin()] == pytest.approx(2.2)
    assert (np.diff(weights[np.argsort(gain)]) < 0).all()
    assert weights.min() > 0.2


def test_equal_gain_and_a_single_node():
    assert loss_weights([0.0], 1, 3).tolist() == [3.0]
    assert np.ptp(loss_weights(np.zeros(9))) == 0
    assert np.ptp(loss_weights(np.arange(9.0), 1, 1)) == 0
    assert loss_weights([]).size == 0


@pytest.mark.parametrize(("low", "high"), [(2, 1), (-1, 1), (0, np.inf), (np.nan, 1)])
def test_bad_range_is_refused(low, high):
    with pytest.raises(ParameterError, match="weight_m"):
        loss_weights([0.1, 0.2], low, high)


def test_bad_gain_is_refused():
    with pytest.raises(ParameterError, match=r"gain\[1\] is NaN"):
        tie_averaged_ranks([0.1, np.nan])
    with pytest.raises(ParameterError, match="real numbers"):
        tie_averaged_ranks(["a", "b"])
    with pytest.raises(ParameterError, match="one-dimensional"):
        tie_averaged_ranks([[0.1]])


def test_input_may_be_read_only():
    gain = np.array([0.2, 0.1])
    gain.flags.writeable = False
    loss_weights(gain)
