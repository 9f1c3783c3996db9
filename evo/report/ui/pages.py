"""The pages of `evo ui` beside the report: a kernel, all kernels, what is under way, use, models, and all runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from evo.api import Run
from evo.charts.figures import lines_figure
from evo.folders import DATABASE
from evo.report.amounts import count, dollars, seconds
from evo.report.document import (
    Block,
    Column,
    Document,
    Figures,
    Form,
    Links,
    Section,
    Table,
    Words,
    bounds,
    made_of,
    number,
    text,
)
from evo.report.health import health, runs_in, used
from evo.report.render import html
from evo.report.run import CERTAIN, MAKERS, OUTCOME, SPEEDUPS, kernel
from evo.report.run_data import of_kernels
from evo.report.run_kernels import Room, about, title
from evo.report.status import TaskSummary, summary
from fitness.words import counted, in_words, ratio, time_us
from operators.errors import UserError
from operators.identity import short

Row = dict[str, Any]
SITE = (
    ("/", "Report"), ("/kernels", "Kernels"), ("/queue", "Under way"), ("/use", "Use"), ("/models", "Models"),
    ("/runs", "Runs"),
)  # fmt: skip
"""Addresses and titles of the pages."""
ON_A_PAGE, CHILDREN = 100, 50
"""Kernels in a page of their list; children of a kernel that are shown."""
BINS, POINTS, MOST_SERIES = 60, 200, 12
"""Parts of the time or of the requests, points of a line, and lines of a figure."""
SORTS = ("certain", "estimate", "newest", "oldest", "generation")
REFRESH_S = 15
"""Seconds after which a browser asks anew what is under way."""
LONGEST, LONGEST_CHANGE = 200, 90
"""Characters of a value in an address, and of a change in the list."""


class Missing(UserError):
    """There is no such page, kernel or run."""


@dataclass(frozen=True)
class PageAddress:
    """The page that a browser asks for."""

    page: str
    name: str = ""
    """The kernel, or another thing, that stands behind the page's name."""
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, path: str) -> PageAddress:
        """The address that a path is. It raises Missing."""
        parts = urlsplit(path)
        found = re.fullmatch(r"/(\w+)(?:/([\w.%-]{1,200}))?", parts.path)
        pages = [known for known in PAGES if found and known == (found[1], bool(found[2]))]
        if not pages or parts.scheme or parts.netloc or not found:
            raise Missing("there is no such page; see /, /kernels, /kernel/ID, /queue, /use, /models, /runs")
        try:
            params = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True, max_num_fields=10))
        except ValueError:
            params = {"": ""} if parts.query else {}
        _, taken = PAGES[pages[0]]
        if unknown := [name for name in params if name not in taken]:
            raise Missing(f"/{found[1]} takes {', '.join(taken) or 'nothing'} and no {unknown[0] or 'such question'}")
        return cls(found[1], unquote(found[2] or ""), {name: value[:LONGEST] for name, value in params.items()})


def page(folder: Path, runs: Path, path: str) -> str:
    """The page of the run in `folder` at a path; `runs` holds all runs. It raises UserError, Missing among them."""
    asked = PageAddress.parse(path)
    make, _ = PAGES[asked.page, bool(asked.name)]
    with Run(folder) as run:
        return html(make(run, runs, asked), site=SITE)


def _document(run: Run, name: str, told: str, sections: Sequence[Section], *, refresh_s: int = 0) -> Document:
    return Document(name, told, [], sections, made_of(run.folder, time.time()), refresh_s)


# --- kernels ---------------------------------------------------------------------------------------------------------


