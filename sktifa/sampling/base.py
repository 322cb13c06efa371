"""What all samplers share: the graph they take, and an epoch over several processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sktifa.checks import check_rows
from sktifa.graph import Graph, as_graph, is_feature_matrix
from sktifa.sampling.subgraph import Subgraph

__all__ = ["GraphSampler"]


class GraphSampler(BaseEstimator):
    """Base class of samplers of subgraphs."""

    n_subgraphs_: int

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _take(self, graph: Any) -> Graph:
        """Keep the whole graph, of which `graph` may be a selection; return that."""
        if is_feature_matrix(graph):
            graph = validate_data(
                self, check_rows(graph), accept_sparse="csr", dtype=np.float32
            )
        graph = as_graph(graph)
        self.graph_ = graph if graph.is_whole else Graph._of(graph._whole, None)
        self.n_features_in_ = graph.n_features
        return graph

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
        """
        check_is_fitted(self)
        n = self.n_subgraphs_
        mine = [b % n for b in range(rank, -(-n // n_ranks) * n_ranks, n_ranks)]
        return self._epoch(index, mine, transform)

    @abstractmethod
    def _epoch(
        self,
        index: int,
        batches: Sequence[int],
        transform: Callable[[Subgraph], Any] | None,
    ) -> Iterator[Any]:
        """Yield some of an epoch's subgraphs."""
