"""The training engine: one loop for one model and for many, whatever the batches are.

Every tensor of training has a leading model dimension B; `fit` is B = 1, a search is
B = many. An epoch is: evaluate, judge, and for each batch add up the terms,
differentiate, average the gradients where processes share, and take Adam's step. Who
stops is decided on the device. On CUDA an epoch is recorded as CUDA graphs, and the
host hears of it while the next one runs. Models that have stopped leave the stack.

The evaluation serves twice, as validation and as the contrast's target, so that an
epoch of TIFA-GCL takes three forward passes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from sktifa import distributed
from sktifa.callers import warn_user
from sktifa.device import free_memory, on_device, undisturbed
from sktifa.exceptions import NotEnoughMemoryError, TrainingError
from sktifa.graph import Graph
from sktifa.tensors.capture import capture, snapshot
from sktifa.tensors.kernels import cpu, kernels_for, memory
from sktifa.training.batch import Batch, LabeledNodes
from sktifa.training.encoders import (
    Draw,
    Dropout,
    EncoderSpec,
    build_encoder,
    stack_encoders,
)
from sktifa.training.problem import Problem, Trained, TrainingLog
from sktifa.training.sources import Source, WholeGraph
from sktifa.training.stacking import pick, stack
from sktifa.training.terms import Step

__all__ = ["Run", "as_pytorch_starts", "computing", "models_at_once", "train"]

LEARNING_RATE_FLOOR = 1e-4
# Adam's constants, PyTorch's own.
_BETAS, _EPS = (0.9, 0.999), 1e-8
# How far the seeds of two steps, and of two passes, are apart: odd numbers.
_STRIDES = 0x9E3779B97F4A7C1, 0x2545F4914F6CDD1
# On the CPU each thread trains some models at a time, which share what an epoch costs
# however many they are: more of them where a hidden layer of all has few floats.
_FEWEST_A_THREAD, _MOST_A_THREAD = 4, 16
_FLOATS_A_THREAD = 1 << 22
_MOST_MODELS = 256
_MEMORY_SHARE = 0.6
# Seconds for models that have stopped before the others go on without them: on CUDA
# these have to be recorded anew, which takes as long.
_WASTE = {"cuda": 0.03}

# What may be watched on the validation nodes: cross-entropy at the best of these
# temperatures, as it is, and accuracy.
_MONITORS = ("calibrated_loss", "loss", "accuracy")
_TEMPERATURES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0, 16.0)
_AS_IT_IS = _TEMPERATURES.index(1.0)

OnEpoch = Callable[[TrainingLog, nn.Module], bool]
# Some models' numbers, and a column of figures of each.
Figures = tuple[NDArray[np.intp], NDArray[np.float32]]
# A network's tensors by name.
State = dict[str, Tensor]


def train(
    problems: Sequence[Problem],
    device: torch.device,
    *,
    on_epoch: OnEpoch | None = None,
    keeps_on_interrupt: bool = False,
    with_logits: bool = False,
) -> list[Trained]:
    """Train problems that agree in their `key`, all at once.

    Adam with L2 regularisation; after `min_iter` updates the learning rate is
    multiplied by `learning_rate_decay` an epoch, down to a floor of 1e-4. Training ends
    when validation stops improving, and the best model is kept.

    A problem's teachers are trained before it, with those of the others.

    Where a GPU's memory runs out, two halves are trained one after the other. On the
    CPU threads train a few models each, and the one model of a fit is spread over them.

    For one problem, `on_epoch` is called after every epoch with the log and the
    encoder, and for its teachers, too; it stops the training of that network by
    returning True. If it `keeps_on_interrupt`, Ctrl-C ends the training with a warning,
    and the best model so far is kept: of the teachers the first. `with_logits` returns
    every node's class scores.

    Returned in the order of the problems. A problem whose very first loss is not
    finite, or whose first epoch does not fit in memory, has an error and no model.
    """
    options: dict[str, Any] = {"with_logits": with_logits}
    with computing(device) as n_threads, memory.reused():
        is_taught, is_one = problems[0].teachers is not None, len(problems) == 1
        if is_taught or is_one:
            options |= {"on_epoch": on_epoch, "keeps_on_interrupt": keeps_on_interrupt}
        if is_taught:
            return _train_taught(problems, device, options)
        if device.type == "cpu" and not is_one:
            return _train_in_threads(problems, device, n_threads, options)
        return _train_in_halves(problems, device, options)


def _train_taught(
    problems: Sequence[Problem], device: torch.device, options: dict[str, Any]
) -> list[Trained]:
    """Train the teachers, as many at once as there are problems, then the problems.

    Where training teachers fails or is interrupted, what came of it is what there is:
    the first of them, unless the model that a warm start goes on from is worth more.
    """
    keeps = options["keeps_on_interrupt"] and problems[0].start is None
    lessons: list[list[NDArray[np.float32]]] = [[] for _ in problems]
    results: dict[int, Trained] = {}
    first: Trained | None = None
    queue = [(i, one) for i, p in enumerate(problems) for one in p.teachers or ()]
    try:
        for start in range(0, len(queue), len(problems)):
            owners, some = zip(*queue[start : start + len(problems)], strict=True)
            more = {"with_logits": True, "keeps_on_interrupt": keeps and first is None}
            done = train(some, device, **{**options, **more})
            for i, trained in zip(owners, done, strict=True):
                if trained.error is not None or trained.log.interrupted:
                    results[i] = trained
                else:
                    assert trained.logits is not None
                    lessons[i].append(trained.logits)
                    first = first or trained
            if len(results) == len(problems):
                break
        pupils = [i for i in range(len(problems)) if i not in results]
        taught = [problems[i].taught(lessons[i]) for i in pupils]
        if taught:
            results |= zip(pupils, train(taught, device, **options), strict=True)
    except KeyboardInterrupt:
        if not keeps or first is None:
            raise
        first.log.interrupted = True
        _warn(
            "Training interrupted; this network is kept, as the one that it teaches "
            "had not begun.",
            first.log,
        )
        return [first]
    return [results[i] for i in range(len(problems))]


def models_at_once(
    graph: Graph, spec: EncoderSpec, n_pairs: int, device: torch.device
) -> int:
    """Estimate how many models of an architecture fit in the memory that is free."""
    n, width = graph.n_nodes, spec.hidden_size
    features = graph.features
    stored = features.nnz if sparse.issparse(features) else n * graph.n_features
    a_model = 4 * (
        2 * stored
        + 4 * graph.adjacency.nnz
        + 16 * n * width * spec.n_layers
        + 8 * width * (graph.n_features + spec.n_layers * width)
        + 4 * n * n_pairs
    )
    most = _MOST_MODELS
    if device.type == "cpu":
        # Two rounds of work: threads whose models stop early don't wait for long.
        most = 2 * _models_a_thread(graph, spec) * torch.get_num_threads()
    fit = _MEMORY_SHARE * free_memory(device) // a_model
    return int(max(1, min(fit, most)))


def _models_a_thread(graph: Graph, spec: EncoderSpec) -> int:
    size = _FLOATS_A_THREAD // max(1, graph.n_nodes * spec.hidden_size)
    return min(max(size, _FEWEST_A_THREAD), _MOST_A_THREAD)


# ------------------------------------------------------------------ where stacks train


def _train_in_threads(
    problems: Sequence[Problem],
    device: torch.device,
    n_threads: int,
    options: dict[str, Any],
) -> list[Trained]:
    interrupted = threading.Event()
    at_once = _models_a_thread(problems[0].graph, problems[0].encoder)
    n_parts = max(-(-len(problems) // at_once), min(n_threads, len(problems)))

    over: list[NDArray[np.intp]] = []

    def threads_of_each() -> int:
        """Share out what is left without a part."""
        return n_threads // min(n_threads, n_parts - len(over))

    def work(part: NDArray[np.intp]) -> list[Trained]:
        try:
            some, more = [problems[i] for i in part], {"interrupted": interrupted}
            with as_pytorch_starts(), cpu.spread_over(threads_of_each), memory.reused():
                return _train_in_halves(some, device, {**options, **more})
        except BaseException:
            interrupted.set()
            raise
        finally:
            over.append(part)

    with ThreadPoolExecutor(n_threads, "sktifa", torch.set_num_threads, (1,)) as pool:
        try:
            parts = np.array_split(np.arange(len(problems)), n_parts)
            return [trained for part in pool.map(work, parts) for trained in part]
        except BaseException:
            interrupted.set()
            raise


def _train_in_halves(
    problems: Sequence[Problem], device: torch.device, options: dict[str, Any]
) -> list[Trained]:
    try:
        return Run(problems, device, **options).train()
    except Exception as error:
        if _is_out_of_memory(error) and len(problems) > 1:
            error.__traceback__ = error.__cause__ = None  # They hold the tensors.
            if device.type == "cuda":
                torch.cuda.empty_cache()
            half = len(problems) // 2
            return [
                trained
                for part in (problems[:half], problems[half:])
                for trained in _train_in_halves(part, device, options)
            ]
        return [Trained(None, TrainingLog(), error=error) for _ in problems]


class _Lent:
    """A setting of torch's, which the last of several trainings gives back.

    A number of threads that is set in one thread becomes that of others, so there each
    gives it back.
    """

    def __init__(self, name: str, is_of_threads: bool) -> None:
        self.name, self.is_of_threads = name, is_of_threads
        self.lock, self.n_trainings, self.before = threading.Lock(), 0, None

    @contextmanager
    def set_to(self, value: Any) -> Iterator[Any]:
        """Change it, and yield what it was."""
        write = getattr(torch, f"set_{self.name}")
        with self.lock:
            if not self.n_trainings:
                self.before = getattr(torch, f"get_{self.name}")()
            self.n_trainings += 1
            write(value)
        try:
            yield self.before
        finally:
            with self.lock:
                self.n_trainings -= 1
                if self.is_of_threads or not self.n_trainings:
                    write(self.before)


# PyTorch's threads wait for each other at every operation, which takes forever on a
# busy machine, and what they add up depends on how many they are. Ours share kernels
# out in large parts instead.
_n_threads = _Lent("num_threads", is_of_threads=True)
_dtype = _Lent("default_dtype", is_of_threads=False)


@contextmanager
def computing(device: torch.device) -> Iterator[int]:
    """Train or predict the same whatever the user has set in PyTorch, and leave it so.

    Yields the number of threads that kernels may use.
    """
    with on_device(device), as_pytorch_starts(), _n_threads.set_to(1) as n_threads:
        with cpu.spread_over(n_threads):
            yield n_threads


@contextmanager
def as_pytorch_starts() -> Iterator[None]:
    """Train as if the user had changed none of PyTorch's modes, and leave them so."""
    with (
        torch.inference_mode(False),
        undisturbed(),
        torch.enable_grad(),
        _dtype.set_to(torch.float32),
    ):
        yield


