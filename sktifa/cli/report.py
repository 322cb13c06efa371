"""The page that `classify --report` writes: one file, without scripts or pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sktifa
from sktifa.cli.answers import Answers

__all__ = ["html_report"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; background: #fff; }
h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: right; padding: .15rem 1.2rem .15rem 0; white-space: nowrap; }
td { font-variant-numeric: tabular-nums; }
th:first-child, td:first-child, .text { text-align: left; }
thead th { border-bottom: 1px solid #999; }
.whole { display: inline-block; width: 6em; height: .7em; background: #e4e9ee; }
.share { display: block; height: 100%; background: #4477aa; }
.percent { display: inline-block; width: 4.4em; }
.note { color: #555; }
.diagnosis caption { display: none; }
.diagnosis td { white-space: normal; }
"""
_CONFIDENCES = [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0]
_N_BINS = 5
_N_DOUBTED = 20


def html_report(answers: Answers, diagnosis: str) -> str:
    """Make the page; `diagnosis` is HTML of what to know of graph and labels."""
    parts = [
        "<h1>Predictions</h1>",
        *(
            f"<p>{escape(line[0].upper() + line[1:])}.</p>"
            for line in answers.summary()
        ),
        _by_class(answers),
    ]
    new = answers.data.codes < 0
    if len(answers.checked) and new.any():
        parts += [
            "<h2>How sure, and how often right</h2>",
            _note(
                "Labels were held back, a part at a time, and predicted by models that "
                "had not seen them. Confidence is calibrated on these predictions. "
                "They tell of other nodes as far as the labelled ones are like them."
            ),
            _by_confidence(answers),
            "<h2>Where little is known</h2>",
            _note(
                "The gain tells how much of the labels' information reaches a node "
                "along the edges. Nodes without a label are put into five bins by it; "
                "the labels held back stand where the others' information puts them."
            ),
            _by_gain(answers),
        ]
    if new.any():
        parts += ["<h2>Most doubtful predictions</h2>", _doubted(answers)]
    parts += [
        "<h2>Graph and labels</h2>",
        f'<div class="diagnosis">{diagnosis}</div>',
        "<h2>How it was made</h2>",
        "<ul>",
        *(f"<li>{escape(line)}</li>" for line in answers.data.report),
        f"<li>model: {escape(repr(answers.model))}</li>",
        f"<li>sktifa {sktifa.__version__}</li>",
        "</ul>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>sktifa: predictions</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _by_class(answers: Answers) -> str:
    data = answers.data
    rows = []
    for code, name in enumerate(data.classes):
        there = answers.checked_codes == code
        said = answers.checked_probabilities.argmax(axis=1) == code
        rows.append(
            [
                name,
                np.count_nonzero(data.codes == code),
                np.count_nonzero(answers.codes[data.codes < 0] == code),
                _share(answers.correct[there]),
                _share(answers.correct[said]),
            ]
        )
    return _table(
        ["class", "labels", "predicted", "found", "right where said"], rows, "By class"
    ) + _note(
        "Predicted: nodes without a label that are given this class. Found: share of "
        "the class's labels, held back, that were predicted so. Right where said: "
        "share of the predictions of this class that were right."
    )


def _by_confidence(answers: Answers) -> str:
    sure = answers.checked_probabilities.max(axis=1)
    new = answers.confidence[answers.data.codes < 0]
    last = len(_CONFIDENCES) - 2
    rows: list[list[Any]] = []
    for i, (low, high) in enumerate(pairwise(_CONFIDENCES)):
        checked, others = (
            (values >= low) & ((values < high) | (i == last)) for values in (sure, new)
        )
        rows.append(
            [
                f"{low:.0%} to {high:.0%}",
                np.count_nonzero(checked),
                _share(sure[checked]),
                _share(answers.correct[checked]),
                np.count_nonzero(others),
            ]
        )
    heads = ["confidence", "labels held back", "mean confidence", "right", "unlabelled"]
    return _table(heads, rows)


def _by_gain(answers: Answers) -> str:
    new = answers.data.codes < 0
    edges = np.quantile(answers.gain[new], np.arange(1, _N_BINS) / _N_BINS)
    of_new = np.searchsorted(edges, answers.gain[new], side="right")
    of_checked = np.searchsorted(edges, answers.checked_gain, side="right")
    rows: list[list[Any]] = []
    for i in range(_N_BINS):
        correct = answers.correct[of_checked == i]
        rows.append(
            [
                {0: "least", _N_BINS - 1: "most"}.get(i, str(i + 1)),
                np.count_nonzero(of_new == i),
                _share(answers.confidence[new][of_new == i]),
                len(correct),
                _share(correct),
            ]
        )
    heads = ["gain", "unlabelled", "mean confidence", "labels held back", "right"]
    return _table(heads, rows)


def _doubted(answers: Answers) -> str:
    nodes = np.flatnonzero(answers.data.codes < 0)
    nodes = nodes[np.argsort(answers.confidence[nodes], kind="stable")][:_N_DOUBTED]
    second = answers.probabilities[nodes].argsort(axis=1)[:, -2]
    classes, names = answers.data.classes, answers.data.names.tolist()
    rows = [
        [
            str(names[node]),
            classes[answers.codes[node]],
            float(answers.confidence[node]),
            classes[other],
            f"{answers.gain[node]:.3g}",
        ]
        for node, other in zip(nodes, second, strict=True)
    ]
    return _table(["node", "prediction", "confidence", "or else", "gain"], rows)


def _share(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _table(
    heads: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = ""
) -> str:
    rows = list(rows)
    are_text = [all(isinstance(row[i], str) for row in rows) for i in range(len(heads))]
    kinds = [' class="text"' if is_text else "" for is_text in are_text]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>"
        for kind, name in zip(kinds, heads, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{_cell(value)}</td>"
            for kind, value in zip(kinds, row, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f"<table>{f'<caption>{caption}</caption>' if caption else ''}"
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        bar = f'<span class="share" style="width:{value:.1%}"></span>'
        percent = f'<span class="percent">{value:.1%}</span>'
        return f'<span class="whole">{bar}</span>{percent}'
    return f"{value:,}" if isinstance(value, np.integer) else escape(str(value))


def _note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'
