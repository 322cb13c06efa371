"""The contrastive loss against literal loops over the pairs, in float64."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sktifa.contrast.loss import pair_loss, self_consistency_loss
from sktifa.contrast.pairs import pair_operator
from sktifa.training.terms import Pairs, SelfConsistency

DIRECTIONS = ["clean_to_perturbed", "perturbed_to_clean"]
FLOOR = -12.0


def _pairs(n, rng):
    positives = np.array([rng.choice(n, 3, replace=False) for _ in range(n)])
    negatives = np.array([rng.choice(n, 6, replace=False) for _ in range(n)])
    positives[0] = -1  # no positives
    negatives[1] = -1  # no negatives
    positives[2], negatives[2] = -1, -1  # neither
    negatives[3, 2:] = -1  # a short row
    return positives, negatives


def _operator(positives, negatives, negative_weight, dtype=torch.float64):
    matrix = pair_operator(positives, negatives, negative_weight)
    return torch.from_numpy(matrix.toarray()).to(dtype).to_sparse_csr()


def _log_probabilities(n, k, seed, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(n, k, generator=generator, dtype=torch.float64)
    return logits.log_softmax(dim=1)


def contrastive_loss(
    log_p, log_q, weights, operator=None, pair_weight=0.05, divergence=DIRECTIONS[0]
):
    """Add up the terms that training adds up (Eq. 13), and take the nodes' mean."""
    step = SimpleNamespace(
        logits=log_p,
        log_view=lambda: log_p,
        log_target=log_q,
        of_nodes=lambda values: values,
        batch=SimpleNamespace(pairs=operator),
    )
    own = SelfConsistency(weights, divergence)(step)
    return (own + Pairs(weights, pair_weight, divergence)(step)).mean(-1)


def _kl(a, b):
    """KL(a || b) of two rows of floored log-probabilities, where they are compared."""
    return sum(np.exp(x) * (x - y) for x, y in zip(a, b, strict=True))


def _directed(log_p, log_q, divergence):
    if divergence == "clean_to_perturbed":
        return _kl(log_q, log_p)
    return _kl(log_p, log_q)


def _literal_pair_loss(log_p, log_q, positives, negatives, weight, divergence):
    log_p, log_q = np.maximum(log_p, FLOOR), np.maximum(log_q, FLOOR)
    losses = np.zeros(len(log_p))
    for i in range(len(log_p)):
        for pairs, sign in ((positives, 1.0), (negatives, -weight)):
            chosen = [j for j in pairs[i] if j >= 0]
            for j in chosen:
                losses[i] += (
                    sign * _directed(log_p[i], log_q[j], divergence) / len(chosen)
                )
    return losses


@pytest.mark.parametrize("divergence", DIRECTIONS)
@pytest.mark.parametrize("scale", [2.0, 20.0], ids=["moderate", "floored"])
@pytest.mark.parametrize("negative_weight", [0.0, 0.5, 1.0])
def test_pair_loss_is_the_loop_over_pairs(divergence, scale, negative_weight):
    rng = np.random.default_rng(0)
    positives, negatives = _pairs(12, rng)
    log_p = _log_probabilities(12, 4, 0, scale)
    log_q = _log_probabilities(12, 4, 1, scale)
    got = pair_loss(
        log_p, log_q, _operator(positives, negatives, negative_weight), divergence
    )
    expected = _literal_pair_loss(
        log_p.numpy(), log_q.numpy(), positives, negatives, negative_weight, divergence
    )
    # The operator's entries are float32.
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    assert got[2] == 0


