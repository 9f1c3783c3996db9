"""A run once more from what its store holds: the same requests, children and verdicts, or where they first differ.

Strategies, mutators and bookkeeping really work; language models, compilers and clocks are replaced by the stored
answers and evaluations. A new folder holds the outcome, which is a run like any other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from evo import rows as records
from evo.api import Run
from evo.budget import Budget
from evo.compatibility import check_tasks
from evo.config import RunConfig
from evo.individual import Individual
from evo.rows import Row, Rows, moment
from evo.search.execution import Execution, RunBenches
from evo.search.history import NOT_WANTED, Done, History
from evo.search.task import Outstanding, TakenProfile, TaskState, task_states
from evo.search.verdicts import Reached
from evo.session import run_row
from evo.store import Store, has_writer, open_reader
from evo.store.reads import Journal, own_query
from evo.workbench.recorded import rows_of_evaluation, rows_of_use, stored_result
from evo.workers.jobs import Found, Job
from evo.workers.pool import Undone
from mutators.base import Call, CallStatus, Kind, Message, Parent, Proposal, Request
from mutators.bench import Result, Tool
from mutators.llm.calls import cache_key
from mutators.llm.settings import LlmSettings
from mutators.llm.tools import content_of
from mutators.registry import propose
from operators.definition.spec import CHAMPIONS, Task
from operators.errors import UserError
from operators.identity import short
from operators.kernel import Kernel

COMMITS_UNDER_WAY = 64


class Different(Exception):
    """The replayed run left the tracks of the stored one; the text says where and how."""


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay."""

    run: str
    replay: str
    individuals: int
    """Equal ones, from the beginning."""
    difference: str
    """The first one, in words; empty: there is none."""

    @property
    def equal(self) -> bool:
        """Whether the two runs tell the same story."""
        return not self.difference


def replay(folder: Path, on_change: Callable[[Replay], None] = lambda _: None) -> ReplayResult:
    """Replay the run in `folder` into a new folder beside it. Raises UserError where there is nothing to replay yet."""
    if has_writer(folder):
        raise UserError(f"run {folder.name} goes on: stop it, or wait for its end, before it is repeated")
    with Run(folder) as then:
        run = then.rows("runs.run")
        if not run:
            raise UserError(f"{folder}: the run was stopped before it began; there is nothing to replay")
        config = RunConfig.from_json(run[0]["config_json"])
        check_tasks([row["task"] for row in then.rows("runs.tasks")], config)
        copy = _new_folder(folder)
        with Store(copy, create=True) as store:
            store.commit({"runs": [run_row(config, copy)]}).result()
            told, difference = asyncio.run(Replay(config, store, then, on_change).replay(folder.name))
    if difference:
        return ReplayResult(str(folder), str(copy), told, difference)
    return compare(folder, copy)


def _new_folder(folder: Path) -> Path:
    for number in range(1, 1000):
        copy = folder.absolute().with_name(f"{folder.absolute().name}-replay{'' if number == 1 else f'-{number}'}")
        try:
            copy.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"{copy}: cannot be made: {error.strerror}") from None
        return copy
    raise UserError(f"{folder}: too many replays beside it; remove some")


