"""The sections of a comparison's report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from evo.charts.drawing import Figure
from evo.compare.cells import CONFIG, spent
from evo.compare.conclusions import POINTS
from evo.compare.config import USED
from evo.compare.inference import FACTORS, THRESHOLDS, Summary
from evo.report.amounts import amount, count, dollars, probability, seconds, share
from evo.report.comparison import words
from evo.report.comparison.charts import bound, curve_figure, effect_figure, task_figure
from evo.report.comparison.data import Material
from evo.report.document import (
    KERNEL,
    Block,
    Column,
    Document,
    Figures,
    Listing,
    Section,
    Table,
    Words,
    bounds,
    level,
    made_of,
    number,
    text,
)
from evo.store.reads import Identifier
from fitness.words import ratio, time_us
from operators.plan.defaults import with_defaults

MOST_SOURCES = 4_000_000
"""Characters of winners' files in a report; the fastest of every task come first."""
EVERY = 8
"""Points of a curve that make one row of its table."""

Row = dict[str, Any]


def document(seen: Material, now: float) -> Document:
    """The whole report; `now` is in seconds since 1970."""
    sections = [
        _result(seen), _arms(seen), _curves(seen), _used(seen), _cells(seen), *_winners(seen), _failures(seen),
        _checks(seen), _made_of(seen), Section("How to read this", [Words(items=words.HOW_TO_READ)], "how-to-read"),
    ]  # fmt: skip
    return Document(
        f"Comparison {seen.made.name}", words.told(seen), [*words.notices(seen)], sections,
        made_of(seen.folder, now),
    )  # fmt: skip


def _result(seen: Material) -> Section:
    """The primary endpoint."""
    found, reference = seen.found, seen.found.reference
    beside = {effect.arm: effect for effect in found.effects}
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
    blocks: list[Block] = [Words(items=[words.verdict(effect) for effect in found.effects])]
    if found.effects:
        figure = effect_figure(found.effects, seen.arms, found.difference)
        blocks.append(Figures(seen.series(effect.arm for effect in found.effects), [figure]))
    blocks.append(Table(
        f"Arms beside {reference}, at equal {USED[seen.made.limit[0]]}", columns, rows,
        seen.query("comparison.beside_reference"), words.arms_program(seen) if rows else None,
        empty="Nothing is judged that could be compared.",
    ))  # fmt: skip
    own = [
        text("arm", "arm"), text("operator", "operator"), text("family", "family", computed=True),
        number("cells", "pairs", count), number("with a winner", "found", count), number("ratio", "ratio", ratio),
        number("at searched sizes", "searched", ratio),
    ]  # fmt: skip
    families = seen.begun.families
    blocks.append(Table(
        "The same, operator by operator: what the test is about", own,
        [row | {"family": families[row["operator"]]} for row in seen.rows("comparison.operators_beside")],
        seen.query("comparison.operators_beside"), folded=True,
    ))  # fmt: skip
    return Section("Result", blocks, "result")


def _arms(seen: Material) -> Section:
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
        "Arms by themselves", columns, rows, seen.query("comparison.arms"), words.arms_program(seen) if rows else None,
        empty="No winner is judged yet.",
    )  # fmt: skip
    blocks: list[Block] = [told, table]
    judged = [row for row in seen.rows("comparison.cell_rows") if row["judged_speedup"] is not None]
    if judged:
        blocks.append(Figures(seen.series(seen.arms), [task_figure(judged, seen.arms)]))
    return Section("Arms by themselves", blocks, "arms")


def _curves(seen: Material) -> Section:
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
            words.curves_program(seen), folded=True,
        ))  # fmt: skip
    told = Words(
        "Geometric means of the best so far, by the searches' own verdicts, against what a cell had used by then. A "
        "cell that has ended keeps its last value. Bands are pointwise 95 % intervals over operators and seeds."
    )
    if not figures:
        return Section("Best so far", [Words("No cell has judged anything yet.")], "curves")
    return Section("Best so far", [told, Figures(seen.series(seen.arms), figures), *tables], "curves")


def _used(seen: Material) -> Section:
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


def _cells(seen: Material) -> Section:
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


def _winners(seen: Material) -> Iterator[Section]:
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


def _times(seen: Material, task: str) -> Table:
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


def _sources(seen: Material) -> dict[str, Block]:
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


def _failures(seen: Material) -> Section:
    columns = [
        text("arm", "arm"), text("kind", "status"), number("kernels", "count", count),
        text("one message", "example", code=True),
    ]  # fmt: skip
    told = Words("Of all that was proposed; no_child: answers that led to no kernel. Slower kernels are no failures.")
    rows, query = seen.rows("comparison.failures"), seen.query("comparison.failures")
    table = Table("Failures by kind", columns, rows, query, empty="Nothing failed.")
    return Section("Failures", [told, table], "failures")


def _checks(seen: Material) -> Section:
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
        Table("Check hermetic", columns, [row], program=words.hermetic_program(seen)),
    ]
    if found.leaks:
        blocks.append(Table("Leaks", leaked, [leak.as_row() for leak in found.leaks]))
    record = "Check record: FAILED." if seen.faults else "Check record: passed."
    seals = f"{record} Registration {seen.begun.digest}, last line of the record {seen.record or '(none)'}."
    blocks.append(Words(seals, [*seen.faults]))
    blocks.append(Table(
        "Sizes that were drawn for the judgement, near the operator's own", shapes,
        seen.rows("comparison.shapes"), seen.query("comparison.shapes"), empty="Nothing is judged yet.",
    ))  # fmt: skip
    return Section("Checks", blocks, "checks")


def _made_of(seen: Material) -> Section:
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
