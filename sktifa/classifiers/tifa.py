"""TIFA-GCL: the classifier with the information-aware contrast on top."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import check_memory
from torch import nn

from sktifa.classifiers.gnn import GNNClassifier, SamplerName
from sktifa.contrast.loss import Divergence
from sktifa.contrast.pairs import (
    LARGEST_SHARED,
    GraphDistances,
    PairSettings,
    graph_distances,
    nearest_pairs,
    pair_features,
    uniform_pairs,
)
from sktifa.contrast.perturbation import GraphPerturber, PerturbationSettings
from sktifa.exceptions import ParameterError, StorageError
from sktifa.graph import Graph
from sktifa.information.loss_weights import loss_weights, trust
from sktifa.information.propagation import csr_device
from sktifa.information.tig import (
    annotated_information,
    information_gain,
    label_distribution,
    teacher_distribution,
)
from sktifa.tensors.device_graph import DeviceGraph
from sktifa.tensors.scaling import FeatureNorm
from sktifa.training.encoders import EncoderName
from sktifa.training.problem import Monitor, PairSets, Perturbations
from sktifa.training.sources import Sampler, SubgraphContrast
from sktifa.training.terms import Pairs, SelfConsistency, Target, Teacher, Term

__all__ = ["TIFAGCLClassifier"]

# Pairs on the whole graph rank all nodes for each: what takes too long, not too much.
_LARGEST_RANKED = 200_000


class TIFAGCLClassifier(GNNClassifier):
    """Semi-supervised node classification with TIFA-GCL.

    Label propagation measures how much annotated information reaches each node (the
    topology information gain, Eq. 4). Where little arrives, the contrastive loss
    weighs more (Eq. 9) and the graph is perturbed more often (Algorithm 2); pairs for
    the contrast are drawn by relative distance (Eq. 12-14).

    Parameters
    ----------
    encoder, hidden_size, n_layers, dropout, residual, normalization, \
propagation_steps, teleport, feature_norm, learning_rate, learning_rate_decay, \
weight_decay, max_iter, min_iter, early_stopping, \
validation_fraction, n_iter_no_change, tol, monitor, class_weight, extra_terms, \
setting, sampler, prediction_memory, n_neighbors, \
missing_label, warm_start, device, random_state, verbose
        As for :class:`GNNClassifier`, but for the default of `encoder`: "appnp".
    restart_probability : float, default=0.15
        Of the label propagation, in (0, 1] (paper: alpha).
    clarity_weight : float, default=0.1
        Weight of clarity against intensity, in [0, 1] (paper: lambda).
    weighting : {"tifa", "uniform"}, default="tifa"
        Loss weights by information gain, or all at the middle of the range.
    weight_min, weight_max : float, default=0.2, 2.2
        Range of the loss weights (paper: w_min, w_max).
    perturbation : {"tifa", "uniform"}, default="tifa"
        Nodes are perturbed by information gain with negative feedback, or uniformly.
    sharpness : float, default=1.0
        Sharpens the perturbation's node probabilities (paper: t).
    perturbed_nodes : float, default=0.4
        Share of the nodes that is perturbed an epoch.
    perturbation_rate : float or None, default=None
        Ends a perturbation when this share of the edges is flipped (paper: sigma).
    edges_added, edges_removed : int, default=1, 2
        Edges added to and removed from a perturbed node (paper: n_add, n_rmv).
    feature_mask_rate : float, default=0.5
        Share of a perturbed node's features that is masked (paper: m).
    decay : float, default=0.5
        Multiplies the probability of a perturbed node's neighbours (paper: d_r).
    decay_hops : int, default=1
        How far that reaches (paper: d_h).
    pairing : {"tifa", "uniform"} or None, default=None
        Pairs by relative distance, negatives drawn uniformly, or no pair loss: it
        costs the most to prepare, and validation does not ask for it.
    pair_weight : float, default=0.05
        Weight of the pair loss against self-consistency (paper: mu_2).
    negative_weight : float, default=0.5
        Weight of negative pairs against positive ones (paper: mu_1).
    hop_weight, feature_weight : float, default=0.5, 0.75
        Weights of hops and of feature distance against the distance between label
        distributions (paper: lambda_1, lambda_2).
    n_positives : int, default=5
        Nearest nodes that are positives (paper: post_end).
    negative_ranks : tuple of int, default=(50, 150)
        First and last-but-one rank of the negatives (paper: negt_beg, negt_end).
    label_distribution : {"sum", "softmax"}, default="sum"
        How propagated labels become a distribution (Eq. 11).
    divergence : str, default="clean_to_perturbed"
        Direction of the Kullback-Leibler divergence in the contrast.
    temperature : float, default=1.0
        Divides the target's logits.
    target : {"evaluation", "training"}, default="evaluation"
        Forward pass that gives the target.
    target_information : float, default=1.0
        How much of the propagated labels is multiplied into the target, where they
        are trusted (beyond the paper: gamma). 0 leaves them out.
    teacher_weight : float, default=0.5
        Weight of a cross-entropy with the propagated labels, where they are trusted
        (beyond the paper). It pays where labels are few. 0 leaves it out.
    teacher_sharpness : float, default=2.0
        Power that the propagated labels are raised to for that cross-entropy.
    trust : {"tifa", "uniform"}, default="tifa"
        Propagated labels are trusted where much information arrives, by the square of
        the rank of the gain; or everywhere alike.
    memory : str, joblib.Memory, LocalMemory or None, default=None
        Caches propagation and pairs across fits on the same graph: a folder, or
        :class:`sktifa.cache.LocalMemory` to keep them in this process. Hops and
        feature similarities are then worked out once a graph (of up to 10,000 nodes),
        relative distances once for each distribution of the labels and weights.

    Attributes
    ----------
    gain_ : ndarray of float64, shape (n_nodes,)
        Topology information gain of every node of the whole graph, or row of the
        array (paper: T).
    loss_weights_ : ndarray of float64, shape (n_nodes,)
        Contrastive loss weight of every node (paper: w).
    classes_, network_, n_features_in_, feature_names_in_, n_iter_, best_iter_, \
