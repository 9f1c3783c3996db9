"""The report of a comparison, as HTML, Markdown and Parquet: sentences, tables and figures of what others conclude.

The tables that are kept as Parquet have one fact a row, and units in the names of their columns. Programs that work
numbers out stand in the document.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evo.charts.drawing import Figure, check_drawing
from evo.compare.cells import CONFIG, CellResult, CellState, curves_table, results_table, spent
from evo.compare.conclusions import POINTS
from evo.compare.config import USED
from evo.compare.inference import (
    FACTORS,
    THRESHOLDS,
    ArmVerdict,
    Effect,
    Summary,
    least_families,
    nothing_concluded,
)
from evo.compare.leaks import Hermetic
from evo.report.amounts import amount, count, dollars, probability, seconds, share
from evo.report.comparison.data import (
    ComparisonMaterial,
    asked,
    bound,
    curve_figure,
    effect_figure,
    material,
    task_figure,
)
from evo.report.document import (
    KERNEL,
    Block,
    Column,
    Document,
    Figures,
    Listing,
    Script,
    Section,
    Table,
    Words,
    bounds,
    level,
    made_of,
    number,
    text,
)
from evo.report.output import plain
from evo.report.render import html, markdown
from evo.store.reads import Identifier
from fitness.words import counted, digits, interval, ratio, time_us
from mutators.llm.settings import is_outside
from operators.files import writing
from operators.identity import short
from operators.plan.defaults import with_defaults

HTML, MARKDOWN = "report.html", "report.md"


def check_report(out: Path) -> None:
    """Raise UserError where no report could be written to the folder `out`, which it makes."""
    check_drawing()
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)


def write_report(
    folder: Path, out: Path, results: Sequence[CellResult] | None = None, checked: Hermetic | None = None
) -> list[Path]:
    """Write the report of the comparison in `folder` to the folder `out`; return its files. It raises UserError.

    Files of an earlier report are replaced. `results` and `checked` are those of `material`.
    """
    return write(material(folder, results, checked), out)


def write(seen: ComparisonMaterial, out: Path) -> list[Path]:
    """Write the report of material that was read already; see `write_report`."""
    said = document(seen, time.time())
    texts = {HTML: html(said), MARKDOWN: markdown(said)}
    parquet = {f"{name}.parquet": table for name, table in tables(seen).items()}
    check_report(out)
    with _writing(out):
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
        for name, table in parquet.items():
            pq.write_table(table, out / name)
    return [out / name for name in (*texts, *parquet)]


def _writing(out: Path) -> AbstractContextManager[None]:
    return writing(f"--report {out}", "; name a folder")


def tables(seen: ComparisonMaterial) -> dict[str, pa.Table]:
    """By name: cells, curves (of cells, and means of arms), verdicts, winners and their times.

    Ratios and speedups are plain numbers, those called log are natural logarithms, those called 95 the ends of an
    interval; what does not exist is null. A table without rows has no columns.
    """
    rows = {
        "verdicts": [plain(row) for row in seen.found.rows()],
        "mean_curves": [*_means(seen)],
        "winners": [*_winners(seen)],
        "times": seen.rows("comparison.time_rows"),
    }
    results = [cell.result for cell in seen.cells]
    return {
        "cells": _judged(results_table(results), seen),
        "curves": curves_table(results),
        **{name: pa.Table.from_pylist(found) for name, found in rows.items()},
    }


def _judged(table: pa.Table, seen: ComparisonMaterial) -> pa.Table:
    """The cells with what the judgement says of their winners."""
    outcomes = [cell.outcome for cell in seen.cells]
    judged: Mapping[str, list[Any]] = {
        "has_winner": [one.has_winner if one else None for one in outcomes],
        "judged_log_speedup": [one.log_speedup if one else None for one in outcomes],
        "judged_log_speedup_se": [one.log_speedup_se if one else None for one in outcomes],
        "searched_log_speedup": [one.searched if one else None for one in outcomes],
        "score": [one.score if one else None for one in outcomes],
    }
    for name, values in judged.items():
        kind = pa.bool_() if name == "has_winner" else pa.float64()
        table = table.append_column(name, pa.array(values, kind))
    return table


def _means(seen: ComparisonMaterial) -> Iterator[dict[str, Any]]:
    for curve in seen.curves:
        columns = (each.tolist() for each in (curve.used, curve.log_speedup, curve.low, curve.high))
        for used, best, low, high in zip(*columns, strict=True):
            yield plain({
                "arm": curve.arm, "budget": curve.budget, "cells": curve.cells, "used": used, "log_speedup": best,
                "log_speedup_low": low, "log_speedup_high": high,
            })  # fmt: skip


def _winners(seen: ComparisonMaterial) -> Iterator[dict[str, Any]]:
    sources = {row["kernel_id"]: row for row in seen.rows("comparison.sources")}
    for row in seen.rows("comparison.winner_rows"):
        kernel = sources.get(row["kernel_id"], {})
        values = json.loads(kernel.get("values_json") or "{}")
        yield row | {"source": kernel.get("source"), "values_json": json.dumps(values)}


# --- the document -----------------------------------------------------------------------------------------------------


MOST_SOURCES = 4_000_000
"""Characters of winners' files in a report; the fastest of every task come first."""
EVERY = 8
"""Points of a curve that make one row of its table."""

