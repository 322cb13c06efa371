"""Graph encoders: what turns features and edges into class scores.

Parameters have a leading model dimension, and so have hidden layers and scores: one
model is a stack of one. GCN, GraphSAGE, the MLP and APPNP multiply features and a CSR
adjacency that all models share. The others wrap PyTorch Geometric's convolutions, or
any module with ``forward(x, edge_index)``; those are trained one by one.

A new encoder is a layer (see :class:`Layer`): given as ``encoder=MyLayer``, it is
trained as ours are. For a name of its own it needs an entry of `LAYERS`, too.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from sktifa.exceptions import ParameterError
from sktifa.tensors.dense import activate, matmul
from sktifa.tensors.features import Features
from sktifa.tensors.kernels import Drawn
from sktifa.tensors.sparse import Adjacency

__all__ = [
    "ENCODERS",
    "LAYERS",
    "Draw",
    "Dropout",
    "Encoder",
    "EncoderName",
    "EncoderSpec",
    "ForeignEncoder",
    "Layer",
    "build_encoder",
    "stack_encoders",
]

EncoderName = Literal[
    "gcn",
    "appnp",
    "gat",
    "sage",
    "cheb",
    "arma",
    "feast",
    "hypergraph",
    "graphconv",
    "mlp",
]
ENCODERS: tuple[str, ...] = get_args(EncoderName)

# What goes into a layer: the features, or a hidden layer, (n_models, n_nodes, width).
Inputs = Features | Tensor

# Held by who draws from torch's global generator.
_GENERATOR = threading.RLock()
_GAT_HEADS = 8
_FEAST_HEADS = 4
# Share of the nodes that dropout and mask may leave without a feature, on average.
_LEFT_BARE = 1 / 1024
# How far the seeds of two layers are apart: an odd number.
_STRIDE = 0x632BE59BD9B4E01


@dataclass(frozen=True)
class EncoderSpec:
    """An encoder before it is built.

    `kind` is one of `ENCODERS`, what the layers are, or a module class or factory. A
    hidden layer's input is added to its output if `residual` and where the widths
    agree, and normalised before the activation. `propagation_steps` follow the last
    layer of "appnp"; `teleport` weighs that layer's own scores in each.
    """

    kind: str | Callable[..., nn.Module]
    n_features: int
    hidden_size: int
    n_classes: int
    n_layers: int = 2
    residual: bool = False
    normalization: Literal["batch", "layer"] | None = None
    propagation_steps: int = 0
    teleport: float = 0.1

    @property
    def layer(self) -> type[Layer] | None:
        """What its layers are, where they are those of a stack of models."""
        if isinstance(self.kind, str):
            return LAYERS.get(self.kind)
        is_layer = isinstance(self.kind, type) and issubclass(self.kind, Layer)
        return self.kind if is_layer else None  # type: ignore[return-value]

    @property
    def stackable(self) -> bool:
        """Whether many models can be one."""
        return self.layer is not None


class Dropout:
    """What the models of a stack keep of what goes into their layers.

    `keep` is one minus each model's dropout rate, float32 of (n_models, 1), and
    `keep_features` the same of features. Of few features less is dropped, and masked:
    each is kept with probability `least` at the least, so that one node in 1,024 loses
    them all, no more.
    """

    def __init__(
        self, rates: Sequence[float], n_features: int, device: torch.device
    ) -> None:
        of_model = torch.tensor(rates, dtype=torch.float32)[:, None]
        self.least = 1 - _LEFT_BARE ** (1 / max(n_features, 1))
        self.drops = bool((of_model > 0).any())
        self.keep = (1 - of_model).to(device)
        self.keep_features = self.keep.clamp(min=self.least)
        # What is kept makes up for what is dropped.
        self.scale, self.scale_features = 1 / self.keep, 1 / self.keep_features


class Draw:
    """What is random in a forward pass: each layer's dropout, and a mask of features.

    `seed`, int64 of (n_models,), is each model's of this pass. A feature of a node is
    masked but with probability `row_keep`, float32 of (n_models, n_nodes).
    """

    def __init__(
        self, seed: Tensor, dropout: Dropout, row_keep: Tensor | None = None
    ) -> None:
        self.seed, self.dropout, self.row_keep = seed, dropout, row_keep

    def at(self, layer: int) -> Drawn | None:
        """Draw the dropout of a layer's input."""
        dropout = self.dropout
        if layer:
            seed = self.seed + layer * _STRIDE
            return Drawn(seed, dropout.keep, dropout.scale) if dropout.drops else None
        keep = dropout.keep_features
        if self.row_keep is not None:
            keep = (self.row_keep * keep).clamp(min=dropout.least)
        elif not dropout.drops:
            return None
        return Drawn(self.seed, keep, dropout.scale_features)


