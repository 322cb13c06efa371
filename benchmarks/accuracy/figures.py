"""Draws the figures, from the JSON records alone.

Colours are Okabe and Ito's, told apart by the colour-blind; lines differ in their
markers as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from benchmarks.accuracy.comparison import paired
from benchmarks.accuracy.experiments import DISTILLED, SAME_ENCODERS
from benchmarks.accuracy.methods import ENCODERS, NEGATIVES
from sktifa.displays import RadialDecayDisplay

__all__ = ["DRAW"]

Record = dict[str, Any]

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000",
)  # fmt: skip
MARKERS = "osD^vPX"
BINS, TICKS = "bin of information gain\n(least first)", (1, 4, 7, 10)
DIFFERENCE = "difference in accuracy\n(points, ± standard error)"


def _find(records: Sequence[Record], method: str, graph: str, labels: int = 20):
    for record in records:
        told = record["method"], record["graph"], record["labels"]
        if told == (method, graph, labels):
            return record
    return None


def _graphs(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record["graph"] for record in records))


def _grid(
    n_rows: int, n_columns: int, width: float, height: float, **options: Any
) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def radial(records: Sequence[Record]) -> Figure:
    """Draw GCN's right and wrong nodes, its errors, and what contrast gains."""
    graphs = _graphs(records)
    figure, axes = _grid(len(graphs), 3, 3.3, 2.9)
    for row, graph in zip(axes, graphs, strict=True):
        gcn = _find(records, "GCN", graph)
        contrast = _find(records, "uniform-GCL", graph)
        if gcn is None:
            continue
        nodes = {name: np.array(values) for name, values in gcn["nodes"].items()}
        right = nodes["right"] >= 0.5
        for chosen, colour, marker, label in (
            (right, SKY, "o", "right"),
            (~right, VERMILION, "x", "wrong"),
        ):
            row[0].scatter(
                100 * nodes["intensity_rank"][chosen],
                100 * nodes["clarity_rank"][chosen],
                s=8,
                marker=marker,
                color=colour,
                linewidths=0.8,
                label=label,
            )
        row[0].set(title=f"{graph}: GCN, one split", xlim=(0, 100), ylim=(0, 100))
        accuracy = _accuracy(gcn)
        RadialDecayDisplay(1 - accuracy).plot(row[1])
        row[1].set_title(f"{graph}: error rate of the GCN")
        if contrast is not None:
            RadialDecayDisplay(_accuracy(contrast) - accuracy, "gain").plot(row[2])
            row[2].set_title(f"{graph}: uniform-GCL minus GCN")
    for ax in axes.flat:
        ax.set(
            xlabel="rank of intensity\n(%, strongest first)",
            ylabel="rank of clarity\n(%, clearest first)",
        )
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower left", ncols=2, markerscale=2)
    return figure


def _accuracy(record: Record) -> np.ndarray:
    right, count = np.array(record["right"]), np.array(record["count"])
    # A handful of nodes a split tells nothing of a cell.
    known = count >= 5 * record["n_splits"]
    return np.where(known, right / np.maximum(count, 1), np.nan)


