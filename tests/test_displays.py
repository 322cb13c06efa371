"""Pictures: the numbers behind them, and that they can be drawn."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from sktifa.displays import SearchDisplay
from sktifa.exceptions import ParameterError


class Search:
    """A fitted search with known scores."""

    multimetric_ = True
    refit = "accuracy"

    def __init__(self, params, scores):
        self.cv_results_ = {
            "params": params,
            "mean_test_accuracy": np.array(scores),
            "mean_test_loss": -np.array(scores),
        }


@pytest.fixture
def search():
    params = [
        {"rate": rate, "pairing": pairing, "fixed": 1, "ranks": (0, 3 + i % 2)}
        for i, (rate, pairing) in enumerate(
            (r, p) for r in (0.1, 0.001) for p in ("tifa", None)
        )
    ]
    return Search(params, [0.5, 0.75, 0.25, np.nan])


def test_marginal_means_leave_failed_candidates_out(search):
    display = SearchDisplay.from_search(search)
    assert set(display.values) == {"rate", "pairing", "ranks"}
    at, means = display.marginal("rate")
    assert at == [0.001, 0.1]
    np.testing.assert_allclose(means, [0.25, 0.625])
    at, means = display.marginal("pairing")
    assert dict(zip(at, means, strict=True)) == {"tifa": 0.375, None: 0.75}
    assert SearchDisplay.from_search(search, "loss").scores[0] == -0.5


def test_errors_name_the_metrics_there_are(search):
    with pytest.raises(ParameterError, match=r"metric='f1'.*\['accuracy', 'loss'\]"):
        SearchDisplay.from_search(search, "f1")
    with pytest.raises(NotFittedError, match="fit it first"):
        SearchDisplay.from_search(object())


def test_many_values_are_binned():
    rng = np.random.default_rng(0)
    values = rng.permutation(100) / 100
    search = Search([{"x": x} for x in values], 2 * values)
    at, means = SearchDisplay.from_search(search).marginal("x", n_bins=5)
    np.testing.assert_allclose(means, 2 * np.array(at))
    assert at == pytest.approx([0.095, 0.295, 0.495, 0.695, 0.895])


def test_plot_has_a_panel_for_each_hyper_parameter(search):
    pytest.importorskip("matplotlib")
    display = SearchDisplay.from_search(search).plot(n_columns=2)
    shown = [ax.get_xlabel() for ax in display.axes_.flat if ax.get_visible()]
    assert shown == ["pairing", "ranks", "rate"]
    assert display.axes_[0, 0].get_ylabel() == "validation accuracy"
    display.figure_.canvas.draw()
