"""Contrastive pairs by relative distance (Eq. 12-14 of the paper).

The distances of a block of anchors to all nodes are held at a time, never n x n of
them, and of each anchor's ranked list only the ranks that become pairs are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, issparse
from torch import Tensor

from sktifa.checks import check_adjacency, check_count, check_matrix, check_real
from sktifa.device import free_memory, resolve_device
from sktifa.exceptions import GraphError, NotEnoughMemoryError, ParameterError
from sktifa.tensors.jit import njit

__all__ = [
    "LARGEST_SHARED",
    "GraphDistances",
    "graph_distances",
    "pair_operator",
    "sample_pairs",
    "uniform_pairs",
]

# Most nodes of a graph whose n x n distances are worth keeping: 500 MB.
LARGEST_SHARED = 10_000

# Rounding errors that must not pass for differences once a row is scaled to [0, 1].
_DIVERGENCE_NOISE = 1e-13
_COSINE_NOISE = 1e-6
# Distances are ranked in steps of 2^-20: ties are ties in spite of rounding.
_STEPS = 2**20
# A probability below this counts as this in a logarithm.
_SMALLEST_PROBABILITY = 1e-12
# Working memory for a block of anchors, and what one entry of it takes in all. On the
# CPU a block that stays near the cache is faster.
_BUDGET = {"cpu": 2**27, "cuda": 2**30}
_BYTES_AN_ENTRY = 48
# CSR features filled more than this are faster dense.
_DENSE_FILL = 0.15


@dataclass(frozen=True)
class GraphDistances:
    """What relative distances on a graph have in common, whatever the labels.

    Parameters
    ----------
    hops : Tensor of uint8, shape (n_nodes, n_nodes)
        Hops from the row's node to the column's.
    negative_cosines : Tensor of float32, shape (n_nodes, n_nodes)
        ``-cos(X_i, X_j)``.
    """

    hops: Tensor
    negative_cosines: Tensor


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
    check_count(max_hops, "max_hops", high=254)
    n_nodes = adjacency.shape[0]
    device = resolve_device(device)
    if device.type not in _BUDGET:
        device = torch.device("cpu")
    indptr, indices = adjacency.indptr.astype(np.int64), np.array(adjacency.indices)
    unit = _unit_rows(graph_features, device)
    return GraphDistances(
        torch.from_numpy(_hops(indptr, indices, 0, n_nodes, max_hops)).to(device),
        _negative_cosines(unit, slice(0, n_nodes)),
    )


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
    # Only the ratios count, and steps of the heaviest term are few enough to index.
    heaviest = max(
        1.0,
        check_real(hop_weight, "hop_weight"),
        check_real(feature_weight, "feature_weight"),
    )
    check_count(n_positives, "n_positives")
    check_count(max_hops, "max_hops", high=254)
    begin, end = _check_ranks(negative_ranks)
    if 8 * n_nodes * (n_positives + end - begin) > free_memory():
        raise NotEnoughMemoryError(
            f"the sets of {n_nodes} nodes don't fit in memory: lower n_positives="
            f"{n_positives} or the number of negative_ranks={negative_ranks}."
        )
    device = resolve_device(device)
    if device.type not in _BUDGET:
        device = torch.device("cpu")
    if block_size is None:
        block_size = max(1, _BUDGET[device.type] // (_BYTES_AN_ENTRY * n_nodes))
        if block_size > 64:  # a search serves 64 anchors at once
            block_size -= block_size % 64
    else:
        check_count(block_size, "block_size", low=1)

    positives = np.full((n_nodes, n_positives), -1, dtype=np.int64)
    negatives = np.full((n_nodes, end - begin), -1, dtype=np.int64)
    n_ranks = min(max(n_positives, end), n_nodes - 1)
    if n_ranks == 0:
        return positives, negatives

    # What is constant in a row, like the entropy of p_i, is lost in the scaling.
    probability = torch.tensor(p, device=device)
    surprise = -probability.clamp(min=_SMALLEST_PROBABILITY).log().T
    unit = None
    if feature_weight and distances is None:
        unit = _unit_rows(graph_features, device)
    # Writable copies: one compiled kernel fits all arrays.
    indptr, indices = adjacency.indptr.astype(np.int64), np.array(adjacency.indices)
    rank = _rank_numba if device.type == "cpu" else _rank_torch

    for first in range(0, n_nodes, block_size):
        block = slice(first, min(first + block_size, n_nodes))
        terms = [(1 / heaviest, probability[block] @ surprise, _DIVERGENCE_NOISE)]
        if hop_weight:
            if distances is None:
                counts = _hops(indptr, indices, block.start, block.stop, max_hops)
                hops = torch.from_numpy(counts).to(device)
            else:
                hops = _rows(distances.hops, block, device)
            terms.append((hop_weight / heaviest, hops, 0.0))
        if feature_weight:
            if distances is not None:
                cosines = _rows(distances.negative_cosines, block, device)
            elif unit is not None:
                cosines = _negative_cosines(unit, block)
            terms.append((feature_weight / heaviest, cosines, _COSINE_NOISE))
        ranked = rank(terms, first, n_ranks)
        positives[block, :n_ranks] = ranked[:, :n_positives]
        negatives[block, : max(n_ranks - begin, 0)] = ranked[:, begin:end]
    return positives, negatives


def uniform_pairs(
    n_nodes: int, n_negatives: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw negatives uniformly from all other nodes, and no positives.

    The paper's ablation: pairs that know nothing of the labels, as in GRACE. Draws are
    independent, so a node may come twice.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    n_negatives : int
        Negatives of each node.
    rng : numpy.random.Generator
        Source of randomness; advances.

    Returns
    -------
    positives : ndarray of int64, shape (n_nodes, 0)
        Empty sets.
    negatives : ndarray of int64, shape (n_nodes, n_negatives)
        The negative sets; -1 where there is no other node.

    Examples
    --------
    >>> import numpy as np
    >>> positives, negatives = uniform_pairs(2, 3, np.random.default_rng(0))
    >>> negatives
    array([[1, 1, 1],
           [0, 0, 0]])
    """
    positives = np.empty((n_nodes, 0), dtype=np.int64)
    if n_nodes < 2:
        return positives, np.full((n_nodes, n_negatives), -1, dtype=np.int64)
    negatives = rng.integers(n_nodes - 1, size=(n_nodes, n_negatives))
    # The anchor's own index stands for the one that was left out: the last.
    negatives += negatives >= np.arange(n_nodes)[:, None]
    return positives, negatives


