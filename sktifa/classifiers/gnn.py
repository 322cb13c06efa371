"""The supervised graph classifier, and what every fit does but for its objective."""

from __future__ import annotations

import io
import numbers
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context, clone
from sklearn.callback import CallbackSupportMixin
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import (
    _num_samples,
    check_is_fitted,
    validate_data,
)
from torch import nn

from sktifa import distributed
from sktifa.callers import (
    ends_the_loop,
    refuse_cut,
    refuse_marks_as_class,
    refuse_marks_as_wrong,
)
from sktifa.checks import check_rows
from sktifa.device import on_device, resolve_device
from sktifa.exceptions import GraphError, LabelError, ParameterError
from sktifa.graph import Graph, as_graph, is_feature_matrix
from sktifa.inference import LayerwisePredictor
from sktifa.information.tig import annotated_information
from sktifa.labels import (
    check_enough_classes,
    class_weights,
    encode_labels,
    find_classes,
    is_labelled,
    node_weights,
)
from sktifa.rows import RowGraph
from sktifa.sampling import NeighborSampler, SAINTTIFASampler
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.sparse import Adjacency, Features
from sktifa.training.encoders import ENCODERS, EncoderName, build_encoder
from sktifa.training.engine import (
    Batch,
    BatchSource,
    ContrastiveObjective,
    FullBatch,
    SupervisedObjective,
    TrainingLog,
    Validation,
    split_generator,
    train,
)
from sktifa.training.sources import (
    NodeFeatures,
    SampledBatches,
    Sampler,
    SubgraphContrast,
    free_memory,
)

__all__ = ["GNNClassifier"]

# Labelled nodes that each class needs before early_stopping="auto" sets some aside.
FEWEST_TO_SPARE = 100

SamplerName = Literal["auto", "saint-tifa", "saint-rw", "neighbor"]

# Numbers that a training step keeps a node and unit: input, product, sum, mask, output
# and gradients. Bytes an arc: pattern, weights, normalised values, both views.
_COPIES = 8
_BYTES_AN_ARC = 64


class GNNClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Semi-supervised node classification with a graph neural network.

    Trains an encoder on the cross-entropy of the labelled nodes (Eq. 7 of the
    TIFA-GCL paper) while every node's features and edges take part in the forward
    pass.

    Parameters
    ----------
    encoder : str, torch.nn.Module class or factory, default="gcn"
        "gcn", "gat", "sage", "cheb", "arma", "feast", "hypergraph", "graphconv" or
        "mlp"; or a class or function that makes a module with
        ``forward(x, edge_index)``, see :func:`sktifa.training.encoders.build_encoder`.
    hidden_size : int, default=64
        Width of the hidden layers.
    n_layers : int, default=2
        Number of layers, at least 2.
    dropout : float, default=0.5
        Dropout rate at the input of every layer.
    residual : bool, default=False
        Add a hidden layer's input to its output.
    normalization : {"batch", "layer"} or None, default=None
        Normalisation of the hidden layers.
    feature_norm : {"l1", "l2", "max"} or None, default=None
        Scale each node's features to this norm.
    learning_rate : float, default=0.01
        Adam's step size.
    learning_rate_decay : float, default=1.0
        Factor an epoch from epoch `min_iter` on, down to a rate of 1e-4.
    weight_decay : float, default=0.005
        L2 regularisation.
    max_iter : int, default=400
        Largest number of epochs.
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
    monitor : {"loss", "accuracy"}, default="loss"
        What is watched on the validation nodes: cross-entropy or accuracy.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class in the cross-entropy.
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
        The trained encoder, in evaluation mode.
    sampler_ : sampler
        The fitted sampler, where there is one. Left out of pickles.
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
        "hidden_size": [Interval(numbers.Integral, 1, None, closed="left")],
        "n_layers": [Interval(numbers.Integral, 2, None, closed="left")],
        "dropout": [Interval(numbers.Real, 0, 1, closed="left")],
        "residual": ["boolean"],
        "normalization": [StrOptions({"batch", "layer"}), None],
        "feature_norm": [StrOptions({"l1", "l2", "max"}), None],
        "learning_rate": [Interval(numbers.Real, 0, None, closed="neither")],
        "learning_rate_decay": [Interval(numbers.Real, 0, 1, closed="right")],
        "weight_decay": [Interval(numbers.Real, 0, None, closed="left")],
        "max_iter": [Interval(numbers.Integral, 1, None, closed="left")],
        "min_iter": [Interval(numbers.Integral, 0, None, closed="left")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "validation_fraction": [Interval(numbers.Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(numbers.Integral, 1, None, closed="left")],
        "tol": [Interval(numbers.Real, 0, None, closed="left")],
        "monitor": [StrOptions({"loss", "accuracy"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
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

    # What a fit leaves for prediction and for `_by_row`.
    _row_graph: RowGraph | None
    _seen_nodes: NDArray[np.int64] | None

    def __init__(
        self,
        encoder: EncoderName | type[nn.Module] | Callable[..., nn.Module] = "gcn",
        *,
        hidden_size: int = 64,
        n_layers: int = 2,
        dropout: float = 0.5,
        residual: bool = False,
        normalization: Literal["batch", "layer"] | None = None,
        feature_norm: Literal["l1", "l2", "max"] | None = None,
        learning_rate: float = 0.01,
        learning_rate_decay: float = 1.0,
        weight_decay: float = 0.005,
        max_iter: int = 400,
        min_iter: int = 30,
        early_stopping: bool | Literal["auto"] = "auto",
        validation_fraction: float = 0.2,
        n_iter_no_change: int = 50,
        tol: float = 0.0,
        monitor: Literal["loss", "accuracy"] = "loss",
        class_weight: dict | Literal["balanced"] | None = None,
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
        """
        distributed.join()
        device = distributed.local_device(resolve_device(self.device))
        with on_device(device):
            return self._fit(device, X, y, X_val, y_val, sample_weight)

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
            Labels.
        """
        codes = self._run(
            X, lambda graph, nodes: graph.logits(self.network_, nodes).argmax(1)
        )
        return self.classes_[codes]

    def predict_proba(self, X: Graph | ArrayLike) -> NDArray[np.float64]:
        """Predict the probability of each class.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As for `predict`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Rows sum to one; columns follow `classes_`.
        """
        logits = self._logits(X)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def decision_function(self, X: Graph | ArrayLike) -> NDArray[np.float64]:
        """Return the encoder's scores.

        Parameters
        ----------
        X : Graph or array-like of shape (n, n_features)
            As for `predict`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes), or (n,) for two classes
            Logits; for two classes the second's minus the first's.
        """
        logits = self._logits(X)
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def score(
        self,
        X: Graph | ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
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
        codes, classes = self._encode(y, rows)
        labeled = codes >= 0
        weight = node_weights(sample_weight, len(codes))[labeled]
        true = find_classes(classes, self.classes_)[codes[labeled]]
        predicted = find_classes(self.predict(rows)[labeled], self.classes_)
        if not weight.any():
            raise LabelError("no labelled node has a sample_weight above zero.")
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
        return self._run(X, lambda graph, nodes: graph.embed(self.network_, nodes))

    # ------------------------------------------------------------ training

    def _fit(
        self,
        device: torch.device,
        X: Any,
        y: Any,
        X_val: Any,
        y_val: Any,
        sample_weight: Any,
    ) -> GNNClassifier:
        random_state = check_random_state(self.random_state)
        if distributed.n_ranks() > 1:
            seed = distributed.agree(int(random_state.randint(2**31)))
            random_state = np.random.RandomState(seed)
        generator, rng = split_generator(random_state, device)
        # Processes agree on everything but their dropout.
        generator.manual_seed(generator.initial_seed() + distributed.rank())
        refuse_cut(X, X_val)
        graph, codes, weight = self._training_nodes(X, y, sample_weight)
        labeled = graph[np.flatnonzero(codes >= 0)], self.classes_[codes[codes >= 0]]
        train_mask, validation = self._train_and_validation(
            graph, codes, weight, X_val, y_val, random_state, device
        )
        nodes = graph.nodes[train_mask]
        codes, weight = codes[train_mask], weight[train_mask]
        if self.setting == "inductive":
            seen = graph.nodes
            if validation is not None and not validation.elsewhere:
                seen = np.setdiff1d(seen, validation.index.cpu().numpy())
                self._validate_inductively(graph, seen, validation, device)
            graph, nodes = graph.subgraph(seen), _positions(seen, nodes)
            self._seen_nodes = seen
        seed = int(random_state.randint(np.iinfo(np.int32).max))
        network = self._network(graph.n_features, seed).to(device)
        objective = self._objective()
        sampler = self._make_sampler(graph, device, rng)
        source: BatchSource
        if sampler is None:
            batch = self._batch(graph, nodes, codes, weight, device)
            source = self._source(batch, graph, nodes, codes, rng)
        else:
            validates = validation is not None and not validation.elsewhere
            source = self._sampled_source(
                sampler, graph, nodes, codes, weight, device, rng, validates
            )
        self.network_ = network
        context = self._init_callback_context(max_subtasks=self.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=labeled[0], y=labeled[1])
        try:
            log = train(
                network,
                source,
                objective,
                validation if self.early_stopping else None,
                learning_rate=self.learning_rate,
                weight_decay=self.weight_decay,
                learning_rate_decay=self.learning_rate_decay,
                max_iter=self.max_iter,
                min_iter=self.min_iter,
                n_iter_no_change=self.n_iter_no_change,
                tol=self.tol,
                monitor=self.monitor,
                generator=generator,
                on_epoch=lambda log: self._on_epoch(log, context, labeled),
            )
        finally:
            source.close()
        self._keep(log)
        if ends_the_loop(log.interrupted):
            raise KeyboardInterrupt
        context.call_on_fit_task_end(
            estimator=self,
            X=labeled[0],
            y=labeled[1],
            reconstruction_attributes=dict,
        )
        return self

    def _training_nodes(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Graph, NDArray[np.int64], NDArray[np.float64]]:
        """Check graph, labels and weights; set what scikit-learn wants to know."""
        if y is None:
            raise LabelError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        refuse_marks_as_class(self._has_unlabelled, self.missing_label)
        if is_feature_matrix(X):
            X = validate_data(
                self, check_rows(X), accept_sparse="csr", dtype=np.float32
            )
        else:
            X = as_graph(X)
            self.n_features_in_ = X.n_features
            self.__dict__.pop("feature_names_in_", None)
            if X.feature_names is not None:
                self.feature_names_in_ = np.array(X.feature_names, dtype=object)
        codes, self.classes_ = self._encode(y, X)
        check_enough_classes(y, codes, self.classes_, self.missing_label)
        weight = node_weights(sample_weight, len(codes))
        self._row_graph = self._seen_nodes = None
        if not isinstance(X, Graph):
            self._row_graph = RowGraph(X, codes, weight, self.n_neighbors)
            X, codes = self._row_graph.graph, self._row_graph.codes
            weight = self._row_graph.weight
        labeled = codes >= 0
        if len(np.unique(codes[labeled & (weight > 0)])) < 2:
            raise LabelError(
                "only one class has weight: a classifier needs at least 2 classes with "
                "nodes whose sample_weight is above zero."
            )
        of_class = class_weights(self.class_weight, codes, self.classes_)
        weight = np.where(labeled, weight * of_class[codes], weight)
        self._n_nodes = X.n_nodes
        return X, codes, weight

    def _encode(
        self, y: Any, X: Any, name: str = "y"
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Read the labels of a graph's selected nodes, or of rows."""
        of = X if isinstance(X, Graph) else _num_samples(X)
        return encode_labels(y, self.missing_label, of=of, name=name)

    def _has_unlabelled(self, y: Any) -> bool:
        try:
            return not is_labelled(y, self.missing_label).all()
        except LabelError:  # not labels of nodes at all
            return False

    def _train_and_validation(
        self,
        graph: Graph,
        codes: NDArray[np.int64],
        weight: NDArray[np.float64],
        X_val: Any,
        y_val: Any,
        random_state: np.random.RandomState,
        device: torch.device,
    ) -> tuple[NDArray[np.bool_], Validation | None]:
        """Tell the selected nodes that train from those that validate."""
        train_mask = codes >= 0
        if X_val is not None or y_val is not None:
            return train_mask, self._given_validation(graph, X_val, y_val, device)
        held_out = np.zeros(len(codes), dtype=bool)
        if self.early_stopping:
            held_out = _hold_out(codes, self, random_state)
        if not held_out.any():
            return train_mask, None
        return train_mask & ~held_out, _validation(
            graph.nodes[held_out], codes[held_out], weight[held_out], device
        )

    def _given_validation(
        self, graph: Graph, X_val: Any, y_val: Any, device: torch.device
    ) -> Validation:
        if X_val is None or y_val is None:
            raise ParameterError("give X_val and y_val together, or neither.")
        other = self._graph_of(graph._matching(X_val))
        known, classes = self._encode(y_val, other, "y_val")
        place = find_classes(classes, self.classes_, "y_val")
        if (place < 0).any():
            unknown = classes.tolist()[int(place.argmin())]
            raise LabelError(
                f"y_val has the class {unknown!r}, which no training node has: leave "
                "its nodes out of X_val, or label one for training."
            )
        nodes, labeled = other.nodes, known >= 0
        codes = place[known[labeled]]
        weight = np.ones(len(codes))
        if isinstance(self.class_weight, dict):
            of_class = [self.class_weight.get(c, 1.0) for c in self.classes_.tolist()]
            weight = np.array(of_class)[codes]
        elif self.class_weight == "balanced":
            weight = compute_sample_weight("balanced", codes)
        validation = _validation(nodes[labeled], codes, weight, device)
        if is_feature_matrix(X_val) or not _same_graph(other, graph):
            self._evaluate_on(other, validation, device)
        return validation

    def _evaluate_on(
        self, graph: Graph, validation: Validation, device: torch.device
    ) -> None:
        """Evaluate validation nodes on a graph that is not the one trained on."""
        if self.sampler is None:
            none = np.empty(0, dtype=np.int64)
            validation.batch = self._batch(graph, none, none, np.empty(0), device)
        else:
            predictor = self._predictor(graph, device)
            validation.logits = lambda encoder: predictor.logits(encoder).to(device)

    def _validate_inductively(
        self,
        graph: Graph,
        seen: NDArray[np.int64],
        validation: Validation,
        device: torch.device,
    ) -> None:
        """Let validation see the training nodes and its own, and no others."""
        index = validation.index.cpu().numpy()
        both = np.union1d(seen, index)
        validation.index = torch.from_numpy(_positions(both, index)).to(device)
        self._evaluate_on(graph.subgraph(both), validation, device)

    def _batch(
        self,
        graph: Graph,
        nodes: NDArray[np.int64],
        codes: NDArray[np.int64],
        weight: NDArray[np.float64],
        device: torch.device,
    ) -> Batch:
        features = graph.features
        if self.feature_norm is not None:
            features = normalize(features, norm=self.feature_norm)
        total = max(weight.sum(), np.finfo(float).tiny)
        return Batch(
            Features.from_matrix(features, device),
            Adjacency.from_csr(graph.adjacency, device),
            torch.from_numpy(nodes).to(device),
            torch.from_numpy(codes).to(device),
            torch.from_numpy(weight / total).float().to(device),
        )

    def _network(self, n_features: int, seed: int) -> nn.Module:
        network = build_encoder(
            self.encoder,
            n_features,
            self.hidden_size,
            len(self.classes_),
            n_layers=self.n_layers,
            dropout=self.dropout,
            residual=self.residual,
            normalization=self.normalization,
            seed=seed,
        )
        if self.warm_start and hasattr(self, "network_"):
            try:
                network.load_state_dict(self.network_.state_dict())
            except RuntimeError as error:
                raise ParameterError(
                    "warm_start goes on from the last fit's weights, but the encoder, "
                    "its sizes, the number of features or of classes have changed: "
                    "set warm_start=False or clone the estimator."
                ) from error
        return network

    def _objective(self) -> SupervisedObjective | ContrastiveObjective:
        return SupervisedObjective()

    def _source(
        self,
        batch: Batch,
        graph: Graph,
        nodes: NDArray[np.int64],
        codes: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> FullBatch:
        return FullBatch(batch)

    def _make_sampler(
        self, graph: Graph, device: torch.device, rng: np.random.Generator
    ) -> Sampler | None:
        """Make the sampler that `sampler` asks for; None where the batch is full."""
        sampler = self.sampler
        if sampler == "auto":
            fits = self._full_batch_bytes(graph) < free_memory(device)
            sampler = None if fits else "saint-tifa"
        if sampler is None:
            return None
        place = device if _fits_graph(graph, len(self.classes_), device) else "cpu"
        if sampler == "saint-tifa":
            sampler = SAINTTIFASampler(device=str(place))
        elif sampler == "saint-rw":
            sampler = SAINTTIFASampler(sharpness=0, device=str(place))
        elif sampler == "neighbor":
            sampler = NeighborSampler(
                num_neighbors=(10,) * self.n_layers, seeds=self._seeds
            )
        else:
            sampler = clone(sampler)
        options = sampler.get_params(deep=False)
        if "random_state" in options and options["random_state"] is None:
            sampler.set_params(random_state=int(rng.integers(2**31)))
        if "missing_label" in options:  # it is given class codes
            sampler.set_params(missing_label=-1)
        return sampler

    # Nodes that a neighbour sampler starts from.
    _seeds: ClassVar[Literal["labeled", "all"]] = "labeled"

    def _full_batch_bytes(self, graph: Graph) -> float:
        """Estimate the memory that a training step on the whole graph takes."""
        hidden = self.hidden_size * (self.n_layers - 1)
        units = graph.n_features + hidden + len(self.classes_)
        arcs = graph.adjacency.nnz
        products = self.encoder in ("gcn", "sage", "mlp")
        an_arc = _BYTES_AN_ARC + (0 if products else 4 * _COPIES * hidden)
        return 4.0 * _COPIES * graph.n_nodes * units + an_arc * arcs

    def _sampled_source(
        self,
        sampler: Sampler,
        graph: Graph,
        nodes: NDArray[np.int64],
        codes: NDArray[np.int64],
        weight: NDArray[np.float64],
        device: torch.device,
        rng: np.random.Generator,
        validates: bool,
    ) -> SampledBatches:
        graph = Graph._of(graph._whole, None)
        everyone = np.full(graph.n_nodes, -1, dtype=np.int64)
        everyone[nodes] = codes
        share = np.zeros(graph.n_nodes, dtype=np.float32)
        share[nodes] = weight / max(weight.sum(), np.finfo(float).tiny)
        features = NodeFeatures(graph.features, device, self.feature_norm)
        fits = _fits_graph(graph, len(self.classes_), device)
        placed = DeviceGraph.from_graph(graph, device if fits else torch.device("cpu"))
        information = None
        if self._needs_information(sampler):
            information = annotated_information(
                placed,
                everyone,
                len(self.classes_),
                restart_probability=getattr(
                    self,
                    "restart_probability",
                    getattr(sampler, "restart_probability", 0.15),
                ),
                features=(
                    graph.features
                    if features.resident is None or self.feature_norm is not None
                    else features.resident
                ),
            )
        if isinstance(sampler, SAINTTIFASampler):
            sampler.fit(graph, everyone, information=information, on_device=placed)
        else:
            sampler.fit(graph, everyone)
        predictor = LayerwisePredictor(
            graph.adjacency, features, self.prediction_memory, placed
        )
        generator = torch.Generator(device=device)
        generator.manual_seed(int(rng.integers(2**31)) + distributed.rank())
        self.sampler_ = sampler
        return SampledBatches(
            sampler,
            placed,
            features,
            torch.from_numpy(everyone).to(device),
            torch.from_numpy(share).to(device),
            contrast=self._subgraph_contrast(information, device),
            generator=generator,
            logits=(
                (lambda encoder: predictor.logits(encoder).to(device))
                if validates
                else None
            ),
            rank=distributed.rank(),
            n_ranks=distributed.n_ranks(),
        )

    def _needs_information(self, sampler: Sampler) -> bool:
        return isinstance(sampler, SAINTTIFASampler) and sampler.sharpness > 0

    def _subgraph_contrast(
        self, information: torch.Tensor | None, device: torch.device
    ) -> SubgraphContrast | None:
        return None

    def _on_epoch(
        self, log: TrainingLog, context: Any, labeled: tuple[Graph, NDArray[Any]]
    ) -> bool:
        if self.verbose and distributed.rank() == 0 and log.n_iter % self.verbose == 0:
            message = (
                f"{self.setting}, epoch {log.n_iter}: loss {log.loss_curve[-1]:.4f}"
            )
            if log.validation_scores:
                message += (
                    f", validation accuracy {log.validation_scores[-1]:.4f} before it"
                )
            print(message)
        if not getattr(self, "_skl_callbacks", None):
            return False
        epoch = context.subcontext(task_name="epoch")
        epoch.call_on_fit_task_begin(estimator=self)
        return epoch.call_on_fit_task_end(
            estimator=self,
            X=labeled[0],
            y=labeled[1],
            reconstruction_attributes=dict,
        )

    def _keep(self, log: TrainingLog) -> None:
        self.loss_curve_ = log.loss_curve
        self.validation_scores_ = log.validation_scores or None
        self.validation_losses_ = log.validation_losses or None
        self.n_iter_ = log.n_iter
        self.best_iter_ = log.best_iter

    # ---------------------------------------------------------- prediction

    def _logits(self, X: Any) -> NDArray[np.float64]:
        return self._run(
            X, lambda graph, nodes: graph.logits(self.network_, nodes)
        ).astype(np.float64)

    def _run(
        self,
        X: Any,
        forward: Callable[[LayerwisePredictor, NDArray[np.int64] | None], torch.Tensor],
    ) -> NDArray[Any]:
        check_is_fitted(self)
        refuse_marks_as_wrong(self._has_unlabelled, self.missing_label)
        device = next(self.network_.parameters()).device
        graph = self._graph_of(X)
        nodes = None if graph.is_whole else graph.nodes
        with on_device(device):
            return forward(self._predictor(graph, device), nodes).cpu().numpy()

    def _predictor(self, graph: Graph, device: torch.device) -> LayerwisePredictor:
        features = NodeFeatures(graph.features, device, self.feature_norm)
        return LayerwisePredictor(graph.adjacency, features, self.prediction_memory)

    def _graph_of(self, X: Any) -> Graph:
        """Return the graph that `X` belongs to, a selection of the nodes meant."""
        if is_feature_matrix(X):
            if self._row_graph is None:
                raise GraphError(
                    f"{type(self).__name__} was fitted on a graph and got an array of "
                    f"shape {np.shape(X)}: give a sktifa.Graph, or a selection of one."
                )
            X = validate_data(
                self, check_rows(X), accept_sparse="csr", dtype=np.float32, reset=False
            )
            graph = self._row_graph.with_new_rows(X)
        else:
            graph = as_graph(X)
            if self._row_graph is not None:
                raise GraphError(
                    f"{type(self).__name__} was fitted on an array, whose rows it ties "
                    f"to their neighbours, and got {graph!r}: fit it on a graph (in a "
                    "pipeline sktifa.OnFeatures keeps the graph), or predict rows."
                )
            if graph.n_features != self.n_features_in_:
                raise GraphError(
                    f"the graph has {graph.n_features} features, but "
                    f"{type(self).__name__} was fitted with {self.n_features_in_}: "
                    "give the features of training, in the same order."
                )
            names = getattr(self, "feature_names_in_", None)
            if names is not None and graph.feature_names is not None:
                differs = np.flatnonzero(names != np.array(graph.feature_names))
                if differs.size:
                    at = differs[0]
                    raise GraphError(
                        f"feature {at} is named {graph.feature_names[at]!r}, but was "
                        f"{names[at]!r} in fit: give the features in the same order."
                    )
        return graph

    # ---------------------------------------------------------- scikit-learn

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # Weights travel as CPU tensors: a model trained on a GPU opens anywhere.
        state = dict(super().__getstate__())
        state.pop("sampler_", None)  # it holds the whole graph
        if "network_" in state:
            buffer = io.BytesIO()
            torch.save(state.pop("network_"), buffer)
            state["_network_bytes"] = buffer.getvalue()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        stored = state.pop("_network_bytes", None)
        super().__setstate__(state)
        if stored is not None:
            self.network_ = torch.load(
                io.BytesIO(stored), map_location="cpu", weights_only=False
            )


def _same_graph(one: Graph, other: Graph) -> bool:
    # A fingerprint of millions of arcs takes seconds.
    return one._whole is other._whole or one.fingerprint == other.fingerprint


def _positions(among: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find distinct nodes among others, in whatever order these are."""
    order = np.argsort(among)
    return order[np.searchsorted(among, nodes, sorter=order)]


def _fits_graph(graph: Graph, n_classes: int, device: torch.device) -> bool:
    """Whether the arrays of sampling and propagation fit a device."""
    needed = _BYTES_AN_ARC * graph.adjacency.nnz + 32 * graph.n_nodes * n_classes
    return device.type == "cpu" or needed < free_memory(device)


def _validation(
    nodes: NDArray[np.int64],
    codes: NDArray[np.int64],
    weight: NDArray[np.float64],
    device: torch.device,
) -> Validation:
    total = weight.sum()
    # Nothing but zero weights held out: they are worth the same.
    share = weight / total if total > 0 else np.full(len(weight), 1 / len(weight))
    return Validation(
        torch.from_numpy(nodes).to(device),
        torch.from_numpy(codes).to(device),
        torch.from_numpy(share).float().to(device),
    )


def _hold_out(
    codes: NDArray[np.int64],
    estimator: GNNClassifier,
    random_state: np.random.RandomState,
) -> NDArray[np.bool_]:
    """Choose a share of each class's labelled nodes for validation.

    None at all where a class has too few: training on all of them is then worth more
    than knowing when to stop.
    """
    held_out = np.zeros(len(codes), dtype=bool)
    fraction = estimator.validation_fraction
    least = FEWEST_TO_SPARE if estimator.early_stopping == "auto" else 1 / fraction
    counts = np.bincount(codes[codes >= 0])
    if counts.min() < least:
        return held_out
    for code, count in enumerate(counts):
        of_class = random_state.permutation(np.flatnonzero(codes == code))
        held_out[of_class[: int(fraction * count)]] = True
    return held_out