Row = dict[str, Any]


def document(seen: ComparisonMaterial, now: float) -> Document:
    """The whole report; `now` is in seconds since 1970."""
    sections = [
        _result(seen), _arms(seen), _curves(seen), _used(seen), _cells(seen), *_winner_sections(seen), _failures(seen),
        _checks(seen), _made_of(seen), Section("How to read this", [Words(items=HOW_TO_READ)], "how-to-read"),
    ]  # fmt: skip
    return Document(
        f"Comparison {seen.made.name}", told(seen), [*notices(seen)], sections,
        made_of(seen.folder, now),
    )  # fmt: skip


# --- sentences -------------------------------------------------------------------------------------------------------


def told(seen: ComparisonMaterial) -> str:
    """One sentence about the whole."""
    made, (kind, amount) = seen.made, seen.made.limit
    tasks = len({cell.result.task for cell in seen.cells})
    arms = counted(len(made.arms), "arm")
    return (
        f"{arms} at {counted(tasks, 'task')} with {counted(len(made.seeds), 'seed')} each, every cell with "
        f"{amount:,.10g} {USED[kind]}. Primary endpoint: the log speedup over naive of each cell's winner, judged "
        f"anew, beside the same cell of {made.reference_arm}; a failure counts as naive. Registered difference: "
        f"{100 * made.difference:.3g} %. Registration: {short(seen.begun.digest)}."
    )


def notices(seen: ComparisonMaterial) -> Iterator[str]:
    """Notices to read before any number; none where all is as it should be."""
    yield from _demonstration(seen)
    if seen.hermetic.leaks:
        yield f"Cells heard of what they should not know; no verdict below can be trusted. {seen.hermetic}"
    if seen.faults:
        more = f" ({len(seen.faults) - 1} more below)" if len(seen.faults) > 1 else ""
        yield f"Not as it was registered and written down; no verdict below can be trusted: {seen.faults[0]}{more}."
    yield from _unfinished(seen)
    made, found = seen.made, seen.found
    if failed := sorted(summary.arm for summary in found.summaries if not summary.with_winner):
        yield f"No winner of {', '.join(failed)} passed the judgement: all cells judged so far count as naive there."
    if len(made.arms) == 1:
        yield "There is one arm: nothing is compared, speedups are over the naive kernel alone."
        return
    if not found.effects:
        yield f"No cell of the reference {made.reference_arm} is judged yet: no arm can be held against it."
        return
    if why := nothing_concluded(found.families, made.tested):
        yield (f"{why[0].upper()}{why[1:]}. The numbers describe these cells, and say nothing of other operators.")
    elif len(made.tested) < len(made.arms) - 1:
        yield f"Verdicts are registered of {', '.join(made.tested)}; the other arms are described."
    if found.families < least_families(1):
        needed = counted(least_families(1), "family", "families")
        yield f"Intervals, and bands of curves, need operators of {needed}; there are none here."
    if found.related:
        yield f"{found.related}: chance is over families, since what suits one operator suits its next of kin."


