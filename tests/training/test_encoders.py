"""Encoders against PyTorch Geometric's convolutions, and the door for modules."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch_geometric.nn import APPNP, GCNConv, SAGEConv
from torch_geometric.nn.models import GAT

from sktifa.exceptions import ParameterError
from sktifa.tensors.features import Features
from sktifa.tensors.sparse import Adjacency
from sktifa.training.encoders import (
    ENCODERS,
    Draw,
    Dropout,
    Encoder,
    EncoderSpec,
    build_encoder,
    stack_encoders,
)


def spec(kind, **options):
    return EncoderSpec(kind, 30, 16, 3, **options)


def draw(seed, device, rate=0.5):
    return Draw(torch.tensor([seed], device=device), Dropout([rate], 30, device))


@pytest.fixture
def small(device):
    rng = np.random.default_rng(0)
    upper = np.triu(rng.random((40, 40)) < 0.1, 1)
    upper[:, 7] = upper[7] = False
    matrix = sparse.csr_array((upper + upper.T).astype(np.float32))
    x = ((rng.random((40, 30)) < 0.2) * rng.random((40, 30))).astype(np.float32)
    return Features.from_matrix(x, device), Adjacency.from_csr(matrix, device)


def test_gcn_equals_pygs(small, device):
    features, graph = small
    ours = Encoder(spec("gcn")).to(device).eval()
    h = features.dense()
    for layer, last in zip(ours.convolutions, (False, True), strict=True):
        theirs = GCNConv(*layer.weight.shape[1:]).to(device)
        theirs.lin.weight.data = layer.weight.data[0].T.clone()
        h = theirs(h, graph.edge_index)
        h = h if last else torch.relu(h)
    torch.testing.assert_close(ours(features, graph)[0], h, atol=1e-5, rtol=1e-4)


def test_sage_equals_pygs(small, device):
    features, graph = small
    ours = Encoder(spec("sage")).to(device).eval()
    h = features.dense()
    for layer, last in zip(ours.convolutions, (False, True), strict=True):
        own, neighbor = layer.weight.data[0].chunk(2, dim=1)
        theirs = SAGEConv(*own.shape).to(device)
        theirs.lin_r.weight.data = own.T.clone()
        theirs.lin_l.weight.data = neighbor.T.clone()
        theirs.lin_l.bias.data.zero_()
        h = theirs(h, graph.edge_index)
        h = h if last else torch.relu(h)
    torch.testing.assert_close(ours(features, graph)[0], h, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": True, "normalization": "layer"},
        {"normalization": "batch"},
    ],
)
def test_every_encoder_trains_embeds_and_is_deterministic(name, options, small, device):
    features, graph = small
    outputs = []
    for _ in range(2):
        made = spec(name, n_layers=3, propagation_steps=2, **options)
        encoder = build_encoder(made, seed=0).to(device)
        out = encoder(features, graph, draw(0, device))
        out.square().sum().backward()
        grads = [p.grad for p in encoder.parameters() if p.requires_grad]
        assert any(g is not None and g.abs().sum() > 0 for g in grads)
        outputs.append(out.detach())
    assert out.shape == (1, 40, 3)
    torch.testing.assert_close(outputs[0], outputs[1])
    encoder.eval()
    assert encoder.embed(features, graph).shape == (1, 40, 16)
    torch.testing.assert_close(encoder(features, graph), encoder(features, graph))


def test_appnp_equals_pygs(small, device):
    features, graph = small
    ours = Encoder(spec("appnp", propagation_steps=7, teleport=0.15)).to(device).eval()
    first, second = ours.convolutions
    hidden = (features.dense() @ first.weight[0] + first.bias[0]).relu()
    scores = hidden @ second.weight[0] + second.bias[0]
    theirs = APPNP(K=7, alpha=0.15)(scores, graph.edge_index)
    torch.testing.assert_close(ours(features, graph)[0], theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["gcn", "appnp", "sage", "mlp"])
def test_a_stack_is_what_its_models_are(kind, small, device):
    features, graph = small
    made = spec(kind, n_layers=3, normalization="batch", propagation_steps=2)
    singles = [build_encoder(made, seed=i).to(device) for i in range(3)]
    stacked = stack_encoders(singles)
    rates = [0.5, 0.2, 0.0]
    seeds = torch.tensor([4, 5, 6], device=device)
    out = stacked(features, graph, Draw(seeds, Dropout(rates, 30, device)))
    for i, single in enumerate(singles):
        own = Draw(seeds[i : i + 1], Dropout(rates[i : i + 1], 30, device))
        alone = single(features, graph, own)[0]
        torch.testing.assert_close(out[i], alone, atol=1e-5, rtol=1e-4)
    stacked.eval()
    evaluated = stacked(features, graph)
    for i, single in enumerate(singles):
        alone = single.eval()(features, graph)[0]
        torch.testing.assert_close(evaluated[i], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("width", "rate"), [(1, 0.5), (2, 0.5), (4, 0.9), (40, 0.5)])
@pytest.mark.parametrize("masked", [True, False])
def test_few_nodes_lose_all_their_features(width, rate, masked, device):
    n = 1 << 16
    least = 1 - (1 / 1024) ** (1 / width)
    mask = torch.full((1, n), 0.5, device=device) if masked else None
    seed = torch.tensor([3], device=device)
    drawn = Draw(seed, Dropout([rate], width, device), mask).at(0)
    features = Features.from_matrix(np.ones((n, width), np.float32), device)
    kept = features.dense(drawn) != 0
    bare = int((~kept).all(-1).sum())
    # At most n / 1024 are expected: above that by 4.5 of its square roots, 1e-5.
    assert bare <= n / 1024 + 4.5 * (n / 1024) ** 0.5
    asked = (1 - rate) * (0.5 if masked else 1)
    assert abs(float(kept.float().mean()) - max(asked, least)) < 4.5 * 0.5 / n**0.5
    largest = float(features.dense(drawn).max())
    assert largest == pytest.approx(1 / max(1 - rate, least))


def test_mlp_ignores_the_edges(small):
    features, graph = small
    encoder = Encoder(spec("mlp")).to(graph.device).eval()
    lonely = Adjacency.from_csr(sparse.csr_array((40, 40)), graph.device)
    torch.testing.assert_close(encoder(features, graph), encoder(features, lonely))


class TwoLayers(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.hidden = nn.Linear(n_in, 8)
        self.dropout = nn.Dropout(0.5)
        self.convolution = GCNConv(8, n_out)

    def forward(self, x, edge_index):
        return self.convolution(self.dropout(self.hidden(x).relu()), edge_index)


class Bare(nn.Module):
    def forward(self, x, edge_index):
        return x


class Lazy(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.layer = nn.LazyLinear(n_out)

    def forward(self, x, edge_index):
        return self.layer(x)


@pytest.mark.parametrize(
    "factory", [TwoLayers, lambda n_in, n_out: TwoLayers(n_in, n_out)]
)
def test_any_module_comes_in(factory, small, device):
    features, graph = small
    encoder = build_encoder(spec(factory), seed=0).to(device)
    before = torch.random.get_rng_state()
    first = encoder(features, graph, draw(0, device))
    second = encoder(features, graph, draw(1, device))
    assert not torch.equal(first, second), "dropout draws anew"
    again = encoder(features, graph, draw(0, device))
    torch.testing.assert_close(first, again)
    assert torch.equal(before, torch.random.get_rng_state()), "global state put back"
    encoder.eval()
    hidden = encoder.embed(features, graph)
    expected = encoder.module.hidden(features.dense()).relu()
    torch.testing.assert_close(hidden[0], expected)


def test_pygs_own_models_get_their_widths(small, device):
    features, graph = small
    encoder = build_encoder(spec(GAT, n_layers=3), seed=0, dropout=0.5).to(device)
    assert encoder.module.num_layers == 3
    assert encoder.module.hidden_channels == 16
    assert encoder.module.dropout.p == 0.5
    encoder.eval()
    assert encoder(features, graph).shape == (1, 40, 3)
    assert encoder.embed(features, graph).shape == (1, 40, 16)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("gnc", "unknown; choose one of"),
        (nn.Linear(3, 3), "an instance would be trained twice"),
        (lambda n_in, n_out: "module", "returned str"),
        (lambda n_in, n_out: Bare(), "no parameter to train"),
        (lambda n_in, n_out: TwoLayers(n_in, n_out).double(), "features are float32"),
        (
            lambda n_in, n_out: TwoLayers(n_in, n_out).requires_grad_(False),
            "no parameter to train",
        ),
        (lambda n_in, n_out: Lazy(n_out), "no size yet"),
    ],
)
def test_bad_encoders_are_named(encoder, message):
    with pytest.raises(ParameterError, match=message):
        build_encoder(spec(encoder), seed=0)
