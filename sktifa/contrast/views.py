"""Perturbed views of the whole graph, for all models of a stack, drawn ahead.

A view's key is made of its model's seed and its number: it is the same whatever else is
drawn, and wherever the models train.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sktifa.contrast.perturbation import GraphPerturber
from sktifa.contrast.race import Race
from sktifa.tensors.hashing import mixed
from sktifa.tensors.kernels import has_triton

__all__ = ["StackView", "Views"]

# Epochs that are drawn at a time on a GPU, whose races are many and slow.
_MOST_EPOCHS = 64
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
        self._perturbers = list(perturbers)
        self._race = Race.stacked([p.race for p in perturbers])
        self._n_views, self._edge_weight, self._device = n_views, edge_weight, device
        on_gpu = device.type == "cuda" and has_triton()
        draws = _OnGpu if on_gpu else _InThreads
        self._draws = draws(self._race, torch.tensor(seeds), n_views, device)
        self._packed = torch.zeros(
            (n_views, len(seeds), sum(self._race.widths.parts)),
            dtype=torch.int32,
            device=device,
        )
        self._chunk = self._packed[:0, None]
        self._n_used = 0
        self._n_asked = 0
        self._ahead: deque[Callable[[], _Drawn]] = deque()
        for _ in range(2):
            self._ask()

    def _ask(self) -> None:
        """Have some epochs' views drawn."""
        self._ahead.append(self._draws.start(self._n_asked))
        self._n_asked += self._draws.n_epochs

    def advance(self) -> None:
        """Bring an epoch's views to the device."""
        if self._n_used == len(self._chunk):
            is_first = not len(self._chunk)
            self._chunk, flips = self._ahead.popleft()()
            self._n_used = 0
            self._ask()
            if is_first:
                self._warn(self._chunk[0, 0], flips[0, 0])
        self._packed.copy_(self._chunk[self._n_used], non_blocking=True)
        self._n_used += 1

    def _warn(self, rows: Tensor, flips: Tensor) -> None:
        """Say which limits were missed; a look at the first views is enough."""
        if self._race.limits[:, 0].isinf().all():
            return
        drawn = rows.split(self._race.widths.parts, dim=1)[3] < self._race.n_nodes
        for perturber, n_drawn, n_flips in zip(
            self._perturbers, drawn.sum(1).tolist(), flips.tolist(), strict=True
        ):
            perturber.warn_if_short(n_drawn, n_flips)

    def views(self) -> list[StackView]:
        """Return the epoch's views; waits for nothing."""
        return [self._view(packed) for packed in self._packed]

    def _view(self, packed: Tensor) -> StackView:
        n = packed.shape[0]
        removed, source, target, drawn = packed.long().split(
            self._race.widths.parts, dim=1
        )
        model = torch.arange(n, device=packed.device)[:, None]
        n_nodes, n_arcs = self._race.n_nodes, self._race.n_arcs
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
        kept = torch.from_numpy(stays)
        self._perturbers = [self._perturbers[i] for i in stays]
        ahead = [
            (rows[:, :, kept.to(rows.device)], flips)
            for rows, flips in (drawn() for drawn in self._ahead)
        ]
        self._ahead = deque(_drawn_already(*drawn) for drawn in ahead)
        self._chunk = self._chunk[:, :, kept.to(self._chunk.device)]
        self._packed = self._packed[:, kept.to(self._device)]
        self._draws.keep(kept)

    def close(self) -> None:
        """End what is drawn ahead."""
        self._draws.close()


# Rows of shape (n_epochs, n_views, n_models, width), and the flips in each.
_Drawn = tuple[Tensor, Tensor]


def _drawn_already(rows: Tensor, flips: Tensor) -> Callable[[], _Drawn]:
    return lambda: (rows, flips)


