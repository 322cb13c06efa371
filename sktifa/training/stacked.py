"""Training many models of one architecture at once, on one device.

A small graph leaves a GPU idle between kernels, and a process per model makes it worse.
Here B models are one: their parameters are stacked, their graphs are the blocks of one
block-diagonal graph, and everything in which they differ (learning rate, dropout, loss
weights, pairs, perturbed edges ...) is a tensor with an entry a model. No kernel is
launched for one model, and who stops is decided on the device. On CUDA an epoch is
recorded as CUDA graphs, and the host hears of it while the next one runs.

Each model is what `fit` would have made of it: the same initial weights, validation
nodes and pairs; on the CPU the same perturbations, on CUDA some drawn in rounds. Models
that stop early leave the stack.
"""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state
from torch import Tensor, nn
from torch.nn import functional

from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier
from sktifa.contrast.loss import pair_loss, self_consistency_loss
from sktifa.contrast.perturbation import GraphPerturber
from sktifa.contrast.rounds import BlockViews, RoundsPerturber
from sktifa.device import resolve_device
from sktifa.exceptions import TrainingError
from sktifa.graph import Graph
from sktifa.tensors.kernels import Drawn, kernels_for, why_none
from sktifa.tensors.narrow import log_softmax, matmul
from sktifa.tensors.sparse import Adjacency, Features
from sktifa.training.capture import capture, snapshot
from sktifa.training.engine import LEARNING_RATE_FLOOR, TrainingLog, split_generator

__all__ = [
    "SHARED",
    "StackedModel",
    "models_at_once",
    "prepare",
    "train_stacked",
    "why_alone",
]

STACKABLE_ENCODERS = ("gcn", "sage", "mlp")
# Parameters that only say how to train: any other must have its default value.
_PER_MODEL = {
    "class_weight", "clarity_weight", "decay", "decay_hops", "divergence", "dropout",
    "early_stopping", "edges_added", "edges_removed", "feature_mask_rate",
    "feature_norm", "feature_weight", "hidden_size", "hop_weight",
    "label_distribution", "learning_rate", "learning_rate_decay", "max_iter",
    "memory", "min_iter", "missing_label", "monitor", "n_iter_no_change", "n_layers",
    "n_neighbors", "n_positives", "negative_ranks", "negative_weight",
    "pair_weight", "pairing", "perturbation", "perturbation_rate",
    "perturbed_nodes", "random_state", "residual", "restart_probability", "sharpness",
    "target", "temperature", "tol", "validation_fraction", "weight_decay",
    "weight_max", "weight_min", "weighting",
}  # fmt: skip
# What two models of one stack must agree in.
SHARED = ("encoder", "hidden_size", "n_layers", "residual", "feature_norm")
# On the CPU each thread trains a few models at a time, as the activations of many leave
# the cache; a GPU wants as many as fit.
_MODELS_A_THREAD = 4
_MOST_MODELS = 256
_MEMORY_SHARE = 0.6
# Epochs' worth of work on models that have stopped before the others go on without
# them: on CUDA these have to be recorded anew, which costs as much.
_WASTE = {"cuda": 20.0}
# Views that one draw on a GPU makes of each model.
_VIEWS_AHEAD = 8
# How far the seeds of two epochs, and of two layers, are apart: odd numbers.
_STRIDE = 0x9E3779B97F4A7C1, 0x632BE59BD9B4E01
# Adam's constants, PyTorch's own.
_BETAS, _EPS = (0.9, 0.999), 1e-8

# Encoders are built under a global seed, one at a time.
_BUILDING = threading.Lock()


@dataclass
class StackedModel:
    """One model before and after training: what `fit` works out from its arguments.

    Attributes
    ----------
    estimator : GNNClassifier
        With the candidate's parameters; after training, as fitted.
    graph : Graph
        The whole graph.
    generator : torch.Generator
        Draws dropout.
    index, target, weight : Tensor
        Labelled training nodes, their classes and their share of the cross-entropy.
    validation : tuple of Tensor or None
        The same for the validation nodes.
    loss_weights, perturber, pairs
        The contrast's, pairs as positive and negative sets; None for a supervised
        model.
    seed : int
        Seeds the perturbations.
    logits : ndarray of float32, shape (n_nodes, n_classes)
        After training: every node's scores by the model that is kept.
    error : Exception or None
        Why there is no model.
    """

    estimator: GNNClassifier
    graph: Graph
    generator: torch.Generator
    index: Tensor
    target: Tensor
    weight: Tensor
    validation: tuple[Tensor, Tensor, Tensor] | None = None
    loss_weights: NDArray[np.float64] | None = None
    perturber: GraphPerturber | None = None
    pairs: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    seed: int = 0
    logits: NDArray[np.float32] | None = None
    error: Exception | None = None
    log: TrainingLog = field(default_factory=TrainingLog)

    @property
    def key(self) -> tuple[Any, ...]:
        """What models that are trained at once must agree in."""
        estimator = self.estimator
        shared = [getattr(estimator, name) for name in SHARED]
        if self.perturber is not None:
            in_rounds = RoundsPerturber.takes(self.perturber)
            shared += [estimator.divergence, estimator.target, in_rounds]
        return (
            type(estimator).__name__,
            self.graph.fingerprint,
            len(estimator.classes_),
            *shared,
        )


