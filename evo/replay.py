"""A run once more from what its store holds: the same requests, children and verdicts, or where they first differ.

Strategies, mutators and bookkeeping really work; language models, compilers and clocks are replaced by the stored
answers and evaluations. A new folder holds the outcome, which is a run like any other.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, cast

from evo import rows as records
from evo.budget import Budget
from evo.compatibility import ASKED_TASKS, check_tasks
from evo.config import RunConfig
from evo.individual import UNAVAILABLE, Individual
from evo.rows import Journal, Row, Rows, moment
from evo.search.execution import Execution, RunBenches
from evo.search.history import NOT_WANTED, Done, History
from evo.search.task import Bound, Outstanding, TaskState, task_states
from evo.search.verdicts import Reached, TakenProfile
from evo.session import run_row
from evo.store import Store, open_reader
from evo.workbench.recorded import rows_of_use, stored_result
from evo.workers.pool import Undone
from mutators.base import Call, CallStatus, Kind, Message, Parent, Proposal, Request
from mutators.bench import Result, Tool
from mutators.llm.calls import cache_key
from mutators.llm.settings import LlmSettings
from mutators.llm.tools import content_of
from operators.definition.spec import CHAMPIONS, Task
from operators.errors import UserError
from operators.kernel import Kernel

COMMITS_UNDER_WAY = 64
UNDONE = f"""
    select p.failure from proposals p join tells t using (request_id)
    where request_id = ? and t.status = '{UNAVAILABLE}' and t.kernel_id is not null
"""
"""Why no machine could judge a request's kernel."""
Read = Callable[..., list[Row]]
"""Rows of a query to the run that is replayed."""


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
        return not self.difference


