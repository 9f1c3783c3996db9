"""The status of each task of a run: its best kernel with figures of one pairing, and what became of the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields

from evo.api import Row, Run, StoredKernel
from evo.budget import UNDONE, doubled
from evo.individual import NO_CHILD, NO_PROGRAM, UNAVAILABLE, new_programs
from evo.report.amounts import budgeted, usd
from fitness.evaluation import Level, Status, named
from fitness.install import evo_command
from fitness.words import counted, duration
from operators.catalog import load
from operators.definition.spec import Operator
from operators.errors import UserError, unknown
from operators.importing.readers import FAMILY
from operators.libraries import called, kinds_in_words

CONFIRMED, UNCONFIRMED, NOTHING_CORRECT, NOT_BEGUN, REFUSED = (
    "confirmed", "unconfirmed", "nothing correct", "not begun", "refused",
)  # fmt: skip
NO_FAILURES = (Status.CORRECT.value, Status.SLOWER.value)
"""Fates of a candidate that are none."""
OF_TAKEN = (
    "times are from cold caches, launched without Python; expect less in your program, whose caches are warm: evo put "
    "times its calls with and without the kernel, and keeps the faster"
)
"""Words on the figures of an operator that was taken from a user's repository."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A task's best kernel. Every figure is of the verdict that counts, and so of one measurement:

    `best_us` is measured, the geometric mean over workloads of the kernel's median times; `speedup` is the geometric
    mean over workloads of the paired ratios, with its 95 % interval; `baseline_us` is their product. So baseline / best
    is the speedup, and just so library / best is `against_library`. A kernel that is not confirmed was paired with its
    anchor, whose own speedup is in `speedup` and widens the interval.
    """

    kernel_id: str | None = None
    level: str | None = None
    """The verdict's level; only `confirmed` means paired with the baseline, and the library, in fresh processes."""
    flagged: str = ""
    """Suspicions about the kernel; see `fitness.words`."""
    baseline_us: float | None = None
    best_us: float | None = None
    best_speedup: float | None = None
    """The speedup that is certain, by which it leads: of one that is not confirmed the lower end of its interval."""
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    library_us: float | None = None
    """The geometric mean over workloads of the times of each one's fastest call."""
    library: str = ""
    """The name of the library's call; where workloads have several, each with its own, as `A (w1, w2); B (w3)`."""
    library_kinds: str = ""
    """Classes of the calls that are no single calls of a vendor's, and whether rivals were not tried: `composed`,
    `partly compiled` and the like."""
    untried: str = ""
    """Names of rivals that were not tried, since it takes minutes to compile them."""
    against_library: float | None = None
    """Library time / best time. None where there is no library, or the best is not confirmed."""
    against_library_low: float | None = None
    against_library_high: float | None = None

    @property
    def confirmed(self) -> bool:
        """Whether the verdict is of the last level, paired with the baseline in fresh processes."""
        return self.level == Level.CONFIRMED.value


@dataclass(frozen=True, kw_only=True)
class TaskSummary(Standing):
    """One line of the table a run ends with."""

    task: str
    candidates: int
    """Programs that were new, of whatever fate."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Number of candidates that ended in each status."""
    failures: dict[str, int] = field(default_factory=dict)
    """The outcomes of candidates that failed: neither correct nor only slower."""
    duplicates: int
    """Children that were known already, as source or as machine code; they are no candidates."""
    no_child: int
    """Requests whose mutator had no child to offer."""
    unavailable: int = 0
    """Requests that a fault or the load of the machine, or of a model's provider, left without a verdict."""
    problem: str = ""
    """Why the task could not go on, such as a naive kernel that is wrong."""
    library_problem: str = ""
    """Why the library was not timed beside the best kernel."""
    state: str = ""
    """`confirmed`, `unconfirmed`, `nothing correct`, `not begun`, or `refused` for a problem."""
    why: str = ""
    """Why there is no confirmed best kernel; empty where there is one, or the search goes on."""
    goes_on_with: str = ""
    """The command that goes on with the task; empty where nothing lacks, or the search goes on."""


