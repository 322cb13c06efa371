"""Contrastive pairs by relative distance (Eq. 12-14 of the paper).

The distances of a block of anchors to all nodes are held at a time, never n x n of
them, and of each anchor's ranked list only the ranks that become pairs are kept. A
sampled subgraph lives for one step: there, only some anchors are ranked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse
from torch import Tensor

from sktifa.checks import check_adjacency, check_count, check_matrix, check_real
from sktifa.contrast.ranking import GraphDistances, Ranking
from sktifa.device import free_memory, resolve_device
from sktifa.exceptions import GraphError, NotEnoughMemoryError, ParameterError
from sktifa.tensors.arrays import ArrayOrTensor, as_tensor
from sktifa.tensors.sparse import csr_tensor, index_tensor, to_csr

__all__ = [
    "LARGEST_SHARED",
    "GraphDistances",
    "PairSettings",
    "anchor_pairs",
    "check_ranks",
    "graph_distances",
    "nearest_pairs",
    "pair_features",
    "pair_operator",
    "sample_pairs",
    "uniform_pairs",
]

# Most nodes of a graph whose n x n distances are worth keeping: 500 MB.
LARGEST_SHARED = 10_000

# Working memory for a block of anchors, and what one entry of it takes in all. On the
# CPU a block that stays near the cache is faster.
_BUDGET = {"cpu": 2**27, "cuda": 2**30}
_BYTES_AN_ENTRY = 48
# Distances ranked in a step on a subgraph: with 70,000 nodes, those of 60 anchors on a
# GPU.
_DISTANCES = {"cpu": 1 << 19, "cuda": 1 << 22}
# CSR features filled more than this are faster dense.
_DENSE_FILL = 0.15


@dataclass(frozen=True)
class PairSettings:
    """How pairs are chosen; the parameters of `sample_pairs` and `pair_operator`.

    With ``kind="uniform"`` there are no positives, and negatives are drawn uniformly.
    """

    kind: Literal["tifa", "uniform"] = "tifa"
    negative_weight: float = 0.5
    hop_weight: float = 0.5
    feature_weight: float = 0.75
    n_positives: int = 5
    negative_ranks: tuple[int, int] = (50, 150)
    max_hops: int = 4

    def __post_init__(self) -> None:
        if self.kind not in ("tifa", "uniform"):
            raise ParameterError(
                f"pairs are 'tifa' or 'uniform' ones, got {self.kind!r}."
            )
        for name in ("negative_weight", "hop_weight", "feature_weight"):
            check_real(getattr(self, name), name)
        check_count(self.n_positives, "n_positives")
        check_count(self.max_hops, "max_hops", high=254)
        check_ranks(self.negative_ranks)

    def n_ranks(self, n_nodes: int) -> int:
        """How many of a graph's nodes are ranked for an anchor."""
        return min(max(self.n_positives, self.negative_ranks[1]), max(n_nodes - 1, 0))


def graph_distances(
    graph_features: np.ndarray | csr_array,
    adjacency: csr_array,
    *,
    max_hops: int = 4,
    device: str | torch.device = "cpu",
) -> GraphDistances:
    """Work out hops and feature similarities of all pairs of nodes, 5 n^2 bytes.

    For graphs small enough, a search takes them for all its fits.

    Parameters
    ----------
    graph_features, adjacency, max_hops, device
        As for :func:`sample_pairs`.

    Returns
    -------
    GraphDistances

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> path = csr_array(np.diag(np.ones(2), 1) + np.diag(np.ones(2), -1))
    >>> graph_distances(np.eye(3, dtype=np.float32), path).hops
    tensor([[0, 1, 2],
            [1, 0, 1],
            [2, 1, 0]], dtype=torch.uint8)
    """
    adjacency = check_adjacency(adjacency)
    graph_features = check_matrix(graph_features, "graph_features")
    if graph_features.shape[0] != adjacency.shape[0]:
        raise GraphError(
            f"graph_features have {graph_features.shape[0]} rows for "
            f"{adjacency.shape[0]} nodes; one row a node is needed."
        )
    device = _ranking_device(device)
    ranking = Ranking(
        *_pattern(adjacency, device),
        pair_features(graph_features, device),
        None,
        PairSettings(max_hops=max_hops),
    )
    everyone = torch.arange(adjacency.shape[0], device=device)
    # A search on the CPU serves 64 anchors at once.
    hops = [ranking.hops(some).to(torch.uint8) for some in everyone.split(1024)]
    return GraphDistances(torch.cat(hops), ranking.negative_cosines(everyone))


