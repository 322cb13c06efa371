"""The training engine: batches, objectives, early stopping, and what can go wrong.

One loop serves the full batch and sampled subgraphs: a *source* evaluates the whole
graph once an epoch and hands out the epoch's batches. The evaluation serves twice, as
validation and as the contrast's target, so a TIFA epoch needs three forward passes.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.nn import functional

from sktifa import distributed
from sktifa.contrast.loss import Divergence, contrastive_loss
from sktifa.contrast.perturbation import GraphPerturber
from sktifa.exceptions import NotEnoughMemoryError, TrainingError
from sktifa.tensors.narrow import log_softmax
from sktifa.tensors.sparse import Adjacency, Features
from sktifa.training.capture import capture, side_stream, snapshot
from sktifa.training.encoders import Encoder

__all__ = [
    "Batch",
    "BatchSource",
    "Contrast",
    "ContrastiveObjective",
    "FullBatch",
    "PerturbedViews",
    "SupervisedObjective",
    "TrainingLog",
    "Validation",
    "View",
    "train",
]

LEARNING_RATE_FLOOR = 1e-4
# DistributedDataParallel lays out its buckets and times itself in the first ten steps.
PARALLEL_WARM_UP_RUNS = 11
# Threads that draw perturbed views ahead of a GPU, which is faster than one of them.
DRAWING_THREADS = 8


@dataclass
class View:
    """A perturbed view of a batch (Algorithm 2), on its device.

    Attributes
    ----------
    removed_arcs, added_edges, added_weight : Tensor
        As :meth:`~sktifa.tensors.sparse.Adjacency.perturbed` takes them.
    row_keep : Tensor of float32, shape (n_nodes,)
        Probability that a feature of each node is kept.
    """

    removed_arcs: Tensor
    added_edges: Tensor
    added_weight: Tensor
    row_keep: Tensor


@dataclass
class Contrast:
    """What the contrastive term knows of a batch's nodes.

    Attributes
    ----------
    weights : Tensor of float32, shape (n_nodes,)
        Loss weight of each node (Eq. 9).
    view : View
        The perturbed view to train on.
    pairs : Tensor, sparse CSR of shape (n_nodes, n_nodes), or None
        The pair operator; None where there is no pair loss.
    """

    weights: Tensor
    view: View
    pairs: Tensor | None = None


class PerturbedViews:
    """Perturbed views of one graph, drawn by threads while the model trains.

    Perturbations do not depend on the model, and their kernel holds no lock. Each view
    has a seed of its own, so the views are the same however many threads draw them.
    All are written to the same tensors, filled up to the largest size a view can have.

    Parameters
    ----------
    perturber : GraphPerturber
        Draws the perturbations.
    rng : numpy Generator
        Seeds them.
    graph : Adjacency
        The graph on the training device.
    feature_mask_rate : float
        Share of a perturbed node's features that is masked (paper: m).
    """

    def __init__(
        self,
        perturber: GraphPerturber,
        rng: np.random.Generator,
        graph: Adjacency,
        feature_mask_rate: float,
    ) -> None:
        self._perturber, self._mask_rate = perturber, feature_mask_rate
        self._n_arcs = graph.col.shape[0] - graph.n_nodes
        self._edge_weight = float(graph.mean_weight)
        self._seed = int(rng.integers(2**63))
        self._n_asked = 0
        sizes = (
            min(2 * perturber.most_removed, self._n_arcs),
            perturber.most_added,
            graph.n_nodes,
        )
        # Training on the CPU leaves no cores to spare.
        on_gpu = graph.device.type == "cuda"
        n_workers = min(os.cpu_count() or 1, DRAWING_THREADS) if on_gpu else 1
        self._packed, self.view = _packed_view(*sizes, graph.device)
        self._workers = ThreadPoolExecutor(n_workers)
        self._ahead = deque(
            self._ask(_packed_view(*sizes, torch.device("cpu"), pin=on_gpu))
            for _ in range(n_workers + 1)
        )

    def advance(self) -> None:
        """Replace the view by the next one."""
        packed, host, read = self._ahead.popleft().result()
        self._packed.copy_(packed, non_blocking=True)
        if read is not None:
            read.record()
        self._ahead.append(self._ask((packed, host), read))

    def close(self) -> None:
        """End the threads."""
        self._workers.shutdown(cancel_futures=True)

    def _ask(
        self, buffer: tuple[Tensor, View], read: torch.cuda.Event | None = None
    ) -> Future:
        number = self._n_asked
        self._n_asked += 1
        return self._workers.submit(self._draw, number, *buffer, read)

    def _draw(
        self, number: int, packed: Tensor, host: View, read: torch.cuda.Event | None
    ) -> tuple[Tensor, View, torch.cuda.Event | None]:
        drawn = self._perturber.draw(np.random.default_rng([self._seed, number]))
        if packed.is_pinned():
            # The last copy out of this buffer has to be over.
            read = read or torch.cuda.Event()
            read.synchronize()
        removed, added, weight, keep = (t.numpy() for t in vars(host).values())
        n_removed, n_added = len(drawn.removed_arcs), drawn.added_edges.shape[1]
        removed[:n_removed], removed[n_removed:] = drawn.removed_arcs, self._n_arcs
        added[:, :n_added], added[:, n_added:] = drawn.added_edges, 0
        weight[:n_added], weight[n_added:] = self._edge_weight, 0
        keep[:] = 1
        keep[drawn.nodes] = 1 - self._mask_rate
        return packed, host, read


def _packed_view(
    n_removed: int, n_added: int, n_nodes: int, device: torch.device, pin: bool = False
) -> tuple[Tensor, View]:
    """Allocate a view as one piece of memory: it travels in one copy."""
    n_long, n_float = n_removed + 2 * n_added, n_added + n_nodes
    size = 8 * n_long + 4 * n_float
    packed = torch.zeros(size, dtype=torch.uint8, device=device, pin_memory=pin)
    longs = packed[: 8 * n_long].view(torch.int64)
    floats = packed[8 * n_long :].view(torch.float32)
    return packed, View(
        longs[:n_removed],
        longs[n_removed:].view(2, n_added),
        floats[:n_added],
        floats[n_added:],
    )


@dataclass
class Batch:
    """The nodes that one training step sees.

    Attributes
    ----------
    features : Features
        Node features.
    graph : Adjacency
        The edges between the batch's nodes.
    index : Tensor of int64, shape (n_labeled,)
        The batch's labelled training nodes.
    target : Tensor of int64, shape (n_labeled,)
        Their classes.
    weight : Tensor of float32, shape (n_labeled,)
        Their share of the cross-entropy; sums to one.
    contrast : Contrast or None
        What the contrastive objective needs.
    """

    features: Features
    graph: Adjacency
    index: Tensor
    target: Tensor
    weight: Tensor
    contrast: Contrast | None = None


@dataclass
class Validation:
    """Nodes that decide when training stops.

    Attributes
    ----------
    index, target : Tensor of int64, shape (n_validation,)
        The nodes and their classes.
    weight : Tensor of float32, shape (n_validation,)
        Their share of the cross-entropy; sums to one.
    batch : Batch or None
        The graph they belong to, where it is not the one trained on.
    logits : callable or None
        Evaluates an encoder on that graph, where it is too large for one batch.
    """

    index: Tensor
    target: Tensor
    weight: Tensor
    batch: Batch | None = None
    logits: Callable[[nn.Module], Tensor] | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether the nodes belong to another graph than the one trained on."""
        return self.batch is not None or self.logits is not None


