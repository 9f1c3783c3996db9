"""The report of a run: one file of HTML that needs no network. It shows what queries to the run answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from evo.api import Run
from evo.charts.drawing import check_drawing
from evo.charts.figures import by_task, map_figure, progress_figure
from evo.charts.picture import individuals_picture
from evo.charts.roofline import MARKS, rooflines
from evo.report.amounts import amount, budgeted, count, counted, dollars, seconds, share
from evo.report.document import (
    KERNEL,
    Block,
    Column,
    Document,
    Figures,
    Fold,
    Listing,
    Query,
    Section,
    Table,
    Words,
    bounds,
    level,
    made_of,
    number,
    text,
)
from evo.report.findings import findings
from evo.report.health import limits, spent, used
from evo.report.render import html
from evo.report.run_data import SIBLINGS, Descent, Material, Row, material, siblings_of
from evo.report.run_kernels import kernel_folds
from evo.report.status import resuming
from evo.report.terminal import lack_lines, many_line
from fitness.words import in_words, ratio, time_us
from operators.errors import UserError

OUTAGES = ("worker_lost", "model_out")


def told(seen: Material) -> str:
    """The result and its price, in a sentence or two."""
    if not seen.tasks:
        return "Nothing was asked for yet."
    kernels, use = sum(row["kernels"] or 0 for row in seen.rows("report.standings")), seen.rows("health.use")[0]
    judged = f"{counted(kernels, 'kernel')} {'was' if kernels == 1 else 'were'} judged"
    return (
        f"{many_line(seen.tasks)}. {judged} by strategy {seen.config.get('strategy', '?')} in "
        f"{used(spent(use), limits(use))}."
    )


def notices(seen: Material) -> Iterator[str]:
    """Matters that need a person, each with the command that helps; to be read before any number."""
    if seen.is_running:
        yield "The search goes on: this is how it stood when the report was made, which is not its result."
    elif not seen.row:
        yield "The run was stopped before it began."
    elif not any(t.kernel_id for t in seen.tasks):
        yield "No kernel is correct: there is no result."
    yield from (f"{each.told[0].upper()}{each.told[1:]}" for each in seen.health.findings if each.cause != "unbegun")
    yield from (lacks := lack_lines(seen.tasks))
    if seen.health.state == "stopped" and not lacks:
        yield f"The search was stopped; it goes on with: evo resume {quote(seen.run)}"
    if flagged := [f"{t.task}, which {t.flagged}" for t in seen.tasks if t.flagged]:
        yield f"Flagged, which is allowed and wants a look at the code, are the leaders of {'; '.join(flagged)}."
    if held := seen.rows("report.quarantined"):
        yield f"{len(held)} kernels are in quarantine; look at them below before anything of their kind is believed."
    if seen.questions:
        yield f"{seen.questions} questions wait for answers from outside: evo ask {quote(seen.run)}"
    for row in seen.rows("report.events"):
        if row["kind"] in OUTAGES:
            yield f"{in_words(row['kind'])}, {row['times']} times, at last: {row['latest']}"


MOST_ROWS = 200
"""Rows of a table at most; its query gives them all."""
MOST_OPEN = 20
"""Rows of a table, figures and lineages that are shown at once; more stand folded."""
MOST_DRAWN = 12
"""Tasks that have figures of both kinds of progress, maps and rooflines; of more there is one figure each."""
MOST_EXAMPLES = 20
MOST_EXAMPLE = 4000
"""Characters of an example of a failure."""
OF_MODELS = ("cost_usd", "likely_lost_usd")
Folds = Mapping[tuple[str, str], Fold]


def document(seen: Material, now: float, *, served: bool = False) -> Document:
    """The whole report; `now` is in seconds since 1970; where it is `served` every kernel has a page."""
    folds = kernel_folds(seen)
    sections = [
        Section("What was found", [*_found(seen)], "found"),
        _population(seen, None if served else frozenset(folds)), _progress(seen), *_lineages(seen, folds),
        _archive(seen, folds), _roofline(seen), _gains(seen), _tuning(seen), _failures(seen), _spent(seen),
        _settings(seen),
    ]  # fmt: skip
    return Document(
        f"Run {seen.run.rstrip('/').rpartition('/')[2]}", told(seen), [*notices(seen)], sections,
        made_of(seen.run, now),
    )  # fmt: skip


# --- tables ----------------------------------------------------------------------------------------------------------


def table(seen: Material, caption: str, columns: Sequence[Column], query: str, **more: Any) -> Table:
    """The answer to a query as a table; of many rows the first ones, which the caption says."""
    rows = seen.rows(query)
    return cut(caption, columns, rows, seen.query(query), **more)


def cut(caption: str, columns: Sequence[Column], rows: Sequence[Row], query: Query, **more: Any) -> Table:
    """A table of the first rows, without the columns that say nothing of any; the caption says where there are more."""
    if len(rows) > MOST_ROWS:
        caption = f"{caption}: the first {MOST_ROWS} of {len(rows):,}"
    rows = rows[:MOST_ROWS]
    more = {"folded": len(rows) > MOST_OPEN} | more
    said = [column for column in columns if any(_says(column, row) for row in rows)]
    return Table(caption, said, rows, query, **more)


def _says(column: Column, row: Row) -> bool:
    """Whether there is anything of it to be told: a run without models has neither their names nor their dollars."""
    return column.text(row) not in ("", "-") and not (column.names[0] in OF_MODELS and not row.get(column.names[0]))


def kernel(title: str = "kernel", name: str = "kernel_id") -> Column:
    """A column of kernels' ids, which lead to all about them."""
    return Column(title, (name,), _short, numeric=False, code=True, link=KERNEL, link_names=("task", name))


