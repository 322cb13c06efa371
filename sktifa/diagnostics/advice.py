"""Warnings about a graph and its labels, each with what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sktifa.information.evidence import GraphEvidence

__all__ = ["Advice", "classes_in_words", "give_advice"]

# Columns' scales further apart than this drown the smaller ones. Bags of words, TF-IDF
# and pixels stay below 40.
_UNLIKE = 100
# A class of fewer labels can't be cross-validated well; classes whose sizes differ by
# more make plain accuracy blind.
_FEW_LABELS = 5
_IMBALANCED = 10
# Share of the nodes that is worth a word.
_NOTABLE = 0.05


@dataclass(frozen=True)
class Advice:
    """A warning and what to do about it.

    Parameters
    ----------
    topic : str
        What it is about, one word: "graph", "features", "scale", "isolated",
        "unreached", "labels" or "imbalance".
    message : str
        What is wrong.
    mend : str
        What helps.
    """

    topic: str
    message: str
    mend: str


def give_advice(
    graph: dict[str, Any],
    features: dict[str, Any],
    labels: dict[str, Any],
    evidence: GraphEvidence,
) -> tuple[Advice, ...]:
    """Say what should be mended, what matters most first.

    The dicts are those of a :class:`~sktifa.diagnostics.GraphReport`.
    """
    return tuple(
        [
            *_about_edges(evidence),
            *_about_features(features),
            *_about_reach(graph, labels),
            *_about_classes(labels["classes"]),
        ]
    )


def classes_in_words(classes: dict[str, int]) -> str:
    """List classes with their labels, the first few of many."""
    shown = [f"{label}: {count:,}" for label, count in list(classes.items())[:12]]
    more = len(classes) - len(shown)
    return ", ".join(shown) + (f" and {more} more classes" if more else "")


def _about_edges(evidence: GraphEvidence) -> Iterator[Advice]:
    if evidence.helps is not False:
        return
    reasons = []
    edges, found = evidence.adjusted_homophily, evidence.propagation
    if edges is not None:
        how_often = "hardly more often" if edges.high > 0 else "less often"
        reasons.append(
            f"labelled edges join one class {how_often} than by chance (adjusted "
            f"homophily {edges.value:.2f} ± {edges.error:.2f})"
        )
    if found is not None:
        rival = evidence.features
        features = "" if rival is None else f", features alone {rival.value:.0%}"
        reasons.append(
            f"propagated labels find {found.value:.0%} of the labels held out, "
            f"guessing {evidence.chance:.0%}{features}"
        )
    yield Advice(
        "graph",
        f"the graph does not help: {'; '.join(reasons)}.",
        "don't rely on contrast. Compare, on nodes held out, the features alone "
        "(LogisticRegression, HistGradientBoostingClassifier) with "
        "GNNClassifier(encoder='sage'), which may yet learn from the features of "
        "neighbours. If edges ought to join nodes that are alike, look at how they "
        "were made.",
    )


def _about_features(features: dict[str, Any]) -> Iterator[Advice]:
    if features["kind"] == "none":
        yield Advice(
            "features",
            "nodes have no features: each is known by its number alone.",
            "predictions hold for this graph only. Give features where there are "
            "any; LabelPropagationTIG(as_graph=True) makes some of the edges.",
        )
        return
    smallest, largest = features["smallest"], features["largest"]
    if largest["scale"] <= _UNLIKE * smallest["scale"]:
        return
    yield Advice(
        "scale",
        f"features are of unlike scales: {largest['name']} is of size "
        f"{largest['scale']:.2g}, {smallest['name']} of {smallest['scale']:.2g}. "
        "The larger drown the smaller.",
        "standardise them inside the graph: "
        "graph.with_features(StandardScaler().fit_transform(graph.features)).",
    )


def _about_reach(graph: dict[str, Any], labels: dict[str, Any]) -> Iterator[Advice]:
    n, isolated, unreached = graph["nodes"], graph["isolated"], labels["unreached"]
    if isolated > _NOTABLE * n:
        yield Advice(
            "isolated",
            f"{isolated:,} nodes ({isolated / n:.0%}) have no edge: they are "
            "classified by their features alone.",
            "check that ids are written alike in nodes and edges, or tie those "
            "nodes to others of similar features (Graph.from_features).",
        )
    if unreached > _NOTABLE * n and unreached > isolated:
        size, node = labels["largest_unreached"], labels["node_unreached"]
        yield Advice(
            "unreached",
            f"no label reaches {unreached:,} nodes ({unreached / n:.0%}): no node "
            "of their components has one.",
            f"label one in the larger of these components (node {node!r} is in the "
            f"largest, of {size:,}); in the others features alone decide.",
        )


def _about_classes(classes: dict[str, int]) -> Iterator[Advice]:
    few = {label: count for label, count in classes.items() if count < _FEW_LABELS}
    if few:
        yield Advice(
            "labels",
            f"few labels ({classes_in_words(few)}): results will depend much on "
            "which nodes have them.",
            f"label at least {_FEW_LABELS} nodes of each class, or judge by the "
            "mean over several random splits.",
        )
    smallest, largest = min(classes.values()), max(classes.values())
    if largest > _IMBALANCED * smallest:
        yield Advice(
            "imbalance",
            f"classes are of very unlike sizes, from {smallest:,} to {largest:,} "
            "labels: plain accuracy hardly sees the small ones.",
            "set class_weight='balanced', and score by 'balanced_accuracy' or "
            "'f1_macro'.",
        )
