"""Training many models of one architecture at once, on one device.

A small graph leaves a GPU idle between kernels, and a process per model makes it worse.
Here B models are one: their parameters are stacked, their graphs are the blocks of one
block-diagonal graph, and everything in which they differ (learning rate, dropout, loss
weights, pairs, perturbed edges ...) is a tensor with an entry a model. No kernel is
launched for one model, and the host waits for the device once an epoch.

Each model is what `fit` would have made of it: the same initial weights, validation
nodes, pairs and perturbations. Models that stop early leave the stack.
"""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state
from torch import Tensor
from torch.nn import functional

from sktifa.classifiers import GNNClassifier, TIFAGCLClassifier, _hold_out, _validation
from sktifa.contrast.loss import pair_loss, self_consistency_loss
from sktifa.contrast.perturbation import GraphPerturber
from sktifa.exceptions import TrainingError
from sktifa.graph import Graph
from sktifa.sparse import Adjacency, Features, csr_product, keep_mask
from sktifa.training import LEARNING_RATE_FLOOR, TrainingLog, split_generator

__all__ = ["StackedModel", "models_at_once", "prepare", "train_stacked", "why_alone"]

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
_SHARED = ("encoder", "hidden_size", "n_layers", "residual", "feature_norm")
# CPU kernels are as fast for a few models as for many, whose activations leave the
# cache; a GPU wants as many as fit.
_MOST_MODELS = {"cpu": 4, "cuda": 256}
_MEMORY_SHARE = 0.6
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
        The contrast's; None for a supervised model.
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
    pairs: sparse.csr_array | None = None
    seed: int = 0
    logits: NDArray[np.float32] | None = None
    error: Exception | None = None
    log: TrainingLog = field(default_factory=TrainingLog)

    @property
    def key(self) -> tuple[Any, ...]:
        """What models that are trained at once must agree in."""
        estimator = self.estimator
        shared = [getattr(estimator, name) for name in _SHARED]
        if self.perturber is not None:
            shared += [estimator.divergence, estimator.target]
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
    if estimator.encoder not in STACKABLE_ENCODERS:
        return f"encoder={estimator.encoder!r}"
    signature = inspect.signature(type(estimator).__init__).parameters
    for name, value in estimator.get_params(deep=False).items():
        if name in _PER_MODEL or name in ("encoder", "device", "verbose"):
            continue
        if value is not signature[name].default and value != signature[name].default:
            return f"{name}={value!r}"
    return None


