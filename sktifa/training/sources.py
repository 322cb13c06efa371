"""Where the batches of an epoch come from: the whole graph, or sampled subgraphs.

Subgraphs are made in a thread while the last step trains. Their features are read from
where they lie: on the device, in host memory, or in a memory map of which only the
subgraph's rows are touched. Loss weights come from the whole graph; the perturbation
and the pairs are drawn inside the subgraph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from sktifa.contrast.pairs import PairSettings, anchor_pairs, pair_operator
from sktifa.contrast.perturbation import PerturbationSettings
from sktifa.contrast.subgraph import perturb
from sktifa.contrast.views import Views
from sktifa.device import free_memory
from sktifa.graph import Graph
from sktifa.sampling.base import GraphSampler
from sktifa.sampling.subgraph import Subgraph
from sktifa.tensors.arrays import as_tensor, row_blocks
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.features import Features, dense_fill
from sktifa.tensors.scaling import Scaling
from sktifa.tensors.sparse import Adjacency, csr_tensor, to_csr
from sktifa.training.batch import Batch, LabeledNodes, View
from sktifa.training.padded import PaddedBatch
from sktifa.training.problem import PairSets, Problem

__all__ = [
    "NodeFeatures",
    "SampledBatches",
    "Sampler",
    "Source",
    "SubgraphContrast",
    "WholeGraph",
]

# Features stay on a GPU up to this share of its free memory.
_RESIDENT_SHARE = 0.3


class Source:
    """Where the batches of an epoch come from."""

    # Whether every epoch is one batch of the same tensors.
    recordable: ClassVar[bool] = False

    def evaluate(self, encoder: nn.Module) -> Tensor | None:
        """Return every node's logits in evaluation mode, where they are wanted."""
        raise NotImplementedError

    def advance(self) -> None:
        """Get ready for an epoch, on the host."""

    def epoch(self) -> Iterator[Batch]:
        """Yield the epoch's batches."""
        raise NotImplementedError

    def slots(self) -> PaddedBatch | None:
        """Make room for batches' tensors, where they are alike but for their size."""
        return None

    def keep(self, stays: NDArray[np.intp]) -> None:
        """Go on with some of the models."""

    def close(self) -> None:
        """End what draws ahead."""


class WholeGraph(Source):
    """The batch that is the whole graph, perturbed anew each epoch for each model."""

    recordable = True

    def __init__(self, problems: Sequence[Problem], device: torch.device) -> None:
        self.problems, self.device = list(problems), device
        first = problems[0]
        features = first.scaling(first.graph.features)
        self.features = Features.from_matrix(features, device).halved()
        self.graph = Adjacency.from_csr(first.graph.adjacency, device)
        self.n_nodes = self.graph.n_nodes
        self.views: Views | None = None
        drawn = [p.perturbations for p in problems if p.perturbations is not None]
        if first.n_views and drawn:
            self.views = Views(
                [part.perturber for part in drawn],
                [part.seed for part in drawn],
                first.n_views,
                self.graph,
            )
        self._gather()

    def _gather(self) -> None:
        """Lay out what the models differ in."""
        problems = self.problems
        self.labeled = LabeledNodes.stack(
            [tuple(p.train) for p in problems], self.n_nodes, self.device
        )
        drawn = [p.perturbations for p in problems if p.perturbations is not None]
        rates = [part.feature_mask_rate for part in drawn]
        kept = 1 - torch.tensor(rates, dtype=torch.float32)
        self._kept = kept[:, None].to(self.device)
        self.pairs = stacked_pairs([p.pairs for p in problems], self.device)

    def evaluate(self, encoder: nn.Module) -> Tensor:
        """Return every node's logits."""
        encoder.eval()
        with torch.no_grad():
            return encoder(self.features, self.graph)

    def advance(self) -> None:
        """Bring the epoch's views to the device."""
        if self.views is not None:
            self.views.advance()

    def epoch(self) -> Iterator[Batch]:
        """Yield the whole graph, once."""
        views = [
            View(drawn.flips, torch.where(drawn.is_drawn, self._kept, 1.0))
            for drawn in (self.views.views() if self.views is not None else ())
        ]
        yield Batch(self.features, self.graph, self.labeled, views, self.pairs)

    def keep(self, stays: NDArray[np.intp]) -> None:
        """Go on with some of the models."""
        self.problems = [self.problems[i] for i in stays]
        if self.views is not None:
            self.views.keep(stays)
        self._gather()

    def close(self) -> None:
        """End what draws ahead."""
        if self.views is not None:
            self.views.close()


def stacked_pairs(
    sets: Sequence[PairSets | None], device: torch.device
) -> Tensor | None:
    """Make one block-diagonal operator of all models' pairs (Eq. 8)."""
    parts = [part for part in sets if part is not None]
    if len(parts) < len(sets):
        return None

    def joined(name: str) -> Tensor:
        of_each = [getattr(part, name).to(device) for part in parts]
        width = max(nodes.shape[1] for nodes in of_each)
        filled = [
            functional.pad(nodes, (0, width - nodes.shape[1]), value=-1)
            for nodes in of_each
        ]
        return torch.stack(filled)

    positives, negatives = joined("positives"), joined("negatives")
    if positives.shape[2] + negatives.shape[2] == 0:
        return None
    weight = torch.tensor([part.negative_weight for part in parts], device=device)
    operator = pair_operator(positives, negatives, weight)
    assert isinstance(operator, Tensor)
    return operator


