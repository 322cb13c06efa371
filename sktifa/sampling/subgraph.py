"""Random walks and the subgraphs that they induce, where the graph lies.

A walker holds a graph's CSR arrays and, unless its steps are uniform, the cumulative
transition probabilities of each row as fixed-point numbers of 31 bits: as short as
float32, and finer near 1. All walkers step at once, each by a binary search in its
row. On the CPU the kernels are numba's and hold no lock; on a GPU they are torch's,
and nothing leaves the device.

A walker keeps no generator: the same seed and roots give the same subgraph, in any
thread, in any order.
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from sktifa.tensors.jit import njit

__all__ = [
    "CPUWalker",
    "Subgraph",
    "TorchWalker",
    "arc_distances",
    "csr_pattern",
    "make_walker",
    "step_probabilities",
    "step_thresholds",
]

# A NumPy array where the CPU walks, a tensor elsewhere.
Array: TypeAlias = Any
Pattern: TypeAlias = tuple[Array, Array]

# One as a fixed-point probability. Draws are below it, so that a row's last
# threshold always ends the search.
ONE = 2**31 - 1
# Up to a node in so many, roots are drawn one by one.
_FEW = 16


@dataclass
class Subgraph:
    """The subgraph induced by some nodes, on the device that drew it.

    Attributes
    ----------
    nodes : Tensor of int64, shape (m,)
        The nodes' numbers in the whole graph, ascending.
    crow, col : Tensor of int32, shapes (m + 1,) and (n_arcs,)
        CSR pattern in the subgraph's own numbering, columns ascending.
    arcs : Tensor of int64, shape (n_arcs,)
        Position of each arc in the whole graph's CSR arrays.
    loss_norm : Tensor of float32, shape (m,), or None
        GraphSAINT's weight of each node in the loss.
    aggregation_norm : Tensor of float32, shape (n_arcs,), or None
        GraphSAINT's weight of each arc's message to its row's node.
    seed : int or None
        Seeds what is drawn inside the subgraph, in whatever thread that is.
    """

    nodes: Tensor
    crow: Tensor
    col: Tensor
    arcs: Tensor
    loss_norm: Tensor | None = None
    aggregation_norm: Tensor | None = None
    seed: int | None = None

    def __len__(self) -> int:
        return self.nodes.shape[0]

    @property
    def row(self) -> Tensor:
        """Row of each arc, int64: the node that receives its message."""
        counts = (self.crow[1:] - self.crow[:-1]).long()
        return torch.repeat_interleave(counts, output_size=self.col.shape[0])

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Tell the allocator that `stream` uses the tensors too."""
        for field in fields(self):
            tensor = getattr(self, field.name)
            if isinstance(tensor, Tensor) and tensor.is_cuda:
                tensor.record_stream(stream)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array that may be read-only to a device that is not the CPU."""
    with warnings.catch_warnings():
        # Nothing is written to what is only copied from.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        return torch.from_numpy(np.asarray(array)).to(device)


def csr_pattern(matrix: sparse.csr_array, device: torch.device) -> Pattern:
    """Lay a graph's CSR pattern where its walks are to be.

    Parameters
    ----------
    matrix : csr_array of shape (n_nodes, n_nodes)
        Symmetric; the values are not read.
    device : torch.device
        Other devices than CUDA leave the walks to the CPU.

    Returns
    -------
    crow, col : tuple of Tensor, or of ndarray
        Tensors on a CUDA device; otherwise the matrix's own arrays.
    """
    if device.type == "cuda":
        return to_device(matrix.indptr, device), to_device(matrix.indices, device)
    return np.asarray(matrix.indptr), np.asarray(matrix.indices)


def make_walker(
    pattern: Pattern, thresholds: Array | None = None
) -> CPUWalker | TorchWalker:
    """Make the walker for a pattern and its `step_thresholds` (None: uniform)."""
    crow, col = pattern
    if isinstance(crow, Tensor):
        return TorchWalker(crow, col, thresholds)
    return CPUWalker(crow, col, thresholds)


class CPUWalker:
    """Walks on the CPU.

    Parameters
    ----------
    crow, col : ndarray of int32 or int64
        CSR pattern of a symmetric graph; may be read-only memory maps.
    thresholds : ndarray of int32, shape (n_arcs,), default=None
        Cumulative probabilities of each row; None for uniform steps.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        crow: NDArray[np.integer],
        col: NDArray[np.integer],
        thresholds: NDArray[np.int32] | None = None,
    ) -> None:
        self.crow, self.col, self.thresholds = crow, col, thresholds

    def roots(self, count: int, seed: int) -> NDArray[np.int64]:
        """Draw roots uniformly, none twice, in random order."""
        n = len(self.crow) - 1
        return np.random.default_rng(seed).choice(n, count, replace=False)

    def walk(
        self, roots: NDArray[np.integer], walk_length: int, seed: int
    ) -> NDArray[np.int32]:
        """Return where each walker was, shape (walk_length + 1, n_roots)."""
        shape = (walk_length, len(roots))
        draws = np.random.default_rng(seed).integers(ONE, size=shape, dtype=np.int32)
        return _walk(self.crow, self.col, self.thresholds, np.asarray(roots), draws)

    def induce(self, nodes: NDArray[np.integer]) -> Subgraph:
        """Induce the subgraph of the distinct `nodes`."""
        marked = _mark(np.asarray(nodes).ravel(), len(self.crow) - 1)
        kept, crow, col, arcs = map(
            torch.from_numpy, _induce(self.crow, self.col, marked)
        )
        return Subgraph(kept, crow, col, arcs)

    def sample(
        self, roots: NDArray[np.integer], walk_length: int, seed: int
    ) -> Subgraph:
        """Walk from `roots` and induce the subgraph of all nodes visited."""
        return self.induce(self.walk(roots, walk_length, seed))

    def cpu(self) -> CPUWalker:
        """Return the walker itself."""
        return self


