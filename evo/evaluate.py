"""One kernel judged outside a run: its verdict in words and as JSON."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

from evo.config import DEFAULT_SETS
from fitness.evaluation import Evaluation, Timing, interval95, library_calls
from fitness.judging.base import Anchor
from fitness.judging.levels import judge
from fitness.judging.timing import LogRatio, mean, smallest_detectable
from fitness.profiling.profiles import Profile
from fitness.targets import fitness
from fitness.words import beside, digits, flags, of_bound, speedup, time_us
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.errors import UserError, unknown
from operators.files import read_text
from operators.kernel import Kernel
from operators.plan.reading import left_to_write

TARGET_OF = {".cpp": "cpu", ".cc": "cpu", ".cu": "cuda"}


def evaluate_file(
    operator_name: str,
    file: Path,
    *,
    target: str,
    dtype: str,
    values: Sequence[str],
    workload_set: str,
    profiled: bool = False,
) -> tuple[tuple[Evaluation, ...], Profile | None]:
    """Every level's evaluation, against the baseline, and a profile of a kernel that is correct.

    Raises UserError for what is not the kernel's own fault.
    """
    operator = load(operator_name)
    task = task_of(operator, target or target_of(file), dtype)
    kernel = Kernel(operator.name, task.target, source_of(file), dict(_setting(text) for text in values))
    naive = operator.ancestor("naive", task.target)
    baseline = Kernel(operator.name, task.target, source_of(naive))
    for each in (file, naive):
        if left := left_to_write(each, operator, task.target):
            raise UserError(left)
    with tempfile.TemporaryDirectory(prefix="evo-") as folder:
        stage = fitness(operator, task, workload_set=workload_set or DEFAULT_SETS[task.target], folder=Path(folder))
        try:
            built = stage.build(kernel)
            if isinstance(built, Evaluation):
                return (built,), None
            found = judge(stage, kernel, Anchor(baseline, 0.0, 0.0), race=False)
            profile = stage.profile(kernel, found[-1].timings) if profiled and found[-1].correct else None
            return found, profile
        finally:
            stage.close()


def target_of(file: Path) -> str:
    """The target that a kernel file's ending tells. It raises UserError."""
    if file.suffix not in TARGET_OF:
        raise UserError(
            f"{file}: say --target cpu or --target cuda; the ending {file.suffix or 'is missing and'} does not tell"
        )
    return TARGET_OF[file.suffix]


def task_of(operator: Operator, target: str, dtype: str) -> Task:
    """The task that an operator's name, a target and a dtype mean, by default its first one. It raises UserError."""
    if target not in DEFAULT_SETS:
        raise UserError(unknown("target", target, DEFAULT_SETS))
    offered = operator.dtypes.get(target, ())
    if not offered or (dtype and dtype not in offered):
        raise UserError(
            f"operator {operator.name} has {', '.join(offered) or 'no dtype'} on {target}, not {dtype or 'any'}"
        )
    return Task(operator.name, dtype or offered[0], target)


def source_of(file: Path) -> str:
    """The text of a kernel file. It raises UserError."""
    try:
        if file.exists() and not file.is_file():
            raise UserError(f"{file}: is not a regular file; name a kernel file, such as naive.cpp")
        return read_text(file)
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: is not UTF-8 text (byte {error.start + 1}); a kernel file is C++ source") from None


def _setting(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    try:
        if equals and name:
            return name.strip(), int(value)
    except ValueError:
        pass
    raise UserError(f"--value {text}: write NAME=INTEGER, such as --value TILE=32")


def profile_lines(profile: Profile) -> list[str]:
    """Notes, then metrics with their units."""
    metrics = [f"  {m.name} {m.value:.4g} {m.unit}".rstrip() for m in profile.metrics]
    return ["profile:", *(f"  {note}" for note in profile.notes), *metrics]


def verdict_lines(evaluations: Sequence[Evaluation]) -> list[str]:
    """The verdict in words, level after level."""
    lines: list[str] = []
    for e in evaluations:
        lines.append(beside(f"{e.level}: {e.status}", flags(e.facts)) + (f"\n  {e.message}" if e.message else ""))
        lines += [
            f"  {c.workload} {c.tensor} ({c.family}): worst error {of_bound(c.max_ratio)}, rms {digits(c.rms_ratio)}"
            for c in e.errors
        ]
        lines += [f"  {stage} {ms:.0f} ms" for stage, ms in e.stage_ms.items()]
    last = evaluations[-1]
    lines += [timing_line(t, "baseline") for t in last.timings]
    lines += [timing_line(t, "library") for t in last.library_timings]
    if last.library_lack:
        lines.append(f"the library was not timed: {last.library_lack}")
    if last.cell:
        lines.append(f"behaviour: {' '.join(last.cell)}; " + ", ".join(f"{k} {v}" for k, v in last.facts.items()))
    if last.log_speedup is not None and last.log_speedup_se is not None:
        seen = math.expm1(smallest_detectable(last.log_ratio_se or 0.0))
        lines.append(
            f"speedup {speedup(*interval95(last.log_speedup, last.log_speedup_se))} over the baseline; "
            f"a difference of {seen:.1%} would have been seen in 95 of 100 such measurements"
        )
    if last.library_timings:
        found = mean([LogRatio(t.log_ratio, t.log_ratio_se) for t in last.library_timings])
        calls = library_calls(last.library_timings)
        lines.append(f"{speedup(*interval95(found.value, found.se))} over the library" + f" ({calls})" * bool(calls))
        if untried := last.library_timings[0].untried:
            lines.append(f"not tried, for want of minutes, memory or a package, and perhaps faster: {untried}")
    return lines


def timing_line(timing: Timing, other: str) -> str:
    """One workload against the baseline or the library; the quotient of the two times is the ratio."""
    found = speedup(*interval95(timing.log_ratio, timing.log_ratio_se), f", {timing.pairs} pairs")
    return f"{timing.workload}: {time_us(timing.latency_us)}, {other} {time_us(timing.anchor_latency_us)}, {found}"
