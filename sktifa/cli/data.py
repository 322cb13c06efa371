"""A file of nodes and a file of edges, as `classify` and `diagnose` take them."""

from __future__ import annotations

import argparse
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sktifa.cli.terminal import check_input
from sktifa.exceptions import LabelError
from sktifa.frames import Table, read_table
from sktifa.graph import Graph

__all__ = ["LabelledGraph", "add_data_arguments", "check_data", "read_data"]

logger = logging.getLogger(__name__)


@dataclass
class LabelledGraph:
    """What the files hold."""

    graph: Graph  # the ids are its node_names, if more than numbers from 0
    codes: NDArray[np.int64]  # place of each label in classes, -1 where there is none
    classes: NDArray[Any]  # the labels, as they are written
    report: list[str]  # what was done with the files

    @property
    def names(self) -> NDArray[Any]:
        """The ids of the nodes."""
        return self.graph.names_or_numbers()

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each node as it is written, None where there is none."""
        return np.array([*self.classes, None], dtype=object)[self.codes]

    @property
    def labelled(self) -> NDArray[np.int64]:
        """The nodes with a label."""
        return np.flatnonzero(self.codes >= 0)


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of all that read: where nodes, edges and labels are."""
    data = parser.add_argument_group("data")
    data.add_argument(
        "--nodes",
        type=Path,
        required=True,
        metavar="FILE",
        help="a row a node: its id, its label if it has one, and what else is known "
        "of it; CSV or Parquet, like all tables here",
    )
    data.add_argument(
        "--edges", type=Path, required=True, metavar="FILE", help="a row an edge"
    )
    data.add_argument(
        "--label", required=True, metavar="COLUMN", help="of nodes, empty if unknown"
    )
    for option, default, words in (
        ("--id", None, "of nodes (default: id, or else the first)"),
        ("--source", "source", "of edges (%(default)s)"),
        ("--target", "target", "of edges (%(default)s)"),
        ("--weight", None, "of edges (default: all weigh 1)"),
    ):
        data.add_argument(option, default=default, metavar="COLUMN", help=words)
    data.add_argument(
        "--features",
        nargs="+",
        metavar="COLUMN",
        help="of nodes (default: all but id and label)",
    )
    data.add_argument(
        "--missing-label",
        metavar="VALUE",
        help="marks nodes without a label, besides empty fields",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="say what is done, in a pipe too"
    )


def check_data(arguments: argparse.Namespace) -> None:
    """Check the files without reading them."""
    check_input(arguments.nodes, "--nodes")
    check_input(arguments.edges, "--edges")


def read_data(arguments: argparse.Namespace) -> LabelledGraph:
    """Read graph and labels."""
    nodes = read_table(arguments.nodes)
    nodes.require(arguments.label, "label")
    codes, classes = _labels(nodes, arguments.label, arguments.missing_label)
    data = Graph.from_pandas(
        nodes,
        read_table(arguments.edges),
        id=arguments.id or nodes.id_column(),
        source=arguments.source,
        target=arguments.target,
        weight=arguments.weight,
        features=arguments.features,
        label=arguments.label,
    )
    return LabelledGraph(data.graph, codes, classes, data.report)


def _labels(
    nodes: Table, label: str, missing_label: str | None
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the classes as they are written, and each node's position among them."""
    column = nodes[label]
    numbers = column.values[~column.missing]
    if column.kind == "time" or (
        numbers.dtype.kind == "f" and (numbers != np.round(numbers)).any()
    ):
        raise LabelError(
            f"column {label!r} of {nodes.name} holds amounts or times, not classes: "
            "make classes of them (low, middle, high) first"
        )
    given = [
        None if gone or str(value) == missing_label else str(value)
        for value, gone in zip(nodes.ids(label).tolist(), column.missing, strict=True)
    ]
    classes = sorted({value for value in given if value is not None}, key=_in_order)
    if len(classes) < 2:
        what = f"all labels are {classes[0]!r}" if classes else "no node has a label"
        raise LabelError(
            f"column {label!r} of {nodes.name}: {what}; give a few nodes of each class "
            "theirs"
        )
    if "-1" in classes:
        logger.warning(
            "-1 is taken for a class; if it marks nodes without a label, say "
            "--missing-label=-1"
        )
    number = {value: code for code, value in enumerate(classes)}
    codes = [-1 if value is None else number[value] for value in given]
    return np.array(codes, dtype=np.int64), np.array(classes, dtype=object)


def _in_order(value: str) -> tuple[bool, int, str]:
    """Sort 2 before 10, and numbers before words."""
    whole = value.lstrip("-").isdecimal()
    return not whole, int(value) if whole else 0, value