def _demonstration(seen: ComparisonMaterial) -> Iterator[str]:
    arms = sorted(arm for arm in seen.made.arms if any(map(is_outside, seen.made.models_of(arm))))
    authors = sorted({row["author"] for row in seen.rows("comparison.models") if row["author"]})
    if arms or authors:
        by = f" (they called themselves {', '.join(authors)})" if authors else ""
        yield (
            f"Demonstration: answers to {', '.join(arms) or 'some questions'} were given from outside by people or "
            f"agents{by}, not by a model that can be asked again. Their tokens and dollars are what was told with "
            "them. It shows that the arms work, and is no measurement of any model."
        )


def _unfinished(seen: ComparisonMaterial) -> Iterator[str]:
    counts = Counter(cell.result.standing for cell in seen.cells)
    if counts[CellState.FAILED]:
        results = [cell.result for cell in seen.cells if cell.result.standing is CellState.FAILED]
        shown = ", ".join(sorted({f"{result.arm} at {result.task}" for result in results})[:6])
        are = counted(counts[CellState.FAILED], "cell is", "cells are")
        yield f"{are} no part of any figure, and could not be searched: {shown}."
    under_way = len(seen.cells) - counts[CellState.DONE] - counts[CellState.FAILED]
    if under_way:
        yield (
            f"Unfinished: {under_way} of {counted(len(seen.cells), 'cell')} not over "
            f"({counts[CellState.NEW]} not begun): winners are judged when all are. Figures of arms below are of the "
            f"{counted(seen.found.judged, 'cell')} of tasks whose cells are all judged."
        )
    elif seen.found.judged < seen.found.cells:
        every = counted(seen.found.cells, "cell")
        yield f"Unfinished: {seen.found.judged} of {every} of tasks whose cells are all judged."
    if tasks := sorted({c.result.task for c in seen.cells if c.left_out and c.result.standing is CellState.DONE}):
        yield f"Could not be judged, and is no part of any figure: {', '.join(tasks)}."


def verdict(effect: Effect) -> str:
    """The comparison's verdict on an arm, in a sentence."""
    bounds = f"95 % interval {interval(math.exp(effect.low), math.exp(effect.high))}"
    if math.isinf(effect.high):
        bounds = "no interval of so few families of operators"
    size = (
        f"its winners are {digits(math.exp(effect.log_ratio))} times as fast as those of {effect.reference} ({bounds})"
        f"; at the sizes that were searched {digits(math.exp(effect.searched))} times"
    )
    if effect.is_skewed:
        size += f"; a few operators weigh much: at the median one {digits(math.exp(effect.median))} times"
    if lacking := effect.pairs - effect.found:
        size += f"; in {lacking} of {effect.pairs} pairs of cells neither found anything, which is no agreement"
    match effect.verdict:
        case ArmVerdict.FASTER | ArmVerdict.SLOWER:
            said = f"{effect.verdict} than {effect.reference} {effect.scope}, p = {probability(effect.p)}: {size}."
        case ArmVerdict.EQUAL:
            said = f"equal to {effect.reference} within the registered difference: {size}."
        case ArmVerdict.DESCRIBED:
            said = f"described, no verdict of it is registered; {seen_from(effect)}. As measured, {size}."
        case ArmVerdict.PENDING:
            said = "no verdict before all cells are judged."
        case _:
            said = f"not concluded, p = {probability(effect.p)}; {seen_from(effect)}. As measured, {size}."
    return f"{effect.arm}: {said}"