def pair_operator(
    positives: np.ndarray, negatives: np.ndarray, negative_weight: float
) -> csr_array:
    r"""Put positive and negative sets into one sparse matrix.

    Row i of :math:`M_P - \mu_1 M_N` holds :math:`1 / |P_i|` at the positives of node i
    and :math:`-\mu_1 / |N_i|` at its negatives, so the pair loss (Eq. 10) takes one
    product with it. An empty set contributes nothing.

    Parameters
    ----------
    positives, negatives : ndarray of int64, shape (n_nodes, any)
        Sets from :func:`sample_pairs` or :func:`uniform_pairs`; -1 fills up a row.
    negative_weight : float
        Weight of the negative pairs (paper: mu_1).

    Returns
    -------
    csr_array of float32, shape (n_nodes, n_nodes)
        The operator, indices sorted.

    Examples
    --------
    >>> import numpy as np
    >>> positives, negatives = np.array([[1], [0], [-1]]), np.array([[2], [2], [0]])
    >>> pair_operator(positives, negatives, 0.5).toarray()
    array([[ 0. ,  1. , -0.5],
           [ 1. ,  0. , -0.5],
           [-0.5,  0. ,  0. ]], dtype=float32)
    """
    n_nodes = len(positives)
    rows, columns, values = [], [], []
    for pairs, weight in ((positives, 1.0), (negatives, -negative_weight)):
        present = pairs >= 0
        counts = present.sum(axis=1)
        row = np.repeat(np.arange(n_nodes), counts)
        rows.append(row)
        columns.append(pairs[present])
        values.append(weight / counts[row])
    operator = coo_array(
        (
            np.concatenate(values).astype(np.float32),
            (np.concatenate(rows), np.concatenate(columns)),
        ),
        shape=(n_nodes, n_nodes),
    ).tocsr()
    operator.eliminate_zeros()
    return operator


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


