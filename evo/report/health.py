"""The health of a run, and the causes of bad health: from its store, its disk, and whether its process lives.

Before a run begins it is the reach of its budget: by the pace of earlier runs here, else by the operators' sizes.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evo.api import Run
from evo.config import RunConfig
from evo.folders import DATABASE
from evo.report.amounts import listed, of_budget
from evo.report.status import NOT_BEGUN, open_questions, outages, problems, resuming, summary
from evo.report.terminal import Field, Fitted, lack_line
from evo.store import StoreError
from fitness.install import evo_command
from fitness.profiling.roofline import traffic
from fitness.targets import devices
from fitness.words import counted, duration, interval, ratio
from operators.definition.spec import Operator, Task
from operators.errors import OperatorError, UserError

State = Literal["running", "finished", "stopped", "failed", "died", "not begun"]

LEAST_FREE = 2**30
"""Bytes that a disk should have left for a run that goes on."""
STALL_S = 120.0
"""The setting `stall_s` of runs that do not say."""
SILENT, BARREN = 2, 20
"""Multiples of `stall_s` that may pass without any sign of life, and without a verdict."""
LOST_S, MOST_LOST = 600.0, 3
"""Seconds, and the number of workers whose loss within them is a finding."""
LEAST_TIMINGS, MOST_UNRESOLVED = 8, 1 / 3
"""Timings from which a machine is judged, and the share of them that may leave a difference of 22 % open."""


@dataclass(frozen=True)
class HealthFinding:
    """Something that is wrong with a run."""

    cause: Literal["died", "failed", "unbegun", "operator", "provider", "alarm", "silent", "workers", "disk", "noise"]
    told: str
    """The fault and its remedy, in a line."""


@dataclass(frozen=True)
class Health:
    """State of a run."""

    state: State
    reason: str
    """Why it ended; empty where it did not, or did not say."""
    verdict_s: float | None
    """Seconds since the last verdict; None where there is none yet."""
    findings: tuple[HealthFinding, ...]
    waits: str = ""
    """The event that a run which goes on waits for, as long as nothing moves."""

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def line(self) -> str:
        """The state in one line."""
        verdict = "no verdict yet" if self.verdict_s is None else f"last verdict {duration(self.verdict_s)} ago"
        state = f"{self.state} ({self.reason})" if self.reason else self.state
        state += f", waits for {self.waits}" if self.waits else ""
        return f"{'healthy' if self.is_healthy else 'unhealthy'}: {state}, {verdict}"


def health(run: Run, *, now: float | None = None, free_bytes: int | None = None) -> Health:
    """The state of the run; `now` by `time.time`, the disk's free bytes as given, or as they are.

    It raises StoreError where the run cannot be read.
    """
    now = time.time() if now is None else now
    state, reason = state_of(run)
    last = _last(run)
    free = shutil.disk_usage(run.folder).free if free_bytes is None else free_bytes
    findings = [*_of_state(run.folder, state, reason), *_of_tasks(run), *_of_models(run), *_of_noise(run)]
    if state == "finished":
        findings += _of_lack(run)
    if state == "running":
        findings += _of_time(run, last, now)
    if state in ("running", "died") and free < LEAST_FREE:
        findings.append(HealthFinding("disk", f"only {free >> 20} MiB are free where the run lies: make room"))
    verdict = last["verdict"]
    waits = _waits(run) if state == "running" else ""
    return Health(state, reason, None if verdict is None else max(now - verdict, 0.0), tuple(findings), waits)


def state_of(run: Run) -> tuple[State, str]:
    """Whether a run goes on, and why it ended. A run whose process ended without a word has died."""
    if run.is_running:
        return "running", ""
    rows = run.rows("health.endings")
    if not rows:
        return "not begun", ""
    kind = rows[-1]["kind"]
    if kind == "session":  # one may have begun since the first look
        return ("running", "") if run.is_running else ("died", "")
    return kind, "" if kind == "stopped" else str(json.loads(rows[-1]["detail_json"]).get("reason", ""))


def _last(run: Run) -> dict[str, Any]:
    """When, in seconds, there was last a verdict, any sign of life, and a session that began."""
    (row,) = run.rows("health.last")
    return {**row, "stall_s": float(settings(row.pop("config_json")).get("stall_s", STALL_S))}


def settings(config_json: str | None) -> dict[str, Any]:
    """A run's stored settings, as far as they are any. It raises StoreError for what is no table of them."""
    try:
        found = json.loads(config_json or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StoreError("the settings that the run was stored with cannot be read (runs.config_json)")
    return found


def _waits(run: Run) -> str:
    """The event that the search last said it waits for, unless a result came since."""
    (row,) = run.rows("health.waits")
    return row["what"] or ""


def _of_state(folder: Path, state: State, reason: str) -> Iterator[HealthFinding]:
    if state == "failed":
        yield HealthFinding(
            "failed", f"it ended by a fault ({reason}); nothing is lost, go on with: {evo_command('resume', folder)}"
        )
    if state == "died":
        yield HealthFinding(
            "died", f"its process ended without a word; nothing is lost, go on with: {evo_command('resume', folder)}"
        )


def _of_tasks(run: Run) -> Iterator[HealthFinding]:
    for task, reason in problems(run).items():
        yield HealthFinding("operator", f"{task} is left alone: {reason}")


def _of_lack(run: Run) -> Iterator[HealthFinding]:
    lacking = [task for task in summary(run) if task.state == NOT_BEGUN] if run.rows("status.unbegun") else []
    if lacking:
        yield HealthFinding("unbegun", lack_line(lacking, len(run.tasks)))


def _of_models(run: Run) -> Iterator[HealthFinding]:
    for out in outages(run):
        yield HealthFinding("provider", f"model {out.model} does not answer since {out.since}: {out.error}")


def _of_noise(run: Run) -> Iterator[HealthFinding]:
    rows = run.query("noise").to_pylist()
    timings, unresolved = (sum(row[name] for row in rows) for name in ("timings", "unresolved"))
    if timings >= LEAST_TIMINGS and unresolved > MOST_UNRESOLVED * timings:
        lows, highs = ([row[name] for row in rows if row[name]] for name in ("self_low", "self_high"))
        beside = f"; the naive kernel beside itself: {interval(min(lows), max(highs))}" if lows else ""
        yield HealthFinding(
            "noise",
            f"the machine is too noisy for what is asked: {unresolved} of {timings} timings cannot tell a kernel from "
            f"one 22 % faster or slower{beside}. Let nothing else run on it and measure the leaders again: "
            f"{evo_command('resume', run.folder)} --confirm",
        )


def _of_time(run: Run, last: dict[str, Any], now: float) -> Iterator[HealthFinding]:
    """Findings on a run that goes on and lacks something."""
    stall_s, life, began = last["stall_s"], last["life"], last["began"] or now
    events = run.rows("health.alarms", since=min(now - LOST_S, life or 0.0))
    alarms = [row for row in events if row["kind"] != "worker_lost" and row["at"] > (life or 0.0)]
    if alarms:
        what = (
            "what was stuck was restarted" if any(row["kind"] == "restart" for row in alarms) else "an alarm was given"
        )
        yield HealthFinding("alarm", f"nothing has moved for {duration(now - (life or began))}; {what}")
    elif not open_questions(run):
        waited_s, barren_s = now - max(life or began, began), now - max(last["verdict"] or began, began)
        if waited_s > SILENT * stall_s:
            yield HealthFinding("silent", f"no sign of life for {duration(waited_s)}")
        elif barren_s > BARREN * stall_s:
            yield HealthFinding("silent", f"no verdict for {duration(barren_s)}")
    lost = sum(row["kind"] == "worker_lost" and row["at"] > now - LOST_S for row in events)
    if lost >= MOST_LOST:
        yield HealthFinding(
            "workers",
            f"{counted(lost, 'worker was', 'workers were')} lost in the last {duration(LOST_S)}; see evo doctor",
        )


UNREADABLE = "unreadable"
NAMED = 3
"""Operators that a row names."""
KINDS = ("wall_s", "evaluations", "tokens", "cost_usd")
"""The kinds of budget that a run uses up."""


def runs_in(runs: Path) -> list[dict[str, Any]]:
    """A row for each run and replay in the folder, the oldest first; of one that cannot be read, its name and why."""
    return [_row(path.parent) for path in sorted(runs.glob(f"*/{DATABASE}"))]


def _row(folder: Path) -> dict[str, Any]:
    try:
        with Run(folder) as run:
            state, reason = state_of(run)
            (row,) = run.rows("health.use")
        budget = limits(row)
    except UserError as error:
        return {"run": folder.name, "state": UNREADABLE, "reason": str(error)}
    row["tasks"] = row["tasks"] or []
    rest = {name: value for name, value in row.items() if name not in (*KINDS, "config_json", "budget_json")}
    made = {"run": folder.name, "state": state, "reason": reason, **rest, "used": spent(row), "budget": budget}
    return made | {"goes_on_with": _goes_on(folder, made)}


LACKS = {"not_begun": "not begun", "nothing_correct": "without a correct kernel", "unconfirmed": "unconfirmed"}
"""Words for the states in which a task has no confirmed best kernel."""


def _goes_on(folder: Path, row: Mapping[str, Any]) -> str:
    """The command that goes on with what a run was asked for and lacks; empty where nothing lacks, or it goes on."""
    if row["state"] == "running" or not any(row[lack] for lack in LACKS):
        return ""
    if row["not_begun"] or row["nothing_correct"] or row["state"] != "finished":
        return resuming(str(folder), row["state"], row["budget"], row["reason"])
    return f"{resuming(str(folder), None, {})} --confirm"


def limits(row: Mapping[str, Any]) -> dict[str, float]:
    """The limits that hold now, those of the latest session that set any, from the answer to `health.use`."""
    told = row["budget_json"]
    found = json.loads(told) if told else settings(row["config_json"]).get("budget", {})
    return dict(found)


def spent(row: Mapping[str, Any]) -> dict[str, float]:
    """The use of a run by kind, from the answer to `health.use`."""
    return {kind: float(row[kind]) for kind in KINDS}


def runs_table(rows: Sequence[Mapping[str, Any]]) -> Fitted:
    """These rows for people."""
    fields = (
        Field("began (UTC)", "id", rank=2), Field("run", "name"), Field("tasks", "words", rank=1),
        Field("state", "words"), Field("certain"), Field("of", "name", rank=4), Field("used", "words", rank=3),
    )  # fmt: skip
    return Fitted(fields, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["state"] == UNREADABLE:
        return "", row["run"], "", f"{UNREADABLE}: {row['reason']}", "-", "", ""
    began = (row["began"] or "")[:16].replace("T", " ")
    return (
        began, row["run"], _tasks(row["tasks"]), _state(row), ratio(row["best_speedup"]), row["best_task"] or "",
        used(row["used"], row["budget"]),
    )  # fmt: skip


def _state(row: Mapping[str, Any]) -> str:
    """The state, and of a run of several tasks how many lack what."""
    several = LACKS if len(row["tasks"]) > 1 and row["state"] != "running" else {}
    return ", ".join([row["state"], *(f"{row[lack]} {words}" for lack, words in several.items() if row[lack])])


def _tasks(tasks: Sequence[str]) -> str:
    names = list(dict.fromkeys(task.partition("/")[0] for task in tasks))
    several = f"{counted(len(tasks), 'task')}: " if len(tasks) > 1 else ""
    return f"{several}{listed(names, NAMED)}"


def used(spent: Mapping[str, float], limits: Mapping[str, float]) -> str:
    """The use of a run, of each limit that it has: `26 s of 40 s, 6 evals, 0.12 USD`."""
    parts = []
    for kind in KINDS:
        amount, limit = of_budget(kind, spent.get(kind, 0.0)), limits.get(kind, math.inf)
        if spent.get(kind) or limit < math.inf:
            parts.append(f"{amount} of {of_budget(kind, limit)}" if limit < math.inf else amount)
    return ", ".join(parts)


# --- before a run begins ---------------------------------------------------------------------------------------------

MOST_EARLIER = 8
"""Earlier runs that are looked at, the newest first."""
LEAST_EVALUATIONS = 4
"""Evaluations of a run from which its pace says something."""
BEYOND_ANCESTORS = 8
"""Kernels that a search must judge for each task, besides those that it starts from, to have found anything."""
BASE_S = {"cpu": 2.0, "cuda": 1.5}
"""Assumed seconds of an evaluation of a small operator: to compile, to verify, and to time in pairs; of a GPU's, the
median over 133 tasks in a run on four H200s."""
GB_PER_S = {"cpu": 1.0, "cuda": 20.0}
"""Assumed rate at which an evaluation works through the bytes of its workloads, all checks and repetitions together."""


@dataclass(frozen=True)
class Pace:
    """Seconds of wall time that a run takes for each kernel that it judges."""

    seconds: float
    source: str
    """Where that is from, in words."""


def too_small(config: RunConfig, runs: Path) -> str:
    """Return how far a budget that is too small for its tasks will reach; empty where it is not."""
    tasks = config.tasks()
    needed = {task: len(config.ancestor_names(operator, task)) + BEYOND_ANCESTORS for operator, task in tasks}
    wall_s, evaluations = (config.budget.get(kind, math.inf) for kind in ("wall_s", "evaluations"))
    pace = _pace(runs, config, tasks) if wall_s < math.inf else Pace(0.0, "")
    in_time = wall_s / pace.seconds if pace.seconds else math.inf
    reached, wanted = min(in_time, evaluations), sum(needed.values())
    if reached >= wanted:
        return ""
    each = f" for each of {counted(len(tasks), 'task')}" if len(tasks) > 1 else ""
    few = f"the budget suffices for {reached / len(tasks):.2g} kernels or so{each}"
    little = f"below {wanted / len(tasks):.0f} a search finds little"
    if evaluations <= in_time:
        return f"{few}, and {little}: give {wanted}evals"
    fewer = ", or name fewer operators" if len(tasks) > 1 else ""
    why, wanted_s = f"at {pace.seconds:.2g} s a kernel, {pace.source}", wanted * pace.seconds
    limit = f"{math.ceil(wanted_s)}s" if wanted_s < 120 else f"{math.ceil(wanted_s / 60)}min"  # as --budget takes it
    return f"{few} ({why}), and {little}: give {limit}{fewer}"


def _pace(runs: Path, config: RunConfig, tasks: Sequence[tuple[Operator, Task]]) -> Pace:
    names = {operator.name for operator, _ in tasks}
    best: tuple[float, Pace] | None = None
    files = sorted(runs.glob(f"*/{DATABASE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files[:MOST_EARLIER]:
        try:
            (row,) = Run(file.parent).rows("health.use")
        except UserError:  # of another format, or being made
            continue
        told = settings(row["config_json"])
        seen = {task.partition("/")[0] for task in row["tasks"] or ()}
        if told.get("target", "cpu") != config.target or row["evaluations"] < LEAST_EVALUATIONS or not row["wall_s"]:
            continue
        alike = len(names & seen) / len(names | seen)
        if alike and (best is None or alike > best[0]):
            best = alike, Pace(spent(row)["wall_s"] / spent(row)["evaluations"], f"as in run {file.parent.name}")
    if best:
        return best[1]
    base_s, rate = BASE_S[config.target], GB_PER_S[config.target]
    assumed = [base_s + _gigabytes(config, *each) / rate for each in tasks]
    return Pace(sum(assumed) / len(assumed) / _judges(config.target), "assumed by the operators' sizes")


def _judges(target: str) -> int:
    """GPUs that judge beside each other; 1 where none is here, but perhaps on other machines."""
    try:
        return max(len(devices(target)), 1)
    except UserError:
        return 1


def _gigabytes(config: RunConfig, operator: Operator, task: Task) -> float:
    """The bytes that all workloads of a task move."""
    total = 0
    for workload in operator.workload_set(config.workload_set):
        try:
            total += traffic(operator, workload.dims, task.dtype).total
        except (OperatorError, KeyError):  # it hangs on the data
            continue
    return total / 1e9
