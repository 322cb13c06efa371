"""TIFA-GCL: the classifier with the information-aware contrast on top."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import joblib
import numpy as np
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from torch import nn

from sktifa.classifiers.contrast import Contrast
from sktifa.classifiers.gnn import GNNClassifier, SamplerName
from sktifa.classifiers.objective import parameters_of
from sktifa.contrast.loss import Divergence
from sktifa.tensors.scaling import FeatureNorm
from sktifa.training.encoders import EncoderName
from sktifa.training.problem import Monitor
from sktifa.training.sources import Sampler
from sktifa.training.terms import Term

__all__ = ["TIFAGCLClassifier"]


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
        Share of a perturbed node's features that is masked (paper: m); of few features
        less, see `dropout`.
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
        are trusted (beyond the paper: gamma). With fewer than five labels a class,
        three classes or more that grow or shrink away from the sizes that the
        propagated labels tell are moved back in the target, too. With fewer than
        twenty, what a linear model of features that are spread along the edges
        predicts is multiplied into it, as well. Sampled training does without these
        two. 0 leaves all of it out.
    teacher_weight : float, default=0.5
        Weight of a cross-entropy with the propagated labels, where they are trusted
        (beyond the paper). It pays where labels are few. 0 leaves it out.
    teacher_sharpness : float, default=2.0
        Power that the propagated labels are raised to for that cross-entropy.
    n_teachers : int, default=0
        Networks that are trained first, alike but for their seeds, and whose mean
        prediction, sharpened, teaches the one that is kept (beyond the paper). Three
        pay; each takes as long as a fit without. Not with a `sampler`.
    trust : {"cross-fitted", "tifa", "uniform"}, default="cross-fitted"
        How far propagated labels are trusted (beyond the paper). "tifa": the more, the
        more information arrives, by the rank r of a node's gain among n, (r / n)^2.
        "cross-fitted": as much, but at least s^12 wherever a label arrives, where s is
        the skill with which propagated labels find labels that are held out from them,
        in five folds, on a scale from 0, chance, to 1; where a class has one label, how
        often it is found from nodes that it reaches before the other classes do.
        "uniform": everywhere, wholly.
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
        "n_teachers": [Interval(numbers.Integral, 0, None, closed="left")],
        "trust": [StrOptions({"cross-fitted", "tifa", "uniform"})],
        "memory": [str, HasMethods("cache"), None],
    }

    objective = Contrast

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
        n_teachers: int = 0,
        trust: Literal["cross-fitted", "tifa", "uniform"] = "cross-fitted",
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
        # What all classifiers have is set where they have it from.
        given = locals()
        super().__init__(**{name: given[name] for name in parameters_of(GNNClassifier)})
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
        self.n_teachers = n_teachers
        self.trust = trust
        self.memory = memory
