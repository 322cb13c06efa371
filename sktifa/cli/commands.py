"""The commands, their arguments and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import sktifa
from sktifa.cli import classify, demo, diagnose
from sktifa.cli.terminal import Interrupted, interruptible, messages, spoken
from sktifa.exceptions import ParameterError, SktifaError

__all__ = ["main"]

_CODES = """\
exit codes: 0 done, 1 the data or the machine don't allow it, 2 wrong arguments
(nothing was read or trained), 130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (None: the process's arguments); return the exit code."""
    parser = argparse.ArgumentParser(
        prog="sktifa",
        description="Classify the nodes of a graph from a few labels.",
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"sktifa {sktifa.__version__}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in (classify, diagnose, demo):
        command.add_parser(commands)
    arguments = parser.parse_args(argv)
    with messages(arguments.verbose or sys.stderr.isatty()):
        try:
            with interruptible():
                arguments.run(arguments)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever reads has enough; the interpreter would complain once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (Interrupted, KeyboardInterrupt):
            print("sktifa: interrupted", file=sys.stderr)
            return 130
        except (SktifaError, OSError) as error:
            print(f"sktifa: {spoken(str(error))}", file=sys.stderr)
            return 2 if isinstance(error, ParameterError) else 1
    return 0