class Layer(nn.Module):
    """One convolution of a stack of models.

    A subclass computes `forward` of its `weight`; what follows, from the bias to the
    dropout of the next layer, is the encoder's. Parameters and buffers of its own begin
    with a dimension of one model. A node may look at its neighbours, and at their
    `graph.degree`, and no farther: prediction in bounded memory has no more.

    Parameters
    ----------
    n_in, n_out : int
        Widths.

    Attributes
    ----------
    weight : Tensor of shape (n_models, n_in, ...)
        Weights.
    bias : Tensor of shape (n_models, n_out)
        Added to what `forward` returns.
    """

    # How many weight matrices of n_in times n_out stand side by side.
    n_weights: ClassVar[int] = 1
    # How many numbers an arc and unit it keeps for the backward pass, about, where it
    # makes messages of its own: whoever estimates memory counts them.
    kept_per_arc: ClassVar[int] = 0

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        parts = [
            nn.init.xavier_uniform_(torch.empty(n_in, n_out, dtype=torch.float32))
            for _ in range(self.n_weights)
        ]
        self.weight = nn.Parameter(torch.cat(parts, dim=1)[None])
        self.bias = nn.Parameter(torch.zeros(1, n_out, dtype=torch.float32))

    def transform(self, x: Inputs, drawn: Drawn | None) -> Tensor:
        """Multiply by the weights: features, or hidden layers of all models."""
        if isinstance(x, Features):
            return x.transform(self.weight, drawn)
        return matmul(x, self.weight)

    def forward(self, x: Inputs, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        """Return (n_models, n_nodes, n_out); `drawn` is the dropout of features."""
        raise NotImplementedError


class GCNLayer(Layer):
    """Kipf and Welling's graph convolution."""

    def forward(self, x: Inputs, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        """Transform, then propagate."""
        return graph.normalized(self.transform(x, drawn))


class SAGELayer(Layer):
    """GraphSAGE with mean aggregation: one product transforms self and neighbours."""

    n_weights = 2

    def forward(self, x: Inputs, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        """Add a node's own part and the mean of its neighbours'."""
        own, neighbor = self.transform(x, drawn).chunk(2, dim=2)
        return own + graph.mean(neighbor)


class MLPLayer(Layer):
    """A dense layer that ignores the edges."""

    def forward(self, x: Inputs, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        """Transform."""
        return self.transform(x, drawn)


# APPNP is an MLP whose scores are propagated.
LAYERS: dict[str, type[Layer]] = {
    "gcn": GCNLayer,
    "appnp": MLPLayer,
    "sage": SAGELayer,
    "mlp": MLPLayer,
}


class _PyGLayer(nn.Module):
    """One of PyTorch Geometric's convolutions, of a single model."""

    def __init__(self, convolution: nn.Module, takes_weight: bool = False) -> None:
        super().__init__()
        self.convolution = convolution
        self.takes_weight = takes_weight
        self.bias: Tensor | None = None

    def forward(self, x: Inputs, graph: Adjacency, drawn: Drawn | None) -> Tensor:
        x = x.dense(drawn) if isinstance(x, Features) else x[0]
        return self.convolve(x, graph)[None]

    def convolve(self, x: Tensor, graph: Adjacency) -> Tensor:
        if self.takes_weight:
            return self.convolution(x, graph.edge_index, graph.edge_weight)
        return self.convolution(x, graph.edge_index)


class _HypergraphLayer(_PyGLayer):
    """HypergraphConv, where each node and its neighbours are one hyperedge."""

    def convolve(self, x: Tensor, graph: Adjacency) -> Tensor:
        own = torch.arange(graph.n_nodes, device=x.device).expand(2, -1)
        incidence = torch.cat([graph.edge_index, own], dim=1)
        return self.convolution(x, incidence, num_edges=graph.n_nodes)


def _gat(pyg: Any, n_in: int, n_out: int, last: bool) -> nn.Module:
    # As in GAT's paper: heads side by side in hidden layers, one at the end.
    heads = 1 if last or n_out % _GAT_HEADS else _GAT_HEADS
    return _PyGLayer(pyg.GATConv(n_in, n_out // heads, heads=heads))


_PYG_LAYERS: dict[str, Callable[[Any, int, int, bool], nn.Module]] = {
    "gat": _gat,
    "cheb": lambda pyg, a, b, last: _PyGLayer(pyg.ChebConv(a, b, K=2), True),
    "arma": lambda pyg, a, b, last: _PyGLayer(pyg.ARMAConv(a, b), True),
    "feast": lambda pyg, a, b, last: _PyGLayer(pyg.FeaStConv(a, b, heads=_FEAST_HEADS)),
    "hypergraph": lambda pyg, a, b, last: _HypergraphLayer(pyg.HypergraphConv(a, b)),
    "graphconv": lambda pyg, a, b, last: _PyGLayer(pyg.GraphConv(a, b), True),
}


def _convolution(spec: EncoderSpec, n_in: int, n_out: int, *, last: bool) -> nn.Module:
    if spec.layer is not None:
        return spec.layer(n_in, n_out)
    # It takes seconds to import, and most never need it.
    from torch_geometric import nn as pyg

    assert isinstance(spec.kind, str)
    return _PYG_LAYERS[spec.kind](pyg, n_in, n_out, last)


class _LayerNorm(nn.Module):
    """Layer normalisation of a stack of models."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, width, dtype=torch.float32))
        self.bias = nn.Parameter(torch.zeros(1, width, dtype=torch.float32))

    def forward(self, h: Tensor) -> Tensor:
        shape = h.shape[2:]
        if len(h) == 1:  # without a copy
            return functional.layer_norm(h, shape, self.weight[0], self.bias[0])
        models = zip(h, self.weight, self.bias, strict=True)
        each = [functional.layer_norm(x, shape, w, b) for x, w, b in models]
        return torch.stack(each)


class _BatchNorm(_LayerNorm):
    """Batch normalisation of a stack of models: over the nodes, each model its own."""

    momentum, eps = 0.1, 1e-5

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(1, width))
        self.register_buffer("running_var", torch.ones(1, width))

    def forward(self, h: Tensor) -> Tensor:
        mean, var = self.running_mean, self.running_var
        if self.training:
            var, mean = torch.var_mean(h, dim=1, correction=0)
            n = h.shape[1]
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * (n / max(n - 1, 1)), self.momentum)
        h = (h - mean[:, None]) * (var + self.eps).rsqrt()[:, None]
        return h * self.weight[:, None] + self.bias[:, None]


_NORMS = {"batch": _BatchNorm, "layer": _LayerNorm}


class Encoder(nn.Module):
    """A stack of graph convolutions with ReLU and dropout between them."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        hidden = [spec.hidden_size] * (spec.n_layers - 1)
        self.widths = [spec.n_features, *hidden, spec.n_classes]
        self.stackable = spec.stackable
        self.convolutions = nn.ModuleList(
            _convolution(spec, n_in, n_out, last=i == spec.n_layers - 1)
            for i, (n_in, n_out) in enumerate(pairwise(self.widths))
        )
        self.norms = nn.ModuleList()
        if spec.normalization is not None:
            self.norms.extend(_NORMS[spec.normalization](w) for w in hidden)
        self.residual = spec.residual
        self.propagation_steps = spec.propagation_steps if spec.kind == "appnp" else 0
        self.teleport = spec.teleport

    @property
    def n_layers(self) -> int:
        """Number of convolutions."""
        return len(self.convolutions)

    def layer(
        self, index: int, x: Inputs, graph: Adjacency, draw: Draw | None = None
    ) -> Tensor:
        """Run one layer: a convolution, and what follows a hidden one.

        The dropout of a hidden layer's output is drawn with it.
        """
        convolution: Any = self.convolutions[index]
        of_features = draw.at(0) if draw is not None and index == 0 else None
        h: Tensor = convolution(x, graph, of_features)
        bias: Tensor | None = convolution.bias
        if index == self.n_layers - 1:
            return h if bias is None else h + bias[:, None]
        if self.norms:
            h = self.norms[index](h if bias is None else h + bias[:, None])
            bias = None
        if bias is None:
            bias = h.new_zeros(h.shape[0], h.shape[2])
        drawn = draw.at(index + 1) if draw is not None else None
        if self.residual and isinstance(x, Tensor) and x.shape == h.shape:
            h = activate(h, bias, None) + x
            # Nothing is negative there: what follows is dropout alone.
            bias = torch.zeros_like(bias)
        return activate(h, bias, drawn)

    def propagate(self, h: Tensor, scores: Tensor, graph: Adjacency) -> Tensor:
        """Take one step of ``h <- (1 - teleport) A h + teleport * scores``."""
        return torch.lerp(graph.normalized(h), scores, self.teleport)

    def embed(self, x: Inputs, graph: Adjacency, draw: Draw | None = None) -> Tensor:
        """Return the last hidden layer, (n_models, n_nodes, hidden_size)."""
        h = self.layer(0, x, graph, draw)
        for index in range(1, self.n_layers - 1):
            h = self.layer(index, h, graph, draw)
        return h

    def forward(self, x: Inputs, graph: Adjacency, draw: Draw | None = None) -> Tensor:
        """Return class scores (logits), float32 of (n_models, n_nodes, n_classes).

        `draw` is what is random in training; None is evaluation.
        """
        h = self.layer(0, x, graph, draw)
        for index in range(1, self.n_layers):
            h = self.layer(index, h, graph, draw)
        return graph.propagated(h, self.propagation_steps, self.teleport)


class ForeignEncoder(nn.Module):
    """The door for any torch module with ``forward(x, edge_index)``.

    Such a module draws its dropout from torch's global generator, which is lent a
    seed from ours for the length of the call and put back afterwards.
    """

    stackable = False

    def __init__(self, module: nn.Module, n_classes: int) -> None:
        super().__init__()
        _check_call(module.forward, 2, "forward(x, edge_index)")
        self.module = module
        self.n_classes = n_classes

    def forward(self, x: Inputs, graph: Adjacency, draw: Draw | None = None) -> Tensor:
        """Return class scores (logits), float32 of shape (1, n_nodes, n_classes)."""
        if isinstance(x, Features):
            # The module's dropout is its own: only features that are masked go.
            masked = None
            if draw is not None and draw.row_keep is not None:
                keep = draw.row_keep.clamp(min=draw.dropout.least)
                masked = Drawn(draw.seed, keep, torch.ones_like(draw.dropout.scale))
            x = x.dense(masked)
        if draw is None:
            out = self.module(x, graph.edge_index)
        else:
            with seeded_globally(int(draw.seed[0]) % 2**31, graph.device):
                out = self.module(x, graph.edge_index)
        expected = (graph.n_nodes, self.n_classes)
        if not isinstance(out, Tensor) or out.shape != expected:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ParameterError(
                f"the encoder must return class scores of shape {expected} (nodes, "
                f"classes) from forward(x, edge_index), but returned {got}."
            )
        return out[None]

    def embed(self, x: Inputs, graph: Adjacency, draw: Draw | None = None) -> Tensor:
        """Return the input of the module's last layer that has parameters."""
        from torch_geometric.nn import MessagePassing

        leaves = [
            m
            for m in self.module.modules()
            if next(m.parameters(recurse=False), None) is not None
            or isinstance(m, MessagePassing)
        ]
        convolutions = [m for m in leaves if isinstance(m, MessagePassing)]
        last = (convolutions or leaves)[-1]
        inputs: list[Tensor] = []
        handle = last.register_forward_pre_hook(
            lambda _, args, kwargs: inputs.append(
                args[0] if args else next(iter(kwargs.values()))
            ),
            with_kwargs=True,
        )
        try:
            self(x, graph, draw)
        finally:
            handle.remove()
        return inputs[-1][None]


def build_encoder(
    spec: EncoderSpec, *, seed: int, dropout: float = 0.5
) -> Encoder | ForeignEncoder:
    """Build an encoder by name, of layers, or from a module class or factory.

    A class or factory is called with as many of ``in_channels``,
    ``hidden_channels``, ``out_channels``, ``num_layers`` and ``dropout`` as it takes
    by name (PyG's own model classes take all five), or else with (n_features,
    n_classes).

    Raises
    ------
    ParameterError
        If its `kind` is neither a known name nor something that builds a module, or
        the module can't be trained.
    """
    kind = spec.kind
    with seeded_globally(seed, torch.device("cpu")):
        if isinstance(kind, str):
            if kind not in ENCODERS:
                raise ParameterError(
                    f"encoder={kind!r} is unknown; choose one of {list(ENCODERS)}, "
                    "or give a torch.nn.Module class or factory."
                )
            return Encoder(spec)
        if spec.layer is not None:
            encoder = Encoder(spec)
            _check_parameters(encoder)
            _check_stackable(encoder)
            return encoder
        if isinstance(kind, nn.Module) or not callable(kind):
            raise ParameterError(
                "encoder must be a name, a torch.nn.Module class or a factory that "
                "returns a new module; an instance would be trained twice. Write "
                "encoder=lambda n_in, n_out: …"
            )
        module = _call_factory(
            kind,
            in_channels=spec.n_features,
            hidden_channels=spec.hidden_size,
            out_channels=spec.n_classes,
            num_layers=spec.n_layers,
            dropout=dropout,
        )
    if not isinstance(module, nn.Module):
        raise ParameterError(
            f"the encoder factory returned {type(module).__name__}, not a "
            "torch.nn.Module."
        )
    _check_parameters(module)
    return ForeignEncoder(module, spec.n_classes)


def stack_encoders(encoders: Sequence[nn.Module]) -> Any:
    """Make one encoder of several of one architecture; they are left as they are."""
    stacked: Any = deepcopy(encoders[0])
    if len(encoders) > 1:
        states = [encoder.state_dict(keep_vars=True) for encoder in encoders]
        for name, tensor in stacked.state_dict(keep_vars=True).items():
            tensor.data = torch.cat([state[name].detach() for state in states])
    return stacked


def _check_parameters(module: nn.Module) -> None:
    """Refuse modules that can't be trained as the others are."""
    parameters = dict(module.named_parameters())
    for name, value in parameters.items():
        if isinstance(value, nn.parameter.UninitializedParameter):
            raise ParameterError(
                f"the encoder's parameter {name!r} has no size yet (a lazy layer): "
                "make it with the sizes that the factory is given."
            )
        if value.dtype != torch.float32:
            raise ParameterError(
                f"the encoder's parameter {name!r} is {value.dtype}: features are "
                "float32; call .float() on the module."
            )
    if not any(value.requires_grad for value in parameters.values()):
        raise ParameterError(
            "the encoder has no parameter to train: give layers, or leave "
            "requires_grad on for some of them."
        )


def _check_stackable(encoder: Encoder) -> None:
    """Refuse layers that would be mixed up with those of the models beside them."""
    for name, value in encoder.state_dict().items():
        if value.shape[:1] != (1,):
            raise ParameterError(
                f"the encoder's {name!r} has shape {tuple(value.shape)}: parameters "
                "and buffers of a Layer begin with a dimension of one model; add "
                "[None]."
            )


def _call_factory(factory: Callable[..., nn.Module], **widths: Any) -> nn.Module:
    parameters = inspect.signature(factory).parameters
    if "in_channels" in parameters:
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        # PyG's models pass on what they do not know to their convolutions.
        known = {"dropout", "num_layers"} if open_ended and factory.__module__ else ()
        return factory(**{k: widths[k] for k in widths if k in {*parameters, *known}})
    _check_call(factory, 2, "encoder(n_features, n_classes)")
    return factory(widths["in_channels"], widths["out_channels"])


def _check_call(function: Callable[..., Any], n_arguments: int, wanted: str) -> None:
    try:
        inspect.signature(function).bind(*range(n_arguments))
    except TypeError as error:
        raise ParameterError(
            f"the encoder cannot be called as {wanted}: {error}."
        ) from error


@contextmanager
def seeded_globally(seed: int, device: torch.device) -> Iterator[None]:
    """Lend torch's global generator a seed, and put its state back afterwards.

    One thread at a time has it.
    """
    devices = [device] if device.type == "cuda" else []
    with _GENERATOR, torch.random.fork_rng(devices=devices):
        if device.type == "cuda":
            torch.manual_seed(seed)
        else:
            # Without a word to GPUs, whose generators keep their state.
            torch.default_generator.manual_seed(seed)
        yield
