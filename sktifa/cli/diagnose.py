"""``sktifa diagnose``: what to know of a graph before anything is trained."""

from __future__ import annotations

import argparse
from typing import Any

from sktifa.cli.data import add_data_arguments, check_data, read_data
from sktifa.diagnostics import diagnose

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "diagnose",
        help="look at a graph and its labels before anything is trained",
        description="Tell what is in your files, whether the edges tell of the labels, "
        "and what should be mended.",
    )
    add_data_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Look, and print what was found."""
    check_data(arguments)
    data = read_data(arguments)
    print(diagnose(data.graph, data.labels, missing_label=None))
