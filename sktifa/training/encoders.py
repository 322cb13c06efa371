"""Graph encoders: what turns features and edges into class scores.

GCN, GraphSAGE and the MLP multiply sparse features and a CSR adjacency directly; the
others wrap PyTorch Geometric's convolutions. Any module with ``forward(x,
edge_index)`` comes in through the same door.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from sktifa.exceptions import ParameterError
from sktifa.tensors.narrow import matmul
from sktifa.tensors.sparse import Adjacency, Features, dropout

__all__ = ["ENCODERS", "Encoder", "EncoderName", "build_encoder"]

EncoderName = Literal[
    "gcn", "gat", "sage", "cheb", "arma", "feast", "hypergraph", "graphconv", "mlp"
]
ENCODERS: tuple[str, ...] = get_args(EncoderName)

_GAT_HEADS = 8
_FEAST_HEADS = 4


class Encoder(nn.Module):
    """A stack of graph convolutions with ReLU and dropout between them.

    Parameters
    ----------
    name : str
        One of `ENCODERS`.
    n_features, hidden_size, n_classes : int
        Widths of the input, of every hidden layer and of the output.
    n_layers : int, default=2
        Number of convolutions.
    dropout : float, default=0.5
        Rate, applied to the input of every layer.
    residual : bool, default=False
        Add a hidden layer's input to its output where the widths agree.
    normalization : {"batch", "layer"} or None, default=None
        Normalisation of each hidden layer before the activation.
    """

    def __init__(
        self,
        name: str,
        n_features: int,
        hidden_size: int,
        n_classes: int,
        *,
        n_layers: int = 2,
        dropout: float = 0.5,
        residual: bool = False,
        normalization: Literal["batch", "layer"] | None = None,
    ) -> None:
        super().__init__()
        widths = [n_features] + [hidden_size] * (n_layers - 1) + [n_classes]
        self.widths = widths
        self.convolutions = nn.ModuleList(
            _convolution(name, n_in, n_out, last=i == n_layers - 1)
            for i, (n_in, n_out) in enumerate(zip(widths, widths[1:], strict=False))
        )
        norm = {None: nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.norms = nn.ModuleList(
            norm[normalization](hidden_size) for _ in range(n_layers - 1)
        )
        self.dropout = dropout
        self.residual = residual

    @property
    def n_layers(self) -> int:
        """Number of convolutions."""
        return len(self.convolutions)

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether all layers run on CSR products, whose shapes never change."""
        fixed = (_GCNLayer, _SAGELayer, _MLPLayer)
        return all(isinstance(layer, fixed) for layer in self.convolutions)

    def layer(
        self,
        index: int,
        x: Features | Tensor,
        graph: Adjacency,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Run one layer: dropout, convolution, and what follows a hidden one."""
        convolution = self.convolutions[index]
        if isinstance(x, Features):
            x = x.drop(self.dropout, generator)
        else:
            x = dropout(x, self.dropout, generator)
        out = convolution(x, graph)
        if index == self.n_layers - 1:
            return out
        out = torch.relu(self.norms[index](out))
        if self.residual and isinstance(x, Tensor) and x.shape == out.shape:
            out = out + x
        return out

    def embed(
        self,
        x: Features | Tensor,
        graph: Adjacency,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the last hidden layer, float32 of shape (n_nodes, hidden_size)."""
        h = self.layer(0, x, graph, generator)
        for index in range(1, self.n_layers - 1):
            h = self.layer(index, h, graph, generator)
        return h

    def forward(
        self,
        x: Features | Tensor,
        graph: Adjacency,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return class scores (logits), float32 of shape (n_nodes, n_classes).

        `generator` draws the dropout; None is evaluation.
        """
        h = self.layer(0, x, graph, generator)
        for index in range(1, self.n_layers):
            h = self.layer(index, h, graph, generator)
        return h


class ForeignEncoder(nn.Module):
    """The door for any torch module with ``forward(x, edge_index)``.

    Such a module draws its dropout from torch's global generator, which is lent a
    seed from ours for the length of the call and put back afterwards.
    """

    def __init__(self, module: nn.Module, n_classes: int) -> None:
        super().__init__()
        _check_call(module.forward, 2, "forward(x, edge_index)")
        self.module = module
        self.n_classes = n_classes

    def forward(
        self,
        x: Features | Tensor,
        graph: Adjacency,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return class scores (logits), float32 of shape (n_nodes, n_classes)."""
        if isinstance(x, Features):
            x = x.drop(0.0, generator).dense()
        if generator is None:
            out = self.module(x, graph.edge_index)
        else:
            with seeded_globally(draw_seed(generator), graph.device):
                out = self.module(x, graph.edge_index)
        expected = (graph.n_nodes, self.n_classes)
        if not isinstance(out, Tensor) or out.shape != expected:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ParameterError(
                f"the encoder must return class scores of shape {expected} (nodes, "
                f"classes) from forward(x, edge_index), but returned {got}."
            )
        return out

    def embed(
        self,
        x: Features | Tensor,
        graph: Adjacency,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the input of the module's last layer that has parameters."""
        leaves = [
            m
            for m in self.module.modules()
            if next(m.parameters(recurse=False), None) is not None
            or isinstance(m, pyg.MessagePassing)
        ]
        convolutions = [m for m in leaves if isinstance(m, pyg.MessagePassing)]
        last = (convolutions or leaves)[-1]
        inputs: list[Tensor] = []
        handle = last.register_forward_pre_hook(
            lambda _, args, kwargs: inputs.append(
                args[0] if args else next(iter(kwargs.values()))
            ),
            with_kwargs=True,
        )
        try:
            self(x, graph, generator)
        finally:
            handle.remove()
        return inputs[-1]


def build_encoder(
    encoder: str | type[nn.Module] | Callable[..., nn.Module],
    n_features: int,
    hidden_size: int,
    n_classes: int,
    *,
    n_layers: int,
    dropout: float,
    residual: bool,
    normalization: Literal["batch", "layer"] | None,
    seed: int,
) -> nn.Module:
    """Build an encoder by name, or from a module class or factory.

    A class or factory is called with as many of ``in_channels``,
    ``hidden_channels``, ``out_channels``, ``num_layers`` and ``dropout`` as it takes
    by name (PyG's own model classes take all five), or else with (n_features,
    n_classes).

    Raises
    ------
    ParameterError
        If `encoder` is neither a known name nor something that builds a module.
    """
    with seeded_globally(seed, torch.device("cpu")):
        if isinstance(encoder, str):
            if encoder not in ENCODERS:
                raise ParameterError(
                    f"encoder={encoder!r} is unknown; choose one of {list(ENCODERS)}, "
                    "or give a torch.nn.Module class or factory."
                )
            return Encoder(
                encoder,
                n_features,
                hidden_size,
                n_classes,
                n_layers=n_layers,
                dropout=dropout,
                residual=residual,
                normalization=normalization,
            )
        if isinstance(encoder, nn.Module) or not callable(encoder):
            raise ParameterError(
                "encoder must be a name, a torch.nn.Module class or a factory that "
                "returns a new module; an instance would be trained twice. Write "
                "encoder=lambda n_in, n_out: …"
            )
        module = _call_factory(
            encoder,
            in_channels=n_features,
            hidden_channels=hidden_size,
            out_channels=n_classes,
            num_layers=n_layers,
            dropout=dropout,
        )
    if not isinstance(module, nn.Module):
        raise ParameterError(
            f"the encoder factory returned {type(module).__name__}, not a "
            "torch.nn.Module."
        )
    return ForeignEncoder(module, n_classes)


def _call_factory(factory: Callable[..., nn.Module], **widths: Any) -> nn.Module:
    parameters = inspect.signature(factory).parameters
    if "in_channels" in parameters:
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        # PyG's models pass on what they do not know to their convolutions.
        known = {"dropout", "num_layers"} if open_ended and factory.__module__ else ()
        return factory(
            **{k: v for k, v in widths.items() if k in parameters or k in known}
        )
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
    """Lend torch's global generator a seed, and put its state back afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        if device.type == "cuda":
            torch.manual_seed(seed)
        else:
            # Without a word to GPUs, whose generators keep their state.
            torch.default_generator.manual_seed(seed)
        yield


def draw_seed(generator: torch.Generator) -> int:
    """Draw a seed for another generator."""
    return int(
        torch.randint(2**31, (), generator=generator, device=generator.device).item()
    )


class _GCNLayer(nn.Module):
    """Kipf and Welling's graph convolution on CSR products."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_in, n_out)))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Features | Tensor, graph: Adjacency) -> Tensor:
        return graph.normalized(_transform(x, self.weight)) + self.bias


class _SAGELayer(nn.Module):
    """GraphSAGE with mean aggregation: one product transforms self and neighbours."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        weight = torch.cat(
            [nn.init.xavier_uniform_(torch.empty(n_in, n_out)) for _ in range(2)], 1
        )
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Features | Tensor, graph: Adjacency) -> Tensor:
        own, neighbor = _transform(x, self.weight).chunk(2, dim=1)
        return own + graph.mean(neighbor) + self.bias


class _MLPLayer(nn.Module):
    """A dense layer that ignores the edges."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_in, n_out)))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Features | Tensor, graph: Adjacency) -> Tensor:
        return _transform(x, self.weight) + self.bias


class _PyGLayer(nn.Module):
    """One of PyTorch Geometric's convolutions."""

    def __init__(self, convolution: nn.Module, takes_weight: bool = False) -> None:
        super().__init__()
        self.convolution = convolution
        self.takes_weight = takes_weight

    def forward(self, x: Features | Tensor, graph: Adjacency) -> Tensor:
        x = x.dense() if isinstance(x, Features) else x
        if self.takes_weight:
            return self.convolution(x, graph.edge_index, graph.edge_weight)
        return self.convolution(x, graph.edge_index)


class _HypergraphLayer(nn.Module):
    """HypergraphConv, where each node and its neighbours are one hyperedge."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.convolution = pyg.HypergraphConv(n_in, n_out)

    def forward(self, x: Features | Tensor, graph: Adjacency) -> Tensor:
        x = x.dense() if isinstance(x, Features) else x
        own = torch.arange(graph.n_nodes, device=x.device).expand(2, -1)
        incidence = torch.cat([graph.edge_index, own], dim=1)
        return self.convolution(x, incidence, num_edges=graph.n_nodes)


def _transform(x: Features | Tensor, weight: Tensor) -> Tensor:
    return x.matmul(weight) if isinstance(x, Features) else matmul(x, weight)


def _convolution(name: str, n_in: int, n_out: int, *, last: bool) -> nn.Module:
    if name == "gcn":
        return _GCNLayer(n_in, n_out)
    if name == "sage":
        return _SAGELayer(n_in, n_out)
    if name == "mlp":
        return _MLPLayer(n_in, n_out)
    if name == "hypergraph":
        return _HypergraphLayer(n_in, n_out)
    if name == "gat":
        # As in GAT's paper: heads side by side in hidden layers, one at the end.
        heads = 1 if last or n_out % _GAT_HEADS else _GAT_HEADS
        return _PyGLayer(pyg.GATConv(n_in, n_out // heads, heads=heads))
    if name == "cheb":
        return _PyGLayer(pyg.ChebConv(n_in, n_out, K=2), takes_weight=True)
    if name == "arma":
        return _PyGLayer(pyg.ARMAConv(n_in, n_out), takes_weight=True)
    if name == "feast":
        return _PyGLayer(pyg.FeaStConv(n_in, n_out, heads=_FEAST_HEADS))
    return _PyGLayer(pyg.GraphConv(n_in, n_out), takes_weight=True)
