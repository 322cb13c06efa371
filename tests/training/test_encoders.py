"""Encoders against PyTorch Geometric's convolutions, and the door for modules."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.nn.models import GAT

from sktifa.exceptions import ParameterError
from sktifa.tensors.sparse import Adjacency, Features
from sktifa.training.encoders import ENCODERS, Encoder, build_encoder

SIZES = {
    "n_layers": 2,
    "dropout": 0.5,
    "residual": False,
    "normalization": None,
    "seed": 0,
}


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
    ours = Encoder("gcn", 30, 16, 3).to(device).eval()
    h = features.dense()
    for layer, last in zip(ours.convolutions, (False, True), strict=True):
        theirs = GCNConv(*layer.weight.shape).to(device)
        theirs.lin.weight.data = layer.weight.data.T.clone()
        h = theirs(h, graph.edge_index)
        h = h if last else torch.relu(h)
    torch.testing.assert_close(ours(features, graph), h, atol=1e-5, rtol=1e-4)


def test_sage_equals_pygs(small, device):
    features, graph = small
    ours = Encoder("sage", 30, 16, 3).to(device).eval()
    h = features.dense()
    for layer, last in zip(ours.convolutions, (False, True), strict=True):
        own, neighbor = layer.weight.data.chunk(2, dim=1)
        theirs = SAGEConv(*own.shape).to(device)
        theirs.lin_r.weight.data = own.T.clone()
        theirs.lin_l.weight.data = neighbor.T.clone()
        theirs.lin_l.bias.data.zero_()
        h = theirs(h, graph.edge_index)
        h = h if last else torch.relu(h)
    torch.testing.assert_close(ours(features, graph), h, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("options", [{}, {"residual": True, "normalization": "layer"}])
def test_every_encoder_trains_embeds_and_is_deterministic(name, options, small, device):
    features, graph = small
    outputs = []
    for _ in range(2):
        encoder = build_encoder(
            name, 30, 16, 3, **{**SIZES, "n_layers": 3, **options}
        ).to(device)
        generator = torch.Generator(device=device).manual_seed(0)
        out = encoder(features, graph, generator)
        out.square().sum().backward()
        grads = [p.grad for p in encoder.parameters() if p.requires_grad]
        assert any(g is not None and g.abs().sum() > 0 for g in grads)
        outputs.append(out.detach())
    assert out.shape == (40, 3)
    torch.testing.assert_close(outputs[0], outputs[1])
    encoder.eval()
    assert encoder.embed(features, graph).shape == (40, 16)
    torch.testing.assert_close(encoder(features, graph), encoder(features, graph))


def test_mlp_ignores_the_edges(small):
    features, graph = small
    encoder = Encoder("mlp", 30, 16, 3).to(graph.device).eval()
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


@pytest.mark.parametrize(
    "factory", [TwoLayers, lambda n_in, n_out: TwoLayers(n_in, n_out)]
)
def test_any_module_comes_in(factory, small, device):
    features, graph = small
    encoder = build_encoder(factory, 30, 16, 3, **SIZES).to(device)
    before = torch.random.get_rng_state()
    generator = torch.Generator(device=device).manual_seed(0)
    first = encoder(features, graph, generator)
    second = encoder(features, graph, generator)
    assert not torch.equal(first, second), "dropout draws anew"
    again = encoder(features, graph, torch.Generator(device=device).manual_seed(0))
    torch.testing.assert_close(first, again)
    assert torch.equal(before, torch.random.get_rng_state()), "global state put back"
    encoder.eval()
    hidden = encoder.embed(features, graph)
    torch.testing.assert_close(hidden, encoder.module.hidden(features.dense()).relu())


def test_pygs_own_models_get_their_widths(small, device):
    features, graph = small
    encoder = build_encoder(GAT, 30, 16, 3, **{**SIZES, "n_layers": 3}).to(device)
    assert encoder.module.num_layers == 3
    assert encoder.module.hidden_channels == 16
    assert encoder.module.dropout.p == 0.5
    encoder.eval()
    assert encoder(features, graph).shape == (40, 3)
    assert encoder.embed(features, graph).shape == (40, 16)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("gnc", "unknown; choose one of"),
        (nn.Linear(3, 3), "an instance would be trained twice"),
        (lambda n_in, n_out: "module", "returned str"),
    ],
)
def test_bad_encoders_are_named(encoder, message):
    with pytest.raises(ParameterError, match=message):
        build_encoder(encoder, 30, 16, 3, **SIZES)