class FixedBatch(Protocol):
    """Tensors of one size that batches are copied to, for a step that is recorded."""

    def fill(self, batch: Batch) -> bool:
        """Take a batch in, unless it is too large."""

    def batch(self) -> Batch:
        """Return the batch that the tensors hold."""


class BatchSource(Protocol):
    """Where the batches of an epoch come from."""

    def evaluate(self, encoder: nn.Module) -> Tensor | None:
        """Return every node's logits in evaluation mode."""

    def epoch(
        self, encoder: nn.Module, clean: Tensor | None
    ) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield the epoch's batches, each with its nodes' logits where known."""

    def padded(self) -> FixedBatch | None:
        """Make room for the batches' tensors, if they are alike but for their size."""

    def close(self) -> None:
        """End what draws ahead."""


class FullBatch:
    """The one batch that is the whole graph, perturbed anew each epoch."""

    def __init__(self, batch: Batch, views: PerturbedViews | None = None) -> None:
        self.batch, self.views = batch, views

    def evaluate(self, encoder: nn.Module) -> Tensor:
        """Return every node's logits in evaluation mode."""
        return evaluate(encoder, self.batch)

    def epoch(
        self, encoder: nn.Module, clean: Tensor | None
    ) -> Iterator[tuple[Batch, Tensor | None]]:
        """Yield the whole graph, once."""
        if self.views is not None:
            self.views.advance()
        yield self.batch, clean

    def padded(self) -> None:
        """Return None: the batch's size is always the same."""

    def close(self) -> None:
        """End what draws ahead."""
        if self.views is not None:
            self.views.close()


