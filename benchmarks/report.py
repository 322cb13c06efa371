"""Write ``docs/benchmarks.md`` and the README's figures from ``results/*.json``.

``python -m benchmarks.report``. Every report has its place: one that `SECTIONS` doesn't
know is shown as it is, so that nothing measured is left out, and no figure is typed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._report import RESULTS, markdown_table, shown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures: python -m benchmarks.report -->", "<!-- /figures -->"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """How a report is shown: its command, what it says, and which columns."""

    title: str
    command: str = ""
    about: str = ""
    #: Heading to what stands under it: a key of the row, or a function of the row.
    columns: Mapping[str, str | Callable[[Row], Any]] = field(default_factory=dict)
    keep: Callable[[Row], bool] = lambda row: True
    #: A heading whose values become columns, and the heading of what fills them.
    across: tuple[str, str] | None = None

    def rows(self, report: Mapping[str, Any]) -> list[dict[str, Any]]:
        kept = [row for row in report["rows"] if self.keep(row)]
        if not self.columns:
            return [{k: v for k, v in row.items() if _is_plain(v)} for row in kept]
        table = [
            {
                heading: what(row) if callable(what) else row[what]
                for heading, what in self.columns.items()
                if callable(what) or what in row
            }
            for row in kept
        ]
        return _spread_out(table, *self.across) if self.across else table


def _spread_out(table: list[dict[str, Any]], by: str, what: str) -> list[dict]:
    """Put what stands under one heading side by side, by the values of another."""
    merged: dict[tuple, dict[str, Any]] = {}
    for row in table:
        column, value = row.pop(by), row.pop(what)
        merged.setdefault(tuple(row.values()), row)[column] = value
    return list(merged.values())


def percent(key: str) -> Callable[[Row], str]:
    return lambda row: f"{100 * row[key]:.1f}"


def times(key: str, ratio: str) -> Callable[[Row], str]:
    """Milliseconds, and how many times less than the peer's."""
    return lambda row: f"{shown(row[key])} ({shown(row[ratio])} ×)"


def spread(mean: str, deviation: str) -> Callable[[Row], str]:
    return lambda row: f"{row[mean]:.1f} ± {row[deviation]:.1f}"


_FEW = ("TIFA-GCL", "GCN", "label propagation", "LabelSpreading", "uniform weights")
_EPOCH = {
    "graph": "graph",
    "PyG GCN, step": "PyG GCN, training step ms",
    "our GCN": times("our GCN, epoch ms", "GCN faster than PyG's step"),
    "TIFA-GCL": times("TIFA-GCL, epoch ms", "TIFA-GCL against PyG's step"),
}
_EPOCH_ABOUT = (
    "One training epoch in ms. PyG's column is the training step of a plain two-layer "
    "`GCNConv` model, without validation; ours are whole epochs, with validation and "
    "TIFA's perturbation and three forward passes."
)
_INDUCTIVE = {
    "graph": "graph",
    "encoder": "encoder",
    "sampler": "sampler",
    "sharpness": "t",
    "steps": "walk length",
    "method": "method",
    "accuracy, %": spread("accuracy", "std"),
}
_INDUCTIVE_ABOUT = (
    "Training sees half of the nodes, 20 labels a class; prediction uses the whole "
    "graph. Test accuracy in % over seeds, ± their spread."
)
_SEARCH = {
    "graph": lambda row: row.get("graph", "Cora"),
    "classifier": "classifier",
    "one by one, s": "one by one, s a candidate",
    "one by one as CUDA graphs, s": "one by one as CUDA graphs",
    "batched, s": "at once, s a candidate",
    "times faster": "times",
    "than CUDA graphs": "times against CUDA graphs",
}
_SEARCH_ABOUT = (
    "Seconds a candidate, everything from propagation to scoring included; 32 random "
    "candidates with early stopping."
)
_LAUNCHED = (
    " Kernels were compiled before. How many times as long they take when they are "
    "launched one by one is told by the first four candidates."
)

