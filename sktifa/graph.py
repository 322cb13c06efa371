"""A graph that scikit-learn can index like an array of its nodes."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import Bunch

from sktifa.callers import announce_array, user_level
from sktifa.checks import (
    as_array,
    as_numbers,
    check_count,
    check_positions,
    check_rows,
    check_sparse,
    is_sparse,
)
from sktifa.exceptions import (
    GraphError,
    GraphWarning,
    LabelError,
    NodeIndexError,
    NodeNameError,
    NotEnoughMemoryError,
    ParameterError,
    StorageError,
)

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

    from sktifa.frames import GraphParts

__all__ = ["Graph", "as_graph", "is_feature_matrix"]

Directed = Literal["symmetrize", "error"]
T = TypeVar("T")

# Entries looked at together when a feature matrix is checked, so that a memory
# map larger than the memory is never held whole.
_BLOCK = 1 << 24


@dataclass(eq=False)
class _Whole:
    """What all selections of one graph share."""

    adjacency: sp.csr_array
    features: NDArray[np.float32] | sp.csr_array
    feature_names: list[str] | None = None
    node_names: NDArray[Any] | None = None
    parent_nodes: NDArray[np.int64] | None = None
    all_nodes: NDArray[np.int64] | None = None
    node_of_name: dict[Any, int] | None = None
    fingerprint: str | None = None
    # The graph whose features were replaced to make this one.
    made_of: Callable[[], Graph | None] | None = None
    # What follows from the graph alone.
    derived: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.adjacency = _frozen(self.adjacency)
        self.features = _frozen(self.features)
        if self.parent_nodes is not None:
            self.parent_nodes = _frozen(self.parent_nodes)
        if self.node_names is not None:
            self.node_names = _frozen(self.node_names)

    def __getstate__(self) -> dict[str, Any]:
        lost = dict.fromkeys(["all_nodes", "node_of_name", "made_of"])
        state = {**self.__dict__, **lost}
        del state["derived"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # NumPy's pickles forget that an array was read-only.
        self.__dict__.update(state, derived={})
        self.__post_init__()


class Graph:
    """An undirected graph with node features, indexed like an array of its nodes.

    ``graph[idx]`` is a *selection*: it holds the same whole graph and names the
    selected nodes in `nodes`. `len` and `shape` speak of the selection, so a graph
    serves as ``X`` in all of scikit-learn: splitters, searches, pipelines and
    meta-estimators index it, and estimators of sktifa still see every edge.

    A graph is immutable. Arrays that already have the right form are shared with
    the caller, not copied; all others are converted once, here.

    Parameters
    ----------
    adjacency : sparse array, sparse matrix or array-like of shape (n_nodes, n_nodes)
        Edge weights, finite and not negative; zero means no edge. Self-loops are
        dropped, and the largest weight stays where an edge is given more than once.
    features : array-like, sparse or DataFrame of shape (n_nodes, n_features), \
            default=None
        Node features, cast to float32. A C-contiguous float32 memory map stays on
        disk. None gives every node a feature of its own (a sparse identity).
    directed : {"symmetrize", "error"}, default="symmetrize"
        What to do where an edge has another weight one way than the other way:
        keep the larger of the two and warn, or raise.
    feature_names : sequence of str, default=None
        Names of the feature columns. A DataFrame brings its own.
    node_names : sequence of hashable, length n_nodes, default=None
        A name for every node, none twice.

    Attributes
    ----------
    adjacency : csr_array of float32, shape (n_nodes, n_nodes)
        Symmetric, with sorted indices and no diagonal (paper: A).
    features : ndarray or csr_array of float32, shape (n_nodes, n_features)
        Features of the whole graph (paper: X).
    nodes : ndarray of int64, shape (len(graph),)
        The selected nodes; all of them for the whole graph.
    n_nodes, n_edges, n_features : int
        Counts of the whole graph; an edge counts once.
    feature_names : list of str or None
        Names of the feature columns.
    node_names : ndarray of shape (n_nodes,), or None
        Names of all nodes of the whole graph; those of a selection are
        ``graph.node_names[graph.nodes]``.
    parent_nodes : ndarray of int64, shape (n_nodes,), or None
        For the result of `subgraph`: each node's number in the graph it came from.
    is_whole : bool
        Whether all nodes are selected, in order.
    has_own_features : bool
        Whether each node has but a feature of its own, as ``features=None`` makes.
    fingerprint : str
        A hash of adjacency and features, the same in every process and for every
        selection of the graph.

    Raises
    ------
    GraphError
        If the adjacency is not square, has a negative or non-finite weight or is
        directed under ``directed="error"``; if the features have another number
        of rows or a non-finite value.

    See Also
    --------
    as_graph : Make a graph of whatever is at hand.

    Examples
    --------
    >>> from sktifa.graph import Graph
    >>> graph = Graph([[0, 1, 0], [1, 0, 2], [0, 2, 0]], [[1.0], [2.0], [3.0]])
    >>> graph
    Graph(3 nodes, 2 edges, 1 feature)
    >>> ends = graph[[0, 2]]
    >>> ends
    Graph(2 of 3 nodes, 2 edges, 1 feature)
    >>> ends.shape, ends.nodes.tolist()
    ((2, 1), [0, 2])

    Nodes that have names are selected by them as well:

    >>> named = Graph(graph.adjacency, node_names=["ann", "bob", "cat"])
    >>> named[["cat", "ann"]].nodes.tolist()
    [2, 0]
    """

    _whole: _Whole
    _selected: NDArray[np.int64] | None

    def __init__(
        self,
        adjacency: ArrayLike | sp.sparray | sp.spmatrix,
        features: ArrayLike | sp.sparray | sp.spmatrix | None = None,
        *,
        directed: Directed = "symmetrize",
        feature_names: Sequence[str] | None = None,
        node_names: Iterable[Any] | None = None,
    ) -> None:
        adjacency, node_names = _in_order_of_rows(adjacency, node_names)
        features, node_names = _in_order_of_nodes(features, node_names)
        node_names = None if node_names is None else _as_list(node_names)
        clean = _clean_adjacency(adjacency, directed, node_names)
        n = clean.shape[0]
        matrix, own_names = _clean_features(features, n, node_names)
        names = own_names if feature_names is None else feature_names
        self._whole = _Whole(
            clean,
            matrix,
            _clean_names(names, matrix.shape[1]),
            _clean_node_names(node_names, n),
        )
        self._selected = None

    # ------------------------------------------------------------- doors in

    @classmethod
    def from_clean(
        cls,
        adjacency: sp.csr_array,
        features: NDArray[np.float32] | sp.csr_array,
        *,
        feature_names: list[str] | None = None,
        node_names: NDArray[Any] | None = None,
        parent_nodes: NDArray[np.int64] | None = None,
    ) -> Graph:
        """Make a graph of parts that are well formed, which is not checked.

        For samplers and generators, whose graphs are by their making what the other
        doors check for: a part that is not makes wrong results, or ends the process.

        Parameters
        ----------
        adjacency : csr_array of float32, shape (n_nodes, n_nodes)
            Symmetric, with sorted indices, without diagonal, duplicates and zeros.
        features : ndarray or csr_array of float32, shape (n_nodes, n_features)
            Finite; an array is C-contiguous.
        feature_names : list of str, default=None
            A name for every column.
        node_names : ndarray of shape (n_nodes,), default=None
            A name for every node, none twice.
        parent_nodes : ndarray of int64, shape (n_nodes,), default=None
            Each node's number in the graph that this one was cut from.

        Returns
        -------
        Graph
        """
        return cls._of(
            _Whole(adjacency, features, feature_names, node_names, parent_nodes), None
        )

    @classmethod
    def _of(cls, whole: _Whole, selected: NDArray[np.int64] | None) -> Graph:
        graph = cls.__new__(cls)
        graph.__setstate__({"_whole": whole, "_selected": selected})
        return graph

    @classmethod
    def from_edge_index(
        cls,
        edge_index: ArrayLike,
        features: ArrayLike | sp.sparray | sp.spmatrix | None = None,
        *,
        edge_weight: ArrayLike | None = None,
        n_nodes: int | None = None,
        directed: Directed = "symmetrize",
        feature_names: Sequence[str] | None = None,
        node_names: Iterable[Any] | None = None,
    ) -> Graph:
        """Make a graph of a list of edges.

        Parameters
        ----------
        edge_index : array-like or tensor of int, shape (2, n_arcs)
            Both ends of each edge; an undirected edge stands in it both ways.
        features : array-like, sparse or DataFrame of shape (n_nodes, n_features), \
                default=None
            Node features; None gives every node a feature of its own.
        edge_weight : array-like or tensor of shape (n_arcs,), default=None
            Weight of each edge; None means 1.
        n_nodes : int, default=None
            Number of nodes. Needed where there are no features to count: the
            largest number in `edge_index` says nothing of nodes without edges.
        directed : {"symmetrize", "error"}, default="symmetrize"
            What to do with an edge that stands in `edge_index` one way only.
        feature_names : sequence of str, default=None
            Names of the feature columns.
        node_names : sequence of hashable, length n_nodes, default=None
            A name for every node, none twice.

        Returns
        -------
        Graph

        Raises
        ------
        GraphError
            Naming the first edge with an end outside the nodes or with a bad
            weight, or what is wrong with the shape or dtype.

        Examples
        --------
        >>> from sktifa.graph import Graph
        >>> Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], n_nodes=4)
        Graph(4 nodes, 2 edges, 4 features)
        """
        edges = _clean_edge_index(edge_index)
        n = _count_nodes(edges, features, n_nodes)
        outside = ((edges < 0) | (edges >= n)).any(axis=0)
        if outside.any():
            at = int(outside.argmax())
            raise GraphError(
                f"edge {at} joins {edges[0, at]} and {edges[1, at]}, but nodes are "
                f"numbered from 0 to {n - 1}: renumber the edges, or give n_nodes "
                "(and a row of features) for every node"
            )
        node_names = None if node_names is None else _as_list(node_names)
        weight = _clean_weights(edge_weight, edges, node_names)
        try:
            adjacency = _merge(edges[0], edges[1], weight, n)
        except MemoryError:
            raise NotEnoughMemoryError(
                f"a graph of {_plural(n, 'node')} doesn't fit in memory"
            ) from None
        return cls(
            adjacency,
            features,
            directed=directed,
            feature_names=feature_names,
            node_names=node_names,
        )

    @classmethod
    def from_pyg(
        cls,
        data: Data,
        *,
        label: str | None = None,
        directed: Directed = "symmetrize",
        return_X_y: bool = False,
    ) -> Any:
        """Make a graph of a PyTorch Geometric ``Data``.

        Parameters
        ----------
        data : torch_geometric.data.Data
            With `edge_index`, and `x` or `num_nodes`. `edge_weight` is read where
            it is there; other edge attributes are not.
        label : str, default=None
            The attribute with the labels, ``"y"`` as a rule.
        directed : {"symmetrize", "error"}, default="symmetrize"
            What to do with an edge that stands in `edge_index` one way only.
        return_X_y : bool, default=False
            With a `label`, return ``(graph, target)``.

        Returns
        -------
        Graph, or with a `label` Bunch
            - graph : Graph
            - target : ndarray of shape (n_nodes,)
            - train_mask, val_mask, test_mask : ndarray of bool, where `data` has them
        """
        edge_index = getattr(data, "edge_index", None)
        if edge_index is None or hasattr(data, "edge_index_dict"):
            raise GraphError(
                "data has no edge_index: give a homogeneous torch_geometric Data "
                "(HeteroData.to_homogeneous() makes one; "
                "ToSparseTensor(remove_edge_index=False) keeps edge_index)"
            )
        x = getattr(data, "x", None)
        # Data.num_nodes would guess from the edges; only a stated count is taken.
        counted = "num_nodes" in data or "y" in data
        if x is None and not counted:
            raise GraphError(
                "data has neither x nor num_nodes, and its edges say nothing of nodes "
                "without edges: set data.num_nodes"
            )
        graph = cls.from_edge_index(
            edge_index,
            x,
            edge_weight=getattr(data, "edge_weight", None),
            n_nodes=int(data.num_nodes) if x is None and counted else None,
            directed=directed,
        )
        masks = {
            name: as_array(data[name], name).astype(bool)
            for name in ("train_mask", "val_mask", "test_mask")
            if name in data
        }
        values = None if label is None else getattr(data, label, None)
        if values is not None:
            values = as_array(values, str(label))
            # OGB's labels have a column of their own.
            values = values[:, 0] if values.shape == (graph.n_nodes, 1) else values
        return _with_labels(graph, values, label, return_X_y, masks)

    @classmethod
    def from_networkx(
        cls,
        graph: networkx.Graph,
        features: str | Sequence[str] | None = None,
        *,
        weight: str | None = "weight",
        label: str | None = None,
        directed: Directed = "symmetrize",
        return_X_y: bool = False,
    ) -> Any:
        """Make a graph of a networkx graph; nodes are numbered as in ``list(graph)``.

        Parameters
        ----------
        graph : networkx.Graph
            Of any kind. Of parallel edges the largest weight stays.
        features : str or sequence of str, default=None
            Node attributes, numbers or vectors, that make up the features.
        weight : str, default="weight"
            Edge attribute; edges without it weigh 1. None means no weights.
        label : str, default=None
            Node attribute with the labels; nodes without it are unlabelled.
        directed : {"symmetrize", "error"}, default="symmetrize"
            What to do with an edge of a DiGraph that goes one way only.
        return_X_y : bool, default=False
            With a `label`, return ``(graph, target)``.

        Returns
        -------
        Graph, or with a `label` Bunch
            - graph : Graph, whose `node_names` are the nodes of `graph`, if they are
              more than numbers from 0 in their order.
            - target : ndarray of shape (n_nodes,). Of whole numbers with -1 where
              there is none, else of objects with None.

        Examples
        --------
        >>> import networkx as nx
        >>> from sktifa.graph import Graph
        >>> karate = nx.karate_club_graph()
        >>> Graph.from_networkx(karate)
        Graph(34 nodes, 78 edges, 34 features)
        >>> graph, y = Graph.from_networkx(karate, label="club", return_X_y=True)
        >>> y[:2].tolist()
        ['Mr. Hi', 'Mr. Hi']
        """
        names = list(graph)
        number = {name: i for i, name in enumerate(names)}
        ends = [
            (number[u], number[v], 1.0 if weight is None else w)
            for u, v, w in graph.edges(data=weight, default=1.0)
        ]
        try:
            table = np.array(ends, dtype=np.float64).reshape(-1, 3)
        except (TypeError, ValueError) as error:
            raise GraphError(
                f"attribute {weight!r} of an edge is no number ({error}): name another "
                "one as weight, or weight=None for edges that are all alike"
            ) from error
        edges, weights = table[:, :2].T.astype(np.int64), table[:, 2]
        if not graph.is_directed():
            edges = np.hstack([edges, edges[::-1]])
            weights = np.tile(weights, 2)
        matrix = None
        if features is not None:
            keys = [features] if isinstance(features, str) else list(features)
            if not keys:
                raise GraphError(
                    "features names no attribute: pass features=None to give every "
                    "node a feature of its own"
                )
            matrix = _node_attributes(graph, names, keys)
        result = cls.from_edge_index(
            edges,
            matrix,
            edge_weight=weights,
            n_nodes=len(names),
            directed=directed,
            node_names=None if names == list(range(len(names))) else names,
        )
        labels = None
        if label is not None:
            labels = [graph.nodes[name].get(label) for name in names]
            labels = None if all(value is None for value in labels) else labels
        return _with_labels(result, labels, label, return_X_y, {})

    @classmethod
    def from_pandas(
        cls,
        nodes: Any,
        edges: Any,
        *,
        id: Any = None,
        source: Any = "source",
        target: Any = "target",
        weight: Any = None,
        features: Sequence[Any] | str | None = None,
        label: Any = None,
        encoder: Any = "auto",
        directed: Directed = "symmetrize",
        return_X_y: bool = False,
    ) -> Any:
        """Make a graph of a table of nodes and a table of undirected edges.

        Columns of any kind become features: numbers and dates are standardised, gaps
        filled, text and categories encoded. What was done is logged, and said in
        `report` of the result where there is a `label`.

        Parameters
        ----------
        nodes : DataFrame, one row a node
            Of pandas, polars or pyarrow.
        edges : DataFrame, one row an edge
            An edge may stand in it once or both ways.
        id : column name, default=None
            The column of `nodes` with the ids. None takes the index of a pandas
            frame if it has a name or is no row numbers, else a column "id" if there
            is one, else the row numbers. An id 12 of one table and "12" of the other
            are the same.
        source, target : column name
            The columns of `edges` with the ids of the ends.
        weight : column name, default=None
            The column of `edges` with the weights; None means 1.
        features : column name or sequence of them, default=None
            The columns of `nodes` that become features. None takes all but `id` and
            `label`; where there are none, every node gets a feature of its own.
        label : column name, default=None
            The column of `nodes` with the labels. It never becomes a feature.
        encoder : "auto", "passthrough" or transformer, default="auto"
            "auto" is :class:`~sktifa.frames.TableEncoder`, with skrub's
            ``TableVectorizer`` around it where skrub is installed and not all columns
            are numbers. "passthrough" takes numbers as they are and nothing else. A
            transformer is given the columns as a data frame; one that is fitted, such
            as `encoder` of an earlier result, is not fitted again.
        directed : {"symmetrize", "error"}, default="symmetrize"
            What to do with an edge that has another weight the other way: keep the
            larger and warn, or raise.
        return_X_y : bool, default=False
            With a `label`, return ``(graph, target)``.

        Returns
        -------
        Graph, or with a `label` Bunch
            - graph : Graph, whose `node_names` are the ids, if they are more than row
              numbers.
            - target : ndarray of shape (n_nodes,). Of whole numbers with -1 where
              there is none, else of objects with None.
            - encoder : the fitted transformer, for other nodes with these columns.
            - report : list of str, what was done.

        Raises
        ------
        GraphError
            Naming the first row at fault (an edge to an unknown node, an id that is
            missing or there twice, a bad weight), or a column that isn't there or
            can't be encoded.

        Warns
        -----
        GraphWarning
            If a column has no value at all, or an edge two weights.

        See Also
        --------
        read : The same from files.

        Examples
        --------
        >>> import pandas as pd
        >>> from sktifa.graph import Graph
        >>> nodes = pd.DataFrame(
        ...     {"age": [31, 42, 27], "club": ["chess", None, "golf"]},
        ...     index=["ann", "bob", "cat"],
        ... )
        >>> edges = pd.DataFrame({"source": ["ann"], "target": ["cat"]})
        >>> data = Graph.from_pandas(nodes, edges, label="club")
        >>> data.graph
        Graph(3 nodes, 1 edge, 1 feature)
        >>> data.target.tolist()
        ['chess', None, 'golf']
        >>> data.graph[["bob"]].nodes
        array([1])
        """
        from sktifa.frames import as_table, join, labels_of

        if return_X_y and label is None:
            raise ParameterError(
                "return_X_y needs y: name the column with the labels, label="
            )
        parts = join(
            as_table(nodes, "nodes"),
            as_table(edges, "edges"),
            id=id,
            source=source,
            target=target,
            weight=weight,
            features=features,
            label=label,
            encoder=encoder,
        )
        graph = cls._of_parts(parts, len(nodes), directed)
        if parts.label is None:
            return graph
        labels = labels_of(parts.label)
        if return_X_y:
            return graph, labels
        return Bunch(
            graph=graph, target=labels, encoder=parts.encoder, report=parts.report
        )

    @classmethod
    def _of_parts(cls, parts: GraphParts, n_nodes: int, directed: Directed) -> Graph:
        return cls.from_edge_index(
            parts.edge_index,
            parts.features,
            edge_weight=parts.edge_weight,
            n_nodes=n_nodes,
            directed=directed,
            feature_names=parts.feature_names,
            node_names=parts.node_names,
        )

    @classmethod
    def read(
        cls,
        nodes: str | os.PathLike[str],
        edges: str | os.PathLike[str],
        *,
        id: str | None = None,
        **options: Any,
    ) -> Any:
        r"""Read a graph from a file of nodes and a file of undirected edges.

        Parameters
        ----------
        nodes, edges : path
            Ending in .csv, .tsv or .txt (UTF-8, a header, separated by commas,
            semicolons or tabs) or in .parquet or .pq (pyarrow reads it).
        id : str, default=None
            The column of `nodes` with the ids. None takes the column "id", or else
            the first.
        **options : Any
            All others of :meth:`from_pandas`: `source`, `target`, `weight`,
            `features`, `label`, `encoder`, `directed`, `return_X_y`.

        Returns
        -------
        Graph, or with a `label` Bunch
            As from :meth:`from_pandas`. Ids that are all whole numbers become such.

        Raises
        ------
        DatasetError
            If a file isn't there.
        GraphError
            Naming the first bad line.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from sktifa.graph import Graph
        >>> with TemporaryDirectory() as folder:
        ...     nodes, edges = Path(folder, "nodes.csv"), Path(folder, "edges.csv")
        ...     _ = nodes.write_text("name,age,club\nann,31,chess\nbob,42,\n")
        ...     _ = edges.write_text("source,target\nann,bob\n")
        ...     graph, y = Graph.read(nodes, edges, label="club", return_X_y=True)
        >>> graph.node_names.tolist(), y.tolist()
        (['ann', 'bob'], ['chess', None])
        """
        from sktifa.frames import read_table

        table = read_table(nodes)
        id = table.id_column() if id is None else id
        return cls.from_pandas(table, read_table(edges), id=id, **options)

    @classmethod
    def from_features(
        cls,
        X: ArrayLike | sp.sparray | sp.spmatrix,
        *,
        n_neighbors: int = 15,
        metric: str = "euclidean",
    ) -> Graph:
        """Tie each row to its nearest rows: an unweighted nearest-neighbour graph.

        Parameters
        ----------
        X : array-like, sparse or DataFrame of shape (n_nodes, n_features)
            They are also the graph's features.
        n_neighbors : int, default=15
            Neighbours looked for from each row; at most n_nodes - 1 are there.
        metric : str, default="euclidean"
            Any metric of :class:`sklearn.neighbors.NearestNeighbors`.

        Returns
        -------
        Graph

        Examples
        --------
        >>> from sktifa.graph import Graph
        >>> Graph.from_features([[0.0], [1.0], [5.0]], n_neighbors=1, metric="l1")
        Graph(3 nodes, 2 edges, 1 feature)
        """
        from sklearn.neighbors import NearestNeighbors

        check_count(n_neighbors, "n_neighbors", low=1)
        node_names = _row_names(X)
        matrix, names = _clean_features(X, None, node_names)
        n = matrix.shape[0]
        if n == 0:
            raise GraphError("X has no rows: a graph needs at least one node")
        k = min(n_neighbors, n - 1)
        if k == 0:
            return cls(
                sp.csr_array((n, n)),
                matrix,
                feature_names=names,
                node_names=node_names,
            )
        try:
            search = NearestNeighbors(n_neighbors=k, metric=metric).fit(matrix)
        except ValueError as error:
            raise ParameterError(
                f"metric={metric!r} can't be used here: {error}"
            ) from None
        nearest = sp.csr_array(search.kneighbors_graph())
        return cls(
            nearest.maximum(nearest.T),
            matrix,
            feature_names=names,
            node_names=node_names,
        )

    # ------------------------------------------------------------ the whole

    @property
    def adjacency(self) -> sp.csr_array:
        """Adjacency of the whole graph."""
        return self._whole.adjacency

    @property
    def features(self) -> NDArray[np.float32] | sp.csr_array:
        """Features of the whole graph."""
        return self._whole.features

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the feature columns."""
        return self._whole.feature_names

    @property
    def node_names(self) -> NDArray[Any] | None:
        """Names of the nodes of the whole graph."""
        return self._whole.node_names

    @property
    def parent_nodes(self) -> NDArray[np.int64] | None:
        """Each node's number in the graph this one was cut from."""
        return self._whole.parent_nodes

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return self.adjacency.shape[0]

    @property
    def n_edges(self) -> int:
        """Number of undirected edges of the whole graph."""
        return self.adjacency.nnz // 2

    @property
    def n_features(self) -> int:
        """Number of feature columns."""
        return self.features.shape[1]

    @property
    def has_own_features(self) -> bool:
        """Whether features are what None makes: each node has one of its own."""
        matrix = self.features
        return (
            sp.issparse(matrix)
            and matrix.shape[0] == matrix.shape[1] == matrix.nnz
            and bool((matrix.data == 1).all())
            and np.array_equal(matrix.indices, np.arange(matrix.nnz))
        )

    @property
    def fingerprint(self) -> str:
        """Hash of adjacency and features, shared by all selections."""
        whole = self._whole
        if whole.fingerprint is None:
            whole.fingerprint = _fingerprint(whole.adjacency, whole.features)
        return whole.fingerprint

    def derived(self, function: Callable[..., T], *arguments: Hashable) -> T:
        """Return what a function makes of the whole graph, computed once.

        For what follows from the graph alone, and every fit on it needs.

        Parameters
        ----------
        function : callable
            Called with the whole graph and the arguments, the first time.
        *arguments : hashable
            What else it depends on.

        Returns
        -------
        object
            Shared by all who ask: not to be written to.
        """
        known, key = self._whole.derived, (function, *arguments)
        if key not in known:
            known[key] = function(self.whole, *arguments)
        return known[key]

    # -------------------------------------------------------- the selection

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The selected nodes."""
        if self._selected is not None:
            return self._selected
        whole = self._whole
        if whole.all_nodes is None:
            whole.all_nodes = _frozen(np.arange(self.n_nodes, dtype=np.int64))
        return whole.all_nodes

    @property
    def whole(self) -> Graph:
        """The same graph with all of its nodes selected."""
        return self if self.is_whole else Graph._of(self._whole, None)

    @property
    def origin(self) -> Graph | None:
        """The graph whose features were replaced to make this one, while it is there.

        Where that was done several times, the first.
        """
        return self._whole.made_of() if self._whole.made_of is not None else None

    def reference(self) -> Callable[[], Graph | None]:
        """Return a weak reference to what all selections of the graph share.

        Returns
        -------
        callable
            Returns the whole graph as long as somebody has a selection of it, and None
            from then on.
        """
        whole = weakref.ref(self._whole)

        def known() -> Graph | None:
            there = whole()
            return None if there is None else Graph._of(there, None)

        return known

    def is_same_graph(self, other: Graph) -> bool:
        """Tell whether two selections are of one graph, or of equal ones."""
        if self._whole is other._whole:
            return True
        # A fingerprint of millions of arcs takes seconds.
        sizes = [(g.n_nodes, g.n_edges, g.n_features) for g in (self, other)]
        return sizes[0] == sizes[1] and self.fingerprint == other.fingerprint

    def select_as(self, other: Graph) -> Graph:
        """Select the nodes that are selected in another graph of the same nodes.

        Parameters
        ----------
        other : Graph
            Such as this one with other features.

        Returns
        -------
        Graph

        Raises
        ------
        GraphError
            If the two have not the same number of nodes.
        """
        if self.n_nodes != other.n_nodes:
            raise GraphError(
                f"{other!r} is not of the {self.n_nodes} nodes of this graph: select "
                "by graph[nodes]"
            )
        return Graph._of(self._whole, other._selected)

    @property
    def is_whole(self) -> bool:
        """Whether all nodes are selected, in order."""
        return self._selected is None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of selected nodes and of features."""
        return len(self), self.n_features

    def __len__(self) -> int:
        return self.n_nodes if self._selected is None else len(self._selected)

    def __getitem__(self, index: Any) -> Graph:
        if isinstance(index, tuple):
            # scikit-learn indexes with (indices, ...).
            index, *rest = index or (slice(None),)
            if any(r is not Ellipsis and r != slice(None) for r in rest):
                raise NodeIndexError(
                    "a graph is indexed by its nodes alone: sktifa.OnFeatures applies "
                    "transformers to its columns, with_features() makes the same "
                    "graph with others"
                )
        if index is Ellipsis:
            index = slice(None)
        if isinstance(index, slice):
            try:
                nodes = self.nodes[index]
            except TypeError:
                raise NodeIndexError(
                    f"{index} has ends that are no whole numbers; nodes are selected "
                    "by name with select()"
                ) from None
        else:
            if str(getattr(index, "dtype", None)) == "torch.uint8":
                raise NodeIndexError(
                    "a tensor of uint8 may be a mask or positions: use index.bool() "
                    "or index.long()"
                )
            index = as_array(self._in_order(index), "index")
            if index.size and _are_text(index):
                return self.select(np.atleast_1d(index))
            nodes = self.nodes[check_positions(index, len(self))]
        whole = len(nodes) == self.n_nodes and np.array_equal(
            nodes, np.arange(self.n_nodes)
        )
        return Graph._of(self._whole, None if whole else nodes)

    def _in_order(self, index: Any) -> Any:
        """Bring a Series of booleans that names the nodes into their order."""
        is_mask = str(getattr(index, "dtype", None)) in ("bool", "boolean")
        if self.node_names is None or not is_mask or not hasattr(index, "iloc"):
            return index
        names = self.node_names[self.nodes]
        if not index.index.isin(names).any():
            return index
        if not index.index.is_unique or not np.isin(names, index.index).all():
            raise NodeIndexError(
                "the index of the mask has some of the selected nodes' names, but not "
                "each once: reindex it, or give mask.to_numpy() to go by position"
            )
        return index.loc[names]

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        announce_array()
        rows = self.features if self.is_whole else self.features[self.nodes]
        return np.array(_dense(rows), dtype=dtype, copy=copy)

    def select(self, names: Iterable[Any]) -> Graph:
        """Select nodes by name, in the order of the names.

        ``graph[["ann", "bob"]]`` does the same where names are text; whole numbers
        in brackets are positions, as in an array.

        Parameters
        ----------
        names : iterable of hashable
            Names of selected nodes.

        Returns
        -------
        Graph

        Raises
        ------
        NodeNameError
            If the graph has no names, or a name is none of a selected node.

        Examples
        --------
        >>> from sktifa.graph import Graph
        >>> graph = Graph([[0, 1], [1, 0]], node_names=[1071, 2044])
        >>> graph.select([2044]).nodes.tolist()
        [1]
        """
        number = self._node_of_name()
        names = _as_list(names)
        nodes = np.array([number.get(name, -1) for name in names], dtype=np.int64)
        outside = nodes < 0
        if not self.is_whole:
            outside |= ~np.isin(nodes, self.nodes)
        if outside.any():
            name = names[int(outside.argmax())]
            where = "selected" if name in number else "in the graph"
            raise NodeNameError(
                f"node {name!r} is not {where}: graph.node_names[graph.nodes] has the "
                "names that can be selected"
            )
        return Graph._of(self._whole, nodes)[:]

    def by_name(self, values: ArrayLike, columns: Iterable[Any] | None = None) -> Any:
        """Put one value or row a (selected) node beside the nodes' names.

        Estimators return arrays, as scikit-learn's do, in the order of the nodes that
        they were given: this is the way back to names, for arrays of any origin. What
        has `set_output` can return names itself.

        Parameters
        ----------
        values : array-like of shape (len(graph),) or (len(graph), n_columns)
            Such as what `predict` or `predict_proba` return for this graph.
        columns : iterable, default=None
            Names of the columns, such as ``model.classes_``.

        Returns
        -------
        pandas.Series or pandas.DataFrame
            Indexed by the selected nodes' names, or by their numbers where nodes have
            no names.

        Raises
        ------
        GraphError
            If there are more or fewer values than selected nodes.
        MissingPackageError
            If pandas is not installed.

        Examples
        --------
        >>> from sktifa.graph import Graph
        >>> graph = Graph([[0, 1], [1, 0]], node_names=["ann", "bob"])
        >>> graph.by_name([0.25, 0.75])["bob"]
        np.float64(0.75)
        """
        from sktifa.frames import by_name

        array = as_array(values, "values")
        if array.ndim not in (1, 2) or len(array) != len(self):
            raise GraphError(
                f"values must have one entry or row for each of the {len(self)} "
                f"selected nodes, got shape {array.shape}: give what a model returned "
                "for this very selection"
            )
        return by_name(array, self.names_or_numbers(), columns)

    def names_or_numbers(self) -> NDArray[Any]:
        """Return what to call the selected nodes."""
        return self.nodes if self.node_names is None else self.node_names[self.nodes]

    def _node_of_name(self) -> dict[Any, int]:
        whole = self._whole
        if whole.node_names is None:
            raise NodeNameError(
                "the nodes of this graph have no names: give node_names to Graph, or "
                "read the graph with Graph.from_pandas or Graph.read"
            )
        if whole.node_of_name is None:
            whole.node_of_name = {
                name: i for i, name in enumerate(whole.node_names.tolist())
            }
        return whole.node_of_name

    def subgraph(self, nodes: ArrayLike | None = None) -> Graph:
        """Cut out some nodes and the edges among them, numbered anew.

        Parameters
        ----------
        nodes : array-like of int or of bool, default=None
            Nodes of the whole graph, none twice, in the order they are to have;
            or a mask over all nodes. None takes the selected nodes.

        Returns
        -------
        Graph
            With `parent_nodes`. Features of a memory map are copied to another one, in
            a temporary file that goes with the graph.

        Examples
        --------
        >>> from sktifa.graph import Graph
        >>> graph = Graph([[0, 1, 0], [1, 0, 1], [0, 1, 0]])
        >>> part = graph.subgraph([2, 1])
        >>> part, part.parent_nodes.tolist()
        (Graph(2 nodes, 1 edge, 3 features), [2, 1])
        """
        chosen = self.nodes
        if nodes is not None:
            chosen = self.whole[nodes].nodes
        if len(chosen) == 0:
            raise GraphError("a subgraph needs at least one node")
        seen = np.zeros(self.n_nodes, dtype=bool)
        seen[chosen] = True
        if np.count_nonzero(seen) < len(chosen):
            order = np.argsort(chosen, kind="stable")
            at = int(order[1:][np.diff(chosen[order]) == 0].min())
            raise GraphError(
                f"node {_called(chosen[at], self.node_names)} stands twice in nodes "
                f"(again at position {at}): "
                "take np.unique(nodes)"
            )
        induced = self.adjacency[chosen][:, chosen]
        induced.sort_indices()
        return Graph.from_clean(
            induced,
            _rows(self.features, chosen),
            feature_names=self.feature_names,
            node_names=None if self.node_names is None else self.node_names[chosen],
            parent_nodes=chosen,
        )

    def with_features(
        self,
        features: ArrayLike | sp.sparray | sp.spmatrix | None,
        feature_names: Sequence[str] | None = None,
    ) -> Graph:
        """Make the same graph and selection with other features.

        Parameters
        ----------
        features : array-like, sparse or DataFrame of shape (n_nodes, n_features)
            For all nodes of the whole graph. None gives every node its own.
        feature_names : sequence of str, default=None
            Names of the feature columns.

        Returns
        -------
        Graph
        """
        features, _ = _in_order_of_nodes(features, self.node_names)
        matrix, own_names = _clean_features(features, self.n_nodes, self.node_names)
        names = own_names if feature_names is None else feature_names
        whole = _Whole(
            self.adjacency,
            matrix,
            _clean_names(names, matrix.shape[1]),
            self.node_names,
            self.parent_nodes,
            made_of=self._whole.made_of or self.reference(),
        )
        return Graph._of(whole, self._selected)

    # ------------------------------------------------------------ doors out

    def to_pyg(self, y: ArrayLike | None = None) -> Data:
        """Make a PyTorch Geometric ``Data`` of the whole graph.

        Parameters
        ----------
        y : array-like of numbers, shape (len(graph),), default=None
            One entry a selected node; the others get -1.

        Returns
        -------
        torch_geometric.data.Data
            With `x` (dense), `edge_index` (each edge both ways), `edge_weight`,
            and `selected`, a mask, where not all nodes are selected.
        """
        import torch
        from torch_geometric.data import Data

        arcs = self.adjacency.tocoo()
        x = np.array(_dense(self.features))
        data = Data(
            x=torch.from_numpy(x),
            edge_index=torch.from_numpy(np.stack(arcs.coords).astype(np.int64)),
            edge_weight=torch.from_numpy(np.array(arcs.data)),
        )
        if not self.is_whole:
            data.selected = torch.zeros(self.n_nodes, dtype=torch.bool)
            data.selected[torch.from_numpy(self.nodes.copy())] = True
        if y is not None:
            labels = np.asarray(y)
            if labels.shape != (len(self),) or labels.dtype.kind not in "biuf":
                raise GraphError(
                    f"y must hold {len(self)} numbers, one a selected node; got "
                    f"shape {labels.shape} and dtype {labels.dtype}"
                )
            dtype = np.float32 if labels.dtype.kind == "f" else np.int64
            full = np.full(self.n_nodes, -1, dtype=dtype)
            full[self.nodes] = labels
            data.y = torch.from_numpy(full)
        return data

    def to_networkx(self) -> networkx.Graph:
        """Make a networkx graph of the whole graph.

        Returns
        -------
        networkx.Graph
            Nodes by name, or 0 to n_nodes - 1 where they have none, with their
            features in ``"x"`` and ``"selected"``; edges with ``"weight"``.
        """
        import networkx as nx

        graph = nx.from_scipy_sparse_array(self.adjacency)
        rows = _dense(self.features)
        nx.set_node_attributes(graph, dict(enumerate(rows)), "x")
        nx.set_node_attributes(graph, False, "selected")
        for node in self.nodes.tolist():
            graph.nodes[node]["selected"] = True
        if self.node_names is None:
            return graph
        names = dict(enumerate(self.node_names.tolist()))
        return nx.relabel_nodes(graph, names)

    # ------------------------------------------------------- the house rules

    def __sklearn_clone__(self) -> Graph:
        return self

    def __copy__(self) -> Graph:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._selected is not None:
            self._selected = _frozen(self._selected)

    def __repr__(self) -> str:
        of = "" if self.is_whole else f"{len(self):,} of "
        return (
            f"Graph({of}{_plural(self.n_nodes, 'node')}, "
            f"{_plural(self.n_edges, 'edge')}, {_plural(self.n_features, 'feature')})"
        )

    def _repr_html_(self) -> str:
        kind = "sparse" if sp.issparse(self.features) else "dense"
        rows = {
            "nodes": f"{self.n_nodes:,}",
            "selected": "all" if self.is_whole else f"{len(self):,}",
            "edges": f"{self.n_edges:,}",
            "features": f"{self.n_features:,} ({kind})",
        }
        cells = "".join(
            f"<tr><th style='text-align:left'>{key}</th><td>{value}</td></tr>"
            for key, value in rows.items()
        )
        return f"<table><caption>Graph</caption>{cells}</table>"


