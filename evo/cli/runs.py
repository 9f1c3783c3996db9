"""The commands that look at runs: all there are, two kernels of one, a run's report, written or served, the whole of it
for others, a question in SQL, whose answer is a table, CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from evo.cli import INTERRUPTED
from evo.cli.completion import kernel_ids
from evo.cli.shared import FAILED, RUNS, AsJson, LogAs, Notices, RunName, Runs, say
from evo.report.output import as_json as json_of
from evo.report.output import plain, raw
from fitness.install import evo_command
from fitness.words import counted
from operators.errors import UserError, unknown
from operators.files import write_new

if TYPE_CHECKING:
    import pyarrow as pa

    from evo.store import Limits, QueryResult

Kernel = Annotated[
    str,
    typer.Argument(help="Id of a kernel, or its beginning; `naive` or `best` of the task.", autocompletion=kernel_ids),
]

Force = Annotated[bool, typer.Option("--force", help="Replace the file of --out.")]
LOOPBACK = "127.0.0.1"
DUCKDB = ".duckdb"

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
        print(f"run {folder} is left alone; look again with: {evo_command('attach', folder)}", file=sys.stderr)


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
    try:
        code = FAILED if follow(folder, takers, beside=beside_search, say=say, most_s=most_s) else 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.stderr.flush()
    os._exit(code)  # a client's thread that hangs is not waited for


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
    force: Force = False,
    runs: Runs = RUNS,
) -> None:
    """Write what a run found and how as one file of HTML, which needs no network; also while the run goes on."""
    from evo.folders import find_one
    from evo.report.run import write_report

    if out and out.suffix not in (".html", ".htm"):
        raise UserError(f"--out {out}: a report is a page of HTML; name a file that ends in .html")
    where = find_one(runs, run, "write a report of each")
    print(write_report(where, out or Path(f"{where.stem}-report.html"), replace=force))


@looks.command()
def score(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs, folders of runs, or patterns.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.md", help="Write to this new file.")] = None,
    force: Force = False,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Score runs by sets of tasks as each set's community does, beside our intervals: fast_p, means, SOL scores."""
    from evo.api import Run
    from evo.folders import find_all
    from evo.report.render import markdown
    from evo.report.scoreboard import as_data, document, task_scores

    tasks = task_scores(map(Run, dict.fromkeys(find_all(runs, names, say))))
    made = json_of(as_data(tasks)) + "\n" if as_json else markdown(document(tasks, ", ".join(names), time.time()))
    if out is None:
        print(made, end="")
        return
    write_new("--out", out, made.encode(), replace=force)
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


@looks.command()
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="As for other commands; with --harbor an operator.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="A new FILE.duckdb, or a new folder for Parquet files.")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Instead, a data set with a card, without secrets, paths and names."),
    ] = None,
    harbor: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Instead, a task of Harbor whose reward is our verdict.")
    ] = None,
    target: Annotated[str, typer.Option(help="With --harbor: cpu (default) or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="With --harbor: element type. Default: the operator's first.")] = "",
    runs: Runs = RUNS,
) -> None:
    """Write a run for other tools: its tables and views as Parquet files, or one DuckDB file that opens by itself."""
    if [out, dataset, harbor].count(None) != 2:
        raise UserError("name one of OUT, --dataset FOLDER and --harbor FOLDER")
    if harbor:
        from evo.packaging.exports import write_task

        print(f"{write_task(run, harbor, target=target, dtype=dtype)} written to {harbor}", file=sys.stderr)
        return
    from evo.folders import find_one

    where = find_one(runs, run, f"put them into one file with: evo merge OUT.duckdb {run}")
    if dataset:
        from evo.api import Run
        from evo.packaging.exports import write_dataset

        counts = write_dataset(Run(where), dataset)
        print(f"{dataset}: {', '.join(f'{count} {part}' for part, count in counts.items())}", file=sys.stderr)
        print("read it before you publish it: no program finds every secret", file=sys.stderr)
    elif out:
        _export(where, out)


def _export(where: Path, out: Path) -> None:
    from evo.store.export import export_duckdb, export_parquet

    if out.suffix == DUCKDB:
        export_duckdb(where, out)
        print(f"{out}: open it with duckdb, {evo_command('sql', out)}, or evo.open({str(out)!r})", file=sys.stderr)
    else:
        print(f"{out}: {len(export_parquet(where, out))} Parquet files", file=sys.stderr)


@looks.command()
def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT.duckdb", help="A new file.")],
    run: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Folders, patterns, files of evo export or evo merge; ids as elsewhere."),
    ],
    runs: Runs = RUNS,
) -> None:
    """Put runs of one or several machines into one file, each whole: asked with evo sql, it is like several runs."""
    from evo.folders import find_all
    from evo.store.export import merge as merged

    if out.suffix != DUCKDB:
        raise UserError(f"{out}: name a new file that ends in {DUCKDB}")
    held = merged(find_all(runs, run, say), out)
    for each in held:
        print(f"{each.run} from {each.origin}", file=sys.stderr)
    print(
        f"{counted(len(held), 'run')} in {out}; ask them with: {evo_command('sql', out)} 'from merged_runs'",
        file=sys.stderr,
    )


