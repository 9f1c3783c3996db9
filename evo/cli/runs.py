"""The commands that look at runs: all there are, two kernels of one, a run's report, written or served."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from evo.cli.completion import kernel_ids
from evo.cli.shared import INTERRUPTED, RUNS, AsJson, LogAs, Notices, RunName, Runs, say
from evo.report.output import as_json as json_of
from operators.errors import UserError

Kernel = Annotated[
    str,
    typer.Argument(help="Id of a kernel, or its beginning; `naive` or `best` of the task.", autocompletion=kernel_ids),
]

LOOPBACK = "127.0.0.1"

looks = typer.Typer()


@looks.command("list")
def list_runs(runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """The runs there are: when each began, its tasks, how it is, its best kernel, and what it used."""
    from evo.report.health import runs_in, runs_table

    rows = runs_in(runs)
    if as_json:
        print(json_of(rows))
    elif not rows:
        print(f"no run in {runs}/ yet")
    else:
        from evo.report.terminal import show

        show(runs_table(rows))


@looks.command()
def attach(run: RunName = "last", runs: Runs = RUNS) -> None:
    """Watch a run that another process works on, such as one of --detach; Ctrl-C ends the look and leaves the run."""
    from evo.folders import find_run
    from evo.report.live import attach as watch

    folder = find_run(runs, run)
    try:
        watch(folder)
    except KeyboardInterrupt:
        print(f"run {folder} is left alone; look again with: evo attach {folder}", file=sys.stderr)


@looks.command()
def track(
    run: RunName = "last",
    to: Annotated[
        list[str], typer.Option("--to", metavar="TRACKER", help="mlflow, wandb, trackio or otel; repeatable.")
    ] = [],  # noqa: B006
    notify: Notices = [],  # noqa: B006
    log: LogAs = "",
    beside_search: Annotated[bool, typer.Option("--beside-search", hidden=True)] = False,
    runs: Runs = RUNS,
) -> None:
    """Tell trackers of a run until it ends, or of one that is over; the same is told by evo run --track."""
    from evo.folders import find_run
    from evo.track.follower import DRAIN_S, lower_priority
    from evo.track.follower import track as follow
    from evo.track.sinks import sinks

    takers, sys.stdout = sinks(to, notify, log), sys.stderr  # the log alone goes to standard output
    if not takers:
        raise UserError("name a tracker, such as --to mlflow, or say --notify or --log")
    lower_priority()
    logging.disable()  # clients repeat at length what is said in a line below

    folder = Path(run) if beside_search else find_run(runs, run)
    most_s = DRAIN_S if beside_search else None  # who asks by hand may wait
    lacking = follow(folder, takers, beside=beside_search, say=say, most_s=most_s)
    sys.stderr.flush()
    os._exit(1 if lacking else 0)  # a client's thread that hangs is not waited for


@looks.command()
def diff(
    run: RunName,
    a: Kernel,
    b: Kernel,
    task: Annotated[str, typer.Option(help="Beginning of the task, where there are several.")] = "",
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Show the way from one kernel of a run to another: source, plan, tunables and both verdicts."""
    from evo.api import Run
    from evo.folders import find_run
    from evo.report.run_kernels import difference, meant

    with Run(find_run(runs, run)) as opened:
        kernels = meant(opened, a, task), meant(opened, b, task)
    found = difference(*kernels)
    if as_json:
        print(json_of(found))
    else:
        _show(found)


def _show(found: dict[str, Any]) -> None:
    from evo.report.run_kernels import tunables_table, verdicts_table, workloads_table
    from evo.report.terminal import show

    show(verdicts_table(found))
    for name in ("a", "b"):
        if message := found[name]["message"]:
            print(f"{name.upper()}: {message}")
    if found["workloads"]:
        print("\ntimes of two measurements, each beside its own rival: compare the speedups above, not these")
        show(workloads_table(found))
    if found["tunables"]:
        print()
        show(tunables_table(found))
    for part in ("plan", "source"):
        print(f"\n{part}: {'no difference' if not found[part] else ''}".rstrip())
        if found[part]:
            print(found[part])