class _Draws:
    """Draws the views of some epochs, while others are trained on."""

    n_epochs = 1

    def __init__(
        self, race: Race, seeds: Tensor, n_views: int, device: torch.device
    ) -> None:
        self._race, self._n_views, self._device = race, n_views, device
        self._seeds, self._models = seeds, torch.arange(len(seeds))

    def keep(self, kept: Tensor) -> None:
        """Draw for some of the models from now on."""
        self._seeds, self._models = self._seeds[kept], self._models[kept]

    def start(self, first_epoch: int) -> Callable[[], _Drawn]:
        """Begin to draw, and return a function that waits for the views."""
        raise NotImplementedError

    def close(self) -> None:
        """End what draws."""

    def _shape(self) -> tuple[int, int, int]:
        return self.n_epochs, self._n_views, len(self._seeds)

    def _numbers(self, first_epoch: int) -> tuple[Tensor, Tensor]:
        """Each row's model and key."""
        first = first_epoch * self._n_views
        count = self.n_epochs * self._n_views
        number = torch.arange(first, first + count, device=self._seeds.device)
        keys = mixed(self._seeds, number[:, None]).flatten()
        return self._models.repeat(count), keys


class _InThreads(_Draws):
    def __init__(
        self, race: Race, seeds: Tensor, n_views: int, device: torch.device
    ) -> None:
        super().__init__(race, seeds, n_views, device)
        spare = max(1, (os.cpu_count() or 2) - 1)
        self._n_threads = min(len(seeds) * n_views, spare, _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._n_threads)

    def start(self, first_epoch: int) -> Callable[[], _Drawn]:
        shape, race = self._shape(), self._race
        models, keys = self._numbers(first_epoch)
        pinned = self._device.type == "cuda"
        rows = torch.empty(
            len(keys), sum(race.widths.parts), dtype=torch.int32, pin_memory=pinned
        )
        flips = torch.empty_like(keys)
        parts = [
            self._pool.submit(race.run, models[i:j], keys[i:j], rows[i:j], flips[i:j])
            for i, j in _ranges(len(keys), self._n_threads)
        ]

        def wait() -> _Drawn:
            for part in parts:
                part.result()
            return rows.view(*shape, -1), flips.view(shape)

        return wait

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _ranges(n: int, n_parts: int) -> list[tuple[int, int]]:
    ends = np.linspace(0, n, min(n, n_parts) + 1).astype(int).tolist()
    return list(zip(ends, ends[1:], strict=False))


class _OnGpu(_Draws):
    def __init__(
        self, race: Race, seeds: Tensor, n_views: int, device: torch.device
    ) -> None:
        from sktifa.contrast.race_cuda import GpuRaces

        super().__init__(race, seeds, n_views, device)
        self._races = GpuRaces(race, device)
        self._stream = torch.cuda.Stream(device)
        self.keep(torch.arange(len(seeds)))

    def keep(self, kept: Tensor) -> None:
        super().keep(kept.to(self._seeds.device))
        self._seeds, self._models = (
            part.to(self._device) for part in (self._seeds, self._models)
        )
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        n_rows = len(self._seeds) * self._n_views
        self.n_epochs = max(1, min(_MOST_EPOCHS, self._races.n_at_once // n_rows))

    def start(self, first_epoch: int) -> Callable[[], _Drawn]:
        shape, width = self._shape(), sum(self._race.widths.parts)
        with torch.cuda.stream(self._stream):
            models, keys = self._numbers(first_epoch)
            rows = torch.empty(len(keys), width, dtype=torch.int32, device=self._device)
            flips = torch.empty_like(keys)
            self._races.run(models, keys, rows, flips)
            drawn = torch.cuda.Event()
            drawn.record()

        def wait() -> _Drawn:
            here = torch.cuda.current_stream(self._device)
            here.wait_event(drawn)
            # Their memory is the other stream's: not before this one has done with it.
            for part in (rows, flips):
                part.record_stream(here)
            return rows.view(*shape, -1), flips.view(shape)

        return wait
