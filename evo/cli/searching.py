"""A search in the terminal: shown while it runs, and in a table when it has ended."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from evo.cli import INTERRUPTED
from evo.cli.shared import FAILED, say
from evo.report.output import as_json as json_of
from fitness.install import evo_command
from fitness.words import counted
from operators.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from evo.api import Run
    from evo.report.health import Health
    from evo.report.status import TaskSummary

ROOM_BESIDE, LEAST_SHOWN = 9, 4
"""Lines of a terminal that are kept for what is said beside a run's table; tasks that are shown at least."""


def show_search(folder: Path, search: Any, *, as_json: bool, told: Sequence[str] = ()) -> None:
    """Show a search while it runs, and what came of it; `search` is called with what shows it. It raises typer.Exit.

    `told` are the words of `evo track` for those who are told of it; a log on standard output stands for all that is
    shown.
    """
    from evo.api import Run
    from evo.budget import is_used_up
    from evo.report.live import Progress
    from evo.report.status import sessions, summary
    from evo.track.follower import followed

    is_logged = "--log" in told
    with Progress() as progress, followed(folder, told, say):
        try:
            reason = search((lambda _: None) if is_logged else progress)
        except UserError:
            raise
        except (Exception, KeyboardInterrupt):  # whatever it is, it goes on; the user is told what is not lost
            if folder.exists():
                print(f"the run is kept; continue with: {evo_command('resume', folder)}", file=sys.stderr)
            raise
    run = Run(folder)
    tasks = summary(run)
    if not is_logged:
        show_summary(run, tasks, as_json=as_json)
    print(f"ended: {reason}", file=sys.stderr)
    held = sessions(run)
    if len(held) > 1 and not held[-1].judged and is_used_up(reason):
        say("no kernel was judged: the budget, which is that of the whole run, is used up; --budget sets a larger one")
    if reason == "stopped":
        print(f"stopped; continue with: {evo_command('resume', folder)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if any(task.problem for task in tasks):
        raise typer.Exit(FAILED)


def show_summary(
    run: Run, tasks: Sequence[TaskSummary], *, as_json: bool, every: bool = False, found: Health | None = None
) -> None:
    """Print a run's tasks and what it cost; `every` task, however many lines a terminal has, and the health `found`."""
    from evo.report.scoreboard import P_NOTE, ps_of_run
    from evo.report.status import last_changes, model_costs, open_questions, session_lines, sessions, taken_lines
    from evo.report.terminal import lack_lines, problem_lines

    spent, scores, waiting = model_costs(run), ps_of_run(run), open_questions(run)
    if found and not as_json:
        findings = (f"  {finding.cause}: {finding.told}" for finding in found.findings)
        print("\n".join((found.line, *findings, *(f"  session {line}" for line in session_lines(run)))))
    for line in (*problem_lines(tasks), *lack_lines(tasks), *taken_lines(run)):
        say(line)
    if as_json:
        shown = {
            "run": str(run.folder), "tasks": [asdict(t) for t in tasks], "models": asdict(spent) if spent else None,
            "scores": scores, "questions": waiting,
            "sessions": [asdict(sitting) for sitting in sessions(run)],
            **({"health": {**asdict(found), "healthy": found.is_healthy}} if found else {}),
        }  # fmt: skip
        print(json_of(shown))
        return
    from evo.report.terminal import console, costs_line, latest, many_line, show, summary_table

    made = console()
    room = max(made.height - ROOM_BESIDE, LEAST_SHOWN) if made.is_terminal and not every else len(tasks)
    if len(tasks) > room:
        print(f"{many_line(tasks)}; the {room} that changed last (all: evo status {run.id} --all):")
    if tasks:
        show(summary_table(latest(tasks, last_changes(run), room) if len(tasks) > room else tasks))
    else:
        print("nothing was asked for yet")
    if spent:
        print(costs_line(spent))
    if scores:
        print(", ".join(f"{task} P {value:.2f}" for task, value in scores.items()) + f". {P_NOTE}")
    if waiting:
        wait = counted(waiting, "question waits", "questions wait")
        print(f"{wait} for answers from outside: {evo_command('ask', run.folder)}")
    print(f"run {run.folder}")