def why_alone(
    estimator: Any, X: Any, fit_params: dict[str, Any] | None = None
) -> str | None:
    """Say why a model can't be trained in a stack, or None if it can.

    Parameters
    ----------
    estimator : estimator
        The candidate.
    X : object
        What it will be fitted on.
    fit_params : dict, default=None
        Further arguments of `fit`.

    Returns
    -------
    str or None
        The parameter that is in the way, and its value.
    """
    if type(estimator) not in (GNNClassifier, TIFAGCLClassifier):
        return f"the estimator is a {type(estimator).__name__}"
    if not isinstance(X, Graph):
        return f"X is a {type(X).__name__}, not a Graph"
    if getattr(estimator, "_skl_callbacks", None):
        return "the estimator has callbacks of its own"
    X_val = (fit_params or {}).get("X_val")
    if X_val is not None and not (
        isinstance(X_val, Graph) and X_val.fingerprint == X.fingerprint
    ):
        return "X_val is not of the graph that is trained on"
    reason = why_none(resolve_device(estimator.device))
    if reason is not None:
        return reason
    if estimator.encoder not in STACKABLE_ENCODERS:
        return f"encoder={estimator.encoder!r}"
    kind: Callable[..., Any] = type(estimator)
    for name, default in _defaults(kind).items():
        if name in _PER_MODEL or name in ("encoder", "device", "verbose"):
            continue
        value = getattr(estimator, name)
        if value is not default and value != default:
            return f"{name}={value!r}"
    return None


@cache
def _defaults(kind: Callable[..., Any]) -> dict[str, Any]:
    parameters = list(inspect.signature(kind).parameters.values())
    return {parameter.name: parameter.default for parameter in parameters}


def prepare(
    estimator: GNNClassifier,
    X: Graph,
    y: Any,
    device: torch.device,
    fit_params: dict[str, Any] | None,
    networks: dict[tuple[Any, ...], nn.Module],
) -> StackedModel:
    """Do what `fit` does before the first epoch, without touching the device's memory.

    Parameters
    ----------
    estimator : GNNClassifier
        With the candidate's parameters.
    X, y
        As for `fit`.
    device : torch.device
        Where propagation and pairs are computed.
    fit_params : dict or None
        Further arguments of `fit`.
    networks : dict
        Networks before training, by architecture and seed, that models share.

    Returns
    -------
    StackedModel

    Raises
    ------
    SktifaError, InvalidParameterError
        As `fit` does.
    """
    given = dict(fit_params or {})
    estimator._validate_params()
    cpu = torch.device("cpu")
    random_state = check_random_state(estimator.random_state)
    generator, rng = split_generator(random_state, device)
    graph, codes, weight = estimator._training_nodes(X, y, given.get("sample_weight"))
    training, validation = estimator._train_and_validation(
        graph, codes, weight, given.get("X_val"), given.get("y_val"), random_state, cpu
    )
    nodes, codes, weight = graph.nodes[training], codes[training], weight[training]
    seed = int(random_state.randint(np.iinfo(np.int32).max))
    architecture = seed, len(estimator.classes_), estimator.dropout
    architecture += tuple(getattr(estimator, name) for name in SHARED)
    with _BUILDING:
        if architecture not in networks:
            networks[architecture] = estimator._network(graph.n_features, seed)
    model = StackedModel(
        estimator,
        graph,
        generator,
        torch.from_numpy(nodes),
        torch.from_numpy(codes),
        torch.from_numpy(weight / weight.sum()).float(),
    )
    # Shared and left as it is: the trained one is a copy.
    estimator.network_ = networks[architecture]
    if validation is not None and estimator.early_stopping:
        model.validation = (validation.index, validation.target, validation.weight)
    if isinstance(estimator, TIFAGCLClassifier):
        model.loss_weights, model.perturber, model.pairs = estimator._contrast_terms(
            graph, nodes, codes, device, rng
        )
        # As PerturbedViews seeds its views.
        model.seed = int(rng.integers(2**63))
    return model


