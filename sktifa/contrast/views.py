"""Perturbed views of the whole graph, for all models of a stack, drawn ahead.

A view's key is made of its model's seed and its number: it is the same whatever else is
drawn, and wherever the models train.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sktifa.contrast.perturbation import GraphPerturber
from sktifa.contrast.race import ArcWeights, LaidOut, Race
from sktifa.device import own_stream
from sktifa.tensors.hashing import mixed
from sktifa.tensors.kernels import has_triton
from sktifa.tensors.sparse import Adjacency, Flips

__all__ = ["StackView", "Views"]

# Epochs that are drawn at a time on a GPU, whose races are many and slow.
_MOST_EPOCHS = 64
# Races at once from which on it is faster than a few cores.
_FEWEST_RACES = 64
_MOST_THREADS = 32


@dataclass
class StackView:
    """A perturbed view of every model's graph."""

    flips: Flips
    is_drawn: Tensor  # bool, (n_models, n_nodes): the perturbed nodes


class Views:
    """The views of a stack, each epoch's in the same tensors as the last one's.

    The perturbers, one a model, are of the same graph; views are wanted where `graph`
    is.
    """

    def __init__(
        self,
        perturbers: Sequence[GraphPerturber],
        seeds: Sequence[int],
        n_views: int,
        graph: Adjacency,
    ) -> None:
        self._perturbers = list(perturbers)
        self._race = Race.stacked([p.race for p in perturbers])
        draws = _OnGpu if _suits_gpu(self._race, graph.device) else _InThreads
        self._draws = draws(self._race, torch.tensor(seeds), n_views, graph)
        self._chunk: LaidOut | None = None
        self._n_used = 0
        self._n_asked = 0
        self._ahead: deque[Callable[[], LaidOut]] = deque()
        for _ in range(draws.n_ahead):
            self._ask()
        room = self._race.room(n_views * len(seeds), graph.device)
        shape = n_views, len(seeds)
        # Zeros: an epoch is recorded before there are views.
        self._now = room.each(lambda part: part.zero_().unflatten(0, shape))

    def _ask(self) -> None:
        """Have some epochs' views drawn."""
        self._ahead.append(self._draws.start(self._n_asked))
        self._n_asked += self._draws.n_epochs

    def advance(self) -> None:
        """Bring an epoch's views to the device."""
        chunk = self._chunk
        if chunk is None or self._n_used == len(chunk.drawn):
            self._chunk = self._ahead.popleft()()
            self._n_used = 0
            self._ask()
            if chunk is None:
                self._warn(self._chunk.drawn[0, 0], self._chunk.change[0, 0])
            chunk = self._chunk
        for name, place in vars(self._now).items():
            place.copy_(getattr(chunk, name)[self._n_used], non_blocking=True)
        self._n_used += 1

    def _warn(self, drawn: Tensor, change: Tensor) -> None:
        """Say which limits were missed; a look at the first views is enough."""
        if self._race.limits[:, 0].isinf().all():
            return
        n_flips = (change != 0).sum(1) // 2  # an edge is two arcs
        for perturber, n_drawn, n in zip(
            self._perturbers, drawn.sum(1).tolist(), n_flips.tolist(), strict=True
        ):
            perturber.warn_if_short(n_drawn, n)

    def views(self) -> list[StackView]:
        """Return the epoch's views; waits for nothing."""
        now = self._now
        return [
            StackView(
                Flips(
                    now.target[i].flatten(),
                    now.source[i].flatten(),
                    now.change[i].flatten(),
                    now.degree[i],
                ),
                now.drawn[i],
            )
            for i in range(len(now.drawn))
        ]

    def keep(self, stays: NDArray[np.intp]) -> None:
        """Go on with some of the models; what is drawn for them stays drawn."""
        kept = torch.from_numpy(stays)
        self._perturbers = [self._perturbers[i] for i in stays]
        # Nodes are counted through the models that stay.
        back = ((kept - torch.arange(len(kept))) * self._race.n_nodes).int()[:, None]

        def of_kept(views: LaidOut, axis: int = 2) -> LaidOut:
            index, less = kept.to(views.drawn.device), back.to(views.drawn.device)
            views = views.each(lambda part: part.index_select(axis, index))
            views.target -= less
            views.source -= less
            return views

        # When it is their turn: training need not wait for what is still being drawn.
        self._ahead = deque(_then(drawn, of_kept) for drawn in self._ahead)
        if self._chunk is not None:
            self._chunk = of_kept(self._chunk)
        self._now = of_kept(self._now, axis=1)
        self._draws.keep(kept)

    def close(self) -> None:
        """End what is drawn ahead."""
        self._draws.close()


def _suits_gpu(race: Race, device: torch.device) -> bool:
    """Whether a GPU draws faster than threads, to the same views.

    One race takes it several times as long as a core: it wins by their number, and has
    no room for many on a graph of a million nodes.
    """
    if device.type != "cuda" or not has_triton():
        return False
    from sktifa.contrast.race_cuda import races_at_once

    return races_at_once(race, device) >= _FEWEST_RACES


