"""Stacked encoders against PyTorch Geometric's convolutions, one model at a time."""

import numpy as np
import pytest
import torch
from torch_geometric import nn as pyg

from benchmarks.baselines import layers
from sktifa import make_block_graph
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
    seen, own = shared, [shared, shared]
    if perturbed:
        perturber = GraphPerturber(graph.adjacency, np.ones(60), perturbed_nodes=0.3)
        views = [perturber.draw(np.random.default_rng(i)) for i in range(2)]
        removed = [torch.from_numpy(view.removed_arcs) for view in views]
        added = [torch.from_numpy(view.added_edges) for view in views]
        flips = [shared.flips(*parts) for parts in zip(removed, added, strict=True)]
        own = [shared.perturbed(one) for one in flips]
        stacked_flips = Flips(
            torch.cat([flips[0].target, flips[1].target + 60]),
            torch.cat([flips[0].source, flips[1].source + 60]),
            torch.cat([one.weight for one in flips]),
            torch.cat([one.degree for one in flips]),
        )
        seen = shared.perturbed(stacked_flips)
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
