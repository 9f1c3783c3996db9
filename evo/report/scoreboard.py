"""A scoreboard of runs by sets of tasks: the figures that each set's community reports, and ours with intervals;
and the score of MSKernelBench."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from evo.api import Run
from evo.charts.figures import by_task
from evo.charts.roofline import placed, stored_peaks
from evo.config import RunConfig
from evo.report.document import Column, Document, Section, Table, bounds, level, made_of, number, text
from evo.report.status import Standing, standings
from fitness.evaluation import Z95, Evaluation
from fitness.words import ratio
from operators.catalog import load_among
from operators.definition.spec import Operator, Task, sets_of
from operators.errors import UserError
from operators.identity import short

OWN = "operators of kernel-evo"
FACTORS = (0.0, 0.8, 1.0, 1.5, 2.0)
"""The p of KernelBench's fast_p: the share of tasks that are right and more than p times as fast as torch."""
NOTE = (
    "Only confirmed kernels count, whose reference in torch was timed in pairs with them; a task without one counts as "
    "unsolved. fast_p: share of tasks more than p times as fast as that reference, and the shares that the 95 % "
    "intervals leave open. SOL score: mean of 1 / (1 + (T - T_sol) / (T_torch - T_sol)), where T_sol is this engine's "
    "roofline of the device. A task of several runs is told by the run where it is fastest beyond doubt."
)
PUBLISHED = "published"
"""The set of workloads that MSKernelBench has."""
P_NOTE = (
    "P = sum T(N) S(N) / sum T(N), with MSKernelBench's weights T, S over our baseline. That is not the paper's P: its "
    "baselines allocate memory in every call and often use a single block; ours do neither."
)


@dataclass(frozen=True)
class TaskScore:
    """Figures of one task's best kernel."""

    set: str
    task: str
    run: str
    kernel_id: str | None
    level: str | None
    best_us: float | None
    """The geometric mean over workloads."""
    over_naive: float | None
    over_naive_low: float | None
    over_naive_high: float | None
    over_torch: float | None
    """The reference's time in torch, or the vendor's library's, over the kernel's; None unless confirmed."""
    over_torch_low: float | None
    over_torch_high: float | None
    sol: float | None
    """The mean of SOL-ExecBench's score over workloads; None where peaks or the reference's times are not known."""

    @property
    def sure(self) -> float:
        """The speedup beyond doubt, by which a task's runs are ranked."""
        return self.over_torch_low or (self.over_naive_low or 0.0) * 1e-9


@dataclass(frozen=True)
class SetScore:
    """Figures of one set of tasks."""

    set: str
    tasks: int
    confirmed: int
    fast: dict[str, tuple[float, float, float]]
    """fast_p by p: by the best estimates, by the intervals' lower and by their upper ends."""
    over_torch: tuple[float, float, float] | None
    """The geometric mean over confirmed tasks with its 95 % interval, of measurement alone."""
    over_naive: tuple[float, float, float] | None
    sol: float | None


def task_scores(runs: Iterable[Run]) -> list[TaskScore]:
    """The figures of every task of some runs, each from the run where it stands best."""
    best: dict[str, TaskScore] = {}
    for run in runs:
        with run:
            for score in _of_run(run):
                key = f"{score.set} {score.task}"
                if key not in best or score.sure > best[key].sure:
                    best[key] = score
    return sorted(best.values(), key=lambda score: (score.set, score.task))


def _of_run(run: Run) -> Iterable[TaskScore]:
    found, config = standings(run), run.config
    places = config.get("operators", ())
    timed, limits = by_task(run.rows("report.roofline")), stored_peaks(config)
    for task in run.tasks:
        at = found[task][0] if task in found else Standing()
        points = placed(task, timed.get(task, ()), places, limits) if at.confirmed else []
        scores = [each for each in map(_sol, points) if each is not None]
        yield TaskScore(
            _set(task, places), task, run.id, at.kernel_id, at.level, at.best_us, at.speedup, at.speedup_low,
            at.speedup_high, at.against_library, at.against_library_low, at.against_library_high,
            sum(scores) / len(scores) if scores else None,
        )  # fmt: skip


def _set(task: str, places: Iterable[str]) -> str:
    """The set that a task's operator was imported from."""
    from operators.importing.folder import call_of  # it loads torch, for which a run's summary does not wait

    with suppress(UserError):
        return str(call_of(load_among(Task.parse(task).operator, places)).get("set", OWN))
    return OWN


def _sol(point: Mapping[str, Any]) -> float | None:
    reference, least, taken = point["library_us"], point["attainable_us"], point["latency_us"]
    if not reference or not least:
        return None
    if reference <= least:  # as the benchmark has it
        return 1.0 if taken <= least else 0.0
    return float(1 / (1 + (taken - least) / (reference - least)))


def set_scores(tasks: Sequence[TaskScore]) -> list[SetScore]:
    """The figures of each set."""
    sets: dict[str, list[TaskScore]] = {}
    for task in tasks:
        sets.setdefault(task.set, []).append(task)
    return [_set_score(name, of_set) for name, of_set in sets.items()]