_FIT = {
    "graph": "graph",
    "classifier": "classifier",
    "epochs": "epochs",
    "fit and predict, s": times("fit and predict s", "times faster"),
    "PyG GCN, s": "PyG GCN s",
    "preparation, %": percent("preparation"),
    "a process's first, s": "first in a process s",
    "first ever, s": "first ever s",
}
_FIT_ABOUT = (
    "From data to every node's class, with all defaults, against a plain script of "
    "PyG's GCN of as many epochs with the same validation. The first fit of a process "
    "loads what is compiled, the first ever compiles it."
)

_FEW_ABOUT = (
    "No validation nodes, no search: what `fit(graph, y)` comes to. Test accuracy in % "
    "over splits, ± its spread; then `TIFAGCLClassifier()` minus each, paired by "
    "split, ± standard error, with Wilcoxon's p, and minus the GCN on the split where "
    "it does worst. Propagation is Eq. 1 with a restart of .15; scikit-learn's spreads "
    "over the same graph."
)
_FEW_COLUMNS = {
    "graph": "graph",
    "labels": "labels",
    "splits": "splits",
    **{name: name for name in _FEW},
    **{f"minus {name}": f"minus {name}" for name in _FEW[1:]},
    "minus GCN at worst": "least minus GCN",
}

# By the name of the report, in the order of the page.
SECTIONS = {
    "peers_cpu": Section(
        "Other tools, as they come",
        "python -m benchmarks.accuracy.peers",
        "20 labels a class, each tool with its own defaults on the same splits: test "
        "accuracy in %, and median seconds from data to every node's class on a CPU. "
        "Nothing is tuned; PyG's script and ours look at validation nodes to choose "
        "when to stop.",
        {
            "graph": "graph",
            "tool": "tool",
            "test accuracy, %": spread("test accuracy", "± over splits"),
            "seconds": "seconds",
        },
    ),
    "defaults": Section(
        "Which defaults",
        "python -m benchmarks.accuracy.defaults --device cuda",
        "Ours is what `TIFAGCLClassifier` does by default. Test accuracy in % over 10 "
        "splits, ± its spread (validation in brackets, by which the defaults were "
        "chosen); then ours minus each, paired by split, ± standard error, with "
        "Wilcoxon's p. No search; CiteSeer with its features as they are.",
    ),
    "few_cpu": Section(
        "Defaults where labels are few",
        "python -m benchmarks.accuracy.few",
        _FEW_ABOUT
        + " Iris, wine and cancer are tables of scikit-learn's, standardised, each row "
        "beside its nearest.",
        _FEW_COLUMNS,
    ),
    "few_photo_cpu": Section(
        "Defaults where labels are few, Photo",
        "python -m benchmarks.accuracy.few --graphs Photo",
        _FEW_ABOUT,
        _FEW_COLUMNS,
    ),
    "idea_cora_cpu": Section(
        "Accuracy by information gain",
        "python -m benchmarks.accuracy.idea --splits 10",
        "Cora, 20 labels a class: test accuracy in % in five bins of the gain, from "
        "where least arrives to where most does. The README's picture.",
    ),
    "inductive_sage_gat": Section(
        "Inductive training",
        "python -m benchmarks.scale.inductive",
        _INDUCTIVE_ABOUT,
        _INDUCTIVE,
        across=("method", "accuracy, %"),
    ),
    "inductive_grid": Section(
        "SAINT-TIFA's sharpness and walk length",
        "python -m benchmarks.scale.inductive --grid",
        _INDUCTIVE_ABOUT,
        _INDUCTIVE,
        across=("method", "accuracy, %"),
    ),
    "speed_epoch_cpu": Section(
        "An epoch on a CPU",
        "python -m benchmarks.speed.epoch",
        _EPOCH_ABOUT,
        {**_EPOCH, "TIFA-GCL's MiB above the data": "TIFA-GCL fit, MiB above the data"},
    ),
    "speed_epoch_gpu": Section(
        "An epoch on a GPU",
        "python -m benchmarks.speed.epoch --device cuda",
        _EPOCH_ABOUT,
        _EPOCH,
    ),
    "speed_fit_cpu": Section(
        "The first prediction on a CPU",
        "python -m benchmarks.speed.fit",
        _FIT_ABOUT,
        _FIT,
    ),
    "speed_fit_gpu": Section(
        "The first prediction on a GPU",
        "python -m benchmarks.speed.fit --device cuda",
        _FIT_ABOUT,
        _FIT,
    ),
    **{
        f"speed_before_{where}": Section(
            f"Fits beside those of an earlier revision, {title}",
            f"python -m benchmarks.speed.before{option} --checkout ../before "
            "--before 2c0a3a4",
            "Whole fits of as many epochs, in the revision in which one model and "
            "stacks were trained by two engines and in this one, by turns.",
        )
        for where, title, option in (
            ("2_threads_cpu", "two cores", ""),
            ("16_threads_cpu", "sixteen cores", ""),
            ("gpu", "a GPU", " --device cuda"),
        )
    },
    "speed_busy_cpu": Section(
        "Small fits on a busy machine",
        "python -m benchmarks.speed.busy",
        "Beside two processes that never rest; on two cores fair shares alone make a "
        "fit take twice as long.",
    ),
    "speed_propagation_cpu": Section(
        "Label propagation",
        "python -m benchmarks.speed.propagation",
        "Exact, against scikit-network's `PageRankClassifier`; restart probability "
        "0.15, 20 labels a class.",
        {
            "graph": "graph",
            "Z, ms": "ours ms",
            "Z* with features, ms": "ours Z* ms",
            "PageRank, ms": "PageRank ms",
            "accuracy of Z, %": percent("ours acc"),
            "of Z*, %": percent("ours Z* acc"),
            "of PageRank, %": percent("PageRank acc"),
        },
        keep=lambda row: row["alpha"] == 0.15,
    ),
    "sampler_cpu": Section(
        "Sampling",
        "python -m benchmarks.scale.sampler",
        "A random walk and the subgraph that its nodes induce.",
    ),
    "scale_products_cuda": Section(
        "A graph of ogbn-products' shape",
        "python -m benchmarks.scale.products",
        "A block graph with as many nodes, arcs and classes; three GraphSAGE layers. "
        "On the real one, where its files are, `python -m benchmarks.accuracy.products "
        "--root FOLDER` trains the paper's encoders on the official split, and tells "
        "the time and memory to expect before it begins.",
        {"what": "what", "value": "value", "unit": "unit"},
    ),
    "scale_products_no_norm_cuda": Section(
        "The same without layer normalisation",
        "python -m benchmarks.scale.products",
        "Subgraphs of few arcs a node: see the loss after the last epoch.",
        {"what": "what", "value": "value", "unit": "unit"},
    ),
    "scale_multi_cuda": Section("Several GPUs", "python -m benchmarks.scale.multi_gpu"),
    "scale_cost_vs_size_cuda": Section(
        "Cost and size", "python -m benchmarks.scale.cost_vs_size"
    ),
    "search_throughput_gpu": Section(
        "Search on a GPU",
        "python -m benchmarks.search.throughput --device cuda "
        "--graphs Cora PubMed Photo Computers",
        _SEARCH_ABOUT + _LAUNCHED,
        _SEARCH,
    ),
    "search_throughput_cpu": Section(
        "Search on a CPU",
        "python -m benchmarks.search.throughput",
        _SEARCH_ABOUT,
        {k: v for k, v in _SEARCH.items() if "CUDA" not in k},
    ),
    "search_random200_gpu": Section(
        "2,000 models",
        "python -m benchmarks.search.random200 --device cuda",
        "TIFA-GCL with candidates from the paper's grids.",
    ),
    "search_cache_3_epochs_cpu": Section(
        "What the cache saves, short fits",
        "python -m benchmarks.search.cache",
        "100 candidates of TIFA-GCL on Cora, 3 epochs each.",
    ),
    "search_cache_60_epochs_cpu": Section(
        "What the cache saves, longer fits",
        "python -m benchmarks.search.cache --epochs 60",
        "The same with 60 epochs, where training is most of the time.",
    ),
}