class TorchWalker:
    """Walks on the device of the tensors that it is given.

    Parameters
    ----------
    crow, col : Tensor of int32 or int64
        CSR pattern of a symmetric graph.
    thresholds : Tensor of int32, shape (n_arcs,), default=None
        Cumulative probabilities of each row; None for uniform steps.

    Notes
    -----
    One search per step in one ascending array of ``row · 2^31 + threshold`` takes one
    kernel where a search within rows would take a hundred; it costs 8 bytes an arc.
    """

    def __init__(
        self, crow: Tensor, col: Tensor, thresholds: Tensor | None = None
    ) -> None:
        self.crow, self.col = crow, col
        self.keys = None
        if thresholds is not None:
            self.keys = (_arc_rows(crow, col) << 31) + thresholds
        # Shared by all calls, −1 but for the nodes of the call that holds the lock.
        self._local = torch.full((len(crow) - 1,), -1, dtype=torch.int32).to(col.device)
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        """Where the graph lies."""
        return self.col.device

    @property
    def thresholds(self) -> NDArray[np.int32] | None:
        """Cumulative probabilities of each row, on the host."""
        return None if self.keys is None else (self.keys & ONE).int().cpu().numpy()

    def roots(self, count: int, seed: int) -> Tensor:
        """Draw roots uniformly, none twice, in random order."""
        n, device = len(self.crow) - 1, self.device
        generator = torch.Generator(device).manual_seed(seed)
        if count <= n // _FEW:
            # Some more than are wanted, less those that were drawn before: on a GPU
            # far less work than to permute all nodes.
            size = count + count * count // n + 64
            draws = torch.randint(n, (size,), generator=generator, device=device)
            ordered, place = draws.sort(stable=True)
            is_first = torch.ones_like(ordered, dtype=torch.bool)
            is_first[1:] = ordered[1:] != ordered[:-1]
            chosen = place[is_first].sort().values[:count]
            if len(chosen) == count:
                return draws[chosen]
        return torch.randperm(n, generator=generator, device=device)[:count]

    def walk(self, roots: Tensor, walk_length: int, seed: int) -> Tensor:
        """Return where each walker was, shape (walk_length + 1, n_roots)."""
        generator = torch.Generator(self.device).manual_seed(seed)
        draws = torch.randint(
            ONE,
            (walk_length, len(roots)),
            generator=generator,
            device=self.device,
            dtype=torch.int64,
        )
        paths = torch.empty(
            (walk_length + 1, len(roots)), dtype=torch.int64, device=self.device
        )
        paths[0] = roots
        for step in range(walk_length):
            paths[step + 1] = self._step(paths[step], draws[step])
        return paths

    def _step(self, at: Tensor, draw: Tensor) -> Tensor:
        if not len(self.col):
            return at
        start, end = self.crow[at], self.crow[at + 1]
        if self.keys is None:
            arc = start + (draw * (end - start) >> 31)
        else:
            arc = torch.searchsorted(self.keys, (at << 31) + draw, right=True)
        # An isolated node has no arc; the one found instead is another node's.
        arc.clamp_(max=len(self.col) - 1)
        return torch.where(end > start, self.col[arc], at)

    def induce(self, nodes: Tensor) -> Subgraph:
        """Induce the subgraph of the distinct `nodes`."""
        with self._lock:
            subgraph = self._induce(nodes)
            if self.device.type == "cuda":
                # The next call may come from another stream, and shares the map.
                torch.cuda.current_stream(self.device).synchronize()
        return subgraph

    def _induce(self, visited: Tensor) -> Subgraph:
        local, index_type = self._local, self.crow.dtype
        local[visited.ravel()] = 0
        nodes = (local >= 0).nonzero().view(-1)
        local[nodes] = torch.arange(len(nodes), dtype=torch.int32, device=self.device)
        start = self.crow[nodes]
        degree = self.crow[nodes + 1] - start
        end = degree.cumsum(0)
        total = int(end[-1])
        # Candidate c of node i stands at start[i] + c - (end[i] - degree[i]).
        arcs = torch.repeat_interleave(
            start - (end - degree).to(index_type), degree, output_size=total
        )
        arcs += torch.arange(total, dtype=index_type, device=self.device)
        col = local[self.col[arcs]]
        kept = (col >= 0).nonzero().view(-1)
        local[nodes] = -1
        crow = torch.searchsorted(kept, end, out_int32=True)
        crow = torch.cat([crow.new_zeros(1), crow])
        return Subgraph(nodes, crow, col[kept], arcs[kept].long())

    def sample(self, roots: Tensor, walk_length: int, seed: int) -> Subgraph:
        """Walk from `roots` and induce the subgraph of all nodes visited."""
        return self.induce(self.walk(roots, walk_length, seed))

    def cpu(self) -> CPUWalker:
        """Return a walker with the same probabilities on the CPU."""
        return CPUWalker(
            self.crow.cpu().numpy(), self.col.cpu().numpy(), self.thresholds
        )