def summary(run: Run) -> list[TaskSummary]:
    """Every task that the run was asked for, those that were begun first."""
    best, faults, statuses = standings(run), problems(run), _statuses(run)
    unbegun = {row["task"] for row in run.rows("status.unbegun")}
    held = [] if run.is_running else run.rows("status.sessions")
    found = []
    for task in run.tasks:
        counts = statuses.get(task, {})
        outcomes = {s: n for s, n in counts.items() if s not in NO_PROGRAM}
        standing, library_problem = best.get(task, (Standing(), ""))
        state = _state(standing, refused=task in faults, begun=task not in unbegun)
        why, command = _lack(run, state, faults.get(task, ""), held) if held and state != CONFIRMED else ("", "")
        found.append(
            TaskSummary(
                **asdict(standing),
                task=task,
                candidates=new_programs(counts),
                outcomes=outcomes,
                failures={s: n for s, n in outcomes.items() if s not in NO_FAILURES},
                duplicates=counts.get(Status.DUPLICATE.value, 0),
                no_child=counts.get(NO_CHILD, 0),
                unavailable=counts.get(UNAVAILABLE, 0),
                problem=faults.get(task, ""),
                library_problem=library_problem,
                state=state,
                why=why,
                goes_on_with=command,
            )
        )
    return found


def _state(standing: Standing, *, refused: bool, begun: bool) -> str:
    if standing.kernel_id:
        return CONFIRMED if standing.confirmed else UNCONFIRMED
    return REFUSED if refused else NOTHING_CORRECT if begun else NOT_BEGUN


def _lack(run: Run, state: str, problem: str, held: list[Row]) -> tuple[str, str]:
    """Why a task lacks a confirmed best kernel when the run's sessions are over, and the command that goes on."""
    last = held[-1]
    if state == UNCONFIRMED and last["ended"] == "finished":
        return "for want of time", f"{evo_command('resume', run.folder)} --confirm"
    limits: dict[str, float] = next(
        (json.loads(row["budget_json"]) for row in reversed(held) if row["budget_json"]), {}
    )
    why = last["reason"] if last["ended"] == "finished" else last["ended"] or "its process ended without a word"
    return problem or why, resuming(str(run.folder), last["ended"], {} if state == REFUSED else limits, why)


def resuming(folder: str, ended: str | None, limits: Mapping[str, float], reason: str = "") -> str:
    """The command with which a run goes on: with twice the budget, if that was used up."""
    more = doubled(limits) if ended == "finished" and not reason.startswith(UNDONE) else ()
    return evo_command("resume", folder, *(word for limit in more for word in ("--budget", limit)))


def standings(run: Run) -> dict[str, tuple[Standing, str]]:
    """The standing of each task's best kernel, by task, and why its library was not timed where that is known."""
    return {row["task"]: (standing(row), row["lack"] or "") for row in run.rows("status.standings")}


def standing(row: Row) -> Standing:
    """The standing that a row of the view `standings` tells."""
    calls = row["calls"] or []
    names = {call["workload"]: called(call["library"], call["kind"]) for call in calls if call["library"]}
    shared = {field.name: row[field.name] for field in fields(Standing) if field.name in row}
    return Standing(
        **(shared | {"flagged": row["flagged"] or "", "untried": row["untried"] or ""}),
        library=named(names),
        library_kinds=kinds_in_words((call["kind"] for call in calls), untried=bool(row["untried"])),
    )


def problems(run: Run) -> dict[str, str]:
    """Why tasks could not go on in the latest session, by task."""
    return {row["task"]: json.loads(row["detail_json"])["reason"] for row in run.rows("status.problems")}


def taken_lines(run: Run) -> list[str]:
    """Return a line on the figures of each operator of a run that was taken from a user's repository."""
    lines = []
    for place in run.config.get("operators", ()):
        with suppress(UserError):
            if (operator := load(place)).family == FAMILY and _is_taken(operator):
                lines.append(f"{operator.name}: {OF_TAKEN}")
    return lines


def _is_taken(operator: Operator) -> bool:
    from operators.importing.folder import call_of  # it loads torch, for which other summaries do not wait

    return "into" in call_of(operator)


