"""MCP tools for agents outside: those of a workbench, and those that pass on questions, answers and guests.

A run of several tasks has one set of tools; what they work on is one task at a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from evo import rows as records
from evo.api import Row, Run
from evo.config import RunConfig
from evo.inbox import Inbox
from evo.outside.drafts import Sessions
from evo.outside.questions import InboxCheck, OpenQuestion, open_questions, take, waiting_guests
from evo.report.health import limits, spent, used
from evo.workbench.bench import Workbench, counting
from evo.workbench.tools import (
    MOST_CHARACTERS,
    ArgumentError,
    Arguments,
    BuildDraft,
    Change,
    Judge,
    Submit,
    bounded,
    parsed,
    tool,
    verdict,
)
from evo.workers.jobs import Runs
from fitness.judging.base import Anchor
from fitness.words import certainly, counted, speedup, standing
from mutators.asking.answers import Invitation, LineError, only_task
from mutators.asking.dialogue import MENDING, child
from mutators.asking.manual import manual
from mutators.asking.mutators import Asking
from mutators.base import Request
from mutators.bench import Result, Tool
from mutators.prompts import shortened, untrusted
from mutators.prompts.informed import machine
from mutators.registry import mutator
from operators.definition.spec import Operator, Task
from operators.errors import UserError, unknown
from operators.identity import short
from operators.kernel import Kernel
from operators.plan.defaults import with_defaults

AGAIN = 2
"""Times that a call which waits hands in once more what was lost to a busy machine."""
LOOK_EVERY_S = 2.0
"""A reader's snapshot of a run that is being written is about as old."""
QUERY_LIMIT_S = 60.0
SHOWN = 8
"""Open questions that a refusal names."""
OF_THE_BENCH = ("read_kernel", "lineage", "lessons", "operator", "docs", "diff", "build", "check", "profile")
"""Tools that are the workbench's own."""
QuestionId = Annotated[str, Field(min_length=6, max_length=80, description="the question's id or its beginning")]


class ReadStatus(Arguments):
    """Read where the run stands: whether a search is under way, what is left of the budget, the best kernel of each
    task, and how many questions are open."""


class ReadMachine(Arguments):
    """Read what is known of the machine that kernels are timed on: units, memories, rates that were measured."""


class NextQuestion(Arguments):
    """Take a question that the search asks and that no other agent has taken: its id and the whole prompt. It is yours
    to answer with `submit`, `attempt` or `answer`; you may as well leave it and hand in what you like. With the id of
    a question that was taken: read that one again."""

    question: Annotated[str, Field(max_length=80, description="id of the question to read again; none: a new one")] = ""
    skip: Annotated[int, Field(ge=0, le=10_000, description="leave out so many, from the oldest on")] = 0


class GiveAnswer(Arguments):
    """Answer a question in words, in the form that its prompt asks for, such as edits or a plan."""

    question: QuestionId
    text: Annotated[str, Field(min_length=1, max_length=500_000)]


class HandIn(Submit):
    """Hand in a draft: the search verifies it in full, times it, and goes on from it. With a question it is the answer
    to that one, without it is a guest. It costs one evaluation of the budget; read its verdict next."""

    question: Annotated[str, Field(max_length=80, description="id of the question that it answers, if it does")] = ""


class WholeAttempt(BuildDraft):
    """Do all at once with a kernel file: build it, check it, hand it in as `submit` does, and wait for its verdict.
    What fails on the way ends it, and nothing is handed in."""

    change: Change
    question: Annotated[str, Field(max_length=80, description="id of the question that it answers, if it does")] = ""
    wait_s: Annotated[float, Field(ge=0, le=600, description="wait so long for the verdict at most")] = 120.0


class JudgeDraft(Judge):
    """Time a draft beside the best kernel known, when the search times nothing. It costs no evaluation, and the search
    does not hear of it: hand in what is good."""


class ReadVerdict(Arguments):
    """Read what became of a kernel that was submitted, or of the answer to a question: its verdict and its times. Until
    it is confirmed its speedup moves with what is measured of others: read it again before you report it."""

    of: Annotated[str, Field(min_length=6, max_length=80, description="id of a kernel or a question, or its beginning")]
    wait_s: Annotated[float, Field(ge=0, le=600, description="wait so long for it at most")] = 60.0


class Sql(Arguments):
    """Ask the run's DuckDB database one SELECT. Views: best, lineage, individuals, verdicts, elites, progress,
    mutator_gain, failures, questions; `show tables` lists the rest."""

    query: Annotated[str, Field(min_length=1, max_length=20_000)]
    rows: Annotated[int, Field(ge=1, le=1000)] = 50


