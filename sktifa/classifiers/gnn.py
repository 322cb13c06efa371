"""The supervised graph classifier, and what every fit does but for its objective."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import check_is_fitted
from torch import nn

from sktifa import distributed
from sktifa.callers import (
    ends_the_loop,
    goes_to_user,
    refuse_marks_as_class,
    refuse_marks_as_wrong,
)
from sktifa.classifiers.objective import Objective
from sktifa.classifiers.prepare import (
    Seen,
    adopt,
    as_it_was_on_error,
    graph_to_predict,
    prepare,
    warn_unless_graph_helps,
)
from sktifa.device import on_device, resolve_device
from sktifa.exceptions import GraphError, LabelError
from sktifa.frames import by_name
from sktifa.graph import Graph, as_graph, is_feature_matrix
from sktifa.inference import LayerwisePredictor
from sktifa.labels import encode_labels, find_classes, has_unlabelled, node_weights
from sktifa.logs import say
from sktifa.tensors.scaling import FeatureNorm, Scaling
from sktifa.training.encoders import ENCODERS, EncoderName, EncoderSpec, build_encoder
from sktifa.training.engine import computing, train
from sktifa.training.problem import Monitor, TrainingLog
from sktifa.training.sources import NodeFeatures, Sampler
from sktifa.training.terms import Term

__all__ = ["GNNClassifier", "as_decisions", "as_probabilities"]

SamplerName = Literal["auto", "saint-tifa", "saint-rw", "neighbor"]


def as_probabilities(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Turn class scores into what `predict_proba` returns."""
    return softmax(logits.astype(np.float64), axis=1)