def _short(kernel_id: str | None) -> str:
    return (kernel_id or "-")[:12]


def speedups() -> list[Column]:
    """The estimate of a speedup with its interval and the level that it was measured at."""
    return [number("estimate", "speedup", ratio), bounds("95 %", "speedup_low", "speedup_high"), level()]


NO_VERDICT = "no verdict"
"""Words for a kernel that waits for its verdict, or came too late for one; lists are filtered by the same."""


def certain() -> Column:
    """The column with the speedup by which a kernel leads."""
    return number("certain", "best_speedup", ratio)


def outcome() -> Column:
    """The column with the outcome of kernels, in words."""
    return Column("what", ("status",), lambda status: in_words(status or NO_VERDICT), numeric=False)


def makers() -> list[Column]:
    """The columns with the makers of a kernel."""
    return [text("mutator", "mutator"), text("model", "model", code=True), text("change", "description", code=True)]


# --- sections --------------------------------------------------------------------------------------------------------


def _found(seen: Material) -> Iterator[Block]:
    yield findings(seen)
    if seen.health.state == "finished":
        limits_ = limits(seen.rows("health.use")[0])
        yield Words(f"To search on, with twice the budget: {resuming(seen.run, 'finished', limits_)}")
    columns = [
        text("task", "task"), certain(), kernel("best"), number("time", "best_us", time_us),
        number("estimate", "speedup", ratio), bounds("95 %", "speedup_low", "speedup_high"), level(),
        number("over library", "over_library", ratio), bounds("95 %", "library_low", "library_high"),
        number("kernels", "kernels", count), number("correct", "correct", count),
        number("evaluations", "evaluations", count), number("evaluator s", "evaluator_s", seconds),
        number("US dollars", "cost_usd", dollars), text("made by", "mutator"),
    ]  # fmt: skip
    yield table(seen, "The best kernel of each task", columns, "report.standings", folded=True, empty="There is none.")


def _settings(seen: Material) -> Section:
    host, config, use = json.loads(seen.row.get("host_json") or "{}"), seen.config, seen.rows("health.use")[0]
    device, machine = (config.get("device") or {}).get("name"), host.get("processor")
    shown = {
        "strategy": config.get("strategy"), "target": config.get("target"), "workloads": config.get("workload_set"),
        "device": device, "GPUs": ", ".join(host.get("gpus", ())),
        "machine": None if machine and machine in (device or "") else machine, "used": used(spent(use), limits(use)),
        "models": ", ".join((config.get("llm") or {}).get("models", ())), "seed": config.get("seed"),
        "began": f"{seen.row['created_at']:%Y-%m-%d %H:%M %Z}" if seen.row else None,
        "kernel-evo": seen.row.get("engine_version"),
    }  # fmt: skip
    items = [f"{name}: {value}" for name, value in shown.items() if value not in (None, "")]
    listing = Listing("Every setting", json.dumps(config, indent=2), query=seen.query("report.config"))
    return Section("Settings", [Words(items=items), listing], "settings")


