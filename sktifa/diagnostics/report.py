"""What to know of a graph and its labels, as text, HTML and dict."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from sktifa.diagnostics.advice import Advice, classes_in_words

__all__ = ["GraphReport"]

_VERDICT = {True: "yes", False: "no", None: "too few labels to say"}


@dataclass(frozen=True)
class GraphReport:
    """What :func:`~sktifa.diagnostics.diagnose` found.

    Printed it is text, in a notebook a table.

    Parameters
    ----------
    graph : dict
        Counts of nodes, edges, components and isolated nodes; degrees.
    features : dict
        Their kind, number, fill and scales.
    labels : dict
        Labelled nodes, in all and by class; nodes that no label reaches.
    homophily : dict
        The share of labelled edges that join one class ("edge"), and the same on a
        scale from 0, chance, to 1 ("adjusted"); an Estimate each, or None.
    accuracy : dict
        Balanced accuracy, in which every class counts alike, on labelled nodes held
        out: of guessing ("chance"), of labels propagated along the edges, of a
        LogisticRegression on the features alone. The last two are an Estimate or None.
    graph_helps : bool or None
        Whether edges tell of the labels; None where the labels are too few to say.
    expectation : str
        What to expect from contrast.
    warnings : tuple of Advice
        What should be mended, what matters most first.
    """

    graph: dict[str, Any]
    features: dict[str, Any]
    labels: dict[str, Any]
    homophily: dict[str, Any]
    accuracy: dict[str, Any]
    graph_helps: bool | None
    expectation: str
    warnings: tuple[Advice, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain dicts, lists, numbers and strings.

        Returns
        -------
        dict
            Ready for JSON.
        """
        return {**asdict(self), "warnings": [asdict(each) for each in self.warnings]}

    def __str__(self) -> str:
        rows = self._rows()
        width = max(map(len, rows))
        lines = [
            _wrapped(f"{name:<{width}}  {value}", indent=width + 2)
            for name, value in rows.items()
        ]
        lines += ["", _wrapped(f"Contrast: {self.expectation}")]
        for advice in self.warnings:
            lines += ["", _wrapped(f"Warning: {advice.message}")]
            lines += [_wrapped(f"Mend: {advice.mend}")]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        left = "text-align:left"
        rows = "".join(
            f"<tr><th style='{left};white-space:nowrap'>{escape(name)}</th>"
            f"<td style='{left}'>{escape(value)}</td></tr>"
            for name, value in self._rows().items()
        )
        warnings = "".join(
            f"<li><b>{escape(advice.message)}</b> Mend: {escape(advice.mend)}</li>"
            for advice in self.warnings
        )
        return (
            f"<table><caption>Graph and labels</caption>{rows}</table>"
            f"<p><b>Contrast:</b> {escape(self.expectation)}</p>"
            + (f"<p><b>Warnings</b></p><ul>{warnings}</ul>" if warnings else "")
        )

    def _rows(self) -> dict[str, str]:
        graph, labels, accuracy = self.graph, self.labels, self.accuracy
        degree, n = graph["degree"], graph["nodes"]
        return {
            "nodes": f"{n:,}",
            "edges": f"{graph['edges']:,}{', weighted' if graph['weighted'] else ''}",
            "degree": f"{degree['mean']:.1f} on average, {degree['median']:.0f} in the "
            f"middle, {degree['max']:,} at most",
            "components": f"{graph['components']:,}, {graph['largest_component']:,} "
            f"nodes in the largest; {graph['isolated']:,} isolated nodes",
            "features": self._features(),
            "labelled": f"{labels['labelled']:,} nodes ({labels['labelled'] / n:.1%})",
            "labels a class": classes_in_words(labels["classes"]),
            "reached by no label": f"{labels['unreached']:,} nodes "
            f"({labels['unreached'] / n:.1%})",
            "edges join one class": self._homophily(),
            "edges alone find": _found(accuracy["label_propagation"]),
            "features alone find": _found(accuracy["features"]),
            "guessing finds": f"{accuracy['chance']:.1%}",
            "the graph helps": _VERDICT[self.graph_helps],
        }

    def _features(self) -> str:
        found = self.features
        if found["kind"] == "none":
            return "none"
        empty = found["empty_rows"]
        return (
            f"{found['columns']:,} columns, {found['kind']}, {found['filled']:.1%} "
            f"filled, of size {found['smallest']['scale']:.2g} to "
            f"{found['largest']['scale']:.2g}"
            + (f"; {empty:.1%} of the nodes have none" if empty else "")
        )

    def _homophily(self) -> str:
        edge, adjusted = self.homophily["edge"], self.homophily["adjusted"]
        if edge is None:
            return "unknown: none is labelled at both ends"
        words = f"{edge.value:.0%} of {edge.n:,} labelled edges"
        if adjusted is not None:
            words += f"; {adjusted.value:.2f} ± {adjusted.error:.2f} of the way from "
            words += "chance (0) to always (1)"
        return words


def _wrapped(text: str, indent: int = 0) -> str:
    return textwrap.fill(
        text,
        88,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _found(accuracy: Any) -> str:
    if accuracy is None:
        return "unknown"
    return (
        f"{accuracy.value:.1%} ± {accuracy.error:.1%} of the labels held out, every "
        "class counting alike"
    )