def _then(
    drawn: Callable[[], LaidOut], change: Callable[[LaidOut], LaidOut]
) -> Callable[[], LaidOut]:
    return lambda: change(drawn())


class _Draws:
    """Draws the views of some epochs, while others are trained on."""

    n_epochs = 1
    # How often it is asked for some before they are wanted.
    n_ahead = 2

    def __init__(
        self, race: Race, seeds: Tensor, n_views: int, graph: Adjacency
    ) -> None:
        self._race, self._n_views, self._device = race, n_views, graph.device
        self._seeds, self._models = seeds, torch.arange(len(seeds))
        self._weights = ArcWeights(graph.arc_weight, graph.degree[0], graph.mean_weight)

    def keep(self, kept: Tensor) -> None:
        """Draw for some of the models from now on."""
        self._seeds, self._models = self._seeds[kept], self._models[kept]

    def start(self, first_epoch: int) -> Callable[[], LaidOut]:
        """Begin to draw, and return a function that waits for the views."""
        raise NotImplementedError

    def close(self) -> None:
        """End what draws."""

    def _numbers(self, first_epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Each race's model, its key, and what is added to its nodes."""
        first = first_epoch * self._n_views
        count = self.n_epochs * self._n_views
        number = torch.arange(first, first + count, device=self._seeds.device)
        keys = mixed(self._seeds, number[:, None]).flatten()
        place = torch.arange(len(self._seeds), device=self._seeds.device)
        firsts = (place * self._race.n_nodes).repeat(count)
        return self._models.repeat(count), keys, firsts

    def _rows(self, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Make room for what races change, and for how many edges they flip."""
        rows = torch.empty(
            n, sum(self._race.widths.parts), dtype=torch.int32, device=device
        )
        return rows, torch.empty(n, dtype=torch.int64, device=device)

    def _shaped(self) -> Callable[[LaidOut], LaidOut]:
        """Return what turns races into epochs, views and models as they are now."""
        shape = self.n_epochs, self._n_views, len(self._seeds)
        return lambda views: views.each(lambda part: part.unflatten(0, shape))


class _InThreads(_Draws):
    def __init__(
        self, race: Race, seeds: Tensor, n_views: int, graph: Adjacency
    ) -> None:
        super().__init__(race, seeds, n_views, graph)
        spare = max(1, joblib.cpu_count() - 1)
        self._n_threads = min(len(seeds) * n_views, spare, _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._n_threads)
        weights = self._weights
        self._weights = ArcWeights(
            weights.arc.cpu(), weights.degree.cpu(), weights.added.cpu()
        )

    def start(self, first_epoch: int) -> Callable[[], LaidOut]:
        models, keys, firsts = self._numbers(first_epoch)
        cpu = torch.device("cpu")
        views = self._race.room(len(keys), cpu, pinned=self._device.type == "cuda")

        def draw(part: slice) -> None:
            rows, n_flips = self._rows(len(keys[part]), cpu)
            self._race.run(models[part], keys[part], rows, n_flips)
            out = views.each(lambda tensor: tensor[part])
            self._race.lay_out(rows, self._weights, firsts[part], out)

        parts = [
            self._pool.submit(draw, slice(i, j))
            for i, j in _ranges(len(keys), self._n_threads)
        ]
        shaped = self._shaped()

        def wait() -> LaidOut:
            for part in parts:
                part.result()
            return shaped(views)

        return wait

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _ranges(n: int, n_parts: int) -> list[tuple[int, int]]:
    ends = np.linspace(0, n, min(n, n_parts) + 1).astype(int).tolist()
    return list(zip(ends, ends[1:], strict=False))


class _OnGpu(_Draws):
    # Some epochs are many: what is drawn ahead of the last one is drawn in vain.
    n_ahead = 1

    def __init__(
        self, race: Race, seeds: Tensor, n_views: int, graph: Adjacency
    ) -> None:
        from sktifa.contrast.race_cuda import GpuRaces

        super().__init__(race, seeds, n_views, graph)
        self._races = GpuRaces(race, graph.device)
        self._stream = own_stream(graph.device, "views")
        self.keep(torch.arange(len(seeds)))

    def keep(self, kept: Tensor) -> None:
        super().keep(kept.to(self._seeds.device))
        self._seeds, self._models = (
            part.to(self._device) for part in (self._seeds, self._models)
        )
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        n_races = len(self._seeds) * self._n_views
        self.n_epochs = max(1, min(_MOST_EPOCHS, self._races.n_at_once // n_races))

    def start(self, first_epoch: int) -> Callable[[], LaidOut]:
        with torch.cuda.stream(self._stream):
            models, keys, firsts = self._numbers(first_epoch)
            views = self._race.room(len(keys), self._device)
            rows, n_flips = self._rows(len(keys), self._device)
            self._races.run(models, keys, rows, n_flips)
            self._races.lay_out(rows, self._weights, firsts, views)
            over = torch.cuda.Event()
            over.record()
        shaped = self._shaped()

        def wait() -> LaidOut:
            here = torch.cuda.current_stream(self._device)
            here.wait_event(over)
            # Its memory is the other stream's: not before this one has done with it.
            for part in vars(views).values():
                part.record_stream(here)
            return shaped(views)

        return wait
