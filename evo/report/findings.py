"""The first screen of a run's report: what was found per task, whether to trust it, where it came from, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from shlex import quote

from evo.api import Ancestor
from evo.charts.figures import by_task
from evo.report.amounts import counted, duration, usd
from evo.report.document import Findings, TaskFinding
from evo.report.run_data import Descent, Material, Row
from evo.report.run_kernels import anchor
from evo.report.status import TaskSummary
from fitness.words import interval, ratio, speedup, standing, time_us

FEW = 5
"""The most tasks that stand open; of more each is one line."""
MOST_STEPS, MOST_CHANGE = 8, 200
"""Steps of a lineage that are named; characters of a change that are told."""


def findings(seen: Material) -> Findings:
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
        is_open=len(order) <= FEW,
    )


def _finding(
    seen: Material, t: TaskSummary, descent: Descent | None, steps: list[Row], noise: Row | None, used: Row
) -> TaskFinding:
    path = descent.path if descent else ()
    parts = [
        ("Found", _found(t)), ("Beside the library", _library(t)), ("Change", _change(path)),
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


def _found(t: TaskSummary) -> str:
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
