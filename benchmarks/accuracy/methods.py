"""Every method of every table and figure: its estimator and its search space.

The space of an encoder is the same for all methods, and that of the contrast the same
for uniform-GCL and TIFA-GCL. Hidden size and depth are the paper's (Appendix C.4:
architectures "strictly aligned"). What a method is made of is written out here: it does
not follow the defaults of our classes, which may change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sklearn.base import clone

from benchmarks._report import RESULTS
from benchmarks.accuracy.protocol import Method, choices
from benchmarks.baselines import (
    GRACEClassifier,
    GraphCLClassifier,
    GraphMixClassifier,
    LabelPropagationClassifier,
    MultiViewClassifier,
    Node2VecClassifier,
    NodeAugClassifier,
)
from benchmarks.baselines.layers import (
    ARMALayer,
    ChebLayer,
    FeaStLayer,
    GATLayer,
    GraphConvLayer,
    HypergraphLayer,
)
from sktifa import GNNClassifier, NeighborSampler, SAINTTIFASampler, TIFAGCLClassifier

UNIFORM = {"weighting": "uniform", "perturbation": "uniform", "pairing": "uniform"}
# The paper's method, without what we added to it.
PAPERS: dict[str, Any] = {
    "encoder": "gcn",
    "pairing": "tifa",
    "target_information": 0.0,
    "teacher_weight": 0.0,
    "trust": "tifa",
}

Space = dict[str, list[Any]]
ENCODER: Space = {
    "learning_rate": [0.005, 0.01, 0.02],
    "dropout": [0.3, 0.5, 0.6, 0.7, 0.8],
}
# Features whose rows sum to one are small: what keeps weights of others in check keeps
# theirs from being learned, and half of all candidates from being any good.
NORMS: tuple[Space, ...] = (
    {"feature_norm": [None], "weight_decay": [5e-4, 1e-3, 2e-3, 5e-3, 1e-2]},
    {"feature_norm": ["l1"], "weight_decay": [1e-4, 2e-4, 5e-4, 1e-3, 2e-3]},
)
CONTRAST: Space = {
    **ENCODER,
    "weight_max": [1.2, 2.2, 3.2, 4.2],
    "perturbed_nodes": [0.2, 0.4, 0.6],
    "edges_removed": [1, 2, 4],
    "feature_mask_rate": [0.3, 0.5, 0.7],
    "pair_weight": [0.0, 0.05, 0.1],
}

# Pairs (steps, teleport): what reaches two or six steps far on average. Few of them, as
# models of one stack propagate alike.
PROPAGATIONS = ((4, 0.2), (10, 0.1))


def normed(*spaces: Space, prefix: str = "") -> list[Space]:
    """Return each space with each norm of the features."""
    return [
        {**space, **{prefix + name: values for name, values in norm.items()}}
        for space in spaces
        for norm in NORMS
    ]


def propagated(space: Space, *others: str) -> list[Space]:
    """Return a space for each way to propagate, and for encoders that don't."""
    ways: list[Space] = [{"encoder": [name]} for name in others]
    ways += [
        {"encoder": ["appnp"], "propagation_steps": [steps], "teleport": [teleport]}
        for steps, teleport in PROPAGATIONS
    ]
    return normed(*({**space, **way} for way in ways))


# Pairs are worth nothing measurable and cost the most (READING 24).
UNPAIRED = {"pairing": None}
CONSISTENT: Space = {
    **ENCODER,
    "weight_max": [1.2, 2.2, 3.2],
    "perturbed_nodes": [0.2, 0.4, 0.6],
    "edges_removed": [1, 2, 4],
    "feature_mask_rate": [0.3, 0.5, 0.7],
}
# Uniform contrast, and what the gain adds to it.
PLAIN: Space = {
    "weighting": ["uniform"],
    "perturbation": ["uniform"],
    "target_information": [0.0],
    "teacher_weight": [0.0],
}
BY_GAIN: Space = {
    "weighting": ["tifa"],
    "perturbation": ["tifa"],
    # As good as 0, and in one stack with the others.
    "target_information": [1e-3, 0.5, 1.0],
    "teacher_weight": [1e-3, 0.5, 1.0],
    "teacher_sharpness": [1.0, 2.0],
}
OF_NETWORK = {f"network__{name}": values for name, values in ENCODER.items()}
VIEWS: Space = {
    "network__edges_removed": [1, 2, 4, 8],
    "network__feature_mask_rate": [0.1, 0.3, 0.5],
}
TERM_WEIGHTS = [0.03, 0.1, 0.3, 1.0, 3.0]
TEMPERATURES = [0.2, 0.5, 1.0]