# --- a question to runs -----------------------------------------------------------------------------------------------


LISTED = "?"
"""Stand-in for the name after a `--query` that has none."""
Subject = Annotated[str, typer.Argument(metavar="RUN", help="As for other commands; or a pattern, such as 'runs/x/*'.")]


class _QueryNameMayBeMissing(TyperCommand):
    """`--query` without a name lists them all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        bare = [n for n, word in enumerate(args) if word == "--query" and (args[n + 1 :] or ["-"])[0].startswith("-")]
        for place in reversed(bare):
            args = [*args[: place + 1], LISTED, *args[place + 1 :]]
        return super().parse_args(ctx, args)


@looks.command(cls=_QueryNameMayBeMissing)
def sql(
    run: Subject = "last",
    query: Annotated[str, typer.Argument(metavar="[SELECT]", help="One SELECT.")] = "",
    name: Annotated[
        str, typer.Option("--query", metavar="[NAME]", help="Ask a worked query instead; without a name, list them.")
    ] = "",
    param: Annotated[list[str], typer.Option(metavar="NAME=VALUE", help="Bind $NAME in the query; repeatable.")] = [],  # noqa: B006
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="List tables, views and columns instead, all or those named in place of RUN; with --query show it.",
        ),
    ] = False,
    rows: Annotated[int, typer.Option(min=1, help="Show so many rows at most.")] = 10_000,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Give up after so long.")] = 60.0,
    form: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help="table, csv, json or parquet; default: by --out, or table."),
    ] = "",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this new file.")] = None,
    force: Force = False,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Ask a run's database, while it runs or later: a SELECT of your own, or with --query a worked one.

    Several runs are asked at once by a pattern, or by the folder that holds them: every table and view then begins
    with the columns run, arm and seed.

    In JSON, NaN and infinities are null, times ISO 8601, intervals their months, days and nanoseconds, bytes
    hexadecimal digits. A column whose name is taken gets a number: speedup, speedup_1.
    """
    if name == LISTED:
        _show_queries(as_json=as_json)
    elif schema:
        _show_schema(name, {run, query}, as_json=as_json)
    else:
        _import_arrow()
        from evo.store import Limits

        wanted = format_of("json" if as_json else form, out)
        answer = _asked(runs, run, query, name, dict(pairs(param)), Limits(rows=rows, timeout_s=timeout))
        if out:
            write(answer.table, wanted, out, replace=force)
        else:
            show(answer.table, wanted)
        if answer.cut:
            say(f"there are more rows than these {rows}; add LIMIT, aggregate, or say --rows")


def _import_arrow() -> None:
    """Import pyarrow without numpy, which it takes along where it finds it: nothing here makes arrays of an answer.

    Numpy and the threads that it starts are a quarter of what a question costs. A process that has either keeps it.
    """
    if not {"numpy", "pyarrow"} & set(sys.modules):
        sys.modules["numpy"] = None  # type: ignore[assignment]  # how Python is told that a module is not to be found
        try:
            import pyarrow  # noqa: F401
        finally:
            del sys.modules["numpy"]


def _asked(runs: Path, run: str, query: str, name: str, params: dict[str, str], limits: Limits) -> QueryResult:
    """The answer to a query of the user's own, or to a named one."""
    from evo.folders import find_readable
    from evo.store import ask
    from evo.store.named import named_query

    if bool(query) == bool(name):
        raise UserError("write one SELECT after RUN, or --query NAME (`evo sql --query` lists them), or --schema")
    if name:
        known = named_query(name)
        params = known.bound(params)
    where = find_readable(runs, run, say)
    return ask(where, known.text(several=isinstance(where, list)) if name else query, limits, params)


