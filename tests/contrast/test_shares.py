"""Classes keep about the sizes that few labels tell: by hand, and in every path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from sktifa import TIFAGCLClassifier, paper_preset
from sktifa.classifiers.prepare import prepare
from sktifa.contrast.shares import shift_to_shares
from sktifa.information.tig import annotated_information
from sktifa.training import engine
from sktifa.training.terms import Step, Target

CPU = torch.device("cpu")


def scores_of(*best: int, n_classes: int = 3) -> torch.Tensor:
    """Return class scores of nodes for which these are the best."""
    return torch.eye(n_classes)[list(best)]


def test_the_shift_by_hand():
    told = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
    scores = torch.stack(
        [
            scores_of(0, 0, 0, 0, 0, 0, 0),  # 8 of 10, 1 and 1, with one more in each
            scores_of(0, 0, 0, 0, 1, 1, 2),  # 5, 3 and 2 of 10
        ]
    )
    shift = shift_to_shares(scores, told.log(), torch.tensor([[1.0], [1.0]]))
    assert shift.shape == (2, 1, 3)
    expected = [
        -2 * np.log(8 / 5 / 1.25),
        2 * np.log(3 / 1.25),
        2 * np.log(2 / 1.25),
    ]
    np.testing.assert_allclose(shift[0, 0], expected, rtol=1e-5)
    # Where classes are as large as told, and a little more or less, nothing shifts.
    assert not shift[1].any()
    nearly = shift_to_shares(
        scores[1:], torch.tensor([[0.42, 0.35, 0.23]]).log(), torch.ones(1, 1)
    )
    assert not nearly.any()
    half = shift_to_shares(scores, told.log(), torch.tensor([[0.5], [1.0]]))
    np.testing.assert_allclose(half[0], shift[0] / 2, rtol=1e-6)


def test_the_target_is_shifted():
    clean = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 9, 3))).float()
    clean[..., 0] += 5
    shares = torch.tensor([[0.5, 0.3, 0.2]])
    target = Target(
        temperature=torch.ones(1, 1), log_shares=shares.log(), pull=torch.ones(1, 1)
    )
    step = Step(None, None, None, target, clean)
    expected = clean + shift_to_shares(clean, shares.log(), torch.ones(1, 1))
    np.testing.assert_allclose(
        step.log_target, log_softmax(expected.numpy(), axis=-1), rtol=1e-5
    )
    assert step.log_target[0, :, 0].mean() < log_softmax(clean, -1)[0, :, 0].mean()


def target_of(blocks, y, **parameters) -> Target:
    return prepare(TIFAGCLClassifier(**parameters), blocks.graph, y, CPU).target


@pytest.mark.parametrize(("n", "pull"), [(1, 1.0), (2, 0.75), (4, 0.25)])
def test_sizes_are_those_of_the_propagated_labels(blocks, n, pull):
    y = blocks.labelled(n)
    target = target_of(blocks, y)
    assert target.pull == pull
    # As what teaches: each row smoothed, then divided by its sum.
    information = annotated_information(blocks.graph, y, 3)
    smooth = information + 1e-4
    said = smooth / smooth.sum(1, keepdims=True)
    np.testing.assert_allclose(target.log_shares.exp(), said.mean(0), rtol=1e-5)
    assert target_of(blocks, y, target_information=0.5).pull == pull / 2


@pytest.mark.parametrize(
    ("n", "parameters"),
    [
        (5, {}),
        (20, {}),
        (1, {"target_information": 0.0}),
        (1, {"sampler": "saint-rw"}),
        (1, paper_preset()),
    ],
)
def test_none_where_labels_are_enough_or_not_in_the_target(blocks, n, parameters):
    y = blocks.labelled(n)
    target = target_of(blocks, y, **parameters)
    assert (target.log_shares, target.pull) == (None, 0.0)


def test_none_with_two_classes(blocks):
    y = np.where(blocks.labelled(1) == 2, -1, blocks.labelled(1))
    assert target_of(blocks, y).log_shares is None


def test_a_stack_trains_what_a_fit_does(blocks):
    """Bit for bit, each model with sizes of its own, after one has left, too."""
    problems = [
        prepare(
            TIFAGCLClassifier(
                hidden_size=8,
                max_iter=max_iter,
                target_information=information,
                random_state=max_iter,
            ),
            blocks.graph,
            blocks.labelled(n),
            CPU,
        )
        for n, information, max_iter in ((1, 1.0, 3), (2, 1.0, 12), (1, 0.5, 12))
    ]
    together = engine.train(problems, CPU, with_logits=True)
    for problem, one in zip(problems, together, strict=True):
        (alone,) = engine.train([problem], CPU, with_logits=True)
        np.testing.assert_array_equal(one.logits, alone.logits)
    # The sizes matter, or this says nothing.
    bare = replace(problems[1], target=replace(problems[1].target, log_shares=None))
    (without,) = engine.train([bare], CPU, with_logits=True)
    assert not np.array_equal(without.logits, together[1].logits)


def test_no_class_is_lost_with_a_label_a_class():
    """A split of which contrast alone confirms that a class is nearly empty."""
    X, target = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    y = np.full(len(target), -1)
    rng = np.random.default_rng(3)
    for c in range(3):
        y[rng.permutation(np.flatnonzero(target == c))[0]] = c
    model = TIFAGCLClassifier(random_state=3, device="cpu").fit(X, y)
    found, true = np.bincount(model.predict(X), minlength=3), np.bincount(target)
    assert (found > true / 3).all()