def _set_score(name: str, tasks: Sequence[TaskScore]) -> SetScore:
    torch = [(t.over_torch, t.over_torch_low, t.over_torch_high) for t in tasks]
    sols = [task.sol for task in tasks if task.sol is not None]
    fast = {}
    for factor in FACTORS:
        point, low, high = (sum((each[end] or 0.0) > factor for each in torch) / len(tasks) for end in range(3))
        fast[f"{factor:g}"] = (point, low, high)
    return SetScore(
        name, len(tasks), sum(task.level == "confirmed" for task in tasks), fast, _mean(torch),
        _mean([(t.over_naive, t.over_naive_low, t.over_naive_high) for t in tasks if t.level == "confirmed"]),
        sum(sols) / len(sols) if sols else None,
    )  # fmt: skip


def _mean(ratios: Sequence[tuple[float | None, float | None, float | None]]) -> tuple[float, float, float] | None:
    """The geometric mean of those that are known, and its interval."""
    logs = [(math.log(x), math.log(high / low) / (2 * Z95)) for x, low, high in ratios if x and low and high]
    if not logs:
        return None
    mean, spread = sum(x for x, _ in logs) / len(logs), math.hypot(*(se for _, se in logs)) / len(logs)
    return math.exp(mean), math.exp(mean - Z95 * spread), math.exp(mean + Z95 * spread)


def as_data(tasks: Sequence[TaskScore]) -> dict[str, Any]:
    """The scoreboard for other programs."""
    return {"sets": [asdict(each) for each in set_scores(tasks)], "tasks": [asdict(each) for each in tasks]}


def document(tasks: Sequence[TaskScore], where: object, now: float) -> Document:
    """The scoreboard as a report; `now` is in seconds since 1970."""
    sets = [{**asdict(each), **_flat(each)} for each in set_scores(tasks)]
    shares = [column for p in FACTORS for column in _with_bounds(f"fast_{p:g}", f"fast_{p:g}", "{:.2f}".format)]
    means = [*_with_bounds("over torch", "over_torch", ratio), *_with_bounds("over naive", "over_naive", ratio)]
    sol = number("SOL score", "sol", "{:.2f}".format)
    of_sets = [
        text("set", "set"),
        number("tasks", "tasks", str),
        number("confirmed", "confirmed", str),
        *shares,
        *means,
    ]
    of_tasks = [
        text("set", "set"), text("task", "task"), level(), number("time, us", "best_us", "{:.1f}".format), *means, sol,
        text("kernel", "kernel", code=True), text("run", "run"),
    ]  # fmt: skip
    rows = [
        {**asdict(task), "flagged": "", "level": task.level or "nothing correct", "kernel": short(task.kernel_id)}
        for task in tasks
    ]
    tables = [Table("Sets of tasks", [*of_sets, sol], sets), Table("Tasks", of_tasks, rows)]
    return Document("Scores", NOTE, [], [Section("Scores", tables)], made_of(where, now))


def _flat(score: SetScore) -> dict[str, float]:
    """The figures of a set, each with its interval's ends, under names of their own."""
    named = {f"fast_{p}": found for p, found in score.fast.items()}
    named |= {name: found for name in ("over_torch", "over_naive") if (found := getattr(score, name))}
    ends = ("", "_low", "_high")
    return {f"{name}{end}": value for name, found in named.items() for end, value in zip(ends, found, strict=True)}


def _with_bounds(title: str, name: str, show: Callable[[Any], str]) -> list[Column]:
    return [number(title, name, show), bounds("95 %", f"{name}_low", f"{name}_high")]


# --- the score P of MSKernelBench -------------------------------------------------------------------------------------


def p_score(operator: Operator, speedups: Mapping[str, float]) -> float | None:
    """The weighted mean of speedups over the baseline, by workload name; None unless every published size has one."""
    published = [w for w in operator.workloads if w.set == PUBLISHED]
    if not published or any(w.name not in speedups for w in published):
        return None
    return sum(w.weight * speedups[w.name] for w in published) / sum(w.weight for w in published)


def p_of_evaluation(operator: Operator, evaluation: Evaluation) -> float | None:
    """The score of a kernel that was timed in pairs with the baseline itself."""
    return p_score(operator, {t.workload: math.exp(t.log_ratio) for t in evaluation.timings})


def ps_of_run(run: Run) -> dict[str, float]:
    """Scores by task of confirmed best kernels, which were timed beside the baseline, in runs of the published set."""
    if not (row := run.row):
        return {}  # it was stopped before it began
    config = RunConfig.from_json(row["config_json"])
    if PUBLISHED not in sets_of(config.workload_set):
        return {}
    timed: dict[str, dict[str, float]] = {}
    for row in run.rows("status.ratios"):
        timed.setdefault(row["task"], {})[row["workload"]] = math.exp(row["log_ratio"])
    found = {str(task): p_score(operator, timed.get(str(task), {})) for operator, task in config.tasks()}
    return {task: value for task, value in found.items() if value is not None}