def as_graph(X: Any, *, n_neighbors: int = 15) -> Graph:
    """Make a graph of whatever is at hand.

    Parameters
    ----------
    X : Graph, torch_geometric Data, networkx graph, or feature matrix
        A graph is returned as it is. A feature matrix (array-like, sparse or
        DataFrame) becomes a nearest-neighbour graph of its rows.
    n_neighbors : int, default=15
        Neighbours of each row of a feature matrix.

    Returns
    -------
    Graph

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa.graph import as_graph
    >>> as_graph(np.eye(4), n_neighbors=1).n_nodes
    4
    """
    if isinstance(X, Graph):
        return X
    if hasattr(X, "is_multigraph") and hasattr(X, "edges"):
        return Graph.from_networkx(X)
    if hasattr(X, "edge_index") or hasattr(X, "edge_index_dict"):
        return Graph.from_pyg(X)
    if X is None or isinstance(X, (str, bytes, Mapping)):
        raise GraphError(
            f"{type(X).__name__} is no graph: give a sktifa.Graph, one of "
            "torch_geometric or networkx, or a matrix of features"
        )
    return Graph.from_features(check_rows(X), n_neighbors=n_neighbors)


def is_feature_matrix(X: Any) -> bool:
    """Tell a feature matrix from anything that `as_graph` takes for a graph."""
    return not (
        isinstance(X, Graph)
        or hasattr(X, "edge_index")
        or hasattr(X, "edge_index_dict")
        or (hasattr(X, "is_multigraph") and hasattr(X, "edges"))
    )


