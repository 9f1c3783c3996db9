"""The command line: a module for each group of commands."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended: 128 and the number of the signal, as shells have it."""


def main() -> None:
    """Entry point. Ctrl-C while the commands are imported ends without a traceback, as it does later."""
    try:
        from evo.cli.commands import main as begin
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    begin()
