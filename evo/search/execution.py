"""One request, from what is known of its parents to what its strategy will be told, its workbench included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from evo import rows as records
from evo.individual import Individual, is_naive
from evo.rows import Read, Rows
from evo.search.history import Done, History
from evo.search.knowledge import StoredBriefing
from evo.search.task import Outstanding, TaskState
from evo.search.verdicts import VerdictSource, verdict_of
from evo.workbench.bench import Workbench
from evo.workbench.recorded import Judgings, RecordedBench, ToolCalls
from evo.workers.jobs import Runs
from evo.workers.pool import Undone, Waits, never
from fitness.evaluation import Evaluation, interval95
from fitness.words import estimate
from mutators.asking.dialogue import DRAFTS
from mutators.asking.manual import manual
from mutators.base import Client, Kind, Parent, Proposal, Request
from mutators.bench import Bench
from mutators.briefing import Briefing, Origin, Winner
from mutators.llm.settings import is_outside
from mutators.registry import asks_model, is_quick, needs_bench, propose


class RunBenches:
    """Workbenches for the dialogues of a search, or of its replay."""

    def __init__(
        self,
        calls: ToolCalls,
        pool: Runs,
        judgings: Judgings,
        read: Read,
        now: Callable[[], float],
        waits: Waits = never,
    ) -> None:
        """`read` answers queries to the run's store, of which every answer is kept in `calls`.

        For `waits` see `evo.workers.pool.tried`.
        """
        self._waits = waits
        self._calls = calls
        self._pool = pool
        self._read = read
        self._now = now
        self._judgings = judgings

    def open(self, state: TaskState, request: Request, parent: Parent) -> Bench:
        """Return the workbench of a request with this principal parent. Drafts are timed beside the best kernel known,
        as children are."""
        bench = Workbench(
            state.operator, state.task, start=parent.kernel, manual=lambda: manual(request, state.operator, parent),
            read=self._read,
            pool=self._pool, anchor=lambda: state.anchor, waits=self._waits,
        )  # fmt: skip
        most = request.params.get("evaluations", 0)
        return RecordedBench(request, bench, self._calls, self._judgings, now=self._now, most_judged=most)


class Execution:
    """Carries requests out: mutators propose, `verdicts` judge, and rows say what became of it."""

    def __init__(
        self,
        history: History,
        verdicts: VerdictSource,
        client: Client | None,
        benches: RunBenches,
        *,
        check: bool = True,
    ) -> None:
        """`check` says whether drafts are tried out by mutators that can do without."""
        self._history = history
        self._verdicts = verdicts
        self._client = client
        self._benches = benches
        self._check = check

    async def propose(self, asked: Outstanding) -> Proposal:
        """Return the answer of a mutator. It raises UserError and OutOfBudget where a model's client does."""
        state, request, bound = asked.state, asked.request, asked.bound
        parents = tuple(self._history.parents.find(source, baseline=state.baseline) for source in bound.sources)
        if not asks_model(request):
            if is_quick(request):
                return await propose(request, parents, state.operator)
            return await self._verdicts.propose(state, request, parents)
        if parents:
            briefing = self._briefing(state, request, bound.brief) if bound.brief else None
            parents = (replace(parents[0], profile=bound.notes, briefing=briefing), *parents[1:])
        earlier = tuple(self._history.parents.earlier(name) for name in request.earlier)
        bench = self._bench(state, request, parents)
        return await propose(request, parents, state.operator, client=self._client, earlier=earlier, bench=bench)

    def _bench(self, state: TaskState, request: Request, parents: tuple[Parent, ...]) -> Bench | None:
        """Where the drafts of a request can be tried out."""
        if not parents or request.kind is not Kind.CHILD:
            return None
        # Who answers from outside has a workbench there (`evo mcp`), and another question might never be answered.
        wanted = request.params.get(DRAFTS, "check" if self._check else "none") != "none"
        checks = wanted and not is_outside(request.model)
        if not checks and not needs_bench(request.mutator):
            return None
        return self._benches.open(state, request, parents[0])

    def _briefing(self, state: TaskState, request: Request, brief: StoredBriefing) -> Briefing:
        """Return what a prompt may tell, with the kernels that were named."""
        origin = None
        if brief.origin:
            there, known = state.source_state(request), brief.origin.known
            kernel = self._history.parents.find(known.source, baseline=there.baseline).kernel
            origin = Origin(there.operator, there.task, kernel, known.speedup, known.standing, brief.origin.helped)
        winners = tuple(
            Winner(self._history.parents.find(known.source, baseline=state.baseline).kernel, known.standing, wins)
            for known, wins in brief.winners
        )
        return Briefing(
            state.knowledge.device, brief.naive_us, brief.library,
            best_id=brief.best.source[0] if brief.best else "",
            best=brief.best.standing if brief.best else {},
            parents=brief.parents, tried=brief.tried, helped=brief.helped, fruitless=brief.fruitless,
            failed=brief.failed, winners=winners, open_here=brief.open_here, open_elsewhere=brief.open_elsewhere,
            asked_before=brief.asked_before, origin=origin,
            verdict_on=lambda text: state.knowledge.verdict_on(text, brief.programs),
        )  # fmt: skip

    async def profile(self, asked: Outstanding) -> Done:
        """Return the end of a request for a profile."""
        source = asked.bound.sources[0]
        parent = self._history.parents.find(source, baseline=asked.state.baseline)
        proposal, profiled = await self._verdicts.profile(asked.state, asked.request, parent, source[1])
        return replace(self.without_kernel(asked, proposal), profiled=profiled)

    def without_kernel(self, asked: Outstanding, proposal: Proposal) -> Done:
        """Return the end of a request that led to no kernel: to words, to metrics, or to nothing."""
        rows: Rows = {"proposals": [records.proposal_row(asked.request, proposal, at=self._history.now())]}
        told = Individual(
            asked.request, seconds=proposal.evaluator_s, cost_usd=proposal.cost_usd, description=proposal.description,
            unavailable=proposal.unavailable,
            failure=proposal.failure, text=proposal.text, metrics=dict(proposal.metrics or {}),
        )  # fmt: skip
        return Done(asked.state, told, rows)

    def without_machine(self, asked: Outstanding, failure: str) -> Done:
        """Return the end of a request that this machine lacked memory or files for: nothing to learn from."""
        done = self.without_kernel(asked, Proposal(failure=failure))
        return replace(done, individual=replace(done.individual, unavailable=True))

    async def judge(self, asked: Outstanding, proposal: Proposal) -> Done:
        """Return the end of a request that led to a kernel.

        Without the naive kernel nothing can be judged: where that is left undone, it raises Undone. It raises
        OperatorError where the operator is at fault.
        """
        state, request, kernel = asked.state, asked.request, proposal.kernel
        assert kernel
        rows: Rows = {"proposals": [records.proposal_row(request, proposal, at=self._history.now())]}
        rows |= self._history.kernel_rows(kernel)
        told = Individual(
            request, kernel, seconds=proposal.evaluator_s, cost_usd=proposal.cost_usd, description=proposal.description
        )
        try:
            levels = await self._verdicts.evaluate(state, request, kernel)
        except Undone as error:
            if is_naive(request):
                raise
            return _unjudged(state, told, rows, str(error))
        for evaluation, at in levels:
            name = records.evaluation_id(request, evaluation.level)
            rows = records.join(
                rows, records.evaluation_rows(evaluation, evaluation_id=name, request_id=request.id, at=at)
            )
        told = replace(told, seconds=told.seconds + _until_screened_s(levels[0].evaluation))
        found = verdict_of(request, levels)
        if not found:
            return _unjudged(state, told, rows, _unresolved(levels[-1].evaluation))
        return Done(state, replace(told, evaluation=records.as_stored(found)), rows)


def _unjudged(state: TaskState, told: Individual, rows: Rows, failure: str) -> Done:
    """The end of a request whose kernel has no verdict, by no fault of its own."""
    rows["proposals"][0] |= {"failure": failure}
    return Done(state, replace(told, unavailable=True, failure=failure), rows)


def _unresolved(found: Evaluation) -> str:
    assert found.log_ratio is not None and found.log_ratio_se is not None
    beside = estimate(*interval95(found.log_ratio, found.log_ratio_se))
    return f"the machine was too busy to time it: {beside} beside its anchor; hand it in again"


def _until_screened_s(screened: Evaluation) -> float:
    return sum(screened.stage_ms.get(stage, 0.0) for stage in ("build", "verify", "time")) / 1e3
