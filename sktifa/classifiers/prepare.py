"""From X and y to a problem: what `fit`, searches and benchmarks do before training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import nn

from sktifa import distributed
from sktifa.callers import (
    refuse_cut,
    refuse_lost_graph,
    refuse_marks_as_class,
    warn_user,
)
from sktifa.classifiers.objective import fields_of
from sktifa.device import free_memory
from sktifa.exceptions import GraphError, GraphWarning, LabelError, ParameterError
from sktifa.graph import Graph, as_graph, is_feature_matrix, validated
from sktifa.inference import LayerwisePredictor
from sktifa.information.evidence import GraphEvidence
from sktifa.information.tig import annotated_information
from sktifa.labels import (
    check_enough_classes,
    class_weights,
    encode_labels,
    find_classes,
    has_unlabelled,
    node_weights,
    require_labels,
)
from sktifa.rows import RowGraph
from sktifa.sampling import NeighborSampler, SAINTTIFASampler
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.scaling import FeatureNorm, Scaling
from sktifa.training.encoders import EncoderSpec
from sktifa.training.engine import as_pytorch_starts
from sktifa.training.problem import Labels, Problem, Schedule, Trained
from sktifa.training.sources import NodeFeatures, SampledBatches, Sampler
from sktifa.training.terms import CrossEntropy, Term

if TYPE_CHECKING:
    from sktifa.classifiers.gnn import GNNClassifier

__all__ = [
    "Seen",
    "adopt",
    "as_it_was_on_error",
    "full_batch_bytes",
    "graph_to_predict",
    "prepare",
    "warn_unless_graph_helps",
]

# Labelled nodes that each class needs before early_stopping="auto" sets some aside.
FEWEST_TO_SPARE = 100
# Numbers that a training step keeps a node and unit: input, product, sum, mask, output
# and gradients. Bytes an arc: pattern, weights, normalised values, both views.
_COPIES = 8
# Error of the propagation that samplers build on: good for float32, and finer than
# ranks of the gain need.
_TOL = 1e-5
_BYTES_AN_ARC = 64
# Epochs of max_iter="auto", without validation and with it.
_MOST_EPOCHS = 200, 400
# Numbers of a graph that are hashed to know it again.
_MOST_TO_HASH = 10**8


@dataclass
class Seen:
    """Which nodes of a graph, or rows of an array, training saw."""

    nodes: NDArray[np.int64] | None = None  # None is all of them
    rows: RowGraph | None = None  # of a model that was fitted on an array

    def by_row(
        self, values: NDArray[np.floating], n_nodes: int
    ) -> NDArray[np.floating]:
        """Give the nodes of the whole graph, or rows of an array, their values.

        NaN for those that training did not see.
        """
        if self.nodes is not None:
            everyone = np.full(n_nodes, np.nan)
            everyone[self.nodes] = values
            values = everyone
        if self.rows is None:
            return values
        node = self.rows.node_of_row
        return np.where(node >= 0, values[node], np.nan)


@dataclass
class _Nodes:
    """Some nodes of a graph with their classes and weights."""

    nodes: NDArray[np.int64]
    codes: NDArray[np.int64]
    weight: NDArray[np.float64]

    def __getitem__(self, chosen: Any) -> _Nodes:
        return _Nodes(self.nodes[chosen], self.codes[chosen], self.weight[chosen])

    def labels(self) -> Labels:
        return Labels.weighted(self.nodes, self.codes, self.weight)


@as_pytorch_starts()
def prepare(
    estimator: GNNClassifier,
    X: Any,
    y: Any,
    device: torch.device,
    *,
    X_val: Any = None,
    y_val: Any = None,
    sample_weight: Any = None,
) -> Problem:
    """Turn data into a problem, and set what the estimator knows of them.

    Parameters are checked here. Propagation and pairs are computed on the device.
    """
    estimator._validate_params()
    random_state = check_random_state(estimator.random_state)
    if distributed.n_ranks() > 1:  # processes agree on all but their dropout
        seed = distributed.agree(int(random_state.randint(2**31)))
        random_state = np.random.RandomState(seed)
    refuse_cut(X, X_val)
    seeds = random_state.randint(np.iinfo(np.int32).max, size=2)
    dropout_seed, rng = int(seeds[0]), np.random.default_rng(int(seeds[1]))
    graph, labeled = _labeled_nodes(estimator, X, y, sample_weight)
    train, validation, elsewhere = _train_and_validation(
        estimator, graph, labeled, X_val, y_val, random_state
    )
    if estimator.setting == "inductive":
        seen = graph.nodes
        if validation is not None and elsewhere is None:
            seen = np.setdiff1d(seen, validation.nodes)
            both = np.union1d(seen, validation.nodes)
            elsewhere = graph.subgraph(both)
            validation.nodes = _positions(both, validation.nodes)
        graph, train.nodes = graph.subgraph(seen), _positions(seen, train.nodes)
        estimator.seen_.nodes = seen
    else:
        graph = graph.whole
    scaling = graph.derived(_scaling, estimator.feature_norm)
    estimator.scaling_ = scaling
    spec = EncoderSpec(
        estimator.encoder,
        graph.n_features,
        n_classes=len(estimator.classes_),
        **fields_of(estimator, EncoderSpec),
    )
    encoder_seed = int(random_state.randint(np.iinfo(np.int32).max))
    sampler = _sampler(estimator, graph, device, rng)
    everyone = np.full(graph.n_nodes, -1, dtype=np.int64)
    everyone[train.nodes] = train.codes
    evidence = GraphEvidence(graph, everyone, spec.n_classes, device=device)
    objective = estimator.objective(estimator)
    if sampler is None:
        parts = objective.on_graph(evidence, device, rng)
    else:
        validates = validation is not None and elsewhere is None
        parts = _sampled(
            estimator, sampler, evidence, train, scaling, device, rng, validates
        )
    extra = tuple(estimator.extra_terms or ())
    for place, term in enumerate(extra):
        if not isinstance(term, Term):
            raise ParameterError(
                f"extra_terms[{place}] is {term!r}, not a term: inherit "
                "sktifa.training.terms.Term."
            )
    if any(term.n_views for term in extra) and not parts.get("n_views"):
        raise ParameterError(
            "a term of extra_terms looks at perturbed views, which "
            f"{type(estimator).__name__} does not draw: use TIFAGCLClassifier."
        )
    parts.pop("n_views", None)
    parts["terms"] = (CrossEntropy(), *parts["terms"], *extra)
    validation_logits = None
    if validation is not None and elsewhere is not None:
        features = NodeFeatures(elsewhere.features, device, scaling)
        validation_logits = _evaluates(estimator, elsewhere, features)
    if not estimator.early_stopping:
        validation = validation_logits = None
    schedule = fields_of(estimator, Schedule)
    if estimator.max_iter == "auto":
        schedule["max_iter"] = _MOST_EPOCHS[validation is not None]
    problem = Problem(
        graph=graph,
        feature_norm=estimator.feature_norm,
        scaling=scaling,
        encoder=spec,
        encoder_seed=encoder_seed,
        dropout=float(estimator.dropout),
        seed=dropout_seed,
        train=train.labels(),
        evidence=evidence,
        validation=None if validation is None else validation.labels(),
        schedule=Schedule(**schedule),
        start=_start(estimator, spec),
        validation_logits=validation_logits,
        **parts,
    )
    return objective.taught(problem, rng)


def graph_to_predict(estimator: GNNClassifier, X: Any) -> Graph:
    """Return the graph that `X` belongs to, a selection of the nodes meant."""
    name, rows = type(estimator).__name__, estimator.seen_.rows
    if is_feature_matrix(X):
        if rows is None:
            raise GraphError(
                f"{name} was fitted on a graph and got an array of shape "
                f"{np.shape(X)}: give a sktifa.Graph, or a selection of one."
            )
        return rows.with_new_rows(validated(estimator, X, reset=False))
    graph = as_graph(X)
    if rows is not None:
        raise GraphError(
            f"{name} was fitted on an array, whose rows it ties to their neighbours, "
            f"and got {graph!r}: fit it on a graph (in a pipeline sktifa.OnFeatures "
            "keeps the graph), or predict rows."
        )
    if graph.n_features != estimator.n_features_in_:
        mend = "give the features of training, in the same order."
        if graph.has_own_features:
            mend = (
                "without features a model knows the nodes of fit alone; give both "
                "graphs features."
            )
        raise GraphError(
            f"the graph has {graph.n_features} features, but {name} was fitted with "
            f"{estimator.n_features_in_}: {mend}"
        )
    _warn_of_other_nodes(name, estimator.fitted_on_, graph)
    names = getattr(estimator, "feature_names_in_", None)
    if names is not None and graph.feature_names is not None:
        differs = np.flatnonzero(names != np.array(graph.feature_names))
        if differs.size:
            at = differs[0]
            raise GraphError(
                f"feature {at} is named {graph.feature_names[at]!r}, but was "
                f"{names[at]!r} in fit: give the features in the same order."
            )
    return graph


def _warn_of_other_nodes(name: str, on: dict[str, Any] | None, graph: Graph) -> None:
    """Say that a model without features takes nodes for those of `fit`."""
    if on is None or on["fingerprint"] is None or not graph.has_own_features:
        return
    if graph.fingerprint != on["fingerprint"]:
        warn_user(
            f"{name} was fitted without features on another graph, of "
            f"{on['n_edges']:,} edges, and knows its nodes by their numbers alone: "
            f"node 0 of this graph, of {graph.n_edges:,} edges, is taken for node 0 of "
            "that. Give features if these are other nodes.",
            GraphWarning,
        )


def adopt(estimator: GNNClassifier, problem: Problem, trained: Trained) -> None:
    """Make a fitted estimator of one whose problem is solved."""
    log = trained.log
    assert trained.network is not None
    estimator.network_, estimator.spec_ = trained.network, problem.encoder
    estimator.loss_curve_ = log.loss_curve
    estimator.validation_scores_ = log.validation_scores or None
    estimator.validation_losses_ = log.validation_losses or None
    estimator.n_iter_ = log.n_iter
    estimator.best_iter_ = log.best_iter


@contextmanager
def as_it_was_on_error(estimator: GNNClassifier) -> Iterator[None]:
    """Leave an estimator as the last fit left it where this one fails.

    Else the network of the last would go on with classes and scaling of this.
    """
    before = _fitted(estimator)
    try:
        yield
    except BaseException:
        # Ctrl-C is raised again after a fit that keeps what it has trained.
        if vars(estimator).get("loss_curve_") is before.get("loss_curve_"):
            for name in _fitted(estimator):
                delattr(estimator, name)
            estimator.__dict__.update(before)
        raise


def _fitted(estimator: GNNClassifier) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and not name.startswith("_")
    }


@as_pytorch_starts()
def warn_unless_graph_helps(problem: Problem) -> None:
    """Say where the labels show that edges tie unlike nodes."""
    if problem.evidence.helps is False:
        warn_user(
            "The graph does not seem to help: by the training labels, edges tie nodes "
            "of unlike classes. sktifa.diagnose(graph, y) says more; compare with a "
            'classifier of the features alone, or try encoder="sage" or "mlp".',
            GraphWarning,
        )


def _scaling(graph: Graph, feature_norm: FeatureNorm | None) -> Scaling:
    return Scaling.learned(graph.features, feature_norm)


def _start(estimator: GNNClassifier, spec: EncoderSpec) -> nn.Module | None:
    """Return the encoder that a warm start goes on from."""
    if not estimator.warm_start or not hasattr(estimator, "network_"):
        return None
    if estimator.spec_ != spec:
        raise ParameterError(
            "warm_start goes on from the last fit's weights, but the encoder, its "
            "sizes, the number of features or of classes have changed: set "
            "warm_start=False or clone the estimator."
        )
    return estimator.network_


def _refuse_other_classes(estimator: GNNClassifier, classes: NDArray[Any]) -> None:
    """Refuse a warm start whose scores would be taken for those of other classes."""
    if not estimator.warm_start or not hasattr(estimator, "network_"):
        return
    if not np.array_equal(classes, estimator.classes_):
        raise ParameterError(
            "warm_start goes on from the last fit's weights, for the classes "
            f"{estimator.classes_.tolist()}, but y has {classes.tolist()}: set "
            "warm_start=False or clone the estimator."
        )


# ------------------------------------------------------------------------ labels


def _labeled_nodes(
    estimator: GNNClassifier, X: Any, y: Any, sample_weight: Any
) -> tuple[Graph, _Nodes]:
    """Check graph, labels and weights; set what scikit-learn wants to know."""
    require_labels(y, estimator)
    refuse_marks_as_class(has_unlabelled, estimator.missing_label)
    if is_feature_matrix(X):
        refuse_lost_graph()
    X = validated(estimator, X)
    codes, classes = encode_labels(y, estimator.missing_label, of=X)
    check_enough_classes(y, codes, classes, estimator.missing_label)
    _refuse_other_classes(estimator, classes)
    estimator.classes_ = classes
    weight = node_weights(sample_weight, len(codes))
    weight = weight / weight.max()  # sums of large ones are no floats
    rows = None
    if not isinstance(X, Graph):
        rows = RowGraph(X, codes, weight, estimator.n_neighbors)
        X, codes, weight = rows.graph, rows.codes, rows.weight
    estimator.seen_ = Seen(rows=rows)
    labeled = codes >= 0
    if len(np.unique(codes[labeled & (weight > 0)])) < 2:
        raise LabelError(
            "only one class has weight: a classifier needs at least 2 classes with "
            "nodes whose sample_weight is above zero."
        )
    of_class = class_weights(estimator.class_weight, codes, estimator.classes_)
    of_class = of_class / max(of_class.max(), np.finfo(float).tiny)
    weight = np.where(labeled, weight * of_class[codes], weight)
    if not weight[labeled].any():
        raise ParameterError(
            "sample_weight and class_weight leave no labelled node any weight: give "
            "some node a weight above 0."
        )
    # A hash takes a moment; features may lie on a disk.
    is_cheap = X.features.size + X.adjacency.nnz <= _MOST_TO_HASH
    estimator.fitted_on_ = {
        "n_nodes": X.n_nodes,
        "n_edges": X.n_edges,
        "n_features": X.n_features,
        "fingerprint": X.fingerprint if is_cheap else None,
    }
    return X, _Nodes(X.nodes, codes, weight)


def _train_and_validation(
    estimator: GNNClassifier,
    graph: Graph,
    labeled: _Nodes,
    X_val: Any,
    y_val: Any,
    random_state: np.random.RandomState,
) -> tuple[_Nodes, _Nodes | None, Graph | None]:
    """Tell nodes that train from those that validate, and where the latter are.

    The third is the graph of the validation nodes, where it is another one.
    """
    has_label = labeled.codes >= 0
    if X_val is not None or y_val is not None:
        other, validation = _given_validation(estimator, graph, X_val, y_val)
        same = not is_feature_matrix(X_val) and other.is_same_graph(graph)
        return labeled[has_label], validation, None if same else other
    held_out = np.zeros(len(has_label), dtype=bool)
    if estimator.early_stopping:
        held_out = _hold_out(labeled.codes, estimator, random_state)
    if not held_out.any():
        return labeled[has_label], None, None
    return labeled[has_label & ~held_out], labeled[held_out], None


def _given_validation(
    estimator: GNNClassifier, graph: Graph, X_val: Any, y_val: Any
) -> tuple[Graph, _Nodes]:
    if X_val is None or y_val is None:
        raise ParameterError("give X_val and y_val together, or neither.")
    origin = graph.origin
    if origin is not None and isinstance(X_val, Graph) and X_val.is_same_graph(origin):
        # No step of a pipeline has seen the validation nodes: what one has made of the
        # training nodes' graph is theirs, too.
        X_val = graph.select_as(X_val)
    other = graph_to_predict(estimator, X_val)
    known, classes = encode_labels(
        y_val, estimator.missing_label, of=other, name="y_val"
    )
    place = find_classes(classes, estimator.classes_, "y_val")
    if (place < 0).any():
        unknown = classes.tolist()[int(place.argmin())]
        raise LabelError(
            f"y_val has the class {unknown!r}, which no training node has: leave "
            "its nodes out of X_val, or label one for training."
        )
    has_label = known >= 0
    codes = place[known[has_label]]
    weight = class_weights(estimator.class_weight, codes, estimator.classes_)[codes]
    return other, _Nodes(other.nodes[has_label], codes, weight)


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


def _positions(among: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find distinct nodes among others, in whatever order these are."""
    order = np.argsort(among)
    return order[np.searchsorted(among, nodes, sorter=order)]


