"""The history of a run: all that its driver stores, the order of asks and tells, and what each step teaches.

Every ask and every tell is numbered and committed before it counts. Told again in that order, they bring a new session
to where the last one ended: what was asked is what is stored, whatever a strategy would ask today.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evo import rows as records
from evo.budget import Budget
from evo.individual import WITHOUT_KERNEL, Individual, is_naive
from evo.rows import Row, Rows
from evo.search.task import Outstanding, Parents, TakenProfile, TaskState, bind
from evo.search.watchdog import Watchdog
from evo.store.reads import Journal, rows_of
from evo.strategies.base import Leader
from fitness.evaluation import Evaluation, Level, Status
from fitness.install import evo_command
from fitness.joint import fitted
from fitness.profiling.profiles import Profile
from mutators.base import Kind, Request
from operators.catalog import folders
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel

NOT_WANTED = 0
"""Number of requests that were wanted by an ask which no strategy answered: those of guests."""
FITTED = 1000
"""Number of a task's fastest kernels whose speedups are fitted, besides those that others were paired with."""
NO_EVALUATION = (Status.INVALID, Status.UNSUPPORTED)
"""Verdicts that are charged to no budget: the compiler saw nothing."""


@dataclass(frozen=True)
class Done:
    """A finished request: its individual and the rows to be committed with its tell."""

    state: TaskState
    individual: Individual
    rows: Rows
    profiled: TakenProfile | None = None
    """The profile that the request asked for, if it was taken now."""


