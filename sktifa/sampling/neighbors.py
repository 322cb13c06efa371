"""Layer-wise neighbour sampling: a few neighbours of each node, a few of theirs."""

from __future__ import annotations

import functools
import importlib
import numbers
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions

from sktifa.exceptions import LabelError, ParameterError
from sktifa.graph import Graph
from sktifa.sampling.base import GraphSampler
from sktifa.sampling.subgraph import Subgraph
from sktifa.tensors.jit import njit

__all__ = ["NeighborSampler", "sample_neighbors"]


class NeighborSampler(GraphSampler):
    """Sample subgraphs layer by layer around seed nodes, as GraphSAGE does.

    From each seed, up to ``num_neighbors[0]`` neighbours are drawn without replacement,
    from each node that this adds up to ``num_neighbors[1]``, and so on. Only
    the edges drawn are in the subgraph, both ways (PyG's
    ``subgraph_type="bidirectional"``). Only seeds count in the loss.

    Parameters
    ----------
    num_neighbors : tuple of int, default=(10, 10)
        Neighbours drawn in each layer; -1 takes all.
    batch_size : int, default=1024
        Seeds of a subgraph.
    seeds : {"labeled", "all"}, default="labeled"
        Nodes that are seeds once an epoch.
    missing_label : int, float, str or None, default=-1
        Marks an unlabelled node in `y`.
    random_state : int, RandomState instance or None, default=None
        Seed of everything drawn. With several processes, give all the same int.

    Attributes
    ----------
    graph_ : Graph
        The whole graph that is sampled.
    classes_ : ndarray of shape (n_classes,), or None
        The labels; None where `y` was not given.
    codes_ : ndarray of int64, shape (n_nodes,), or None
        Each node's class, -1 for unlabelled nodes; None where `y` was not given.
    n_subgraphs_ : int
        Subgraphs of an epoch.
    n_features_in_ : int
        Features of the graph.

    Notes
    -----
    Draws on the CPU: by the kernels of PyTorch Geometric's ``NeighborLoader`` (pyg-lib
    or torch-sparse) where they are installed, else by one of our own.

    References
    ----------
    Hamilton et al., "Inductive Representation Learning on Large Graphs", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.datasets import make_block_graph
    >>> from sktifa.sampling import NeighborSampler
    >>> made = make_block_graph(200, 2, random_state=0)
    >>> y = np.where(np.arange(200) < 50, made.target, -1)
    >>> sampler = NeighborSampler((3, 2), batch_size=25, random_state=0)
    >>> subgraphs = list(sampler.fit(made.graph, y).epoch())
    >>> len(subgraphs), subgraphs[0].loss_norm.count_nonzero().item()
    (2, 25)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "num_neighbors": [tuple, list],
        "batch_size": [Interval(numbers.Integral, 1, None, closed="left")],
        "seeds": [StrOptions({"labeled", "all"})],
        "missing_label": [numbers.Real, str, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        num_neighbors: tuple[int, ...] = (10, 10),
        *,
        batch_size: int = 1024,
        seeds: Literal["labeled", "all"] = "labeled",
        missing_label: int | float | str | None = -1,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.num_neighbors = num_neighbors
        self.batch_size = batch_size
        self.seeds = seeds
        self.missing_label = missing_label
        self.random_state = random_state

    def fit(self, graph: Graph, y: ArrayLike | None = None) -> NeighborSampler:
        """Note the graph and the seeds.

        Parameters
        ----------
        graph : Graph, or what `as_graph` takes
            The whole graph is sampled, also where only some nodes are selected.
        y : array-like of shape (len(graph),), default=None
            Labels of the selected nodes; may be left out with ``seeds="all"``.

        Returns
        -------
        NeighborSampler

        Raises
        ------
        LabelError
            If labels are needed and not there.
        ParameterError
            If a fan-out is neither positive nor -1.
        """
        self._take(graph, y)
        self._check_fan_outs()
        if self.seeds == "all":
            self._seed_nodes = np.arange(self.graph_.n_nodes)
        elif self.codes_ is None:
            raise LabelError('seeds="labeled" needs y; give it, or seeds="all".')
        else:
            self._seed_nodes = np.flatnonzero(self.codes_ >= 0)
        self.n_subgraphs_ = -(-len(self._seed_nodes) // self.batch_size)
        return self

    def _check_fan_outs(self) -> None:
        if not self.num_neighbors:
            raise ParameterError(
                "num_neighbors is empty: give a number of neighbours for each layer."
            )
        for i, fan_out in enumerate(self.num_neighbors):
            is_whole = isinstance(fan_out, numbers.Integral)
            if not is_whole or not (fan_out == -1 or 1 <= fan_out < 2**31):
                raise ParameterError(
                    f"num_neighbors[{i}] is {fan_out!r}: give whole numbers from 1 on, "
                    "or -1 for all neighbours, one for each layer."
                )

    def _drawn_anywhere(self, *key: int) -> Subgraph:
        rng = self._rng(*key)
        size = min(self.batch_size, len(self._seed_nodes))
        return self._subgraph(rng.choice(self._seed_nodes, size, replace=False), rng)

    def _order(self, *key: int) -> NDArray[np.int64]:
        return self._rng(*key).permutation(self._seed_nodes)

    def _drawn_from(self, start: NDArray[np.int64], *key: int) -> Subgraph:
        return self._subgraph(start, self._rng(*key))

    def _subgraph(self, seeds: NDArray[np.int64], rng: np.random.Generator) -> Subgraph:
        adjacency = self.graph_.adjacency
        nodes, target, source, arcs = sample_neighbors(
            adjacency, seeds, self.num_neighbors, rng
        )
        m = len(nodes)  # the seeds are the first of them
        # Both ways; an edge that was drawn both ways stays once.
        arc_of = _find(
            adjacency.indptr,
            adjacency.indices,
            np.asarray(adjacency.indices[arcs], dtype=np.int64),
            nodes[target],
        )
        row, col = np.concatenate([target, source]), np.concatenate([source, target])
        key, first = np.unique(row * m + col, return_index=True)
        arcs = np.concatenate([arcs, arc_of])[first]
        crow = np.searchsorted(key, np.arange(m + 1) * m).astype(np.int32)
        # Each seed is one once an epoch: summed up, an epoch is the mean over them all.
        norm = np.zeros(m, dtype=np.float32)
        norm[: len(seeds)] = self.n_subgraphs_ / self.graph_.n_nodes
        return Subgraph(
            torch.from_numpy(nodes),
            torch.from_numpy(crow),
            torch.from_numpy((key % m).astype(np.int32)),
            torch.from_numpy(arcs),
            loss_norm=torch.from_numpy(norm),
            seed=int(rng.integers(2**31)),
        )

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(self._sequence(*key))


def sample_neighbors(
    adjacency: sparse.csr_array,
    seeds: NDArray[np.int64],
    num_neighbors: tuple[int, ...],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw neighbours layer by layer, uniformly and without replacement.

    As many a node as the fan-out of its layer, -1 for all, from distinct seeds on;
    `rng` advances. Returns the nodes, the seeds first and then in the order in which
    they were drawn; for each arc its target and its source, drawn for it, as positions
    among these nodes; and the arcs' positions in the adjacency's arrays. All are int64.
    """
    if compiled := _compiled_sampler():
        return _sample_compiled(compiled, adjacency, seeds, num_neighbors, rng)
    local = np.full(adjacency.shape[0], -1, dtype=np.int32)
    return _sample(
        adjacency.indptr,
        adjacency.indices,
        np.asarray(seeds, dtype=np.int64),
        np.asarray(num_neighbors, dtype=np.int64),
        local,
        rng,
    )