def seen_from(effect: Effect) -> str:
    """The size from which a difference would have been seen."""
    if math.isinf(effect.detectable):
        few = f"operators of {counted(effect.families, 'family', 'families')}"
        return f"with {few} no difference, however large, would have been told from chance"
    return f"a difference of {100 * math.expm1(effect.detectable):.0f} % would have been seen at 80 % power"


HOW_TO_READ = (
    "A verdict is about other operators than these: it says whether the difference holds beyond the operators that "
    "were tried, so that few families of operators conclude little, however many seeds there are. At most operators is "
    "said where the median's interval leaves out 1x too. On average rests on differences that are as often above their "
    "mean as below. A rare kind of operator, none of which was tried, may be the other way round by much more.",
    "The interval holds every difference that the test does not reject: faster and slower are said where it leaves out "
    "1x, equal where it lies within the registered difference by the cells alone in which a winner was found. All "
    "intervals of arms with verdicts hold at once, at 95 %.",
    "Not concluded does not mean equal: a difference smaller than the one that would have been seen may well be there.",
    "All speedups of verdicts are of winners that were judged anew: at sizes and hidden shapes drawn after the "
    "searches, near the operator's own, on new inputs, in fresh processes. The searched sizes stand beside: a "
    "winner that is fast at these alone knows them by heart. What a search measured itself is the luckiest of its many "
    "estimates, and stands in the table of cells as the own speedup; curves have nothing else.",
    "A cell without a correct winner counts as naive, 1x: that is what its user would be left with.",
    "Arms have equal budgets in the registered kind alone. What else they used is in its own table: an arm that wins "
    "by ten times the evaluator's time has won something else.",
    "Below each table is the query that gives its numbers; what statistics make of them is worked out by the "
    "program beside it.",
)


# --- sections --------------------------------------------------------------------------------------------------------


def _result(seen: ComparisonMaterial) -> Section:
    """The primary endpoint."""
    found = seen.found
    blocks: list[Block] = [Words(items=[verdict(effect) for effect in found.effects])]
    if found.effects:
        figure = effect_figure(found.effects, seen.arms, found.difference)
        blocks.append(Figures(seen.series(effect.arm for effect in found.effects), [figure]))
    return Section("Result", [*blocks, _beside_reference(seen), _by_operator(seen)], "result")


def _beside_reference(seen: ComparisonMaterial) -> Table:
    reference, beside = seen.found.reference, {effect.arm: effect for effect in seen.found.effects}
    shares = spent(cell.result for cell in seen.cells)
    rows: list[Row] = []
    for row in seen.rows("comparison.beside_reference"):
        effect = beside[row["arm"]]
        rows.append(row | {
            "unpaired": effect.unpaired, "low": bound(effect.low), "high": bound(effect.high),
            "median_low": bound(effect.median_low), "median_high": bound(effect.median_high),
            "p": None if math.isnan(effect.p) else effect.p, "seen_from": bound(effect.detectable),
            "families": effect.families, "verdict": str(effect.verdict), "judging_se": effect.judging_se,
            "spent": str(shares.get(effect.arm, "")),
        })  # fmt: skip
    columns = [
        text("arm", "arm"), number(f"ratio to {reference}", "ratio", ratio),
        bounds("95 % interval", "low", "high", computed=True),
        number("p (Bonferroni)", "p", probability, computed=True), text("verdict", "verdict", computed=True),
        number("median", "median", ratio), bounds("95 % interval", "median_low", "median_high", computed=True),
        number("at searched sizes", "searched", ratio),
        number("seen from", "seen_from", ratio, computed=True), number("operators", "operators", count),
        number("families", "families", count, computed=True), number("cells", "pairs", count),
        number("with a winner", "found", count), number("unpaired cells", "unpaired", count, computed=True),
        number("error of judging (ln)", "judging_se", lambda value: f"{value:.2g}", computed=True),
        text("budget spent", "spent", computed=True),
    ]  # fmt: skip
    return Table(
        f"Arms beside {reference}, at equal {USED[seen.made.limit[0]]}", columns, rows,
        seen.query("comparison.beside_reference"), arms_program(seen) if rows else None,
        empty="Nothing is judged that could be compared.",
    )  # fmt: skip