class Replay:
    """The driver with history in command: it asks and tells in the stored order, one thing at a time."""

    def __init__(self, config: RunConfig, store: Journal, then: Run, on_change: Callable[[Replay], None]) -> None:
        """`then` is the run that is replayed, `store` takes the new one."""
        self.budget = Budget(dict(config.budget))
        self.states = task_states(config)
        self.phase, self.waits = "replaying", ""
        self.pool = None
        self._store = store
        self._then = then
        self._on_change = on_change
        self._served: set[str] = set()
        """Ids of the calls whose answers were given again."""
        self._used: set[str] = set()
        """Keys of the uses of tools whose results were given again."""
        client = _Answers(config.llm, then, store, self._served) if config.llm else None
        self._ahead = _Ahead(store)
        self._history = History(self.states, self._ahead, self.budget, workload_set=config.workload_set, now=time.time)
        evaluator = _StoredEvaluator(then)
        tools = _ToolAnswers(then, store, self._history.kernel_rows, self._used)
        benches = RunBenches(tools, evaluator, evaluator, then.rows, time.time)
        self._execution = Execution(self._history, evaluator, client, benches, check=config.check)
        self._began = time.monotonic()

    async def replay(self, name: str) -> tuple[int, str]:
        """Return how many individuals were told, and the first difference in words (empty: none)."""
        await self._history.note("session", {"replayed": name})
        outstanding: dict[str, Outstanding] = {}
        told = 0
        try:
            for _, entry in records.history(self._then.rows):
                if isinstance(entry, records.Asked):
                    outstanding |= {asked.request.id: asked for asked in await self._ask_as_then(entry.rows)}
                elif isinstance(entry, records.TellRow):
                    await self._tell_as_then(entry.row, outstanding.pop(entry.row["request_id"]))
                    told += 1
                else:
                    await self._profiled_as_then(entry.row)
                self.budget.set_wall(time.monotonic() - self._began)
                self._on_change(self)
            await self._take_over()
        except Different as difference:
            return told, str(difference)
        finally:
            await self._history.note("finished", {"reason": "replayed"})
            await asyncio.wrap_future(self._ahead.last)
        return told, ""

    async def _ask_as_then(self, rows: list[Row]) -> list[Outstanding]:
        state = self.states[Task.parse(rows[0]["task"])]
        if rows[0]["wanted"] == NOT_WANTED:
            asked, written = self._history.invite([Request.from_json(row["request_json"]) for row in rows])
        else:
            asked, written = self._history.ask(state, rows[0]["wanted"])
        requests = [each.request for each in asked]
        for row, request in zip(rows, [*requests, *[None] * len(rows)], strict=False):
            if request is None or request.digest != row["digest"]:
                then, now = row["request_json"], request.to_json() if request else "nothing"
                raise Different(f"{row['request_id']}: the request differs: {_first_difference(then, now)}")
        await self._history.commit(written)
        return asked

    async def _tell_as_then(self, row: Row, asked: Outstanding) -> None:
        done = await self._execute(asked)
        if done.individual.digest != row["digest"]:
            self._explain(records.individual_from(row), done.individual)
        await self._history.deliver([done])

    async def _execute(self, asked: Outstanding) -> Done:
        if asked.request.kind is Kind.PROFILE:
            return await self._execution.profile(asked)
        proposal = self._champion(asked.request) or await self._execution.propose(asked)
        if proposal.kernel is None:
            return self._execution.without_kernel(asked, proposal)
        return await self._execution.judge(asked, proposal)

    def _champion(self, request: Request) -> Proposal | None:
        """A champion as it stood then, for a better kernel may stand in its file by now; None for other requests."""
        if request.kind is not Kind.ANCESTOR or not str(request.params["name"]).startswith(f"{CHAMPIONS}/"):
            return None
        rows = [row for row in self._then.rows("replay.proposal", request=request.id) if row["kernel_id"]]
        return Proposal(records.kernel_from(rows[0]), rows[0]["description"]) if rows else None

    def _explain(self, then: Individual, now: Individual) -> NoReturn:
        names = ("kernel", "status", "seconds", "cost_usd", "description", "failure", "text", "metrics")
        pairs = [(name, *(_shown(getattr(individual, name)) for individual in (then, now))) for name in names]
        found = [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]
        raise Different(f"{now.request.id}: the individual differs: {'; '.join(found) or 'its verdict'}")

    async def _profiled_as_then(self, row: Row) -> None:
        key = {"task": row["task"], "kernel": row["kernel_id"]}
        metrics = self._then.rows("kernels.metrics", kernels=[row["kernel_id"]])
        await self._history.commit(
            {
                "profiles": self._history.next_profile(self._then.rows("kernels.profile", **key)[:1]),
                "metrics": [each for each in metrics if each["task"] == row["task"]],
            }
        )
        self._history.profiled_again(row)

    async def _take_over(self) -> None:
        """Take over what belongs to no tell: last confirmations, and calls that led to nothing."""
        rows: Rows = {"events": self._then.rows("replay.no_library")}
        # A kernel's birth is the first sign of it: confirmations stay behind the requests themselves.
        at = moment(time.time())
        for final in self._then.rows("replay.last_confirmations"):
            rows = records.join(rows, rows_of_evaluation(self._then.rows, final["evaluation_id"], created_at=at))
        calls = self._then.rows("replay.calls")
        rows["llm_calls"] = [row for row in calls if row["call_id"] not in self._served]
        rows["llm_sent"] = self._then.rows("replay.sent")
        uses = self._then.rows("bench.uses")
        for key in dict.fromkeys(row["tool_key"] for row in uses if row["tool_key"] not in self._used):
            rows = records.join(rows, rows_of_use(self._then.rows, key, self._history.kernel_rows))
        await self._history.commit(rows)
        for state in self._history.states.values():
            await self._history.fit(state)