OWN: Mapping[str, type[Arguments]] = {
    "status": ReadStatus, "machine": ReadMachine, "next_question": NextQuestion, "answer": GiveAnswer,
    "attempt": WholeAttempt, "submit": HandIn, "verdict": ReadVerdict, "judge": JudgeDraft, "sql": Sql,
}  # fmt: skip


def of_a_run() -> tuple[Tool, ...]:
    """Return the tools that a studio offers, whichever its run and task are."""
    return (*(tool(name, OWN) for name in OWN), *(tool(name) for name in OF_THE_BENCH))


def of_any_run() -> tuple[Tool, ...]:
    """Return the same for a run of several tasks; one of a single task takes them too."""
    return tuple(map(_of_a_task, of_a_run()))


class Studio:
    """One mind's place at one task of a run. It writes nothing but files in the run's inbox; a use never raises for
    what the mind did wrong."""

    def __init__(
        self, folder: Path, config: RunConfig, operator: Operator, task: Task, *, pool: Runs, sessions: Sessions,
        author: str,
    ) -> None:  # fmt: skip
        """`folder` is the run's; drafts start from its best kernel as it is now, and are of `author`."""
        self.folder = folder
        self._run = Run(folder)
        self._config = config
        self._operator = operator
        self.task = task
        self._sessions = sessions
        self._author = author
        self._baseline = Kernel(operator.name, task.target, operator.naive(task.target))
        self._answers: dict[str, str] = {}
        """By kernel id of a draft, the question that it was the answer to, where its kernel may have another id."""
        self._handed: dict[str, HandIn] = {}
        """By kernel id of a draft, how it was handed in last."""
        self._bench = Workbench(
            operator, task, start=self._best().kernel, manual=self._manual, read=self._run.rows, pool=pool,
            anchor=self._best,
        )  # fmt: skip
        self.tools = of_a_run()

    async def use(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Return what a tool came to. It raises what a workbench does, where a machine is broken."""
        if name not in OWN:
            known = name in OF_THE_BENCH
            return await self._bench.use(name, arguments) if known else no_tool(name, self.tools)
        try:
            result: Result = await getattr(self, f"_{name}")(parsed(name, arguments, OWN))
        except (ArgumentError, UserError) as error:
            return Result(bounded(str(error)), failed=True)
        return result

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _status(self, wanted: ReadStatus) -> Result:
        questions = await asyncio.to_thread(open_questions, self.folder)
        (told,) = await self._rows("runs.told")
        (use,) = await self._rows("health.use")
        endings = await self._rows("health.endings")
        best = await self._rows("kernels.best_files", task="")
        lines = [f"Run {self.folder.name}, task {self.task}."]
        if self._sessions.under_way:
            lines.append("A search is under way.")
        else:
            ends = [row["detail_json"] for row in endings if row["kind"] in ("finished", "stopped")]
            ended = json.loads(ends[-1])["reason"] if ends else "it was killed"
            lines.append(f"No search is under way; the last one ended: {ended}. {self._sessions.last_words()}".strip())
        lines += map(best_line, best)
        lines.append(f"Used of the budget: {used(spent(use), limits(use)) or 'nothing'}.")
        lines.append(
            f"{counted(told['n'], 'request is', 'requests are')} finished; "
            f"{counted(len(questions), 'question waits', 'questions wait')} for answers."
        )
        return Result("\n".join(lines))

    async def _next_question(self, wanted: NextQuestion) -> Result:
        questions = await asyncio.to_thread(self._open)
        if wanted.question:
            question = _only_question(wanted.question, questions)
        else:
            free = [question for question in questions if not question.is_taken]
            if len(free) <= wanted.skip:
                return Result(_none_free(questions))
            question = free[wanted.skip]
        with suppress(UserError):  # where nothing can be told it stays free
            await asyncio.to_thread(take, self.folder, [question])
        best = await self._rows("kernels.best_files", task=str(self.task))
        return Result("\n".join([*map(best_line, best), question.to_text()]))

    async def _machine(self, wanted: ReadMachine) -> Result:
        known = machine(self._config.device, self.task.dtype)
        facts = self._config.device.facts.items() if self._config.device else ()
        lines = [*known, *(f"{name} = {value}" for name, value in facts)]
        return Result(bounded("\n".join(lines) or "Nothing is known of the machine yet: it is when the search begins."))

    async def _sql(self, wanted: Sql) -> Result:
        """In a process of its own, whose memory and time are limited."""
        options = ["--json", "--rows", str(wanted.rows), "--timeout", str(QUERY_LIMIT_S)]
        # A query may begin with two dashes, as a comment does.
        command = ["sql", *options, "--", str(self.folder), wanted.query]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "evo.cli", *command, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, said = await process.communicate()
        finally:
            if process.returncode is None:  # no call waits for it any more
                process.kill()
        if process.returncode:
            return Result(bounded(said.decode(errors="replace").strip()), failed=True)
        return Result(untrusted(shortened(out.decode(errors="replace").strip(), MOST_CHARACTERS), "json"))

    # --- telling ----------------------------------------------------------------------------------------------------

    async def _answer(self, wanted: GiveAnswer) -> Result:
        key = await asyncio.to_thread(self._key, wanted.question)
        if fault := await asyncio.to_thread(self._fault_of, key, wanted.text):
            raise ArgumentError(f"nothing was handed in, and the question is open: {fault}")
        return await self._tell({"custom_id": key, "content": wanted.text, "author": self._author}, key)

    def _fault_of(self, key: str, text: str) -> str:
        """The fault that keeps a text from being a child of the question's kernel; empty where none does, where words
        alone are asked for, and where edits are of an earlier answer, which the search knows."""
        (asked,) = self._run.rows("outside.asking", prefix=key)
        request = records.request_from(asked)
        if asked["role"] == MENDING or not isinstance(mutator(request.mutator), Asking):
            return ""
        stored = self._run.rows("kernels.files", kernels=[*request.parents[:1]])
        parent = records.kernel_from(stored[0]) if stored else self._baseline
        return child(text, parent, self._operator, request)[1]

    async def _submit(self, wanted: HandIn) -> Result:
        handed = await self._bench.use("submit", {"kernel": wanted.kernel, "change": wanted.change})
        kernel = handed.kernel
        if handed.failed or kernel is None:
            return handed
        self._handed[kernel.id] = wanted
        if key := wanted.question and await asyncio.to_thread(self._key_or_none, wanted.question):
            source = with_defaults(kernel.source, kernel.values)
            text = f"CHANGE: {handed.change}\n\n```cpp\n{source}\n```\n"
            self._answers[kernel.id] = key
            return await self._tell({"custom_id": key, "content": text, "author": self._author}, key)
        born = await self._rows("kernels.born", kernels=list(handed.bases))
        known = {row["kernel_id"] for row in born if row["task"] == str(self.task)}
        parents = tuple(name for name in handed.bases if name in known)
        guest = Invitation(kernel.source, self._author, str(self.task), parents[:1], kernel.values, handed.change)
        self._answers.pop(kernel.id, None)  # what became of it as an answer counts no more
        return await self._tell(json.loads(guest.to_line()), kernel.id)

    async def _attempt(self, wanted: WholeAttempt) -> Result:
        draft = {"source": wanted.source, "edits": wanted.edits, "base": wanted.base, "values": dict(wanted.values)}
        built = await self._bench.use("build", draft)
        if built.failed or built.kernel is None:
            return built
        checked = await self._bench.use("check", {"kernel": built.kernel.id})
        if checked.failed:
            return checked
        key = wanted.question and await asyncio.to_thread(self._key_or_none, wanted.question)
        handed = await self._submit(HandIn(kernel=built.kernel.id, change=wanted.change, question=key))
        if handed.failed:
            return handed
        end = await self._verdict(ReadVerdict(of=key or built.kernel.id, wait_s=wanted.wait_s))
        return replace(end, text="\n".join((checked.text, end.text)))

    async def _judge(self, wanted: JudgeDraft) -> Result:
        return await self._bench.use("judge", wanted.model_dump())

    async def _tell(self, line: Mapping[str, Any], of: str) -> Result:
        told = await asyncio.to_thread(
            lambda: InboxCheck(self.folder, self._author).look_at([("submit", json.dumps(line))])
        )
        if told.problems:
            return Result(f"nothing was handed in: {told.problems[0].removeprefix('submit: ')}", failed=True)
        await asyncio.to_thread(Inbox(self.folder).put, told.lines)
        self._sessions.ensure()
        waits = "" if self._sessions.under_way else " No search is under way: it is judged when the run is resumed."
        return Result(f"It is told.{waits} Read what becomes of it with `verdict` of {short(of)}.")

    # --- verdicts ---------------------------------------------------------------------------------------------------

    async def _verdict(self, wanted: ReadVerdict) -> Result:
        end, again = time.monotonic() + wanted.wait_s, AGAIN
        while True:
            may_come = self._sessions.under_way or Inbox(self.folder).files()
            found, left = await asyncio.to_thread(self._fate, wanted.of), end - time.monotonic()
            if found:
                again -= 1
                if left <= 0 or not may_come or again < 0 or not await self._again(found):
                    return found
            if left <= 0 or not may_come:
                where = await asyncio.to_thread(self._where, wanted.of)
                lost = "The machine was too busy to time it, and it was handed in again. " if again < AGAIN else ""
                return Result(f"There is no verdict yet. {lost}{where}\n{(await self._status(ReadStatus())).text}")
            self._sessions.ensure()
            await asyncio.sleep(min(left, LOOK_EVERY_S))

    async def _again(self, found: Result) -> bool:
        """Hand in a draft of this server once more, if a machine that was too busy is why it was lost."""
        lost = found.unsaid.get("lost")
        handed = (wanted for name, wanted in self._handed.items() if lost and name.startswith(lost))
        return (wanted := next(handed, None)) is not None and not (await self._submit(wanted)).failed

    def _where(self, of: str) -> str:
        """Words on what a verdict that is not there waits for."""
        key = self._answer_of(of)
        asked = self._run.rows("outside.asking", prefix=key)
        if asked and any(question.cache_key.startswith(key) for question in open_questions(self.folder)):
            return "The question waits for an answer: hand one in with `submit`, `attempt` or `answer`."
        if asked or self._waits(of):
            if not self._sessions.under_way:
                return "It is queued until the search goes on: see `start_run` with `run`; do not hand it in again."
            (ahead,) = self._run.rows("outside.ahead")
            are = counted(ahead["n"], "request is", "requests are")
            return (
                f"It is queued, {are} under way with it: call `verdict` again with a longer `wait_s`, and do not hand "
                "it in again."
            )
        return f"Nothing whose id begins with {of} was handed in: `submit` it first, or give the id that `submit` told."

    def _waits(self, kernel_id: str) -> bool:
        """Whether a guest whose id begins so waits for its verdict."""
        return any(name.startswith(kernel_id) for name in waiting_guests(self.folder, [self.task]))

    def _answer_of(self, of: str) -> str:
        """The question that a draft was the answer to; what is no such draft stays as it is."""
        return next((key for name, key in self._answers.items() if name.startswith(of)), of)

    def _fate(self, of: str) -> Result | None:
        """The outcome of a question's answer, or of a kernel; None: there is none yet."""
        of = self._answer_of(of)
        asked = self._run.rows("outside.asking", prefix=of)
        if not asked:
            return self._judged(of)
        request_id = asked[0]["request_id"]
        told = self._run.rows("outside.fate", request=request_id)
        if told and told[0]["kernel_id"]:
            return self._judged(told[0]["kernel_id"])
        if told:
            failure = told[0]["failure"]
            if not failure:
                return Result("Your words were taken.")
            head = f"Your answer to question {short(of)} led to no kernel; take another with `next_question`:"
            return Result(bounded(f"{head}\n{untrusted(failure)}"), failed=True)
        later = [q for q in self._open() if q.request_id == request_id and not q.cache_key.startswith(of)]
        answered = self._run.rows("outside.heard", prefix=of)
        if answered and later:
            said = f"Your answer to question {short(of)} could not be used; why, and the question anew:"
            return Result(f"{said}\n\n{later[0].to_text()}", failed=True)
        return None

    def _judged(self, kernel_id: str) -> Result | None:
        if self._waits(kernel_id):  # handed in again, so that an earlier end says nothing
            return None
        evaluation = counting(self._run.rows, self.task, kernel_id)
        if evaluation is None:
            lost = self._run.rows("outside.lost", task=str(self.task), prefix=kernel_id)
            return lost_draft(kernel_id, lost[0]["failure"]) if lost else None
        text = f"Kernel {short(evaluation.kernel_id)}: {verdict(evaluation)}"
        return Result(bounded(text), failed=not evaluation.correct, evaluation=evaluation)

    # --- the run ----------------------------------------------------------------------------------------------------

    def _open(self) -> list[OpenQuestion]:
        return [q for q in open_questions(self.folder) if q.request_id.startswith(f"{self.task}#")]

    def _key(self, prefix: str) -> str:
        """The one open question whose id begins so. It raises ArgumentError."""
        return _only_question(prefix, self._open()).cache_key

    def _key_or_none(self, prefix: str) -> str:
        """The same; empty where the question is no longer open, so that a kernel for it is a guest."""
        try:
            return self._key(prefix)
        except ArgumentError:
            if self._run.rows("outside.asking", prefix=prefix):
                return ""
            raise

    def _best(self) -> Anchor:
        rows = self._run.rows("kernels.best_files", task=str(self.task))
        if not rows:
            return Anchor(self._baseline, 0.0, 0.0)
        return Anchor(records.kernel_from(rows[0]), rows[0]["log_speedup"], rows[0]["log_speedup_se"])

    def _manual(self) -> str:
        device = {"device": self._config.device.name} if self._config.device else {}
        params = {"workload_set": self._config.workload_set, **device}
        return manual(Request(self.task, 0, "rewrite", (), 0, params), self._operator)

    async def _rows(self, query: str, **params: Any) -> list[Row]:
        return await asyncio.to_thread(partial(self._run.rows, query, **params))


class Studios:
    """Studios of a run's tasks behind one set of tools. One task is worked on until a use names another one."""

    def __init__(self, studios: Sequence[Studio]) -> None:
        self._studios = {studio.task: studio for studio in studios}
        self._now = studios[0]
        self.tools = self._now.tools
        if len(studios) > 1:
            self.tools = tuple(map(_of_a_task, self.tools))

    async def use(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """See `Studio.use`."""
        own = {key: value for key, value in arguments.items() if key != "task"}
        try:
            named = str(arguments.get("task") or "")
            moved = named or (await asyncio.to_thread(self._asks) if name == "next_question" else "")
            if moved:
                self._now = self._studios[only_task(moved, self._studios)]
        except LineError as error:
            return Result(str(error), failed=True)
        found = await self._now.use(name, own)
        return replace(found, text=f"Task {self._now.task}.\n{found.text}") if len(self._studios) > 1 else found

    def _asks(self) -> str:
        """The task that asks the oldest question that is not taken; empty where none does."""
        folder = self._now.folder
        return next((q.request_id.partition("#")[0] for q in open_questions(folder) if not q.is_taken), "")


def _of_a_task(plain: Tool) -> Tool:
    """The tool with one more argument."""
    task = {"type": "string", "description": "the task to work on from now on, or its beginning; none: the last one"}
    properties = {**plain.parameters["properties"], "task": task}
    return replace(plain, parameters={**plain.parameters, "properties": properties})


def no_tool(name: str, tools: Sequence[Tool]) -> Result:
    """Return the refusal of a tool that there is not."""
    return Result(unknown("tool", name, [tool.name for tool in tools]), failed=True)


def lost_draft(kernel_id: str, failure: str) -> Result:
    """Return the end of a draft that the machine gave no verdict on."""
    named = f"Kernel {short(kernel_id)}"
    head = f"{named} has no verdict, by no fault of its own: hand it in again with `submit`, unchanged."
    return Result(bounded(f"{head}\n{untrusted(failure)}"), failed=True, unsaid={"lost": kernel_id})


def best_line(row: Row) -> str:
    """Return a line on the best kernel of a task, with what is certain of its gain."""
    gain = speedup(row["speedup"], row["speedup_low"], row["speedup_high"])
    sure = f"{certainly(row['speedup_low'])}, {standing(row['level'], row['flagged'])}"
    return f"The best kernel of {row['task']} is {short(row['kernel_id'])}, {gain} naive: {sure}."


def _only_question(prefix: str, questions: Sequence[OpenQuestion]) -> OpenQuestion:
    """The one of these open questions whose id begins so. It raises ArgumentError."""
    found = [question for question in questions if question.cache_key.startswith(prefix)]
    if len(found) != 1:
        known = ", ".join(short(question.cache_key) for question in questions[:SHOWN]) or "none"
        raise ArgumentError(
            f"{len(found) or 'no'} open questions have an id that begins with {prefix}; open are {known}"
        )
    return found[0]


def _none_free(questions: Sequence[OpenQuestion]) -> str:
    """Words for an agent that there is no question for, with those that it may have taken."""
    taken = ", ".join(short(question.cache_key) for question in questions if question.is_taken)
    others = f"; of those these are taken, and can be read again by their ids: {taken}" if taken else ""
    waiting = counted(len(questions), "question waits", "questions wait") if questions else "no questions wait"
    return f"{waiting} for answers{others}. You may submit drafts of your own."