@pytest.mark.parametrize("divergence", DIRECTIONS)
def test_self_consistency_is_the_kl_divergence(divergence):
    log_p, log_q = _log_probabilities(9, 5, 0), _log_probabilities(9, 5, 1)
    got = self_consistency_loss(log_p, log_q, divergence)
    expected = [
        _directed(a, b, divergence)
        for a, b in zip(log_p.numpy(), log_q.numpy(), strict=True)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert (got >= 0).all()
    assert torch.equal(
        self_consistency_loss(log_p, log_p, divergence), torch.zeros(9).double()
    )


def test_the_default_direction_is_clean_to_perturbed():
    log_p, log_q = _log_probabilities(9, 5, 0), _log_probabilities(9, 5, 1)
    assert torch.equal(
        self_consistency_loss(log_p, log_q),
        self_consistency_loss(log_p, log_q, "clean_to_perturbed"),
    )


@pytest.mark.parametrize("divergence", DIRECTIONS)
def test_a_stack_has_the_losses_of_its_models(divergence):
    rng = np.random.default_rng(4)
    n, n_models = 12, 3
    sets = [_pairs(n, rng) for _ in range(n_models)]
    log_p = torch.stack([_log_probabilities(n, 4, i) for i in range(n_models)])
    log_q = torch.stack([_log_probabilities(n, 4, 9 + i) for i in range(n_models)])
    weights = torch.from_numpy(rng.uniform(0.2, 2.2, (n_models, n)))
    operator = pair_operator(
        *(torch.from_numpy(np.stack(kind)) for kind in zip(*sets, strict=True)), 0.5
    ).to(torch.float64)
    of_stack = (
        self_consistency_loss(log_p, log_q, divergence),
        pair_loss(log_p, log_q, operator, divergence),
        contrastive_loss(log_p, log_q, weights, operator, 0.3, divergence),
    )
    assert [tuple(part.shape) for part in of_stack] == [(3, n), (3, n), (3,)]
    for i in range(n_models):
        one = _operator(*sets[i], 0.5)
        of_one = (
            self_consistency_loss(log_p[i], log_q[i], divergence),
            pair_loss(log_p[i], log_q[i], one, divergence),
            contrastive_loss(log_p[i], log_q[i], weights[i], one, 0.3, divergence),
        )
        for stacked, alone in zip(of_stack, of_one, strict=True):
            # The operators' entries are float32.
            torch.testing.assert_close(stacked[i], alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("divergence", DIRECTIONS)
def test_contrastive_loss_is_equation_13(divergence):
    rng = np.random.default_rng(2)
    positives, negatives = _pairs(12, rng)
    log_p, log_q = _log_probabilities(12, 4, 0), _log_probabilities(12, 4, 1)
    weights = rng.uniform(0.2, 2.2, 12)
    got = contrastive_loss(
        log_p,
        log_q,
        torch.from_numpy(weights),
        _operator(positives, negatives, 0.5),
        pair_weight=0.3,
        divergence=divergence,
    )
    pairs = _literal_pair_loss(
        log_p.numpy(), log_q.numpy(), positives, negatives, 0.5, divergence
    )
    expected = 0.0
    for i in range(12):
        own = _directed(log_p[i].numpy(), log_q[i].numpy(), divergence)
        expected += weights[i] * (own + 0.3 * pairs[i]) / 12
    assert got.item() == pytest.approx(expected, rel=1e-5)


def test_pairs_are_left_out_without_operator_or_weight():
    log_p, log_q = _log_probabilities(6, 3, 0), _log_probabilities(6, 3, 1)
    weights = torch.linspace(0.2, 2.2, 6, dtype=torch.float64)
    operator = torch.eye(6, dtype=torch.float64).to_sparse_csr()
    own = (weights * self_consistency_loss(log_p, log_q)).mean()
    assert contrastive_loss(log_p, log_q, weights) == own
    assert contrastive_loss(log_p, log_q, weights, operator, pair_weight=0) == own


@pytest.mark.parametrize("divergence", DIRECTIONS)
def test_gradients_are_right_and_stop_at_the_target(divergence):
    rng = np.random.default_rng(3)
    operator = _operator(*_pairs(8, rng), 0.5)
    weights = torch.from_numpy(rng.uniform(0.2, 2.2, 8))
    target = _log_probabilities(8, 3, 1).requires_grad_()
    logits = torch.from_numpy(rng.standard_normal((8, 3))).requires_grad_()

    def loss(logits):
        return contrastive_loss(
            logits.log_softmax(dim=1), target, weights, operator, 0.5, divergence
        )

    assert torch.autograd.gradcheck(loss, (logits,))
    loss(logits).backward()
    assert target.grad is None


@pytest.mark.parametrize("divergence", DIRECTIONS)
def test_full_weight_of_negatives_stays_finite(divergence):
    """mu_1 = 1 has nothing but the floor to keep negatives from running away."""
    rng = np.random.default_rng(4)
    n = 30
    positives, negatives = _pairs(n, rng)
    operator = _operator(positives, negatives, 1.0, torch.float32)
    features = torch.from_numpy(rng.standard_normal((n, 10))).float()
    weight = torch.from_numpy(0.1 * rng.standard_normal((10, 4))).float()
    weight.requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    for _ in range(200):
        optimizer.zero_grad()
        log_p = (features @ weight).log_softmax(dim=1)
        loss = contrastive_loss(
            log_p, log_p, torch.full((n,), 2.2), operator, 1.0, divergence
        )
        loss.backward()
        optimizer.step()
        assert torch.isfinite(loss)
    assert torch.isfinite(weight).all()
    # A divergence of two floored distributions is at most 12 (and a loss has 2.2 + 1).
    assert loss.abs() <= 2.2 * 3 * 12


@pytest.mark.cuda
@pytest.mark.parametrize("divergence", DIRECTIONS)
def test_cuda_agrees_with_the_cpu(divergence):
    rng = np.random.default_rng(5)
    operator = _operator(*_pairs(50, rng), 0.5, torch.float32)
    weights = torch.from_numpy(rng.uniform(0.2, 2.2, 50)).float()
    log_p, log_q = (_log_probabilities(50, 7, seed).float() for seed in (0, 1))
    on_cpu = contrastive_loss(log_p, log_q, weights, operator, 0.5, divergence)
    on_cuda = contrastive_loss(
        log_p.cuda(), log_q.cuda(), weights.cuda(), operator.cuda(), 0.5, divergence
    )
    torch.testing.assert_close(on_cuda.cpu(), on_cpu, rtol=1e-5, atol=1e-6)