def _by_operator(seen: ComparisonMaterial) -> Table:
    columns = [
        text("arm", "arm"), text("operator", "operator"), text("family", "family", computed=True),
        number("cells", "pairs", count), number("with a winner", "found", count), number("ratio", "ratio", ratio),
        number("at searched sizes", "searched", ratio),
    ]  # fmt: skip
    families = seen.begun.families
    return Table(
        "The same, operator by operator: what the test is about", columns,
        [row | {"family": families[row["operator"]]} for row in seen.rows("comparison.operators_beside")],
        seen.query("comparison.operators_beside"), folded=True,
    )  # fmt: skip


def _arms(seen: ComparisonMaterial) -> Section:
    """Each arm by itself."""
    beside = {summary.arm: summary for summary in seen.found.summaries}
    shares = spent(cell.result for cell in seen.cells)
    rows = [
        row | _interval_of(beside[row["arm"]]) | {"spent": str(shares.get(row["arm"], ""))}
        for row in seen.rows("comparison.arms")
    ]
    columns = [
        text("arm", "arm"), number("geometric mean", "speedup", ratio),
        bounds("95 % interval", "low", "high", computed=True), number("median", "median", ratio),
        number("with a winner", "with_winner", share),
        *(number(f"> {factor}x", f"above_{factor}", share) for factor in FACTORS),
        number("score P", "score", ratio),
        *(number(f"Fast-{tau}", f"fast_{tau}", share) for tau in THRESHOLDS), number("cells", "cells", count),
        text("budget spent", "spent", computed=True),
    ]  # fmt: skip
    told = Words(
        "Speedups over naive of judged winners, at sizes drawn after the searches. Operators have one vote each; with "
        "a winner: cells with a kernel of their own that passed the judgement; > 1x: of all cells those with a winner "
        "that is faster; score P: that of MSKernelBench, the mean speedup weighted by naive's time at the sizes that "
        "were searched, its median over cells; Fast-t: cells with a score of t or more. Budget spent: mean "
        "over cells that are done, least and most."
    )
    table = Table(
        "Arms by themselves", columns, rows, seen.query("comparison.arms"), arms_program(seen) if rows else None,
        empty="No winner is judged yet.",
    )  # fmt: skip
    blocks: list[Block] = [told, table]
    judged = [row for row in seen.rows("comparison.cell_rows") if row["judged_speedup"] is not None]
    if judged:
        blocks.append(Figures(seen.series(seen.arms), [task_figure(judged, seen.arms)]))
    return Section("Arms by themselves", blocks, "arms")


def _curves(seen: ComparisonMaterial) -> Section:
    """Best so far against every budget that was used."""
    used, limit = {curve.budget for curve in seen.curves}, seen.made.limit[0]
    kinds = sorted(used, key=lambda kind: (kind != limit, list(USED).index(kind)))
    figures: list[Figure] = []
    tables: list[Block] = []
    for kind in kinds:
        own = [curve for curve in seen.curves if curve.budget == kind]
        figures.append(curve_figure(own, seen.arms))
        bands = {
            (curve.arm, place): {"low": bound(curve.low[place]), "high": bound(curve.high[place])}
            for curve in own
            for place in range(POINTS)
        }
        query = seen.query("comparison.curve", budget=Identifier(kind))
        shown = [row for row in seen.rows("comparison.curve", budget=Identifier(kind)) if row["i"] % EVERY == 0]
        tables.append(Table(
            f"Best so far by {USED[kind]}, every eighth point",
            [
                text("arm", "arm"), number(USED[kind], "used", lambda value: f"{value:,.5g}"),
                number("certain", "speedup", ratio), bounds("95 % band", "low", "high", computed=True),
            ],
            [row | bands[row["arm"], row["i"]] for row in shown], query,
            curves_program(seen), folded=True,
        ))  # fmt: skip
    told = Words(
        "Geometric means of the best so far, by the searches' own verdicts, against what a cell had used by then. A "
        "cell that has ended keeps its last value. Bands are pointwise 95 % intervals over operators and seeds."
    )
    if not figures:
        return Section("Best so far", [Words("No cell has judged anything yet.")], "curves")
    return Section("Best so far", [told, Figures(seen.series(seen.arms), figures), *tables], "curves")