def arc_distances(pattern: Pattern, distribution: Array) -> Array:
    """Compute Eq. 12 on the arcs: D^g(i, j) = KL(p_i ‖ p_j), scaled to [0, 1].

    Parameters
    ----------
    pattern : tuple of crow and col
        From `csr_pattern`.
    distribution : ndarray or Tensor of shape (n_nodes, n_classes)
        Label distribution of each node, rows sum to 1.

    Returns
    -------
    ndarray or Tensor of float32, shape (n_arcs,)
        Like the pattern. All 0 where all arcs are equally far.
    """
    crow, col = pattern
    tiny = float(np.finfo(np.float32).tiny)
    if isinstance(crow, Tensor):
        p: Array = torch.as_tensor(distribution).to(crow.device, torch.float32)
        distance = _kl_on_arcs_torch(crow, col, p, tiny)
    else:
        p = np.ascontiguousarray(distribution, dtype=np.float32)
        distance = _kl_on_arcs(crow, col, p, np.log(np.maximum(p, np.float32(tiny))))
    if len(distance):
        low, high = distance.min(), distance.max()
        distance -= low
        distance /= max(float(high - low), tiny)
    return distance


def step_thresholds(
    pattern: Pattern,
    distance: Array,
    sharpness: float,
    epsilon: float,
    weights: NDArray[np.float32] | None = None,
) -> Array:
    """Turn arc distances into the cumulative step probabilities of each row.

    ``P(i, j) ∝ exp(t · A(i, j) / (D(i, j) + ε))`` over the neighbours j of i
    (Algorithm 1, lines 3 and 4), with the weights A divided by the largest.

    Parameters
    ----------
    pattern : tuple of crow and col
        From `csr_pattern`.
    distance : ndarray or Tensor of float32, shape (n_arcs,)
        From `arc_distances`.
    sharpness, epsilon : float
        t and ε.
    weights : ndarray of float32, shape (n_arcs,), default=None
        A; None where all are equal.

    Returns
    -------
    ndarray or Tensor of int32, shape (n_arcs,)
        Fixed-point; a row ends with 2^31 − 1.
    """
    crow, _ = pattern
    score = sharpness / (distance + epsilon)
    if weights is not None and len(weights):
        relative = weights / weights.max()
        if isinstance(score, Tensor):
            relative = to_device(relative, score.device)
        score *= relative
    if isinstance(score, Tensor):
        return _thresholds_torch(crow, score)
    return _thresholds(crow, score)


