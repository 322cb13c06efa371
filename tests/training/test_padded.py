"""Batches filled up to one size train as they are."""

import dataclasses

import numpy as np
import pytest
import torch

from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.datasets import make_block_graph
from sktifa.sampling import SAINTTIFASampler
from sktifa.training.encoders import Encoder
from sktifa.training.engine import ContrastiveObjective, SupervisedObjective
from sktifa.training.padded import PaddedBatch


@pytest.fixture(scope="module")
def batches():
    made = make_block_graph(900, 3, average_degree=8, random_state=0)
    y = np.where(np.random.default_rng(0).random(900) < 0.2, made.target, -1)
    sampler = SAINTTIFASampler(150, walk_length=2, device="cpu", random_state=0)
    model = TIFAGCLClassifier(sampler=sampler, device="cpu", random_state=0)
    kept = []

    def keep(network, source, *args, **kwargs):
        kept.extend(batch for batch, _ in source.epoch(network, None))
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sktifa.classifiers.gnn.train", keep)
        with pytest.raises(InterruptedError):
            model.fit(made.graph, y)
    return kept


@pytest.mark.parametrize("contrasts", [True, False])
@pytest.mark.parametrize("name", ["gcn", "sage", "mlp"])
def test_a_filled_up_batch_has_the_same_loss_and_gradient(name, contrasts, batches):
    # Views drop no features here: dropout would draw for more nodes.
    encoder = Encoder(name, 16, 8, 3, n_layers=3, dropout=0.0)
    objective = SupervisedObjective()
    if contrasts:
        objective = ContrastiveObjective(0.05, "clean_to_perturbed", 0.7, "evaluation")
    else:
        batches = [dataclasses.replace(batch, contrast=None) for batch in batches]
    largest = max(batches, key=lambda batch: len(batch.graph.col))
    padded = PaddedBatch.like(largest)
    for batch in batches:
        if contrasts:
            view = batch.contrast.view
            view.row_keep = torch.ones_like(view.row_keep)
        assert padded.fill(batch)
        told = []
        for one in (batch, padded.batch()):
            encoder.zero_grad()
            loss = objective(encoder, one, None, torch.Generator().manual_seed(0))
            loss.backward()
            grads = [p.grad.clone() for p in encoder.parameters()]
            told.append([loss.detach(), *grads])
        for own, filled in zip(*told, strict=True):
            torch.testing.assert_close(filled, own, rtol=1e-4, atol=1e-5)


def test_a_batch_that_is_too_large_is_refused(batches):
    padded = PaddedBatch.like(batches[0])
    padded.tensors["index"] = padded.tensors["index"][:1]
    assert not padded.fill(batches[1])


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [GNNClassifier, TIFAGCLClassifier])
def test_recorded_steps_learn_like_others(kind, monkeypatch):
    made = make_block_graph(3000, 3, average_degree=8, random_state=0)
    y = np.where(np.random.default_rng(0).random(3000) < 0.1, made.target, -1)
    curves = []
    for recorded in (True, False):
        if not recorded:
            monkeypatch.setattr(
                "sktifa.training.engine._Steps.are_capturable",
                property(lambda self: False),
            )
        model = kind(
            "sage",
            dropout=0.0,
            sampler=SAINTTIFASampler(300, device="cuda", random_state=0),
            early_stopping=False,
            max_iter=5,
            device="cuda",
            random_state=0,
        )
        if kind is TIFAGCLClassifier:
            model.set_params(feature_mask_rate=0.0)
        model.fit(made.graph, y)
        curves.append(model.loss_curve_)
    np.testing.assert_allclose(*curves, rtol=1e-2)
