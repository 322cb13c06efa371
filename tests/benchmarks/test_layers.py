"""Stacked encoders against PyTorch Geometric's convolutions, one model at a time."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn import functional
from torch_geometric import nn as pyg

from benchmarks.baselines import layers
from sktifa import Graph, make_block_graph
from sktifa.contrast.perturbation import GraphPerturber
from sktifa.tensors.sparse import Adjacency, Flips

CPU = torch.device("cpu")
N_IN, N_OUT = 5, 16


def hypergraph(edges, n):
    own = torch.arange(n).expand(2, -1)
    return torch.cat([edges, own], dim=1)


def gat(layer):
    conv = pyg.GATConv(N_IN, N_OUT // 8, heads=8)
    conv.lin.weight.data = layer.weight[0].T
    conv.att_src.data, conv.att_dst.data = layer.to_source, layer.to_target
    return conv


def feast(layer):
    conv = pyg.FeaStConv(N_IN, N_OUT, heads=4)
    conv.lin.weight.data = layer.weight[0, :, :-4].T
    conv.u.weight.data, conv.c.data = layer.weight[0, :, -4:].T, layer.shift[0]
    conv.bias.data.zero_()
    return conv


def graphconv(layer):
    conv = pyg.GraphConv(N_IN, N_OUT)
    conv.lin_root.weight.data, conv.lin_rel.weight.data = layer.weight[0].T.chunk(2)
    conv.lin_rel.bias.data.zero_()
    return conv


def cheb(layer):
    conv = pyg.ChebConv(N_IN, N_OUT, K=2)
    for lin, weight in zip(conv.lins, layer.weight[0].T.chunk(2), strict=True):
        lin.weight.data = weight
    return conv


def arma(layer):
    conv = pyg.ARMAConv(N_IN, N_OUT, act=None)
    root, init = layer.weight[0].chunk(2, dim=1)
    conv.root_weight.data[0, 0] = root
    conv.init_weight.data[0] = init
    return conv


def hyper(layer):
    conv = pyg.HypergraphConv(N_IN, N_OUT)
    conv.lin.weight.data = layer.weight[0].T
    return lambda x, edges: conv(x, hypergraph(edges, len(x)), num_edges=len(x))


@pytest.fixture(scope="module")
def graph():
    return make_block_graph(60, 3, n_features=N_IN, random_state=0).graph


def perturbed_twice(graph):
    """Return what a stack of two models sees, and each of them by itself."""
    n, shared = graph.n_nodes, Adjacency.from_csr(graph.adjacency, CPU)
    perturber = GraphPerturber(graph.adjacency, np.ones(n), perturbed_nodes=0.3)
    views = [perturber.draw(np.random.default_rng(i)) for i in range(2)]
    removed = [torch.from_numpy(view.removed_arcs) for view in views]
    added = [torch.from_numpy(view.added_edges) for view in views]
    flips = [shared.flips(*parts) for parts in zip(removed, added, strict=True)]
    stacked = Flips(
        torch.cat([flips[0].target, flips[1].target + n]),
        torch.cat([flips[0].source, flips[1].source + n]),
        torch.cat([one.weight for one in flips]),
        torch.cat([one.degree for one in flips]),
    )
    return shared.perturbed(stacked), [shared.perturbed(one) for one in flips]


@pytest.mark.parametrize("perturbed", [False, True])
@pytest.mark.parametrize(
    ("kind", "of_pyg"),
    [
        (layers.GATLayer, gat),
        (layers.FeaStLayer, feast),
        (layers.GraphConvLayer, graphconv),
        (layers.ChebLayer, cheb),
        (layers.ARMALayer, arma),
        (layers.HypergraphLayer, hyper),
    ],
)
def test_stack_is_pygs_convolution(graph, kind, of_pyg, perturbed):
    torch.manual_seed(0)
    models = [kind(N_IN, N_OUT) for _ in range(2)]
    stacked = kind(N_IN, N_OUT)
    for name, value in stacked.named_parameters():
        parts = [model.get_parameter(name) for model in models]
        if name == "shift":
            parts = [torch.rand(1, 4) for _ in models]
            for model, part in zip(models, parts, strict=True):
                model.shift.data = part
        value.data = torch.cat(parts)
    shared = Adjacency.from_csr(graph.adjacency, CPU)
    seen, own = perturbed_twice(graph) if perturbed else (shared, [shared, shared])
    x = torch.rand(2, 60, N_IN, requires_grad=True)
    out, probe = stacked(x, seen, None), torch.rand(60, N_OUT)
    for model, (conv, its) in enumerate(zip(map(of_pyg, models), own, strict=True)):
        expected = conv(x[model], its.edge_index)
        torch.testing.assert_close(out[model], expected, rtol=1e-4, atol=1e-5)
        slopes = (
            torch.autograd.grad((told * probe).sum(), x, retain_graph=True)[0]
            for told in (out[model], expected)
        )
        torch.testing.assert_close(*slopes, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def uneven():
    """A graph with a hub, and a node that has no neighbour."""
    adjacency = make_block_graph(60, 3, random_state=0).graph.adjacency.tolil()
    adjacency[0, 1:59] = adjacency[1:59, 0] = 1
    adjacency[59, :] = adjacency[:, 59] = 0
    return Graph(sparse.csr_array(adjacency.tocsr()), np.zeros((60, 1)))


def attended(x, graph, weight, to_target, to_source):
    """GAT's formula on a dense matrix of one model, without a care for overflow."""
    n, n_heads = len(x), len(to_target)
    heads = (x @ weight).view(n, n_heads, -1)
    target, source = ((heads * part).sum(2) for part in (to_target, to_source))
    scores = functional.leaky_relu(target[:, None] + source[None, :], 0.2)
    is_arc = torch.eye(n, dtype=torch.bool)
    is_arc[graph.edge_index[1], graph.edge_index[0]] = True
    share = scores.masked_fill(~is_arc[:, :, None], -torch.inf).softmax(1)
    return torch.einsum("ijh,jhw->ihw", share, heads).reshape(n, -1)