INTRODUCTION = """\
# Benchmarks

Each table is printed by the command above it and kept as JSON in `benchmarks/results/`;
`python -m benchmarks.report` makes this page of them. Machines differ: what counts is
the ratio between columns of one table.
"""


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def page() -> str:
    """Return the text of ``docs/benchmarks.md``."""
    known = [name for name in SECTIONS if (RESULTS / f"{name}.json").exists()]
    # Lists of records are the paper's tables and figures, which have their own page.
    names = {path.stem for path in RESULTS.glob("*.json")} - set(known)
    others = sorted(name for name in names if isinstance(read(name), dict))
    return "\n".join([INTRODUCTION, *(_section(name) for name in known + others)])


def _section(name: str) -> str:
    report = read(name)
    section = SECTIONS.get(name) or Section(name.replace("_", " ").capitalize())
    seeds = report["seeds"]
    drawn = f"{len(seeds)} seeds" if len(seeds) > 1 else ""
    machine = report["machine"]
    facts = [
        str(report["device"]) if report["device"] != "cpu" else machine["cpu"],
        f"{machine['cores']} cores",
        report["timestamp"][:10],
        drawn,
        f"`benchmarks/results/{name}.json`",
    ]
    parts = [f"## {section.title}", section.about]
    if section.command:
        parts.append(f"```console\n$ {section.command}\n```")
    parts.append(", ".join(filter(None, facts)) + ".")
    parts.append(markdown_table(section.rows(report)))
    if differences := report.get("paired_differences"):
        parts += ["Differences, paired by seed:", markdown_table(differences)]
    picture = RESULTS / f"{name}.png"
    if picture.exists():
        parts.append(f"![{section.title}](../benchmarks/results/{picture.name})")
    return "\n\n".join(filter(None, parts)) + "\n"