@functools.cache
def _compiled_sampler() -> str | None:
    """Return which of PyG's companions is installed, and load its operators."""
    for name in ("pyg_lib", "torch_sparse"):
        try:
            importlib.import_module(name)
        except (ImportError, OSError):  # OSError: built for another torch
            continue
        return name
    return None


def _sample_compiled(
    compiled: str,
    adjacency: sparse.csr_array,
    seeds: NDArray[np.int64],
    num_neighbors: tuple[int, ...],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    crow, col, start = (
        torch.from_numpy(np.array(part, dtype=np.int64))
        for part in (adjacency.indptr, adjacency.indices, seeds)
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        if compiled == "pyg_lib":
            drawn = torch.ops.pyg.neighbor_sample(
                crow, col, start, list(num_neighbors), None, None, None, None, True,
                False, True, False, "uniform", True,
            )  # fmt: skip
            target, source, nodes, arcs = drawn[:4]
        else:
            nodes, source, target, arcs = torch.ops.torch_sparse.neighbor_sample(
                crow, col, start, list(num_neighbors), False, True
            )
    return nodes.numpy(), target.numpy(), source.numpy(), arcs.numpy()


@njit()
def _sample(indptr, indices, seeds, fanouts, local, rng):
    capacity = len(seeds)
    nodes = np.empty(max(2 * capacity, 1024), np.int64)
    target = np.empty(max(2 * capacity, 1024), np.int64)
    source, arcs = np.empty_like(target), np.empty_like(target)
    count = n_arcs = 0
    for seed in seeds:
        local[seed] = count
        nodes[count] = seed
        count += 1
    begin = 0
    for fanout in fanouts:
        end = count
        for i in range(begin, end):
            low = indptr[nodes[i]]
            degree = indptr[nodes[i] + 1] - low
            size = degree if fanout < 0 else min(degree, fanout)
            while n_arcs + size > len(target):
                target = np.concatenate((target, np.empty_like(target)))
                source = np.concatenate((source, np.empty_like(source)))
                arcs = np.concatenate((arcs, np.empty_like(arcs)))
            while count + size > len(nodes):
                nodes = np.concatenate((nodes, np.empty_like(nodes)))
            first = n_arcs
            for j in range(size):
                arc = low + j
                if size < degree:
                    # Floyd's: of the first degree - size + j + 1 arcs a random one, or
                    # the last of them where that one is taken.
                    last = degree - size + j
                    arc = low + rng.integers(0, last + 1)
                    for taken in range(first, n_arcs):
                        if arcs[taken] == arc:
                            arc = low + last
                            break
                other = indices[arc]
                if local[other] < 0:
                    local[other] = count
                    nodes[count] = other
                    count += 1
                target[n_arcs], source[n_arcs] = i, local[other]
                arcs[n_arcs] = arc
                n_arcs += 1
        begin = end
    return (
        nodes[:count].copy(),
        target[:n_arcs].copy(),
        source[:n_arcs].copy(),
        arcs[:n_arcs].copy(),
    )


@njit()
def _find(indptr, indices, row, col):
    arcs = np.empty(len(row), np.int64)
    for i in range(len(row)):
        low, high = indptr[row[i]], indptr[row[i] + 1]
        arcs[i] = low + np.searchsorted(indices[low:high], col[i])
    return arcs