def _evaluates(
    estimator: GNNClassifier,
    graph: Graph,
    features: NodeFeatures,
    placed: DeviceGraph | None = None,
) -> Any:
    """Return what evaluates an encoder on a graph that no step sees as a whole."""
    predictor = LayerwisePredictor(
        graph.adjacency, features, estimator.prediction_memory, placed
    )
    return lambda encoder: predictor.logits(encoder)[None].to(features.device)


# -------------------------------------------------------------- sampled training


def _sampler(
    estimator: GNNClassifier,
    graph: Graph,
    device: torch.device,
    rng: np.random.Generator,
) -> Sampler | None:
    """Make the sampler that `sampler` asks for; None where the batch is full."""
    sampler = estimator.sampler
    if sampler == "auto":
        fits = full_batch_bytes(estimator, graph) < free_memory(device)
        sampler = None if fits else "saint-tifa"
    if sampler is None:
        return None
    estimator.objective(estimator).check_sampled()
    place = device if _fits_graph(graph, len(estimator.classes_), device) else "cpu"
    if sampler == "saint-tifa":
        sampler = SAINTTIFASampler(device=str(place))
    elif sampler == "saint-rw":
        sampler = SAINTTIFASampler(sharpness=0, device=str(place))
    elif sampler == "neighbor":
        sampler = NeighborSampler(
            num_neighbors=(10,) * estimator.n_layers,
            seeds=estimator.objective.sampled_seeds,
        )
    else:
        sampler = clone(sampler)
    options = sampler.get_params(deep=False)
    if "random_state" in options and options["random_state"] is None:
        sampler.set_params(random_state=int(rng.integers(2**31)))
    if "missing_label" in options:  # it is given class codes
        sampler.set_params(missing_label=-1)
    return sampler