def _used(seen: ComparisonMaterial) -> Section:
    """The use of every arm, of each kind."""
    counts = [
        ("evaluations", "evaluations"), ("repairs among these", "repairs"), ("trials of tunables", "trials"),
        ("duplicates", "duplicates"), ("rejected", "rejected"), ("checks", "checks"),
    ]  # fmt: skip
    columns = [
        text("arm", "arm"), number("cells", "cells", count), *(number(title, name, count) for title, name in counts),
        number("evaluator s", "evaluator_s", seconds), number("calls", "calls", count),
        number("failed calls", "failed_calls", count), number("tokens in", "tokens_in", amount),
        number("tokens out", "tokens_out", amount), number("US dollars", "cost_usd", dollars),
        number("lost tokens, at most", "lost_tokens", amount), number("lost US dollars, at most", "lost_usd", dollars),
    ]  # fmt: skip
    asked = [
        text("arm", "arm"), text("model", "model", code=True), text("who answered", "author", code=True),
        number("calls", "calls", count), number("failed", "failed", count), number("tokens in", "tokens_in", amount),
        number("tokens out", "tokens_out", amount), number("US dollars", "cost_usd", dollars),
    ]  # fmt: skip
    told = Words(
        "All cells of an arm together. An evaluation is a kernel that reached the compiler and was no duplicate. Lost: "
        "what calls without a known end may have cost besides, charged to no arm."
    )
    rows, query = seen.rows("comparison.used"), seen.query("comparison.used")
    blocks: list[Block] = [told, Table("What arms used", columns, rows, query)]
    if any(map(seen.made.models_of, seen.arms)):
        blocks.append(Table("Language models", asked, seen.rows("comparison.models"), seen.query("comparison.models")))
    return Section("What it took", blocks, "used")


def _cells(seen: ComparisonMaterial) -> Section:
    columns = [
        text("task", "task"), text("arm", "arm"), number("seed", "seed", str), text("standing", "standing"),
        number("own speedup", "own_speedup", ratio), level("own verdict"),
        number("judged speedup", "judged_speedup", ratio),
        bounds("95 % interval", "judged_low", "judged_high"),
        number("at searched sizes", "searched_speedup", ratio),
        Column("has a winner", ("has_winner",), lambda value: {True: "yes", False: "no"}.get(value, ""), numeric=False),
        number("evaluations", "evaluations", count), number("trials", "trials", count),
        number("tokens", "tokens", amount), number("US dollars", "cost_usd", dollars),
        number("evaluator s", "evaluator_s", seconds), text("winner", "kernel", code=True, link=KERNEL),
        text("ended", "reason"), text("run", "run", code=True),
    ]  # fmt: skip
    told = Words(
        "Own: by the search's own verdicts. A cell without a winner has the naive kernel alone, or nothing yet."
    )
    rows, query = seen.rows("comparison.cell_rows"), seen.query("comparison.cell_rows")
    table = Table("Cells", columns, rows, query, empty="No cell is begun yet.")
    return Section("Cells", [told, table], "cells")