def _progress(seen: Material) -> Section:
    leaders = by_task(seen.rows("leaders"))
    ends = {row["task"]: row for row in seen.rows("report.ends")}
    kinds = ("evaluation", "elapsed_s") if len(leaders) <= MOST_DRAWN else ("evaluation",)
    drawn = [progress_figure(task, rows, ends[task], kind) for task, rows in leaders.items() for kind in kinds]
    blocks: list[Block] = [Words(
        "Each step is a kernel that became the best by what is certain of it: its confirmed speedup, or of one that is "
        "not confirmed the lower end of its 95 % interval. Dots are estimates, the band their intervals. With "
        "hindsight: a kernel counts with the verdict that counts now, and not at all if it was refuted."
    )]  # fmt: skip
    if drawn:
        figures = Figures({"best so far": 0}, drawn, in_pairs=len(kinds) == 2)
        blocks.append(Fold("The progress of each task, drawn", [figures]) if len(drawn) > MOST_OPEN else figures)
    columns = [
        text("task", "task"), number("evaluation", "evaluation", count), number("after s", "elapsed_s", seconds),
        kernel(), certain(), number("estimate", "speedup", ratio), bounds("95 %", "speedup_low", "speedup_high"),
        level(), *makers(), text("author", "author", code=True),
    ]  # fmt: skip
    blocks.append(table(seen, "Leaders", columns, "leaders", empty="No kernel was correct yet."))
    pauses = [
        text("task", "task"), certain(), number("estimate", "speedup", ratio),
        number("improvements", "improvements", count),
        number("evaluations since", "evaluations_since", count), number("seconds since", "seconds_since", seconds),
        number("longest pause, evaluations", "longest_evaluations", count),
    ]  # fmt: skip
    blocks.append(table(seen, "How long nothing better came", pauses, "stagnation", folded=True))
    return Section("Progress", blocks, "progress")


def _population(seen: Material, carded: frozenset[tuple[str, str]] | None) -> Section:
    """The picture of all individuals; `carded` are those that the file has all about, None where each has a page."""
    link = f"#{KERNEL}{{task}}-{{id}}" if carded is not None else "/kernel/{id}?task={task}"
    drawn = individuals_picture(seen.individuals, seen.paths, seen.migrations, link=link, carded=carded)
    return Section("Population", [drawn if seen.individuals else Words("There is no kernel yet.")], "population")


def _lineages(seen: Material, folds: Folds) -> Iterator[Section]:
    more = seen.left_out + len(seen.kernels) - len(folds)
    rest = (
        f" {more:,} more kernels of lineages and cells are not in this file: evo.open({seen.run!r}).kernel(ID) in "
        "Python has all about each." if more else ""
    )  # fmt: skip
    words = "How the best kernel of each task came to be, step by step; open a kernel for its source, difference to its"
    told = Words(f"{words} parent, verdict, metrics, and what a model was asked and answered.{rest}")
    if not seen.lineages:
        told = Words("No kernel is correct yet.")
    parts = [(each.task, [*_lineage(seen, each, folds)], f"lineage-{each.task}") for each in seen.lineages]
    few = len(parts) <= MOST_DRAWN
    folded = [] if few else [Fold("The lineage of each task", [Fold(*part) for part in parts])]
    yield Section("Lineage", [told, *folded], "lineage")
    yield from (Section(*part, inner=True) for part in parts if few)


def _lineage(seen: Material, each: Descent, folds: Folds) -> Iterator[Block]:
    path = [(step.task, step.kernel_id) for step in each.path]
    columns = [
        number("generation", "generation", count), kernel(), *speedups(), *makers(),
        text("author", "author", code=True), text("status", "status"),
    ]  # fmt: skip
    ancestors = seen.query("report.ancestors", task=each.task, kernel=each.kernel_id)
    siblings = seen.query("report.siblings", **siblings_of(each.task, each.path))
    rows = [vars(step) for step in each.path]
    yield cut(f"From the first ancestor to the best of {each.task}", columns, rows, ancestors)
    yield from (folds[key] for key in reversed(path) if key in folds)
    if len(each.ancestors) > len(path):
        yield cut("All ancestors, through both parents of crossovers", columns, each.ancestors, ancestors, folded=True)
    if each.siblings:
        own = [kernel("parent", "parent_id"), kernel(), *speedups(), *makers(), text("status", "status")]
        caption = f"Siblings along the way: the fastest {SIBLINGS} children of each"
        yield cut(caption, own, each.siblings, siblings, folded=True)