# ---------------------------------------------------------------- the checks


def _clean_adjacency(
    adjacency: ArrayLike | sp.sparray | sp.spmatrix,
    directed: Directed,
    node_names: Any,
) -> sp.csr_array:
    """Bring an adjacency into the form that `Graph.adjacency` promises."""
    if directed not in ("symmetrize", "error"):
        raise ParameterError(
            f"directed must be 'symmetrize' or 'error', got {directed!r}"
        )
    if is_sparse(adjacency):
        given = check_sparse(
            adjacency, "adjacency", duplicates="keep", finite=False, dtype=None
        )
    else:
        dense = as_numbers(adjacency, "adjacency")
        if dense.ndim != 2:
            raise _not_square(dense.shape)
        # SciPy has no sparse matrices of float16.
        given = sp.csr_array(dense if dense.itemsize > 2 else _as_float32(dense))
    if given.shape[0] != given.shape[1]:
        raise _not_square(given.shape)
    n = given.shape[0]
    if n == 0:
        raise GraphError("a graph needs at least one node, got none")
    weight = _as_float32(given.data)
    csr = sp.csr_array((weight, given.indices, given.indptr), shape=given.shape)
    bad = _bad_weights(given.data, weight)
    if bad.any():
        at = int(bad.argmax())
        row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
        begin, end = (_called(node, node_names) for node in (row, csr.indices[at]))
        raise GraphError(
            f"the edge from node {begin} to node {end} has weight "
            f"{given.data[at]}: {_GOOD_WEIGHTS}"
        )
    if not weight.sum(dtype=np.float64) <= np.finfo(np.float32).max:
        raise GraphError(
            "the weights sum to more than float32 can hold: divide them by the largest "
            "one, as only their ratios matter"
        )
    del bad, given
    if not csr.has_canonical_format:
        arcs = csr.tocoo()
        row, col = arcs.coords
        csr = _merge(row, col, arcs.data, n)
    if csr.diagonal().any() or not csr.data.all():
        arcs = csr.tocoo()
        row, col = arcs.coords
        keep = (row != col) & (arcs.data != 0)
        csr = _merge(row[keep], col[keep], arcs.data[keep], n)
    reverse = csr.T.tocsr()
    if not (
        np.array_equal(csr.indptr, reverse.indptr)
        and np.array_equal(csr.indices, reverse.indices)
        and np.array_equal(csr.data, reverse.data)
    ):
        one_way = (csr - reverse).tocoo()
        first = int((one_way.data != 0).argmax())
        i, j = (int(c[first]) for c in one_way.coords)
        count = int(np.count_nonzero(one_way.data)) // 2
        what = (
            f"the graph is directed: {_plural(count, 'edge')} not the same both ways, "
            f"first between nodes {_called(i, node_names)} and "
            f"{_called(j, node_names)} (weights {csr[i, j]:g} and {csr[j, i]:g})"
        )
        if directed == "error":
            raise GraphError(
                f"{what}. Symmetrise the adjacency (A.maximum(A.T)), or pass "
                "directed='symmetrize'"
            )
        warnings.warn(
            f"{what}. The larger weight is kept for both ways: give each edge one "
            "weight (A.maximum(A.T) does for an adjacency A)",
            GraphWarning,
            stacklevel=user_level(),
        )
        csr = csr.maximum(reverse)
    return csr