def evaluate(encoder: nn.Module, batch: Batch) -> Tensor:
    """Run a batch forward in evaluation mode, without a gradient."""
    encoder.eval()
    with torch.no_grad():
        return encoder(batch.features, batch.graph)


class SupervisedObjective:
    """Cross-entropy over the labelled nodes (Eq. 7)."""

    def __call__(
        self,
        encoder: nn.Module,
        batch: Batch,
        clean: Tensor | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Return the loss of one step."""
        return _cross_entropy(encoder(batch.features, batch.graph, generator), batch)


@dataclass
class ContrastiveObjective:
    """Cross-entropy plus TIFA's weighted contrast (Eq. 8-10, 13).

    Attributes
    ----------
    pair_weight : float
        Weight of the pair loss against self-consistency (paper: mu_2).
    divergence : str
        Direction of the Kullback-Leibler divergence.
    temperature : float
        Divides the target's logits; below 1 it sharpens them.
    target : {"evaluation", "training"}
        Which forward pass gives the target.
    """

    pair_weight: float
    divergence: Divergence
    temperature: float
    target: Literal["evaluation", "training"]

    def __call__(
        self,
        encoder: nn.Module,
        batch: Batch,
        clean: Tensor | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Return the loss of one step."""
        contrast = batch.contrast
        view = contrast.view
        logits = encoder(batch.features, batch.graph, generator)
        if self.target == "training":
            clean = logits.detach()
        elif clean is None:
            clean = evaluate(encoder, batch)
            encoder.train()
        perturbed = encoder(
            batch.features.masked(view.row_keep),
            batch.graph.perturbed(
                view.removed_arcs, view.added_edges, view.added_weight
            ),
            generator,
        )
        return _cross_entropy(logits, batch) + contrastive_loss(
            log_softmax(perturbed),
            log_softmax(clean / self.temperature),
            contrast.weights,
            operator=contrast.pairs,
            pair_weight=self.pair_weight,
            divergence=self.divergence,
        )


def _cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    chosen = logits.index_select(0, batch.index)
    losses = functional.cross_entropy(chosen, batch.target, reduction="none")
    return losses @ batch.weight


@dataclass
class TrainingLog:
    """What a training run leaves behind.

    Attributes
    ----------
    loss_curve : list of float
        Mean training loss of each epoch.
    validation_losses, validation_scores : list of float
        Cross-entropy and accuracy on the validation nodes before each epoch's
        updates, and after the last.
    n_iter : int
        Epochs run.
    best_iter : int
        Epochs after which the model that is kept was found.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    loss_curve: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    validation_scores: list[float] = field(default_factory=list)
    n_iter: int = 0
    best_iter: int = 0
    interrupted: bool = False


def train(
    encoder: nn.Module,
    source: BatchSource,
    objective: SupervisedObjective | ContrastiveObjective,
    validation: Validation | None,
    *,
    learning_rate: float,
    weight_decay: float,
    learning_rate_decay: float,
    max_iter: int,
    min_iter: int,
    n_iter_no_change: int,
    tol: float,
    monitor: Literal["loss", "accuracy"],
    generator: torch.Generator,
    on_epoch: Callable[[TrainingLog], bool],
) -> TrainingLog:
    """Train until validation stops improving, and leave the best model in `encoder`.

    Adam with L2 regularisation; from epoch `min_iter` on the learning rate is
    multiplied by `learning_rate_decay` an epoch, down to a floor of 1e-4.

    `on_epoch` is called after every epoch and stops the training by returning True.
    Ctrl-C, a non-finite loss and a device that runs out of memory end the training
    with a warning, and the best model so far is kept.

    Of several processes (see :mod:`sktifa.distributed`) each trains on batches of its
    own; the gradients are averaged, and the first one's validation decides.

    Raises
    ------
    TrainingError
        If the very first loss is not finite: there is no model to keep.
    NotEnoughMemoryError
        If the first epoch does not fit in memory.
    """
    optimizer = make_optimizer(encoder, learning_rate, weight_decay)
    steps = _Steps(encoder, source, objective, validation, optimizer, generator)
    log = TrainingLog()
    best = _Best(encoder, monitor, tol)
    try:
        steps.capture_if_possible()
        for epoch in range(max_iter + 1):
            validated = steps.evaluate()
            if validated is not None:
                loss, accuracy = distributed.agree(validated.tolist())
                best.consider(loss, accuracy, log)
                if epoch >= min_iter and epoch - best.epoch >= n_iter_no_change:
                    break
            else:
                best.take(epoch)
            if epoch == max_iter:
                break
            if learning_rate_decay != 1:
                decayed = learning_rate * learning_rate_decay ** max(
                    epoch - min_iter, 0
                )
                _set_rate(
                    optimizer, max(decayed, min(learning_rate, LEARNING_RATE_FLOOR))
                )
            loss = distributed.mean(steps.update()).item()
            if not np.isfinite(loss):
                _raise_or_warn_non_finite(log, best, loss)
                break
            log.loss_curve.append(loss)
            log.n_iter = epoch + 1
            if distributed.agree(on_epoch(log)):
                break
    except KeyboardInterrupt:
        log.interrupted = True
        warnings.warn(
            f"Training interrupted after {log.n_iter} epochs; the model of epoch "
            f"{best.epoch} is kept.",
            stacklevel=2,
        )
    except (torch.OutOfMemoryError, MemoryError) as error:
        if log.n_iter == 0:
            raise NotEnoughMemoryError(_memory_advice(source, encoder)) from error
        warnings.warn(
            f"Out of memory after {log.n_iter} epochs; the model of epoch "
            f"{best.epoch} is kept. " + _memory_advice(source, encoder),
            ConvergenceWarning,
            stacklevel=2,
        )
    finally:
        steps.close()
    best.restore()
    encoder.eval()
    distributed.share(encoder)
    log.best_iter = best.epoch
    return log


def make_optimizer(
    encoder: nn.Module, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Make Adam, fit to be recorded on a GPU."""
    device = next(encoder.parameters()).device
    on_gpu = device.type == "cuda"
    # A rate that is a tensor can change inside a recorded CUDA graph.
    rate = torch.tensor(learning_rate, device=device) if on_gpu else learning_rate
    return torch.optim.Adam(
        encoder.parameters(),
        lr=rate,
        weight_decay=weight_decay,
        fused=device.type in ("cpu", "cuda"),
        capturable=on_gpu,
    )


class _Step(nn.Module):
    """A step's loss as one forward pass, which is what processes can share."""

    def __init__(
        self, encoder: nn.Module, objective: SupervisedObjective | ContrastiveObjective
    ) -> None:
        super().__init__()
        self.encoder, self.objective = encoder, objective

    def forward(
        self, batch: Batch, clean: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        return self.objective(self.encoder, batch, clean, generator)


class _Steps:
    """The evaluation that opens an epoch, and the updates that follow."""

    def __init__(
        self,
        encoder: nn.Module,
        source: BatchSource,
        objective: SupervisedObjective | ContrastiveObjective,
        validation: Validation | None,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> None:
        self.encoder, self.source = encoder, source
        self.validation, self.optimizer = validation, optimizer
        self.generator = generator
        with side_stream(generator.device) if self.are_capturable else nullcontext():
            self._loss = distributed.parallel(
                _Step(encoder, objective),
                isinstance(encoder, Encoder) and encoder.has_fixed_shapes,
            )
        self._clean: Tensor | None = None
        self._evaluate, self._step = self._run_evaluation, self._run_step

    @property
    def are_capturable(self) -> bool:
        """Whether every epoch launches the same kernels on the same tensors.

        Message passing by edge index looks at sizes that differ from view to view.
        """
        return (
            next(self.encoder.parameters()).device.type == "cuda"
            and isinstance(self.encoder, Encoder)
            and self.encoder.has_fixed_shapes
            and self._is_always_alike
        )

    @property
    def _is_always_alike(self) -> bool:
        if isinstance(self.source, FullBatch):
            return self.validation is None or self.validation.logits is None
        # Batch normalisation would count the nodes that subgraphs are filled up with.
        return not any(isinstance(m, nn.BatchNorm1d) for m in self.encoder.modules())

    def evaluate(self) -> Tensor | None:
        """Evaluate all nodes; return validation cross-entropy and accuracy."""
        return self._evaluate()

    def update(self) -> Tensor:
        """Make the epoch's updates, and return their mean loss."""
        losses = [
            self._step(batch, clean)
            for batch, clean in self.source.epoch(self.encoder, self._clean)
        ]
        return losses[0] if len(losses) == 1 else torch.stack(losses).mean()

    def close(self) -> None:
        """Let go of what is recorded: NCCL waits for it when processes part."""
        self._evaluate, self._step = self._run_evaluation, self._run_step

    def capture_if_possible(self) -> None:
        """Record what never changes."""
        if self.are_capturable:
            if isinstance(self.source, FullBatch):
                self.capture(self.source.batch)
            elif (padded := self.source.padded()) is not None:
                self.capture_steps(padded)

    def capture(self, batch: Batch) -> None:
        """Record both halves as CUDA graphs: with a full batch they never change."""
        self._evaluate, step = self._recorded(
            [self._run_evaluation, lambda: self._run_step(batch, self._clean)]
        )
        self._step = lambda batch, clean: step()

    def capture_steps(self, padded: FixedBatch) -> None:
        """Record a step on subgraphs, which are filled up to one size."""
        (replay,) = self._recorded([lambda: self._run_step(padded.batch(), None)])

        def step(batch: Batch, clean: Tensor | None) -> Tensor:
            if padded.fill(batch):
                return replay().clone()
            return self._run_step(batch, clean)

        self._step = step

    def _recorded(self, calls: list[Callable[[], Any]]) -> list[Callable[[], Any]]:
        state = list(self.encoder.state_dict().values())

        def restore() -> Callable[[], None]:
            put_back = snapshot(state)

            def undo() -> None:
                put_back()
                for moments in self.optimizer.state.values():
                    for moment in moments.values():
                        moment.zero_()

            return undo

        options: dict[str, Any] = {"generator": self.generator, "restore": restore}
        if distributed.n_ranks() > 1:
            options["warm_up_runs"] = PARALLEL_WARM_UP_RUNS
        return capture(calls, **options)

    def _run_evaluation(self) -> Tensor | None:
        self._clean = self.source.evaluate(self.encoder)
        validation = self.validation
        if validation is None:
            return None
        if validation.logits is not None:
            logits = validation.logits(self.encoder)
        elif validation.batch is not None:
            logits = evaluate(self.encoder, validation.batch)
        else:
            logits = cast(Tensor, self._clean)
        logits = logits.index_select(0, validation.index)
        losses = functional.cross_entropy(logits, validation.target, reduction="none")
        accuracy = (logits.argmax(1) == validation.target).float().mean()
        return torch.stack([losses @ validation.weight, accuracy])

    def _run_step(self, batch: Batch, clean: Tensor | None) -> Tensor:
        self.encoder.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(batch, clean, self.generator)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class _Best:
    """The best model so far."""

    def __init__(self, encoder: nn.Module, monitor: str, tol: float) -> None:
        self.monitor, self.tol = monitor, tol
        self.epoch = 0
        self.score = -np.inf
        self._live = list(encoder.state_dict().values())
        self._kept = [tensor.clone() for tensor in self._live]

    def consider(self, loss: float, accuracy: float, log: TrainingLog) -> None:
        log.validation_losses.append(loss)
        log.validation_scores.append(accuracy)
        score = -loss if self.monitor == "loss" else accuracy
        if score > self.score + self.tol:
            self.score = score
            self.take(log.n_iter)

    def take(self, epoch: int) -> None:
        self.epoch = epoch
        torch._foreach_copy_(self._kept, self._live)

    def restore(self) -> None:
        torch._foreach_copy_(self._live, self._kept)


def _raise_or_warn_non_finite(log: TrainingLog, best: _Best, loss: float) -> None:
    advice = (
        "Lower learning_rate, or look for features of very large scale "
        "(a StandardScaler or MaxAbsScaler before the classifier helps)."
    )
    if log.n_iter == 0:
        raise TrainingError(f"the first training loss is {loss}. {advice}")
    warnings.warn(
        f"The loss became {loss} in epoch {log.n_iter + 1}; the model of epoch "
        f"{best.epoch} is kept. {advice}",
        ConvergenceWarning,
        stacklevel=3,
    )


def _memory_advice(source: BatchSource, encoder: nn.Module) -> str:
    n_parameters = sum(p.numel() for p in encoder.parameters())
    size = ""
    if isinstance(source, FullBatch):
        graph, features = source.batch.graph, source.batch.features
        size = (
            f"{features.shape[0]:,} nodes × {features.shape[1]:,} features, "
            f"{graph.col.shape[0] - graph.n_nodes:,} arcs, "
        )
    return (
        f"The training step ({size}{n_parameters:,} parameters) does not fit. Use a "
        'smaller hidden_size, device="cpu", or a sampler.'
    )


def split_generator(
    random_state: np.random.RandomState, device: torch.device
) -> tuple[torch.Generator, np.random.Generator]:
    """Seed a torch and a NumPy generator from scikit-learn's random state."""
    seeds = random_state.randint(np.iinfo(np.int32).max, size=2)
    generator = torch.Generator(device=device)
    generator.manual_seed(int(seeds[0]))
    return generator, np.random.default_rng(int(seeds[1]))