def _archive(seen: Material, folds: Folds) -> Section:
    cells = by_task(seen.rows("report.elites"))
    blocks: list[Block] = [Words(
        "Cells of the behaviour space, read off what the compiler made: how memory is read and what computes, how "
        "threads cooperate, how large the code is; each with the kernel that is certainly fastest. The stronger "
        "the colour, the faster for certain."
    )]  # fmt: skip
    if drawn := [map_figure(task, rows) for task, rows in [*cells.items()][:MOST_DRAWN]]:
        blocks.append(Figures({}, drawn))
    columns = [text("task", "task"), text("cell", "cell", code=True), kernel(), certain(), *speedups(), *makers()]
    blocks.append(table(seen, "The best kernel of each cell", columns, "report.elites", empty="No cell is filled yet."))
    told = {(step.task, step.kernel_id) for each in seen.lineages for step in each.path}
    others = [fold for key, fold in folds.items() if key not in told]
    if others:
        blocks.append(Fold(f"All about {len(others)} kernels of cells that led to no best one", others))
    return Section("Archive", blocks, "archive")


def _roofline(seen: Material) -> Section:
    limits, rows, drawn = rooflines(seen.config, seen.rows("report.roofline"))
    words = (
        "Bytes are the least that any algorithm moves, operations those of the plain one: a cleverer algorithm may lie "
        "above the line. " + (f"Peaks of {limits.device}." if limits else
        "The device's peaks are not known, as the run holds none, so that there is no line.")
    )  # fmt: skip
    columns = [
        text("task", "task"), text("workload", "workload", code=True), number("best", "latency_us", time_us),
        number("measured beside", "anchor_latency_us", time_us),
        number("naive", "naive_us", time_us, computed=True), number("library", "library_us", time_us),
        number("attainable", "attainable_us", time_us, computed=True), text("limit", "bound", computed=True),
        number("attained", "efficiency", share, computed=True),
        number("operations per byte", "intensity", lambda value: f"{value:.3g}", computed=True),
    ]  # fmt: skip
    blocks: list[Block] = [Words(words)]
    if drawn:
        blocks.append(Figures(MARKS, drawn[:MOST_DRAWN]))
    empty = "No kernel was timed, or its operator is not on this machine."
    query = seen.query("report.roofline")
    blocks.append(cut("Best and naive kernels below the roof", columns, rows, query, empty=empty))
    return Section("Roofline", blocks, "roofline")


def _failures(seen: Material) -> Section:
    columns = [
        text("task", "task"), outcome(), number("times", "count", count),
        text("latest message", "example", code=True),
    ]  # fmt: skip
    repeated = [
        text("operator", "operator"), outcome(), number("times", "times", count),
        number("seconds", "seconds", seconds), Column("mutators", ("mutators",), ", ".join, numeric=False),
        text("message", "reason", code=True),
    ]  # fmt: skip
    examples = [
        Listing(f"{row['operator']}, {row['status']}, {row['times']} times: {row['reason'][:100]}",
                row["example"][:MOST_EXAMPLE])
        for row in seen.rows("repeated_failures")[:MOST_EXAMPLES]
    ]  # fmt: skip
    held = [
        text("task", "task"), kernel(), text("mutator", "mutator"), text("author", "author", code=True),
        text("message", "message", code=True), text("when", "judged_at"),
    ]  # fmt: skip
    events = [
        text("event", "kind"), text("task", "task"), number("times", "times", count), text("latest", "latest_at"),
        text("what the latest says", "latest", code=True),
    ]  # fmt: skip
    quarantined = "Kernels in quarantine: too fast or too odd to be believed"
    return Section("Failures", [
        *([table(seen, quarantined, held, "report.quarantined")] if seen.rows("report.quarantined") else []),
        table(seen, "By kind", columns, "report.failures", empty="Nothing failed."),
        table(seen, "Failures that repeat; N stands for numbers", repeated, "repeated_failures", empty="None repeats."),
        *([Fold("Examples of those", examples)] if examples else []),
        table(seen, "Alarms and other events", events, "report.events", folded=True, empty="There are none."),
    ], "failures")  # fmt: skip


