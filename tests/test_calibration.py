"""Temperatures against a search by hand, and folds that leave no class out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sktifa.calibration import at_temperature, deal_folds, fit_temperature


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_every_class_keeps_a_label_in_every_fold(n_folds):
    codes = np.repeat([0, 1, 2, 3], [1, 2, 3, 17])
    folds = deal_folds(codes, n_folds, 0)
    dealt = np.concatenate(folds)
    assert len(np.unique(dealt)) == len(dealt)
    assert sorted(dealt) == list(range(1, 23))
    for fold in folds:
        assert len(np.unique(np.delete(codes, fold))) == 4
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


def test_folds_of_few_labels():
    assert deal_folds(np.arange(4), 5, 0) == []
    assert len(deal_folds(np.array([0, 0, 1]), 5, 0)) == 2


def test_the_temperature_that_made_labels_uncertain_is_found():
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(20_000, 4))
    said = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    truth = np.exp(logits / 3) / np.exp(logits / 3).sum(axis=1, keepdims=True)
    codes = (rng.random((20_000, 1)) > truth.cumsum(axis=1)).sum(axis=1)
    assert fit_temperature(said, codes) == pytest.approx(3, rel=0.03)
    assert_allclose(at_temperature(said, 3.0), truth)


def test_few_labels_all_predicted_right_make_nobody_certain():
    rng = np.random.default_rng(1)
    codes = np.arange(10) % 2
    sure = rng.uniform(0.8, 0.99, size=10)
    said = np.where(np.arange(2) == codes[:, None], sure[:, None], 1 - sure[:, None])
    temperature = fit_temperature(said, codes)
    grid = np.linspace(0.05, 3, 2000)
    target = np.where(np.arange(2) == codes[:, None], 11 / 12, 1 / 12)
    losses = [-(target * np.log(at_temperature(said, t))).sum() for t in grid]
    assert temperature == pytest.approx(grid[np.argmin(losses)], abs=0.01)
    mean = at_temperature(said, temperature).max(axis=1).mean()
    assert 0.8 < mean < 11 / 12


def test_impossible_classes_stay_finite():
    said = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    chance = at_temperature(said, fit_temperature(said, np.array([0, 1, 1])))
    assert np.isfinite(chance).all()
    assert_allclose(chance.sum(axis=1), 1)