loss_curve_, validation_scores_, validation_losses_
        As for :class:`GNNClassifier`.

    See Also
    --------
    GNNClassifier : The same encoders without contrast.
    LabelPropagationTIG : The information gain alone, as a transformer.

    Notes
    -----
    `weighting`, `perturbation` and `pairing` set to "uniform" give uniform-GCL, and
    one at a time the paper's ablations (Table 3). :func:`paper_preset` gives the
    paper's own schedule and hyper-parameters.

    References
    ----------
    Chen et al., "Rethinking the Promotion Brought by Contrastive Learning to
    Semi-Supervised Node Classification", IJCAI 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sktifa import TIFAGCLClassifier, load_digits_graph
    >>> digits = load_digits_graph()
    >>> y = np.full(1797, -1)
    >>> y[::18] = digits.target[::18]
    >>> model = TIFAGCLClassifier(max_iter=50, random_state=0, device="cpu")
    >>> _ = model.fit(digits.graph, y)
    >>> model.score(digits.graph, digits.target) > 0.9
    True
    >>> model.gain_.shape
    (1797,)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **GNNClassifier._parameter_constraints,
        "restart_probability": [Interval(numbers.Real, 0, 1, closed="right")],
        "clarity_weight": [Interval(numbers.Real, 0, 1, closed="both")],
        "weighting": [StrOptions({"tifa", "uniform"})],
        "weight_min": [Interval(numbers.Real, 0, None, closed="left")],
        "weight_max": [Interval(numbers.Real, 0, None, closed="left")],
        "perturbation": [StrOptions({"tifa", "uniform"})],
        "sharpness": [Interval(numbers.Real, 0, None, closed="left")],
        "perturbed_nodes": [Interval(numbers.Real, 0, 1, closed="both")],
        "perturbation_rate": [Interval(numbers.Real, 0, None, closed="left"), None],
        "edges_added": [Interval(numbers.Integral, 0, None, closed="left")],
        "edges_removed": [Interval(numbers.Integral, 0, None, closed="left")],
        "feature_mask_rate": [Interval(numbers.Real, 0, 1, closed="both")],
        "decay": [Interval(numbers.Real, 0, 1, closed="right")],
        "decay_hops": [Interval(numbers.Integral, 0, None, closed="left")],
        "pairing": [StrOptions({"tifa", "uniform"}), None],
        "pair_weight": [Interval(numbers.Real, 0, None, closed="left")],
        "negative_weight": [Interval(numbers.Real, 0, 1e6, closed="both")],
        "hop_weight": [Interval(numbers.Real, 0, None, closed="left")],
        "feature_weight": [Interval(numbers.Real, 0, None, closed="left")],
        "n_positives": [Interval(numbers.Integral, 0, None, closed="left")],
        "negative_ranks": [tuple, list],
        "label_distribution": [StrOptions({"sum", "softmax"})],
        "divergence": [StrOptions({"clean_to_perturbed", "perturbed_to_clean"})],
        "temperature": [Interval(numbers.Real, 0, None, closed="neither")],
        "target": [StrOptions({"evaluation", "training"})],
        "target_information": [Interval(numbers.Real, 0, None, closed="left")],
        "teacher_weight": [Interval(numbers.Real, 0, None, closed="left")],
        "teacher_sharpness": [Interval(numbers.Real, 0, None, closed="left")],
        "trust": [StrOptions({"tifa", "uniform"})],
        "memory": [str, HasMethods("cache"), None],
    }

    def __init__(
        self,
        encoder: EncoderName | type[nn.Module] | Callable[..., nn.Module] = "appnp",
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
        restart_probability: float = 0.15,
        clarity_weight: float = 0.1,
        weighting: Literal["tifa", "uniform"] = "tifa",
        weight_min: float = 0.2,
        weight_max: float = 2.2,
        perturbation: Literal["tifa", "uniform"] = "tifa",
        sharpness: float = 1.0,
        perturbed_nodes: float = 0.4,
        perturbation_rate: float | None = None,
        edges_added: int = 1,
        edges_removed: int = 2,
        feature_mask_rate: float = 0.5,
        decay: float = 0.5,
        decay_hops: int = 1,
        pairing: Literal["tifa", "uniform"] | None = None,
        pair_weight: float = 0.05,
        negative_weight: float = 0.5,
        hop_weight: float = 0.5,
        feature_weight: float = 0.75,
        n_positives: int = 5,
        negative_ranks: tuple[int, int] = (50, 150),
        label_distribution: Literal["sum", "softmax"] = "sum",
        divergence: Divergence = "clean_to_perturbed",
        temperature: float = 1.0,
        target: Literal["evaluation", "training"] = "evaluation",
        target_information: float = 1.0,
        teacher_weight: float = 0.5,
        teacher_sharpness: float = 2.0,
        trust: Literal["tifa", "uniform"] = "tifa",
        setting: Literal["transductive", "inductive"] = "transductive",
        sampler: SamplerName | Sampler | None = None,
        prediction_memory: int | None = None,
        n_neighbors: int = 15,
        missing_label: int | float | str | None = -1,
        warm_start: bool = False,
        memory: str | joblib.Memory | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            encoder,
            hidden_size=hidden_size,
            n_layers=n_layers,
            dropout=dropout,
            residual=residual,
            normalization=normalization,
            propagation_steps=propagation_steps,
            teleport=teleport,
            feature_norm=feature_norm,
            learning_rate=learning_rate,
            learning_rate_decay=learning_rate_decay,
            weight_decay=weight_decay,
            max_iter=max_iter,
            min_iter=min_iter,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            monitor=monitor,
            class_weight=class_weight,
            extra_terms=extra_terms,
            setting=setting,
            sampler=sampler,
            prediction_memory=prediction_memory,
            n_neighbors=n_neighbors,
            missing_label=missing_label,
            warm_start=warm_start,
            device=device,
            random_state=random_state,
            verbose=verbose,
        )
        self.restart_probability = restart_probability
        self.clarity_weight = clarity_weight
        self.weighting = weighting
        self.weight_min = weight_min
        self.weight_max = weight_max
        self.perturbation = perturbation
        self.sharpness = sharpness
        self.perturbed_nodes = perturbed_nodes
        self.perturbation_rate = perturbation_rate
        self.edges_added = edges_added
        self.edges_removed = edges_removed
        self.feature_mask_rate = feature_mask_rate
        self.decay = decay
        self.decay_hops = decay_hops
        self.pairing = pairing
        self.pair_weight = pair_weight
        self.negative_weight = negative_weight
        self.hop_weight = hop_weight
        self.feature_weight = feature_weight
        self.n_positives = n_positives
        self.negative_ranks = negative_ranks
        self.label_distribution = label_distribution
        self.divergence = divergence
        self.temperature = temperature
        self.target = target
        self.target_information = target_information
        self.teacher_weight = teacher_weight
        self.teacher_sharpness = teacher_sharpness
        self.trust = trust
        self.memory = memory

    _sampled_seeds: ClassVar[Literal["labeled", "all"]] = "all"
    _needs_information: ClassVar[bool] = True

    def _full_batch_factor(self, graph: Graph) -> float:
        """Two passes with gradients; and pairs take too long, where not too much."""
        ranks_all = self.pairing == "tifa" and self.pair_weight
        return float("inf") if ranks_all and graph.n_nodes > _LARGEST_RANKED else 2.0

    def _weigh(
        self, information: torch.Tensor
    ) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
        """Turn what reaches each node into terms and their target.

        Returns
        -------
        dict
            Fields of a problem.
        Tensor, Tensor
            Each node's loss weight, and what the perturbation's rates follow.
        """
        self._check_ranges()
        gain = information_gain(information, self.clarity_weight)
        by_gain = loss_weights(gain, self.weight_min, self.weight_max)
        middle = torch.full_like(by_gain, (self.weight_min + self.weight_max) / 2)
        weights = by_gain if self.weighting == "tifa" else middle
        self.gain_ = self._by_row(gain.cpu().numpy())
        self.loss_weights_ = self._by_row(weights.cpu().numpy())
        node_weights = weights.float()
        terms: list[Term] = []
        if self.weight_max:  # else its pass on the view would be for nothing
            terms.append(SelfConsistency(node_weights, self.divergence))
        if self.pairing is not None:
            terms.append(Pairs(node_weights, self.pair_weight, self.divergence))
        log_prior = None
        if self.target_information or self.teacher_weight:
            trusted = trust(gain) if self.trust == "tifa" else torch.ones_like(gain)
            says = teacher_distribution(information).double()
            if self.target_information:
                share = self.target_information * trusted
                log_prior = (share[:, None] * says.log()).float()
            if self.teacher_weight:
                sharp = (self.teacher_sharpness * says.log()).softmax(1)
                lesson = (trusted[:, None] * sharp).float()
                terms.append(Teacher(lesson, self.teacher_weight))
        target = Target(self.target, self.temperature, log_prior)
        parts = {"terms": tuple(terms), "target": target, "n_views": 1}
        return (
            parts,
            node_weights,
            middle if self.perturbation == "uniform" else by_gain,
        )

    def _subgraph_contrast(
        self, information: torch.Tensor | None, device: torch.device
    ) -> tuple[dict[str, Any], SubgraphContrast | None]:
        assert information is not None
        parts, _, rates = self._weigh(information)
        pairs = distribution = None
        if self.pairing is not None and self.pair_weight:
            pairs = self._pair_settings()
            if self.pairing == "tifa":
                distribution = label_distribution(information, self.label_distribution)
        return parts, SubgraphContrast(
            self._perturbation_settings(),
            rates.float().to(device),
            self.feature_mask_rate,
            pairs,
            distribution,
        )

    def _perturbation_settings(self) -> PerturbationSettings:
        return PerturbationSettings(
            sharpness=self.sharpness,
            perturbed_nodes=self.perturbed_nodes,
            perturbation_rate=self.perturbation_rate,
            edges_added=self.edges_added,
            edges_removed=self.edges_removed,
            decay=1.0 if self.perturbation == "uniform" else self.decay,
            decay_hops=self.decay_hops,
        )

    def _pair_settings(self) -> PairSettings:
        assert self.pairing is not None
        return PairSettings(
            self.pairing,
            negative_weight=self.negative_weight,
            hop_weight=self.hop_weight,
            feature_weight=self.feature_weight,
            n_positives=self.n_positives,
            negative_ranks=(self.negative_ranks[0], self.negative_ranks[1]),
        )

    def _check_ranges(self) -> None:
        if self.weight_min > self.weight_max:
            raise ParameterError(
                f"weight_min={self.weight_min} is above weight_max={self.weight_max}: "
                "the weights run from weight_min, where most information arrives, up "
                "to weight_max."
            )
        ranks = self.negative_ranks
        if (
            len(ranks) != 2
            or not all(isinstance(rank, numbers.Integral) for rank in ranks)
            or not 0 <= ranks[0] <= ranks[1]
        ):
            raise ParameterError(
                f"negative_ranks={ranks!r}: give two whole numbers, the first rank, "
                "from 0 on, and the one after the last."
            )

    def _contrast(
        self,
        graph: Graph,
        nodes: NDArray[np.int64],
        codes: NDArray[np.int64],
        device: torch.device,
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        self._check_ranges()
        labels = np.full(graph.n_nodes, -1)
        labels[nodes] = codes
        # The fingerprint stands for the graph, which would cost a hash a call.
        information = self._remembered(
            _information,
            ["graph", "device"],
            graph=graph,
            fingerprint=graph.fingerprint if self.memory else "",
            labels=labels,
            n_classes=len(self.classes_),
            restart_probability=self.restart_probability,
            device=str(device),
        )
        parts, _, rates = self._weigh(torch.from_numpy(information))
        perturber = GraphPerturber(
            graph.adjacency, rates.numpy(), **vars(self._perturbation_settings())
        )
        sets = self._pair_sets(graph, information, device, rng)
        parts["pairs"] = None
        if sets is not None:
            parts["pairs"] = PairSets(*sets, self.negative_weight)
        parts["perturbations"] = Perturbations(
            perturber, self.feature_mask_rate, int(rng.integers(2**62))
        )
        return parts

    def _pair_sets(
        self,
        graph: Graph,
        information: NDArray[np.float64],
        device: torch.device,
        rng: np.random.Generator,
    ) -> tuple[Any, Any] | None:
        """Choose pairs on the whole graph; empty sets where they weigh nothing."""
        if self.pairing is None:
            return None
        begin, end = self.negative_ranks
        if not self.pair_weight:
            none = torch.empty((graph.n_nodes, 0), dtype=torch.int32)
            return none, none
        if self.pairing == "uniform":
            sets = uniform_pairs(graph.n_nodes, end - begin, rng)
            positives, negatives = (torch.from_numpy(part).int() for part in sets)
            return positives, negatives
        positives, negatives = self._remembered(
            _pairs,
            ["graph", "device", "distances"],
            graph=graph,
            fingerprint=graph.fingerprint if self.memory else "",
            distribution=label_distribution(information, self.label_distribution),
            # The weight of negatives chooses no pair.
            settings=replace(self._pair_settings(), negative_weight=0.0),
            device=str(device),
            distances=lambda: self._shared_distances(graph, device),
        )
        return positives, negatives

    def _shared_distances(
        self, graph: Graph, device: torch.device
    ) -> GraphDistances | None:
        """Return what the pairs of all fits on a graph start from, if it is kept."""
        if not self.memory or graph.n_nodes > LARGEST_SHARED:
            return None
        return self._remembered(
            _graph_distances,
            ["graph"],
            graph=graph,
            fingerprint=graph.fingerprint,
            device=str(device),
        )

    def _remembered(
        self, function: Callable[..., Any], ignore: list[str], **arguments: Any
    ) -> Any:
        """Call a function, or read from `memory` what it returned before."""
        try:
            memory = check_memory(self.memory)
            return memory.cache(function, ignore=ignore)(**arguments)
        except OSError as error:
            place = getattr(self.memory, "location", self.memory)
            raise StorageError(
                f"memory={str(place)!r} can't be used: {error.strerror or error}. Make "
                "room, name a folder elsewhere, or leave memory=None."
            ) from error

    def _by_row(self, values: NDArray[np.floating]) -> NDArray[np.floating]:
        """Give nodes of the whole graph, or rows of an array, their values.

        NaN for those that training did not see.
        """
        if self._seen_nodes is not None:
            everyone = np.full(self.fitted_on_["n_nodes"], np.nan)
            everyone[self._seen_nodes] = values
            values = everyone
        if self._row_graph is None:
            return values
        node = self._row_graph.node_of_row
        return np.where(node >= 0, values[node], np.nan)


def _information(
    graph: Graph,
    fingerprint: str,
    labels: NDArray[np.int64],
    n_classes: int,
    restart_probability: float,
    device: str,
) -> NDArray[np.float64]:
    return annotated_information(
        graph,
        labels,
        n_classes,
        restart_probability=restart_probability,
        device=device,
    )


def _pairs(
    graph: Graph,
    fingerprint: str,
    distribution: NDArray[np.float64],
    settings: PairSettings,
    device: str,
    distances: Callable[[], GraphDistances | None],
) -> tuple[torch.Tensor, torch.Tensor]:
    place = csr_device(device)
    placed = DeviceGraph.from_graph(graph, place)
    return nearest_pairs(
        placed.crow.int(),
        placed.col.int(),
        pair_features(graph.features, place),
        torch.from_numpy(distribution).to(place),
        settings,
        distances=distances(),
    )


def _graph_distances(graph: Graph, fingerprint: str, device: str) -> GraphDistances:
    return graph_distances(graph.features, graph.adjacency, device=device)
