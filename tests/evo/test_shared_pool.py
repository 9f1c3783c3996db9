"""One pool for several runs: each has its own operators and verdicts, and ends alone."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evo.cluster.workers import HostedWorker, shipped_files
from evo.config import RunConfig
from evo.rows import profile_rows
from evo.search.driver import Search
from evo.session import run_context
from evo.store import Store, query
from evo.workers import worker
from evo.workers.dispatch import RunPool, WorkerPool
from evo.workers.jobs import Build, Screen, SpotCheck, TakeProfile
from evo.workers.local import LocalPool
from evo.workers.pool import EngineError, WorkerLost
from evo.workers.worker import MAX_RUNS, Answer, Message, RunContext, Stages, WorkerSpec
from fitness.evaluation import Status
from fitness.judging.base import Anchor, Built
from fitness.testing import ScriptedFitness, by_digest
from operators.catalog import load
from operators.definition.spec import Operator, Task
from operators.kernel import Kernel
from tests.evo.twins import AXPB, difference

TASK = Task("axpb", "fp32", "cpu")
KERNEL = Kernel("axpb", "cpu", (AXPB / "naive.cpp").read_text())
SPEC = WorkerSpec("shared")
BONUS = {"cpu": 0.0, "realistic": 1.0}
"""By workload set, what scripted log speedups are more than those by digest."""


class Stage(ScriptedFitness):
    """Scripted verdicts that depend on the operator's folder and the workload set; `open` are those not closed."""

    open: ClassVar[list[Stage]] = []

    def __init__(self, operator: Operator, task: Task, *, workload_set: str, folder: Path, shared: Path) -> None:
        def script(kernel: Kernel) -> Status | float:
            outcome = by_digest(kernel)
            return outcome if isinstance(outcome, Status) else outcome + BONUS[workload_set]

        super().__init__(task, Kernel(operator.name, "cpu", operator.naive("cpu")), script, operator=operator)
        self.folder, self.shared = folder, shared
        self.open.append(self)

    def close(self) -> None:
        self.open.remove(self)


