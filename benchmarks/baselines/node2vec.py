"""Node2vec and a logistic regression (Grover & Leskovec, KDD 2016)."""
# In compiled functions NumPy's old generator is numba's own, one a thread.
# ruff: noqa: NPY002

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from benchmarks.baselines._base import WholeGraphClassifier
from sktifa.cache import LocalMemory
from sktifa.graph import Graph

# Embeddings don't depend on labels: splits of a graph share them.
_EMBEDDINGS = LocalMemory(max_items=32)


class Node2VecClassifier(WholeGraphClassifier):
    """Embed the nodes by random walks, and classify by logistic regression.

    Walks are biased by second-order probabilities; their nodes are the words of a
    skip-gram with negative sampling. Edge weights count.

    Parameters
    ----------
    n_dimensions : int, default=64
        Of the embedding.
    walk_length, walks_per_node : int, default=20, 10
        Walks and their number.
    window : int, default=5
        Largest distance of a word and its context.
    n_negatives : int, default=5
        Nodes drawn against each context.
    p, q : float, default=1, 1
        Return and in-out parameter.
    n_epochs : int, default=3
        Passes over the walks.
    learning_rate : float, default=0.025
        At the start; falls to zero in a line.
    C : float, default=1
        Inverse of the regression's regularisation.
    random_state : int, default=0
        Seeds walks and embedding.
    """

    def __init__(
        self,
        *,
        n_dimensions: int = 64,
        walk_length: int = 20,
        walks_per_node: int = 10,
        window: int = 5,
        n_negatives: int = 5,
        p: float = 1.0,
        q: float = 1.0,
        n_epochs: int = 3,
        learning_rate: float = 0.025,
        C: float = 1.0,
        random_state: int = 0,
    ) -> None:
        self.n_dimensions = n_dimensions
        self.walk_length = walk_length
        self.walks_per_node = walks_per_node
        self.window = window
        self.n_negatives = n_negatives
        self.p = p
        self.q = q
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.C = C
        self.random_state = random_state

    def _scores(self, graph: Graph, codes: NDArray[np.int64]) -> NDArray[np.floating]:
        options = self.get_params()
        del options["C"]
        self.embedding_ = _EMBEDDINGS.cache(_embed, ignore=["adjacency"])(
            adjacency=graph.adjacency, fingerprint=graph.fingerprint, **options
        )
        labeled = codes >= 0
        regression = LogisticRegression(C=self.C, max_iter=1000)
        regression.fit(self.embedding_[labeled], codes[labeled])
        return regression.predict_proba(self.embedding_)


def _embed(
    adjacency: sparse.csr_array,
    fingerprint: str,
    n_dimensions: int,
    walk_length: int,
    walks_per_node: int,
    window: int,
    n_negatives: int,
    p: float,
    q: float,
    n_epochs: int,
    learning_rate: float,
    random_state: int,
) -> NDArray[np.float32]:
    n = adjacency.shape[0]
    rng = np.random.default_rng(random_state)
    walks = np.empty((walks_per_node, n, walk_length), np.int32)
    for walk in walks:
        start = rng.permutation(n).astype(np.int32)
        seeds = rng.integers(2**31, size=n)
        _walk(*_rows(adjacency), start, seeds, p, q, walk)
    walks = walks.reshape(-1, walk_length)
    # As word2vec draws them: by frequency to the power of 3/4.
    frequency = np.bincount(walks.ravel(), minlength=n) ** 0.75
    negatives = np.searchsorted(
        np.cumsum(frequency), rng.random(1 << 20) * frequency.sum()
    )
    embedding = ((rng.random((n, n_dimensions)) - 0.5) / n_dimensions).astype(
        np.float32
    )
    context = np.zeros((n, n_dimensions), np.float32)
    for epoch in range(n_epochs):
        _skip_gram(
            walks[rng.permutation(len(walks))], negatives.astype(np.int32), embedding,
            context, window, n_negatives, learning_rate * (1 - epoch / n_epochs),
            learning_rate * (1 - (epoch + 1) / n_epochs), int(rng.integers(2**31)),
        )  # fmt: skip
    return embedding


def _rows(adjacency: sparse.csr_array) -> tuple[NDArray[Any], ...]:
    return adjacency.indptr, adjacency.indices, adjacency.data


@njit
def _has_edge(indptr, indices, node, other):
    row = indices[indptr[node] : indptr[node + 1]]
    at = np.searchsorted(row, other)
    return at < len(row) and row[at] == other


@njit(parallel=True)
def _walk(indptr, indices, weights, starts, seeds, p, q, walks):
    """Fill a row of `walks` for each start; a node without edges stays where it is.

    By rejection: a neighbour is proposed by its edge's weight and accepted by its bias,
    so that no table of second-order probabilities is needed.
    """
    most = max(1.0, 1 / p, 1 / q)
    for i in prange(len(starts)):
        np.random.seed(seeds[i])
        node, before = starts[i], np.int32(-1)
        for step in range(walks.shape[1]):
            walks[i, step] = node
            begin, end = indptr[node], indptr[node + 1]
            if begin == end:
                continue
            sums = np.cumsum(weights[begin:end].astype(np.float64))
            while True:
                at = np.searchsorted(sums, np.random.random() * sums[-1], side="right")
                other = indices[begin + min(at, end - begin - 1)]
                if before < 0:
                    bias = most
                elif other == before:
                    bias = 1 / p
                elif _has_edge(indptr, indices, other, before):
                    bias = 1.0
                else:
                    bias = 1 / q
                if np.random.random() * most <= bias:
                    break
            before, node = node, other


@njit(fastmath=True)
def _skip_gram(
    walks, negatives, embedding, context, window, n_negatives, rate, last_rate, seed
):
    """Take a step of stochastic gradient descent for each word, context, negatives.

    All in float32, a row at a time: a processor then takes eight numbers at once.
    """
    np.random.seed(seed)
    size = embedding.shape[1]
    step = np.empty(size, np.float32)
    for i in range(len(walks)):
        now = np.float32(rate + (last_rate - rate) * i / len(walks))
        walk = walks[i]
        for at in range(len(walk)):
            word = embedding[walk[at]]
            reach = np.random.randint(1, window + 1)
            for other in range(max(0, at - reach), min(len(walk), at + reach + 1)):
                if other == at:
                    continue
                step[:] = 0
                for k in range(n_negatives + 1):
                    if k == 0:
                        target, label = walk[other], np.float32(1)
                    else:
                        target = negatives[np.random.randint(len(negatives))]
                        label = np.float32(0)
                        if target == walk[other]:
                            continue
                    row = context[target]
                    product = np.float32(0)
                    for d in range(size):
                        product += word[d] * row[d]
                    product = min(max(product, np.float32(-12)), np.float32(12))
                    chance = np.float32(1) / (np.float32(1) + np.exp(-product))
                    slope = now * (label - chance)
                    for d in range(size):
                        step[d] += slope * row[d]
                        row[d] += slope * word[d]
                for d in range(size):
                    word[d] += step[d]
