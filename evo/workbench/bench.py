"""The workbench: what a writer of kernels may read of a search, and have built, checked, judged and profiled.

It keeps the drafts of one writer and nothing else; what is stored, charged or submitted is its owner's concern.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from evo import rows as records
from evo.rows import Read, Row
from evo.workbench import tools
from evo.workbench.tools import ARGUMENTS, ArgumentError, parsed, tool
from evo.workers.jobs import Build, Emulate, Found, Job, Runs, Screen, SpotCheck, TakeProfile
from evo.workers.pool import Undone, Waits, WorkerLost, never, tried
from fitness.evaluation import Evaluation, Status
from fitness.judging.base import Anchor
from mutators.bench import Result, Tool
from mutators.edits import AnswerError, child_source
from operators.definition.spec import Operator, Task
from operators.errors import DiskError, UserError, unknown
from operators.identity import short
from operators.kernel import Kernel

LEAST_DIGITS = 6
"""The fewest digits of an id that name a kernel."""
READING = ("read_kernel", "lineage", "lessons", "operator", "docs", "diff")
WORKING = ("build", "check", "judge", "profile")
CHANGES = "give the whole file as `source`, or `edits` of that of `base`, or other `values` of its tunables"


class Workbench:
    """Tools for one task, and one writer's drafts. A use never raises for what the writer did wrong."""

    def __init__(
        self,
        operator: Operator,
        task: Task,
        *,
        start: Kernel,
        manual: Callable[[], str],
        read: Read,
        anchor: Callable[[], Anchor],
        pool: Runs | None = None,
        waits: Waits = never,
    ) -> None:
        """`start` is the kernel that the writer was given, and `manual` makes the text of `mutators.asking.manual`.

        `anchor` names what drafts are timed beside. Without a `pool` there are only tools that read, and `submit`: what
        becomes of a draft that is handed in, a `Result` with its `change`, is for the owner. For `waits` see
        `evo.workers.pool.tried`.
        """
        self.operator = operator
        self.task = task
        self._waits = waits
        self._start = start
        self._manual = manual
        self._read = read
        self._pool = pool
        self._baseline = Kernel(operator.name, task.target, operator.naive(task.target))
        self._anchor = anchor
        self._drafts: dict[str, Kernel] = {}
        self._bases: dict[str, tuple[str, ...]] = {}
        """By id of a draft, the kernels that are no drafts which it was made from, the latest first."""
        self._timed: dict[str, Evaluation] = {}
        """By kernel id, what it was judged to be here."""
        names = (*READING, *(WORKING if pool else ()), "submit")
        self.tools: tuple[Tool, ...] = tuple(tool(name) for name in ARGUMENTS if name in names)

    async def use(self, name: str, arguments: str | Mapping[str, Any]) -> Result:
        """Return what a tool came to. It raises what the pool raises for a machine that is broken or full."""
        if name not in {each.name for each in self.tools}:
            return Result(unknown("tool", name, {each.name for each in self.tools}), failed=True)
        try:
            made = cast(Result, await getattr(self, f"_{name}")(parsed(name, arguments)))
        except (ArgumentError, AnswerError) as error:
            made = Result(str(error), failed=True)
        except DiskError:
            raise
        except UserError as error:  # of an operator, say, whose reference fails
            made = Result(f"{name} is not possible: {error}", failed=True)
        bases = self.bases(made.kernel) if made.kernel else ()
        return replace(made, text=tools.bounded(made.text), bases=bases)

    async def check(self, kernel: Kernel) -> Result:
        """Return what the tool `check` says of a kernel that need not be a draft yet."""
        self.adopt(kernel)
        return await self.use("check", {"kernel": kernel.id})

    def adopt(self, kernel: Kernel, bases: tuple[str, ...] = ()) -> None:
        """Take a kernel for a draft; without `bases` it comes of the start."""
        self._drafts[kernel.id] = kernel
        self._bases.setdefault(kernel.id, bases or (self._start.id,))

    def recall(self, result: Result) -> None:
        """Know again what a use in an earlier session came to."""
        if result.kernel and result.bases:
            self.adopt(result.kernel, result.bases)
        if result.kernel and result.evaluation:
            self._timed[result.kernel.id] = result.evaluation

    def bases(self, kernel: Kernel) -> tuple[str, ...]:
        """Return ids of kernels that a draft was made from and that are no drafts, the latest first."""
        return self._bases.get(kernel.id, ())

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _read_kernel(self, wanted: tools.ReadKernel) -> Result:
        kernel = await self._found(wanted.kernel)
        evaluation = await self._evaluation(kernel)
        told = tools.verdict(evaluation) if evaluation else "It was not judged yet."
        return Result(f"Kernel {short(kernel.id)}:\n{tools.file_of(kernel)}\n{told}")

    async def _lineage(self, wanted: tools.ReadLineage) -> Result:
        if not wanted.kernel:
            rows = await self._rows("bench.fastest", task=str(self.task), most=wanted.limit)
            return Result(f"The kernels of the surest gain over the naive one, the best first:\n{tools.table(rows)}")
        kernel = await self._found(wanted.kernel)
        stored = self.bases(kernel)[0] if self.bases(kernel) else kernel.id
        rows = await self._rows("kernels.ancestors", task=str(self.task), kernel=stored)
        head = f"How {short(kernel.id)} came to be, the oldest first, with speedups over the naive kernel"
        return Result(f"{head}:\n{tools.table(rows[-wanted.limit :])}")

    async def _lessons(self, wanted: tools.ReadLessons) -> Result:
        asked = {"task": str(self.task), "most": wanted.limit}
        parts = {
            "What gained most": await self._rows("bench.gains", sign=-1, **asked),
            "What lost": await self._rows("bench.gains", sign=1, **asked),
            "What failed": await self._rows("bench.failures", **asked),
        }
        told = (f"{title}:\n{tools.table(rows)}" for title, rows in parts.items())
        return Result("\n\n".join(told))

    async def _operator(self, wanted: tools.ReadOperator) -> Result:
        return Result(self._manual().partition(DOCS)[0].strip())

    async def _docs(self, wanted: tools.Docs) -> Result:
        _, title, text = self._manual().partition(DOCS)
        return Result(f"{title}{text}".strip())

    async def _diff(self, wanted: tools.Diff) -> Result:
        old, new = [await self._found(name) for name in (wanted.old, wanted.new)]
        return Result(tools.differences(old, new))

    # --- work -------------------------------------------------------------------------------------------------------

    async def _build(self, wanted: tools.BuildDraft) -> Result:
        base = await self._found(wanted.base)
        kernel = Kernel(self.operator.name, self.task.target, _source(wanted, base), wanted.values)
        if kernel.id == base.id:
            raise ArgumentError(f"the draft is kernel {short(base.id)} itself, unchanged: {CHANGES}")
        is_draft = base.id in self._drafts
        self.adopt(kernel, self.bases(base) if is_draft else (base.id,))
        return await self._built(kernel)

    async def _built(self, kernel: Kernel) -> Result:
        found = await self._done(Build(self.task, kernel))
        failed = isinstance(found, Evaluation)
        seconds = 1e-3 * (found.stage_ms.get("build", 0.0) if isinstance(found, Evaluation) else found.build_ms)
        return Result(tools.built(kernel, found), failed=failed, kernel=kernel, seconds=seconds)

    async def _check(self, wanted: tools.Check) -> Result:
        """It compiles first: what does not is not worth a look."""
        kernel = await self._found(wanted.kernel)
        built = await self._built(kernel)
        if built.failed:
            return built
        looks = [await self._done(Emulate(self.task, kernel))]
        if looks[0].lack:
            looks.append(await self._done(SpotCheck(self.task, kernel)))
        seconds = built.seconds + sum(look.seconds for look in looks)
        last = looks[-1]
        text = tools.checked(kernel, last, emulated=len(looks) == 1)
        unsaid = {"not_emulated": looks[0].lack} if looks[0].lack else {}
        return Result(text, failed=last.rejection is not None, kernel=kernel, seconds=seconds, unsaid=unsaid)

    async def _judge(self, wanted: tools.Judge) -> Result:
        kernel = await self._found(wanted.kernel)
        built = await self._built(kernel)
        if built.failed:
            return built
        found = await self._done(Screen(self.task, kernel, self._anchor(), race=False))
        self._timed[kernel.id] = found
        seconds = built.seconds + 1e-3 * sum(found.stage_ms.get(stage, 0.0) for stage in records.STAGES)
        text = f"Draft {short(kernel.id)}: {tools.verdict(found, workloads=wanted.workloads)}"
        return Result(
            text, failed=not found.correct, kernel=kernel, evaluation=found, evaluations=1,
            seconds=seconds,
        )  # fmt: skip

    async def _profile(self, wanted: tools.ProfileKernel) -> Result:
        kernel = await self._found(wanted.kernel)
        timed = await self._evaluation(kernel)
        if timed is None or not timed.correct or not timed.timings:
            raise ArgumentError(
                f"kernel {short(kernel.id)} is not profiled before it is correct and timed: `judge` or `submit` it"
            )
        found = await self._done(TakeProfile(self.task, kernel, timed.timings))
        return Result(tools.profiled(found), kernel=kernel, seconds=found.seconds, worker=found.worker)

    async def _submit(self, wanted: tools.Submit) -> Result:
        kernel = await self._found(wanted.kernel)
        if kernel.id not in self._drafts:
            raise ArgumentError(f"kernel {short(kernel.id)} is no draft of yours: `build` one and submit that")
        change = " ".join(wanted.change.split())
        text = f"Draft {short(kernel.id)} is submitted."
        return Result(text, kernel=kernel, change=change)

    # --- kernels and rows -------------------------------------------------------------------------------------------

    async def _done(self, job: Job[Found]) -> Found:
        """The answer of a job. It raises ArgumentError where workers die of it, or none could do it."""

        async def lost(_: WorkerLost) -> None:
            """The search that uses the same workers tells of them."""

        assert self._pool
        try:
            return await tried(self._pool, job, lost, self._waits)
        except (WorkerLost, Undone) as error:
            raise ArgumentError(f"{error}, and was given up: try it once more, or change the kernel") from None

    async def _found(self, name: str) -> Kernel:
        """The kernel of a name. It raises ArgumentError."""
        if name in ("start", "parent"):
            return self._start
        if name == "naive":
            return self._baseline
        if name == "best":
            return self._anchor().kernel
        if len(name) < LEAST_DIGITS or not name.isalnum():
            raise ArgumentError(f"`{name[:80]}` names no kernel: use {tools.NAMES}, at least {LEAST_DIGITS}")
        mine = {self._start.id: self._start, self._baseline.id: self._baseline} | self._drafts
        known = [kernel for kernel_id, kernel in mine.items() if kernel_id.startswith(name)]
        if not known:
            own = {"operator": self.operator.name, "target": self.task.target}
            found = await self._rows("bench.kernels", prefix=name, **own)
            known = [records.kernel_from(row) for row in found]
        if len(known) != 1:
            problem = f"{'several kernels have' if known else 'no kernel has'} an id that begins with {name}"
            raise ArgumentError(f"{problem}: {'give more of it' if known else '`lineage` lists those there are'}")
        return known[0]

    async def _evaluation(self, kernel: Kernel) -> Evaluation | None:
        """The verdict that counts, of this workbench or of the search."""
        if kernel.id in self._timed:
            return self._timed[kernel.id]
        return await asyncio.to_thread(counting, self._read, self.task, kernel.id)

    async def _rows(self, query: str, **params: Any) -> list[Row]:
        return await asyncio.to_thread(partial(self._read, query, **params))