def _gains(seen: Material) -> Section:
    paid = [number("US dollars", "cost_usd", dollars), number("moved per dollar", "raised_per_usd", _log)]

    def gain(caption: str, first: Iterable[Column], query: str, *, usd: bool, **more: Any) -> Table:
        columns = [
            text("operator", "operator"), *first, number("tries", "proposals", count), number("new", "kernels", count),
            number("correct", "correct", count), number("improved", "improved", count),
            number("moved the best, ln", "raised", _log), number("seconds", "seconds", seconds),
            number("moved per hour", "raised_per_hour", lambda value: f"{value:,.1f}"),
            *(paid if usd else ()),
        ]  # fmt: skip
        return table(seen, caption, columns, query, **more)

    shares = [
        text("task", "task"), kernel(), text("mutator", "mutator"), text("model", "model", code=True),
        text("author", "author", code=True), number("kernels", "kernels", count),
        number("log speedup", "log_speedup", _log), number("standard error", "log_speedup_se", _log),
        number("share of what is certain", "share", share),
    ]  # fmt: skip
    guests = [
        text("task", "task"), text("author", "author", code=True), number("kernels", "kernels", count),
        number("correct", "correct", count), kernel(), certain(),
        number("estimate", "speedup", ratio), number("moved the best, ln", "raised", _log),
        number("in the best's lineage", "in_best", count),
    ]  # fmt: skip
    return Section("What helped", [
        table(seen, "Who contributed to the best kernels", shares, "contributors", empty="No kernel is correct yet."),
        gain("Mutators", [text("mutator", "mutator")], "mutators", usd=True),
        gain("Rewrites of the mutator transform", [text("rewrite", "rewrite")], "rewrites", usd=False),
        gain("Models", [text("model", "model", code=True)], "models", usd=True, empty="No model made a kernel."),
        table(seen, "People and agents", guests, "outside", empty="No kernel came from outside."),
    ], "gains")  # fmt: skip


def _tuning(seen: Material) -> Section:
    columns = [
        text("task", "task"), kernel("best setting"), number("speedup", "speedup", ratio), level(),
        number("gain, ln", "gain", _log), number("trials", "trials", count), number("settings", "settings", count),
        number("correct", "correct", count), number("seconds", "seconds", seconds),
        text("values", "values_json", code=True),
    ]  # fmt: skip
    made = table(seen, "Files whose tunables were tried", columns, "tuning", empty="No tunables were tried.")
    return Section("Tuning", [made], "tuning")


def _spent(seen: Material) -> Section:
    paid = [
        text("model", "model", code=True), number("calls", "calls", count), number("failed", "failed_calls", count),
        number("asked anew", "asked_anew", count),
        number("tokens in", "tokens_in", amount), number("tokens out", "tokens_out", amount),
        number("US dollars", "cost_usd", dollars), number("likely lost, US dollars", "likely_lost_usd", dollars),
        number("seconds", "seconds", seconds),
    ]  # fmt: skip
    lost = [
        text("task", "task"), text("activity", "activity"), text("what came of it", "outcome"),
        number("times", "times", count), number("seconds", "seconds", seconds), number("of the task's", "share", share),
    ]  # fmt: skip
    saved = [
        text("task", "task"), text("mutator", "mutator"), number("children", "children", count),
        number("same source", "same_source", count), number("same code", "same_code", count),
        number("seconds saved", "saved_s", seconds),
    ]  # fmt: skip
    sat = [
        text("began", "began"), number("took", "took_s", seconds),
        Column("budget", ("budget_json",), lambda told: budgeted(json.loads(told or "{}")), numeric=False),
        text("ended", "ended"), text("why", "reason"),
        number("kernels judged", "judged", count), number("of today's leaders", "leaders", count),
        number("US dollars", "cost_usd", dollars),
    ]  # fmt: skip
    return Section("Sessions, money and time", [
        table(seen, "Sessions", sat, "status.sessions", empty="No session began yet."),
        table(seen, "Language models", paid, "report.costs", empty="No model was called."),
        table(seen, "Where time went; activities overlap", lost, "lost_time", empty="Nothing took time yet."),
        table(seen, "What known programs saved", saved, "duplicates", folded=True),
    ], "spent")  # fmt: skip


def _log(value: float) -> str:
    return f"{value:.3f}"


def report_page(folder: Path, *, live: str | None = None, site: Sequence[tuple[str, str]] = ()) -> str:
    """The report of the run in `folder` as it now is; `live` and `site` as in `evo.report.render.html`.

    It raises UserError.
    """
    return html(document(material(Run(folder)), time.time(), served=bool(site)), live=live, site=site)


def write_report(folder: Path, out: Path, *, replace: bool = False) -> Path:
    """Write the report of the run in `folder` to the file `out`, which must be new unless it may `replace` one.

    It raises UserError.
    """
    check_drawing()
    if out.exists() and not replace:
        raise UserError(f"--out {out}: exists already; name another file, or say --force")
    if not out.parent.is_dir():  # rather now than when all is read
        raise UserError(f"--out {out}: cannot be written: there is no folder {out.parent}")
    text = report_page(folder)
    try:
        with out.open("w" if replace else "x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"--out {out}: exists already; name another file, or say --force") from None
    except OSError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}; name a file") from None
    return out
