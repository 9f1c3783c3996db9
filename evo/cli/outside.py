"""The commands for minds outside: questions that a run asks them, and what they tell it."""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evo.cli.searching import show_search
from evo.cli.shared import FAILED, RUNS, Runs, say
from evo.report.output import as_json as json_of
from evo.report.output import login
from fitness.install import evo_command
from fitness.words import counted
from operators.errors import UserError, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evo.outside.questions import CheckedLines

LINES = (".jsonl", ".ndjson")
TAKEN_EVERY_S = 0.1

RunName = Annotated[str, typer.Argument(metavar="RUN", help="Folder, id or its beginning, or `last`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]

outside = typer.Typer()


@outside.command()
def ask(
    run: RunName = "last",
    count: Annotated[int | None, typer.Option("-n", min=1, help="So many, tasks in turn, the oldest first.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    model: Annotated[str, typer.Option(help="The model that the lines name; default: NAME of outside/NAME.")] = "",
    text: Annotated[bool, typer.Option("--text", help="As a person reads them, instead of as lines of JSON.")] = False,
    runs: Runs = RUNS,
) -> None:
    """The questions of a run that wait for answers from outside, as requests of OpenAI's batches.

    Of a comparison those of all its cells, shuffled; nothing says which arm asks.
    Asked again they are the same ones, but for those that were answered since; they are not withdrawn any more.
    """
    from evo.compare.cells import stored
    from evo.folders import find_run
    from evo.outside.questions import comparison_in, comparison_questions, config_of, nobody_asks, open_questions, take
    from operators.files import write_new

    if place := comparison_in(runs, run):
        llm, found = stored(place).config.llm, comparison_questions(place)
    else:
        folder = find_run(runs, run)
        if problem := nobody_asks(folder):
            raise UserError(problem)
        llm, found = config_of(folder).llm, open_questions(folder)
    asked = found[:count]
    if not place and config_of(folder).renews:
        with suppress(UserError):  # where nothing can be told they can be read all the same
            take(folder, asked)
    lines = [q.to_text() if text else _line(q.to_batch(llm.parameters if llm else {}, model)) for q in asked]
    written = "".join(f"{line}\n" for line in lines)
    if out:
        write_new("--out", out, written.encode(), replace=True)
    else:
        print(written, end="")
    where = f" written to {out}" if out else ""
    shown = f"{len(asked)} of {counted(len(found), 'open question')}{where}"
    say(f"{shown}; answer with: {evo_command('tell', run)} FILE{' --to ID' * text}")


@outside.command()
def tell(
    run: RunName,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Answers or kernels; - for standard input.")],
    to: Annotated[str, typer.Option(metavar="ID", help="FILE is the text of an answer to this question.")] = "",
    author: Annotated[str, typer.Option(metavar="NAME", help="Who wrote it. Default: your login's name.")] = "",
    parents: Annotated[list[str], typer.Option(metavar="ID", help="Kernel it was made from; repeatable.")] = [],  # noqa: B006
    task: Annotated[str, typer.Option(help="Beginning of the task that a kernel is for, if there are several.")] = "",
    note: Annotated[str, typer.Option(help="What is new in a kernel, in a few words.")] = "",
    go: Annotated[bool, typer.Option("--go", help="Go on with the search if none is under way.")] = False,
    budget: Annotated[
        list[str], typer.Option("--budget", help="With --go: 60s, 8h, 500evals, of the whole run; repeatable.")
    ] = [],  # noqa: B006
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="With --go: as of evo resume.")] = 0.0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Tell a run answers from outside, or kernels that no request asked for; a search may be under way or not.

    Files that end in .jsonl hold lines: answers as OpenAI's batches have them, or {"custom_id": ID, "content": TEXT}
    (or "refused"; with "usage", "cost_usd" and "author" as you like), and kernels {"source": TEXT} with "author",
    "task", "parents", "values" and "note". Any other file is a kernel. What cannot be taken is said line by line.
    """
    began = time.time()
    from evo.budget import parse_limits
    from evo.folders import find_run
    from evo.inbox import Inbox
    from evo.outside.questions import InboxCheck, comparison_in
    from evo.session import Session, resume
    from evo.store.snapshots import has_writer

    author = author or login()
    if place := comparison_in(runs, run):
        _tell_comparison(place, files, to=to, author=author, as_json=as_json)
        return
    folder, limits = find_run(runs, run), parse_limits(budget)
    check = InboxCheck(folder, author)
    given = _Given(to=check.key(to) if to else "", author=author, parents=parents, task=task, note=note)
    found = check.look_at(line for file in files for line in given.lines(file))
    inbox = Inbox(folder)
    # Where nothing is new, what was told before may still lie there.
    left = inbox.put(found.lines) if found.lines else next(iter(inbox.files()), None)
    _show_told(found, as_json=as_json)
    while go and left and left.exists() and has_writer(folder):
        time.sleep(TAKEN_EVERY_S)
    if left and left.exists():
        if go:
            session = Session(began=began, wait_s=wait)
            show_search(folder, lambda progress: resume(folder, limits, progress, session), as_json=as_json)
        elif not has_writer(folder):
            say(f"no search is under way; take them in with: {evo_command('resume', folder)}")
    if found.problems:
        raise typer.Exit(FAILED)


@outside.command()
def mcp(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Folder, id or its beginning. Default: `last`, if there is one.")
    ] = "",
    task: Annotated[str, typer.Option(help="Beginning of the only task to serve, if the run has several.")] = "",
    author: Annotated[str, typer.Option(metavar="NAME", help="Who hands in. Default: your login's name.")] = "",
    go: Annotated[
        bool, typer.Option("--go/--no-go", help="Go on with the search for what is handed in, if none is under way.")
    ] = True,
    budget: Annotated[list[str], typer.Option("--budget", help="Then: 8h, 500evals, of the whole run.")] = [],  # noqa: B006
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="A search with nothing to do waits so long for the agent.")
    ] = 600.0,
    runs: Runs = RUNS,
) -> None:
    """Serve the runs to a coding agent, over MCP on standard input and output, with one of them open.

    Its tools list, open and begin runs and search their kernels; those of the open run are status, machine,
    next_question, answer, attempt, submit, verdict, sql, and those of a workbench, such as build, check, judge and
    profile.
    """
    import asyncio

    from evo.budget import parse_limits
    from evo.folders import find_run, last_run

    parse_limits(budget)
    words = [*(word for text in budget for word in ("--budget", text)), "--wait", f"{wait:g}"]
    try:
        from evo.outside.mcp_server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types"):
            raise
        raise _without_mcp() from None
    folder = find_run(runs, run) if run else last_run(runs)
    search, is_named = words if go else None, bool(run or task)
    asyncio.run(serve(runs, folder, task=task, author=author or login(), search=search, is_named=is_named))


@outside.command()
def agent(
    action: Annotated[
        str, typer.Argument(metavar="install|remove", help="Write the kit into the project, or undo it.")
    ],
    client: Annotated[str, typer.Option(help="claude, codex, cursor or vscode.")],
    run: Annotated[
        str, typer.Option(help="Serve this run. Default: all of them, and a tool that begins new ones.")
    ] = "",
    project: Annotated[Path, typer.Option(metavar="DIR", help="The project's folder. Default: this one.")] = Path(),
    yes: Annotated[bool, typer.Option("--yes", help="Change the files without asking.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Give a coding agent what it needs here: its client's MCP configuration, and a page that says how to work.

    It shows what changes first. Files that are there keep all else that is in them; remove undoes it to the letter.
    """
    from evo.folders import find_run
    from evo.outside.kit import CLIENTS, installed, removed, server_command

    if action not in ("install", "remove"):
        raise UserError(f"evo agent {action}: write evo agent install, or evo agent remove")
    if client not in CLIENTS:
        raise UserError(unknown("--client", client, CLIENTS))
    if not project.is_dir():
        raise UserError(f"--project {project}: there is no such folder")
    served = str(find_run(runs, run).resolve()) if run else ""
    command = [*server_command(served), "--runs", str(runs.resolve())]
    changes = installed(project, client, command) if action == "install" else removed(project, client)
    changes = [change for change in changes if change.before != change.after]
    for change in changes:
        print(change.diff(), end="")
    if not changes:
        print("nothing is to be changed")
    elif not yes and not (sys.stdin.isatty() and typer.confirm("Change these files?")):
        raise UserError("nothing was changed; say --yes to have it changed")
    for change in changes:
        change.apply()
    if action == "install" and find_spec("mcp") is None:
        say(f"the client cannot start the server yet: {_without_mcp()}")


def _without_mcp() -> UserError:
    from fitness.install import MissingPackage, installing

    return MissingPackage("evo mcp needs the package mcp", installing("mcp"))


def _tell_comparison(folder: Path, files: list[Path], *, to: str, author: str, as_json: bool) -> None:
    from evo.outside.questions import ComparisonInboxCheck

    check = ComparisonInboxCheck(folder, author)
    given = _Given(author=author, to=check.key(to) if to else "")
    found = check.look_at(line for file in files for line in given.lines(file))
    check.put()
    _show_told(found, as_json=as_json)
    say("take them in with: evo compare CONFIG")
    if found.problems:
        raise typer.Exit(FAILED)


def _show_told(found: CheckedLines, *, as_json: bool) -> None:
    for problem in found.problems:
        say(problem)
    if as_json:
        print(json_of({"answers": found.answers, "guests": found.guests, "problems": found.problems}))
    else:
        told = f"{counted(found.answers, 'answer')}, {counted(found.guests, 'kernel')}"
        print(f"told: {told}; not taken: {counted(len(found.problems), 'line')}")


@dataclass(frozen=True, kw_only=True)
class _Given:
    """Files that the command's options name, with what the options say of them."""

    author: str
    to: str = ""
    parents: Sequence[str] = ()
    task: str = ""
    note: str = ""

    def lines(self, file: Path) -> Iterator[tuple[str, str]]:
        """The lines that a file comes to, each with its place. It raises UserError."""
        from evo.inbox import MOST_FILE_BYTES
        from operators.errors import PlanError
        from operators.files import read_text
        from operators.plan.header import read_header

        try:
            text = sys.stdin.read() if str(file) == "-" else read_text(file, MOST_FILE_BYTES)
        except OSError as error:
            raise UserError(f"{file}: cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: it is not UTF-8: {error.reason}") from None
        if self.to:
            yield str(file), _line({"custom_id": self.to, "content": text, "author": self.author})
        elif file.suffix in LINES or str(file) == "-":
            numbered = enumerate(text.split("\n"), 1)
            yield from ((f"{file}:{number}", line) for number, line in numbered if line.strip())
        else:
            try:
                read_header(text, str(file))
            except PlanError as error:
                raise UserError(f"{error}; the text of an answer is told with --to ID") from None
            guest = {"source": text, "author": self.author, "task": self.task, "parents": self.parents}
            yield str(file), _line({**guest, "note": self.note})


def _line(value: object) -> str:
    return json.dumps(value)