# --------------------------------------------------------------------------- one stack


class _Reader:
    """Brings the epochs' figures to the host, on CUDA while the next epoch runs."""

    def __init__(self, lag: int) -> None:
        self._lag = lag
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

    def take(self, everything: bool = False) -> list[Figures]:
        """Return what has arrived."""
        arrived = []
        while len(self._waiting) > (0 if everything else self._lag):
            ids, figures, event = self._waiting.popleft()
            if event is not None:
                event.synchronize()
            arrived.append((ids, figures.cpu().numpy()))
        return arrived


class Run:
    """Models in training. Those that have stopped leave, a few at a time."""

    def __init__(
        self,
        problems: Sequence[Problem],
        device: torch.device,
        *,
        on_epoch: OnEpoch | None = None,
        keeps_on_interrupt: bool = False,
        interrupted: threading.Event | None = None,
        with_logits: bool = False,
    ) -> None:
        self.all, self.device = list(problems), device
        self.on_epoch, self.with_logits = on_epoch, with_logits
        self.keeps_on_interrupt = keeps_on_interrupt
        self.interrupted = interrupted or threading.Event()
        self.kernels = kernels_for(device)
        self.logs = [TrainingLog(teacher=one.teacher) for one in problems]
        self.kept: dict[int, State] = {}
        self.ends: dict[int, State] = {}
        self.errors: dict[int, Exception] = {}
        self.needs_clean = problems[0].needs_clean

    def train(self) -> list[Trained]:
        """Run until the last model has stopped, and keep the best of each."""
        source: Source | None = None
        history: list[Figures] = []
        reader = _Reader(1 if self.device.type == "cuda" and not self.on_epoch else 0)
        try:
            first = self.all[0]
            if first.source is None:
                source = WholeGraph(self.all, self.device)
            else:
                source = first.source(self.device)
            self.source = source
            self.set_up()
            self.loop(reader, history)
        except KeyboardInterrupt:
            if not self.keeps_on_interrupt or not history:
                raise
            self.logs[0].interrupted = True
        except Exception as error:
            if not _is_out_of_memory(error) or len(self.all) > 1:
                raise
            self.errors[0] = NotEnoughMemoryError(_memory_advice(self.all[0]))
            self.errors[0].__cause__ = error
        finally:
            self.forget_recordings()
            if source is not None:
                source.close()
        history += reader.take(everything=True)
        self._write_logs(history)
        return self._finish()

    # --------------------------------------------------------------- who is in

    def set_up(self) -> None:
        """Build the models, and all that training changes or they differ in."""
        networks = self._networks()
        # What each model becomes in the end is a copy of.
        self.template = networks[0]
        self.encoder = stack_encoders(networks).to(self.device)
        self._lay_out_state()
        self.moments = [[torch.zeros_like(p) for p in self.parameters] for _ in "mv"]
        n, device = len(self.all), self.device
        exact = torch.float32 if device.type == "mps" else torch.float64
        self.epoch = torch.zeros((), dtype=exact, device=device)
        self.n_steps = torch.zeros((), dtype=torch.int64, device=device)
        self.temperatures = torch.tensor(_TEMPERATURES, device=device)
        self.last_loss = torch.zeros(n, device=device)
        self.best_score = torch.full((n,), -torch.inf, dtype=exact, device=device)
        self.best_epoch = torch.zeros(n, dtype=exact, device=device)
        self.alive = torch.ones(n, dtype=torch.bool, device=device)
        # Every node's logits at the epoch's opening.
        self.clean: Tensor | None = None
        self.terms = stack([p.terms for p in self.all], device)
        self.target = stack([p.target for p in self.all], device)
        self._gather(np.arange(n))

    def _networks(self) -> list[nn.Module]:
        built: dict[Any, nn.Module] = {}
        networks = []
        for problem in self.all:
            if problem.start is not None:
                networks.append(problem.start)
                continue
            dropout = 0.0 if problem.encoder.stackable else problem.dropout
            key = problem.encoder_seed, dropout
            if key not in built:
                built[key] = build_encoder(
                    problem.encoder, seed=problem.encoder_seed, dropout=dropout
                )
            networks.append(built[key])
        return networks

    def _lay_out_state(self) -> None:
        """Name the encoder's tensors, with a leading model dimension each."""
        stacked = self.encoder.stackable
        self.leaves = [p for p in self.encoder.parameters() if p.requires_grad]
        self.parameters = [
            p.detach() if stacked else p.detach()[None] for p in self.leaves
        ]
        state = self.encoder.state_dict(keep_vars=True)
        self.state = {
            name: value.detach() if stacked else value.detach()[None]
            for name, value in state.items()
        }
        self.best = {name: value.clone() for name, value in self.state.items()}
        self.last = {name: value.clone() for name, value in self.state.items()}

    def _gather(self, ids: NDArray[np.intp]) -> None:
        """Lay out the numbers that the models `ids` differ in, an entry a model."""
        self.ids = ids
        problems = [self.all[i] for i in ids]
        schedules = [p.schedule for p in problems]

        def exact(name: str) -> Tensor:
            values = np.array([getattr(s, name) for s in schedules], dtype=float)
            return torch.from_numpy(values).to(self.device, self.epoch.dtype)

        self.rates = exact("learning_rate")
        self.rate_decay = exact("learning_rate_decay")
        self.least_rate = self.rates.clamp(max=LEARNING_RATE_FLOOR)
        self.weight_decay = exact("weight_decay").float()
        self.min_iter, self.max_iter = exact("min_iter"), exact("max_iter")
        self.patience, self.tol = exact("n_iter_no_change"), exact("tol")
        watched = [_MONITORS.index(s.monitor) for s in schedules]
        self.watched = torch.tensor(watched, device=self.device)
        n_features = problems[0].graph.n_features
        rates = [p.dropout for p in problems]
        self.dropout = Dropout(rates, n_features, self.device)
        # Each model's dropout is its own, whatever the models beside it.
        seeds = [p.seed + distributed.rank() for p in problems]
        self.seeds = torch.tensor(seeds, dtype=torch.int64, device=self.device)
        parts = [p.validation and tuple(p.validation) for p in problems]
        n_nodes = problems[0].graph.n_nodes
        self.val_nodes = LabeledNodes.stack(parts, n_nodes, self.device)
        self.validates = problems[0].validation is not None
        sizes = [0 if part is None else len(part[0]) for part in parts]
        self.val_sizes = torch.tensor(sizes, device=self.device)

    def _leave_out(self, running: NDArray[np.bool_]) -> None:
        """Go on with the running models alone."""
        stays = np.flatnonzero(running)
        for place in np.flatnonzero(~running).tolist():
            self._take(place)
        places = torch.from_numpy(stays).to(self.device)
        with torch.no_grad():
            state = self.encoder.state_dict()
            _set_state(
                self.encoder, {k: v.index_select(0, places) for k, v in state.items()}
            )
        kept = [
            {name: value.index_select(0, places) for name, value in state.items()}
            for state in (self.best, self.last)
        ]
        self._lay_out_state()
        self.best, self.last = kept
        self.moments = [[t.index_select(0, places) for t in m] for m in self.moments]
        for name in ("last_loss", "best_score", "best_epoch", "alive"):
            setattr(self, name, getattr(self, name).index_select(0, places))
        self.terms = pick(self.terms, places)
        self.target = pick(self.target, places)
        self.source.keep(stays)
        self._gather(self.ids[stays])

    def _take(self, place: int) -> None:
        """Keep the best state of a model, and its last one where none is validated."""
        stores = [(self.kept, self.best)]
        if not self.validates:
            stores.append((self.ends, self.last))
        for store, state in stores:
            store[int(self.ids[place])] = {
                name: value[place].clone() for name, value in state.items()
            }

    # ---------------------------------------------------------------- one epoch

    def evaluate(self) -> Tensor:
        """Open an epoch: find the best models so far, and those that stop.

        Returns, (5, n_models), cross-entropy and accuracy on the validation nodes, the
        last training loss, whether the model goes on, and the epoch of its best state.
        """
        problem, self.clean, reached = self.all[0], None, None
        elsewhere = problem.validation_logits
        if self.needs_clean or (self.validates and elsewhere is None):
            self.clean = self.source.evaluate(self.encoder)
        if self.validates:
            logits = self.clean
            if elsewhere is not None:
                self.encoder.eval()
                logits = elsewhere(self.encoder)
            assert logits is not None
            reached = distributed.shared(self._validate(logits))
        return self._judge(reached)

    @torch.no_grad()
    def _validate(self, logits: Tensor) -> Tensor:
        nodes = self.val_nodes
        parts = nodes.model, nodes.index, nodes.target, nodes.weight
        return self.kernels.validate(
            logits, parts, self.val_sizes, self.temperatures, _AS_IT_IS
        )

    @torch.no_grad()
    def _judge(self, reached: Tensor | None) -> Tensor:
        figures, chosen = self.kernels.judge(
            reached,
            self.last_loss,
            epoch=self.epoch,
            alive=self.alive,
            best_score=self.best_score,
            best_epoch=self.best_epoch,
            watched=self.watched,
            tol=self.tol,
            min_iter=self.min_iter,
            max_iter=self.max_iter,
            patience=self.patience,
        )
        # Without validation, whether it is any good is looked at in the end.
        self._keep(chosen, self.last if reached is None else self.best)
        return figures

    def _keep(self, chosen: Tensor, place: State) -> None:
        """Keep the present state of some models."""
        for name, kept in place.items():
            if kept.is_floating_point():
                self.kernels.copy_where(chosen, self.state[name], kept)

    def update(self) -> None:
        """Make the epoch's updates. Models that have stopped take part in vain."""
        losses = [self._step(batch) for batch in self.source.epoch()]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)
        self.last_loss.copy_(distributed.mean(loss))
        self.epoch += 1

    def _step(self, batch: Batch) -> Tensor:
        """Make one update, and return each model's loss."""
        self.encoder.train()
        self.step_seeds = torch.add(self.seeds, self.n_steps, alpha=_STRIDES[0])
        clean = self.clean if batch.nodes is None else None
        step = Step(self.encoder, batch, self._draw, self.target, clean)
        total: Any = 0.0
        for term in self.terms:
            loss = term(step)
            if loss.dim() == 2:
                loss = (loss if batch.norm is None else loss * batch.norm).mean(1)
            total = total + loss
        grads = torch.autograd.grad(total.sum(), self.leaves, allow_unused=True)
        total = total.detach()
        if not self.validates:
            # What has a finite loss is kept, not what the update makes of it.
            chosen = self.alive & total.isfinite()
            torch.where(chosen, self.epoch, self.best_epoch, out=self.best_epoch)
            self._keep(chosen, self.best)
        self._adam(distributed.averaged(grads, self.leaves))
        return total

    def _draw(self, number: int, row_keep: Tensor | None) -> Draw:
        """Say what is random in one of the step's passes."""
        seeds = self.step_seeds + (1 + number) * _STRIDES[1]
        return Draw(seeds, self.dropout, row_keep)

    @torch.no_grad()
    def _adam(self, grads: Sequence[Tensor]) -> None:
        """Adam with L2 regularisation, each model at its own learning rate."""
        size, root = self.kernels.step_sizes(
            self.n_steps,
            self.epoch,
            rates=self.rates,
            decay=self.rate_decay,
            least=self.least_rate,
            min_iter=self.min_iter,
            betas=_BETAS,
        )
        rule = {"size": size, "root": root, "weight_decay": self.weight_decay}
        each = zip(self.parameters, grads, *self.moments, strict=True)
        for p, grad, *moments in each:
            grad = grad.view_as(p)
            self.kernels.adam(p, grad, *moments, betas=_BETAS, eps=_EPS, **rule)

    # -------------------------------------------------------------------- the loop

    def loop(self, reader: _Reader, history: list[Figures]) -> None:
        """Train until the last model has stopped."""
        self.record()
        waste, last = 0.0, time.perf_counter()
        while True:
            reader.put(self.ids, self._evaluate())
            arrived = reader.take()
            history += arrived
            running = np.ones(len(self.ids), bool)
            if history and len(history[-1][0]) == len(running):
                running = history[-1][1][3] > 0
            if self.on_epoch is not None and self._tell(history):
                break
            if not running.any():
                break
            if self.interrupted.is_set():
                raise KeyboardInterrupt
            self.source.advance()
            self._update()
            share, now = running.mean(), time.perf_counter()
            waste += (1 - share) * (now - last)
            last = now
            enough = waste > _WASTE.get(self.device.type, 0)
            if share <= 0.8 and distributed.agree(enough):
                history += reader.take(everything=True)
                running = history[-1][1][3] > 0
                if not running.any():
                    break
                self.forget_recordings()
                self._leave_out(running)
                self.record()
                waste, last = 0.0, time.perf_counter()

    def _tell(self, history: Sequence[Any]) -> bool:
        """Tell the caller of the epoch that is over; return whether he stops it."""
        figures = history[-1][1][:, 0]
        log, epoch = self.logs[0], len(history) - 1
        if self.validates:
            log.validation_losses.append(float(figures[0]))
            log.validation_scores.append(float(figures[1]))
        if epoch == 0:
            return False
        log.n_iter = epoch
        log.loss_curve.append(float(figures[2]))
        if not np.isfinite(figures[2]):
            return False
        assert self.on_epoch is not None
        return distributed.agree(self.on_epoch(log, self.encoder))

    def forget_recordings(self) -> None:
        """Let go of what is recorded, and of the tensors that it works on.

        NCCL waits for that when processes part.
        """
        self._evaluate: Callable[[], Tensor] = self.evaluate
        self._update: Callable[[], Any] = self.update
        self.__dict__.pop("_step", None)

    def record(self) -> None:
        """Make the two halves of an epoch CUDA graphs, where that can be."""
        self.forget_recordings()
        if self.device.type != "cuda" or not self.encoder.stackable:
            return
        state = [*self.state.values(), *self.best.values()]
        state += [*self.moments[0], *self.moments[1], self.epoch, self.n_steps]
        state += [self.last_loss, self.best_score, self.best_epoch, self.alive]
        restore = partial(snapshot, state)
        if not self.source.recordable:
            slots = self.source.slots()
            # Batch normalisation would count the nodes that fill a subgraph up.
            if slots is None or any("running_mean" in name for name in self.state):
                return
            (replay,) = capture(
                [lambda: self._step(slots.batch())], self.device, restore=restore
            )

            def step(batch: Batch) -> Tensor:
                return replay().clone() if slots.fill(batch) else Run._step(self, batch)

            self._step = step  # type: ignore[method-assign]
            return
        if self.all[0].validation_logits is None:
            self._evaluate, self._update = capture(
                [self.evaluate, self.update], self.device, restore=restore
            )

    # --------------------------------------------------------------------- the end

    def _write_logs(self, history: Sequence[Figures]) -> None:
        figures = np.full((len(history), 5, len(self.all)), np.nan)
        figures[:, 3] = 0
        for epoch, (ids, values) in enumerate(history):
            figures[epoch][:, ids] = values
        for i, log in enumerate(self.logs):
            if not len(history):
                continue
            val_loss, accuracy, loss, alive, best = figures[:, :, i].T
            here = np.isfinite(best)
            n_iter = min(int(alive.sum()), int(here.sum()) - 1)
            log.best_iter = int(best[n_iter])
            if n_iter and not np.isfinite(loss[n_iter]):
                self._say_not_finite(i, n_iter, loss[n_iter])
                n_iter -= 1
            log.n_iter = n_iter
            log.loss_curve = loss[1 : n_iter + 1].tolist()
            if self.validates:
                log.validation_losses = val_loss[: n_iter + 1].tolist()
                log.validation_scores = accuracy[: n_iter + 1].tolist()

    @torch.no_grad()
    def _finish(self) -> list[Trained]:
        """Return the models that are kept, and their class scores where asked for."""
        if not hasattr(self, "ids"):
            return [
                Trained(None, log, error=self.errors.get(i))
                for i, log in enumerate(self.logs)
            ]
        for place in range(len(self.ids)):
            self._take(place)
        self.moments, self.clean = [], None
        if not self.validates:
            self._prefer_ends()
        ordered = {i: self.kept[i] for i in range(len(self.all))}
        logits = self._logits(ordered) if self.with_logits else None
        trained = []
        for i, log in enumerate(self.logs):
            error = self.errors.get(i)
            if error is not None and log.n_iter:
                _warn(
                    f"Out of memory after {log.n_iter} epochs; the model of epoch "
                    f"{log.best_iter} is kept. {error}",
                    log,
                )
                error = None
            elif log.interrupted:
                _warn(
                    f"Training interrupted after {log.n_iter} epochs; the model of "
                    f"epoch {log.best_iter} is kept.",
                    log,
                )
            network, state = self.encoder, self._unstacked(self.kept[i])
            if len(self.all) > 1:
                own = {id(p): p for p in self.template.parameters()}  # not to be copied
                network = deepcopy(self.template, own)
                network.load_state_dict(state, assign=True)
            else:
                _set_state(network, state)
            network.eval()
            distributed.share(network)
            scores = None if logits is None else logits[i]
            trained.append(Trained(None if error else network, log, scores, error))
        return trained

    def _prefer_ends(self) -> None:
        """Keep the states in which unvalidated models ended, if they are any good.

        What a step has made of a model is not known before the next one.
        """
        ended = [
            i
            for i, (log, problem) in enumerate(zip(self.logs, self.all, strict=True))
            if log.n_iter and log.best_iter == problem.schedule.max_iter
        ]
        if not ended:
            return
        logits = self._logits({i: self.ends[i] for i in ended})
        for place, i in enumerate(ended):
            if logits is None:
                fine = all(bool(v.isfinite().all()) for v in self.ends[i].values())
            else:
                fine = bool(np.isfinite(logits[place]).all())
            if fine:
                self.kept[i] = self.ends[i]
            else:
                log = self.logs[i]
                log.diverged = True
                log.best_iter = log.n_iter - 1
                _warn(
                    f"The update of epoch {log.n_iter} makes no finite model; that of "
                    f"epoch {log.best_iter} is kept. {_not_finite_advice(self.all[i])}",
                    log,
                )

    def _logits(self, states: dict[int, State]) -> NDArray[np.float32] | None:
        """Run several models forward."""
        joined = {
            name: torch.stack([state[name] for state in states.values()])
            for name in self.best
        }
        if not self.encoder.stackable:
            joined = {name: value[0] for name, value in joined.items()}
        logits = self.source.evaluate(_set_state(self.encoder, joined))
        return None if logits is None else logits.cpu().numpy()

    def _unstacked(self, state: State) -> State:
        """Give one model's state the shapes that its encoder has."""
        if not self.encoder.stackable:
            return state
        return {name: value[None] for name, value in state.items()}

    def _say_not_finite(self, number: int, epoch: int, loss: float) -> None:
        advice = _not_finite_advice(self.all[number])
        if epoch == 1:
            self.errors[number] = TrainingError(
                f"the first training loss is {loss}. {advice}"
            )
            return
        log = self.logs[number]
        log.diverged = True
        _warn(
            f"The loss became {loss} in epoch {epoch}; the model of epoch "
            f"{log.best_iter} is kept. {advice}",
            log,
        )


