"""A graph that scikit-learn can index like an array of its nodes."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils import Bunch

from sktifa.callers import announce_array
from sktifa.checks import as_array, check_count
from sktifa.exceptions import GraphError, NodeNameError, ParameterError
from sktifa.graph.adjacency import Directed, adjacency_of_edges, clean_adjacency
from sktifa.graph.features import as_dense, clean_features, copy_of_rows
from sktifa.graph.formats import (
    as_networkx,
    as_pyg,
    networkx_parts,
    pyg_parts,
    with_labels,
)
from sktifa.graph.names import (
    as_list,
    called,
    clean_node_names,
    in_order_of_nodes,
    in_order_of_rows,
    plural,
    row_names,
)
from sktifa.graph.selecting import as_index
from sktifa.graph.whole import Whole, frozen

if TYPE_CHECKING:
    import networkx
    from torch_geometric.data import Data

__all__ = ["Graph"]

T = TypeVar("T")


class Graph:
    """An undirected graph with node features, indexed like an array of its nodes.

    ``graph[idx]`` is a *selection*: it holds the same whole graph and names the
    selected nodes in `nodes`. `len` and `shape` speak of the selection, so a graph
    serves as ``X`` in all of scikit-learn: splitters, searches, pipelines and
    meta-estimators index it, and estimators of sktifa still see every edge.

    A graph is immutable. Arrays that already have the right form are shared with
    the caller, not copied, and not to be written to; all others are converted once,
    here.

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

    _whole: Whole
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
        adjacency, node_names = in_order_of_rows(adjacency, node_names)
        features, node_names = in_order_of_nodes(features, node_names)
        node_names = None if node_names is None else as_list(node_names)
        clean = clean_adjacency(adjacency, directed, node_names)
        n = clean.shape[0]
        matrix, names = clean_features(features, n, node_names, feature_names)
        self._whole = Whole(clean, matrix, names, clean_node_names(node_names, n))
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
            Whole(adjacency, features, feature_names, node_names, parent_nodes), None
        )

    @classmethod
    def _of(cls, whole: Whole, selected: NDArray[np.int64] | None) -> Graph:
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
        node_names = None if node_names is None else as_list(node_names)
        adjacency = adjacency_of_edges(
            edge_index, edge_weight, features, n_nodes, node_names
        )
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
        graph = cls.from_edge_index(**pyg_parts(data), directed=directed)
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
        return with_labels(graph, values, label, return_X_y, masks)

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
        result = cls.from_edge_index(
            **networkx_parts(graph, names, features, weight), directed=directed
        )
        labels = None
        if label is not None:
            labels = [graph.nodes[name].get(label) for name in names]
            labels = None if all(value is None for value in labels) else labels
        return with_labels(result, labels, label, return_X_y, {})

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
        graph = cls.from_edge_index(
            parts.edge_index,
            parts.features,
            edge_weight=parts.edge_weight,
            n_nodes=len(nodes),
            directed=directed,
            feature_names=parts.feature_names,
            node_names=parts.node_names,
        )
        if parts.label is None:
            return graph
        labels = labels_of(parts.label)
        if return_X_y:
            return graph, labels
        return Bunch(
            graph=graph, target=labels, encoder=parts.encoder, report=parts.report
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
        node_names = row_names(X)
        matrix, names = clean_features(X, None, node_names)
        n = matrix.shape[0]
        if n == 0:
            raise GraphError("X has no rows: a graph needs at least one node")
        nearest = sp.csr_array((n, n))
        if n > 1:
            search = NearestNeighbors(
                n_neighbors=min(n_neighbors, n - 1), metric=metric
            )
            try:
                search.fit(matrix)
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
        return self._whole.fingerprint

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
        return self._whole.all_nodes if self._selected is None else self._selected

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
        index = as_index(index, self)
        if not isinstance(index, slice) and index.dtype.kind not in "iu":
            return self.select(index)
        nodes = self.nodes[index]
        whole = len(nodes) == self.n_nodes and np.array_equal(
            nodes, np.arange(self.n_nodes)
        )
        return Graph._of(self._whole, None if whole else nodes)

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]:
        announce_array()
        rows = self.features if self.is_whole else self.features[self.nodes]
        return np.array(as_dense(rows), dtype=dtype, copy=copy)

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
        number = self._whole.node_of_name
        names = as_list(names)
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
                f"node {called(chosen[at], self.node_names)} stands twice in nodes "
                f"(again at position {at}): "
                "take np.unique(nodes)"
            )
        induced = self.adjacency[chosen][:, chosen]
        induced.sort_indices()
        return Graph.from_clean(
            induced,
            copy_of_rows(self.features, chosen),
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
        features, _ = in_order_of_nodes(features, self.node_names)
        matrix, names = clean_features(
            features, self.n_nodes, self.node_names, feature_names
        )
        whole = Whole(
            self.adjacency,
            matrix,
            names,
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
        return as_pyg(self, y)

    def to_networkx(self) -> networkx.Graph:
        """Make a networkx graph of the whole graph.

        Returns
        -------
        networkx.Graph
            Nodes by name, or 0 to n_nodes - 1 where they have none, with their
            features in ``"x"`` and ``"selected"``; edges with ``"weight"``.
        """
        return as_networkx(self)

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
            self._selected = frozen(self._selected)

    def __repr__(self) -> str:
        of = "" if self.is_whole else f"{len(self):,} of "
        return (
            f"Graph({of}{plural(self.n_nodes, 'node')}, "
            f"{plural(self.n_edges, 'edge')}, {plural(self.n_features, 'feature')})"
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