def _statuses(run: Run) -> dict[str, dict[str, int]]:
    """By task, how many requests ended in which status, the most frequent first."""
    found: dict[str, dict[str, int]] = {}
    for row in run.rows("status.statuses"):
        found.setdefault(row["task"], {})[row["status"]] = row["n"]
    return found


@dataclass(frozen=True)
class ModelCosts:
    """Calls and cost of the language models of a run, all of them together."""

    calls: int
    failed: int
    asked_anew: int
    """Questions to models outside that were taken back, to be asked about faster kernels; they are no calls."""
    tokens_in: int
    tokens_out: int
    cost_usd: float
    lost_tokens: int
    """Upper bound of what attempts without a known end were billed besides; counts against the budget."""
    lost_usd: float
    likely_lost_tokens: int
    """Tokens that were lost if these attempts took the part of their bound that answered calls of the model took."""
    likely_lost_usd: float
    doubted: int
    """Calls whose provider told a usage that cannot be, or none."""
    out: tuple[Outage, ...]
    """Models that did not answer any more at last."""


@dataclass(frozen=True)
class Outage:
    """A model that was put aside and has not answered since."""

    model: str
    since: str
    """ISO 8601, UTC."""
    error: str


def model_costs(run: Run) -> ModelCosts | None:
    """The cost of a run's language models; None where none was called."""
    (row,) = run.rows("status.cost")
    return ModelCosts(**row, out=outages(run)) if row["calls"] or row["asked_anew"] else None


def outages(run: Run) -> tuple[Outage, ...]:
    """Models that were put aside and have not answered since."""
    return tuple(Outage(**row) for row in run.rows("status.outages"))


def last_changes(run: Run) -> dict[str, float]:
    """By task, when its best kernel got the verdict that counts, in seconds since 1970."""
    return {row["task"]: row["at"] for row in run.rows("status.last_changes")}


def open_questions(run: Run) -> int:
    """The number of questions of a run that wait for answers from outside."""
    (row,) = run.rows("status.questions")
    return int(row["n"])


def best_of(run: Run, task: str, option: str = "") -> list[StoredKernel]:
    """The best kernels of tasks that begin so; where an `option` takes one, it is one. It raises UserError for none."""
    found = run.best(task)
    if not found:
        if task and not any(each.startswith(task) for each in run.tasks):
            raise UserError(f"run {run.id}: {unknown('task', task, run.tasks)}")
        raise UserError(f"run {run.id} has no correct kernel{f' of a task {task}...' if task else ''} yet")
    if option and len(found) > 1:
        raise UserError(f"{option} takes one kernel; choose with --task among {', '.join(k.task for k in found)}")
    return found


SHOWN = 5
"""Sessions that a status names, the latest."""


@dataclass(frozen=True)
class Sitting:
    """One session of a run."""

    began: str
    took_s: float
    ended: str | None
    """`finished`, `stopped`, `failed`; None: it goes on, or its process ended without a word."""
    reason: str
    judged: int
    """Kernels."""
    leaders: int
    """Tasks whose best kernel of now got its verdict in this session."""
    cost_usd: float
    budget_json: str | None = None
    """The limits of the whole run that held in it; None: it set none."""

    @property
    def line(self) -> str:
        """The session in one line."""
        ending = f"{self.ended}: {self.reason}" if self.reason and self.ended != self.reason else self.ended
        paid = f", {usd(self.cost_usd)}" if self.cost_usd else ""
        found = f"{counted(self.judged, 'kernel')} judged, {self.leaders} of today's leaders{paid}"
        limits = json.loads(self.budget_json or "{}")
        within = f" (budget {budgeted(limits)})" if limits else ""
        took = f"{duration(self.took_s)}{within}"
        return f"{self.began}, {took}: {found}; {ending or 'its process ended without a word'}"


def sessions(run: Run) -> list[Sitting]:
    """The sessions of the run, the oldest first."""
    return [Sitting(**row) for row in run.rows("status.sessions")]


def session_lines(run: Run) -> list[str]:
    """The latest sessions that have ended, as lines."""
    found = sessions(run)
    ended = found[:-1] if found and found[-1].ended is None and run.is_running else found
    return [sitting.line for sitting in ended[-SHOWN:]]