def step_probabilities(
    crow: NDArray[np.integer], thresholds: NDArray[np.int32] | None
) -> NDArray[np.float64]:
    """Return the probability of each arc, as a walker draws it."""
    degree = np.diff(crow)
    if thresholds is None:
        return np.repeat(1 / np.maximum(degree, 1), degree)
    share = np.diff(thresholds.astype(np.float64), prepend=0.0)
    first = crow[:-1][degree > 0]
    share[first] = thresholds[first]
    return share / ONE


# ------------------------------------------------------------------ CPU kernels


@njit()
def _walk(crow, col, thresholds, roots, draws):
    n_steps, n_roots = draws.shape
    paths = np.empty((n_steps + 1, n_roots), dtype=np.int32)
    for i in range(n_roots):
        paths[0, i] = roots[i]
    # Step by step, not walker by walker: the searches of one step are independent,
    # so the processor waits for several of them at once.
    for step in range(n_steps):
        for i in range(n_roots):
            at = paths[step, i]
            low, high = crow[at], crow[at + 1]
            draw = np.int64(draws[step, i])
            if low == high:
                paths[step + 1, i] = at
                continue
            if thresholds is None:
                low += draw * (high - low) >> 31
            else:
                high -= 1
                while low < high:
                    middle = (low + high) >> 1
                    if thresholds[middle] > draw:
                        high = middle
                    else:
                        low = middle + 1
            paths[step + 1, i] = col[low]
    return paths


@njit()
def _mark(nodes, n):
    """Return a bit set of the nodes: it stays in the cache where a map would not."""
    words = np.zeros((n >> 6) + 1, dtype=np.uint64)
    for i in range(len(nodes)):
        words[nodes[i] >> 6] |= np.uint64(1) << np.uint64(nodes[i] & 63)
    return words


