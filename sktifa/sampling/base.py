"""What all samplers share: the graph they take, epochs, and the way to users' loops."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import joblib
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from sktifa.checks import check_count
from sktifa.exceptions import LabelError, ParameterError
from sktifa.graph import Graph, as_graph, validated
from sktifa.labels import encode_labels
from sktifa.sampling.prefetch import prefetch
from sktifa.sampling.subgraph import Subgraph

if TYPE_CHECKING:
    from torch_geometric.data import Data

__all__ = ["GraphSampler", "SubgraphLoader"]

# What a draw is for; the first part of the key of its seed.
SAMPLE, EPOCH, PRESAMPLE = range(3)
# That draw for a GPU.
_MOST_THREADS = 8


class GraphSampler(BaseEstimator):
    """Base class of samplers of subgraphs.

    Iterating over a fitted sampler draws an epoch's subgraphs as graphs, each time a
    new epoch; its length is their number.
    """

    graph_: Graph
    classes_: NDArray[Any] | None
    codes_: NDArray[np.int64] | None
    n_subgraphs_: int
    n_features_in_: int
    missing_label: int | float | str | None
    random_state: int | np.random.RandomState | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_subgraphs_")

    # ------------------------------------------------------------------ fitting

    @abstractmethod
    def fit(self, graph: Graph, y: ArrayLike | None = None) -> Self:
        """Take the graph to sample, and its labels."""

    def _take(self, graph: Any, y: ArrayLike | None) -> None:
        """Keep the whole graph, of which `graph` may be a selection, and labels."""
        # Not left to scikit-learn, which would skip it within a classifier's fit.
        self._validate_params()
        graph = as_graph(validated(self, graph))
        self.classes_ = self.codes_ = None
        if y is not None:
            codes, self.classes_ = encode_labels(y, self.missing_label, of=graph)
            self.codes_ = np.full(graph.n_nodes, -1, dtype=np.int64)
            self.codes_[graph.nodes] = codes
        self.graph_ = graph.whole
        self._entropy = int(check_random_state(self.random_state).randint(2**31))
        self._n_samples = self._n_epochs = 0

    # ------------------------------------------------------------------ drawing

    def epoch(
        self,
        index: int = 0,
        *,
        rank: int = 0,
        n_ranks: int = 1,
        transform: Callable[[Subgraph], Any] | None = None,
    ) -> Iterator[Any]:
        """Yield an epoch's subgraphs as tensors, the next ones drawn in threads.

        Parameters
        ----------
        index : int, default=0
            Number of the epoch; the same number gives the same subgraphs.
        rank, n_ranks : int, default=0 and 1
            Of several processes, each takes every `n_ranks`-th subgraph. All take
            equally many: the first ones are drawn twice where it doesn't come out
            even. All must have been fitted with the same int `random_state`.
        transform : callable, default=None
            Applied to each subgraph in the drawing thread, such as to fetch its
            features.

        Yields
        ------
        sktifa.sampling.subgraph.Subgraph, or what `transform` returns

        Raises
        ------
        ParameterError
            If a number is negative or no whole one, or `rank` not below `n_ranks`.
        """
        check_is_fitted(self)
        check_count(index, "index", high=2**32 - 1)
        check_count(n_ranks, "n_ranks", low=1)
        if check_count(rank, "rank") >= n_ranks:
            raise ParameterError(
                f"rank={rank}, but n_ranks={n_ranks}: ranks are numbered from 0 to "
                f"{n_ranks - 1}."
            )
        n = self.n_subgraphs_
        mine = [b % n for b in range(rank, -(-n // n_ranks) * n_ranks, n_ranks)]
        return self._epoch(index, mine, transform)

    def _epoch(
        self,
        index: int,
        batches: Sequence[int],
        transform: Callable[[Subgraph], Any] | None = None,
        purpose: int = EPOCH,
    ) -> Iterator[Any]:
        """Yield some of an epoch's subgraphs."""
        order = self._order(purpose, index)
        ends = np.linspace(0, len(order), self.n_subgraphs_ + 1).astype(np.int64)

        def draw(batch: int) -> Any:
            start = order[ends[batch] : ends[batch + 1]]
            subgraph = self._drawn_from(start, purpose, index, batch)
            return subgraph if transform is None else transform(subgraph)

        n_threads = 1
        if self._device.type == "cuda":  # it trains faster than one thread can draw
            n_threads = max(2, min(_MOST_THREADS, joblib.cpu_count() - 1))
        return prefetch(
            draw, batches, device=self._device, n_threads=n_threads, ahead=n_threads + 1
        )

    @property
    def _device(self) -> torch.device:
        """Where subgraphs are drawn."""
        return torch.device("cpu")

    @abstractmethod
    def _order(self, *key: int) -> Any:
        """Put the nodes that an epoch starts from in the order of their turns."""

    @abstractmethod
    def _drawn_from(self, start: Any, *key: int) -> Subgraph:
        """Draw the subgraph that starts from some nodes."""

    @abstractmethod
    def _drawn_anywhere(self, *key: int) -> Subgraph:
        """Draw a subgraph that starts from random nodes."""

    def sample_subgraph(self) -> Subgraph:
        """Draw a subgraph as tensors, where the sampler draws.

        It starts from random nodes, as many as an epoch's largest.

        Returns
        -------
        sktifa.sampling.subgraph.Subgraph
        """
        check_is_fitted(self)
        self._n_samples += 1
        return self._drawn_anywhere(SAMPLE, self._n_samples - 1)

    def sample(self) -> Graph:
        """Draw a subgraph.

        Returns
        -------
        Graph
            With `parent_nodes`, the nodes' numbers in the whole graph.
        """
        return self._to_graph(self.sample_subgraph())

    def fit_resample(self, graph: Graph, y: ArrayLike) -> tuple[Graph, NDArray[Any]]:
        """Fit, and draw a subgraph with its labels.

        Parameters
        ----------
        graph : Graph, or what `as_graph` takes
            The graph to sample.
        y : array-like of shape (len(graph),)
            Labels of the selected nodes.

        Returns
        -------
        subgraph : Graph
            With `parent_nodes`.
        labels : ndarray of shape (len(subgraph),)
            Their labels, of the type of `y`; `missing_label` for nodes without one or
            not selected in `graph`.

        Raises
        ------
        LabelError
            If there are no labels.
        """
        if y is None:
            raise LabelError(
                "there are no labels to return: give y, or fit and sample."
            )
        subgraph = self.fit(graph, y).sample()
        assert self.codes_ is not None and self.classes_ is not None
        codes = self.codes_[subgraph.parent_nodes]
        missing = np.array(self.missing_label)
        alike = missing.dtype.kind == self.classes_.dtype.kind
        labels = self.classes_[codes]
        if (codes < 0).any():
            labels = labels.astype(np.result_type(labels, missing) if alike else object)
            labels[codes < 0] = self.missing_label
        return subgraph, labels

    def _sequence(self, *key: int) -> np.random.SeedSequence:
        """Return the seed of a draw, the same in every process."""
        return np.random.SeedSequence(self._entropy, spawn_key=key)

    # ---------------------------------------------------------------- for users

    def __len__(self) -> int:
        check_is_fitted(self)
        return self.n_subgraphs_

    def __bool__(self) -> bool:
        return True  # also before it is fitted

    def __iter__(self) -> Iterator[Graph]:
        return iter(self.loader())

    def loader(self, *, as_pyg: bool = False) -> SubgraphLoader:
        """Make an iterable of epochs, for a training loop of your own.

        Parameters
        ----------
        as_pyg : bool, default=False
            Whether to yield PyTorch Geometric ``Data`` on the sampler's device in
            place of graphs. It has `x`, `edge_index`, `edge_weight`, `n_id` (the
            nodes' numbers in the graph), `y` (their classes, -1 for unlabelled
            ones) where labels were given, and where the sampler has them also
            `node_norm` and `edge_norm`, as PyG's own samplers name them: weights of
            the nodes in the loss and of the edges' messages.

        Returns
        -------
        SubgraphLoader
            Each iteration over it is a new epoch.
        """
        check_is_fitted(self)
        convert = self._to_pyg if as_pyg else self._to_graph
        return SubgraphLoader(self, partial(self._next_epoch, convert))

    def _next_epoch(self, convert: Callable[[Subgraph], Any]) -> Iterator[Any]:
        index, self._n_epochs = self._n_epochs, self._n_epochs + 1
        return self.epoch(index, transform=convert)

    def _to_graph(self, subgraph: Subgraph) -> Graph:
        nodes = subgraph.nodes.cpu().numpy()
        arcs, col, crow = (
            part.cpu().numpy() for part in (subgraph.arcs, subgraph.col, subgraph.crow)
        )
        adjacency = sparse.csr_array(
            (self.graph_.adjacency.data[arcs], col, crow), shape=(len(nodes),) * 2
        )
        names = self.graph_.node_names
        return Graph.from_clean(
            adjacency,
            self.graph_.features[nodes],
            feature_names=self.graph_.feature_names,
            node_names=None if names is None else names[nodes],
            parent_nodes=nodes,
        )

    def _to_pyg(self, subgraph: Subgraph) -> Data:
        from torch_geometric.data import Data

        # Not by way of a Graph: a loop over a loader asks for this in every step.
        graph, device = self.graph_, subgraph.nodes.device
        nodes = subgraph.nodes.cpu().numpy()
        x = graph.features[nodes]
        x = x.toarray() if sparse.issparse(x) else np.asarray(x)
        data = Data(
            x=torch.from_numpy(x).to(device),
            edge_index=torch.stack([subgraph.col.long(), subgraph.row]),
            edge_weight=torch.from_numpy(
                graph.adjacency.data[subgraph.arcs.cpu().numpy()]
            ).to(device),
            n_id=subgraph.nodes,
        )
        if self.codes_ is not None:
            data.y = torch.from_numpy(self.codes_[nodes]).to(device)
        if subgraph.loss_norm is not None:
            data.node_norm = subgraph.loss_norm
        if subgraph.aggregation_norm is not None:
            data.edge_norm = subgraph.aggregation_norm
        return data


@dataclass
class SubgraphLoader:
    """Epochs of a fitted sampler's subgraphs; each iteration begins a new epoch."""

    sampler: GraphSampler
    begin: Callable[[], Iterator[Any]]

    def __len__(self) -> int:
        return self.sampler.n_subgraphs_

    def __iter__(self) -> Iterator[Any]:
        return self.begin()
