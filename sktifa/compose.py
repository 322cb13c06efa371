"""scikit-learn's tools around a graph: its features transformed, its nodes numbered.

A transformer takes an array and returns one, so that a graph would be lost on its way
through; :class:`OnFeatures` applies it to a graph's features. Meta-estimators that
resample rows, such as bagging, take arrays alone; :class:`OnNodes` lets them resample
the numbers of nodes.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    TransformerMixin,
    _fit_context,
    clone,
)
from sklearn.utils import get_tags
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils._set_output import _safe_set_output
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sktifa.callers import parts_of
from sktifa.exceptions import GraphError
from sktifa.graph import Graph, as_graph, is_feature_matrix, validated
from sktifa.labels import encode_labels, require_labels

__all__ = ["OnFeatures", "OnNodes"]

Statistics = Literal["all", "selected"]


class OnFeatures(
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # type: ignore[call-arg]
):
    """Apply a transformer to the features of a graph, which stays a graph.

    A scaler, PCA, a ColumnTransformer, a feature selection or any other transformer
    of scikit-learn's kind stands so before a graph classifier in a pipeline. Nodes
    and edges stay what they are, and so does the selection.

    Parameters
    ----------
    transformer : transformer
        A clone of it is fitted. It gets features that are sparse as they are where it
        takes sparse matrices, and as a pandas DataFrame where the graph's features
        have names, are dense and pandas is there.
    statistics : {"all", "selected"}, default="all"
        What the transformer learns from: the features of all nodes of the graph, or
        those of the selected nodes alone. Choose "selected" for inductive training,
        which must see nothing of the other nodes. A transformer that needs labels,
        such as SelectKBest or TargetEncoder, learns from the selected nodes that are
        labelled, whatever this says.
    missing_label : int, float, str or None, default=-1
        Marks an unlabelled node in `y`. None and NaN mark one in any case.

    Attributes
    ----------
    transformer_ : transformer
        The fitted transformer.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of str
        Their names, where they have names.

    See Also
    --------
    OnNodes : For meta-estimators that resample rows.
    LabelPropagationTIG : Features of how much annotated information reaches a node.

    Notes
    -----
    The graph of `fit` has one set of features for fitting and for predicting:
    transformers that cross-fit in `fit_transform`, such as TargetEncoder, describe
    its labelled nodes in `transform` as they did in `fit`, without the nodes' own
    labels. All selections of a graph share the transformed whole, so that work on it
    is cached for them together.

    A plain array is transformed as by the transformer alone. `set_output` and
    ``get_feature_names_out`` are the transformer's; a graph stays a graph.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sktifa import GNNClassifier, OnFeatures, load_digits_graph
    >>> digits = load_digits_graph()
    >>> train = digits.graph[::9], digits.target[::9]
    >>> model = make_pipeline(
    ...     OnFeatures(StandardScaler()),
    ...     GNNClassifier(max_iter=50, random_state=0, device="cpu"),
    ... ).fit(*train)
    >>> model.score(digits.graph, digits.target) > 0.9
    True
    >>> model[:-1].transform(digits.graph[:5])
    Graph(5 of 1,797 nodes, ... edges, 64 features)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "transformer": [HasMethods(["fit", "transform"])],
        "statistics": [StrOptions({"all", "selected"})],
        "missing_label": [numbers.Real, str, None],
    }

    # The labelled nodes of fit's graph, and what cross-fitting made of them.
    _cross_fitted: tuple[str, NDArray[np.int64], Any] | None = None
    # The last graph and what it became, as long as somebody has them.
    _last: tuple[Callable[[], Graph | None], ...] | None = None

    def __init__(
        self,
        transformer: Any,
        *,
        statistics: Statistics = "all",
        missing_label: int | float | str | None = -1,
    ) -> None:
        self.transformer = transformer
        self.statistics = statistics
        self.missing_label = missing_label

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Graph | ArrayLike, y: ArrayLike | None = None) -> OnFeatures:
        """Fit the transformer.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            A graph, or a selection of its nodes.
        y : array-like of shape (n,), default=None
            A label for each (selected) node, `missing_label` where there is none.

        Returns
        -------
        self

        Raises
        ------
        LabelError
            If `y` has another length, or the transformer needs labels and has none.
        """
        if is_feature_matrix(X):
            self._fit_rows(X, y)
            return self
        self._start()
        graph = validated(self, X)
        if not _needs_labels(self.transformer):
            everyone = self.statistics == "all" or graph.is_whole
            self.transformer_.fit(
                self._matrix(graph, None if everyone else graph.nodes)
            )
        else:
            known = require_labels(y, self.transformer)
            codes, classes = encode_labels(known, self.missing_label, of=graph)
            nodes = graph.nodes[codes >= 0]
            rows = self.transformer_.fit_transform(
                self._matrix(graph, nodes), classes[codes[codes >= 0]]
            )
            self._cross_fitted = graph.fingerprint, nodes, _plain(rows)
        return self

    @_fit_context(prefer_skip_nested_validation=False)
    def fit_transform(self, X: Graph | ArrayLike, y: ArrayLike | None = None) -> Any:
        """Fit the transformer, and transform what it is fitted on.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As in `fit`.
        y : array-like of shape (n,), default=None
            As in `fit`.

        Returns
        -------
        Graph, or what the transformer makes of an array
            As in `transform`.
        """
        if is_feature_matrix(X):
            return self._fit_rows(X, y)
        return self.fit(X, y).transform(X)

    def transform(self, X: Graph | ArrayLike) -> Any:
        """Transform the features.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            Any graph with the features of `fit`, or rows of such an array.

        Returns
        -------
        Graph, or what the transformer makes of an array
            The same nodes and edges, and the same selection, with other features.
        """
        check_is_fitted(self)
        if is_feature_matrix(X):
            return self.transformer_.transform(X)
        graph = as_graph(X)
        source, known = (of() for of in self._last or (_nothing, _nothing))
        if source is not None and known is not None and source.is_same_graph(graph):
            return known.select_as(graph)
        made = graph.with_features(*self._transformed(graph))
        self._last = graph.reference(), made.reference()
        return made

    def get_feature_names_out(
        self, input_features: ArrayLike | None = None
    ) -> NDArray[np.object_]:
        """Name the columns, as the transformer does.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the features; None takes those of `fit`.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        if input_features is None:
            input_features = getattr(self, "feature_names_in_", None)
        return self.transformer_.get_feature_names_out(input_features)

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> OnFeatures:
        """Choose the container that the transformer returns for plain arrays.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None, default=None
            As everywhere in scikit-learn. A graph stays a graph.

        Returns
        -------
        self
        """
        _safe_set_output(self.transformer, transform=transform)
        if hasattr(self, "transformer_"):
            _safe_set_output(self.transformer_, transform=transform)
        return self

    # ---------------------------------------------------------------- the work

    def _start(self) -> None:
        self.transformer_ = clone(self.transformer)
        self._cross_fitted = self._last = None
        self.__dict__.pop("feature_names_in_", None)

    def _fit_rows(self, X: Any, y: Any) -> Any:
        self._start()
        transformed = self.transformer_.fit_transform(X, y)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.transformer_, name):
                setattr(self, name, getattr(self.transformer_, name))
        return transformed

    def _matrix(self, graph: Graph, nodes: NDArray[np.int64] | None = None) -> Any:
        """Return features, of all nodes or some, in a form the transformer takes."""
        matrix = graph.features if nodes is None else graph.features[nodes]
        if sp.issparse(matrix):
            if not get_tags(self.transformer).input_tags.sparse:
                return matrix.toarray()
            # Compiled code, such as that of PolynomialFeatures, takes no arrays that it
            # may not write to; the graph's own are not to be written to.
            return matrix.copy() if nodes is None else matrix
        if graph.feature_names is None:
            return matrix
        try:
            import pandas as pd
        except ImportError:
            return matrix
        return pd.DataFrame(matrix, columns=graph.feature_names)

    def _transformed(self, graph: Graph) -> tuple[Any, list[str] | None]:
        """Return the features of the whole graph transformed, and their names."""
        matrix = _plain(self.transformer_.transform(self._matrix(graph)))
        if matrix.shape[0] != graph.n_nodes:
            raise GraphError(
                f"{type(self.transformer).__name__} made {matrix.shape[0]} rows of "
                f"{graph.n_nodes}: give a transformer that keeps every row."
            )
        if self._cross_fitted is not None:
            fingerprint, nodes, rows = self._cross_fitted
            if graph.fingerprint == fingerprint:
                matrix = _with_rows(matrix, nodes, rows)
        names = None
        if graph.feature_names is not None:
            # Some, such as FunctionTransformer, name nothing.
            with contextlib.suppress(AttributeError):
                names = list(self.get_feature_names_out(graph.feature_names))
        return matrix, names

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_last", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_transformer = get_tags(self.transformer)
        tags.input_tags.sparse = of_transformer.input_tags.sparse
        tags.input_tags.allow_nan = of_transformer.input_tags.allow_nan
        tags.target_tags.required = of_transformer.target_tags.required
        tags.transformer_tags = of_transformer.transformer_tags
        return tags


def _has(method: str) -> Any:
    return available_if(lambda on_nodes: hasattr(on_nodes.classifier, method))


class OnNodes(ClassifierMixin, BaseEstimator):
    """Let a graph classifier take the numbers of nodes in place of a graph.

    A meta-estimator that makes arrays of what it is given, such as BaggingClassifier,
    AdaBoostClassifier, OneVsOneClassifier or SelfTrainingClassifier, loses the edges of
    a graph. It may do with an array of node numbers what it likes.

    Parameters
    ----------
    classifier : classifier
        A graph classifier, or a pipeline that ends in one. A clone of it is fitted.
    graph : Graph
        The whole graph, or a selection of it.

    Attributes
    ----------
    classifier_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    n_features_in_ : int
        1: the number of a node is the only column.

    See Also
    --------
    OnFeatures : For transformers.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.ensemble import BaggingClassifier
    >>> from sktifa import GNNClassifier, OnNodes, load_digits_graph
    >>> digits = load_digits_graph()
    >>> nodes = digits.graph.nodes[:, None]
    >>> gnn = GNNClassifier(max_iter=30, device="cpu")
    >>> bagging = BaggingClassifier(
    ...     OnNodes(gnn, digits.graph), n_estimators=3, random_state=0
    ... ).fit(nodes[::9], digits.target[::9])
    >>> bagging.score(nodes, digits.target) > 0.8
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "classifier": [HasMethods(["fit", "predict"])],
        "graph": [Graph],
    }

    def __init__(self, classifier: Any, graph: Graph) -> None:
        self.classifier = classifier
        self.graph = graph

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> OnNodes:
        """Fit the classifier on some nodes.

        Parameters
        ----------
        X : array-like of int, shape (n, 1)
            Numbers of nodes of the whole graph.
        y : array-like of shape (n,)
            A label for each.
        sample_weight : array-like of shape (n,), default=None
            Weight of each.

        Returns
        -------
        self
        """
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        selected = self._selected(X)
        self.classifier_ = clone(self.classifier).fit(selected, y, **weights)
        self.classes_, self.n_features_in_ = self.classifier_.classes_, 1
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of nodes.

        Parameters
        ----------
        X : array-like of int, shape (n, 1)
            Numbers of nodes of the whole graph.

        Returns
        -------
        ndarray of shape (n,)
        """
        check_is_fitted(self)
        return self.classifier_.predict(self._selected(X))

    @_has("predict_proba")
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predict the probability of each class.

        Parameters
        ----------
        X : array-like of int, shape (n, 1)
            Numbers of nodes of the whole graph.

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        check_is_fitted(self)
        return self.classifier_.predict_proba(self._selected(X))

    @_has("decision_function")
    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the classifier's scores.

        Parameters
        ----------
        X : array-like of int, shape (n, 1)
            Numbers of nodes of the whole graph.

        Returns
        -------
        ndarray of shape (n, n_classes), or (n,) for two classes
        """
        check_is_fitted(self)
        return self.classifier_.decision_function(self._selected(X))

    def _selected(self, X: Any) -> Graph:
        if isinstance(X, Graph):
            raise GraphError(
                "OnNodes takes numbers of nodes and got a graph: give "
                "graph.nodes[:, None]."
            )
        nodes = np.asarray(X)
        whole = self.graph.whole
        if nodes.ndim != 2 or nodes.shape[1] != 1:
            raise GraphError(
                f"X must be one column of node numbers, graph.nodes[:, None]; got "
                f"shape {nodes.shape}."
            )
        numbers_ = nodes.ravel()
        bad = (numbers_ != np.round(numbers_)) | (numbers_ < 0)
        bad |= numbers_ >= whole.n_nodes
        if bad.any():
            at = int(bad.argmax())
            raise GraphError(
                f"X[{at}] is {numbers_[at]}, but the graph's nodes are numbered from 0 "
                f"to {whole.n_nodes - 1}."
            )
        # Meta-estimators make floats of numbers.
        return whole[numbers_.astype(np.int64)]


def _nothing() -> None:
    """Stand for the reference to a graph that is gone."""


def _needs_labels(transformer: Any) -> bool:
    """Whether a transformer, or one that it is made of, learns from labels."""
    return any(
        hasattr(part, "fit")
        and not isinstance(part, type)
        # Univariate selection says of itself that labels are optional.
        and (hasattr(part, "score_func") or get_tags(part).target_tags.required)
        for part in parts_of(transformer)
    )


def _plain(rows: Any) -> Any:
    """Return what a transformer made as an array or a sparse one."""
    return sp.csr_array(rows) if sp.issparse(rows) else np.asarray(rows)


def _with_rows(matrix: Any, nodes: NDArray[np.int64], rows: Any) -> Any:
    """Replace some rows of a matrix."""
    if sp.issparse(matrix):
        place = np.arange(matrix.shape[0])
        place[nodes] = len(place) + np.arange(len(nodes))
        return sp.csr_array(sp.vstack([matrix, rows], format="csr"))[place]
    replaced = np.array(matrix)
    replaced[nodes] = rows
    return replaced