def same_class(records: Sequence[Record]) -> Figure:
    """Draw the share of pairs of one class by bin of label distance."""
    figure, ((ax,),) = _grid(1, 1, 6, 4)
    for record, colour, marker in zip(records, COLOURS, MARKERS, strict=False):
        share, std = np.array(record["share"]), np.array(record["share_std"])
        at = (np.arange(len(share)) + 0.5) * 100 / len(share)
        name = {"All": "all pairs", "Neighbor": "neighbours"}[record["method"]]
        ax.plot(at, share, color=colour, marker=marker, label=name)
        ax.fill_between(at, share - std, share + std, color=colour, alpha=0.2)
    ax.set(
        title=f"{records[0]['graph']}, {records[0]['n_splits']} splits",
        xlabel="rank of label distance (%, nearest first)",
        ylabel="share of pairs of one class",
        xlim=(0, 100),
        ylim=(0, 1),
    )
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def encoders(records: Sequence[Record]) -> Figure:
    """Draw each encoder's accuracy by contrast, a panel for each number of labels."""
    counts = sorted({record["labels"] for record in records})
    figure, axes = _grid(len(counts), 1, 8, 2.4, sharex=True)
    tried = {record["method"].split(",")[0] for record in records}
    names = [name for name in ENCODERS if f"Encoder {name}" in tried]
    contrasts = (
        ("", "supervised", BLACK),
        (", uniform-GCL", "uniform-GCL", ORANGE),
        (", TIFA-GCL", "TIFA-GCL", BLUE),
    )
    for ax, labels in zip(axes[:, 0], counts, strict=True):
        for i, (suffix, name, colour) in enumerate(contrasts):
            found = [
                _find(records, f"Encoder {encoder}{suffix}", "Cora", labels)
                for encoder in names
            ]
            at = [j for j, record in enumerate(found) if record]
            told = [record for record in found if record]
            errors = [r["test_std"] / np.sqrt(r["n_splits"]) for r in told]
            ax.errorbar(
                np.array(at) + (i - 1) * 0.2, [r["test_mean"] for r in told], errors,
                color=colour, marker=MARKERS[i], linestyle="none", capsize=2,
                label=name if ax is axes[0, 0] else None,
            )  # fmt: skip
        for j in range(1, len(names)):
            ax.axvline(j - 0.5, color="0.85", linewidth=0.8)
        ax.set(
            title=f"{labels} labels a class",
            ylabel="test accuracy\n(%, ± standard error)",
        )
    axes[-1, 0].set(
        xticks=range(len(names)), xticklabels=names, xlim=(-0.5, len(names) - 0.5)
    )
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def gain_over(
    pairs: Iterable[tuple[str, str]],
) -> Callable[[Sequence[Record]], Figure]:
    """Draw what one method gains on another by bin of information gain."""
    pairs = list(pairs)

    def draw(records: Sequence[Record]) -> Figure:
        graphs = _graphs(records)
        figure, axes = _grid(1, len(graphs), 2.0, 2.7, sharey=True)
        known: dict[str, Any] = {}
        for ax, graph in zip(axes[0], graphs, strict=True):
            for (ours, other), colour, marker in zip(
                pairs, COLOURS, MARKERS, strict=False
            ):
                one, rival = (_find(records, name, graph) for name in (ours, other))
                if one is not None and rival is not None:
                    drawn = _line(ax, _gain(one, rival), colour, marker)
                    known[f"{ours} minus {other}"] = drawn
            ax.axhline(0, color="grey", linewidth=0.8)
            ax.set(title=graph, xlabel=BINS, xticks=TICKS)
        axes[0, 0].set_ylabel(DIFFERENCE)
        figure.legend(known.values(), known, loc="outside lower center", ncols=2)
        return figure

    return draw


def effect(records: Sequence[Record]) -> Figure:
    """Draw a GCN's accuracy by bin of information gain, and what contrast adds."""
    graphs = _graphs(records)
    figure, axes = _grid(2, len(graphs), 2.0, 2.2, sharex=True, sharey="row")
    known: dict[str, Any] = {}
    for (top, bottom), graph in zip(axes.T, graphs, strict=True):
        gcn, contrast = (_find(records, m, graph) for m in ("GCN", "uniform-GCL"))
        lines = [
            ("GCN", top, gcn and _by_gain(gcn)),
            ("uniform-GCL", top, contrast and _by_gain(contrast)),
            (
                "uniform-GCL minus GCN",
                bottom,
                gcn and contrast and _gain(contrast, gcn),
            ),
        ]
        for (name, ax, values), colour, marker in zip(
            lines, (BLACK, ORANGE, BLUE), MARKERS, strict=False
        ):
            if values is not None:
                known[name] = _line(ax, values, colour, marker)
        top.set_title(graph)
        bottom.axhline(0, color="grey", linewidth=0.8)
        bottom.set(xlabel=BINS, xticks=TICKS)
    axes[0, 0].set_ylabel("test accuracy (%)")
    axes[1, 0].set_ylabel("difference (points)")
    figure.legend(known.values(), known, loc="outside lower center", ncols=3)
    return figure


def _by_gain(record: Record) -> np.ndarray:
    """Return accuracies, a row a split; NaN where a bin is empty."""
    return np.array(record["by_gain"], dtype=float)


def _gain(one: Record, rival: Record) -> np.ndarray:
    n = min(len(one["by_gain"]), len(rival["by_gain"]))
    return _by_gain(one)[:n] - _by_gain(rival)[:n]


