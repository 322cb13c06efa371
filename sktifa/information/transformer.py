"""The information gain as a step of a scikit-learn pipeline."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sktifa.callers import warn_user
from sktifa.exceptions import GraphError, LabelWarning
from sktifa.graph import Graph, as_graph, is_feature_matrix, validated
from sktifa.information.loss_weights import loss_weights
from sktifa.information.propagation import Normalization, csr_device
from sktifa.information.tig import (
    Aggregate,
    clarity,
    class_prototypes,
    feature_affinity,
    information_gain,
    intensity,
    propagated_labels,
    teacher_distribution,
)
from sktifa.labels import check_enough_classes, encode_labels, require_labels
from sktifa.tensors.device_graph import DeviceGraph

__all__ = ["LabelPropagationTIG"]

Matrix: TypeAlias = NDArray[Any] | sparse.csr_array
Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


# What shares add to each class, in parts of the mean over nodes and classes.
_SMOOTHING = 1e-3


@dataclass(frozen=True)
class _Received:
    """What a set of labels sends to the nodes of a graph, and how much that is."""

    influence: Floats  # propagated labels, a row a node (paper: Z)
    prototypes: Floats  # paper: P
    mean: float  # of the entries of Z*
    intensity: Floats
    gain: Floats


class LabelPropagationTIG(TransformerMixin, BaseEstimator):
    """Features of how much annotated information reaches each node (Eq. 1-4).

    Each node gets, all of order one: the share of each class in what reaches it, in
    parts of an even share (Z* over its mean: 1 where nothing is known, at most the
    number of classes); its intensity as a rank among all nodes, from 0 to 1; the
    clarity of its shares, at most 0; and its topology information gain as a rank.

    A labelled node receives most from itself, so its own columns give its label away
    to the step that follows. Therefore `fit_transform` is cross-fitted like that of
    :class:`~sklearn.preprocessing.TargetEncoder`: labelled nodes get the columns that
    come about without the labels of their own fold. ``fit(X, y).transform(X)``, where
    every label counts, is another result: use it for nodes that are not labelled.

    Parameters
    ----------
    restart_probability : float, default=0.15
        In (0, 1]; the larger, the less far labels travel (paper: alpha).
    clarity_weight : float, default=0.1
        Weight of clarity against intensity, in [0, 1] (paper: lambda).
    normalization : {"column", "symmetric", "row"}, default="column"
        Of the adjacency, see :func:`~sktifa.information.propagation.label_propagation`.
    aggregate : {"sum", "mean"}, default="sum"
        Over the labelled nodes of a class. The paper sums; "mean" makes classes with
        many labels and with few alike.
    cv : int or None, default=5
        Number of folds of the cross-fitting; fewer where no class has so many labels.
        Each fold withholds a `cv`-th of every class's labels, rounded up, so that it
        can't be told from what is left which class a withheld label is of. A class
        with one label sends nothing to any labelled node: with one label a class there
        is nothing to learn from, as a warning says. None switches cross-fitting off:
        then `fit_transform` leaks.
    as_graph : bool, default=False
        Return the graph with the columns appended to its features, for a graph
        classifier to follow. Such a graph has one set of features for fitting and for
        predicting: its labelled nodes are cross-fitted in `transform`, too. There are
        no feature names out and `set_output` is without effect; the graph names its
        columns itself where it has `feature_names`.
    missing_label : int, float, str or None, default=-1
        Marks an unlabelled node in `y`. None and NaN mark one in any case.
    n_neighbors : int, default=15
        For a plain feature matrix: neighbours of a row in the graph made of it.
    tol : float, default=1e-6
        Relative error of the propagation.
    device : str, default="auto"
        Where labels are propagated: "auto", "cpu", "cuda", "cuda:1", ...
    random_state : int, RandomState instance or None, default=None
        Deals the labelled nodes into folds.
    columns : {"auto", "relative", "raw"}, default="auto"
        The columns above; or Z* itself, intensity, clarity and gain, as the paper has
        them. Those of most nodes are far below 1, and a class with more labels sends
        more: put a StandardScaler before a classifier that is regularised. "auto" is
        "raw" with ``as_graph=True``: from its neighbours' columns an encoder that
        passes messages would learn what echoes of a node's own label.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels that occur, sorted.
    gain_ : ndarray of float64, shape (n_nodes,)
        Information gain of every node of the whole graph, every label counting
        (paper: T).
    prototypes_ : ndarray of float64, shape (n_classes, n_features)
        Mean features of each class's labelled nodes (paper: P).
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, where they have names.

    See Also
    --------
    annotated_information, information_gain : The same as functions.
    TIFAGCLClassifier : Weighs its contrastive loss by this gain.

    Notes
    -----
    `transform` takes the graph of `fit` or a selection of it. On another graph there
    are no labels to propagate, and GraphError says so. Rows of a plain matrix, new or
    not, are tied to their `n_neighbors` nearest training rows and get the mean of what
    those received, tempered by their own affinity to each class.

    In a pipeline whose last step doesn't know unlabelled nodes, fit on
    ``graph[labeled], y[labeled]``.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.graph import Graph
    >>> from sktifa import LabelPropagationTIG
    >>> path = Graph(np.diag(np.ones(4), 1) + np.diag(np.ones(4), -1), np.ones((5, 1)))
    >>> y = np.array(["left", None, None, None, "right"], dtype=object)
    >>> tig = LabelPropagationTIG().fit(path, y)
    >>> tig.transform(path).shape
    (5, 5)
    >>> tig.get_feature_names_out().tolist()
    ['share_left', 'share_right', 'intensity_rank', 'clarity', 'gain_rank']
    >>> tig.gain_.round(2)
    array([0.28, 0.32, 0.18, 0.32, 0.28])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "restart_probability": [Interval(numbers.Real, 0, 1, closed="right")],
        "clarity_weight": [Interval(numbers.Real, 0, 1, closed="both")],
        "normalization": [StrOptions(set(get_args(Normalization)))],
        "aggregate": [StrOptions(set(get_args(Aggregate)))],
        "cv": [Interval(numbers.Integral, 2, None, closed="left"), None],
        "as_graph": ["boolean"],
        "missing_label": [numbers.Real, str, None],
        "n_neighbors": [Interval(numbers.Integral, 1, None, closed="left")],
        "tol": [Interval(numbers.Real, 0, None, closed="neither")],
        "device": [str],
        "random_state": ["random_state"],
        "columns": [StrOptions({"auto", "relative", "raw"})],
    }

    def __init__(
        self,
        restart_probability: float = 0.15,
        clarity_weight: float = 0.1,
        normalization: Normalization = "column",
        aggregate: Aggregate = "sum",
        cv: int | None = 5,
        as_graph: bool = False,
        missing_label: int | float | str | None = -1,
        n_neighbors: int = 15,
        tol: float = 1e-6,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        columns: Literal["auto", "relative", "raw"] = "auto",
    ) -> None:
        self.restart_probability = restart_probability
        self.clarity_weight = clarity_weight
        self.normalization = normalization
        self.aggregate = aggregate
        self.cv = cv
        self.as_graph = as_graph
        self.missing_label = missing_label
        self.n_neighbors = n_neighbors
        self.tol = tol
        self.device = device
        self.random_state = random_state
        self.columns = columns

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Graph | ArrayLike, y: ArrayLike) -> LabelPropagationTIG:
        """Propagate the labels of the graph.

        Parameters
        ----------
        X : Graph, or a feature matrix of shape (n, n_features)
            A selection of a graph is enough to see the whole. A matrix becomes a
            nearest-neighbour graph.
        y : array-like of shape (len(X),)
            One label a selected node, `missing_label` where there is none.

        Returns
        -------
        self

        Raises
        ------
        LabelError
            If there are not at least two classes, or `y` has another length.
        GraphError
            If `X` is malformed, or a plain matrix under ``as_graph=True``.
        """
        self._fit(X, y)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_transform(self, X: Graph | ArrayLike, y: ArrayLike) -> Floats | Graph:
        """Propagate the labels, and describe each node without its own fold's labels.

        ``fit(X, y).transform(X)`` is another result unless ``cv=None``: see the class.

        Parameters
        ----------
        X : Graph, or a feature matrix of shape (n, n_features)
            As in `fit`.
        y : array-like of shape (len(X),)
            As in `fit`.

        Returns
        -------
        ndarray of float64, shape (len(X), n_classes + 3), or Graph
            As in `transform`.
        """
        graph, codes, rows = self._fit(X, y)
        if self.as_graph:
            return self._appended(graph)
        return self._cross_fitted(graph, codes, graph.nodes, *rows)

    def transform(self, X: Graph | ArrayLike) -> Floats | Graph:
        """Describe nodes by what reaches them.

        Parameters
        ----------
        X : Graph, or a feature matrix of shape (m, n_features)
            The graph of `fit` or a selection of it; rows of a matrix if `fit` had one.

        Returns
        -------
        ndarray of float64, shape (len(X), n_classes + 3), or Graph
            As `get_feature_names_out` names them. With ``as_graph=True``, `X` with
            these columns appended to its features.

        Raises
        ------
        GraphError
            If `X` is another graph than that of `fit`.
        """
        check_is_fitted(self)
        if is_feature_matrix(X):
            if self._neighbors is None:
                raise GraphError(
                    f"{type(self).__name__} was fitted on a graph and got an array of "
                    f"shape {np.shape(X)}: give the graph of fit or a selection of it."
                )
            X = validated(self, X, reset=False)
            rows = X, self._neighbors.kneighbors(X, return_distance=False)
            return self._columns(*rows, self._received)
        graph = as_graph(X)
        if graph.fingerprint != self._fingerprint:
            raise GraphError(
                f"transform got {graph!r}, which is not the graph of fit: labels "
                "propagate along the edges of one graph. Give that graph or a "
                "selection of it, or fit anew."
            )
        if self.as_graph:
            return self._appended(graph)
        return self._columns(*_nodes_of(graph), self._received)

    def loss_weights(self, weight_min: float = 0.2, weight_max: float = 2.2) -> Floats:
        """Weigh a contrastive loss by `gain_`, see :func:`.loss_weights` (Eq. 10).

        Parameters
        ----------
        weight_min, weight_max : float, default=0.2, 2.2
            Range of the weights (paper: w_min, w_max).

        Returns
        -------
        ndarray of float64, shape (n_nodes,)
            For every node of the whole graph.
        """
        check_is_fitted(self)
        return loss_weights(self.gain_, weight_min, weight_max)

    @available_if(lambda self: not self.as_graph)
    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Name the columns.

        Parameters
        ----------
        input_features : ignored
            The columns don't stem from single features.

        Returns
        -------
        ndarray of str, shape (n_classes + 3,)
        """
        check_is_fitted(self)
        return np.array(self._column_names(), dtype=object)

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> LabelPropagationTIG:
        """Choose the container of the columns; a graph stays a graph.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None, default=None
            As everywhere in scikit-learn. Without effect for ``as_graph=True``.

        Returns
        -------
        self
        """
        return self if self.as_graph else super().set_output(transform=transform)

    # ---------------------------------------------------------------- the work

    def _fit(self, X: Any, y: Any) -> tuple[Graph, Integers, tuple[Matrix, Integers]]:
        """Return the graph, the codes of all its nodes, and what the rows look at."""
        require_labels(y, self)
        is_array = is_feature_matrix(X)
        if is_array and self.as_graph:
            raise GraphError(
                "as_graph=True needs a graph to append columns to: give "
                "Graph.from_features(X)."
            )
        X = validated(self, X)
        graph = as_graph(X, n_neighbors=self.n_neighbors)
        selected, self.classes_ = encode_labels(
            y, self.missing_label, of=len(graph) if is_array else graph
        )
        check_enough_classes(y, selected, self.classes_, self.missing_label)
        codes = np.full(graph.n_nodes, -1)
        codes[graph.nodes[selected >= 0]] = selected[selected >= 0]

        self._received = self._receive(graph, codes)
        self.prototypes_, self.gain_ = self._received.prototypes, self._received.gain
        if self.as_graph:
            everywhere = _nodes_of(graph, everywhere=True)
            columns = self._cross_fitted(
                graph, codes, np.arange(graph.n_nodes), *everywhere
            )
            self._appendix = columns.astype(np.float32)
        self._neighbors = self._fingerprint = None
        if not is_array:
            self._fingerprint = graph.fingerprint
            return graph, codes, _nodes_of(graph)
        self._neighbors = NearestNeighbors(
            n_neighbors=min(self.n_neighbors, len(graph)), metric="cosine"
        ).fit(X)
        return graph, codes, (X, self._neighbors.kneighbors(X, return_distance=False))

    def _receive(self, graph: Graph, codes: Integers) -> _Received:
        n_classes = len(self.classes_)
        sent = propagated_labels(
            DeviceGraph.from_graph(graph, csr_device(self.device)),
            codes,
            n_classes,
            restart_probability=self.restart_probability,
            normalization=self.normalization,
            aggregate=self.aggregate,
            tol=self.tol,
        )
        influence = sent.to("cpu").double().numpy()
        prototypes = class_prototypes(graph.features, codes, n_classes)
        information = influence * feature_affinity(graph.features, prototypes)
        return _Received(
            influence,
            prototypes,
            float(information.mean()),
            intensity(information),
            information_gain(information, self.clarity_weight),
        )

    @property
    def _are_raw(self) -> bool:
        return self.columns == "raw" or (self.columns == "auto" and self.as_graph)

    def _columns(
        self, features: Matrix, looks_at: Integers, received: _Received
    ) -> Floats:
        """Describe rows that receive the mean of the nodes they look at."""
        information = received.influence[looks_at].mean(axis=1)
        information *= feature_affinity(features, received.prototypes)
        strongest = intensity(information)
        gain = information_gain(information, self.clarity_weight)
        if self._are_raw:
            return np.column_stack([information, strongest, clarity(information), gain])
        # Smoothed by what is little on this graph, not among these rows.
        shares = teacher_distribution(information, _SMOOTHING * (received.mean or 1))
        return np.column_stack(
            [
                len(self.classes_) * shares,
                _relative_ranks(strongest, received.intensity),
                clarity(shares),
                _relative_ranks(gain, received.gain),
            ]
        )

    def _cross_fitted(
        self,
        graph: Graph,
        codes: Integers,
        nodes: Integers,
        features: Matrix,
        looks_at: Integers,
    ) -> Floats:
        """Describe rows, which stand for `nodes`, without their own fold's labels."""
        columns = self._columns(features, looks_at, self._received)
        for fold, withheld in self._folds(codes):
            others = codes.copy()
            others[withheld] = -1
            rows = np.flatnonzero(np.isin(nodes, fold))
            columns[rows] = self._columns(
                features[rows], looks_at[rows], self._receive(graph, others)
            )
        return columns

    def _folds(self, codes: Integers) -> list[tuple[Integers, Integers]]:
        """Deal the labelled nodes into folds; name what each fold's columns go without.

        That is the fold itself, filled up with others of a class that has fewer nodes
        in it than in other folds: what is left are as many labels of each class in
        every fold, drawn alike whatever the class of the node that they describe, so
        that nothing of that class can be told from them.
        """
        if self.cv is None:
            return []
        counts = np.bincount(codes[codes >= 0])
        if counts.min() == 1:
            warn_user(
                f"class {self.classes_.tolist()[counts.argmin()]!r} has one label: "
                "without it nothing of the class reaches a labelled node, and a "
                "classifier can't learn from its columns what the class is. Label "
                "another node of it.",
                LabelWarning,
            )
        rng = check_random_state(self.random_state)
        n_folds = min(self.cv, int(counts.max()))
        folds: list[list[Integers]] = [[] for _ in range(n_folds)]
        withheld: list[list[Integers]] = [[] for _ in range(n_folds)]
        for code in range(len(self.classes_)):
            nodes = rng.permutation(np.flatnonzero(codes == code))
            size = -(-len(nodes) // n_folds)
            for i in range(n_folds):
                own = nodes[i * size : (i + 1) * size]
                others = np.delete(nodes, slice(i * size, (i + 1) * size))
                more = rng.choice(others, size - len(own), replace=False)
                folds[i].append(own)
                withheld[i].append(np.concatenate([own, more]))
        return [
            (np.concatenate(fold), np.concatenate(without))
            for fold, without in zip(folds, withheld, strict=True)
            if any(map(len, fold))
        ]

    def _appended(self, graph: Graph) -> Graph:
        features, names = graph.features, graph.feature_names
        if sparse.issparse(features):
            appended = sparse.hstack([features, self._appendix], format="csr")
        else:
            appended = np.hstack([features, self._appendix])
        if names is not None:
            names = [*names, *self._column_names()]
        return graph.with_features(appended, names)

    def _column_names(self) -> list[str]:
        if self._are_raw:
            of_classes = [f"information_{label}" for label in self.classes_]
            return [*of_classes, "intensity", "clarity", "gain"]
        of_classes = [f"share_{label}" for label in self.classes_]
        return [*of_classes, "intensity_rank", "clarity", "gain_rank"]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


def _nodes_of(graph: Graph, everywhere: bool = False) -> tuple[Matrix, Integers]:
    """Return features of nodes, and that each looks at itself alone."""
    if everywhere or graph.is_whole:
        return graph.features, np.arange(graph.n_nodes)[:, None]
    return graph.features[graph.nodes], graph.nodes[:, None]


def _relative_ranks(
    values: NDArray[np.floating], among: NDArray[np.floating]
) -> Floats:
    """Rank values among others, in [0, 1]; equal in float32 is equal."""
    ordered = np.sort(among.astype(np.float32))
    values = values.astype(np.float32)
    ends = [np.searchsorted(ordered, values, side) for side in ("left", "right")]
    return (ends[0] + ends[1]) / (2 * len(ordered))