def _source(wanted: tools.BuildDraft, base: Kernel) -> str:
    """The file of a draft: edits are made in that of its base, which stands where other values alone are wanted.

    It raises ArgumentError and AnswerError.
    """
    if wanted.source.strip() and wanted.edits.strip():
        raise ArgumentError("`source` and `edits` are both given: give the whole file, or edits of that of `base`")
    if wanted.source.strip():
        return wanted.source
    if wanted.edits.strip():
        try:
            return child_source(base.source, wanted.edits)
        except AnswerError as error:
            alone = "; other `values` alone need no edits" if wanted.values else ""
            raise AnswerError(f"edits of kernel {short(base.id)}: {error}{alone}") from None
    if not wanted.values:
        raise ArgumentError(f"neither a file nor a change is given: {CHANGES}")
    return base.source


def counting(read: Read, task: Task, prefix: str) -> Evaluation | None:
    """Return the verdict that counts on the kernel whose id begins so; its speedup is that of the view `verdicts`.

    A duplicate has its original's measurements. None: there is no verdict, or several ids begin so.
    """
    rows = read("kernels.judged", task=str(task), prefix=prefix)
    if len(rows) != 1:
        return None
    (row,) = rows
    (measured,) = read("kernels.measured", evaluations=[row["evaluation_id"]])
    original = row.pop("duplicate_of")
    found = records.evaluation_from(measured | row)
    return (
        replace(found, status=Status.DUPLICATE, duplicate_of=original, inherited=found.verdict) if original else found
    )


DOCS = "# The kernel file"
"""The title in the manual with which the docs begin; before it stands what is to be computed."""
