"""The command line: ``sktifa classify``, ``diagnose`` and ``demo``."""

from sktifa.cli.commands import main

__all__ = ["main"]