class History:
    """The past of one run, which it alone makes longer: its owner asks, delivers and commits through it."""

    def __init__(
        self,
        states: dict[Task, TaskState],
        store: Journal,
        budget: Budget,
        *,
        workload_set: str,
        now: Callable[[], float],
        watchdog: Watchdog | None = None,
    ) -> None:
        """The `watchdog` hears that something moves with every commit."""
        self.states = states
        self.store = store
        self.now = now
        self.parents = Parents(store)
        """The kernels that requests were bound to."""
        self._budget = budget
        self._workload_set = workload_set
        self._watchdog = watchdog
        self._stored_kernels: set[str] = set()
        """Ids of kernels whose source the store has, or will have with a commit under way."""
        self.seq = 0
        """The place of the last ask, tell or profile."""
        for state in states.values():
            state.profile_notes.profiles.read = partial(self._profile, state.task)

    async def commit(self, rows: Rows, *, moves: bool = True) -> None:
        """Store rows for good. `moves` says whether they are a sign that the search gets on."""
        await asyncio.wrap_future(self.store.commit(rows))
        if moves and self._watchdog:
            self._watchdog.moved()

    async def note(self, kind: str, detail: Mapping[str, Any], *, task: Task | None = None, moves: bool = True) -> None:
        """Store an event."""
        await self.commit(records.event_rows(kind, detail, at=self.now(), task=task), moves=moves)

    def note_full(self, reason: str) -> None:
        """Have it stored that a disk is full; the row waits for room like all others. Any thread may call it."""
        self.store.commit(records.event_rows(records.WAITS, {"for": f"room on a disk: {reason}"}, at=self.now()))

    async def fail(self, state: TaskState, fault: str) -> None:
        """Leave a task alone whose operator is at fault: in this session, it may be mended by the next one."""
        if not state.fault:
            state.fault = " ".join(fault.split())
            await self._note_fault(state)

    async def begin(self, began: float, limits: Mapping[str, float] | None) -> None:
        """Store that a session began, what tasks the run is asked for, and what limits hold; None: as before."""
        detail = {"resumed": self.seq > 0, "tasks": [*map(str, self.states)], "budget": limits}
        await self.commit(records.event_rows("session", detail, at=began))
        for state in self.states.values():
            if state.fault:
                await self._note_fault(state)

    def kernel_rows(self, kernel: Kernel) -> Rows:
        """Return the row of a kernel that is not stored yet, or about to be; it is from now on."""
        if kernel.id in self._stored_kernels:
            return {}
        self._stored_kernels.add(kernel.id)
        return {"kernels": [records.kernel_row(kernel)]}

    # --- longer -----------------------------------------------------------------------------------------------------

    def ask(self, state: TaskState, wanted: int) -> tuple[list[Outstanding], Rows]:
        """Ask a strategy; return its requests with what is known of their parents now, and the rows to be committed."""
        requests = state.strategy.ask(wanted)
        if not requests:
            return [], {}
        rows = records.ask_rows(requests, seq=self._next(), wanted=wanted, at=self.now())
        return [bind(state, request) for request in requests], rows

    def invite(self, requests: Sequence[Request]) -> tuple[list[Outstanding], Rows]:
        """Take requests for guests of one task for asked, though no strategy did; return what `ask` does."""
        rows = records.ask_rows(requests, seq=self._next(), wanted=NOT_WANTED, at=self.now())
        return [bind(self._receive(request), request) for request in requests], rows

    async def deliver(self, arrived: Sequence[Done | TakenProfile]) -> None:
        """Commit tells and profiles in one transaction, then let them count in the same order."""
        # A request that waited for another's verdict on the same kernel is told after that one.
        ordered = sorted(arrived, key=lambda done: isinstance(done, Done) and done.individual.repeats)
        steps = [step for done in ordered for step in _steps(done)]
        rows = [self._rows(step) for step in steps]
        await self.commit(records.join(*rows))
        sound = [state for state in self.states.values() if not state.fault]
        leaders = {state.task: state.fastest for state in self.states.values()}
        for step, written in zip(steps, rows, strict=True):
            if isinstance(step, TakenProfile):
                self._charge(step.state, step.profile.seconds)
                step.state.profiled(step.kernel_id, step.profile)
            else:
                step.state.strategy.tell(step.individual)
                heard = self._count(step.state, step.individual)
                self._charge(step.state, written["proposals"][0]["evaluate_s"])
                for state, leader in heard:
                    state.strategy.hear(leader)
                self._remember(step)
        for state in sound:
            if state.fault:
                await self._note_fault(state)
        confirmed = {step.state.task for step in steps if isinstance(step, Done) and _confirms(step.individual)}
        for state in sound:
            if state.task in confirmed or state.fastest != leaders[state.task]:
                await self.fit(state)

    async def fit(self, state: TaskState) -> Row | None:
        """Fit the speedups of a task's kernels to all pairs known; return the row of the leader by that, if any."""
        task = str(state.task)
        pairs = map(records.pair_from, rows_of(self.store, "search.pairs", task=task, most=FITTED))
        if found := fitted(state.baseline.id, pairs):
            await self.commit({"fits": [records.fit_row(task, found, at=self.now())]}, moves=False)
        leader = next(iter(self.leaders(state.task)), None)
        state.fastest = (leader["stands_at"], leader["kernel_id"]) if leader else None
        return leader

    def leaders(self, task: Task | None = None) -> list[Row]:
        """Return the row of the fastest kernel of every task, or of this one, as it stands now."""
        return rows_of(self.store, "search.leaders", task=str(task) if task else None)

    def times_confirmed(self, task: Task, kernel_id: str) -> int:
        """Return how many confirmations looked at a kernel."""
        (row,) = rows_of(self.store, "search.times_confirmed", task=str(task), kernel=kernel_id)
        return int(row["times"])

    def beaten_champions(self) -> list[tuple[TaskState, str]]:
        """Return the ids of champions that tasks began with, never confirmed, where a new kernel is confirmed best."""
        rows = rows_of(self.store, "search.beaten_champions")
        return [(self.states[Task.parse(row["task"])], row["kernel_id"]) for row in rows]

    def profiled_again(self, row: Row) -> None:
        """Let a stored profile count."""
        state = self.states[Task.parse(row["task"])]
        state.profiled(row["kernel_id"], records.profile_from(row))
        self._charge(state, row["seconds"])

    def next_profile(self, rows: Iterable[Row]) -> list[Row]:
        """Return rows of a profile with the next place in the history."""
        seq = self._next()
        return [row | {"seq": seq} for row in rows]

    def _remember(self, done: Done) -> None:
        """Keep what was just told at hand, if it is what a child of the kernel would be asked with."""
        kernel, evaluation = done.individual.kernel, done.individual.evaluation
        if kernel is None or evaluation is None:
            return
        name = records.evaluation_id(done.individual.request, evaluation.level)
        if done.state.verdicts[kernel.id] == name:
            self.parents.told(kernel, evaluation, name)

    async def _note_fault(self, state: TaskState) -> None:
        await self.note(records.TASK_FAILED, {"reason": state.fault}, task=state.task)

    def _receive(self, request: Request) -> TaskState:
        """The state of a guest's task, which knows the guest from now on."""
        state, params = self.states[request.task], request.params
        state.invited += 1
        state.guests.add(Kernel(state.operator.name, request.task.target, params["source"], params["values"]).id)
        return state

    def _rows(self, step: Done | TakenProfile) -> Rows:
        """The rows to commit with its place in the history."""
        if isinstance(step, TakenProfile):
            return step.rows | {"profiles": self.next_profile(step.rows["profiles"])}
        seq = self._next()
        parents = step.rows["proposals"][0]["parents"]
        state, kernel = step.state, step.individual.kernel
        generation, is_new = state.born(parents, step.individual.request, kernel)
        verdict = step.individual.evaluation if kernel and kernel.id not in state.judged else None
        if kernel and verdict:
            state.judged.add(kernel.id)
        rows = records.placed(step.rows, generation=generation, is_new=is_new, verdict=verdict)
        return records.join(rows, records.tell_rows(step.individual, seq=seq, at=self.now()))

    def _next(self) -> int:
        self.seq += 1
        return self.seq

    def _charge(self, state: TaskState, seconds: float) -> None:
        """Charge what evaluators took for one request or profile."""
        self._budget.charge("evaluator_s", seconds)
        if state.task.target == "cuda":
            self._budget.charge("gpu_s", seconds)

    def _count(self, state: TaskState, individual: Individual) -> list[tuple[TaskState, Leader]]:
        """The part of a tell that a resume repeats itself; it returns who is to hear of a task's new leader."""
        state.told += 1
        leader_then = state.knowledge.best
        state.knowledge.told(individual)
        self._take_note(state, individual)
        if not state.relatives or individual.kernel is None or state.knowledge.best is leader_then:
            return []
        leader = state.leader(individual.kernel)
        return [(other, leader) for other in (state, *state.relatives.values())] if leader else []

    def _take_note(self, state: TaskState, individual: Individual) -> None:
        state.statuses[individual.status] += 1
        if not individual.unavailable and individual.request.kind not in WITHOUT_KERNEL:
            state.idle = 0 if individual.fresh else state.idle + 1
        if individual.unavailable and not individual.withdrawn:
            state.unavailable += 1
        if individual.undone:
            self._budget.undone += 1
        elif individual.fresh:
            self._budget.undone = 0
        kernel, evaluation = individual.kernel, individual.evaluation
        if kernel is None:
            return
        if evaluation is None:  # no verdict: it may be handed in again
            state.guests.discard(kernel.id)
            return
        self._count_judging(individual.request, evaluation)
        if is_naive(individual.request) and not evaluation.correct:
            state.fault = naive_fault(state.operator, state.task, evaluation, workload_set=self._workload_set)
        if individual.fresh and evaluation.correct and not is_naive(individual.request):
            state.took_screen(individual.seconds)
        standing, leader = evaluation.standing, state.fastest
        if individual.fresh and standing is not None and (leader is None or standing > leader[0]):
            state.fastest = standing, kernel.id
            state.fastest_by = individual.request.mutator or individual.request.kind.value
        if kernel.id not in state.verdicts or evaluation.status is not Status.DUPLICATE:
            state.verdicts[kernel.id] = records.evaluation_id(individual.request, evaluation.level)

    def _count_judging(self, request: Request, verdict: Evaluation) -> None:
        """Count what a verdict is charged as."""
        if verdict.status is Status.DUPLICATE:
            self._budget.duplicates += 1
        elif request.kind is Kind.TRIAL:
            self._budget.trials += 1
        elif verdict.status not in NO_EVALUATION:
            self._budget.charge("evaluations", 1)

    # --- again ------------------------------------------------------------------------------------------------------

    def restore(self, recall: Callable[[Individual], None]) -> list[Outstanding]:
        """Apply the stored asks and tells again; return the requests that were never told.

        `recall` hears of every individual.
        """
        outstanding: dict[str, Outstanding] = {}
        for seq, entry in records.history(partial(rows_of, self.store)):
            self.seq = max(self.seq, seq)
            if isinstance(entry, records.Asked):
                for request in self._ask_again(entry.rows):
                    outstanding[request.id] = bind(self.states[request.task], request)
            elif isinstance(entry, records.TellRow):
                recall(self._tell_again(entry.row))
                del outstanding[entry.row["request_id"]]
            else:
                self.profiled_again(entry.row)
        self._budget.undone = 0  # the machine may have time by now
        for state in self.states.values():
            state.judged = set(state.verdicts)
        for row in rows_of(self.store, "search.generations"):
            self.states[Task.parse(row["task"])].generations[row["kernel_id"]] = row["generation"]
        for row in self.leaders():  # as the end of that session left it
            self.states[Task.parse(row["task"])].fastest = row["stands_at"], row["kernel_id"]
        for row in rows_of(self.store, "search.confirmed"):
            self.states[Task.parse(row["task"])].took_confirm(row["kernel_id"], row["took_ms"] / 1e3)
        for row in rows_of(self.store, "search.full"):
            self.states[Task.parse(row["task"])].took_full(row["took_ms"] / 1e3)
        self._stored_kernels = {row["kernel_id"] for row in rows_of(self.store, "search.kernels")}
        return list(outstanding.values())

    def earlier_wall_s(self) -> float:
        """Return the time that earlier sessions took: each from its start to its last sign of life."""
        return float(sum(row["took_s"] for row in rows_of(self.store, "search.sessions")))

    def _ask_again(self, rows: list[Row]) -> list[Request]:
        """The requests of a stored ask."""
        state, requests = self.states[Task.parse(rows[0]["task"])], [*map(records.request_from, rows)]
        if rows[0]["wanted"] == NOT_WANTED:
            for request in requests:
                self._receive(request)
        else:
            state.strategy.asked(requests, rows[0]["wanted"])
        return requests

    def _tell_again(self, row: Row) -> Individual:
        individual = records.individual_from(row)
        state = self.states[individual.request.task]
        state.strategy.tell(individual)
        self._charge(state, row["evaluate_s"])
        for listener, leader in self._count(state, individual):
            listener.strategy.hear(leader)
        return individual

    def _profile(self, task: Task, kernel_id: str) -> Profile | None:
        """The kernel's profile in the store, which is there before it counts."""
        rows = rows_of(self.store, "kernels.profile", task=str(task), kernel=kernel_id)
        metrics = rows_of(self.store, "kernels.metrics", kernels=[kernel_id])
        return records.profile_with(rows[0], [m for m in metrics if m["task"] == str(task)]) if rows else None


