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
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sktifa.sampling.subgraph import Subgraph
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.jit import njit
from sktifa.tensors.sparse import csr_tensor

__all__ = [
    "CPUWalker",
    "TorchWalker",
    "arc_distances",
    "make_walker",
    "step_probabilities",
    "step_thresholds",
]

# One as a fixed-point probability. Draws are below it, so that a row's last
# threshold always ends the search.
ONE = 2**31 - 1
# Arcs whose probabilities are worked out together.
_ARCS_AT_ONCE = {"cpu": 1 << 18, "cuda": 1 << 26}
# Up to a node in so many, roots are drawn one by one.
_FEW = 16


# ----------------------------------------------------------------- probabilities


def arc_distances(
    graph: DeviceGraph, distribution: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Compute Eq. 12 on the arcs: D^g(i, j) = KL(p_i ‖ p_j), scaled to [0, 1].

    The graph is symmetric, rows of the distribution sum to 1. All 0 where all arcs are
    equally far.
    """
    n, n_arcs, tiny = graph.n_nodes, len(graph.col), torch.finfo(torch.float32).tiny
    if not n_arcs:
        return torch.empty(0, dtype=dtype, device=graph.device)
    p = distribution.to(graph.device, dtype)
    log_p = p.clamp_min(tiny).log()
    zeros = torch.zeros(n_arcs, dtype=dtype, device=graph.device)
    arcs = csr_tensor(graph.crow, graph.col, zeros, (n, n))
    # Of p log p' only what stands on an arc is worked out.
    cross = torch.sparse.sampled_addmm(arcs, p, log_p.T, beta=0.0).values()
    distance = (p * log_p).sum(1).index_select(0, graph.row).sub_(cross).clamp_min_(0)
    low, high = distance.aminmax()
    return distance.sub_(low).div_((high - low).clamp_min_(tiny))


def step_thresholds(
    graph: DeviceGraph, distance: Tensor, sharpness: float, epsilon: float
) -> Tensor:
    """Turn arc distances into the cumulative step probabilities of each row, int32.

    ``P(i, j) ∝ exp(t · A(i, j) / (D(i, j) + ε))`` over the neighbours j of i
    (Algorithm 1, lines 3 and 4), with the weights A divided by the largest, t the
    sharpness and D from `arc_distances`. In fixed point: a row ends with 2^31 − 1.
    """
    crow, n_arcs = graph.crow, len(distance)
    thresholds = torch.empty(n_arcs, dtype=torch.int32, device=distance.device)
    heaviest: Any = None if graph.weight is None else graph.weight.max()
    # In double precision a few rows at a time.
    step = _ARCS_AT_ONCE.get(crow.device.type, n_arcs)
    starts = torch.arange(0, n_arcs, step, dtype=crow.dtype, device=crow.device)
    bounds = torch.searchsorted(crow, starts).tolist()
    for first, last in pairwise([*bounds, graph.n_nodes]):
        counts = crow[first : last + 1].diff().long()
        counts = counts[counts > 0]
        if not len(counts):  # a row before it is longer than a step
            continue
        begin, end = int(crow[first]), int(crow[last])
        score = sharpness / (distance[begin:end] + epsilon)
        if graph.weight is not None:
            score *= graph.weight[begin:end] / heaviest
        row = torch.repeat_interleave(counts, output_size=end - begin)
        top = score.new_empty(len(counts)).scatter_reduce_(
            0, row, score, "amax", include_self=False
        )
        total = score.sub_(top.index_select(0, row)).double().exp_().cumsum_(0)
        ends = counts.cumsum(0) - 1
        base = functional.pad(total[ends[:-1]], (1, 0))
        height = total[ends] - base
        total.sub_(base.index_select(0, row)).div_(height.index_select(0, row))
        part = total.mul_(ONE).round_().int()
        part[ends] = ONE
        thresholds[begin:end] = part
    return thresholds


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


# ------------------------------------------------------------------------ walkers


def make_walker(
    graph: DeviceGraph, thresholds: Tensor | None = None
) -> CPUWalker | TorchWalker:
    """Make the walker of a graph with `step_thresholds` (None: uniform)."""
    walker = TorchWalker if graph.device.type == "cuda" else CPUWalker
    return walker(graph, thresholds)


class CPUWalker:
    """Walks on the CPU, along arrays that may be read-only memory maps.

    `thresholds` are the cumulative probabilities of each row; None is uniform steps.
    """

    device = torch.device("cpu")

    def __init__(self, graph: DeviceGraph, thresholds: Tensor | None = None) -> None:
        self.crow, self.col = graph.crow.numpy(), graph.col.numpy()
        self.thresholds = None if thresholds is None else thresholds.numpy()

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


class TorchWalker:
    """Walks on the device of the graph, as `CPUWalker` does.

    One search per step in one ascending array of ``row · 2^31 + threshold`` takes one
    kernel where a search within rows would take a hundred; it costs 8 bytes an arc.
    """

    def __init__(self, graph: DeviceGraph, thresholds: Tensor | None = None) -> None:
        self.crow, self.col = graph.crow, graph.col
        self.keys = None if thresholds is None else (graph.row << 31) + thresholds
        # Shared by all calls, −1 but for the nodes of the call that holds the lock.
        self._local = torch.full(
            (graph.n_nodes,), -1, dtype=torch.int32, device=graph.device
        )
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
        size = len(roots)
        like: Any = {"dtype": torch.int64, "device": self.device}
        draws = torch.randint(ONE, (walk_length, size), generator=generator, **like)
        paths = torch.empty((walk_length + 1, size), **like)
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
