"""A live look at a run that another process works on: how it is and where its tasks stand, until it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.text import Text

from evo.report.health import health
from evo.report.queries import last_changes
from evo.report.status import summary
from evo.report.terminal import console, latest, many_line, summary_table

LOOK_EVERY_S = 2.0
ROOM_BESIDE, LEAST_SHOWN = 8, 4
"""Lines of a terminal that are kept for what is said beside the table; tasks that are shown at least."""


def attach(folder: Path, *, sleep: Callable[[float], None] = time.sleep) -> str:
    """Show the run until it ends, or for good; return how it is then. It raises StoreError, and KeyboardInterrupt."""
    made = console()
    last = ""
    with Live(console=made, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            found = health(folder)
            if made.is_terminal:
                live.update(_attached_view(folder, made.height, found.line), refresh=True)
            elif (line := f"{found.line}; {many_line(summary(folder))}") != last:
                last = line
                made.print(line, soft_wrap=True)
            if found.state != "running":
                return found.line
            sleep(LOOK_EVERY_S)


def _attached_view(folder: Path, height: int, line: str) -> Group:
    tasks = summary(folder)
    room = max(height - ROOM_BESIDE, LEAST_SHOWN)
    shown = latest(tasks, last_changes(folder), room) if len(tasks) > room else tasks
    return Group(Text(f"run {folder}"), Text(line), Text(many_line(tasks)), summary_table(shown))
