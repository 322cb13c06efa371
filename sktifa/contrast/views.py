"""Perturbed views of the whole graph, for all models of a stack, drawn ahead.

A perturbation doesn't depend on the model, and its kernel holds no lock: threads run
the exact race while the models train, on a GPU as on the CPU. Each view has a seed of
its own, made of its model's seed and its number, so that it is the same whatever else
is drawn and wherever the models train.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sktifa.contrast.perturbation import GraphPerturber

__all__ = ["StackView", "Views"]

# Epochs that a GPU's views are drawn ahead: it is faster than one thread that draws.
_AHEAD_OF_GPU = 8
_MOST_THREADS = 32


@dataclass
class StackView:
    """A perturbed view of every model's graph.

    Attributes
    ----------
    removed_arcs, added_edges, added_weight : Tensor
        As :meth:`~sktifa.tensors.sparse.Adjacency.perturbed` takes them.
    is_drawn : Tensor of bool, shape (n_models, n_nodes)
        The perturbed nodes.
    """

    removed_arcs: Tensor
    added_edges: Tensor
    added_weight: Tensor
    is_drawn: Tensor


class Views:
    """The views of a stack, each epoch's in the same tensors as the last one's.

    A row of them is a model's: removed arcs, both ends of added edges, drawn nodes,
    filled up to the most that a view can have.

    Parameters
    ----------
    perturbers : sequence of GraphPerturber
        Each model's, of the same graph.
    seeds : sequence of int
        Each model's.
    n_views : int
        Views of an epoch.
    edge_weight : Tensor of float32, shape ()
        What an added edge weighs.
    device : torch.device
        Where they are wanted.
    """

    def __init__(
        self,
        perturbers: Sequence[GraphPerturber],
        seeds: Sequence[int],
        n_views: int,
        edge_weight: Tensor,
        device: torch.device,
    ) -> None:
        self._models = list(zip(perturbers, seeds, strict=True))
        self._n_views, self._edge_weight, self._device = n_views, edge_weight, device
        first = perturbers[0]
        self._n_nodes, self._n_arcs = first.n_nodes, first.n_arcs
        self._widths = [
            max(2 * p.most_removed for p in perturbers),
            max(p.most_added for p in perturbers),
            max(p.most_added for p in perturbers),
            max(p.most_drawn for p in perturbers),
        ]
        self._on_gpu = device.type == "cuda"
        n_ahead = _AHEAD_OF_GPU if self._on_gpu else 1
        spare = max(1, (os.cpu_count() or 2) - 1)
        self._n_threads = min(
            len(self._models) * n_views * n_ahead, spare, _MOST_THREADS
        )
        self._pool = ThreadPoolExecutor(self._n_threads)
        self._n_asked = 0
        self._ahead: deque[tuple[Tensor, list[Future]]] = deque()
        self._packed = self._buffer(device)
        for _ in range(n_ahead + 1):
            self._ask(self._buffer(torch.device("cpu")), None)

    def _buffer(self, device: torch.device) -> Tensor:
        shape = self._n_views, len(self._models), sum(self._widths)
        pinned = self._on_gpu and device.type == "cpu"
        return torch.zeros(shape, dtype=torch.int32, device=device, pin_memory=pinned)

    def _ask(self, buffer: Tensor, read: torch.cuda.Event | None) -> None:
        """Have an epoch's views drawn, once the last copy out of the buffer is over."""
        n_parts = min(self._n_threads, len(self._models))
        parts = np.array_split(np.arange(len(self._models)), n_parts)
        first = self._n_asked * self._n_views
        asked = [
            self._pool.submit(
                self._draw, buffer[i], self._models, part, first + i, read
            )
            for i in range(self._n_views)
            for part in parts
        ]
        self._n_asked += 1
        self._ahead.append((buffer, asked))

    def _draw(
        self,
        buffer: Tensor,
        models: list[tuple[GraphPerturber, int]],
        part: NDArray[np.intp],
        number: int,
        read: torch.cuda.Event | None,
    ) -> None:
        if read is not None:
            read.synchronize()
        ends = np.cumsum(self._widths)[:-1]
        for i in part.tolist():
            perturber, seed = models[i]
            view = perturber.draw(np.random.default_rng([seed, number]))
            row = np.split(buffer[i].numpy(), ends)
            source, target = view.added_edges
            parts = view.removed_arcs, source, target, view.nodes
            nothing = self._n_arcs, -1, -1, self._n_nodes
            for place, values, none in zip(row, parts, nothing, strict=True):
                place[: len(values)], place[len(values) :] = values, none

    def advance(self) -> None:
        """Bring an epoch's views to the device."""
        buffer, asked = self._ahead.popleft()
        for part in asked:
            part.result()
        self._packed.copy_(buffer, non_blocking=True)
        read = None
        if self._on_gpu:
            read = torch.cuda.Event()
            read.record()
        self._ask(buffer, read)

    def views(self) -> list[StackView]:
        """Return the epoch's views; waits for nothing."""
        return [self._view(packed) for packed in self._packed]

    def _view(self, packed: Tensor) -> StackView:
        n = packed.shape[0]
        removed, source, target, drawn = packed.long().split(self._widths, dim=1)
        model = torch.arange(n, device=packed.device)[:, None]
        n_nodes, n_arcs = self._n_nodes, self._n_arcs
        is_edge = source >= 0
        arcs = torch.where(removed < n_arcs, removed + model * n_arcs, n * n_arcs)
        ends = torch.stack([source, target]).clamp_(min=0) + model * n_nodes
        nodes = torch.where(drawn < n_nodes, drawn + model * n_nodes, n * n_nodes)
        is_drawn = packed.new_zeros(n * n_nodes + 1, dtype=torch.bool)
        is_drawn.index_fill_(0, nodes.flatten(), True)
        return StackView(
            arcs.flatten(),
            ends.flatten(1),
            (is_edge * self._edge_weight).flatten(),
            is_drawn[:-1].view(n, n_nodes),
        )

    def keep(self, stays: NDArray[np.intp]) -> None:
        """Go on with some of the models; what is drawn for them stays drawn."""
        self._models = [self._models[i] for i in stays]
        ahead, self._ahead = self._ahead, deque()
        for buffer, asked in ahead:
            for part in asked:
                part.result()
            kept = self._buffer(torch.device("cpu"))
            kept.copy_(buffer[:, torch.from_numpy(stays)])
            self._ahead.append((kept, []))
        self._packed = self._packed[:, torch.from_numpy(stays).to(self._device)]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(cancel_futures=True)