def full_batch_bytes(estimator: GNNClassifier, graph: Graph) -> float:
    """Estimate the memory that a training step on the whole graph takes."""
    hidden = estimator.hidden_size * (estimator.n_layers - 1)
    units = graph.n_features + hidden + len(estimator.classes_)
    arcs = graph.adjacency.nnz
    an_arc = _BYTES_AN_ARC
    if not EncoderSpec(estimator.encoder, 1, 1, 1).stackable:
        an_arc += 4 * _COPIES * hidden
    step = 4.0 * _COPIES * graph.n_nodes * units + an_arc * arcs
    return estimator.objective(estimator).full_batch_factor(graph) * step


def _fits_graph(graph: Graph, n_classes: int, device: torch.device) -> bool:
    """Whether the arrays of sampling and propagation fit a device."""
    needed = _BYTES_AN_ARC * graph.adjacency.nnz + 32 * graph.n_nodes * n_classes
    return device.type == "cpu" or needed < free_memory(device)


def _sampled(
    estimator: GNNClassifier,
    sampler: Sampler,
    evidence: GraphEvidence,
    train: _Nodes,
    scaling: Scaling,
    device: torch.device,
    rng: np.random.Generator,
    validates: bool,
) -> dict[str, Any]:
    """Fit the sampler; return the source of batches, and terms that look at them."""
    graph, everyone = evidence.graph, evidence.codes
    share = np.zeros(graph.n_nodes, dtype=np.float32)
    share[train.nodes] = train.weight / train.weight.sum()
    features = NodeFeatures(graph.features, device, scaling)
    n_classes, objective = evidence.n_classes, estimator.objective(estimator)
    fits = _fits_graph(graph, n_classes, device)
    placed = DeviceGraph.from_graph(graph, device if fits else torch.device("cpu"))
    information = None
    needs = isinstance(sampler, SAINTTIFASampler) and sampler.sharpness > 0
    if needs or objective.needs_information:
        resident = features.resident
        use_host = resident is None or scaling.changes
        alpha = getattr(sampler, "restart_probability", 0.15)
        alpha = getattr(estimator, "restart_probability", alpha)
        information = annotated_information(
            placed,
            everyone,
            n_classes,
            tol=_TOL,
            features=graph.features if use_host else resident,
            restart_probability=alpha,
        )
    if isinstance(sampler, SAINTTIFASampler):
        sampler.fit(graph, everyone, information=information, on_device=placed)
    else:
        sampler.fit(graph, everyone)
    estimator.sampler_ = sampler
    logits = _evaluates(estimator, graph, features, placed) if validates else None
    seed = int(rng.integers(2**31)) + distributed.rank()
    parts, contrast = objective.on_subgraphs(evidence, information, device)

    def source(device: torch.device) -> SampledBatches:
        return SampledBatches(
            sampler,
            placed,
            features,
            torch.from_numpy(everyone).to(device),
            torch.from_numpy(share).to(device),
            contrast=contrast,
            seed=seed,
            logits=logits,
            rank=distributed.rank(),
            n_ranks=distributed.n_ranks(),
        )

    return {**parts, "source": source}
