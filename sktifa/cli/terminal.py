"""What all commands share: words to the user, and files checked before any work."""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sktifa.exceptions import ParameterError

__all__ = [
    "Interrupted",
    "at_least",
    "check_input",
    "check_outputs",
    "interruptible",
    "messages",
    "progress",
    "spoken",
]

logger = logging.getLogger("sktifa")

_ARGUMENT = re.compile(r"\b(id|source|target|weight|features|label)=(?!\w)")


class Interrupted(BaseException):
    """Ctrl-C, which a fit would take for the wish to end early and keep its model."""


def spoken(message: str) -> str:
    """Put what the library says of its arguments into words of the command line.

    Examples
    --------
    >>> spoken("e.csv has no column 'source': name the right one with source=")
    "e.csv has no column 'source': name the right one with --source"
    """
    message = _ARGUMENT.sub(r"--\1", message)
    return message.replace("sktifa.diagnose(graph, y)", "sktifa diagnose")


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` at Ctrl-C, whatever runs."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no other is told
        return

    def stop(*_: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Stderr(logging.Handler):
    """Prints to stderr as it is now: a progress bar takes its place for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"sktifa: {spoken(record.getMessage())}", file=sys.stderr)


@contextmanager
def messages(verbose: bool) -> Iterator[None]:
    """Show warnings on stderr, and if `verbose` also what was done."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal without Unicode gets question marks, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    handler = _Stderr()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: logger.warning(message)
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextmanager
def progress(steps: Sequence[str]) -> Iterator[Callable[[], bool]]:
    """Show a bar while steps are done, where there is a terminal to show it on.

    What is yielded is to be called as each of the named steps begins; it returns True.
    """
    console = Console(stderr=True)
    if not console.is_terminal:  # where older versions of rich print a line feed
        yield lambda: True
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    to_come = iter(steps)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=len(steps))
        done = count()

        def step() -> bool:
            bar.update(task, completed=next(done), description=next(to_come))
            return True

        yield step


def at_least(least: int) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from `least` on."""

    def count(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be a whole number of at least {least}, got {text!r}"
            )
        return int(text)

    return count


def check_input(path: Path, option: str) -> None:
    """Raise a ParameterError if a file can't be read."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise ParameterError(f"{option}: {path} {what}")
    if not os.access(path, os.R_OK):
        raise ParameterError(f"{option}: you may not read {path}")


def check_outputs(
    outputs: Sequence[tuple[str, Path, Sequence[str]]],
    inputs: Sequence[Path] = (),
    *,
    force: bool,
) -> None:
    """Raise a ParameterError if a file can't or should not be written.

    Outputs are what messages call a file, the file, and how its name may end. None may
    be one of the `inputs`; `force` allows to write over what is there.
    """
    taken = {path.resolve() for path in inputs}
    for option, path, endings in outputs:
        if path.is_dir():
            raise ParameterError(f"{option}: {path} is a folder, name a file in it")
        if path.suffix.lower() not in endings:
            raise ParameterError(
                f"{option}: {path} must end in {' or '.join(sorted(endings))}"
            )
        if path.resolve() in taken:
            raise ParameterError(f"{option}: {path} is given for another file too")
        taken.add(path.resolve())
        if path.exists() and not force:
            raise ParameterError(
                f"{option}: {path} is there already; --force writes over it"
            )
        try:
            # Permissions don't tell of read-only disks.
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise ParameterError(
                f"{option}: nothing can be written to the folder {path.parent} "
                f"({error.strerror})"
            ) from error