def _check_ranks(negative_ranks: tuple[int, int]) -> tuple[int, int]:
    try:
        begin, end = negative_ranks
    except (TypeError, ValueError):
        begin, end = 1, 0
    if begin > end:
        raise ParameterError(
            "negative_ranks must be two ranks (begin, end) with 0 <= begin <= end, got "
            f"{negative_ranks}."
        )
    return check_count(begin, "negative_ranks[0]"), check_count(
        end, "negative_ranks[1]"
    )


# A weight, the distances of a block of anchors to all nodes, and their rounding noise.
_Term = tuple[float, Tensor, float]


def _rank_torch(terms: list[_Term], first: int, n_ranks: int) -> np.ndarray:
    """Rank all nodes for a block of anchors by the sum of the scaled terms.

    The anchors are the nodes from `first` on; each is left out of its own row, and
    rows whose range is no more than the noise add 0. Uses the terms up.
    """
    n_anchors, n_nodes = terms[0][1].shape
    node = torch.arange(n_nodes, device=terms[0][1].device)
    row, anchor = node[:n_anchors], node[first : first + n_anchors]
    total = torch.zeros(n_anchors, n_nodes, device=node.device)
    for weight, distance, noise in terms:
        distance[row, anchor] = distance[row, (anchor + 1) % n_nodes]
        low, high = distance.aminmax(dim=1, keepdim=True)
        width = high - low
        factor = torch.where(width > noise, weight * _STEPS / width, 0)
        total.addcmul_(distance.sub_(low).to(torch.float32), factor.to(torch.float32))
    key = torch.add(node, total.round_().to(torch.int64), alpha=n_nodes)
    key[row, anchor] = torch.iinfo(torch.int64).max
    nearest = key.topk(n_ranks, largest=False, sorted=True).values % n_nodes
    return nearest.cpu().numpy()


def _rank_numba(terms: list[_Term], first: int, n_ranks: int) -> np.ndarray:
    """Do the same on the CPU, in a few passes over each row while it is in cache."""
    total = np.zeros(terms[0][1].shape, dtype=np.float32)
    for weight, distance, noise in terms:
        _add_scaled(total, weight * _STEPS, distance.numpy(), noise, first)
    return _smallest(total, first, n_ranks)


@njit(fastmath=True)
def _add_scaled(total, weight, distance, noise, first):
    for row in range(len(distance)):
        values, anchor = distance[row], first + row
        low = high = values[anchor - 1]  # any but the anchor's: the last, for node 0
        for part in (values[:anchor], values[anchor + 1 :]):
            for value in part:
                low = min(low, value)
                high = max(high, value)
        if high - low > noise:
            factor = np.float32(weight / (high - low))
            for node in range(len(values)):
                total[row, node] += np.float32(values[node] - low) * factor


@njit()
def _smallest(total, first, n_ranks):
    """Nodes of the smallest rounded entries of each row, in order, ties by index."""
    n_rows, n_nodes = total.shape
    ranked = np.empty((n_rows, n_ranks), np.int64)
    steps = np.empty(n_nodes, np.int64)
    for row in range(n_rows):
        anchor = first + row
        largest = 0
        for node in range(n_nodes):
            steps[node] = np.rint(total[row, node])
            if node != anchor:
                largest = max(largest, steps[node])
        # A histogram tells below which value there are enough nodes to sort.
        shift = 0
        while (largest >> shift) >= 4096:
            shift += 1
        counts = np.zeros(4096, np.int64)
        for node in range(n_nodes):
            if node != anchor:
                counts[steps[node] >> shift] += 1
        bound, enough = 0, counts[0]
        while enough < n_ranks:
            bound += 1
            enough += counts[bound]
        keys = np.empty(enough, np.int64)
        size = 0
        for node in range(n_nodes):
            if node != anchor and (steps[node] >> shift) <= bound:
                keys[size] = steps[node] * n_nodes + node
                size += 1
        keys.sort()
        for rank in range(n_ranks):
            ranked[row, rank] = keys[rank] % n_nodes
    return ranked