def _winner_sections(seen: ComparisonMaterial) -> Iterator[Section]:
    """Task by task all distinct winners as they were judged, beside naive and the library."""
    rows = seen.rows("comparison.winner_rows")
    told = Words(
        "Distinct winners of every task, judged anew in turns with the naive kernel and the vendor's library at sizes "
        "drawn after the searches, then at those that were searched, and then in turns with the one that came out "
        "fastest. Times are geometric means over workloads; over library or over "
        "the fastest: above 1x it is faster than that."
    )
    yield Section("Winners", [told] if rows else [Words("No cell has a winner of its own yet.")], "winners")
    columns = [
        text("kernel", "kernel", code=True, link=KERNEL), text("of", "cells"), text("verdict", "verdict"),
        number("speedup", "speedup", ratio), bounds("95 % interval", "speedup_low", "speedup_high"),
        number("at searched sizes", "searched", ratio),
        number("time", "latency_us", time_us), number("naive", "naive_us", time_us),
        number("library", "library_us", time_us), number("over library", "over_library", ratio),
        text("rivals not tried", "untried"),
        number("over fastest", "over_fastest", ratio), bounds("95 % interval", "over_fastest_low", "over_fastest_high"),
        text("message", "message", code=True),
    ]  # fmt: skip
    sources = _sources(seen)
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        table = Table(f"Winners at {task}", columns, own, seen.query("comparison.winner_rows"))
        blocks: list[Block] = [table, _times(seen, task)]
        blocks += [sources[row["kernel_id"]] for row in own if row["kernel_id"] in sources]
        yield Section(task, blocks, inner=True)


def _times(seen: ComparisonMaterial, task: str) -> Table:
    rows = [row for row in seen.rows("comparison.time_rows") if row["task"] == task]
    columns = [
        text("kernel", "kernel", code=True), text("sizes", "sizes"), text("workload", "workload"),
        number("time", "latency_us", time_us),
        number("naive", "naive_us", time_us), number("library", "library_us", time_us),
        number("speedup", "speedup", ratio), bounds("95 % interval", "speedup_low", "speedup_high"),
        number("pairs", "pairs", count),
    ]  # fmt: skip
    query = seen.query("comparison.time_rows")
    return Table("Workload by workload", columns, rows, query, folded=True, empty="Nothing was timed.")


def _sources(seen: ComparisonMaterial) -> dict[str, Block]:
    """Winners' files by kernel id, the fastest of every task first, as far as there is room."""
    known = {row["kernel_id"]: row for row in seen.rows("comparison.sources")}
    places: dict[str, int] = {}
    ranked = []
    for row in seen.rows("comparison.winner_rows"):
        places[row["task"]] = place = places.get(row["task"], -1) + 1
        ranked.append((place, row))
    found: dict[str, Block] = {}
    room = MOST_SOURCES
    for _, row in sorted(ranked, key=lambda each: each[0]):
        if kernel := known.get(row["kernel_id"]):
            file = with_defaults(kernel["source"], json.loads(kernel["values_json"]))
            query = seen.query("comparison.source", kernel=row["kernel_id"])
            room -= len(file)
            shown = file if room >= 0 else "(left out for the size of this report; the query below has it)"
            title = f"{row['kernel']}, of {row['cells']}: source"
            found[row["kernel_id"]] = Listing(title, shown, f"{KERNEL}{row['kernel']}", query)
    return found


def _failures(seen: ComparisonMaterial) -> Section:
    columns = [
        text("arm", "arm"), text("kind", "status"), number("kernels", "count", count),
        text("one message", "example", code=True),
    ]  # fmt: skip
    told = Words("Of all that was proposed; no_child: answers that led to no kernel. Slower kernels are no failures.")
    rows, query = seen.rows("comparison.failures"), seen.query("comparison.failures")
    table = Table("Failures by kind", columns, rows, query, empty="Nothing failed.")
    return Section("Failures", [told, table], "failures")