# Long enough for Photo and Computers; early stopping ends the others.
LONG = {"max_iter": 600}

# Figure 3, in the paper's order and by its names (READING 26).
ENCODERS = {
    "GCN": "gcn",
    "GAT": GATLayer,
    "GraphSAGE": "sage",
    "HyperGraph": HypergraphLayer,
    "ChebConv": ChebLayer,
    "StandGraph": GraphConvLayer,
    "ARMA": ARMALayer,
    "Feast": FeaStLayer,
}

METHODS: dict[str, Method] = {
    "MLP": Method(GNNClassifier("mlp", **LONG), normed(ENCODER)),
    "Node2vec": Method(
        Node2VecClassifier(),
        {"p": [0.25, 0.5, 1, 2, 4], "q": [0.25, 0.5, 1, 2, 4], "C": [0.1, 1, 10]},
    ),
    "Label propagation": Method(
        LabelPropagationClassifier(),
        {
            "restart_probability": [0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5],
            "aggregate": ["sum", "mean"],
            "feature_affinity": [False, True],
        },
    ),
    "GCN": Method(GNNClassifier("gcn", **LONG), normed(ENCODER)),
    "GAT": Method(GNNClassifier(GATLayer, **LONG), normed(ENCODER)),
    "GraphSAGE": Method(GNNClassifier("sage", **LONG), normed(ENCODER)),
    "APPNP": Method(GNNClassifier("appnp", **LONG), propagated(ENCODER)),
    "uniform-GCL": Method(
        TIFAGCLClassifier(**PAPERS | UNIFORM, **LONG), normed(CONTRAST)
    ),
    "TIFA-GCL": Method(TIFAGCLClassifier(**PAPERS, **LONG), normed(CONTRAST)),
    "uniform-GCL, our encoders": Method(
        TIFAGCLClassifier(**PAPERS | UNIFORM | UNPAIRED, **LONG),
        propagated(CONSISTENT, "gcn"),
    ),
    # The same, and what the gain adds where validation says so.
    "ours": Method(
        TIFAGCLClassifier(**UNPAIRED, trust="tifa", **LONG),
        propagated(CONSISTENT | PLAIN, "gcn"),
        adds=BY_GAIN,
    ),
    "defaults": Method(TIFAGCLClassifier()),
}
# Those that the study searches, to compare them with the defaults.
METHODS |= {
    name: replace(METHODS[name], tries_default=True)
    for name in (
        "Label propagation",
        "GCN",
        "APPNP",
        "uniform-GCL",
        "TIFA-GCL",
        "uniform-GCL, our encoders",
        "ours",
    )
}
# Taught by others of its kind, all else as chosen without them.
METHODS |= {
    f"{name}, distilled": Method(
        METHODS[name].estimator, like=name, changes={"n_teachers": 3}
    )
    for name in ("ours", "uniform-GCL, our encoders")
}
METHODS["defaults, trust uniform"] = Method(TIFAGCLClassifier(trust="uniform"))
METHODS["defaults, distilled"] = Method(TIFAGCLClassifier(), changes={"n_teachers": 3})


def _with_term(kind: Any, network: Any, space: dict[str, Any]) -> Method:
    """Make a method of the literature: a GCN and a term."""
    return Method(
        kind(network(**{"encoder": "gcn"} | kind.settings | LONG)),
        normed({**OF_NETWORK, "weight": TERM_WEIGHTS, **space}, prefix="network__"),
    )