@njit(inline="always")
def _count_bits(word):
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int32((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit()
def _induce(crow, col, marked):
    one = np.uint64(1)
    # A node's number in the subgraph is the count of marked nodes before it.
    before = np.empty(len(marked), dtype=np.int32)
    count = np.int32(0)
    for w in range(len(marked)):
        before[w] = count
        count += _count_bits(marked[w])
    nodes = np.empty(count, dtype=np.int64)
    n_candidates = np.int64(0)
    i = 0
    for w in range(len(marked)):
        word = marked[w]
        while word:
            # The lowest bit, alone; one less is a mask of the zeros below it.
            u = (w << 6) + _count_bits((word & (~word + one)) - one)
            nodes[i] = u
            n_candidates += crow[u + 1] - crow[u]
            i += 1
            word &= word - one
    local_crow = np.empty(count + 1, dtype=np.int32)
    local_col = np.empty(n_candidates, dtype=np.int32)
    arcs = np.empty(n_candidates, dtype=np.int64)
    kept = 0
    for i in range(count):
        local_crow[i] = kept
        for arc in range(crow[nodes[i]], crow[nodes[i] + 1]):
            v = col[arc]
            word = marked[v >> 6]
            bit = one << np.uint64(v & 63)
            if word & bit:
                local_col[kept] = before[v >> 6] + _count_bits(word & (bit - one))
                arcs[kept] = arc
                kept += 1
    local_crow[count] = kept
    return nodes, local_crow, local_col[:kept].copy(), arcs[:kept].copy()


@njit(fastmath={"reassoc", "contract"})
def _kl_on_arcs(crow, col, p, log_p):
    distance = np.empty(len(col), dtype=np.float32)
    n_classes = p.shape[1]
    for i in range(len(crow) - 1):
        row = p[i]
        own = np.float32(0)
        for c in range(n_classes):
            own += row[c] * log_p[i, c]
        for arc in range(crow[i], crow[i + 1]):
            other = log_p[col[arc]]
            cross = np.float32(0)
            for c in range(n_classes):
                cross += row[c] * other[c]
            distance[arc] = max(own - cross, np.float32(0))
    return distance


@njit()
def _thresholds(crow, score):
    thresholds = np.empty(len(score), dtype=np.int32)
    share = np.empty(0 if len(crow) < 2 else np.diff(crow).max(), dtype=np.float64)
    for i in range(len(crow) - 1):
        low, high = crow[i], crow[i + 1]
        if low == high:
            continue
        top = score[low:high].max()
        total = 0.0
        for arc in range(low, high):
            total += np.exp(np.float64(score[arc] - top))
            share[arc - low] = total
        for arc in range(low, high):
            thresholds[arc] = np.int32(np.rint(share[arc - low] / total * ONE))
        thresholds[high - 1] = ONE
    return thresholds


# ---------------------------------------------------------------- torch kernels


def _arc_rows(crow: Tensor, col: Tensor) -> Tensor:
    counts = (crow[1:] - crow[:-1]).long()
    return torch.repeat_interleave(counts, output_size=len(col))


def _kl_on_arcs_torch(
    crow: Tensor, col: Tensor, p: Tensor, tiny: float, block: int = 1 << 22
) -> Tensor:
    row = _arc_rows(crow, col)
    log_p = p.clamp_min(tiny).log()
    own = (p * log_p).sum(1)
    distance = p.new_empty(len(col))
    # In blocks: what is gathered has one row an arc.
    for begin in range(0, len(col), block):
        part = slice(begin, begin + block)
        cross = (p[row[part]] * log_p[col[part]]).sum(1)
        distance[part] = own[row[part]] - cross
    return distance.clamp_min_(0)


def _thresholds_torch(crow: Tensor, score: Tensor) -> Tensor:
    row = _arc_rows(crow, score)
    top = score.new_zeros(len(crow) - 1).scatter_reduce_(
        0, row, score, "amax", include_self=False
    )
    total = (score - top[row]).double().exp_().cumsum_(0)
    filled = crow[1:] > crow[:-1]
    first, last = crow[:-1][filled].long(), crow[1:][filled].long() - 1
    base = total.new_zeros(len(crow) - 1)
    base[filled] = torch.cat([total.new_zeros(1), total])[first]
    height = torch.ones_like(base)
    height[filled] = total[last] - base[filled]
    thresholds = total.sub_(base[row]).div_(height[row]).mul_(ONE).round_().int()
    thresholds[last] = ONE
    return thresholds