class _Ahead:
    """`Journal` whose writer waits for one of COMMITS_UNDER_WAY batches: what is lost can be replayed once more."""

    def __init__(self, store: Journal) -> None:
        self.folder, self.waits, self.notes = store.folder, store.waits, store.notes
        self.rows, self.outdate_snapshot, self.close = store.rows, store.outdate_snapshot, store.close
        self.last: Future[None] = _done()
        """The batch that was handed over last."""
        self._store = store
        self._commits = 0

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Future[None]:
        """See `Journal.commit`; most batches are taken for stored at once."""
        self.last = self._store.commit(rows)
        self._commits += 1
        return self.last if self._commits % COMMITS_UNDER_WAY == 0 else _done()


def _done() -> Future[None]:
    done: Future[None] = Future()
    done.set_result(None)
    return done


class _StoredEvaluator:
    """`evo.search.verdicts.VerdictSource` from an earlier run. New jobs and judgings there are none."""

    def __init__(self, then: Run) -> None:
        self._then = then

    @cached_property
    def _found(self) -> dict[str, list[Row]]:
        """By request, all at once: a query for each would read the whole table as often as it has rows."""
        return records.verdicts(self._then.rows)

    async def propose(self, state: TaskState, request: Request, parents: tuple[Parent, ...]) -> Proposal:
        """Return what the mutator makes of it now."""
        return await propose(request, parents, state.operator)

    async def evaluate(self, state: TaskState, request: Request, kernel: Kernel) -> tuple[Reached, ...]:
        """Return the stored verdicts of the request, least severe first, as if they were reached now.

        It raises Different where there are none.
        """
        found = self._found.pop(request.id, [])
        if not found and (lost := self._then.rows("replay.undone", request=request.id)):
            raise Undone(lost[0]["failure"])
        if not found:
            raise Different(f"{request.id}: {request.mutator} made kernel {_shown(kernel)}, and had none to offer then")
        if found[0]["kernel_id"] != kernel.id:
            then = short(found[0]["kernel_id"])
            raise Different(f"{request.id}: {request.mutator} made kernel {then} then, and {_shown(kernel)} now")
        return tuple(Reached(records.evaluation_from(row), time.time()) for row in found)

    async def profile(
        self, state: TaskState, request: Request, parent: Parent, evaluation_id: str
    ) -> tuple[Proposal, TakenProfile | None]:
        """Return the stored answer; the profile itself has a place of its own in the history."""
        rows = self._then.rows("replay.proposal", request=request.id)
        if not rows:
            raise Different(f"{request.id}: nothing is stored of this profile")
        row = rows[0]
        known = {"description": row["description"], "failure": row["failure"], "seconds": row["seconds"]}
        return Proposal(metrics=json.loads(row["metrics_json"]) if row["metrics_json"] else None, **known), None

    async def run(self, job: Job[Found]) -> Found:
        """See `evo.workers.jobs.Runs`."""
        raise Different(f"a dialogue has a job done that it had not then: {job}")

    def take(self) -> bool:
        """See `evo.workbench.recorded.Judgings`."""
        return False

    def give_back(self) -> None:
        """Nothing was taken."""