def sample_pairs(
    graph_features: np.ndarray | csr_array,
    adjacency: csr_array,
    distribution: ArrayLike,
    *,
    hop_weight: float = 0.5,
    feature_weight: float = 0.75,
    max_hops: int = 4,
    n_positives: int = 5,
    negative_ranks: tuple[int, int] = (50, 150),
    block_size: int | None = None,
    device: str | torch.device = "cpu",
    distances: GraphDistances | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Choose every node's positive and negative set by relative distance.

    The distance of node j from the anchor i is (Eq. 13)

    .. math::
        D_{ij} = S(\mathrm{KL}(p_i \| p_j)) + \lambda_1 S(hops_{ij})
                 + \lambda_2 S(1 - \cos(X_i, X_j)),

    where S scales the anchor's row, itself left out, to [0, 1]; a row that is constant
    becomes 0. The nearest nodes are the anchor's positive set and those of the ranks
    `negative_ranks` its negative set (Eq. 14). Distances are compared in steps of
    2^-20 of the largest weight, or of 1; equal ones rank by node index.

    Parameters
    ----------
    graph_features : ndarray or csr_array, shape (n_nodes, n_features)
        Node features X, float32; a CSR array stays sparse. Rows of zeros have cosine 0
        with every other.
    adjacency : csr_array, shape (n_nodes, n_nodes)
        Symmetric, for the hops.
    distribution : array-like of float64, shape (n_nodes, n_classes)
        Label distribution p of every node; rows sum to 1. Probabilities below 1e-12
        count as 1e-12 in the logarithm.
    hop_weight : float, default=0.5
        Weight of the local topology distance (paper: lambda_1).
    feature_weight : float, default=0.75
        Weight of the feature distance (paper: lambda_2).
    max_hops : int, default=4
        Hops are counted so far, at most 254; nodes beyond, or in another component,
        are at ``max_hops + 1``.
    n_positives : int, default=5
        Size of the positive set (paper: post_end).
    negative_ranks : (int, int), default=(50, 150)
        First rank of the negative set and the rank after its last, from 0 (paper:
        negt_beg, negt_end).
    block_size : int or None, default=None
        Anchors worked on at a time; None takes as many as fit in 128 MiB of
        working memory on the CPU, 1 GiB on CUDA.
    device : str or torch.device, default="cpu"
        Where the distances are computed. A device other than the CPU or CUDA, which
        would lack the operations, leaves the work to the CPU.
    distances : GraphDistances or None, default=None
        Hops (up to `max_hops`) and similarities of the same graph, worked out before;
        None works them out here, without ever holding n x n of them.

    Returns
    -------
    positives : ndarray of int64, shape (n_nodes, n_positives)
        The anchor's nearest nodes, the nearest first; -1 where the graph has no more.
    negatives : ndarray of int64, shape (n_nodes, end - begin)
        The nodes of `negative_ranks`, the nearest first; -1 where it has no more.

    Raises
    ------
    ParameterError
        A parameter is outside its range, or `distribution` holds no probabilities.
    GraphError
        Features, adjacency and distribution are not of the same nodes, or one of them
        is broken or not finite.
    NotEnoughMemoryError
        The sets would not fit in memory.

    Examples
    --------
    Four nodes in a row, the two on the left of one class, the two on the right of
    the other:

    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> path = csr_array(np.diag(np.ones(3), 1) + np.diag(np.ones(3), -1))
    >>> p = np.array([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]])
    >>> positives, negatives = sample_pairs(
    ...     np.eye(4, dtype=np.float32), path, p, n_positives=1, negative_ranks=(2, 3)
    ... )
    >>> positives.ravel(), negatives.ravel()
    (array([1, 0, 3, 2]), array([3, 3, 0, 0]))
    """
    adjacency = check_adjacency(adjacency)
    graph_features = check_matrix(graph_features, "graph_features")
    p = check_matrix(distribution, "distribution", dtype=np.float64)
    n_nodes = adjacency.shape[0]
    _check(graph_features, n_nodes, p)
    settings = PairSettings(
        hop_weight=hop_weight,
        feature_weight=feature_weight,
        n_positives=n_positives,
        negative_ranks=negative_ranks,
        max_hops=max_hops,
    )
    if block_size is not None:
        block_size = check_count(block_size, "block_size", low=1)
    device = _ranking_device(device)
    positives, negatives = nearest_pairs(
        *_pattern(adjacency, device),
        pair_features(graph_features, device),
        torch.tensor(p, device=device),
        settings,
        distances=distances,
        block_size=block_size,
    )
    return positives.cpu().numpy().astype(np.int64), (
        negatives.cpu().numpy().astype(np.int64)
    )


def nearest_pairs(
    crow: Tensor,
    col: Tensor,
    features: Tensor,
    distribution: Tensor,
    settings: PairSettings,
    *,
    distances: GraphDistances | None = None,
    block_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Do as :func:`sample_pairs` with tensors, on their device: the CPU or CUDA.

    The graph is a CSR pattern of int32; features are dense or sparse CSR, float32. The
    sets are int32.
    """
    n_nodes, device = len(crow) - 1, crow.device
    if block_size is None:
        block_size = max(1, _BUDGET[device.type] // (_BYTES_AN_ENTRY * n_nodes))
        if block_size > 64:  # a search serves 64 anchors at once
            block_size -= block_size % 64
    begin, end = settings.negative_ranks
    if 8 * n_nodes * (settings.n_positives + end - begin) > free_memory():
        raise NotEnoughMemoryError(
            f"the sets of {n_nodes} nodes don't fit in memory: lower n_positives="
            f"{settings.n_positives} or the number of negative_ranks={begin, end}."
        )
    sizes = [settings.n_positives, end - begin]
    sets = torch.full((n_nodes, sum(sizes)), -1, dtype=torch.int32, device=device)
    positives, negatives = sets.split(sizes, dim=1)
    n_ranks = settings.n_ranks(n_nodes)
    if n_ranks:
        ranking = Ranking(crow, col, features, distribution, settings, distances)
        for anchors in torch.arange(n_nodes, device=device).split(block_size):
            ranked = ranking.nearest(anchors, n_ranks)
            for kind, part in (
                (positives, ranked[:, : settings.n_positives]),
                (negatives, ranked[:, begin:end]),
            ):
                kind[anchors, : part.shape[1]] = part
    return positives, negatives


def anchor_pairs(
    crow: Tensor,
    col: Tensor,
    features: Tensor,
    distribution: Tensor | None,
    settings: PairSettings,
    generator: torch.Generator,
    n_anchors: int | None = None,
) -> Tensor:
    """Choose the pairs of some anchors inside a subgraph (Eq. 12-14).

    Ranking all nodes for all anchors is quadratic. Random anchors are ranked against
    all nodes of the subgraph, as many as make four million distances (on the CPU half a
    million), and their pairs weigh n / n_anchors: the pair loss is right on average. A
    subgraph of up to 2,000 nodes (700) has all of its pairs. Without a distribution
    they are drawn uniformly. Returns ``M_P - mu_1 M_N``, CSR, with empty rows where a
    node is no anchor.
    """
    n, device = len(crow) - 1, crow.device
    if n_anchors is None:
        n_anchors = max(1, _DISTANCES.get(device.type, 1 << 19) // max(n, 1))
    size = min(n, n_anchors)
    anchors = torch.randperm(n, generator=generator, device=device)[:size].sort().values
    begin, end = settings.negative_ranks
    if settings.kind == "uniform":
        count = end - begin if n > 1 else 0
        negatives = torch.randint(
            max(n - 1, 1), (size, count), generator=generator, device=device
        )
        negatives += negatives >= anchors[:, None]
        positives = negatives[:, :0]
    else:
        ranking = Ranking(crow, col, features, distribution, settings)
        ranked = ranking.nearest(anchors, settings.n_ranks(n))
        positives, negatives = ranked[:, : settings.n_positives], ranked[:, begin:end]
    columns, values = _entries(positives, negatives, settings.negative_weight)
    counts = torch.zeros(n, dtype=torch.int32, device=device)
    counts.index_fill_(0, anchors, columns.shape[1])
    return _operator(counts, columns, values * (n / max(size, 1)))


def uniform_pairs(
    n_nodes: int, n_negatives: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw negatives, (n_nodes, n_negatives), uniformly from all other nodes.

    And no positives: those are (n_nodes, 0). The paper's ablation: pairs that know
    nothing of the labels, as in GRACE. Draws are independent, so a node may come twice;
    -1 where there is no other node.
    """
    check_count(n_nodes, "n_nodes")
    check_count(n_negatives, "n_negatives")
    positives = np.empty((n_nodes, 0), dtype=np.int64)
    if n_nodes < 2:
        return positives, np.full((n_nodes, n_negatives), -1, dtype=np.int64)
    negatives = rng.integers(n_nodes - 1, size=(n_nodes, n_negatives))
    # The anchor's own index stands for the one that was left out: the last.
    negatives += negatives >= np.arange(n_nodes)[:, None]
    return positives, negatives


def pair_operator(
    positives: ArrayOrTensor, negatives: ArrayOrTensor, negative_weight: float | Tensor
) -> csr_array | Tensor:
    r"""Put positive and negative sets, (..., n_nodes, any), into one sparse matrix.

    Row i of :math:`M_P - \mu_1 M_N` holds :math:`1 / |P_i|` at the positives of node i
    and :math:`-\mu_1 / |N_i|` at its negatives, so the pair loss (Eq. 10) takes one
    product with it. An empty set contributes nothing; -1 fills up a row. Arrays give a
    csr_array, tensors CSR on their device; of several models a block each.
    """
    if not isinstance(positives, Tensor):
        return _array_operator(positives, negatives, float(negative_weight))
    columns, values = _entries(positives, negatives, negative_weight)
    n_nodes, width = columns.shape[-2:]
    columns = columns.view(-1, n_nodes, width)
    shift = torch.arange(len(columns), dtype=torch.int32, device=columns.device)
    columns = columns + shift[:, None, None] * n_nodes
    counts = shift.new_full((len(columns) * n_nodes,), width)
    return _operator(counts, columns, values)


def _array_operator(
    positives: np.ndarray, negatives: np.ndarray, negative_weight: float
) -> csr_array:
    sets = np.asarray(positives), np.asarray(negatives)
    n_nodes = len(sets[0])
    for name, pairs in zip(("positives", "negatives"), sets, strict=True):
        if pairs.ndim != 2 or len(pairs) != n_nodes or pairs.dtype.kind not in "iu":
            raise GraphError(
                f"{name} has shape {pairs.shape} and type {pairs.dtype}; the sets need "
                "integers, a row a node in both."
            )
        wrong = (pairs < -1) | (pairs >= n_nodes)
        if wrong.any():
            row, place = np.argwhere(wrong)[0]
            raise GraphError(
                f"{name} names node {pairs[row, place]} in row {row}: nodes are 0 to "
                f"{n_nodes - 1}, and -1 is none."
            )
    made = pair_operator(as_tensor(sets[0]), as_tensor(sets[1]), negative_weight)
    parts = made.values(), made.col_indices(), made.crow_indices()
    operator = csr_array(tuple(part.numpy() for part in parts), shape=made.shape)
    operator.sum_duplicates()
    operator.eliminate_zeros()
    return operator


def _entries(
    positives: Tensor, negatives: Tensor, negative_weight: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Return a row's columns, ascending, and their values; 0 for what is missing."""
    if isinstance(negative_weight, Tensor):
        negative_weight = negative_weight[:, None, None]
    columns, values = [], []
    for pairs, weight in ((positives, 1.0), (negatives, -negative_weight)):
        present = pairs >= 0
        share = weight / present.sum(-1, keepdim=True).clamp(min=1)
        columns.append(pairs.clamp(min=0).int())
        values.append(torch.where(present, share, 0.0).float())
    column, order = torch.cat(columns, -1).sort(dim=-1)
    return column, torch.cat(values, -1).gather(-1, order)


def _operator(counts: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    crow = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    return csr_tensor(crow, columns.flatten(), values.flatten(), (len(counts),) * 2)


def _ranking_device(device: str | torch.device) -> torch.device:
    device = resolve_device(device)
    return device if device.type in _BUDGET else torch.device("cpu")


def _pattern(adjacency: csr_array, device: torch.device) -> tuple[Tensor, Tensor]:
    crow, col = adjacency.indptr, adjacency.indices
    return index_tensor(crow, device), index_tensor(col, device)


def pair_features(features: np.ndarray | csr_array, device: torch.device) -> Tensor:
    """Put features on the device; sparsely filled ones stay CSR."""
    if issparse(features):
        if features.nnz <= _DENSE_FILL * np.prod(features.shape):
            return to_csr(features, device)
        features = features.toarray()
    return torch.tensor(features, dtype=torch.float32, device=device)


def _check(features: np.ndarray | csr_array, n_nodes: int, p: np.ndarray) -> None:
    if p.ndim != 2 or len(p) != n_nodes or features.shape[0] != n_nodes:
        raise GraphError(
            f"The adjacency has {n_nodes} nodes, features have shape {features.shape} "
            f"and distribution {p.shape}; all need one row a node."
        )
    wrong = ~((p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) < 1e-6))
    if wrong.any():
        raise ParameterError(
            f"Row {int(np.argmax(wrong))} of distribution holds no probabilities: they "
            "must be at least 0 and sum to 1. "
            "sktifa.information.tig.label_distribution makes them."
        )


def check_ranks(negative_ranks: Any) -> None:
    """Check the ranks of the negatives: the first, and the one after the last."""
    try:
        begin, end = (check_count(rank, "negative_ranks") for rank in negative_ranks)
        if begin <= end:
            return
    except (TypeError, ValueError):
        pass
    raise ParameterError(
        f"negative_ranks={negative_ranks!r}: give two whole numbers, the first rank, "
        "from 0 on, and the one after the last."
    )