def _kernel(run: Run, runs: Path, asked: PageAddress) -> Document:
    try:
        found = run.kernel(asked.name, asked.params.get("task", ""))
    except UserError as error:
        raise Missing(str(error)) from None
    key = found.task, found.id
    calls, timings = (of_kernels(run, query, [key])[key] for query in ("report.calls", "report.timings"))
    path = [vars(step) for step in run.lineage(found.id, found.task, principal=True)] if found.origin else []
    children = run.rows("ui.children", task=found.task, kernel=found.id, most=CHILDREN)
    steps = [number("generation", "generation", count), kernel(), *SPEEDUPS, *MAKERS]
    own = [kernel(), CERTAIN, *SPEEDUPS, OUTCOME, *MAKERS]
    sections = [
        Section("The kernel", [*about(str(run.folder), found, calls, timings, Room(), is_open=True)], "about"),
        Section("How it came to be", [_table("From the first ancestor on", steps, path, "It is a draft.")], "way"),
        Section("What was made of it", [_table("Its children", own, children, "Nothing.")], "children"),
    ]  # fmt: skip
    return _document(run, f"Kernel {short(found.id)}", f"{title(found)}, of {found.task}", sections)


def _table(caption: str, columns: Sequence[Any], rows: Sequence[Row], empty: str) -> Table:
    shown = [column for column in columns if any(column.text(row) not in ("", "-") for row in rows)]
    return Table(caption, shown, rows, empty=empty)