METHODS |= {
    "GraphMix": _with_term(
        GraphMixClassifier, GNNClassifier, {"consistency": [0.0, *TERM_WEIGHTS]}
    ),
    "GRACE": _with_term(
        GRACEClassifier,
        TIFAGCLClassifier,
        {"temperature": TEMPERATURES, "network__perturbed_nodes": [0.5, 1.0], **VIEWS},
    ),
    "NodeAug": _with_term(
        NodeAugClassifier,
        TIFAGCLClassifier,
        {
            "network__perturbed_nodes": [0.05, 0.1, 0.2],
            **VIEWS,
        },
    ),
    "MultiView": _with_term(
        MultiViewClassifier, GNNClassifier, {"temperature": TEMPERATURES}
    ),
    "GraphCL": _with_term(
        GraphCLClassifier,
        TIFAGCLClassifier,
        {
            "temperature": TEMPERATURES,
            "network__perturbed_nodes": [0.2, 0.5],
            **VIEWS,
        },
    ),
}


CONTRASTS = {"": "GCN", ", uniform-GCL": "uniform-GCL", ", TIFA-GCL": "TIFA-GCL"}

# Table 3: one module at a time, all else as chosen for the whole.
ABLATIONS = {
    "TIFA-GCL": {
        "without loss weights": {"weighting": "uniform"},
        "uniform perturbation": {"perturbation": "uniform"},
        "uniform pairs": {"pairing": "uniform"},
        "without pairs": {"pairing": None},
    },
    "ours": {
        "contrast uniform": {"weighting": "uniform", "perturbation": "uniform"},
        "trust uniform": {"trust": "uniform"},
        "target without information": {"target_information": 0.0},
        "without teacher": {"teacher_weight": 0.0},
    },
}
METHODS |= {
    f"{whole}, {name}": Method(METHODS[whole].estimator, like=whole, changes=changes)
    for whole, parts in ABLATIONS.items()
    for name, changes in parts.items()
}

# Table 5: each depth is tuned, as what suits two layers leaves eight untrained.
DEPTHS = (2, 4, 6, 8)
METHODS |= {
    f"{depth} layers{name}": Method(
        clone(METHODS[base].estimator).set_params(n_layers=depth), METHODS[base].space
    )
    for depth in DEPTHS
    for name, base in CONTRASTS.items()
}

# Figure 3: what was chosen for a GCN with the same contrast.
METHODS |= {
    f"Encoder {name}{contrast}": Method(
        clone(METHODS[base].estimator).set_params(encoder=encoder), like=base
    )
    for name, encoder in ENCODERS.items()
    for contrast, base in CONTRASTS.items()
}

# Figure 7: how many negatives, and from which rank on.
NEGATIVES = {
    (begin, size): f"TIFA-GCL, {size} negatives from rank {begin}"
    for begin in (5, 50, 200, 800, 1600)
    for size in (10, 50, 100, 200, 400)
}
METHODS |= {
    name: Method(
        METHODS["TIFA-GCL"].estimator,
        like="TIFA-GCL",
        changes={"negative_ranks": (begin, begin + size), "pair_weight": 0.25},
    )
    for (begin, size), name in NEGATIVES.items()
}

# ------------------------------------------------------------ Tables 2 and 6: inductive

INDUCTIVE: dict[str, Any] = {
    "setting": "inductive",
    "hidden_size": 128,
    "max_iter": 100,
    "min_iter": 10,
    "n_iter_no_change": 20,
    # Several processes share a GPU.
    "prediction_memory": 4 << 30,
}
# An epoch is one update on the whole graph, and on the few labelled nodes'
# neighbourhoods, but four to nine on subgraphs: all get about as many.
ONE_UPDATE: dict[str, Any] = {
    "max_iter": 400,
    "min_iter": 40,
    "n_iter_no_change": 80,
}
# What ogbn-products has more: the paper's depth, memory of a GPU's own, and labels
# that need no L2.
PRODUCTS: dict[str, Any] = {
    "n_layers": 3,
    "normalization": "layer",
    "weight_decay": 0.0,
    "prediction_memory": None,
}
# It is searched on another graph of products bought together.
PROXY = "Computers"
OBJECTIVES: dict[str, tuple[Any, dict[str, Any]]] = {
    "No": (GNNClassifier, {}),
    "uniform-GCL": (TIFAGCLClassifier, PAPERS | UNIFORM),
    "TIFA-GCL": (TIFAGCLClassifier, PAPERS),
}
AGGREGATORS = {"MLP": "mlp", "GCN": "gcn", "GraphSAGE": "sage", "GAT": GATLayer}