def _confirms(individual: Individual) -> bool:
    evaluation = individual.evaluation
    return evaluation is not None and evaluation.correct and evaluation.level is Level.CONFIRMED


def _steps(done: Done | TakenProfile) -> list[Done | TakenProfile]:
    """The steps that count one after the other: a request for a profile is told first, then others know the profile
    too."""
    if isinstance(done, Done) and done.profiled:
        return [replace(done, profiled=None), done.profiled]
    return [done]


# --- a naive kernel that nothing can be compared with -----------------------------------------------------------------

MESSAGE_LENGTH = 300
WORDS = {
    Status.INVALID: "is refused before it is compiled",
    Status.COMPILE_ERROR: "does not compile",
    Status.UNSUPPORTED: "does not support what it must",
    Status.RUNTIME_ERROR: "does not run",
    Status.TIMEOUT: "takes too long",
    Status.WRONG: "is wrong",
    Status.QUARANTINED: "is quarantined",
}


def naive_fault(operator: Operator, task: Task, evaluation: Evaluation, *, workload_set: str) -> str:
    """Which kernel, its verdict, the message and what to do, in one line."""
    file = operator.ancestor("naive", task.target)
    message = " ".join(evaluation.message.split())
    if len(message) > MESSAGE_LENGTH:
        message = f"{message[:MESSAGE_LENGTH]}..."
    workloads = ("--workloads", workload_set) if workload_set else ()
    command = evo_command("evaluate", _name(operator), _shown(file), "--dtype", task.dtype, *workloads)
    return (
        f"the naive kernel {WORDS[evaluation.verdict]}, and all others are compared with it: {message}; mend "
        f"{_shown(file)}, see its whole verdict with `{command}`, then start a new run"
    )


def _name(operator: Operator) -> str:
    """The operator's name, or its folder, in the form that the command line takes."""
    if folders().get(operator.name) == operator.folder:
        return operator.name
    shown = _shown(operator.folder)
    return shown if "/" in shown else f"./{shown}"


def _shown(path: Path) -> str:
    """Relative to where we are, if it lies below."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