class StagedWorker:
    """A worker that handles messages in this process, as one of its own would."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.stages = Stages(spec)
        self.seen: list[Message] = []

    async def ask(self, message: Message) -> Answer:
        await asyncio.sleep(0)
        self.seen.append(message)
        return worker.answer(message, self.spec, self.stages)

    def close(self) -> None:
        self.stages.close()


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where workers make their folders
    monkeypatch.setattr("evo.workers.worker.fitness", Stage)
    monkeypatch.setattr(Stage, "open", [])


def config(*operators: str, workload_set: str = "cpu", evaluations: int = 24) -> RunConfig:
    made = RunConfig(operators=list(operators), budget={"evaluations": evaluations}, seed=3).resolved()
    return made.model_copy(update={"workload_set": workload_set})


def context(name: str, workload_set: str = "cpu") -> RunContext:
    return RunContext((("axpb", str(AXPB)),), workload_set, name)


async def search(
    pool: RunPool, folder: Path, made: RunConfig, on_change: Callable[[Search], None] = lambda _: None
) -> str:
    with Store(folder, create=True) as store:
        try:
            return await Search(made, store, pool, on_change=on_change).run()
        finally:
            await pool.close()


def verdicts(folder: Path) -> dict[str, float]:
    sql = "select kernel_id, log_speedup from evaluations where log_speedup is not null"
    return {row["kernel_id"]: row["log_speedup"] for row in query(folder, sql).to_pylist()}


@pytest.mark.usefixtures("staged")
@pytest.mark.slow
def test_two_searches_on_one_pool_get_their_own_verdicts_and_one_may_end_before_the_other(tmp_path: Path) -> None:
    short, long = config(str(AXPB)), config("softmax", str(AXPB), workload_set="realistic", evaluations=40)
    folders = [tmp_path / "short", tmp_path / "long"]

    async def session() -> list[str]:
        pool = WorkerPool([SPEC, SPEC], StagedWorker)
        runs = [pool.for_run(run_context(made, folder)) for made, folder in zip((short, long), folders, strict=True)]

        def stop(running: Search) -> None:
            if sum(state.told for state in running.states.values()) >= 10:
                running.stop()

        try:
            found = await asyncio.gather(search(runs[0], folders[0], short, stop), search(runs[1], folders[1], long))
            with pytest.raises(EngineError, match="closed its pool"):
                await runs[0].run(Build(TASK, KERNEL))
            return found
        finally:
            await pool.close()

    assert asyncio.run(session()) == ["stopped", "evaluations 40 of 40"]
    for folder, made in zip(folders, (short, long), strict=True):
        baselines = {Kernel(operator.name, "cpu", operator.naive("cpu")).id for operator, _ in made.tasks()}
        found = verdicts(folder)
        assert len(found) > len(baselines)
        for kernel_id, log_speedup in found.items():
            scripted = by_digest_of(kernel_id) + BONUS[made.workload_set]
            assert math.isclose(log_speedup, 0.0 if kernel_id in baselines else scripted)
    assert Stage.open == []


def by_digest_of(kernel_id: str) -> float:
    class Named:
        id = kernel_id

    outcome: Any = by_digest(Named())  # type: ignore[arg-type]
    return float(outcome)


@pytest.mark.usefixtures("staged")
def test_a_worker_keeps_the_stages_of_the_runs_that_it_worked_for_last() -> None:
    stages = Stages(SPEC)
    runs = [context(str(number)) for number in range(MAX_RUNS)]
    first = [stages.of(run, TASK) for run in runs]
    assert stages.of(runs[0], TASK) is first[0]
    stages.of(context("one more"), TASK)
    left = {str(stage.folder) for stage in Stage.open}
    assert left == {"one more", *(run.folder for run in runs)} - {runs[1].folder}
    assert {str(stage.shared) for stage in Stage.open} == {SPEC.folder}
    stages.end(runs[0])
    assert first[0] not in Stage.open
    stages.close()
    assert Stage.open == []


@pytest.mark.usefixtures("staged")
def test_a_profile_names_the_worker_that_took_it_and_the_seconds_that_this_took() -> None:
    spec = WorkerSpec("shared", cores=(0, 1))
    kind, taken = worker.answer(Message(TakeProfile(TASK, KERNEL, ()), context("run")), spec, Stages(spec))
    assert (kind, taken.worker) == ("done", "cores 0, 1") and 0 < taken.seconds < 60
    row = profile_rows(taken, "e", TASK, KERNEL.id, failure="", at=0.0)["profiles"][0]
    assert (row["worker"], row["seconds"]) == (taken.worker, taken.seconds)


@pytest.mark.usefixtures("staged")
def test_workers_give_back_what_a_run_that_has_ended_had() -> None:
    async def session() -> None:
        made: list[StagedWorker] = []

        def start(spec: WorkerSpec) -> StagedWorker:
            made.append(StagedWorker(spec))
            return made[-1]

        pool = WorkerPool([SPEC], start)
        first, again, other = (pool.for_run(context(name)) for name in ("run", "run", "other"))
        await first.run(Build(TASK, KERNEL))
        await first.close()
        await again.run(Build(TASK, KERNEL))  # of an equal context: nothing ends while one of them is open
        assert len(Stage.open) == 1
        await again.close()
        await other.run(Build(TASK, KERNEL))
        assert [str(stage.folder) for stage in Stage.open] == ["other"]
        await other.run(Build(TASK, KERNEL))
        assert [message.ended for message in made[0].seen] == [(), (), (again.context,), ()]
        await pool.close()

    asyncio.run(session())


def test_to_close_one_run_ends_its_jobs_alone() -> None:
    class Slow:
        """A worker that answers when it is told to."""

        def __init__(self, spec: WorkerSpec) -> None:
            self.spec = spec
            self.closed = False
            made.append(self)

        async def ask(self, message: Message) -> Answer:
            self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            return await self.answer

        def close(self) -> None:
            self.closed = True

    made: list[Slow] = []

    async def session() -> None:
        pool = WorkerPool([SPEC, SPEC], Slow)
        mine, other = pool.for_run(context("mine")), pool.for_run(context("other"))
        jobs = [asyncio.ensure_future(run.run(Build(TASK, KERNEL))) for run in (mine, other, mine, other)]
        for _ in range(8):
            await asyncio.sleep(0)
        assert [len(run.jobs()) for run in (mine, other)] == [1, 1]
        assert mine.restart(60.0) == ()
        closing = asyncio.ensure_future(mine.close())
        for _ in range(8):
            await asyncio.sleep(0)
        assert [job.done() for job in jobs] == [True, False, True, False]
        assert [type(jobs[n].exception()) for n in (0, 2)] == [WorkerLost, WorkerLost]
        assert not closing.done()  # a worker is still at it
        made[0].answer.set_result(("done", "late"))
        await closing
        for _ in range(8):
            await asyncio.sleep(0)
        for slow in made:
            slow.answer.set_result(("done", "right"))
        assert [await jobs[n] for n in (1, 3)] == ["right", "right"]
        assert not any(slow.closed for slow in made)
        await pool.close()

    asyncio.run(session())


@pytest.mark.slow
def test_operators_of_one_name_are_judged_by_their_own_definitions_in_one_process(
    tmp_path: Path,
) -> None:
    places = [str(AXPB), str(difference(tmp_path))]
    kernels = [Kernel("axpb", "cpu", (Path(place) / "naive.cpp").read_text()) for place in places]
    for name in ("shared", "0", "1"):
        (tmp_path / name).mkdir()

    async def verdict(run: RunPool, anchor: Kernel, kernel: Kernel) -> Status:
        built = await run.run(Build(TASK, kernel))
        assert isinstance(built, Built), built
        return (await run.run(Screen(TASK, kernel, Anchor(anchor, 0.0, 0.0), race=False))).status

    async def session() -> list[list[Status]]:
        pool = LocalPool([WorkerSpec(str(tmp_path / "shared"))])
        contexts = [RunContext((("axpb", place),), "cpu", str(tmp_path / str(n))) for n, place in enumerate(places)]
        runs = [pool.for_run(one) for one in contexts]
        try:
            found = await asyncio.gather(
                *(verdict(run, own, kernel) for run, own in zip(runs, kernels, strict=True) for kernel in kernels)
            )
            await runs[0].close()
            shutil.rmtree(tmp_path / "0")
            found.append(await verdict(runs[1], kernels[1], kernels[0]))
            return [found[:2], found[2:4], found[4:]]
        finally:
            await pool.close()

    right, wrong = Status.CORRECT, Status.WRONG
    assert asyncio.run(session()) == [[right, wrong], [wrong, right], [wrong]]
    assert list((tmp_path / "shared").glob("timing-*.lock"))  # one lock for both
    assert not list((tmp_path / "1").glob("timing-*.lock"))


@pytest.mark.slow
def test_what_a_reference_prints_is_no_result_of_the_program(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "axpb"
    shutil.copytree(AXPB, place)
    reference = (place / "reference.py").read_text()
    changed = reference.replace("    return alpha", "    print('hello')\n    return alpha", 1)
    (place / "reference.py").write_text(changed)

    async def session() -> None:
        pool = LocalPool([WorkerSpec(str(tmp_path))])
        run = pool.for_run(RunContext((("axpb", str(place)),), "cpu", str(tmp_path)))
        try:
            kernel = Kernel("axpb", "cpu", (place / "naive.cpp").read_text())
            assert isinstance(await run.run(Build(TASK, kernel)), Built)
            assert (await run.run(SpotCheck(TASK, kernel))).rejection is None
        finally:
            await pool.close()

    asyncio.run(session())
    said = capfd.readouterr()
    assert "hello" in said.err and not said.out


@pytest.mark.slow
def test_operators_are_shipped_to_workers_on_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evo.cluster.connection.SCRATCH", tmp_path)
    runs = [
        RunContext((("axpb", str(place)), ("softmax", str(load("softmax").folder))), "cpu", f"/elsewhere/{n}/build")
        for n, place in enumerate((AXPB, difference(tmp_path)))
    ]
    kernels = [Kernel("axpb", "cpu", (Path(run.operators[0][1]) / "naive.cpp").read_text()) for run in runs]
    shipped = [shipped_files(run) for run in runs]
    assert [set(files) for files in shipped] == [{"axpb"}, {"axpb"}]
    hosted = HostedWorker(WorkerSpec("/elsewhere/0/build"), None, far=True)
    try:
        for run, files in zip(runs, shipped, strict=True):
            found = []
            for kernel in kernels:
                build = Message(Build(TASK, kernel), run)
                assert isinstance(value(hosted.ask(build, files)), Built)
                own = kernels[runs.index(run)]
                screen = Message(Screen(TASK, kernel, Anchor(own, 0.0, 0.0), race=False), run)
                found.append(value(hosted.ask(screen, None)).status)
            assert found == [Status.CORRECT if kernel is own else Status.WRONG for kernel in kernels]
        softmax = Kernel("softmax", "cpu", load("softmax").naive("cpu"))
        message = Message(Build(Task("softmax", "fp32", "cpu"), softmax), runs[1], ended=(runs[0],))
        assert isinstance(value(hosted.ask(message, None)), Built)
    finally:
        hosted._process.kill()


def value(answer: Answer | None) -> Any:
    assert answer is not None
    assert answer[0] == "done", answer
    return answer[1]