def models_at_once(estimator: GNNClassifier, graph: Graph, device: torch.device) -> int:
    """Estimate how many models of an architecture fit in the memory that is free.

    Parameters
    ----------
    estimator : GNNClassifier
        One of the models.
    graph : Graph
        The graph they are trained on.
    device : torch.device
        Where.

    Returns
    -------
    int
        At least 1.
    """
    n, width = graph.n_nodes, estimator.hidden_size
    stored = (
        graph.features.nnz if sparse.issparse(graph.features) else n * graph.n_features
    )
    arcs = graph.adjacency.nnz + n
    n_parameters = width * (graph.n_features + estimator.n_layers * width)
    ranks = 0
    if isinstance(estimator, TIFAGCLClassifier) and estimator.pairing:
        ranks = estimator.n_positives + int(np.ptp(estimator.negative_ranks))
    a_model = 4 * (
        16 * stored
        + 12 * arcs
        + 16 * n * width * estimator.n_layers
        + 8 * n_parameters
        + 4 * n * ranks
    )
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        most = _MOST_MODELS
    else:
        free = psutil.virtual_memory().available
        # Two rounds of work: threads whose models stop early don't wait for long.
        most = 2 * _MODELS_A_THREAD * torch.get_num_threads()
    # cuSPARSE and MKL count in int32.
    fit = min(_MEMORY_SHARE * free // a_model, (2**31 - 1) // max(stored, arcs, 1))
    return int(max(1, min(fit, most)))


def train_stacked(models: Sequence[StackedModel], device: torch.device) -> None:
    """Train models that agree in their `key`, all at once.

    Sets each estimator's fitted attributes, or the model's `error`. On the CPU threads
    train a few each. Where a GPU's memory runs out, two halves are trained one after
    the other.

    Parameters
    ----------
    models : sequence of StackedModel
        From :func:`prepare`.
    device : torch.device
        Where to train.
    """
    if device.type == "cpu":
        _train_in_threads(models, device)
    else:
        _train(models, device)


def _train_in_threads(models: Sequence[StackedModel], device: torch.device) -> None:
    interrupted = threading.Event()

    def work(part: NDArray[np.intp]) -> None:
        torch.set_num_threads(1)
        try:
            _train([models[i] for i in part], device, interrupted)
        except BaseException:
            interrupted.set()
            raise

    with _lent_threads() as n_threads, ThreadPoolExecutor(n_threads) as pool:
        enough = min(n_threads, len(models))
        n_parts = max(-(-len(models) // _MODELS_A_THREAD), enough)
        try:
            list(pool.map(work, np.array_split(np.arange(len(models)), n_parts)))
        except BaseException:
            interrupted.set()
            raise


class _Lent:
    """How many threads PyTorch had before searches took them, and how many search."""

    lock = threading.Lock()
    n_threads, n_searches = 1, 0


@contextmanager
def _lent_threads() -> Iterator[int]:
    """Say how many threads PyTorch has, which the last search to end gives back.

    A thread that PyTorch is told to use one core in makes that the default of others.
    """
    with _Lent.lock:
        if not _Lent.n_searches:
            _Lent.n_threads = torch.get_num_threads()
        _Lent.n_searches += 1
    try:
        yield _Lent.n_threads
    finally:
        with _Lent.lock:
            _Lent.n_searches -= 1
            if not _Lent.n_searches:
                torch.set_num_threads(_Lent.n_threads)


def _train(
    models: Sequence[StackedModel],
    device: torch.device,
    interrupted: threading.Event | None = None,
) -> None:
    try:
        _Stack(models, device, interrupted).train()
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) and len(models) > 1:
            error.__traceback__ = None  # It holds the tensors.
            torch.cuda.empty_cache()
            half = len(models) // 2
            for part in (models[:half], models[half:]):
                _train(part, device)
            return
        for model in models:
            model.error = error


class _Blocks:
    """Copies of one graph, of which the first `n_models` are in use."""

    def __init__(self, graph: Graph, feature_norm: str | None, n: int, device) -> None:  # noqa: ANN001
        features = graph.features
        if feature_norm is not None:
            features = normalize(features, norm=feature_norm)
        self.features = Features.from_matrix(features, device)
        self.single = Adjacency.from_csr(graph.adjacency, device)
        self.n_nodes, self.n_features = self.features.shape
        self.n_arcs = self.single.col.shape[0]
        self.kernels = kernels_for(device)
        nodes, arcs = self.n_nodes, self.n_arcs
        self._crow = _tiled_pointer(self.single.crow, n, arcs)
        self._col = _tiled(self.single.col, n, nodes)
        self._row = _tiled(self.single.row, n, nodes)
        self._weight = self.single.weight.repeat(n)
        self.use(n)

    def use(self, n_models: int) -> None:
        """Keep the first blocks only."""
        self.n_models = n_models
        n, arcs = n_models * self.n_nodes, n_models * self.n_arcs
        self.adjacency = Adjacency(
            self._crow[: n + 1],
            self._col[:arcs],
            self._row[:arcs],
            self._weight[:arcs],
            weighted=self.single.weighted,
            product=self.kernels.csr_product,
        )

    def transform(self, weight: Tensor, drawn: Drawn | None) -> Tensor:
        """Multiply the features of each model by its weights, after dropout."""
        if self.features.pattern is not None:
            return _BlockProduct.apply(weight.flatten(0, 1), self, drawn)
        values = self.features.values
        if drawn is not None:
            values = self.kernels.drop(values, drawn)
        return matmul(values.expand(self.n_models, -1, -1), weight).flatten(0, 1)

    def product(self, weight: Tensor, drawn: Drawn | None) -> Tensor:
        """Multiply all blocks' features."""
        n, pattern = self.n_models * self.n_nodes, self.features.pattern
        return self.kernels.csr_product(
            pattern.crow, pattern.col, self.features.values, weight, n, drawn=drawn
        )

    def transposed_product(self, grad: Tensor, drawn: Drawn | None) -> Tensor:
        """Multiply all blocks' transposed features."""
        n, pattern = self.n_models * self.n_features, self.features.pattern
        return self.kernels.csr_product(
            pattern.transpose_crow,
            pattern.transpose_col,
            pattern.transposed_values,
            grad,
            n,
            drawn=drawn,
            order=pattern.transpose_order,
        )

    def activate(self, h: Tensor, bias: Tensor, drawn: Drawn | None) -> Tensor:
        """Add the bias, cut off what is negative and drop entries."""
        return _Activation.apply(h, bias, self.kernels, drawn)


class _BlockProduct(torch.autograd.Function):
    """Block-diagonal sparse features times stacked weights."""

    @staticmethod
    def forward(ctx, weight, blocks, drawn):  # noqa: ANN001, ANN205
        ctx.args = blocks, drawn
        return blocks.product(weight.contiguous(), drawn)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        blocks, drawn = ctx.args
        return blocks.transposed_product(grad.contiguous(), drawn), None, None


class _Activation(torch.autograd.Function):
    """Bias, ReLU and dropout, of which the backward pass needs the output alone."""

    @staticmethod
    def forward(ctx, h, bias, kernels, drawn):  # noqa: ANN001, ANN205
        out = kernels.activate(h.contiguous(), bias, drawn)
        ctx.save_for_backward(out)
        ctx.args = kernels, drawn, len(bias)
        return out

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        (out,) = ctx.saved_tensors
        kernels, drawn, n_models = ctx.args
        of_h = kernels.activate_backward(grad, out, drawn)
        of_bias = of_h.view(n_models, -1, out.shape[1]).sum(1)
        return of_h, of_bias, None, None


def _tiled(index: Tensor, copies: int, step: int) -> Tensor:
    shift = torch.arange(copies, dtype=index.dtype, device=index.device) * step
    return (index[None] + shift[:, None]).flatten()


def _tiled_pointer(pointer: Tensor, copies: int, entries: int) -> Tensor:
    last = pointer.new_full((1,), copies * entries)
    return torch.cat([_tiled(pointer[:-1], copies, entries), last])


@dataclass
class _View:
    """A perturbed view of all blocks, as `Adjacency.perturbed` takes it.

    With the probability that a feature is kept, of shape (n_models, n_nodes).
    """

    removed_arcs: Tensor
    added_edges: Tensor
    added_weight: Tensor | None
    row_keep: Tensor


def _feature_keep(models: Sequence[StackedModel], device: torch.device) -> Tensor:
    """Return each model's probability that a perturbed node's feature is kept."""
    rates = [m.estimator.feature_mask_rate for m in models]
    return 1 - torch.tensor(rates, dtype=torch.float32, device=device)


class _RoundViews:
    """Views drawn on the device, some at a time, all of the same shapes."""

    def __init__(
        self,
        models: Sequence[StackedModel],
        blocks: _Blocks,
        first: Tensor | int = 0,
    ) -> None:
        device = blocks.single.device
        perturbers = [m.perturber for m in models if m.perturber is not None]
        self.keep = _feature_keep(models, device)[:, None]
        self.weight = blocks.single.mean_weight
        # Number of the first view of all, and how many have been taken since.
        self.first = torch.zeros(1, dtype=torch.int64, device=device) + first
        self.number = torch.zeros_like(self.first)
        self.seeds = torch.tensor([m.seed for m in models], device=device)
        # Kept: a recorded draw reads its tensors.
        self.perturber = RoundsPerturber(perturbers, device)
        self.draw: Callable[[], BlockViews] = self._draw
        self.drawn = self.draw()

    def _draw(self) -> BlockViews:
        return self.perturber.draw(self.seeds, self.first + self.number, _VIEWS_AHEAD)

    def advance(self) -> None:
        """Draw the views of the next epochs, before the first of them."""
        self.drawn = self.draw()

    def next(self) -> _View:
        """Return the next view; waits for nothing."""
        place = self.number % _VIEWS_AHEAD
        self.number += 1
        drawn = self.drawn
        removed, edges, is_added, nodes = (
            part.index_select(0, place)[0]
            for part in (
                drawn.removed_arcs,
                drawn.added_edges,
                drawn.is_added,
                drawn.nodes,
            )
        )
        row_keep = torch.where(nodes, self.keep, 1.0)
        return _View(removed, edges, is_added * self.weight, row_keep)


class _Views:
    """The models' perturbations of each epoch as one, drawn ahead by threads."""

    def __init__(
        self,
        models: Sequence[StackedModel],
        n_nodes: int,
        n_arcs: int,
        device: torch.device,
    ) -> None:
        self.models, self.device = list(models), device
        self.sizes = n_nodes, n_arcs, n_nodes
        self._n_threads = min(len(models), max(1, (os.cpu_count() or 2) - 1), 32)
        self._pool = ThreadPoolExecutor(self._n_threads)
        self._n_asked = 0
        self._drawn: list[list[NDArray[np.int64]]] = []
        self._submit()

    def _submit(self) -> None:
        parts = np.array_split(np.arange(len(self.models)), self._n_threads)
        self._ahead = [
            self._pool.submit(self._draw, p, self._n_asked) for p in parts if len(p)
        ]
        self._n_asked += 1

    def _draw(self, ids: NDArray[np.intp], number: int) -> list[NDArray[np.int64]]:
        nodes, arcs, edges = [], [], []
        for i in ids.tolist():
            model = self.models[i]
            view = model.perturber.draw(np.random.default_rng([model.seed, number]))
            nodes.append(view.nodes + i * self.sizes[0])
            arcs.append(view.removed_arcs + i * self.sizes[1])
            edges.append(view.added_edges + i * self.sizes[2])
        return [np.concatenate(kind, axis=-1) for kind in (nodes, arcs, edges)]

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Forget the other models, and what was drawn for them."""
        place = np.full(len(self.models), -1)
        place[kept] = np.arange(len(kept))
        drawn = [part.result() for part in self._ahead]
        self.models = [self.models[i] for i in kept]
        self._ahead = []
        for kind, size in enumerate(self.sizes):
            for part in drawn:
                block = part[kind] // size
                # Both ends of an edge are in one block.
                of = block if kind < 2 else block[0]
                stays = place[of] >= 0
                shift = ((place[of] - of) * size)[stays]
                part[kind] = part[kind][..., stays] + shift
        self._drawn = drawn

    def next(self) -> _View:
        """Return the view of all models."""
        drawn = self._drawn or [part.result() for part in self._ahead]
        self._drawn = []
        self._submit()
        parts = [np.concatenate([d[k] for d in drawn], axis=-1) for k in range(3)]
        flat = torch.from_numpy(np.concatenate([p.ravel() for p in parts]))
        if self.device.type == "cuda":
            flat = flat.pin_memory().to(self.device, non_blocking=True)
        nodes, arcs, ends = flat.split([p.size for p in parts])
        keep = _feature_keep(self.models, self.device)
        of_model = torch.div(nodes, self.sizes[0], rounding_mode="floor")
        row_keep = torch.ones(len(keep) * self.sizes[0], device=self.device)
        row_keep[nodes] = keep.index_select(0, of_model)
        return _View(arcs, ends.view(2, -1), None, row_keep.view(len(keep), -1))

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)


def _pair_rows(
    sets: tuple[NDArray[np.int64], NDArray[np.int64]],
    weights: tuple[float, float],
    device: torch.device,
) -> tuple[Tensor, Tensor, Tensor]:
    """Do as `pair_operator`: entries of each row, and their columns and values."""
    columns, values = [], []
    for nodes, weight in zip(sets, weights, strict=True):
        column = torch.from_numpy(nodes).to(device)
        present = column >= 0
        columns.append(column)
        share = weight / present.sum(1, keepdim=True).clamp(min=1)
        values.append(torch.where(present, share, 0.0))
    column, value = torch.cat(columns, 1), torch.cat(values, 1).float()
    column, order = column.sort(dim=1)
    kept = column >= 0
    return kept.sum(1), column[kept], value.gather(1, order)[kept]


class _Reader:
    """Brings the epochs' figures to the host, on CUDA while the next epoch runs."""

    def __init__(self, device: torch.device) -> None:
        self._lag = 1 if device.type == "cuda" else 0
        self._waiting: deque[tuple[NDArray[np.intp], Tensor, Any]] = deque()

    def put(self, ids: NDArray[np.intp], figures: Tensor) -> None:
        """Send the figures of the models `ids` on their way."""
        event = None
        if figures.is_cuda:
            host = torch.empty(figures.shape, pin_memory=True)
            figures = host.copy_(figures, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._waiting.append((ids, figures, event))

    def take(
        self, everything: bool = False
    ) -> list[tuple[NDArray[np.intp], NDArray[np.float32]]]:
        """Return what has arrived."""
        arrived = []
        while len(self._waiting) > (0 if everything else self._lag):
            ids, figures, event = self._waiting.popleft()
            if event is not None:
                event.synchronize()
            arrived.append((ids, figures.numpy()))
        return arrived


@dataclass
class _Nodes:
    """Labelled nodes of all models: flat positions, with the model of each."""

    model: Tensor
    index: Tensor
    target: Tensor
    weight: Tensor

    @classmethod
    def stack(
        cls,
        parts: Sequence[tuple[Tensor, Tensor, Tensor] | None],
        n_nodes: int,
        device: torch.device,
    ) -> _Nodes:
        some = [(i, *part) for i, part in enumerate(parts) if part is not None]
        if not some:
            none = torch.empty(0, dtype=torch.int64, device=device)
            return cls(none, none, none, none.float())
        return cls(
            torch.cat([torch.full_like(index, i) for i, index, _, _ in some]).to(
                device
            ),
            torch.cat([index + i * n_nodes for i, index, _, _ in some]).to(device),
            torch.cat([target for *_, target, _ in some]).to(device),
            torch.cat([weight for *_, weight in some]).to(device),
        )

    def sums(self, values: Tensor, n_models: int) -> Tensor:
        """Add up each model's."""
        return values.new_zeros(n_models).index_add(0, self.model, values)


def _with_parameters(
    module: nn.Module, values: dict[str, Tensor], prefix: str = ""
) -> nn.Module:
    """Return a copy with other parameters, which deepcopy takes a hundred times for."""
    twin = copy(module)
    twin._parameters = {
        name: nn.Parameter(values[prefix + name]) for name in module._parameters
    }
    twin._modules = {
        name: _with_parameters(child, values, f"{prefix}{name}.")
        for name, child in module.named_children()
    }
    return twin


class _Stack:
    """The models in training. Those that have stopped leave, a few at a time."""

    def __init__(
        self,
        models: Sequence[StackedModel],
        device: torch.device,
        interrupted: threading.Event | None = None,
    ) -> None:
        self.all, self.device = list(models), device
        self.interrupted = interrupted or threading.Event()
        first = models[0].estimator
        self.encoder, self.n_layers = first.encoder, first.n_layers
        self.residual, self.n_classes = first.residual, len(first.classes_)
        self.blocks = _Blocks(models[0].graph, first.feature_norm, len(models), device)
        self.n_nodes = self.blocks.n_nodes
        states = [list(m.estimator.network_.parameters()) for m in models]
        self.parameters = [
            torch.stack([p.detach() for p in of_models]).to(device).requires_grad_()
            for of_models in zip(*states, strict=True)
        ]
        self.moments = [[torch.zeros_like(p) for p in self.parameters] for _ in "mv"]
        self.best = [p.detach().clone() for p in self.parameters]
        self.kept_best: dict[int, list[Tensor]] = {}
        self.generator = models[0].generator
        self.contrast = models[0].perturber is not None
        self.views: _Views | _RoundViews | None = None
        if self.contrast:
            self.divergence, self.target = first.divergence, first.target
            perturber = models[0].perturber
            in_rounds = perturber is not None and RoundsPerturber.takes(perturber)
            if device.type == "cuda" and in_rounds:
                self.views = _RoundViews(models, self.blocks)
            else:
                n_arcs = models[0].graph.adjacency.nnz
                self.views = _Views(models, self.n_nodes, n_arcs, device)
        n = len(models)
        self.epoch = torch.zeros((), dtype=torch.float64, device=device)
        self.last_loss = torch.zeros(n, device=device)
        self.best_score = torch.full_like(self.last_loss, -torch.inf).double()
        self.best_epoch = torch.zeros_like(self.best_score)
        self.alive = torch.ones(n, dtype=torch.bool, device=device)
        # Every node's logits at the epoch's opening.
        self.clean: Tensor | None = None
        self._gather(np.arange(n))

    # ------------------------------------------------------------ who is in

    def _gather(self, ids: NDArray[np.intp]) -> None:
        """Lay out what the models `ids` differ in, an entry a model."""
        self.ids = ids
        models = [self.all[i] for i in ids]
        self.models = models

        def values(name: str) -> NDArray[np.float64]:
            return np.array([getattr(m.estimator, name) for m in models], dtype=float)

        def exact(name: str) -> Tensor:
            return torch.from_numpy(values(name)).to(self.device)

        # Each model's dropout is its own, whatever the models beside it.
        seeds = [m.generator.initial_seed() for m in models]
        self.seeds = torch.tensor(seeds, device=self.device)
        self.rates = exact("learning_rate")
        self.least_rate = self.rates.clamp(max=LEARNING_RATE_FLOOR)
        self.rate_decay = exact("learning_rate_decay")
        self.min_iter, self.max_iter = exact("min_iter"), exact("max_iter")
        self.patience, self.tol = exact("n_iter_no_change"), exact("tol")
        has_validation = [m.validation is not None for m in models]
        self.has_validation = torch.tensor(has_validation, device=self.device)
        by_loss = [m.estimator.monitor == "loss" for m in models]
        self.by_loss = torch.tensor(by_loss, device=self.device)
        self.weight_decay = self._column(values("weight_decay"))
        self.any_dropout = bool(values("dropout").any())
        self.keep = 1 - self._column(values("dropout"))
        self.train_nodes = _Nodes.stack(
            [(m.index, m.target, m.weight) for m in models], self.n_nodes, self.device
        )
        self.val_nodes = _Nodes.stack(
            [m.validation for m in models], self.n_nodes, self.device
        )
        sizes = [0 if m.validation is None else len(m.validation[0]) for m in models]
        self.val_size = self._column(np.maximum(sizes, 1))[:, 0]
        if self.contrast:
            self.temperature = self._column(values("temperature"))[:, :, None]
            self.pair_weight = self._column(values("pair_weight"))
            weights = np.stack([m.loss_weights for m in models])
            self.loss_weights = torch.from_numpy(weights).float().to(self.device)
            self.operator = self._pair_operator([m.pairs for m in models])

    def _column(self, values: Any) -> Tensor:
        column = torch.as_tensor(np.asarray(values)[:, None]).float()
        return column.to(self.device, non_blocking=True)

    def _pair_operator(
        self, sets: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]] | None]
    ) -> Tensor | None:
        """Make one operator of all models' pairs, where they train."""
        if all(part is None for part in sets):
            return None
        n, counts, columns, values = self.n_nodes, [], [], []
        for i, (model, part) in enumerate(zip(self.models, sets, strict=True)):
            if part is None:
                counts.append(torch.zeros(n, dtype=torch.int64, device=self.device))
                continue
            weights = 1.0, -model.estimator.negative_weight
            count, column, value = _pair_rows(part, weights, self.device)
            counts.append(count)
            columns.append(column + i * n)
            values.append(value)
        size = len(sets) * n
        crow = functional.pad(torch.cat(counts).cumsum(0), (1, 0)).int()
        column = torch.cat(columns).int()
        return torch.sparse_csr_tensor(
            crow, column, torch.cat(values), (size, size), check_invariants=False
        )

    def _leave_out(self, running: NDArray[np.bool_]) -> None:
        """Go on with the running models alone."""
        stays = np.flatnonzero(running)
        for place in np.flatnonzero(~running):
            self.kept_best[int(self.ids[place])] = [p[place].clone() for p in self.best]
        chosen = torch.from_numpy(stays).to(self.device)

        def keep(tensors: Sequence[Tensor]) -> list[Tensor]:
            return [t.detach().index_select(0, chosen) for t in tensors]

        self.parameters = [p.requires_grad_() for p in keep(self.parameters)]
        self.best, self.moments = keep(self.best), [keep(m) for m in self.moments]
        self.last_loss, self.best_score, self.best_epoch, self.alive = keep(
            [self.last_loss, self.best_score, self.best_epoch, self.alive]
        )
        self.blocks.use(len(stays))
        ids = self.ids[stays]
        if isinstance(self.views, _RoundViews):
            models = [self.all[i] for i in ids]
            taken = self.views.first + self.views.number
            self.views = _RoundViews(models, self.blocks, taken)
        elif self.views is not None:
            self.views.keep(stays)
        self._gather(ids)

    # ------------------------------------------------------------ one step

    def forward(
        self,
        parameters: Sequence[Tensor],
        graph: Adjacency,
        *,
        number: int | None = None,
        row_keep: Tensor | None = None,
    ) -> Tensor:
        """Run all models forward.

        Parameters
        ----------
        parameters : sequence of Tensor
            Stacked.
        graph : Adjacency
            All blocks.
        number : int, default=None
            Which of the epoch's passes with dropout this is; None has none.
        row_keep : Tensor of shape (n_models, n_nodes), default=None
            Probability that a feature of a node is kept.

        Returns
        -------
        Tensor of shape (n_models * n_nodes, n_classes)
        """
        b, last = self.blocks.n_models, self.n_layers - 1
        h = self.blocks.transform(parameters[0], self._drawn(number, 0, row_keep))
        kept: Tensor | None = None
        for layer in range(self.n_layers):
            if kept is not None:
                h = matmul(kept.view(b, self.n_nodes, -1), parameters[2 * layer])
                h = h.flatten(0, 1)
            h, bias = self._aggregate(h, graph), parameters[2 * layer + 1]
            if layer == last:
                break
            drawn = self._drawn(number, layer + 1)
            if self.residual and kept is not None and kept.shape == h.shape:
                h = self.blocks.activate(h, bias, None) + kept
                # Nothing is negative there: what follows is dropout alone.
                bias = torch.zeros_like(bias)
            kept = h = self.blocks.activate(h, bias, drawn)
        return (h.view(b, self.n_nodes, -1) + bias[:, None]).flatten(0, 1)

    def _drawn(
        self, number: int | None, layer: int, row_keep: Tensor | None = None
    ) -> Drawn | None:
        """Draw the dropout of a layer's input."""
        if number is None or not (self.any_dropout or row_keep is not None):
            return None
        place = (1 + number * self.n_layers + layer) * _STRIDE[1] % 2**63
        seed = self.seeds + (self.epoch.long() * _STRIDE[0] + place)
        keep = self.keep if row_keep is None else row_keep * self.keep
        return Drawn(seed, keep, 1 / self.keep)

    def _aggregate(self, h: Tensor, graph: Adjacency) -> Tensor:
        if self.encoder == "gcn":
            return graph.normalized(h)
        if self.encoder == "sage":
            own, neighbor = h.chunk(2, dim=1)
            return own + graph.mean(neighbor)
        return h

    def losses(self, clean: Tensor | None) -> Tensor:
        """Return each model's training loss."""
        b, graph = self.blocks.n_models, self.blocks.adjacency
        logits = self.forward(self.parameters, graph, number=0)
        nodes = self.train_nodes
        losses = functional.cross_entropy(
            logits.index_select(0, nodes.index), nodes.target, reduction="none"
        )
        losses = nodes.sums(losses * nodes.weight, b)
        if not self.contrast:
            return losses
        if self.target == "training":
            clean = logits.detach()
        view = self.views.next()
        perturbed = self.forward(
            self.parameters,
            graph.perturbed(view.removed_arcs, view.added_edges, view.added_weight),
            number=1,
            row_keep=view.row_keep,
        )
        log_perturbed = log_softmax(perturbed)
        clean = clean.view(b, self.n_nodes, -1) / self.temperature
        log_target = log_softmax(clean.flatten(0, 1))
        contrast = self_consistency_loss(log_perturbed, log_target, self.divergence)
        contrast = contrast.view(b, self.n_nodes)
        if self.operator is not None:
            pairs = pair_loss(log_perturbed, log_target, self.operator, self.divergence)
            contrast = contrast + self.pair_weight * pairs.view(b, self.n_nodes)
        return losses + (self.loss_weights * contrast).mean(1)

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor]) -> None:
        """Adam with L2 regularisation, each model at its own learning rate."""
        steps = (self.epoch - self.min_iter).clamp(min=0)
        rate = torch.maximum(self.rates * self.rate_decay**steps, self.least_rate)
        first, second = _BETAS
        size = (-rate / (1 - first ** (self.epoch + 1))).float()
        root = (1 - second ** (self.epoch + 1)).sqrt().float()
        for p, grad, mean, square in zip(
            self.parameters, grads, *self.moments, strict=True
        ):
            self.blocks.kernels.adam(
                p,
                grad,
                mean,
                square,
                betas=_BETAS,
                eps=_EPS,
                size=size,
                root=root,
                weight_decay=self.weight_decay,
            )

    @torch.no_grad()
    def validate(self, clean: Tensor) -> Tensor:
        """Return cross-entropy and accuracy on each model's validation nodes."""
        b, nodes = self.blocks.n_models, self.val_nodes
        chosen = clean.index_select(0, nodes.index)
        losses = functional.cross_entropy(chosen, nodes.target, reduction="none")
        right = (chosen.argmax(1) == nodes.target).float()
        return torch.stack(
            [nodes.sums(losses * nodes.weight, b), nodes.sums(right, b) / self.val_size]
        )

    # ------------------------------------------------------------ training

    def train(self) -> None:
        """Run until the last model has stopped, and keep the best of each."""
        try:
            self._run()
        finally:
            if isinstance(self.views, _Views):
                self.views.close()
        self._finish()

    def evaluate(self) -> Tensor:
        """Open an epoch: find the best models so far, and those that stop.

        Returns
        -------
        Tensor of shape (5, n_models)
            Cross-entropy and accuracy on the validation nodes, the last training
            loss, whether the model goes on, and the epoch of its best state.
        """
        self.clean = None
        reached = torch.zeros(2, self.blocks.n_models, device=self.device)
        if len(self.val_nodes.index) or (self.contrast and self.target == "evaluation"):
            with torch.no_grad():
                self.clean = self.forward(self.parameters, self.blocks.adjacency)
            reached = self.validate(self.clean)
        return self._judge(*reached)

    @torch.no_grad()
    def _judge(self, val_loss: Tensor, accuracy: Tensor) -> Tensor:
        here = self.alive & self.last_loss.isfinite()
        score = torch.where(self.by_loss, -val_loss, accuracy).double()
        rises = score > self.best_score + self.tol
        better = here & (rises | ~self.has_validation)
        torch.where(better, score, self.best_score, out=self.best_score)
        torch.where(better, self.epoch, self.best_epoch, out=self.best_epoch)
        for best, p in zip(self.best, self.parameters, strict=True):
            self.blocks.kernels.copy_where(better, p, best)
        waited = self.epoch - self.best_epoch
        patient = (self.epoch < self.min_iter) | (waited < self.patience)
        goes_on = (patient | ~self.has_validation) & (self.epoch < self.max_iter)
        self.alive.copy_(here & goes_on)
        rows = [val_loss, accuracy, self.last_loss, self.alive, self.best_epoch]
        return torch.stack([row.float() for row in rows])

    def update(self) -> None:
        """Make the epoch's update. Models that have stopped take part in vain."""
        losses = self.losses(self.clean)
        self.step(torch.autograd.grad(losses.sum(), self.parameters))
        self.last_loss.copy_(losses.detach())
        self.epoch += 1

    def _run(self) -> None:
        history: list[tuple[NDArray[np.intp], NDArray[np.float32]]] = []
        waste, views = 0.0, self.views
        evaluate, update = self._recorded()
        reader = _Reader(self.device)
        n_views = 0
        while True:
            reader.put(self.ids, evaluate())
            history += reader.take()
            running = history[-1][1][3] > 0 if history else np.ones(len(self.all), bool)
            if not running.any():
                break
            if self.interrupted.is_set():
                raise KeyboardInterrupt
            if isinstance(views, _RoundViews) and n_views % _VIEWS_AHEAD == 0:
                views.advance()
            n_views += 1
            update()
            share = running.mean()
            waste += 1 - share
            if share <= 0.8 and waste > _WASTE.get(self.device.type, 0):
                history += reader.take(everything=True)
                running = history[-1][1][3] > 0
                if not running.any():
                    break
                # Recordings keep the tensors that they work on.
                del evaluate, update
                self._leave_out(running)
                waste, n_views, views = 0.0, 0, self.views
                evaluate, update = self._recorded()
        self._write_logs(history)

    def _recorded(self) -> tuple[Callable[[], Tensor], Callable[[], Any]]:
        """Return the two halves of an epoch, as CUDA graphs where that can be."""
        if self.device.type != "cuda" or isinstance(self.views, _Views):
            return self.evaluate, self.update
        state = [*self.parameters, *self.best, *self.moments[0], *self.moments[1]]
        state += [self.epoch, self.last_loss, self.best_score, self.best_epoch]
        state.append(self.alive)
        options: dict[str, Any] = {"generator": self.generator, "warm_up_runs": 1}
        if self.views is not None:
            state.append(self.views.number)
            (draw,) = capture(
                [self.views.draw], restore=lambda: snapshot([]), **options
            )
            self.views.draw = draw
            # What the draw replays into is what the update reads.
            self.views.advance()
        evaluate, update = capture(
            [self.evaluate, self.update], restore=lambda: snapshot(state), **options
        )
        return evaluate, update

    def _write_logs(
        self, history: Sequence[tuple[NDArray[np.intp], NDArray[np.float32]]]
    ) -> None:
        figures = np.zeros((len(history), 5, len(self.all)))
        for epoch, (ids, values) in enumerate(history):
            figures[epoch][:, ids] = values
        has_validation = [m.validation is not None for m in self.all]
        for i, model in enumerate(self.all):
            val_loss, accuracy, loss, alive, best = figures[:, :, i].T
            n_iter, log = int(alive.sum()), model.log
            finite = n_iter == 0 or np.isfinite(loss[n_iter])
            if not finite:
                self._not_finite(model, n_iter, loss[n_iter])
            log.best_iter = int(best[n_iter])
            log.n_iter = n_iter = n_iter if finite else n_iter - 1
            log.loss_curve = loss[1 : n_iter + 1].tolist()
            if has_validation[i]:
                log.validation_losses = val_loss[: n_iter + 1].tolist()
                log.validation_scores = accuracy[: n_iter + 1].tolist()

    @torch.no_grad()
    def _finish(self) -> None:
        """Run the kept models forward, and make the estimators fitted ones."""
        for place, i in enumerate(self.ids):
            self.kept_best[int(i)] = [p[place] for p in self.best]
        n = len(self.all)
        self.moments, self.parameters = [], []
        best = [
            torch.stack([self.kept_best[i][k] for i in range(n)])
            for k in range(len(self.best))
        ]
        self.blocks.use(n)
        logits = self.forward(best, self.blocks.adjacency)
        of_models = logits.view(n, self.n_nodes, -1).cpu().numpy()
        best = [p.cpu() for p in best]
        for i, model in enumerate(self.all):
            network = model.estimator.network_
            names = [name for name, _ in network.named_parameters()]
            values = {k: p[i] for k, p in zip(names, best, strict=True)}
            model.estimator.network_ = _with_parameters(network, values).eval()
            model.estimator._keep(model.log)
            model.logits = of_models[i]

    @staticmethod
    def _not_finite(model: StackedModel, epoch: int, loss: float) -> None:
        advice = "Lower learning_rate, or look for features of very large scale."
        if epoch == 1:
            model.error = TrainingError(f"the first training loss is {loss}. {advice}")
        else:
            warnings.warn(
                f"The loss became {loss} in epoch {epoch}; the best model so far is "
                f"kept. {advice}",
                ConvergenceWarning,
                stacklevel=5,
            )