def prepare(
    estimator: GNNClassifier,
    X: Graph,
    y: Any,
    device: torch.device,
    fit_params: dict[str, Any] | None = None,
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
    fit_params : dict, default=None
        Further arguments of `fit`.

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
    training = codes >= 0
    validation = None
    if given.get("X_val") is not None or given.get("y_val") is not None:
        validation = estimator._given_validation(
            graph, given.get("X_val"), given.get("y_val"), cpu
        )
    elif estimator.early_stopping:
        held_out = _hold_out(codes, estimator, random_state)
        if held_out.any():
            training &= ~held_out
            validation = _validation(
                graph.nodes[held_out], codes[held_out], weight[held_out], cpu
            )
    nodes, codes, weight = graph.nodes[training], codes[training], weight[training]
    with _BUILDING:
        network = estimator._network(graph.n_features, random_state)
    model = StackedModel(
        estimator,
        graph,
        generator,
        torch.from_numpy(nodes),
        torch.from_numpy(codes),
        torch.from_numpy(weight / weight.sum()).float(),
    )
    estimator.network_ = network
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
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # cuSPARSE and MKL count in int32.
    fit = min(_MEMORY_SHARE * free // a_model, (2**31 - 1) // max(stored, arcs, 1))
    return int(max(1, min(fit, _MOST_MODELS.get(device.type, 4))))


def train_stacked(
    models: Sequence[StackedModel],
    device: torch.device,
    on_stop: Callable[[StackedModel], None] | None = None,
) -> None:
    """Train models that agree in their `key`, all at once.

    Sets each estimator's fitted attributes, or the model's `error`. Where memory runs
    out, two halves are trained one after the other.

    Parameters
    ----------
    models : sequence of StackedModel
        From :func:`prepare`.
    device : torch.device
        Where to train.
    on_stop : callable, default=None
        Told each model when it is done.
    """
    try:
        _Stack(models, device).train()
    except torch.OutOfMemoryError as error:
        if len(models) > 1:
            error.__traceback__ = None  # It holds the tensors.
            torch.cuda.empty_cache()
            half = len(models) // 2
            for part in (models[:half], models[half:]):
                train_stacked(part, device, on_stop)
            return
        models[0].error = error
    for model in models:
        if on_stop is not None:
            on_stop(model)


# Probabilities of survival, of each model or of each model's nodes, and what the
# survivors of each model are multiplied by.
_Drop = tuple[Tensor, Tensor]


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
        nodes, arcs = self.n_nodes, self.n_arcs
        self._crow = _tiled_pointer(self.single.crow, n, arcs)
        self._col = _tiled(self.single.col, n, nodes)
        self._row = _tiled(self.single.row, n, nodes)
        self._weight = self.single.weight.repeat(n)
        if self.features.is_sparse:
            pattern, stored = self.features.pattern, self.features.values.shape[0]
            self._f_crow = _tiled_pointer(pattern.crow, n, stored)
            self._f_col = _tiled(pattern.col, n, self.n_features)
            self._t_crow = _tiled_pointer(pattern.transpose_crow, n, stored)
            self._t_col = _tiled(pattern.transpose_col, n, nodes)
            self._values = self.features.values.repeat(n)
        self._n_copies = n
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
        )

    def transform(
        self, weight: Tensor, drop: _Drop | None, generator: torch.Generator
    ) -> Tensor:
        """Multiply the features of each model by its weights, after dropout."""
        if self.features.pattern is not None:
            drawn = None if drop is None else self._drawn(drop, generator)
            return _BlockProduct.apply(weight.flatten(0, 1), self, drawn)
        values = self.features.values[None]
        if drop is not None:
            keep, scale = drop
            shape = (self.n_models, self.n_nodes, self.n_features)
            mask = keep_mask(shape, keep[:, :, None], weight.device, generator)
            values = values * (mask * scale[:, None])
        return torch.matmul(values, weight).flatten(0, 1)

    def _drawn(self, drop: _Drop, generator: torch.Generator) -> _Drop:
        """Draw a mask of the stored values."""
        keep, scale = drop
        if keep.shape[1] > 1:
            keep = keep.index_select(1, self.features.pattern.row)
        shape = (self.n_models, self.features.values.shape[0])
        return keep_mask(shape, keep, scale.device, generator), scale

    def values(self, drawn: _Drop | None) -> Tensor:
        """Return the stored values of all blocks, by node."""
        if drawn is None:
            return self._values[: self._n_stored]
        mask, scale = drawn
        return (mask * scale).mul_(self.features.values).flatten()

    def transposed_values(self, drawn: _Drop | None) -> Tensor:
        """Return the same by feature."""
        pattern = self.features.pattern
        if drawn is None:
            return self._transposed[: self._n_stored]
        mask = drawn[0].index_select(1, pattern.transpose_order)
        return (mask * drawn[1]).mul_(pattern.transposed_values).flatten()

    @cached_property
    def _transposed(self) -> Tensor:
        return self.features.pattern.transposed_values.repeat(self._n_copies)

    @property
    def _n_stored(self) -> int:
        return self.n_models * self.features.values.shape[0]


class _BlockProduct(torch.autograd.Function):
    """Block-diagonal sparse features times stacked weights."""

    @staticmethod
    def forward(ctx, weight, blocks, drawn):  # noqa: ANN001, ANN205
        ctx.args = blocks, blocks.n_models, drawn
        n, size = blocks.n_models * blocks.n_nodes, blocks._n_stored
        return csr_product(
            blocks._f_crow[: n + 1],
            blocks._f_col[:size],
            blocks.values(drawn),
            weight.contiguous(),
            n,
        )

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        blocks, n_models, drawn = ctx.args
        rows, size = n_models * blocks.n_features, blocks._n_stored
        product = csr_product(
            blocks._t_crow[: rows + 1],
            blocks._t_col[:size],
            blocks.transposed_values(drawn),
            grad.contiguous(),
            rows,
        )
        return product, None, None


def _tiled(index: Tensor, copies: int, step: int) -> Tensor:
    shift = torch.arange(copies, dtype=index.dtype, device=index.device) * step
    return (index[None] + shift[:, None]).flatten()


def _tiled_pointer(pointer: Tensor, copies: int, entries: int) -> Tensor:
    last = pointer.new_full((1,), copies * entries)
    return torch.cat([_tiled(pointer[:-1], copies, entries), last])


class _Views:
    """The models' perturbations of each epoch as one, drawn ahead by threads."""

    def __init__(
        self, models: Sequence[StackedModel], n_nodes: int, n_arcs: int
    ) -> None:
        self.models = list(models)
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

    def next(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Return the nodes, the removed arcs and the added edges of all models."""
        drawn = self._drawn or [part.result() for part in self._ahead]
        self._drawn = []
        self._submit()
        parts = [np.concatenate([d[k] for d in drawn], axis=-1) for k in range(3)]
        flat = torch.from_numpy(np.concatenate([p.ravel() for p in parts]))
        if device.type == "cuda":
            flat = flat.pin_memory().to(device, non_blocking=True)
        nodes, arcs, ends = flat.split([p.size for p in parts])
        return nodes, arcs, ends.view(2, -1)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)


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


class _Stack:
    """The models in training. Those that have stopped leave, a few at a time."""

    def __init__(self, models: Sequence[StackedModel], device: torch.device) -> None:
        self.all, self.device = list(models), device
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
        self.views: _Views | None = None
        if self.contrast:
            n_arcs = models[0].graph.adjacency.nnz
            self.views = _Views(models, self.n_nodes, n_arcs)
            self.divergence, self.target = first.divergence, first.target
            self.pairs = [m.pairs for m in models]
        self._gather(np.arange(len(models)))

    # ------------------------------------------------------------ who is in

    def _gather(self, ids: NDArray[np.intp]) -> None:
        """Lay out what the models `ids` differ in, an entry a model."""
        self.ids = ids
        models = [self.all[i] for i in ids]
        self.models = models

        def values(name: str) -> NDArray[np.float64]:
            return np.array([getattr(m.estimator, name) for m in models], dtype=float)

        self.rates = values("learning_rate")
        self.rate_decay, self.min_iter = (
            values("learning_rate_decay"),
            values("min_iter"),
        )
        self.max_iter, self.patience = values("max_iter"), values("n_iter_no_change")
        self.has_validation = np.array([m.validation is not None for m in models])
        self.by_loss = np.array([m.estimator.monitor == "loss" for m in models])
        self.tol = values("tol")
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
            self.mask_keep = 1 - self._column(values("feature_mask_rate"))[:, 0]
            weights = np.stack([m.loss_weights for m in models])
            self.loss_weights = torch.from_numpy(weights).float().to(self.device)
            self.operator = self._pair_operator([m.pairs for m in models])

    def _column(self, values: Any) -> Tensor:
        column = torch.as_tensor(np.asarray(values)[:, None]).float()
        return column.to(self.device, non_blocking=True)

    def _pair_operator(self, parts: Sequence[sparse.csr_array | None]) -> Tensor | None:
        if all(part is None for part in parts):
            return None
        n = self.n_nodes
        empty = sparse.csr_array((n, n), dtype=np.float32)
        blocks = [empty if part is None else part for part in parts]
        ends = np.concatenate([[0], np.cumsum([p.nnz for p in blocks])])
        starts = [p.indptr[:-1] + end for p, end in zip(blocks, ends[:-1], strict=True)]
        columns = [p.indices.astype(np.int32) + i * n for i, p in enumerate(blocks)]
        arrays = (
            np.concatenate([*starts, ends[-1:]]).astype(np.int32),
            np.concatenate(columns),
            np.concatenate([p.data for p in blocks]),
        )
        crow, col, values = (torch.from_numpy(a).to(self.device) for a in arrays)
        size = len(blocks) * n
        return torch.sparse_csr_tensor(
            crow, col, values, (size, size), check_invariants=False
        )

    def _leave_out(self, running: NDArray[np.bool_]) -> None:
        """Go on with the running models alone."""
        stays = np.flatnonzero(running)
        for place in np.flatnonzero(~running):
            self.kept_best[int(self.ids[place])] = [p[place].clone() for p in self.best]
        chosen = torch.from_numpy(stays).to(self.device)
        with torch.no_grad():
            self.parameters = [
                p.detach().index_select(0, chosen).requires_grad_()
                for p in self.parameters
            ]
            self.best = [p.index_select(0, chosen) for p in self.best]
            self.moments = [
                [p.index_select(0, chosen) for p in kind] for kind in self.moments
            ]
        self.blocks.use(len(stays))
        if self.views is not None:
            self.views.keep(stays)
        self._gather(self.ids[stays])

    # ------------------------------------------------------------ one step

    def forward(
        self,
        parameters: Sequence[Tensor],
        graph: Adjacency,
        *,
        drop: bool,
        row_keep: Tensor | None = None,
    ) -> Tensor:
        """Return logits of shape (n_models * n_nodes, n_classes)."""
        dropped = (self.keep, 1 / self.keep) if drop and self.any_dropout else None
        first = dropped
        if row_keep is not None:
            first = row_keep, torch.ones_like(self.keep)
            if dropped is not None:
                first = row_keep * dropped[0], dropped[1]
        h = self._convolve(
            0,
            self.blocks.transform(parameters[0], first, self.generator),
            parameters,
            graph,
        )
        for layer in range(1, self.n_layers):
            if dropped is not None:
                keep, scale = (column[:, :, None] for column in dropped)
                mask = keep_mask(tuple(h.shape), keep, self.device, self.generator)
                h = h * (mask * scale)
            out = torch.bmm(h, parameters[2 * layer]).flatten(0, 1)
            out = self._convolve(layer, out, parameters, graph)
            adds = self.residual and layer < self.n_layers - 1
            h = out + h if adds and h.shape == out.shape else out
        return h.flatten(0, 1)

    def _convolve(
        self, layer: int, h: Tensor, parameters: Sequence[Tensor], graph: Adjacency
    ) -> Tensor:
        """Aggregate, add the bias and activate: all of a layer but its weights."""
        bias = parameters[2 * layer + 1]
        out = self._aggregate(h, graph).view(len(bias), self.n_nodes, -1)
        out = out + bias[:, None]
        return out if layer == self.n_layers - 1 else torch.relu(out)

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
        logits = self.forward(self.parameters, graph, drop=True)
        nodes = self.train_nodes
        losses = functional.cross_entropy(
            logits.index_select(0, nodes.index), nodes.target, reduction="none"
        )
        losses = nodes.sums(losses * nodes.weight, b)
        if not self.contrast:
            return losses
        if self.target == "training":
            clean = logits.detach()
        perturbed_nodes, arcs, edges = self.views.next(self.device)
        of_model = torch.div(perturbed_nodes, self.n_nodes, rounding_mode="floor")
        row_keep = torch.ones(b * self.n_nodes, device=self.device)
        row_keep[perturbed_nodes] = self.mask_keep.index_select(0, of_model)
        perturbed = self.forward(
            self.parameters,
            graph.perturbed(arcs, edges),
            drop=True,
            row_keep=row_keep.view(b, self.n_nodes),
        )
        log_perturbed = functional.log_softmax(perturbed, dim=1)
        clean = clean.view(b, self.n_nodes, -1) / self.temperature
        log_target = functional.log_softmax(clean.flatten(0, 1), dim=1)
        contrast = self_consistency_loss(log_perturbed, log_target, self.divergence)
        contrast = contrast.view(b, self.n_nodes)
        if self.operator is not None:
            pairs = pair_loss(log_perturbed, log_target, self.operator, self.divergence)
            contrast = contrast + self.pair_weight * pairs.view(b, self.n_nodes)
        return losses + (self.loss_weights * contrast).mean(1)

    @torch.no_grad()
    def step(self, epoch: int) -> None:
        """Adam with L2 regularisation, each model at its own learning rate."""
        steps = np.maximum(epoch - self.min_iter, 0)
        rate = np.maximum(
            self.rates * self.rate_decay**steps,
            np.minimum(self.rates, LEARNING_RATE_FLOOR),
        )
        first, second = _BETAS
        size = self._column(-rate / (1 - first ** (epoch + 1)))
        root = (1 - second ** (epoch + 1)) ** 0.5
        for p, mean, square in zip(self.parameters, *self.moments, strict=True):
            shape = (-1,) + (1,) * (p.ndim - 1)
            grad = torch.addcmul(p.grad, p, self.weight_decay.view(shape))
            mean.lerp_(grad, 1 - first)
            square.mul_(second).addcmul_(grad, grad, value=1 - second)
            denominator = square.sqrt().div_(root).add_(_EPS)
            p.add_((mean / denominator).mul_(size.view(shape)))
            p.grad = None

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
            if self.views is not None:
                self.views.close()
        self._finish()

    def _run(self) -> None:
        n = len(self.all)
        best_score, best_epoch = np.full(n, -np.inf), np.zeros(n, dtype=int)
        alive = np.ones(n, dtype=bool)
        needs_clean = bool(len(self.val_nodes.index)) or (
            self.contrast and self.target == "evaluation"
        )
        losses: Tensor | None = None
        epoch = 0
        while True:
            clean = None
            figures = torch.zeros(3, self.blocks.n_models, device=self.device)
            if needs_clean:
                with torch.no_grad():
                    clean = self.forward(
                        self.parameters, self.blocks.adjacency, drop=False
                    )
                figures[:2] = self.validate(clean)
            if losses is not None:
                figures[2] = losses.detach()
            # The only wait of the epoch.
            val_loss, accuracy, loss = figures.double().cpu().numpy()
            ids = self.ids
            here = alive[ids]
            if epoch:
                finite = np.isfinite(loss)
                for place in np.flatnonzero(here & ~finite):
                    self._not_finite(self.all[ids[place]], epoch, loss[place])
                for place in np.flatnonzero(here & finite):
                    log = self.all[ids[place]].log
                    log.loss_curve.append(float(loss[place]))
                    log.n_iter = epoch
                here &= finite
            score = np.where(self.by_loss, -val_loss, accuracy)
            better = here & (
                ~self.has_validation | (score > best_score[ids] + self.tol)
            )
            for place in np.flatnonzero(here & self.has_validation):
                log = self.all[ids[place]].log
                log.validation_losses.append(float(val_loss[place]))
                log.validation_scores.append(float(accuracy[place]))
            best_score[ids[better]] = score[better]
            best_epoch[ids[better]] = epoch
            self._take(better)
            waited = epoch - best_epoch[ids]
            patient = (epoch < self.min_iter) | (waited < self.patience)
            here &= (patient | ~self.has_validation) & (epoch < self.max_iter)
            alive[ids] = here
            if not here.any():
                break
            # Clean is of all models: those to leave out take it along.
            if here.mean() <= 0.8:
                if clean is not None:
                    chosen = torch.from_numpy(np.flatnonzero(here)).to(self.device)
                    clean = clean.view(len(here), self.n_nodes, -1)
                    clean = clean.index_select(0, chosen).flatten(0, 1)
                self._leave_out(here)
            losses = self.losses(clean)
            losses.sum().backward()
            self.step(epoch)
            epoch += 1
        for model, taken in zip(self.all, best_epoch, strict=True):
            model.log.best_iter = int(taken)

    @torch.no_grad()
    def _take(self, better: NDArray[np.bool_]) -> None:
        """Keep the present parameters of some models."""
        if not better.any():
            return
        chosen = torch.from_numpy(better).to(self.device, non_blocking=True)
        for best, p in zip(self.best, self.parameters, strict=True):
            shape = (-1,) + (1,) * (p.ndim - 1)
            torch.where(chosen.view(shape), p, best, out=best)

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
        logits = self.forward(best, self.blocks.adjacency, drop=False)
        of_models = logits.view(n, self.n_nodes, -1).cpu().numpy()
        best = [p.cpu() for p in best]
        for i, model in enumerate(self.all):
            network = model.estimator.network_
            for parameter, value in zip(network.parameters(), best, strict=True):
                parameter.copy_(value[i])
            network.eval()
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