def figures() -> str:
    """Return the README's four figures."""
    cora = [row for row in read("table1") if row["graph"] == "Cora"]
    accuracy = {row["method"]: row["test_mean"] for row in cora}
    epoch = read("speed_epoch_cpu")["rows"][0]
    faster = epoch["GCN faster than PyG's step"]
    on_gpu, products = read("speed_epoch_gpu"), read("scale_products_cuda")
    of = {row["what"]: row["value"] for row in products["rows"]}
    recorded = on_gpu["rows"][0]
    slower = recorded["PyG GCN, training step ms"]
    return "\n".join(
        [
            f"- **{accuracy['ours']:.1f} %** of Cora's test nodes right with 20 labels "
            f"a class; a GCN: {accuracy['GCN']:.1f} %.",
            f"- **{epoch['our GCN, epoch ms']:.1f} ms** for an epoch of a GCN on "
            f"{epoch['graph']}, on a CPU: {faster:.0f} × faster than PyG.",
            f"- **{recorded['TIFA-GCL, epoch ms']:.2f} ms** for an epoch of TIFA-GCL "
            f"on {recorded['graph']}, on one {_chip(on_gpu)}; a step of PyG's GCN: "
            f"{slower:.1f} ms.",
            f"- **{of['20,000 roots: TIFA-GCL epoch']:.1f} s** for an epoch on "
            f"{of['nodes'] / 1e6:.1f} million nodes and {of['arcs'] / 1e6:.0f} million "
            f"arcs, on one {_chip(products)}.",
        ]
    )


def _chip(report: Mapping[str, Any]) -> str:
    """Return "H100" of "NVIDIA H100 80GB HBM3"."""
    return report["device"].split()[1]


def readme() -> str:
    """Return the README with its figures anew."""
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{figures()}\n{END}{after}"


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) or value is None


def main() -> None:
    PAGE.write_text(page())
    README.write_text(readme())
    print(f"Written: {PAGE.relative_to(ROOT)}, figures of {README.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