def _line(ax: Axes, values: np.ndarray, colour: str, marker: str) -> ErrorbarContainer:
    # Where ties leave a bin empty on every split, the line is broken.
    mean, error = np.full((2, values.shape[1]), np.nan)
    for i, column in enumerate(values.T):
        known = column[~np.isnan(column)]
        if len(known) > 1:
            mean[i], error[i] = known.mean(), known.std(ddof=1) / np.sqrt(len(known))
    return ax.errorbar(
        np.arange(len(mean)) + 1, mean, error,
        color=colour, marker=marker, markersize=4, capsize=2,
    )  # fmt: skip


def negatives(records: Sequence[Record]) -> Figure:
    """Draw accuracy by number and difficulty of the negatives."""
    begins = sorted({begin for begin, _ in NEGATIVES})
    sizes = sorted({size for _, size in NEGATIVES})
    values = np.full((len(sizes), len(begins)), np.nan)
    for (begin, size), method in NEGATIVES.items():
        record = _find(records, method, "Cora")
        if record is not None:
            values[sizes.index(size), begins.index(begin)] = record["test_mean"]
    figure, ((ax,),) = _grid(1, 1, 6, 4.4)
    image = ax.imshow(values, origin="lower", cmap="cividis", aspect="auto")
    middle = np.nanmean([np.nanmin(values), np.nanmax(values)])
    for (i, j), value in np.ndenumerate(values):
        if not np.isnan(value):
            ink = "black" if value > middle else "white"
            ax.text(j, i, f"{value:.1f}", ha="center", va="center", color=ink)
    ax.set(
        title="Cora: TIFA-GCL by its negatives",
        xlabel="first rank of the negatives (the larger, the easier)",
        ylabel="number of negatives",
        xticks=range(len(begins)),
        xticklabels=begins,
        yticks=range(len(sizes)),
        yticklabels=sizes,
    )
    figure.colorbar(image, ax=ax, label="test accuracy (%)")
    return figure


def study(records: Sequence[Record]) -> Figure:
    """Draw what ours gains: by labels, and by information where labels are most."""
    graphs = _graphs(records)
    figure, axes = _grid(2, len(graphs), 2.0, 2.3, sharey="row")
    # Label propagation is too far below to be seen on one scale.
    pairs = [("ours", rival) for rival in ("GCN", "APPNP", SAME_ENCODERS, "TIFA-GCL")]
    pairs.append((DISTILLED, "ours"))
    counts = sorted({record["labels"] for record in records})
    known: dict[str, Any] = {}
    for (top, bottom), graph in zip(axes.T, graphs, strict=True):
        for i, (pair, colour, marker) in enumerate(
            zip(pairs, COLOURS, MARKERS, strict=False)
        ):
            # Beside each other, as some are level.
            aside = 0.08 * (i - (len(pairs) - 1) / 2)
            told = {}
            for place, count in enumerate(counts):
                one, other = (_find(records, name, graph, count) for name in pair)
                if one is None or other is None:
                    continue
                n = min(one["n_splits"], other["n_splits"])
                told[place + aside] = paired(one["test"][:n], other["test"][:n])
                if count == counts[-1]:
                    _line(bottom, _gain(one, other), colour, marker)
            if told:
                known[" minus ".join(pair)] = top.errorbar(
                    told.keys(),
                    [gain["difference"] for gain in told.values()],
                    [gain["standard_error"] for gain in told.values()],
                    color=colour, marker=marker, markersize=4, capsize=2,
                )  # fmt: skip
        for ax in (top, bottom):
            ax.axhline(0, color="grey", linewidth=0.8)
        top.set(
            title=graph,
            xlabel="labels a class",
            xticks=range(len(counts)),
            xticklabels=counts,
            xlim=(-0.4, len(counts) - 0.6),
        )
        bottom.set(title=f"{counts[-1]} labels a class", xlabel=BINS, xticks=TICKS)
    figure.supylabel(DIFFERENCE.replace("\n", " "), fontsize="medium")
    figure.legend(known.values(), known, loc="outside lower center", ncols=3)
    return figure


DRAW: dict[str, Callable[[Sequence[Record]], Figure]] = {
    "figure1": radial,
    "figure2": same_class,
    "figure3": encoders,
    "figure4": gain_over([("TIFA-GCL", "uniform-GCL"), ("ours", SAME_ENCODERS)]),
    "figure5": radial,
    "figure6": effect,
    "figure7": negatives,
    "study": study,
}