def replay(folder: Path, on_change: Callable[[Replay], None] = lambda _: None) -> ReplayResult:
    """Replay the run in `folder` into a new folder beside it. Raises UserError where there is nothing to replay."""
    with open_reader(folder) as connection:

        def read(sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
            rows: list[Row] = connection.sql(sql, params=list(parameters)).to_arrow_table().to_pylist()
            return rows

        stored = read("select config_json from runs")
        if not stored:
            raise UserError(f"{folder}: the run was stopped before it began; there is nothing to replay")
        config = RunConfig.from_json(stored[0]["config_json"])
        check_tasks([row["task"] for row in read(ASKED_TASKS)], config)
        copy = _new_folder(folder)
        with Store(copy, create=True) as store:
            store.commit({"runs": [run_row(config, copy)]}).result()
            told, difference = asyncio.run(Replay(config, store, read, on_change).replay(folder.name))
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

    def __init__(self, config: RunConfig, store: Journal, read: Read, on_change: Callable[[Replay], None]) -> None:
        """`read` answers queries to the run that is replayed, `store` takes the new one."""
        self.budget = Budget(dict(config.budget))
        self.states = task_states(config)
        self.phase, self.waits = "replaying", ""
        self.pool = None
        self._store = store
        self._read = read
        self._on_change = on_change
        self._served: set[str] = set()
        """Ids of the calls whose answers were given again."""
        self._used: set[str] = set()
        """Keys of the uses of tools whose results were given again."""
        client = _Answers(config.llm, read, store, self._served) if config.llm else None
        self._history = History(
            self.states, store, self.budget, workload_set=config.workload_set, commit=self._commit, now=time.time
        )
        self._execution = Execution(store, _StoredVerdicts(read), client, time.time, check=config.check)
        tools = _ToolAnswers(read, store, self._execution.kernel_rows, self._used)
        nobody = cast(Any, None)  # every use is stored: there is neither anything to do nor to charge
        self._execution.benches = RunBenches(tools, cast(Any, object()), nobody, read, time.time)
        self._began = time.monotonic()
        self._pending: Future[None] | None = None
        self._commits = 0

    async def replay(self, name: str) -> tuple[int, str]:
        """Return how many individuals were told, and the first difference in words (empty: none)."""
        await self._commit(records.event_rows("session", {"replayed": name}, at=time.time()))
        outstanding: dict[str, Outstanding] = {}
        told = 0
        try:
            for _, entry in records.history(self._read):
                if isinstance(entry, records.Asked):
                    outstanding |= await self._ask_as_then(entry.rows)
                elif isinstance(entry, records.TellRow):
                    await self._tell_as_then(entry.row, *outstanding.pop(entry.row["request_id"]))
                    told += 1
                else:
                    await self._profiled_as_then(entry.row)
                self.budget.set_wall(time.monotonic() - self._began)
                self._on_change(self)
            await self._take_over()
        except Different as difference:
            return told, str(difference)
        finally:
            self._execution.close()
            await self._commit(records.event_rows("finished", {"reason": "replayed"}, at=time.time()))
            if self._pending:
                await asyncio.wrap_future(self._pending)
        return told, ""

    async def _ask_as_then(self, rows: list[Row]) -> dict[str, Outstanding]:
        state = self.states[Task.parse(rows[0]["task"])]
        if rows[0]["wanted"] == NOT_WANTED:
            asked, written = self._history.invite([Request.from_json(row["request_json"]) for row in rows])
        else:
            asked, written = self._history.ask(state, rows[0]["wanted"])
        requests = [request for request, _ in asked]
        for row, request in zip(rows, [*requests, *[None] * len(rows)], strict=False):
            if request is None or request.digest != row["digest"]:
                then, now = row["request_json"], request.to_json() if request else "nothing"
                raise Different(f"{row['request_id']}: the request differs: {_first_difference(then, now)}")
        await self._commit(written)
        return {request.id: (request, bound) for request, bound in asked}

    async def _tell_as_then(self, row: Row, request: Request, bound: Bound) -> None:
        done = await self._execute(self.states[request.task], request, bound)
        if done.individual.digest != row["digest"]:
            self._explain(records.individual_from(row), done.individual)
        await self._history.deliver([done])
        self._execution.remember(done)

    async def _execute(self, state: TaskState, request: Request, bound: Bound) -> Done:
        if request.kind is Kind.PROFILE:
            return await self._execution.profile(state, request, bound)
        proposal = self._champion(request) or await self._execution.propose(state, request, bound)
        if proposal.kernel is None:
            return self._execution.without_kernel(state, request, proposal)
        return await self._execution.judge(state, request, proposal)

    def _champion(self, request: Request) -> Proposal | None:
        """A champion as it stood then, for a better kernel may stand in its file by now; None for other requests."""
        if request.kind is not Kind.ANCESTOR or not str(request.params["name"]).startswith(f"{CHAMPIONS}/"):
            return None
        sql = "select * from proposals join kernels using (kernel_id) where request_id = ?"
        rows = self._read(sql, [request.id])
        return Proposal(records.kernel_from(rows[0]), rows[0]["description"]) if rows else None

    def _explain(self, then: Individual, now: Individual) -> NoReturn:
        names = ("kernel", "status", "seconds", "cost_usd", "description", "failure", "text", "metrics")
        pairs = [(name, *(_shown(getattr(individual, name)) for individual in (then, now))) for name in names]
        found = [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]
        raise Different(f"{now.request.id}: the individual differs: {'; '.join(found) or 'its verdict'}")

    async def _profiled_as_then(self, row: Row) -> None:
        key = [row["task"], row["kernel_id"]]
        where = "where task = ? and kernel_id = ? order by rowid"
        rows: Rows = {table: self._read(f"select * from {table} {where}", key) for table in ("profiles", "metrics")}
        if row["seq"] is not None:
            rows["profiles"] = self._history.next_profile(rows["profiles"][:1])
        await self._commit(rows)
        self._history.profiled_again(row)

    async def _take_over(self) -> None:
        """Take over what belongs to no tell: last confirmations, and calls that led to nothing."""
        final = self._read("select * from evaluations where request_id is null order by rowid")
        rows: Rows = {
            "events": self._read(f"select * from events where kind = '{records.NO_LIBRARY}' order by rowid"),
        }
        # A kernel's birth is the first sign of it: confirmations stay behind the requests themselves.
        at = moment(time.time())
        for row in final:
            measured = records.measured_of(self._read, row["evaluation_id"])
            rows = records.join(rows, {"evaluations": [row | {"created_at": at}]}, measured)
        calls = self._read("select * from llm_calls order by rowid")
        rows["llm_calls"] = [row for row in calls if row["call_id"] not in self._served]
        rows["llm_sent"] = self._read("select * from llm_sent order by rowid")
        uses = self._read("select tool_key from tool_calls order by rowid")
        for key in dict.fromkeys(row["tool_key"] for row in uses if row["tool_key"] not in self._used):
            rows = records.join(rows, rows_of_use(self._read, key, self._execution.kernel_rows))
        await self._commit(rows)

    async def _commit(self, rows: Rows) -> None:
        """Store rows without waiting for each batch: what is lost can be replayed once more."""
        self._pending = self._store.commit(rows)
        self._commits += 1
        if self._commits % COMMITS_UNDER_WAY == 0:
            await asyncio.wrap_future(self._pending)


class _StoredVerdicts:
    """`evo.search.verdicts.VerdictSource` from an earlier run."""

    def __init__(self, read: Read) -> None:
        self._read = read

    @cached_property
    def _found(self) -> dict[str, list[Row]]:
        """By request, all at once: a query for each would read the whole table as often as it has rows."""
        return records.verdicts(self._read)

    async def evaluate(self, state: TaskState, request: Request, kernel: Kernel) -> tuple[Reached, ...]:
        """Return the stored verdicts of the request, least severe first, as if they were reached now.

        It raises Different where there are none.
        """
        found = self._found.pop(request.id, [])
        if not found and (lost := self._read(UNDONE, [request.id])):
            raise Undone(lost[0]["failure"])
        if not found:
            raise Different(f"{request.id}: {request.mutator} made kernel {_shown(kernel)}, and had none to offer then")
        if found[0]["kernel_id"] != kernel.id:
            then = found[0]["kernel_id"][:12]
            raise Different(f"{request.id}: {request.mutator} made kernel {then} then, and {_shown(kernel)} now")
        return tuple(Reached(records.evaluation_from(row), time.time()) for row in found)

    async def profile(
        self, state: TaskState, request: Request, parent: Parent, evaluation_id: str
    ) -> tuple[Proposal, TakenProfile | None]:
        """Return the stored answer; the profile itself has a place of its own in the history."""
        rows = self._read("select * from proposals where request_id = ?", [request.id])
        if not rows:
            raise Different(f"{request.id}: nothing is stored of this profile")
        row = rows[0]
        known = {"description": row["description"], "failure": row["failure"], "seconds": row["seconds"]}
        return Proposal(metrics=json.loads(row["metrics_json"]) if row["metrics_json"] else None, **known), None


class _Answers:
    """`mutators.base.Client` from the calls of an earlier run."""

    def __init__(self, settings: LlmSettings, read: Read, store: Journal, served: set[str]) -> None:
        self._settings, self._read, self._store, self._served = settings, read, store, served

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
        rows = self._read(
            "select * from llm_calls where cache_key = ?"
            " order by status in ('failed', 'unavailable'), rowid desc limit 1",
            [key],
        )
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
        rows = self._read("select messages_json from llm_calls where request_id = ? order by rowid", [request.id])
        earlier: list[list[Message]] = [json.loads(row["messages_json"]) for row in rows]
        for then in earlier:
            if len(then) == len(messages):
                texts = ("\n".join(map(content_of, each)) for each in (then, messages))
                return f": {_first_difference(*texts)}"
        return ", and there is no such conversation in the store"


class _ToolAnswers:
    """`evo.workbench.recorded.ToolCalls` from an earlier run."""

    def __init__(self, read: Read, store: Journal, kernel_rows: Callable[[Kernel], Rows], used: set[str]) -> None:
        self._read, self._store, self._kernel_rows, self._used = read, store, kernel_rows, used

    def find(self, tool_key: str) -> Result:
        """Return the stored result. It raises Different where there is none."""
        found = stored_result(self._read, tool_key)
        if found is None:
            raise Different("a dialogue uses a tool that it did not use then, or uses it in another way")
        if tool_key not in self._used:
            self._used.add(tool_key)
            self._store.commit(rows_of_use(self._read, tool_key, self._kernel_rows))
        return found

    async def add(self, rows: Rows, kernel: Kernel | None) -> None:
        """Nothing is new in a replay."""
        raise AssertionError("a replay uses no tool anew")


COMPARED = {
    "request": "select request_id, digest from asks order by seq, position",
    "individual": "select request_id, kernel_id, status, log_speedup, digest from tells order by seq",
    "proposal": "select request_id, kernel_id, model, description, failure, text, metrics_json"
    " from proposals order by request_id",
    "verdict": "select task, kernel_id, level, status, log_speedup, log_speedup_se, anchor_id, code_digest, cell,"
    " message from evaluations order by all",
    "individual of the lineage": "select task, kernel_id, generation, parents, status, level from lineage"
    " order by task, number",
    "answer": "select request_id, role, model, cache_key, answer, tool_calls_json, cost_usd from llm_calls"
    " order by all",
    "use of a tool": "select request_id, number, tool, arguments_json, kernel_id, failed, text, evaluations, seconds"
    " from tool_calls order by all",
    "best kernel": "select task, kernel_id, level, log_speedup from best order by task",
}


def compare(folder: Path, other: Path) -> ReplayResult:
    """Whether two stores tell the same story, whenever it happened and however long it took."""
    told = 0
    with open_reader(folder) as first, open_reader(other) as second:
        for what, sql in COMPARED.items():
            then, now = (connection.sql(sql).fetchall() for connection in (first, second))
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
    return value.id[:12] if isinstance(value, Kernel) else str(value)


def _first_difference(then: str, now: str) -> str:
    """The first place where two texts differ, on one line."""
    place = next(
        (i for i, pair in enumerate(zip(then, now, strict=False)) if pair[0] != pair[1]), min(map(len, (then, now)))
    )
    start = max(place - 20, 0)
    return f"{then[start : place + 40]!r} then, {now[start : place + 40]!r} now"