@looks.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder, id or its beginning, or `last`.")] = "last",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write to this new file. Default: RUN-report.html here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Write what a run found and how as one file of HTML, which needs no network; also while the run goes on."""
    from evo.folders import find_runs
    from evo.report.run import write_report

    where = find_runs(runs, run)
    if isinstance(where, list):
        raise UserError(f"{run} names several runs; write a report of each")
    print(write_report(where, out or Path(f"{where.stem}-report.html"), replace=force))


@looks.command()
def score(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs, folders of runs, or patterns.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write to this new file.")] = None,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Score runs by sets of tasks as each set's community does, beside our intervals: fast_p, means, SOL scores."""
    from evo.api import Run
    from evo.folders import find_runs
    from evo.report.render import markdown
    from evo.report.scoreboard import as_data, document, task_scores

    folders = []
    for name in names:
        found = find_runs(runs, name)
        folders += found if isinstance(found, list) else [found]
    tasks = task_scores(Run(folder) for folder in dict.fromkeys(folders))
    made = json_of(as_data(tasks)) + "\n" if as_json else markdown(document(tasks, ", ".join(names), time.time()))
    if out is None:
        print(made, end="")
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(made)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}") from None
    print(out)


@looks.command()
def card(
    run: Annotated[
        str, typer.Argument(metavar="RUN|COMPARISON", help="As for other commands; a comparison's folder or name.")
    ] = "last",
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Say what a run or a comparison may claim: evaluation, rival, what ships, budget, hardware, versions."""
    from evo.api import Run
    from evo.compare.cells import CONFIG, folder_of
    from evo.folders import find_run
    from evo.report.card import comparison_card, run_card

    compared = [place for place in (Path(run), folder_of(runs, run), runs / run) if (place / CONFIG).is_file()]
    fields = comparison_card(compared[0]) if compared else run_card(Run(find_run(runs, run)))
    if as_json:
        print(json_of(dict(fields)))
        return
    for name, said in fields:
        print(f"{name:<11} {said}")


@looks.command()
def ui(
    run: RunName = "last",
    host: Annotated[
        str, typer.Option(help="Serve at this address. Any but a loopback one is open to others.")
    ] = LOOPBACK,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0: any free one. Default: 8080, or any free one.", show_default=False),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser as well.")] = False,
    runs: Runs = RUNS,
) -> None:
    """Serve a run's report as a page that keeps up with the search, to this machine's browsers; Ctrl-C ends it."""
    from threading import Thread

    from evo.charts.drawing import check_drawing
    from evo.folders import find_run
    from evo.report.ui.server import Maker, Watched, is_loopback, server

    check_drawing()
    folder = find_run(runs, run)
    makers = [Maker(folder, folder.absolute().parent) for _ in range(2)]
    watched = Watched(folder, *makers)
    try:
        with server(watched, host, port) as serving:
            if error := watched.first().error:
                raise UserError(error)
            name, number = serving.socket.getsockname()[:2]
            address = f"http://{f'[{name}]' if ':' in name else name}:{number}/"
            if not is_loopback(name):
                say(f"everyone who reaches {address} can read this run, prompts and sources included")
            print(f"run {folder} is shown at {address} (Ctrl-C ends it)", flush=True)
            watched.look()
            # The process of the other pages, and what draws in it, take two seconds to start: not those of a reader.
            Thread(target=watched.other, args=("/models",), daemon=True).start()
            if open_:
                import webbrowser

                webbrowser.open(address)
            serving.serve_forever()
    except KeyboardInterrupt:
        for maker in makers:
            maker.close()
        sys.stdout.flush()
        os._exit(INTERRUPTED)  # threads that still serve a reader are neither waited for nor stopped half-way by Python
    finally:
        for maker in makers:
            maker.close()