def _set_state(module: nn.Module, values: State) -> nn.Module:
    """Give a module other tensors, maybe of more models or fewer."""
    for name, tensor in module.state_dict(keep_vars=True).items():
        tensor.data = values[name]
    return module


def _warn(message: str, log: TrainingLog) -> None:
    whose = f"Teacher {log.teacher}: " if log.teacher else ""
    warn_user(whose + message, ConvergenceWarning)


def _not_finite_advice(problem: Problem) -> str:
    """Say what makes a loss overflow, most suspicious first."""
    causes = []
    if not 1e-3 < problem.target.temperature < 1e3:
        causes.append(f"temperature={problem.target.temperature:g} is extreme")
    weights = problem.graph.adjacency.data
    if len(weights) and weights.max() > 1e6:
        causes.append(f"an edge weighs {weights.max():g}: scale the weights")
    values = problem.graph.features
    values = values.data if sparse.issparse(values) else values
    if values.size and np.abs(values).max() > 1e4:
        causes.append(
            f"features are as large as {np.abs(values).max():g}: use "
            'feature_norm="standard", or scale them before'
        )
    if not causes:
        causes.append("lower learning_rate")
    return "To mend it: " + "; ".join(causes) + "."


def _memory_advice(problem: Problem) -> str:
    graph, spec = problem.graph, problem.encoder
    return (
        f"The training step ({graph.n_nodes:,} nodes × {graph.n_features:,} features, "
        f"{graph.adjacency.nnz:,} arcs, {spec.n_layers} layers of {spec.hidden_size} "
        'units) does not fit in memory. Use a smaller hidden_size, device="cpu" if '
        'this was a GPU, or sampler="saint-tifa".'
    )


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell what PyTorch says on a GPU and on the CPU from other errors."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and "allocate memory" in str(error)
