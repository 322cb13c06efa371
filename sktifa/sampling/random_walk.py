"""SAINT-TIFA: subgraphs of random walks that prefer neighbours of like information."""

from __future__ import annotations

import numbers
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sktifa.device import free_memory, resolve_device, undisturbed
from sktifa.exceptions import LabelError, NotEnoughMemoryError
from sktifa.graph import Graph
from sktifa.graph.adjacency import with_values
from sktifa.information.tig import (
    annotated_information,
    check_information,
    label_distribution,
)
from sktifa.sampling.base import PRESAMPLE, GraphSampler
from sktifa.sampling.subgraph import Subgraph
from sktifa.sampling.walker import (
    arc_distances,
    make_walker,
    step_probabilities,
    step_thresholds,
)
from sktifa.tensors.device_graph import DeviceGraph

__all__ = ["SAINTTIFASampler"]

# Below this epsilon rounding errors of float32 distances would show (READING 20).
_FINE = 0.01


class SAINTTIFASampler(GraphSampler):
    r"""Sample subgraphs by random walks that stay among like nodes (Algorithm 1).

    From random roots, walkers step to a neighbour j of their node i with probability

    .. math:: P(i, j) \propto \exp(t \\, A(i, j) / (D^g(i, j) + \epsilon))

    where :math:`D^g(i, j)` is the Kullback-Leibler divergence between the label
    distributions of i and j (Eq. 12), scaled to [0, 1] over all edges. The nodes
    visited induce the subgraph.

    With ``sharpness=0`` the walk is GraphSAINT's: all neighbours are equally likely,
    whatever the edge weights, and no labels are needed. Otherwise edge weights enter
    the exponent, as printed, divided by the largest so that their unit doesn't
    matter: a heavy edge is preferred like one between like nodes.

    Parameters
    ----------
    n_roots : int, default=6000
        Roots of a subgraph (paper: n), at most one a node.
    walk_length : int, default=3
        Steps from each root (paper: h).
    sharpness : float, default=0.25
        Preference for like neighbours (paper: t); 0 is GraphSAINT's random walk.
    epsilon : float, default=0.25
        Added to the distance (paper: ε). The smaller, the closer is the walk to
        always stepping to the nearest neighbour.
    restart_probability : float, default=0.15
        Of the label propagation (paper: α).
    label_distribution : {"sum", "softmax"}, default="sum"
        How propagated labels become a distribution. "softmax" is as printed; see
        :func:`sktifa.information.tig.label_distribution`.
    normalize : bool, default=False
        Whether to estimate GraphSAINT's normalisation in `fit`: weights that make
        loss and aggregation on subgraphs right on average.
    presample_epochs : int, default=20
        Epochs drawn for that estimate. Each node is a root once an epoch.
    missing_label : int, float, str or None, default=-1
        Marks an unlabelled node in `y`.
    device : str, default="auto"
        Where to walk: "auto", "cpu", "cuda", "cuda:1". The graph is copied there.
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
    transition_probabilities_ : csr_array of float32, shape (n_nodes, n_nodes)
        Step probabilities, as the walkers draw them (paper: P).
    transition_std_ : float
        Mean over the nodes of the standard deviation of a node's step probabilities
        (Table 6, STD).
    loss_norm_ : ndarray of float32, shape (n_nodes,)
        Weight of a node in a subgraph's loss: with it, the expected sum over a
        subgraph is the mean over the graph. Only with ``normalize=True``.
    aggregation_norm_ : csr_array of float32, shape (n_nodes, n_nodes)
        Weight of the message to the row's node from the column's: one over the
        chance that the edge is there when the node is. Only with ``normalize=True``.

    See Also
    --------
    sktifa.TIFAGCLClassifier : Takes it as ``sampler=``.

    Notes
    -----
    An epoch shuffles the nodes and shares them out as roots, evenly and at most
    `n_roots` a subgraph, so that each node is a root once. What is drawn depends on
    the seed, the epoch and the subgraph's place in it, and on nothing else: not on
    threads, nor on the number of processes that share an epoch.

    References
    ----------
    Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method",
    ICLR 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.graph import Graph
    >>> from sktifa.sampling import SAINTTIFASampler
    >>> ring = np.arange(100)
    >>> graph = Graph.from_edge_index(
    ...     np.hstack([[ring, np.roll(ring, 1)], [np.roll(ring, 1), ring]]),
    ...     np.ones((100, 2)),
    ... )
    >>> y = np.full(100, -1)
    >>> y[[0, 50]] = 0, 1
    >>> sampler = SAINTTIFASampler(
    ...     n_roots=10, walk_length=2, device="cpu", random_state=0
    ... )
    >>> subgraph, labels = sampler.fit_resample(graph, y)
    >>> len(subgraph) == len(labels) == len(subgraph.parent_nodes)
    True
    >>> len([subgraph for subgraph in sampler])
    10

    In a loop of your own:

    >>> for data in sampler.loader(as_pyg=True):
    ...     pass
    >>> data.x.shape[1], data.is_undirected()
    (2, True)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "n_roots": [Interval(numbers.Integral, 1, None, closed="left")],
        "walk_length": [Interval(numbers.Integral, 0, None, closed="left")],
        "sharpness": [Interval(numbers.Real, 0, None, closed="left")],
        "epsilon": [Interval(numbers.Real, 0, None, closed="neither")],
        "restart_probability": [Interval(numbers.Real, 0, 1, closed="right")],
        "label_distribution": [StrOptions({"sum", "softmax"})],
        "normalize": ["boolean"],
        "presample_epochs": [Interval(numbers.Integral, 1, None, closed="left")],
        "missing_label": [numbers.Real, str, None],
        "device": [str],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_roots: int = 6000,
        *,
        walk_length: int = 3,
        sharpness: float = 0.25,
        epsilon: float = 0.25,
        restart_probability: float = 0.15,
        label_distribution: Literal["sum", "softmax"] = "sum",
        normalize: bool = False,
        presample_epochs: int = 20,
        missing_label: int | float | str | None = -1,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_roots = n_roots
        self.walk_length = walk_length
        self.sharpness = sharpness
        self.epsilon = epsilon
        self.restart_probability = restart_probability
        self.label_distribution = label_distribution
        self.normalize = normalize
        self.presample_epochs = presample_epochs
        self.missing_label = missing_label
        self.device = device
        self.random_state = random_state

    # ------------------------------------------------------------------ fitting

    @undisturbed()
    def fit(
        self,
        graph: Graph,
        y: ArrayLike | None = None,
        *,
        information: NDArray[np.floating] | Tensor | None = None,
        on_device: DeviceGraph | None = None,
    ) -> SAINTTIFASampler:
        """Compute arc distances and step probabilities.

        Parameters
        ----------
        graph : Graph, or what `as_graph` takes
            The whole graph is sampled, also where only some nodes are selected.
            Inductive training gives ``graph.subgraph(training_nodes)``.
        y : array-like of shape (len(graph),), default=None
            Labels of the selected nodes, `missing_label` where there is none. May
            be left out where ``sharpness=0`` or `information` is given.
        information : ndarray of shape (n_nodes, n_classes), default=None
            Z* of the whole graph, where it is known already, from
            :func:`sktifa.information.tig.annotated_information`; or a tensor.
        on_device : DeviceGraph, default=None
            The graph's arrays on `device`, where they lie there already.

        Returns
        -------
        SAINTTIFASampler

        Raises
        ------
        LabelError
            If `y` has another length than the graph, or no label, or is left out
            though `sharpness` needs it.
        """
        self._take(graph, y)
        n = self.graph_.n_nodes
        device = resolve_device(self.device)
        self._check_memory(min(self.n_roots, n), device)
        if on_device is None:
            where = device if device.type == "cuda" else torch.device("cpu")
            on_device = DeviceGraph.from_graph(self.graph_, where)
        thresholds = self._thresholds(on_device, information)
        self._walker = make_walker(on_device, thresholds)
        self.n_subgraphs_ = -(-n // self.n_roots)
        self._loss_norm: Tensor | None = None
        self._aggregation_norm: Tensor | None = None
        if self.normalize:
            self._estimate_normalization()
        return self

    def _check_memory(self, n_roots: int, device: torch.device) -> None:
        n_bytes = 12 * n_roots * (self.walk_length + 1)  # paths and draws
        if n_bytes > (free := free_memory(device)):
            raise NotEnoughMemoryError(
                f"walks of walk_length={self.walk_length} from {n_roots} roots take "
                f"{n_bytes / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB are free: make "
                "walk_length or n_roots smaller."
            )

    def _thresholds(
        self, graph: DeviceGraph, information: NDArray[np.floating] | Tensor | None
    ) -> Tensor | None:
        if self.sharpness == 0:
            return None
        if information is not None:
            z = check_information(information, self.graph_.n_nodes)
        elif self.codes_ is None or self.classes_ is None:
            raise LabelError(
                f"sharpness={self.sharpness} weighs steps by the labels, but y was not "
                "given: give y, or sharpness=0 for GraphSAINT's walk"
            )
        else:
            z = annotated_information(
                graph,
                self.codes_,
                len(self.classes_),
                features=self.graph_.features,
                restart_probability=self.restart_probability,
            )
        distribution = label_distribution(z, self.label_distribution)
        dtype = torch.float64 if self.epsilon < _FINE else torch.float32
        distance = arc_distances(graph, distribution, dtype)
        return step_thresholds(graph, distance, self.sharpness, self.epsilon)

    def _estimate_normalization(self) -> None:
        device, n_arcs = self._walker.device, self.graph_.adjacency.nnz
        float32: Any = {"dtype": torch.float32, "device": device}
        node_count = torch.zeros(self.graph_.n_nodes, **float32)
        arc_count = torch.zeros(n_arcs, **float32)
        for epoch in range(self.presample_epochs):
            for subgraph in self._epoch(
                epoch, range(self.n_subgraphs_), purpose=PRESAMPLE
            ):
                node_count[subgraph.nodes] += 1
                arc_count[subgraph.arcs] += 1
        n_drawn = self.presample_epochs * self.n_subgraphs_
        self._loss_norm = n_drawn / (self.graph_.n_nodes * node_count)
        # An edge that was never drawn counts as drawn once.
        degree = torch.from_numpy(np.diff(self.graph_.adjacency.indptr)).to(device)
        receiver = torch.repeat_interleave(node_count, degree, output_size=n_arcs)
        self._aggregation_norm = receiver.div_(arc_count.clamp_min_(1))

    # ------------------------------------------------------------------ drawing

    def _drawn_anywhere(self, *key: int) -> Subgraph:
        root_seed, walk_seed = self._seeds(2, *key)
        count = min(self.n_roots, self.graph_.n_nodes)
        return self._draw(self._walker.roots(count, root_seed), walk_seed)

    @property
    def _device(self) -> torch.device:
        return self._walker.device

    def _order(self, *key: int) -> Any:
        (seed,) = self._seeds(1, *key)
        return self._walker.roots(self.graph_.n_nodes, seed)

    def _drawn_from(self, start: Any, *key: int) -> Subgraph:
        (seed,) = self._seeds(1, *key)
        return self._draw(start, seed)

    def _draw(self, roots: Any, seed: int) -> Subgraph:
        walker: Any = self._walker
        subgraph = walker.induce(walker.walk(roots, self.walk_length, seed))
        subgraph.seed = seed
        if self._loss_norm is not None and self._aggregation_norm is not None:
            subgraph.loss_norm = self._loss_norm[subgraph.nodes]
            subgraph.aggregation_norm = self._aggregation_norm[subgraph.arcs]
        return subgraph

    def _seeds(self, n_seeds: int, *key: int) -> list[int]:
        return self._sequence(*key).generate_state(n_seeds, np.uint32).tolist()

    # --------------------------------------------------------------- attributes

    @property
    def transition_probabilities_(self) -> sparse.csr_array:
        """Step probabilities, float32 of shape (n_nodes, n_nodes); rows sum to 1."""
        return self._on_arcs(self._step_probabilities())

    @property
    def transition_std_(self) -> float:
        """Mean standard deviation of a node's step probabilities (Table 6, STD)."""
        p = self._step_probabilities()
        crow = self.graph_.adjacency.indptr
        degree = np.diff(crow)
        filled = degree > 0
        if not filled.any():
            return 0.0
        mean_square = np.add.reduceat(p**2, crow[:-1][filled]) / degree[filled]
        variance = mean_square - 1.0 / degree[filled] ** 2
        return float(np.sqrt(np.maximum(variance, 0)).mean())

    @property
    def loss_norm_(self) -> NDArray[np.float32]:
        """GraphSAINT's weight of each node in the loss."""
        return self._normalization("_loss_norm")

    @property
    def aggregation_norm_(self) -> sparse.csr_array:
        """GraphSAINT's weight of each arc's message to its row's node."""
        return self._on_arcs(self._normalization("_aggregation_norm"))

    def _step_probabilities(self) -> NDArray[np.float64]:
        check_is_fitted(self)
        return step_probabilities(self.graph_.adjacency.indptr, self._walker.thresholds)

    def _normalization(self, name: str) -> NDArray[np.float32]:
        check_is_fitted(self)
        values = getattr(self, name)
        if values is None:
            raise AttributeError(f"{name[1:]}_ is there with normalize=True")
        return values.cpu().numpy()

    def _on_arcs(self, values: NDArray[np.floating]) -> sparse.csr_array:
        return with_values(self.graph_.adjacency, values.astype(np.float32))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the device behind: a sampler fitted on a GPU opens on a CPU."""
        state = dict(super().__getstate__())
        if "_walker" in state:
            # The graph's arrays are in graph_ already.
            state["_walker"] = state["_walker"].thresholds
            for name in ("_loss_norm", "_aggregation_norm"):
                if state[name] is not None:
                    state[name] = state[name].cpu()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "_walker" in state:
            graph = DeviceGraph.from_graph(self.graph_, torch.device("cpu"))
            thresholds = state["_walker"]
            self._walker = make_walker(
                graph, None if thresholds is None else torch.from_numpy(thresholds)
            )