def inductive(encoder: Any, sampler: Any, contrast: str, **parameters: Any) -> Method:
    """Make an inductive method, which chooses nothing."""
    kind, settings = OBJECTIVES[contrast]
    settings = INDUCTIVE | settings | parameters | {"encoder": encoder}
    return Method(kind(sampler=sampler, **settings), setting="inductive")


def samplers(n_roots: int, n_layers: int) -> dict[str, Any]:
    """Return Table 2's samplers by their names."""
    return {
        "Neighbor": NeighborSampler((10,) * n_layers, seeds="labeled"),
        "SAINT-RW": SAINTTIFASampler(n_roots, walk_length=3, sharpness=0.0),
        "SAINT-TIFA": SAINTTIFASampler(n_roots, walk_length=3, sharpness=0.25),
    }


WALKING = ("SAINT-RW", "SAINT-TIFA")
# The paper's rows (aggregator, sampling, contrast), and SAINT-TIFA with all contrasts.
TABLE_2 = [
    ("MLP", "N/A", "No"),
    ("Node2vec", "N/A", "No"),
    ("GCN", "Full-batch", "No"),
    ("GraphSAGE", "Full-batch", "No"),
    *(
        (aggregator, sampling, contrast)
        for aggregator in ("GraphSAGE", "GAT")
        for sampling, contrasts in (
            ("Neighbor", ("No",)),
            *((walk, OBJECTIVES) for walk in WALKING),
        )
        for contrast in contrasts
    ),
]
# Models on subgraphs are trained one by one, so that few can be: contrast takes over
# what suits the encoder without it, and SAINT-TIFA what suits SAINT-RW.
CHOOSES = "SAINT-RW, No"


def of_proxy(name: str) -> dict[str, Any]:
    """Return what was chosen on ogbn-products' proxy, of that which carries over.

    Dropout and L2 that suit 20 labels a class are far too strong for thousands.
    """
    chosen = choices(RESULTS).get("table2", {}).get(PROXY, {}).get(name, {}).get(20, {})
    return {key: chosen[key] for key in ("learning_rate",) if key in chosen}


for prefix, settings, n_roots, updated_once in (
    ("Inductive", {}, 2000, ("N/A", "Full-batch", "Neighbor")),
    ("Products", PRODUCTS, 20_000, ("N/A", "Full-batch")),
):
    of_name = samplers(n_roots, settings.get("n_layers", 2))
    for aggregator, sampling, contrast in TABLE_2:
        if aggregator == "Node2vec":
            continue
        row = f"{aggregator}, {sampling}, {contrast}"
        chooser = f"{aggregator}, {CHOOSES}" if sampling in WALKING else row
        method = inductive(
            AGGREGATORS[aggregator],
            of_name.get(sampling),
            contrast,
            **(ONE_UPDATE if sampling in updated_once else {}),
            **settings,
        )
        if prefix == "Products":
            method.estimator.set_params(**of_proxy(f"Inductive {chooser}"))
        elif chooser == row:
            method = replace(method, space=normed(ENCODER))
        else:
            method = replace(method, like=f"Inductive {chooser}")
        METHODS[f"{prefix} {row}"] = method
METHODS["Inductive Node2vec, N/A, No"] = replace(
    METHODS["Node2vec"], setting="inductive"
)

# Table 6: sharpness by length of the walks.
WALKS = {
    (sharpness, length): f"SAINT-TIFA, t = {sharpness:g}, walks of {length}"
    for sharpness in (0.0, 0.25, 0.5, 1.0, 2.0)
    for length in (2, 3, 4, 5)
}
METHODS |= {
    name: replace(
        inductive(
            "sage",
            SAINTTIFASampler(2000, walk_length=length, sharpness=sharpness),
            "TIFA-GCL",
        ),
        like=f"Inductive GraphSAGE, {CHOOSES}",
    )
    for (sharpness, length), name in WALKS.items()
}
