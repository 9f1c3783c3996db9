"""The report of a run: one file of HTML that needs no network. It shows what queries to the run answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from shlex import quote
from typing import Any

from evo.api import Ancestor, Run
from evo.charts.drawing import check_drawing
from evo.charts.figures import by_task, map_figure, progress_figure
from evo.charts.picture import individuals_picture
from evo.charts.roofline import MARKS, rooflines
from evo.report.amounts import amount, budgeted, count, dollars, seconds, share, usd, versions_in_words
from evo.report.document import (
    KERNEL,
    Block,
    Column,
    Document,
    Figures,
    Findings,
    Fold,
    Listing,
    Query,
    Section,
    Table,
    TaskFinding,
    Words,
    bounds,
    level,
    made_of,
    number,
    text,
)
from evo.report.health import limits, spent, used
from evo.report.render import html
from evo.report.run_data import SIBLINGS, Descent, Material, Row, material, siblings_of
from evo.report.run_kernels import anchor, kernel_folds
from evo.report.status import TaskSummary, resuming
from evo.report.terminal import lack_lines, many_line
from fitness.words import counted, duration, in_words, interval, ratio, speedup, standing, time_us
from operators.errors import UserError
from operators.files import write_new
from operators.identity import short

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
        are = counted(len(held), "kernel is", "kernels are")
        yield f"{are} in quarantine; look at them below before anything of their kind is believed."
    if seen.questions:
        wait = counted(seen.questions, "question waits", "questions wait")
        yield f"{wait} for answers from outside: evo ask {quote(seen.run)}"
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
    shown = (name,), lambda kernel_id: short(kernel_id) or "-"
    return Column(title, *shown, numeric=False, code=True, link=KERNEL, link_names=("task", name))


SPEEDUPS = number("estimate", "speedup", ratio), bounds("95 %", "speedup_low", "speedup_high"), level()
"""Columns of the estimate of a speedup with its interval and the level that it was measured at."""
CERTAIN = number("certain", "best_speedup", ratio)
"""The column with the speedup by which a kernel leads."""
NO_VERDICT = "no verdict"
"""Words for a kernel that waits for its verdict, or came too late for one; lists are filtered by the same."""
OUTCOME = Column("what", ("status",), lambda status: in_words(status or NO_VERDICT), numeric=False)
"""The column with the outcome of kernels, in words."""
MAKERS = text("mutator", "mutator"), text("model", "model", code=True), text("change", "description", code=True)
"""The columns with the makers of a kernel."""


# --- sections --------------------------------------------------------------------------------------------------------


def _found(seen: Material) -> Iterator[Block]:
    yield _findings(seen)
    if seen.health.state == "finished":
        limits_ = limits(seen.rows("health.use")[0])
        yield Words(f"To search on, with twice the budget: {resuming(seen.run, 'finished', limits_)}")
    columns = [
        text("task", "task"), CERTAIN, kernel("best"), number("time", "best_us", time_us), *SPEEDUPS,
        number("over library", "over_library", ratio), bounds("95 %", "library_low", "library_high"),
        text("rivals not tried", "untried"), number("kernels", "kernels", count), number("correct", "correct", count),
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
        "machine": None if machine and machine in (device or "") else machine,
        "versions": versions_in_words(host), "used": used(spent(use), limits(use)),
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
        kernel(), CERTAIN, *SPEEDUPS, *MAKERS, text("author", "author", code=True),
    ]  # fmt: skip
    blocks.append(table(seen, "Leaders", columns, "leaders", empty="No kernel was correct yet."))
    pauses = [
        text("task", "task"), CERTAIN, number("estimate", "speedup", ratio),
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
        number("generation", "generation", count), kernel(), *SPEEDUPS, *MAKERS,
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
        own = [kernel("parent", "parent_id"), kernel(), *SPEEDUPS, *MAKERS, text("status", "status")]
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
    columns = [text("task", "task"), text("cell", "cell", code=True), kernel(), CERTAIN, *SPEEDUPS, *MAKERS]
    blocks.append(table(seen, "The best kernel of each cell", columns, "report.elites", empty="No cell is filled yet."))
    told = {(step.task, step.kernel_id) for each in seen.lineages for step in each.path}
    others = [fold for key, fold in folds.items() if key not in told]
    if others:
        blocks.append(Fold(f"All about {counted(len(others), 'kernel')} of cells that led to no best one", others))
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
        text("task", "task"), OUTCOME, number("times", "count", count),
        text("latest message", "example", code=True),
    ]  # fmt: skip
    repeated = [
        text("operator", "operator"), OUTCOME, number("times", "times", count),
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
        number("correct", "correct", count), kernel(), CERTAIN,
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
    write_new("--out", out, report_page(folder).encode("utf-8", errors="backslashreplace"), replace=replace)
    return out


# --- the first screen: what was found, whether to trust it, where it came from, what to do ----------------------------


FEW_OPEN = 5
"""The most tasks that stand open; of more each is one line."""
MOST_STEPS, MOST_CHANGE = 8, 200
"""Steps of a lineage that are named; characters of a change that are told."""


def _findings(seen: Material) -> Findings:
    """A line for each task that opens to the whole answer, the greatest certain speedup first."""
    descents = {each.task: each for each in seen.lineages}
    steps = by_task(seen.rows("leaders"))
    noise, used = ({row["task"]: row for row in seen.rows(name)} for name in ("noise", "report.standings"))
    order = sorted(seen.tasks, key=lambda t: -(t.best_speedup or 0.0))
    return Findings(
        [
            _finding(seen, t, descents.get(t.task), steps.get(t.task, []), noise.get(t.task), used[t.task])
            for t in order
        ],
        is_open=len(order) <= FEW_OPEN,
    )


def _finding(
    seen: Material, t: TaskSummary, descent: Descent | None, steps: list[Row], noise: Row | None, used: Row
) -> TaskFinding:
    path = descent.path if descent else ()
    parts = [
        ("Found", _measured(t)), ("Beside the library", _library(t)), ("Change", _change(path)),
        ("Trust", " ".join(_trust(t, noise))), ("How", "; ".join(filter(None, (_way(path), _price(t, used))))),
    ]  # fmt: skip
    return TaskFinding(
        t.task, ratio(t.best_speedup), standing(t.level, t.flagged) if t.kernel_id else t.state,
        _brief(t), _beside(t), is_sure=t.confirmed, points=[(row["elapsed_s"], row["best_speedup"]) for row in steps],
        parts=[(name, said) for name, said in parts if said], command=_next(seen, t),
        link=anchor(t.task, t.kernel_id) if t.kernel_id else "",
    )  # fmt: skip


def _brief(t: TaskSummary) -> str:
    if t.kernel_id is None:
        return t.why
    return f"{time_us(t.baseline_us)} \N{RIGHTWARDS ARROW} {time_us(t.best_us)}" if t.baseline_us and t.best_us else ""


def _beside(t: TaskSummary) -> str:
    rival = f"the library, {t.library_kinds}" if t.library_kinds else "the library"
    return f"{ratio(t.against_library)} of {rival}" if t.against_library else ""


def _measured(t: TaskSummary) -> str:
    if t.kernel_id is None or t.speedup is None or t.speedup_low is None or t.speedup_high is None:
        return f"{t.state}: {t.why}" if t.why else t.state
    if _is_naive(t):
        return "Nothing faster than the naive kernel."
    measured = speedup(t.speedup, t.speedup_low, t.speedup_high)
    sure = "" if t.confirmed else f", of which {ratio(t.best_speedup)} is certain"
    return f"Measured as {measured}{sure}."


def _is_naive(t: TaskSummary) -> bool:
    """Whether the best kernel is the naive one, which is beside itself without error."""
    return t.speedup == t.speedup_low == t.speedup_high == 1.0


def _library(t: TaskSummary) -> str:
    if t.against_library is None:
        later = "" if t.confirmed or t.kernel_id is None or _is_naive(t) else "timed once the kernel is confirmed"
        return f"not timed: {t.library_problem}" if t.library_problem else later
    which, kinds = t.library or "the library", t.library_kinds or "one call of the vendor"
    which = which if kinds in which else f"{which} ({kinds})"
    bounds = interval(t.against_library_low, t.against_library_high)
    return f"{ratio(t.against_library)} (95 %: {bounds}) of {time_us(t.library_us)} by {which}"


def _change(path: Sequence[Ancestor]) -> str:
    """The step of the lineage that certainly brought most, in its author's words."""
    gains = [
        (step.speedup_low / before.speedup_high, before, step)
        for before, step in pairwise(path)
        if step.speedup_low and before.speedup_high and step.task == before.task
    ]
    if not gains:
        return ""
    gain, _, step = max(gains, key=lambda each: each[0])
    said = step.description if len(step.description) <= MOST_CHANGE else f"{step.description[:MOST_CHANGE]}..."
    largest = f", certainly {ratio(gain)} of its parent" if gain > 1 else ", no single step is certain"
    return f"{said or 'nothing said'} (by {step.mutator}{largest})"


