"""From X and y to a problem: what `fit`, searches and benchmarks do before training."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from sktifa import distributed
from sktifa.callers import (
    refuse_cut,
    refuse_lost_graph,
    refuse_marks_as_class,
    user_level,
)
from sktifa.checks import check_rows
from sktifa.device import free_memory
from sktifa.exceptions import GraphWarning, LabelError, ParameterError
from sktifa.graph import Graph, as_graph, is_feature_matrix
from sktifa.inference import LayerwisePredictor
from sktifa.information.evidence import graph_helps
from sktifa.information.tig import annotated_information
from sktifa.labels import (
    check_enough_classes,
    class_weights,
    find_classes,
    node_weights,
)
from sktifa.rows import RowGraph
from sktifa.sampling import NeighborSampler, SAINTTIFASampler
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.scaling import Scaling
from sktifa.training.encoders import EncoderSpec
from sktifa.training.engine import as_pytorch_starts
from sktifa.training.problem import Labels, Problem, Schedule
from sktifa.training.sources import NodeFeatures, SampledBatches, Sampler
from sktifa.training.terms import CrossEntropy, Term

if TYPE_CHECKING:
    from sktifa.classifiers.gnn import GNNClassifier

__all__ = ["prepare"]

# Labelled nodes that each class needs before early_stopping="auto" sets some aside.
FEWEST_TO_SPARE = 100
# Numbers that a training step keeps a node and unit: input, product, sum, mask, output
# and gradients. Bytes an arc: pattern, weights, normalised values, both views.
_COPIES = 8
# Error of the propagation that samplers build on: good for float32, and finer than
# ranks of the gain need.
_TOL = 1e-5
# Epochs of max_iter="auto", without validation and with it.
_MOST_EPOCHS = 200, 400
_BYTES_AN_ARC = 64


@dataclass
class _Nodes:
    """Some nodes of a graph with their classes and weights."""

    nodes: NDArray[np.int64]
    codes: NDArray[np.int64]
    weight: NDArray[np.float64]

    def __getitem__(self, chosen: Any) -> _Nodes:
        return _Nodes(self.nodes[chosen], self.codes[chosen], self.weight[chosen])


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

    Parameters
    ----------
    estimator : GNNClassifier or TIFAGCLClassifier
        With the parameters to train with, which are checked.
    X, y, X_val, y_val, sample_weight
        As for `fit`.
    device : torch.device
        Where propagation and pairs are computed.

    Returns
    -------
    Problem

    Raises
    ------
    SktifaError, InvalidParameterError
        As `fit` does.
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
        estimator._seen_nodes = seen
    else:
        graph = graph.whole
    scaling = Scaling.learned(graph.features, estimator.feature_norm)
    estimator.scaling_ = scaling
    spec = EncoderSpec(
        estimator.encoder,
        graph.n_features,
        estimator.hidden_size,
        len(estimator.classes_),
        n_layers=estimator.n_layers,
        residual=estimator.residual,
        normalization=estimator.normalization,
        propagation_steps=estimator.propagation_steps,
        teleport=estimator.teleport,
    )
    encoder_seed = int(random_state.randint(np.iinfo(np.int32).max))
    sampler = _sampler(estimator, graph, device, rng)
    parts: dict[str, Any] = {"terms": ()}
    if sampler is None:
        parts = estimator._contrast(graph, train.nodes, train.codes, device, rng)
    else:
        validates = validation is not None and elsewhere is None
        parts = _sampled(
            estimator, sampler, graph, train, scaling, device, rng, validates
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
        validation_logits = _evaluates(estimator, elsewhere, scaling, device)
    if not estimator.early_stopping:
        validation = validation_logits = None
    return Problem(
        graph=graph,
        feature_norm=estimator.feature_norm,
        scaling=scaling,
        encoder=spec,
        encoder_seed=encoder_seed,
        dropout=float(estimator.dropout),
        seed=dropout_seed,
        train=Labels.weighted(train.nodes, train.codes, train.weight),
        validation=(
            None
            if validation is None
            else Labels.weighted(validation.nodes, validation.codes, validation.weight)
        ),
        schedule=_schedule(estimator, validation is not None),
        start=_start(estimator, spec),
        validation_logits=validation_logits,
        **parts,
    )


@as_pytorch_starts()
def warn_unless_graph_helps(problem: Problem) -> None:
    """Say where the labels show that edges tie unlike nodes."""
    codes = np.full(problem.graph.n_nodes, -1)
    codes[problem.train.index.numpy()] = problem.train.target.numpy()
    if graph_helps(problem.graph, codes, problem.encoder.n_classes).helps is False:
        warnings.warn(
            "The graph does not seem to help: by the training labels, edges tie nodes "
            "of unlike classes. sktifa.diagnose(graph, y) says more; compare with a "
            'classifier of the features alone, or try encoder="sage" or "mlp".',
            GraphWarning,
            stacklevel=user_level(),
        )


def _schedule(estimator: GNNClassifier, validates: bool) -> Schedule:
    values = {name: getattr(estimator, name) for name in Schedule.__annotations__}
    if estimator.max_iter == "auto":
        values["max_iter"] = _MOST_EPOCHS[validates]
    return Schedule(**values)


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


# ------------------------------------------------------------------------ labels


def _labeled_nodes(
    estimator: GNNClassifier, X: Any, y: Any, sample_weight: Any
) -> tuple[Graph, _Nodes]:
    """Check graph, labels and weights; set what scikit-learn wants to know."""
    if y is None:
        raise LabelError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None."
        )
    refuse_marks_as_class(estimator._has_unlabelled, estimator.missing_label)
    if is_feature_matrix(X):
        refuse_lost_graph()
        X = validate_data(
            estimator, check_rows(X), accept_sparse="csr", dtype=np.float32
        )
    else:
        X = as_graph(X)
        estimator.n_features_in_ = X.n_features
        estimator.__dict__.pop("feature_names_in_", None)
        if X.feature_names is not None:
            estimator.feature_names_in_ = np.array(X.feature_names, dtype=object)
    codes, estimator.classes_ = estimator._encode(y, X)
    check_enough_classes(y, codes, estimator.classes_, estimator.missing_label)
    weight = node_weights(sample_weight, len(codes))
    weight = weight / weight.max()  # sums of large ones are no floats
    estimator._row_graph = estimator._seen_nodes = None
    if not isinstance(X, Graph):
        rows = RowGraph(X, codes, weight, estimator.n_neighbors)
        estimator._row_graph = rows
        X, codes, weight = rows.graph, rows.codes, rows.weight
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
    estimator.fitted_on_ = {
        "n_nodes": X.n_nodes,
        "n_edges": X.n_edges,
        "n_features": X.n_features,
        "fingerprint": X.fingerprint,
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
    other = estimator._graph_of(graph._matching(X_val))
    known, classes = estimator._encode(y_val, other, "y_val")
    place = find_classes(classes, estimator.classes_, "y_val")
    if (place < 0).any():
        unknown = classes.tolist()[int(place.argmin())]
        raise LabelError(
            f"y_val has the class {unknown!r}, which no training node has: leave "
            "its nodes out of X_val, or label one for training."
        )
    has_label = known >= 0
    codes = place[known[has_label]]
    weight = np.ones(len(codes))
    if isinstance(estimator.class_weight, dict):
        classes = estimator.classes_.tolist()
        weight = np.array([estimator.class_weight.get(c, 1.0) for c in classes])[codes]
    elif estimator.class_weight == "balanced":
        weight = compute_sample_weight("balanced", codes)
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
    estimator: GNNClassifier, graph: Graph, scaling: Scaling, device: torch.device
) -> Any:
    """Return what evaluates an encoder on a graph that is not the one trained on."""
    memory = estimator.prediction_memory
    features = NodeFeatures(graph.features, device, scaling)
    predictor = LayerwisePredictor(graph.adjacency, features, memory)
    return lambda encoder: predictor.logits(encoder)[None].to(device)


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
    place = device if _fits_graph(graph, len(estimator.classes_), device) else "cpu"
    if sampler == "saint-tifa":
        sampler = SAINTTIFASampler(device=str(place))
    elif sampler == "saint-rw":
        sampler = SAINTTIFASampler(sharpness=0, device=str(place))
    elif sampler == "neighbor":
        sampler = NeighborSampler(
            num_neighbors=(10,) * estimator.n_layers, seeds=estimator._sampled_seeds
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
    return estimator._full_batch_factor(graph) * step


def _fits_graph(graph: Graph, n_classes: int, device: torch.device) -> bool:
    """Whether the arrays of sampling and propagation fit a device."""
    needed = _BYTES_AN_ARC * graph.adjacency.nnz + 32 * graph.n_nodes * n_classes
    return device.type == "cpu" or needed < free_memory(device)


def _sampled(
    estimator: GNNClassifier,
    sampler: Sampler,
    graph: Graph,
    train: _Nodes,
    scaling: Scaling,
    device: torch.device,
    rng: np.random.Generator,
    validates: bool,
) -> dict[str, Any]:
    """Fit the sampler; return the source of batches, and terms that look at them."""
    everyone = np.full(graph.n_nodes, -1, dtype=np.int64)
    everyone[train.nodes] = train.codes
    share = np.zeros(graph.n_nodes, dtype=np.float32)
    share[train.nodes] = train.weight / train.weight.sum()
    features = NodeFeatures(graph.features, device, scaling)
    n_classes = len(estimator.classes_)
    fits = _fits_graph(graph, n_classes, device)
    placed = DeviceGraph.from_graph(graph, device if fits else torch.device("cpu"))
    information = None
    needs = isinstance(sampler, SAINTTIFASampler) and sampler.sharpness > 0
    if needs or estimator._needs_information:
        resident = features.resident
        information = annotated_information(
            placed,
            everyone,
            n_classes,
            tol=_TOL,
            features=(
                graph.features if resident is None or scaling.changes else resident
            ),
            restart_probability=getattr(
                estimator,
                "restart_probability",
                getattr(sampler, "restart_probability", 0.15),
            ),
        )
    if isinstance(sampler, SAINTTIFASampler):
        sampler.fit(graph, everyone, information=information, on_device=placed)
    else:
        sampler.fit(graph, everyone)
    estimator.sampler_ = sampler
    predictor = LayerwisePredictor(
        graph.adjacency, features, estimator.prediction_memory, placed
    )
    seed = int(rng.integers(2**31)) + distributed.rank()
    parts, contrast = estimator._subgraph_contrast(information, device)

    def logits(encoder: nn.Module) -> Tensor:
        return predictor.logits(encoder)[None].to(device)

    def source(device: torch.device) -> SampledBatches:
        return SampledBatches(
            sampler,
            placed,
            features,
            torch.from_numpy(everyone).to(device),
            torch.from_numpy(share).to(device),
            contrast=contrast,
            generator=torch.Generator(device=device).manual_seed(seed),
            logits=logits if validates else None,
            rank=distributed.rank(),
            n_ranks=distributed.n_ranks(),
        )

    return {**parts, "source": source}