def _show_schema(name: str, wanted: set[str], *, as_json: bool) -> None:
    """Show the relations that are wanted, all where none of them is one; or a worked query, its notes and its text."""
    if name:
        from evo.store.named import named_query

        worked = named_query(name)
        print(json_of(asdict(worked)) if as_json else worked.shown)
        return
    from evo.store.schema import relations

    known = relations()
    found = [relation for relation in known if relation.name in wanted] or known
    if as_json:
        print(json_of([asdict(relation) for relation in found]))
        return
    from evo.report.reference import Entry, Page
    from evo.report.terminal import page_table, show

    for relation in found:
        kind = "view" if relation.is_view else "table"
        entries = (Entry(c.name, c.type, "required" if c.required else "", c.meaning) for c in relation.columns)
        show(page_table(Page(f"{kind} {relation.name}", relation.about, tuple(entries))))
    if len(found) == len(known):
        print(
            "ancestors('TASK', 'KERNEL ID') is a table as well: the rows of lineage of a kernel and all its ancestors."
        )


def _show_queries(*, as_json: bool) -> None:
    from evo.store.named import named_queries

    found = named_queries().values()
    if as_json:
        print(json_of([asdict(query) for query in found]))
        return
    width = max(len(query.name) for query in found)
    for query in found:
        print(f"{query.name:{width}}  {query.answers}")
        for parameter in query.parameters:
            default = f" (default: {parameter.default})" if parameter.default else ""
            print(f"{'':{width}}    --param {parameter.name}=...  {parameter.meaning}{default}")


# --- answers ----------------------------------------------------------------------------------------------------------


TABLE, PARQUET = "table", "parquet"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, in types of Python. It raises UserError for values that these do not hold."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (OverflowError, ValueError):  # times before the year 1, intervals of ten million years
            raise UserError(f"column {name} holds values that cannot be shown; write {name}::VARCHAR") from None
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def csv_text(table: pa.Table) -> str:
    """A header and a line a row, quoted as in RFC 4180.

    NULL is empty, lists and structures are JSON, times ISO 8601, bytes hexadecimal.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in rows_of(table):
        writer.writerow(map(_csv_cell, row.values()))
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(plain(value), ensure_ascii=False)
    return "" if value is None else plain(value)


def parquet_bytes(table: pa.Table) -> bytes:
    """A Parquet file, compressed with zstd."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def table_text(table: pa.Table) -> str:
    """A table for people, as wide as it needs."""
    from evo.report.terminal import rows_table, unfolded

    return unfolded(rows_table(table.column_names, rows_of(table)))


TEXTS: Mapping[str, Callable[[pa.Table], str]] = {
    TABLE: table_text,
    "csv": csv_text,
    "json": lambda table: json_of(rows_of(table)) + "\n",
}
FORMATS = (*TEXTS, PARQUET)
PLAIN = ("", "txt")
"""Endings of files that a table goes to."""


def format_of(name: str, out: Path | None) -> str:
    """The format that is asked for by name, else by the ending of the file. It raises UserError."""
    if name and name not in FORMATS:
        raise UserError(f"--format: {unknown('format', name, FORMATS)}")
    ending = out.suffix.removeprefix(".") if out else ""
    if ending not in (*FORMATS, *PLAIN) and not name:
        raise UserError(f"--out {out}: {unknown('ending', ending, (*FORMATS[1:], 'txt'))}; or say --format")
    return name or (ending if ending in FORMATS else TABLE)


def show(table: pa.Table, form: str) -> None:
    """Write an answer to standard output. It raises UserError for Parquet on a terminal."""
    if form == PARQUET:
        stream = raw(sys.stdout)
        if stream.isatty():
            raise UserError("--format parquet is nothing for a terminal: say --out FILE, or redirect it")
        stream.buffer.write(parquet_bytes(table))
        stream.flush()
    elif form == TABLE:
        from evo.report.terminal import rows_table
        from evo.report.terminal import show as show_table

        show_table(rows_table(table.column_names, rows_of(table)))
    else:
        print(TEXTS[form](table), end="")


def write(table: pa.Table, form: str, out: Path, *, replace: bool) -> None:
    """Write an answer to a file, which must be new unless it may `replace` one. It raises UserError."""
    content = parquet_bytes(table) if form == PARQUET else TEXTS[form](table).encode("utf-8", "surrogatepass")
    write_new("--out", out, content, replace=replace)


def pairs(texts: list[str]) -> Iterator[tuple[str, str]]:
    """Texts of `--param`, NAME=VALUE each. It raises UserError."""
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UserError(f"--param {text}: write NAME=VALUE, such as --param operator=softmax")
        yield name.strip(), value