def _trust(t: TaskSummary, noise: Row | None) -> Iterator[str]:
    if t.confirmed:
        yield "Confirmed in fresh processes on inputs of its own."
    elif t.kernel_id and not _is_naive(t):
        yield "Not confirmed: it may be lucky, or wrong."
    if t.flagged:
        yield f"Flagged, look at its code: it {t.flagged}."
    if noise:
        beside = (
            f"; naive beside itself: {interval(noise['self_low'], noise['self_high'])}" if noise["self_low"] else ""
        )
        some = f"Half of {noise['timings']} timings here tell" if noise["timings"] > 1 else "The one timing here tells"
        unsure = f"; {noise['unresolved']} cannot tell 22 %" if noise["unresolved"] else ""
        yield f"{some} a difference of {ratio(noise['told_from'])} or more{unsure}{beside}."


def _way(path: Sequence[Ancestor]) -> str:
    """The mutators along the lineage, and the models that they asked."""
    made = [f"{step.mutator}{f' by {step.model or step.author}' if step.model or step.author else ''}" for step in path]
    steps = [(name, len([*same])) for name, same in groupby(made)]
    shown = [f"{name} x{times}" if times > 1 else name for name, times in steps]
    if len(shown) > MOST_STEPS:
        shown = [*shown[:2], f"{len(shown) - MOST_STEPS + 1} more", *shown[len(shown) - MOST_STEPS + 3 :]]
    return " \N{RIGHTWARDS ARROW} ".join(shown)


def _price(t: TaskSummary, used: Row) -> str:
    spent = [f"{counted(t.candidates, 'kernel')} tried"]
    spent += [f"{duration(used['evaluator_s'])} of evaluators"] if used["evaluator_s"] else []
    spent += [usd(used["cost_usd"])] if used["cost_usd"] else []
    return ", ".join(spent)


def _next(seen: Material, t: TaskSummary) -> str:
    """The command to go on with."""
    if t.goes_on_with:
        return t.goes_on_with
    if seen.is_running:
        return f"evo attach {quote(seen.run)}"
    name = t.task.partition("/")[0]
    return f"evo best {quote(seen.run)} --task {quote(t.task)} --package {quote(f'{name}-package')}"