def _rows(matrix: Tensor, block: slice, device: torch.device) -> Tensor:
    """Rows of what is shared: on the CPU nobody writes to them, a GPU uses them up."""
    return matrix[block].to(device, copy=device.type == "cuda")


def _unit_rows(features: np.ndarray | csr_array, device: torch.device) -> Tensor:
    """Rows scaled to length 1, rows of zeros left; sparsely filled ones stay CSR."""
    if issparse(features) and features.nnz > _DENSE_FILL * np.prod(features.shape):
        features = features.toarray()
    if issparse(features):
        lengths = np.sqrt(features.multiply(features).sum(axis=1))
        lengths[lengths == 0] = 1
        values = features.data / np.repeat(lengths, np.diff(features.indptr))
        return torch.sparse_csr_tensor(
            torch.tensor(features.indptr, dtype=torch.int32),
            torch.tensor(features.indices, dtype=torch.int32),
            torch.tensor(values, dtype=torch.float32),
            features.shape,
        ).to(device)
    return torch.nn.functional.normalize(
        torch.tensor(features, dtype=torch.float32, device=device), eps=1e-30
    )


def _negative_cosines(unit: Tensor, block: slice) -> Tensor:
    """-cos of a block of anchors with all nodes, shape (n_anchors, n_nodes)."""
    if unit.layout != torch.sparse_csr:
        return -unit[block] @ unit.T
    return (unit @ -_dense_rows(unit, block).T.contiguous()).T.contiguous()


def _dense_rows(matrix: Tensor, block: slice) -> Tensor:
    """Densify a few rows of a CSR tensor."""
    crow = matrix.crow_indices()[block.start : block.stop + 1].long()
    entries = slice(int(crow[0]), int(crow[-1]))
    n_rows = block.stop - block.start
    dense = matrix.values().new_zeros(n_rows, matrix.shape[1])
    rows = torch.arange(n_rows, device=crow.device).repeat_interleave(crow.diff())
    dense[rows, matrix.col_indices()[entries].long()] = matrix.values()[entries]
    return dense


@njit()
def _hops(indptr, indices, start, stop, max_hops):
    """Hops from the nodes start .. stop - 1 to all nodes, shape (stop - start, n).

    Breadth-first searches from 64 nodes at once, one bit each in a node's word.
    """
    n_nodes = len(indptr) - 1
    hops = np.full((stop - start, n_nodes), max_hops + 1, np.uint8)
    seen = np.empty(n_nodes, np.uint64)
    for first in range(start, stop, 64):
        width = min(64, stop - first)
        seen[:] = 0
        for bit in range(width):
            seen[first + bit] = np.uint64(1) << np.uint64(bit)
            hops[first - start + bit, first + bit] = 0
        frontier = seen.copy()
        for level in range(1, max_hops + 1):
            reached = np.zeros(n_nodes, np.uint64)
            for node in range(n_nodes):
                word = np.uint64(0)
                for arc in range(indptr[node], indptr[node + 1]):
                    word |= frontier[indices[arc]]
                reached[node] = word & ~seen[node]
            for node in range(n_nodes):
                word = reached[node]
                if word != 0:
                    seen[node] |= word
                    for bit in range(width):
                        if (word >> np.uint64(bit)) & np.uint64(1):
                            hops[first - start + bit, node] = level
            frontier = reached
    return hops