def _not_square(shape: tuple[int, ...]) -> GraphError:
    return GraphError(
        f"adjacency must be square, got shape {shape}: for a list of edges use "
        "Graph.from_edge_index, for a feature matrix Graph.from_features"
    )


def _merge(
    row: NDArray[np.integer],
    col: NDArray[np.integer],
    weight: NDArray[np.float32],
    n: int,
) -> sp.csr_array:
    """Sort arcs into a CSR array; of arcs given more than once the largest stays."""
    merged = sp.coo_array((weight, (row, col)), shape=(n, n)).tocsr()
    if merged.nnz == len(weight):
        return merged
    if weight.min() == weight.max():
        merged.data[:] = weight[0]
        return merged
    order = np.lexsort((col, row))
    row, col, weight = row[order], col[order], weight[order]
    first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (col[1:] != col[:-1])])
    largest = np.maximum.reduceat(weight, first)
    return sp.coo_array((largest, (row[first], col[first])), shape=(n, n)).tocsr()


def _clean_edge_index(edge_index: ArrayLike) -> NDArray[np.integer]:
    edges = as_array(edge_index, "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        mend = "give the two ends of each edge as two rows"
        if edges.ndim == 2 and edges.shape[1] == 2:
            mend = "transpose it (edge_index.T)"
        raise GraphError(
            f"edge_index must have shape (2, n_arcs), got {edges.shape}: {mend}"
        )
    if edges.size == 0:
        return edges.astype(np.int64)
    if edges.dtype.kind not in "iu":
        raise GraphError(
            f"edge_index must hold integers, got dtype {edges.dtype}: number the "
            "nodes from 0 and cast with .astype(np.int64)"
        )
    return edges


def _count_nodes(edges: NDArray[np.integer], features: Any, n_nodes: int | None) -> int:
    if n_nodes is not None:
        return check_count(n_nodes, "n_nodes", low=1)
    if features is None:
        largest = f" (the largest number is {edges.max()})" if edges.size else ""
        raise GraphError(
            "there are no features to count the nodes by, and the edges say nothing "
            f"of nodes without edges: give n_nodes{largest}"
        )
    if isinstance(features, list):
        return len(features)
    shape = getattr(features, "shape", ())
    if not shape:
        raise GraphError(
            f"features must be a matrix, one row a node, got {type(features).__name__}"
        )
    return int(shape[0])


def _clean_weights(
    edge_weight: ArrayLike | None,
    edges: NDArray[np.integer],
    node_names: Any,
) -> NDArray[np.float32]:
    n_arcs = edges.shape[1]
    if edge_weight is None:
        return np.ones(n_arcs, dtype=np.float32)
    given = as_numbers(edge_weight, "edge_weight")
    weight = _as_float32(given)
    if weight.shape != (n_arcs,):
        raise GraphError(
            f"edge_weight must have shape ({n_arcs},), one weight a column of "
            f"edge_index; got {weight.shape}"
        )
    bad = _bad_weights(given, weight)
    if bad.any():
        at = int(bad.argmax())
        begin, end = (_called(node, node_names) for node in edges[:, at])
        raise GraphError(
            f"edge {at} (from node {begin} to node {end}) has weight "
            f"{given[at]}: {_GOOD_WEIGHTS}"
        )
    return weight


_GOOD_WEIGHTS = (
    "weights must be finite, not negative and, if not 0, not 0 in float32 either"
)


def _bad_weights(given: NDArray[Any], weight: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Find weights that none is, or that float32 makes infinite or no edge."""
    return ~np.isfinite(weight) | (weight < 0) | ((weight == 0) & (given != 0))


def _clean_features(
    features: Any, n_nodes: int | None, node_names: Any
) -> tuple[NDArray[np.float32] | sp.csr_array, list[str] | None]:
    """Bring features into the form that `Graph.features` promises."""
    if features is None and n_nodes is not None:
        return sp.eye_array(n_nodes, dtype=np.float32, format="csr"), None
    names = None
    if hasattr(features, "columns"):
        columns = list(features.columns)
        names = columns if all(isinstance(c, str) for c in columns) else None
    matrix: Any = as_numbers(features, "features")
    if matrix.ndim != 2:
        mend = ": use features.reshape(-1, 1)" if matrix.ndim == 1 else ""
        raise GraphError(f"features must be a matrix, got shape {matrix.shape}{mend}")
    if n_nodes is not None and matrix.shape[0] != n_nodes:
        raise GraphError(
            f"features have {_plural(matrix.shape[0], 'row')}, the graph has "
            f"{_plural(n_nodes, 'node')}: give one row for every node of the whole "
            "graph, nodes without edges included"
        )
    if matrix.shape[1] == 0:
        raise GraphError(
            "features have no column: pass features=None to give every node a "
            "feature of its own"
        )
    if sp.issparse(matrix):
        if not np.isfinite(matrix.data).all():
            at = int(np.isfinite(matrix.data).argmin())
            row = int(np.searchsorted(matrix.indptr, at, side="right")) - 1
            column = int(matrix.indices[at])
            raise _not_finite(matrix.data[at], _called(row, node_names), column, names)
        return matrix, names
    matrix = np.ascontiguousarray(_as_float32(matrix))
    step = max(1, _BLOCK // matrix.shape[1])
    for start in range(0, len(matrix), step):
        finite = np.isfinite(matrix[start : start + step])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            row += start
            raise _not_finite(
                matrix[row, column], _called(row, node_names), int(column), names
            )
    return matrix, names


def _not_finite(
    value: float, node: str, column: int, names: list[str] | None
) -> GraphError:
    name = f" ({names[column]!r})" if names else ""
    return GraphError(
        f"feature {column}{name} of node {node} is {value}: features must be finite "
        "(in float32); sklearn.impute.SimpleImputer fills gaps"
    )


def _clean_names(names: Sequence[str] | None, n_features: int) -> list[str] | None:
    if names is None:
        return None
    names = [str(name) for name in names]
    if len(names) != n_features:
        raise GraphError(
            f"there are {len(names)} feature_names for {_plural(n_features, 'feature')}"
        )
    return names


def _with_labels(
    graph: Graph, values: Any, label: str | None, return_X_y: bool, more: dict[str, Any]
) -> Any:
    """Return what a door returns that was asked for labels, or the graph alone."""
    from sktifa.frames import column_of, labels_of

    if label is None:
        if return_X_y:
            raise ParameterError("return_X_y needs y: name the labels with label=")
        return graph
    if values is None:
        raise GraphError(f"no node has the attribute {label!r}: name the labels' own")
    shape = getattr(values, "shape", (len(values),))
    if shape != (graph.n_nodes,):
        raise LabelError(
            f"{label!r} has shape {tuple(shape)}: give each of the "
            f"{_plural(graph.n_nodes, 'node')} one label"
        )
    target = labels_of(column_of(_as_list(values), f"attribute {label!r}"))
    return (graph, target) if return_X_y else Bunch(graph=graph, target=target, **more)


def _row_names(frame: Any) -> list[Any] | None:
    """Return the names of a pandas frame's rows, if they are more than numbers."""
    if not (hasattr(frame, "iloc") and hasattr(frame, "columns")):
        return None
    names = _as_list(frame.index)
    return None if names == list(range(len(names))) else names


def _in_order_of_rows(adjacency: Any, node_names: Any) -> tuple[Any, Any]:
    """Bring the columns of a frame into the order of its rows, which name the nodes."""
    if not (hasattr(adjacency, "iloc") and hasattr(adjacency, "columns")):
        return adjacency, node_names
    rows, columns = _as_list(adjacency.index), _as_list(adjacency.columns)
    if rows != columns:
        if len(set(rows)) < len(rows) or sorted(map(repr, rows)) != sorted(
            map(repr, columns)
        ):
            raise GraphError(
                "rows and columns of adjacency are not of the same names, each once: "
                "give adjacency.to_numpy() to go by position"
            )
        adjacency = adjacency[rows]
    names = _row_names(adjacency)
    if names is None or node_names is None:
        return adjacency, names if node_names is None else node_names
    if names != _as_list(node_names):
        raise GraphError(
            "the rows of adjacency have other names than node_names: leave node_names "
            "out, or give adjacency.to_numpy() to go by position"
        )
    return adjacency, node_names


def _in_order_of_nodes(features: Any, node_names: Any) -> tuple[Any, Any]:
    """Bring the rows of a frame into the order of the nodes, which they name."""
    rows = _row_names(features)
    if rows is None:
        return features, node_names
    if node_names is None:
        if all(type(row) is int for row in rows) and set(rows) == set(range(len(rows))):
            raise GraphError(
                "the rows of features are numbered, but not in order: use "
                "features.sort_index() if these are the nodes' numbers, "
                "features.reset_index(drop=True) if the rows are in their order"
            )
        return features, rows
    names = _as_list(node_names)
    if rows == names:
        return features, names
    if len(set(rows)) < len(rows) or set(rows) != set(names):
        odd = next((row for row in rows if row not in set(names)), None)
        what = "lack nodes or name one twice" if odd is None else f"name {odd!r}"
        raise GraphError(
            f"the rows of features {what}: give each node one row, such as "
            "features.loc[node_names], or features.to_numpy() to go by position"
        )
    return features.loc[names], names


def _clean_node_names(names: Iterable[Any] | None, n_nodes: int) -> Any:
    """Take names as an array of int64, or of objects that a dict can hold."""
    if names is None:
        return None
    given = _as_list(names)
    if len(given) != n_nodes:
        raise GraphError(
            f"there are {len(given)} node_names for {_plural(n_nodes, 'node')}: give "
            "every node of the whole graph one"
        )
    if all(type(name) is int for name in given):
        array = np.array(given)
    else:
        array = np.fromiter(given, dtype=object, count=n_nodes)
    seen: set[Any] = set()
    for at, name in enumerate(given):
        try:
            twice = name in seen
        except TypeError as error:
            raise GraphError(
                f"node_names[{at}] is {name!r}, which is not hashable: give text or "
                "numbers"
            ) from error
        if twice or name is None or name != name:
            what = "stands twice in node_names" if twice else "is no name"
            raise GraphError(
                f"node {name!r} {what} (at {at}): give every node a name of its own"
            )
        seen.add(name)
    return array


def _node_attributes(
    graph: networkx.Graph, names: list[Any], keys: list[str]
) -> NDArray[np.float64]:
    rows: list[NDArray[Any]] = []
    for name in names:
        attributes = graph.nodes[name]
        for key in keys:
            if key not in attributes:
                raise GraphError(
                    f"node {name!r} has no attribute {key!r}: set it for every node"
                )
        row = np.hstack([np.atleast_1d(attributes[key]) for key in keys])
        if rows and row.shape != rows[0].shape:
            raise GraphError(
                f"node {name!r} has {row.size} features, node {names[0]!r} has "
                f"{rows[0].size}: give every node vectors of the same length"
            )
        rows.append(row)
    return np.array(rows)


def _as_list(names: Iterable[Any]) -> list[Any]:
    """Take names as plain Python objects, not as scalars of NumPy's or pandas'."""
    return names.tolist() if hasattr(names, "tolist") else list(names)


def _are_text(index: NDArray[Any]) -> bool:
    """Whether these are names rather than positions."""
    if index.dtype.kind == "O":
        return all(isinstance(name, str) for name in index.flat)
    return index.dtype.kind in "UT"


def _called(node: Any, node_names: Any) -> str:
    """Return what a message calls a node: its name, or its number where it has none."""
    if node_names is None or len(node_names) <= node:
        return str(int(node))
    return repr(_as_list(node_names)[node])


def _as_float32(values: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float32, copy=False)


# ----------------------------------------------------------------- small things


def _dense(features: NDArray[np.float32] | sp.csr_array) -> NDArray[np.float32]:
    return features.toarray() if sp.issparse(features) else features


def _rows(features: Any, nodes: NDArray[np.int64]) -> Any:
    """Copy some rows; those of a memory map to a file: memory may not hold them."""
    base = features
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    if base is None or not features.shape[1]:
        return features[nodes]
    shape = (len(nodes), features.shape[1])
    path = _reserved_file(shape[0] * shape[1] * features.dtype.itemsize)
    rows = np.memmap(path, dtype=features.dtype, mode="w+", shape=shape)
    weakref.finalize(rows, Path(path).unlink, missing_ok=True)
    # With mode="clip" NumPy writes straight into `out`.
    np.take(features, nodes, axis=0, out=rows, mode="clip")
    return rows


def _reserved_file(n_bytes: int) -> str:
    """Make a temporary file whose space is there: a full disk would end the process."""
    handle, path = tempfile.mkstemp(prefix="sktifa-", suffix=".features")
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, max(n_bytes, 1))
    except OSError as error:
        Path(path).unlink()
        raise StorageError(
            f"the features of the nodes that training sees take {n_bytes:,} bytes of "
            f"temporary files, which {tempfile.gettempdir()} does not have "
            f"({error.strerror}): set TMPDIR to a folder that has."
        ) from error
    finally:
        os.close(handle)
    return path


def _frozen(array: Any) -> Any:
    """Give a read-only view; the array itself, maybe the caller's, stays as it is."""
    if sp.issparse(array):
        view = sp.csr_array(array.shape, dtype=array.dtype)
        view.data, view.indices, view.indptr = (
            _frozen(part) for part in (array.data, array.indices, array.indptr)
        )
        view.has_canonical_format = True
        return view
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _fingerprint(
    adjacency: sp.csr_array, features: NDArray[np.float32] | sp.csr_array
) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for matrix in (adjacency, features):
        parts: list[Any] = [matrix]
        if sp.issparse(matrix):
            parts = [matrix.indptr, matrix.indices, matrix.data]
        digest.update(repr((matrix.shape, [p.dtype.str for p in parts])).encode())
        for part in parts:
            digest.update(part)
    return digest.hexdigest()


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