@pytest.mark.parametrize("perturbed", [False, True])
@pytest.mark.parametrize("n_out", [N_OUT, 3])
@pytest.mark.parametrize("spread", [1.0, 30.0, 95.0])
def test_attention_has_the_slopes_of_its_formula(uneven, spread, n_out, perturbed):
    torch.manual_seed(0)
    shared = Adjacency.from_csr(uneven.adjacency, CPU)
    seen, own = perturbed_twice(uneven) if perturbed else (shared, [shared, shared])
    layer = layers.GATLayer(N_IN, n_out)
    x = torch.randn(2, 60, N_IN, requires_grad=True)
    names = ["weight", "to_target", "to_source"]
    for name in names:
        value = layer.get_parameter(name)
        value.data = torch.randn(2, *value.shape[1:])
    # What the sources' scores spread over, of the head where they do so most.
    heads = (x @ layer.weight).detach().view(2, 60, layer.n_heads, -1)
    scores = (heads * layer.to_source.detach()[:, None]).sum(3)
    factor = spread / (scores.amax(1) - scores.amin(1)).max()
    layer.to_source.data *= factor
    layer.to_target.data *= factor
    probe = torch.randn(2, 60, n_out)
    told = {"x": x, **{name: layer.get_parameter(name) for name in names}}
    out = layer(x, seen, None)
    slopes = torch.autograd.grad((out * probe).sum(), told.values())
    exact = [value.detach().double().requires_grad_() for value in told.values()]
    expected = torch.stack(
        [
            attended(exact[0][model], its, *(value[model] for value in exact[1:]))
            for model, its in enumerate(own)
        ]
    )
    exact_slopes = torch.autograd.grad((expected * probe).sum(), exact)
    for ours, right in zip((out, *slopes), (expected, *exact_slopes), strict=True):
        scale = right.abs().max().item()
        torch.testing.assert_close(ours.double(), right, rtol=1e-4, atol=1e-5 * scale)


def test_attention_to_scores_past_all_bounds_is_finite(uneven):
    torch.manual_seed(0)
    layer = layers.GATLayer(N_IN, N_OUT)
    layer.to_source.data *= 1000
    layer.to_target.data *= 1000
    x = torch.randn(1, 60, N_IN, requires_grad=True)
    out = layer(x, Adjacency.from_csr(uneven.adjacency, CPU), None)
    heads = (x @ layer.weight).detach()
    # Means of what there is, and alone a node attends to itself.
    assert (out <= heads.amax(1) + 1e-4).all() and (out >= heads.amin(1) - 1e-4).all()
    torch.testing.assert_close(out[0, 59], heads[0, 59])
    for slope in torch.autograd.grad(out.sum(), [x, layer.weight, layer.to_target]):
        assert slope.isfinite().all()