def _kernels(run: Run, runs: Path, asked: PageAddress) -> Document:
    wanted = {name: asked.params.get(name, "") for name in ("text", "task", "mutator", "model", "status")}
    sort, number_ = asked.params.get("sort", SORTS[0]), asked.params.get("page", "1")
    if not number_.isdigit() or len(number_) > 7 or number_ == "0":
        raise Missing("page: a number from 1 on")
    if sort not in SORTS:
        raise Missing(f"sort: {', '.join(SORTS)}")
    place = int(number_)
    found = run.rows("ui.kernels", **wanted, sort=sort, most=ON_A_PAGE, skipped=(place - 1) * ON_A_PAGE)
    rows = [row | {"description": shorten(row["description"] or "", LONGEST_CHANGE)} for row in found]
    choices = {
        name: [row["value"] for row in found]
        for name, found in groupby(run.rows("ui.choices"), key=lambda row: str(row["name"]))
    }
    fields: list[tuple[str, str, Sequence[str] | None]] = [("text", wanted["text"], None)]
    fields += [(name, wanted[name], ["", *choices.get(name, ())]) for name in ("task", "mutator", "model", "status")]
    columns = [
        text("task", "task"), CERTAIN, kernel(), *SPEEDUPS, *MAKERS, OUTCOME,
        number("generation", "generation", count), kernel("parent", "parent_id"), text("made", "created_at"),
    ]  # fmt: skip
    total = rows[0]["found"] if rows else 0
    last = max((total - 1) // ON_A_PAGE + 1, 1)
    if not rows and place > 1:
        raise Missing(f"page {place}: there is none")
    around = {"previous": place - 1, "next": place + 1}
    kept = {name: value for name, value in (wanted | {"sort": sort}).items() if value}
    links = [
        (f"/kernels?{urlencode(kept | {'page': to})}", f"{name} {ON_A_PAGE}")
        for name, to in around.items()
        if 0 < to <= last
    ]
    blocks: list[Block] = [Form("/kernels", [*fields, ("sort", sort, SORTS)])]
    blocks.append(_table(f"{counted(total, 'kernel')}, page {place} of {last}", columns, rows, "None fits."))
    blocks += [Links(links)] if links else []
    told = "Every kernel that was proposed. A text is looked for in sources, changes, mutators, models and ids."
    return _document(run, "Kernels", told, [Section("List", blocks, "list")])


# --- what is under way, and what it took ------------------------------------------------------------------------------


def _queue(run: Run, runs: Path, asked: PageAddress) -> Document:
    found = health(run)
    under_way = [
        text("state", "state"), text("task", "task"), number("request", "number", count), text("mutator", "mutator"),
        text("model", "model", code=True), kernel("parent", "parent_id"), text("since", "created_at"),
    ]  # fmt: skip
    questions = [
        text("task", "task"), text("role", "role"), text("model", "model", code=True), text("since", "created_at"),
        text("custom_id", "cache_key", code=True),
    ]  # fmt: skip
    ended = "" if found.state == "running" else " The next session makes them once more."
    return _document(run, "Under way", f"{found.line}.", [
        Section("Requests", [
            Words(f"Asked, and not told yet.{ended}" if ended else "Asked, and not told yet."),
            _table("Requests under way, the oldest first", under_way, run.rows("ui.under_way"), "None is under way."),
        ], "requests"),
        Section("Questions", [
            _table("Questions that wait for answers from outside", questions, run.rows("ui.questions"), "None waits."),
        ], "questions"),
    ], refresh_s=REFRESH_S)  # fmt: skip


def _use(run: Run, runs: Path, asked: PageAddress) -> Document:
    rows, workers = run.rows("ui.use", bins=BINS), run.rows("ui.workers")
    columns = [
        text("worker", "worker"), number("verdicts", "verdicts", count), number("busy, s", "busy_s", seconds),
        text("first", "first_at"), text("last", "last_at"),
    ]  # fmt: skip
    blocks: list[Block] = [Words(
        "The share of time in which each worker, a GPU or a set of cores, built, checked and timed kernels; profiles, "
        "proposals and waiting are not in it. By the stage times of each verdict, which end when it was written down."
    )]  # fmt: skip
    if rows:
        filled = [*_filled(rows, "worker", BINS)]
        figure = _lines(
            "Busy share of each worker", filled, "worker", ("elapsed_s", "seconds"), ("share", "busy share")
        )
        blocks.append(figure)
    blocks.append(_table("Workers", columns, workers, "Nothing was judged yet."))
    return _document(
        run,
        "Use of devices",
        f"{counted(len(workers), 'worker')} judged kernels.",
        [Section("Over time", blocks, "use")],
    )


def _filled(rows: Sequence[Row], name: str, bins: int) -> Iterator[Row]:
    """The rows with a zero for each bin in which nothing was done."""
    width = max((row["elapsed_s"] / row["bin"] for row in rows if row["bin"]), default=1.0)
    for each, found in groupby(rows, key=lambda row: str(row[name])):
        known = {row["bin"]: row for row in found}
        for place in range(bins):
            yield known.get(place) or {name: each, "elapsed_s": width * place, "share": 0.0}


def _lines(title_: str, rows: Sequence[Row], name: str, across: tuple[str, str], up: tuple[str, str]) -> Figures:
    series = [*dict.fromkeys(str(row[name]) for row in rows)][:MOST_SERIES]
    drawn = [{"series": row[name], across[0]: row[across[0]], up[0]: row[up[0]]} for row in rows if row[name] in series]
    figure = lines_figure(title_, drawn, series, across, up)
    return Figures({each: place for place, each in enumerate(series)}, [figure])


def _models(run: Run, runs: Path, asked: PageAddress) -> Document:
    paid, shares = run.rows("ui.spending", most=POINTS), run.rows("ui.shares", bins=BINS // 3)
    blocks: list[Block] = []
    if any(row["cost_usd"] for row in paid):
        blocks.append(_lines("Dollars by model", paid, "model", ("elapsed_s", "seconds"), ("cost_usd", "US dollars")))
    blocks.append(Words(
        "The weights that the search gave: of the requests of each twentieth of the run the share that each model, and "
        "each mutator that asks none, got."
    ))  # fmt: skip
    for is_model, what in ((True, "model"), (False, "mutator without a model")):
        if own := [row for row in shares if row["is_model"] == is_model]:
            across = ("requests", "requests so far")
            blocks.append(_lines(f"Share of requests by {what}", own, "arm", across, ("share", "share")))
    columns = [
        text("model", "model", code=True), number("calls", "calls", count), number("failed", "failed_calls", count),
        number("asked anew", "asked_anew", count),
        number("tokens in", "tokens_in", count), number("tokens out", "tokens_out", count),
        number("US dollars", "cost_usd", dollars), number("seconds", "seconds", seconds),
    ]  # fmt: skip
    blocks.append(_table("Models", columns, run.rows("report.costs"), "No model was called."))
    gained = [
        text("operator", "operator"), text("model", "model", code=True), number("kernels", "kernels", count),
        number("correct", "correct", count), number("improved", "improved", count),
        number("moved the best, ln", "raised", lambda value: f"{value:.3f}"),
    ]  # fmt: skip
    blocks.append(_table("What they gained", gained, run.query("models").to_pylist(), "No model made a kernel."))
    became = [
        text("operator", "operator"), text("model", "model", code=True),
        Column("what", ("outcome",), in_words, numeric=False), number("answers", "answers", count),
        number("US dollars", "cost_usd", dollars), text("why", "reason", code=True), text("latest", "request_id"),
    ]  # fmt: skip
    answers = run.query("answers").to_pylist()
    blocks.append(_table("What came of their answers; N stands for numbers", became, answers, "None came."))
    return _document(run, "Models and mutators", "What was asked, how often, and what it cost.", [
        Section("Over time", blocks, "models"),
    ])  # fmt: skip


# --- runs ------------------------------------------------------------------------------------------------------------


def _runs(run: Run, runs: Path, asked: PageAddress) -> Document:
    names = sorted((path.parent.name for path in runs.glob(f"*/{DATABASE}")), reverse=True)
    a, b = (asked.params.get(name, "") for name in ("a", "b"))
    for name in filter(None, (a, b)):
        if name not in names:
            raise Missing(f"there is no run {name} in {runs}")
    sections = [_beside(runs, a, b)] if a and b else []
    columns = [
        text("run", "run", code=True), number("certain", "best_speedup", ratio), text("of", "best_task"),
        text("state", "state"), text("why", "reason"), number("tasks", "n", count), text("used", "spent"),
        text("began", "began"), text("goes on with", "goes_on_with", code=True),
    ]  # fmt: skip
    rows = [
        row
        | {
            "n": len(row["tasks"]) if "tasks" in row else None,
            "spent": used(row["used"], row["budget"]) if "used" in row else "",
        }
        for row in reversed(runs_in(runs))
    ]
    choose = Form("/runs", [("a", a, ["", *names]), ("b", b, ["", *names])], blank="none")
    sections.append(
        Section("All runs", [choose, _table(f"Runs in {runs}", columns, rows, f"None is in {runs}.")], "runs")
    )
    return _document(
        run,
        "Runs",
        f"{counted(len(names), 'run')} in {runs}; choose two to see them side by side; evo ui RUN opens one.",
        sections,
    )


def _beside(runs: Path, a: str, b: str) -> Section:
    """Two runs side by side, task by task."""
    first, second = ({t.task: t for t in summary(Run(runs / name))} for name in (a, b))
    rows: list[Row] = [
        {"task": task, **_side("a", first.get(task)), **_side("b", second.get(task))}
        for task in dict.fromkeys((*first, *second))
    ]
    columns = [text("task", "task")]
    for side, name in (("a", a), ("b", b)):
        columns += [
            number(f"{name}: certain", f"{side}_best_speedup", ratio),
            number(f"{name}: estimate", f"{side}_speedup", ratio),
            bounds("95 %", f"{side}_speedup_low", f"{side}_speedup_high"), text("state", f"{side}_state"),
            number("best", f"{side}_best_us", time_us), number("tried", f"{side}_candidates", count),
        ]  # fmt: skip
    told = Words(
        "Each run's speedups are over its own naive kernel: of different machines they compare gains rather than "
        "times. evo sql with --query runs says which of two is faster for certain."
    )
    return Section(f"{a} beside {b}", [told, _table("Task by task", columns, rows, "Neither has a task.")], "beside")


def _side(side: str, t: TaskSummary | None) -> Row:
    return {f"{side}_{name}": value for name, value in vars(t).items()} if t else {}


Page = Callable[[Run, Path, PageAddress], Document]
PAGES: Mapping[tuple[str, bool], tuple[Page, Sequence[str]]] = {
    ("kernels", False): (_kernels, ("text", "task", "mutator", "model", "status", "sort", "page")),
    ("kernel", True): (_kernel, ("task",)),
    ("queue", False): (_queue, ()),
    ("use", False): (_use, ()),
    ("models", False): (_models, ()),
    ("runs", False): (_runs, ("a", "b")),
}
"""By name, and whether something stands behind it: the page and the names of what it may be asked."""
