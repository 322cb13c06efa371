"""Batches filled up to one size train as they are."""

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.baselines.layers import GATLayer
from sktifa import GNNClassifier, TIFAGCLClassifier
from sktifa.classifiers.prepare import prepare
from sktifa.datasets import make_block_graph
from sktifa.sampling import SAINTTIFASampler
from sktifa.training.encoders import Draw, Dropout, build_encoder
from sktifa.training.padded import PaddedBatch
from sktifa.training.stacking import stack
from sktifa.training.terms import Step

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def problem():
    made = make_block_graph(900, 3, average_degree=8, random_state=0)
    y = np.where(np.random.default_rng(0).random(900) < 0.2, made.target, -1)
    sampler = SAINTTIFASampler(150, walk_length=2, device="cpu", random_state=0)
    model = TIFAGCLClassifier(
        sampler=sampler,
        target_information=1.0,
        teacher_weight=0.5,
        device="cpu",
        random_state=0,
    )
    return prepare(model, made.graph, y, CPU)


@pytest.fixture(scope="module")
def batches(problem):
    return list(problem.source(CPU).epoch())


def test_room_is_made_by_the_first_batch_alone(problem, batches, monkeypatch):
    source, prepared = problem.source(CPU), []
    prepare_one = source._prepare
    monkeypatch.setattr(
        source, "_prepare", lambda part: prepared.append(part) or prepare_one(part)
    )
    slots = source.slots()
    assert len(prepared) == 1 < len(batches)
    n = batches[0].graph.n_nodes
    assert slots.tensors["nodes"][:n].tolist() == batches[0].nodes.tolist()


@pytest.mark.parametrize("contrasts", [True, False])
@pytest.mark.parametrize("kind", ["gcn", "sage", "mlp", "appnp", GATLayer])
def test_a_filled_up_batch_has_the_same_loss_and_gradient(
    kind, contrasts, problem, batches
):
    spec = dataclasses.replace(
        problem.encoder, kind=kind, n_layers=3, propagation_steps=2
    )
    encoder = build_encoder(spec, seed=0)
    terms = problem.terms if contrasts else problem.terms[:1]
    terms, target = stack([terms], CPU), stack([problem.target], CPU)
    # Views drop no features here: dropout would draw for more nodes.
    seed, certain = torch.zeros(1, dtype=torch.int64), Dropout([0.0], 500, CPU)

    def draw(number, row_keep):
        return Draw(seed, certain)

    if not contrasts:
        batches = [dataclasses.replace(b, views=[], pairs=None) for b in batches]
    largest = max(batches, key=lambda batch: len(batch.graph.col))
    padded = PaddedBatch.like(largest)
    for batch in batches:
        assert padded.fill(batch)
        told = []
        for one in (batch, padded.batch()):
            encoder.zero_grad()
            step, total = Step(encoder, one, draw, target), 0.0
            for term in terms:
                loss = term(step)
                if loss.dim() == 2:
                    loss = (loss if one.norm is None else loss * one.norm).mean(1)
                total = total + loss
            total.sum().backward()
            grads = [p.grad.clone() for p in encoder.parameters()]
            told.append([total.detach(), *grads])
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
                "sktifa.training.engine.Run.record",
                lambda run: vars(run).update(
                    _evaluate=run.evaluate, _update=run.update
                ),
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