def _checks(seen: ComparisonMaterial) -> Section:
    """Whether arms were kept apart, and what winners were judged on."""
    found = seen.hermetic
    row = {"cells": found.cells, "prompts": found.prompts, "kernels": found.kernels, "leaks": len(found.leaks)}
    shown: list[tuple[str, str, Callable[[Any], str]]] = [
        ("cells", "cells", count), ("prompts read", "prompts", count), ("kernels of others", "kernels", count),
        ("leaks", "leaks", count),
    ]  # fmt: skip
    columns = [number(title, name, show, computed=True) for title, name, show in shown]
    leaked = [text("run", "run", code=True), text("request", "request_id", code=True), text("what", "what", code=True)]
    shapes = [
        text("task", "task"), number("hidden shapes drawn", "hidden", count),
        number("timed sizes drawn", "timed", count),
    ]  # fmt: skip
    blocks: list[Block] = [
        Words(f"{found}.".replace("check hermetic", "Check hermetic, of what each cell was told of others", 1)),
        Table("Check hermetic", columns, [row], program=hermetic_program(seen)),
    ]
    if found.leaks:
        blocks.append(Table("Leaks", leaked, [vars(leak) for leak in found.leaks]))
    record = "Check record: FAILED." if seen.faults else "Check record: passed."
    seals = f"{record} Registration {seen.begun.digest}, last line of the record {seen.record or '(none)'}."
    blocks.append(Words(seals, [*seen.faults]))
    blocks.append(Table(
        "Sizes that were drawn for the judgement, near the operator's own", shapes,
        seen.rows("comparison.shapes"), seen.query("comparison.shapes"), empty="Nothing is judged yet.",
    ))  # fmt: skip
    return Section("Checks", blocks, "checks")


def _made_of(seen: ComparisonMaterial) -> Section:
    """The configuration, machines and versions."""
    columns = [
        text("kernel-evo", "engine_version"), text("machine", "host_json", code=True), number("cells", "cells", count),
        text("first began", "first_began"), text("last began", "last_began"),
    ]  # fmt: skip
    rows = seen.rows("comparison.hosts")
    devices = [text("target", "target"), text("device, as prompts tell of it", "device")]
    told = [{"target": target, "device": device.name} for target, device in seen.begun.devices.items()]
    return Section("What was compared", [
        Table("Versions and machines", columns, rows, seen.query("comparison.hosts"), empty="No cell is begun yet."),
        Table("Devices", devices, told),
        Listing(f"The whole configuration: {seen.folder / CONFIG}", seen.made.model_dump_json(indent=2)),
    ], "compared")  # fmt: skip


def _interval_of(summary: Summary) -> Row:
    known = math.isfinite(summary.high)
    return {"low": summary.low if known else None, "high": summary.high if known else None}


# --- programs --------------------------------------------------------------------------------------------------------


def arms_program(seen: ComparisonMaterial) -> Script:
    """Works out what `evo.compare.conclusions` says from the rows of a query."""
    return Script(f'''
from pathlib import Path

from evo.compare.cells import stored
from evo.compare.conclusions import concluded
from evo.compare.inference import Outcome
from evo.folders import find_runs
from evo.store import query

folder = Path({str(seen.folder)!r})
rows = query(find_runs(folder.parent, {seen.where!r}), """
{asked(seen.made, "comparison.outcome_rows")}
""").to_pylist()
# Sign-flip test over families of operators, intervals of what it does not reject, Bonferroni over arms.
found = concluded(stored(folder), [Outcome(**row) for row in rows], {seen.found.cells})
for each in (*found.summaries, *found.effects):
    print(each)
''')


def curves_program(seen: ComparisonMaterial) -> Script:
    """Works out the bands of curves."""
    return Script(f"""
from pathlib import Path

from evo.compare.cells import cell_results, stored
from evo.compare.conclusions import curves

folder = Path({str(seen.folder)!r})
results = [result for result in cell_results(folder) if result.curve]
found = curves(results, stored(folder).families)
for curve in found:
    print(curve.arm, curve.budget, curve.used, curve.log_speedup, curve.low, curve.high)
""")


def hermetic_program(seen: ComparisonMaterial) -> Script:
    """Checks anew what every cell was told."""
    return Script(f"""
from pathlib import Path

from evo.compare.leaks import hermetic

found = hermetic(Path({str(seen.folder)!r}))
print(found, *found.leaks, sep="\\n")
""")