class NodeFeatures:
    """The features of all nodes, wherever they lie, and the way to those of some.

    The matrix, float32, may be a memory map; rows are wanted on `device`, scaled. If it
    is `resident`, the device holds all of it, dense; None does so on a GPU where it
    takes less than a third of the free memory.
    """

    def __init__(
        self,
        matrix: NDArray[np.float32] | sparse.csr_array,
        device: torch.device,
        scaling: Scaling | None = None,
        resident: bool | None = None,
    ) -> None:
        self.matrix, self.device = matrix, device
        self.scaling = scaling = scaling or Scaling()
        self.shape: tuple[int, int] = matrix.shape
        n, width = self.shape
        if resident is None:
            room = _RESIDENT_SHARE * free_memory(device)
            resident = device.type == "cuda" and 4 * n * width < room
        self.resident = self._loaded() if resident else None
        # Tell how filled dense features are from some of them.
        some = scaling(matrix[:: max(1, n // 1000)])
        stored = some.nnz if sparse.issparse(matrix) else np.count_nonzero(some)
        self.is_sparse = stored < dense_fill(device) * max(some.shape[0] * width, 1)

    def rows(self, nodes: Tensor | slice) -> Features:
        """Bring the features of some nodes to the device."""
        if self.resident is not None:
            part = (
                self.resident[nodes]
                if isinstance(nodes, slice)
                else self.resident.index_select(0, nodes.to(self.device))
            )
            return Features(part, (part.shape[0], self.shape[1]))
        index = nodes if isinstance(nodes, slice) else nodes.cpu().numpy()
        if sparse.issparse(self.matrix) or self.is_sparse:
            return Features.from_matrix(self.scaling(self.matrix[index]), self.device)
        part = self._host_rows(index)
        shape = part.shape[0], self.shape[1]
        return Features(part.to(self.device, non_blocking=True), shape)

    def _host_rows(self, index: slice | NDArray[np.int64]) -> Tensor:
        pinned = self.device.type == "cuda"
        count = (
            len(range(*index.indices(self.shape[0])))
            if isinstance(index, slice)
            else len(index)
        )
        rows = torch.empty(count, self.shape[1], pin_memory=pinned)
        if isinstance(index, slice):
            rows.numpy()[:] = self.matrix[index]
        else:
            # With mode="clip" NumPy writes straight into `out`, holding no lock.
            np.take(self.matrix, index, axis=0, out=rows.numpy(), mode="clip")
        self.scaling(rows.numpy(), in_place=True)
        return rows

    def _loaded(self) -> Tensor:
        whole = torch.empty(self.shape, device=self.device)
        for rows in row_blocks(*self.shape):
            part = self.scaling(self.matrix[rows])
            if sparse.issparse(part):  # fewer numbers to send
                whole[rows] = to_csr(sparse.csr_array(part), self.device).to_dense()
            else:
                whole[rows] = as_tensor(part).to(self.device)
        return whole


class Sampler(Protocol):
    """What draws the subgraphs of an epoch."""

    def fit(self, graph: Graph, y: Any = None) -> Any:
        """Take the whole graph and its nodes' classes, -1 for unlabelled ones."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, as scikit-learn's estimators do."""

    def set_params(self, **params: Any) -> Any:
        """Set parameters."""

    @property
    def n_subgraphs_(self) -> int:
        """Subgraphs of an epoch."""

    def epoch(
        self,
        index: int = 0,
        *,
        rank: int = 0,
        n_ranks: int = 1,
        transform: Callable[[Subgraph], Any] | None = None,
    ) -> Iterator[Any]:
        """Yield an epoch's subgraphs, `transform` applied in the drawing thread."""


@dataclass
class SubgraphContrast:
    """Makes the contrast of a subgraph."""

    perturbation: PerturbationSettings
    perturbation_weights: Tensor  # float32: what the nodes' probabilities follow
    feature_mask_rate: float  # of a perturbed node's features
    pairs: PairSettings | None = None  # None for no pair loss
    # Of every node's labels, for pairs by relative distance.
    distribution: Tensor | None = None

    def of(
        self,
        subgraph: Subgraph,
        graph: Adjacency,
        features: Features,
        seed: int,
    ) -> tuple[View, Tensor | None]:
        """Draw a subgraph's view and pairs."""
        nodes, crow, col = subgraph.nodes, subgraph.crow, subgraph.col
        drawn = perturb(
            crow,
            col,
            self.perturbation_weights.index_select(0, nodes),
            self.perturbation,
            seed,
        )
        row_keep = 1 - self.feature_mask_rate * drawn.nodes.float()
        view = View(graph.flips(drawn.removed_arcs, drawn.added_edges), row_keep[None])
        pairs = None
        if self.pairs is not None:
            matrix = features.values
            if features.pattern is not None:
                pattern = features.pattern
                matrix = csr_tensor(pattern.crow, pattern.col, matrix, features.shape)
            here = self.distribution
            if here is not None:  # which lies where the graph does
                here = here.index_select(0, nodes.to(here.device)).to(nodes.device)
            generator = torch.Generator(nodes.device).manual_seed(seed)
            pairs = anchor_pairs(crow, col, matrix, here, self.pairs, generator)
        return view, pairs


class SampledBatches(Source):
    """Batches that are the subgraphs of a sampler, which is fitted on the graph.

    The cross-entropy is the mean over the subgraph's labelled nodes, whose weights, of
    all, sum to one (float32); `codes` (int64) are -1 for all other nodes. A sampler
    with GraphSAINT's loss normalisation makes it, and the contrast, right on average
    over the whole graph. Its aggregation normalisation is left to loops of one's own:
    the convolutions here divide by the degrees within the subgraph. `logits` evaluates
    the encoder on the whole graph; None where there is no validation. `n_ranks`
    processes share an epoch.
    """

    def __init__(
        self,
        sampler: Sampler,
        graph: DeviceGraph,
        features: NodeFeatures,
        codes: Tensor,
        weight: Tensor,
        *,
        contrast: SubgraphContrast | None,
        seed: int,
        logits: Callable[[nn.Module], Tensor] | None,
        rank: int = 0,
        n_ranks: int = 1,
    ) -> None:
        self.sampler, self.graph, self.features = sampler, graph, features
        self.codes, self.weight, self.contrast = codes, weight, contrast
        self._seed, self._rng = seed, np.random.default_rng(seed)
        self._logits = logits
        self._rank, self._n_ranks = rank, n_ranks
        self._n_epochs = 0

    def evaluate(self, encoder: nn.Module) -> Tensor | None:
        """Return every node's logits in evaluation mode, where they are wanted."""
        return None if self._logits is None else self._logits(encoder)

    def epoch(self) -> Iterator[Batch]:
        """Yield a batch for each subgraph of this process's share of an epoch.

        The targets of the contrast are the batch's own evaluation forward: the model
        of the last epoch would be hundreds of steps old.
        """
        index, self._n_epochs = self._n_epochs, self._n_epochs + 1
        yield from self.sampler.epoch(
            index, rank=self._rank, n_ranks=self._n_ranks, transform=self._prepare
        )

    def slots(self) -> PaddedBatch | None:
        """Make room for a batch, after drawing one; None where features are sparse."""
        state = self._rng.bit_generator.state
        # As one of so many processes that its share of an epoch is one subgraph.
        shares = self.sampler.n_subgraphs_
        (batch,) = self.sampler.epoch(0, n_ranks=shares, transform=self._prepare)
        self._rng.bit_generator.state = state
        return None if batch.features.is_sparse else PaddedBatch.like(batch)

    def _prepare(self, subgraph: Subgraph) -> Batch:
        device = self.features.device
        if not isinstance(self.sampler, GraphSampler):  # somebody else's
            subgraph.check(self.graph.n_nodes, len(self.graph.col))
        weight = self.graph.arc_weight(subgraph.arcs).to(device)
        parts: dict[str, Any] = {
            name: part.to(device) if isinstance(part, Tensor) else part
            for name, part in vars(subgraph).items()
        }
        subgraph = Subgraph(**parts)
        nodes = subgraph.nodes
        weighted = self.graph.weight is not None
        graph = Adjacency.from_arcs(subgraph.crow, subgraph.col, weight, weighted)
        codes = self.codes.index_select(0, nodes)
        index = (codes >= 0).nonzero().view(-1)
        share = self.weight.take(nodes.take(index))
        if subgraph.loss_norm is not None:
            share = share * subgraph.loss_norm[index] * len(self.codes)
        else:
            share = share / share.sum().clamp_min(torch.finfo(share.dtype).tiny)
        # Worked out here, not while the step waits.
        _ = graph.degree
        norm = None
        if subgraph.loss_norm is not None:
            # The loss takes the mean over the subgraph, GraphSAINT's norm the sum.
            norm = subgraph.loss_norm * len(nodes)
        labeled = LabeledNodes(
            torch.zeros_like(index), index, codes.take(index), share.float()
        )
        features = self.features.rows(nodes)
        batch = Batch(features, graph, labeled, [], nodes=nodes, norm=norm)
        if self.contrast is not None:
            view, batch.pairs = self.contrast.of(
                subgraph, graph, features, self._seed_of(subgraph)
            )
            batch.views.append(view)
        return batch

    def _seed_of(self, subgraph: Subgraph) -> int:
        """Return a seed that is the same in any thread, in any order."""
        if subgraph.seed is None:
            return int(self._rng.integers(2**62))
        return self._seed + subgraph.seed