def as_decisions(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Turn class scores into what `decision_function` returns."""
    scores: NDArray[np.float64] = logits.astype(np.float64)
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


class GNNClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Semi-supervised node classification with a graph neural network.

    Trains an encoder on the cross-entropy of the labelled nodes (Eq. 7 of the
    TIFA-GCL paper) while every node's features and edges take part in the forward
    pass.

    Parameters
    ----------
    encoder : str, Layer class, torch.nn.Module class or factory, default="gcn"
        "gcn", "appnp" (dense layers, then the scores are propagated), "gat", "sage",
        "cheb", "arma", "feast", "hypergraph", "graphconv" or "mlp"; or what its layers
        are, a subclass of :class:`sktifa.training.encoders.Layer`; or a class or
        function that makes a module with ``forward(x, edge_index)``, see
        :func:`sktifa.training.encoders.build_encoder`.
    hidden_size : int, default=64
        Width of the hidden layers.
    n_layers : int, default=2
        Number of layers, at least 2.
    dropout : float, default=0.5
        Dropout rate at the input of every layer. Few features are dropped less, and
        masked less, so that one node in 1,024 at most loses all `h` it has: with a
        probability of no more than ``1024^(-1 / h)``, .03 of two, .18 of four.
    residual : bool, default=False
        Add a hidden layer's input to its output.
    normalization : {"batch", "layer"} or None, default=None
        Normalisation of the hidden layers.
    propagation_steps : int, default=4
        Steps ``h <- (1 - teleport) A h + teleport * h0`` that "appnp" takes.
    teleport : float, default=0.2
        Weight of a node's own scores in each of them, in [0, 1].
    feature_norm : {"auto", "standard", "l1", "l2", "max"} or None, default="auto"
        "standard" standardises the columns, by the features of all nodes that training
        sees (sparse ones are only divided, and stay sparse); "auto" does so where
        dense features are real numbers, and leaves 0/1, counts and bags of words; the
        others scale each node's features to this norm; None leaves them.
    learning_rate : float, default=0.01
        Adam's step size.
    learning_rate_decay : float, default=1.0
        Factor an epoch from epoch `min_iter` on, down to a rate of 1e-4.
    weight_decay : float, default=0.005
        L2 regularisation.
    max_iter : int or "auto", default="auto"
        Largest number of epochs; "auto" is 400 where validation says when to stop, and
        200 where nothing does.
    min_iter : int, default=30
        Epochs before training may stop early.
    early_stopping : "auto" or bool, default="auto"
        Stop when validation no longer improves, and keep the best model. Uses
        ``X_val`` and ``y_val`` of `fit`, or sets labelled nodes aside: True wherever
        each class can spare one, "auto" only where each has 100. With few labels,
        training on all of them for `max_iter` epochs is the better model. False leaves
        any validation set unused.
    validation_fraction : float, default=0.2
        Share of each class's labelled nodes that is set aside.
    n_iter_no_change : int, default=50
        Epochs without improvement after which training stops.
    tol : float, default=0.0
        Improvement smaller than this does not count.
    monitor : {"calibrated_loss", "loss", "accuracy"}, default="calibrated_loss"
        What is watched on the validation nodes: cross-entropy, accuracy, or
        cross-entropy after dividing the scores by the temperature that makes it
        smallest. The last keeps no untrained network where a model becomes
        overconfident before it is right.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class in the cross-entropy.
    extra_terms : sequence of Term or None, default=None
        More summands of the loss, see :mod:`sktifa.training.terms`.
    setting : {"transductive", "inductive"}, default="transductive"
        Whether training sees the whole graph, or only the graph induced by the nodes
        that `fit` is given. Inductive validation runs on the graph of training and
        validation nodes. Prediction uses the whole graph either way.
    sampler : str, sampler or None, default=None
        What a training step sees: None is the whole graph; "saint-tifa", "saint-rw"
        and "neighbor" are samplers with their defaults, see
        :class:`~sktifa.sampling.SAINTTIFASampler` and
        :class:`~sktifa.sampling.NeighborSampler`, instances of which may be given;
        "auto" is the whole graph where a step is estimated to fit the device's free
        memory, else "saint-tifa".
    prediction_memory : int or None, default=None
        Bytes that prediction may use on the device: a larger graph passes each layer
        in blocks of nodes. None takes half of what is free.
    n_neighbors : int, default=15
        Neighbours of each row when `X` is a plain array, which becomes a
        nearest-neighbour graph.
    missing_label : int, float, str or None, default=-1
        Marks unlabelled nodes in `y`.
    warm_start : bool, default=False
        Go on from the last fit's weights.
    device : str, default="auto"
        "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps".
    random_state : int, RandomState or None, default=None
        Seeds the weights, the dropout and the validation split.
    verbose : int, default=0
        Print loss and validation every so many epochs.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    network_ : torch.nn.Module
        The trained encoder, in evaluation mode. Its tensors have a leading dimension
        of one model.
    spec_ : EncoderSpec
        What the encoder was built from.
    scaling_ : Scaling
        What is done to features before the first layer.
    seen_ : Seen
        Which nodes of the graph, or rows of an array, training saw.
    sampler_ : sampler
        The fitted sampler, where there is one. Left out of pickles.
    fitted_on_ : dict
        The graph of `fit`: its `n_nodes`, `n_edges`, `n_features` and `fingerprint`,
        which tells whether another graph is the same; None for a graph of more than
        10^8 numbers.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, where they have any.
    n_iter_ : int
        Epochs run.
    best_iter_ : int
        Epochs after which the model that is kept was found.
    loss_curve_ : list of float
        Training loss of each epoch.
    validation_scores_ : list of float or None
        Validation accuracy before the first epoch and after each.
    validation_losses_ : list of float or None
        Validation cross-entropy, likewise.

    See Also
    --------
    TIFAGCLClassifier : Adds contrast where few labels reach.

    Notes
    -----
    ``fit(graph[labeled], y[labeled])`` and ``fit(graph, y)`` with `missing_label` in
    `y` are the same: a selection carries its whole graph. `predict` on the graph of
    `fit` is transductive; on another graph with the same features it runs the trained
    encoder there. For a model fitted on a plain array, new rows are tied to their
    nearest training rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa import GNNClassifier, load_digits_graph
    >>> digits = load_digits_graph()
    >>> labeled = np.arange(0, 1797, 18)
    >>> model = GNNClassifier(max_iter=50, random_state=0, device="cpu")
    >>> _ = model.fit(digits.graph[labeled], digits.target[labeled])
    >>> model.score(digits.graph, digits.target) > 0.9
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "encoder": [StrOptions(set(ENCODERS)), callable],
        "hidden_size": [Interval(numbers.Integral, 1, 2**48, closed="both")],
        "n_layers": [Interval(numbers.Integral, 2, 1000, closed="both")],
        "dropout": [Interval(numbers.Real, 0, 1, closed="left")],
        "residual": ["boolean"],
        "normalization": [StrOptions({"batch", "layer"}), None],
        "propagation_steps": [Interval(numbers.Integral, 0, None, closed="left")],
        "teleport": [Interval(numbers.Real, 0, 1, closed="both")],
        "feature_norm": [StrOptions({"auto", "standard", "l1", "l2", "max"}), None],
        "learning_rate": [Interval(numbers.Real, 0, None, closed="neither")],
        "learning_rate_decay": [Interval(numbers.Real, 0, 1, closed="right")],
        "weight_decay": [Interval(numbers.Real, 0, None, closed="left")],
        "max_iter": [
            Interval(numbers.Integral, 1, None, closed="left"),
            StrOptions({"auto"}),
        ],
        "min_iter": [Interval(numbers.Integral, 0, None, closed="left")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "validation_fraction": [Interval(numbers.Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(numbers.Integral, 1, None, closed="left")],
        "tol": [Interval(numbers.Real, 0, None, closed="left")],
        "monitor": [StrOptions({"calibrated_loss", "loss", "accuracy"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "extra_terms": ["array-like", None],
        "setting": [StrOptions({"transductive", "inductive"})],
        "sampler": [
            StrOptions({"auto", "saint-tifa", "saint-rw", "neighbor"}),
            HasMethods(["fit", "epoch"]),
            None,
        ],
        "prediction_memory": [Interval(numbers.Integral, 1, None, closed="left"), None],
        "n_neighbors": [Interval(numbers.Integral, 1, None, closed="left")],
        "missing_label": [numbers.Real, str, None],
        "warm_start": ["boolean"],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # Tells `sktifa.callers` that an array in place of a graph is a loss.
    _trains_on_graphs: ClassVar[bool] = True

    classes_: NDArray[Any]
    network_: nn.Module
    spec_: EncoderSpec
    scaling_: Scaling
    sampler_: Sampler
    fitted_on_: dict[str, Any]
    seen_: Seen
    n_iter_: int
    best_iter_: int
    loss_curve_: list[float]
    validation_scores_: list[float] | None
    validation_losses_: list[float] | None

    # What a subclass does with what labels tell beyond the cross-entropy.
    objective: ClassVar[type[Objective]] = Objective

    def __init__(
        self,
        encoder: EncoderName | type[nn.Module] | Callable[..., nn.Module] = "gcn",
        *,
        hidden_size: int = 64,
        n_layers: int = 2,
        dropout: float = 0.5,
        residual: bool = False,
        normalization: Literal["batch", "layer"] | None = None,
        propagation_steps: int = 4,
        teleport: float = 0.2,
        feature_norm: FeatureNorm | None = "auto",
        learning_rate: float = 0.01,
        learning_rate_decay: float = 1.0,
        weight_decay: float = 0.005,
        max_iter: int | Literal["auto"] = "auto",
        min_iter: int = 30,
        early_stopping: bool | Literal["auto"] = "auto",
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 50,
        tol: float = 0.0,
        monitor: Monitor = "calibrated_loss",
        class_weight: dict | Literal["balanced"] | None = None,
        extra_terms: Sequence[Term] | None = None,
        setting: Literal["transductive", "inductive"] = "transductive",
        sampler: SamplerName | Sampler | None = None,
        prediction_memory: int | None = None,
        n_neighbors: int = 15,
        missing_label: int | float | str | None = -1,
        warm_start: bool = False,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.hidden_size = hidden_size
        self.n_layers = n_layers
        self.dropout = dropout
        self.residual = residual
        self.normalization = normalization
        self.propagation_steps = propagation_steps
        self.teleport = teleport
        self.feature_norm = feature_norm
        self.learning_rate = learning_rate
        self.learning_rate_decay = learning_rate_decay
        self.weight_decay = weight_decay
        self.max_iter = max_iter
        self.min_iter = min_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.monitor = monitor
        self.class_weight = class_weight
        self.extra_terms = extra_terms
        self.setting = setting
        self.sampler = sampler
        self.prediction_memory = prediction_memory
        self.n_neighbors = n_neighbors
        self.missing_label = missing_label
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: Graph | ArrayLike,
        y: ArrayLike,
        X_val: Graph | ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> GNNClassifier:
        """Train on the labelled nodes of a graph.

        Parameters
        ----------
        X : Graph, PyG Data, networkx graph, or array-like of shape (n, n_features)
            The graph, or a selection of its nodes: the whole graph takes part either
            way. A plain array becomes a nearest-neighbour graph of its rows.
        y : array-like of shape (n,)
            A label for each (selected) node; `missing_label` where unlabelled.
        X_val : Graph or array-like of shape (n_val, n_features), default=None
            Validation nodes: a selection of the same graph, or another graph.
        y_val : array-like of shape (n_val,), default=None
            Their labels; all labelled nodes of `X_val` count.
        sample_weight : array-like of shape (n,), default=None
            Weight of each node in the cross-entropy.

        Returns
        -------
        self

        Raises
        ------
        GraphError
            If the graph is malformed.
        LabelError
            If no node is labelled, there is one class only, `y` has another length
            or validation has an unknown class.
        TrainingError, NotEnoughMemoryError
            If not even one epoch can be trained.

        Notes
        -----
        After an error the estimator is what it was before: fitted as by the last
        `fit` that ended, or not fitted.
        """
        distributed.join()
        device = distributed.local_device(resolve_device(self.device))
        with on_device(device), as_it_was_on_error(self):
            return self._train(
                device, X, y, X_val=X_val, y_val=y_val, sample_weight=sample_weight
            )

    def predict(self, X: Graph | ArrayLike) -> NDArray[Any]:
        """Predict the class of each (selected) node.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            The graph of `fit`, a selection of it, another graph with the same
            features, or, for a model fitted on an array, rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels. A Series or data frame by name where `set_output` asks for it.
        """
        codes = self._scores(X).argmax(1)
        return self._by_name(self.classes_[codes], X, "prediction")

    def predict_proba(self, X: Graph | ArrayLike) -> NDArray[np.float64]:
        """Predict the probability of each class.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As for `predict`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Rows sum to one; columns follow `classes_`. A data frame by name where
            `set_output` asks for it.
        """
        return self._by_name(as_probabilities(self._scores(X)), X)

    def decision_function(self, X: Graph | ArrayLike) -> NDArray[np.float64]:
        """Return the encoder's scores.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As for `predict`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes), or (n,) for two classes
            Logits; for two classes the second's minus the first's. By name where
            `set_output` asks for it.
        """
        return self._by_name(as_decisions(self._scores(X)), X, "decision")

    def score(
        self, X: Graph | ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the accuracy on the labelled nodes.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As for `predict`.
        y : array-like of shape (n,)
            Labels; nodes of `missing_label` don't count.
        sample_weight : array-like of shape (n,), default=None
            Weight of each node.

        Returns
        -------
        float
            Share of the labelled nodes that are predicted right.

        Raises
        ------
        LabelError
            If no node is labelled.
        """
        rows = X if is_feature_matrix(X) else as_graph(X)
        codes, classes = encode_labels(y, self.missing_label, of=rows)
        labeled = codes >= 0
        weight = node_weights(sample_weight, len(codes))[labeled]
        true = find_classes(classes, self.classes_)[codes[labeled]]
        predicted = find_classes(self.predict(rows)[labeled], self.classes_)
        if not weight.any():
            raise LabelError("no labelled node has a sample_weight above zero.")
        weight = weight / weight.max()  # sums of large ones are no floats
        return float(np.average(true == predicted, weights=weight))

    def embed(self, X: Graph | ArrayLike) -> NDArray[np.float32]:
        """Return the last hidden layer, an embedding of each (selected) node.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As for `predict`.

        Returns
        -------
        ndarray of float32, shape (n, hidden_size)
        """
        return self._run(X, LayerwisePredictor.embed)

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> GNNClassifier:
        """Choose what predictions come back as: arrays, or tables by node name.

        As everywhere in scikit-learn, whose ``set_config(transform_output="pandas")``
        has the same effect on all estimators.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None, default=None
            - "default": arrays, in the order of the (selected) nodes.
            - "pandas": `predict` gives a Series, `predict_proba` a DataFrame with a
              column a class, indexed by the nodes' names or, where they have none,
              their numbers. Of a data frame's rows the index is theirs.
            - "polars": data frames, whose first column, "node", has the names.
            - None: no change.

        Returns
        -------
        self

        Notes
        -----
        Names come back through pipelines and searches too. scikit-learn's own code,
        such as a scorer or a vote, is given arrays whatever is chosen. Set it on the
        classifier, ``pipeline[-1].set_output(...)``: a pipeline's own `set_output`
        tells transformers alone.

        Examples
        --------
        >>> from sktifa import GNNClassifier, Graph
        >>> graph = Graph(
        ...     [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]],
        ...     node_names=["ann", "bob", "cat", "dan"],
        ... )
        >>> model = GNNClassifier(max_iter=20, random_state=0, device="cpu")
        >>> model = model.set_output(transform="pandas")
        >>> model.fit(graph[["ann", "cat"]], ["golf", "chess"]).predict(graph)["bob"]
        'golf'
        """
        if transform is not None:
            # Where clone() and the global configuration look.
            self._sklearn_output_config = {"transform": transform}
        return self

    # ------------------------------------------------------------ training

    def _train(
        self, device: torch.device, X: Any, y: Any, **more: Any
    ) -> GNNClassifier:
        problem = prepare(self, X, y, device, **more)
        self.spec_ = problem.encoder
        trusts_edges = self.encoder != "mlp" or self.objective.needs_information
        if trusts_edges and self.seen_.rows is None and problem.source is None:
            warn_unless_graph_helps(problem)
        # What callbacks are shown: the training nodes and their labels.
        nodes, codes = problem.train.index.numpy(), problem.train.target.numpy()
        shown = {"X": problem.graph[nodes], "y": self.classes_[codes]}
        n_networks = 1 + len(problem.teachers or ())
        context = self._init_callback_context(
            max_subtasks=n_networks * problem.schedule.max_iter
        )
        context.call_on_fit_task_begin(estimator=self, **shown)
        shown["reconstruction_attributes"] = dict
        on_epoch = None
        if self.verbose or getattr(self, "_skl_callbacks", None):
            on_epoch = partial(self._on_epoch, context=context, shown=shown)
        (trained,) = train(
            [problem], device, on_epoch=on_epoch, keeps_on_interrupt=True
        )
        if trained.error is not None:
            self.__dict__.pop("network_", None)
            raise trained.error
        adopt(self, problem, trained)
        if ends_the_loop(trained.log.interrupted):
            raise KeyboardInterrupt
        context.call_on_fit_task_end(estimator=self, **shown)
        return self

    def _on_epoch(
        self,
        log: TrainingLog,
        network: nn.Module,
        *,
        context: Any,
        shown: dict[str, Any],
    ) -> bool:
        if self.verbose and distributed.rank() == 0 and log.n_iter % self.verbose == 0:
            whose = f"teacher {log.teacher}, " if log.teacher else ""
            message = (
                f"{self.setting}, {whose}epoch {log.n_iter}: "
                f"loss {log.loss_curve[-1]:.4f}"
            )
            if log.validation_scores:
                message += f", validation accuracy {log.validation_scores[-1]:.4f}"
            say(message)
        if not getattr(self, "_skl_callbacks", None):
            return False
        name = "epoch"
        if log.teacher:  # it is no state of the estimator's
            name, shown = "teacher epoch", {}
        else:
            self.network_ = network
        epoch = context.subcontext(task_name=name)
        epoch.call_on_fit_task_begin(estimator=self)
        return epoch.call_on_fit_task_end(estimator=self, **shown)

    # ---------------------------------------------------------- prediction

    def _scores(self, X: Any) -> NDArray[np.float32]:
        scores = self._run(X, LayerwisePredictor.logits)
        lost = ~(scores < np.inf).all(axis=1)  # NaN is less than nothing
        if lost.any():
            raise GraphError(
                f"the scores of node {int(lost.argmax())} of X are not finite: "
                "features or weights, its own or those around it, are too large for "
                "float32, or an array was written to that the graph shares; scale "
                "them, and make the graph anew."
            )
        return scores

    def _by_name(self, values: NDArray[Any], X: Any, title: str | None = None) -> Any:
        """Return predictions as `set_output` asks for them."""
        library = _get_output_config("transform", self)["dense"]
        if library == "default" or not goes_to_user():
            return values
        if is_feature_matrix(X):
            names = X.index if hasattr(X, "iloc") else np.arange(len(values))
        else:
            names = as_graph(X).names_or_numbers()
        columns = self.classes_ if values.ndim == 2 else None
        return by_name(values, names, columns, library, title)

    def _run(self, X: Any, forward: Callable[..., torch.Tensor]) -> NDArray[Any]:
        check_is_fitted(self)
        refuse_marks_as_wrong(has_unlabelled, self.missing_label)
        device = next(self.network_.parameters()).device
        graph = graph_to_predict(self, X)
        nodes = None if graph.is_whole else graph.nodes
        with computing(device):
            features = NodeFeatures(graph.features, device, self.scaling_)
            predictor = LayerwisePredictor(
                graph.adjacency, features, self.prediction_memory
            )
            return forward(predictor, self.network_, nodes).cpu().numpy()

    # ---------------------------------------------------------- scikit-learn

    def __sklearn_clone__(self) -> Any:
        # A meta-estimator takes its copies before it sends them to other processes,
        # where nothing tells who sent them.
        refuse_marks_as_class(has_unlabelled, self.missing_label)
        return super().__sklearn_clone__()

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        # Each clone asks four times, and a signature takes as long to read as to clone.
        return super()._get_param_names()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # Weights travel as arrays: a model trained on a GPU opens anywhere, and
        # nothing that is opened runs code.
        state = dict(super().__getstate__())
        state.pop("sampler_", None)  # it holds the whole graph
        network = state.pop("network_", None)
        if network is not None:
            state["_network_state"] = {
                name: value.detach().cpu().numpy()
                for name, value in network.state_dict().items()
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Older pickles lack what came since: parameters, which have their defaults, and
        # what a fitted model knows of the graph of `fit`.
        state = dict(state)
        missing = set(self._get_param_names()) - state.keys()
        if missing:  # searches copy each candidate, and a signature is slow to read
            parameters = inspect.signature(type(self)).parameters
            state |= {name: parameters[name].default for name in missing}
        stored = state.pop("_network_state", None)
        if "spec_" in state:
            state.setdefault("fitted_on_", None)
            seen = Seen(state.pop("_seen_nodes", None), state.pop("_row_graph", None))
            state.setdefault("seen_", seen)
        super().__setstate__(state)
        if stored is not None:
            network = build_encoder(self.spec_, seed=0, dropout=self.dropout)
            network.load_state_dict(
                {name: torch.from_numpy(np.array(v)) for name, v in stored.items()}
            )
            self.network_ = network.eval()
