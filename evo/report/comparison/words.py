"""Sentences of a comparison's report: verdicts, what must be known first, and how to read it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from evo.compare.cells import Standing
from evo.compare.config import USED
from evo.compare.inference import ArmVerdict, Effect, least_families, nothing_concluded
from evo.report.amounts import probability, several
from evo.report.comparison.data import Material, asked
from evo.report.document import Program
from fitness.words import digits, interval
from mutators.llm.settings import is_outside


def told(seen: Material) -> str:
    """One sentence about the whole."""
    made, (kind, amount) = seen.made, seen.made.limit
    tasks = len({cell.result.task for cell in seen.cells})
    arms = several(len(made.arms), "arm")
    return (
        f"{arms} at {several(tasks, 'task')} with {several(len(made.seeds), 'seed')} each, every cell with "
        f"{amount:,.10g} {USED[kind]}. Primary endpoint: the log speedup over naive of each cell's winner, judged "
        f"anew, beside the same cell of {made.reference_arm}; a failure counts as naive. Registered difference: "
        f"{100 * made.difference:.3g} %. Registration: {seen.begun.digest[:12]}."
    )


def notices(seen: Material) -> Iterator[str]:
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
        yield f"Intervals, and bands of curves, need operators of {least_families(1)} families; there are none here."
    if found.related:
        yield f"{found.related}: chance is over families, since what suits one operator suits its next of kin."


def _demonstration(seen: Material) -> Iterator[str]:
    arms = sorted(arm for arm in seen.made.arms if any(map(is_outside, seen.made.models_of(arm))))
    authors = sorted({row["author"] for row in seen.rows("comparison.models") if row["author"]})
    if arms or authors:
        by = f" (they called themselves {', '.join(authors)})" if authors else ""
        yield (
            f"Demonstration: answers to {', '.join(arms) or 'some questions'} were given from outside by people or "
            f"agents{by}, not by a model that can be asked again. Their tokens and dollars are what was told with "
            "them. It shows that the arms work, and is no measurement of any model."
        )


def _unfinished(seen: Material) -> Iterator[str]:
    counts = Counter(cell.result.standing for cell in seen.cells)
    if counts[Standing.FAILED]:
        results = [cell.result for cell in seen.cells if cell.result.standing is Standing.FAILED]
        shown = ", ".join(sorted({f"{result.arm} at {result.task}" for result in results})[:6])
        yield f"{counts[Standing.FAILED]} cells could not be searched, and are no part of any figure: {shown}."
    under_way = len(seen.cells) - counts[Standing.DONE] - counts[Standing.FAILED]
    if under_way:
        yield (
            f"Unfinished: {under_way} of {len(seen.cells)} cells are not over ({counts[Standing.NEW]} not begun), and "
            f"winners are judged when all are. Figures of arms below are of the {several(seen.found.judged, 'cell')} "
            "of tasks whose cells are all judged."
        )
    elif seen.found.judged < seen.found.cells:
        yield f"Unfinished: {seen.found.judged} of {seen.found.cells} cells are of tasks whose cells are all judged."
    if tasks := sorted({c.result.task for c in seen.cells if c.left_out and c.result.standing is Standing.DONE}):
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
        few = f"operators of {several(effect.families, 'family', 'families')}"
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


# --- programs --------------------------------------------------------------------------------------------------------


def arms_program(seen: Material) -> Program:
    """Works out what `evo.compare.conclusions` says from the rows of a query."""
    return Program(f'''
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


def curves_program(seen: Material) -> Program:
    """Works out the bands of curves."""
    return Program(f"""
from pathlib import Path

from evo.compare.cells import cell_results, stored
from evo.compare.conclusions import curves

folder = Path({str(seen.folder)!r})
results = [result for result in cell_results(folder) if result.curve]
found = curves(results, stored(folder).families)
for curve in found:
    print(curve.arm, curve.budget, curve.used, curve.log_speedup, curve.low, curve.high)
""")


def hermetic_program(seen: Material) -> Program:
    """Checks anew what every cell was told."""
    return Program(f"""
from pathlib import Path

from evo.compare.leaks import hermetic

found = hermetic(Path({str(seen.folder)!r}))
print(found, *found.leaks, sep="\\n")
""")