class _Answers:
    """`mutators.base.Client` from the calls of an earlier run."""

    def __init__(self, settings: LlmSettings, then: Run, store: Journal, served: set[str]) -> None:
        self._settings, self._then, self._store, self._served = settings, then, store, served

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        request: Request,
        role: str,
        model: str = "",
        sample: int = 0,
        tools: Sequence[Tool] = (),
    ) -> Call:
        """The stored answer, or the last failure where there never was one. Raises Different where there is neither."""
        model = model or self._settings.models[0]
        key = cache_key(self._settings, messages, request=request, model=model, sample=sample, tools=tools)
        rows = self._then.rows("replay.call", key=key)
        if not rows and sample:  # it may be one for which there was no more room
            cut = await self.complete(messages, request=request, role=role, model=model, sample=sample - 1, tools=tools)
            if cut.status is CallStatus.CUT:
                return cut
        if not rows:
            raise Different(
                f"{request.id}: {model} is asked for a {role} in other words{self._change(messages, request)}"
            )
        if rows[0]["call_id"] not in self._served:
            self._served.add(rows[0]["call_id"])
            self._store.commit({"llm_calls": rows})
        return records.CALL.item(rows[0])

    def _change(self, messages: Sequence[Message], request: Request) -> str:
        """The difference of the conversation from the stored one of as many messages."""
        rows = self._then.rows("replay.messages", request=request.id)
        earlier: list[list[Message]] = [json.loads(row["messages_json"]) for row in rows]
        for then in earlier:
            if len(then) == len(messages):
                texts = ("\n".join(map(content_of, each)) for each in (then, messages))
                return f": {_first_difference(*texts)}"
        return ", and there is no such conversation in the store"


class _ToolAnswers:
    """`evo.workbench.recorded.ToolCalls` from an earlier run."""

    def __init__(self, then: Run, store: Journal, kernel_rows: Callable[[Kernel], Rows], used: set[str]) -> None:
        self._then, self._store, self._kernel_rows, self._used = then, store, kernel_rows, used

    def find(self, tool_key: str) -> Result:
        """Return the stored result. It raises Different where there is none."""
        found = stored_result(self._then.rows, tool_key)
        if found is None:
            raise Different("a dialogue uses a tool that it did not use then, or uses it in another way")
        if tool_key not in self._used:
            self._used.add(tool_key)
            self._store.commit(rows_of_use(self._then.rows, tool_key, self._kernel_rows))
        return found

    async def add(self, rows: Rows, kernel: Kernel | None) -> None:
        """Nothing is new in a replay."""
        raise AssertionError("a replay uses no tool anew")


COMPARED = {
    "request": "replay.request", "individual": "replay.individual", "proposal": "replay.proposals",
    "verdict": "replay.verdict", "individual of the lineage": "replay.lineage", "answer": "replay.answer",
    "use of a tool": "replay.use", "migration": "replay.migration",
}  # fmt: skip
"""Queries of which two equal runs give the same rows, by the word for one row.

Fitted speedups are none of them: they follow from the verdicts, and a run that was stopped owes its last fit.
"""


def compare(folder: Path, other: Path) -> ReplayResult:
    """Whether two stores tell the same story, whenever it happened and however long it took."""
    told = 0
    with open_reader(folder) as first, open_reader(other) as second:
        for what, query in COMPARED.items():
            then, now = (connection.sql(own_query(query)).fetchall() for connection in (first, second))
            for number, pair in enumerate(zip(then, now, strict=False)):
                if pair[0] != pair[1]:
                    text = f"{what} {number + 1} differs: {_first_difference(*map(str, pair))}"
                    return ReplayResult(str(folder), str(other), number if what == "individual" else told, text)
            if len(then) != len(now):
                text = f"{len(then)} rows of kind {what} then, {len(now)} now"
                return ReplayResult(str(folder), str(other), told, text)
            told = len(then) if what == "individual" else told
    return ReplayResult(str(folder), str(other), told, "")


def _shown(value: Any) -> str:
    return short(value.id) if isinstance(value, Kernel) else str(value)


def _first_difference(then: str, now: str) -> str:
    """The first place where two texts differ, on one line."""
    place = next(
        (i for i, pair in enumerate(zip(then, now, strict=False)) if pair[0] != pair[1]), min(map(len, (then, now)))
    )
    start = max(place - 20, 0)
    return f"{then[start : place + 40]!r} then, {now[start : place + 40]!r} now"
