"""Workers on GPUs: who does what, and what becomes of a device that fails."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo.workers.dispatch import PROBES, RunPool, WorkerPool
from evo.workers.jobs import Build, Confirm, Full, Job, Screen, TakeProfile
from evo.workers.local import LocalPool, WorkerProcess
from evo.workers.pool import DeviceLost, EngineError, JobOverdue, WorkerLost, never, tried, value_of
from evo.workers.worker import (
    Answer,
    Message,
    RunContext,
    WorkerSpec,
    answered,
    gpu_specs,
)
from fitness.evaluation import Evaluation, Status
from fitness.judging.base import Anchor, Built
from fitness.profiling.profiles import Profile
from fitness.sandbox.native import built as built_program
from fitness.sandbox.native import cache_folder
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import DeviceError, OperatorError
from operators.kernel import Kernel
from tests.choosing import examples

TASK = Task("softmax", "fp32", "cuda")
KERNEL = Kernel("softmax", "cuda", "...")
ANCHOR = Anchor(KERNEL, 0.0, 0.0)
BASE = WorkerSpec("build")
RUN = RunContext((("softmax", "softmax"),), "cpu", "build")
OTHER = RunContext((("axpb", "/elsewhere/axpb"),), "realistic", "other")


def test_a_lost_worker_of_this_machine_names_its_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        def __init__(self, *_: object) -> None: ...

        def ask(self, message: Message) -> Answer:
            raise EOFError

        def signal(self) -> None: ...

        def kill(self) -> None: ...

    async def whole() -> None:
        pool = LocalPool([BASE])
        try:
            with pytest.raises(WorkerLost, match=r"^an evaluation worker ended during build of softmax/fp32/cuda$"):
                await pool.for_run(RUN).run(Build(TASK, KERNEL))
        finally:
            await pool.close()

    monkeypatch.setattr("evo.workers.local.WorkerProcess", Dead)
    asyncio.run(whole())


def test_every_device_has_one_judge_and_others_compile() -> None:
    specs = gpu_specs(BASE, ["2", "3"], builders=0, cores=16)
    assert [(s.device, s.gpus) for s in specs if not s.compiles] == [("2", 1), ("3", 1)]
    assert [s.device for s in specs if not s.judges] == ["2", "3"] * 3
    assert len(gpu_specs(BASE, ["0"], builders=0, cores=2)) == 2
    assert len(gpu_specs(BASE, ["0"], builders=5, cores=2)) == 6
    assert gpu_specs(BASE, [], builders=5, cores=2) == []


def test_a_device_that_fails_is_no_error_of_the_users() -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def call() -> None:
            raise error

        return call

    assert answered(fail(DeviceError("gone"))) == ("device", "gone")
    assert answered(fail(OperatorError("wrong"))) == ("operator", "wrong")
    with pytest.raises(OperatorError, match="wrong"):
        value_of(("operator", "wrong"))


class Device:
    """A GPU, by how often it fails from now on."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked: list[str] = []


def asked(message: Message) -> str:
    return message.job.name if message.job else "probe"


class FakeWorker:
    """Answers at once, or fails as its device does."""

    def __init__(self, spec: WorkerSpec, device: Device) -> None:
        self.spec = spec
        self._device = device
        self.closed = False

    async def ask(self, message: Message) -> Answer:
        assert not self.closed
        await asyncio.sleep(0)
        self._device.asked.append(asked(message))
        if self._device.failures:
            self._device.failures -= 1
            return "device", "the GPU failed: unknown error"
        if isinstance(message.job, Build):
            return "done", Built(KERNEL.id, "digest", ())
        return "done", () if message.job else None

    def close(self) -> None:
        self.closed = True


def run(
    failures: dict[str, int], session: Callable[[RunPool, dict[str, Device]], Coroutine[None, None, None]]
) -> list[str]:
    """The words of the pool in a session on devices that fail this often."""
    devices = {name: Device(count) for name, count in failures.items()}
    builder = Device(0)
    said: list[str] = []

    def start(spec: WorkerSpec) -> FakeWorker:
        return FakeWorker(spec, devices[spec.device] if spec.judges else builder)

    async def whole() -> None:
        pool = WorkerPool(gpu_specs(BASE, list(devices), builders=1, cores=4), start, said.append)
        try:
            await session(pool.for_run(RUN), devices)
        finally:
            await pool.close()

    asyncio.run(whole())
    return said


async def judged(pool: RunPool) -> object:
    return await pool.run(Screen(TASK, KERNEL, ANCHOR, race=False))


def test_a_device_that_failed_once_shows_that_it_works_and_goes_on() -> None:
    async def session(pool: RunPool, devices: dict[str, Device]) -> None:
        with pytest.raises(WorkerLost, match="unknown error"):
            await judged(pool)
        assert await judged(pool) == ()  # waits for the probe
        assert devices["0"].asked == ["screen", "probe", "screen"]

    assert run({"0": 1}, session) == []


def test_a_device_that_keeps_failing_is_left_out_and_its_jobs_go_to_others() -> None:
    async def session(pool: RunPool, devices: dict[str, Device]) -> None:
        outcomes = await asyncio.gather(*(judged(pool) for _ in range(6)), return_exceptions=True)
        assert [type(o) for o in outcomes].count(DeviceLost) == 1
        assert outcomes.count(()) == 5
        await asyncio.sleep(0.01)
        assert devices["0"].asked == ["screen", *["probe"] * PROBES]
        assert await judged(pool) == ()
        assert len(devices["1"].asked) == 6

    (said,) = run({"0": 10**6, "1": 0}, session)
    assert "GPU 0 is left out" in said
    assert "unknown error" in said


def test_without_any_device_left_those_who_wait_are_told() -> None:
    async def session(pool: RunPool, devices: dict[str, Device]) -> None:
        outcomes = await asyncio.gather(*(judged(pool) for _ in range(3)), return_exceptions=True)
        assert [type(o) for o in outcomes] == [DeviceLost, EngineError, EngineError]
        with pytest.raises(EngineError, match="no evaluation worker is left for screen"):
            await judged(pool)
        assert isinstance(await pool.run(Build(TASK, KERNEL)), Built)

    assert len(run({"0": 10**6}, session)) == 1


def test_workers_that_come_later_take_what_waits() -> None:
    async def session() -> None:
        shared = WorkerPool([BASE], Obedient)
        jobs = [asyncio.ensure_future(shared.for_run(RUN).run(Build(TASK, KERNEL))) for _ in range(2)]
        await settle()
        shared.add([BASE])
        await settle()
        assert shared.slots == 2
        for worker in shared._workers:
            worker.answer()  # type: ignore[attr-defined]
        assert await asyncio.gather(*jobs)
        await shared.close()
        shared.add([BASE])
        assert shared.slots == 2, "a pool that is closed takes nobody"

    asyncio.run(session())


def test_a_worker_sees_its_own_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    held: list[int] = []

    class Nothing:
        def __init__(self, *_: object, env: dict[str, str], pass_fds: tuple[int], **__: object) -> None:
            seen.append(env.get("CUDA_VISIBLE_DEVICES"))
            held.append(os.dup(pass_fds[0]))

    monkeypatch.setattr("evo.workers.local.subprocess.Popen", Nothing)
    for spec in gpu_specs(BASE, ["GPU-7"], builders=1, cores=4):
        WorkerProcess(spec, {"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-7"})
    WorkerProcess(BASE, {"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-7"})
    for descriptor in held:
        os.close(descriptor)
    assert seen == ["GPU-7", "GPU-7", "GPU-3,GPU-7"]


@pytest.mark.slow
def test_a_worker_survives_ctrl_c_from_its_first_moment_on(tmp_path: Path) -> None:
    for pause_s in (0.0, 0.05):
        worker = WorkerProcess(replace(BASE, folder=str(tmp_path)), os.environ)
        try:
            time.sleep(pause_s)
            os.kill(worker.pid, signal.SIGINT)
            assert worker.ask(Message(None))[0] == "done"
            masks = Path(f"/proc/{worker.pid}/status").read_text()
            (blocked,) = re.findall(r"^SigBlk:\s*(\w+)", masks, re.MULTILINE)
            assert not int(blocked, 16) & 1 << signal.SIGINT - 1
        finally:
            worker.kill()


class Obedient:
    """A worker whose jobs end when the test says so; each answer carries the kernel that it was asked about."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.closed = False
        self.busy: asyncio.Future[Answer] | None = None
        self.kernel_id = ""

    async def ask(self, message: Message) -> Answer:
        assert not self.closed, "a worker that was ended is asked"
        assert self.busy is None or self.busy.done(), "a worker is asked for two things at once"
        assert message.job
        self.kernel_id = message.job.kernel.id
        self.busy = asyncio.get_running_loop().create_future()
        return await self.busy

    def answer(self) -> None:
        if self.busy and not self.busy.done():
            self.busy.set_result(("done", (self.kernel_id,)))

    def die(self) -> None:
        """While it works."""
        if self.busy and not self.busy.done():
            self.busy.set_exception(WorkerLost("died"))

    def close(self) -> None:
        self.closed = True
        self.die()


async def settle(turns: int = 8) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["screen", "profile", "cancel", "answer", "restart", "end", "lose", "turn"]), st.integers(0, 9)
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 3))
@examples(150)
def test_whatever_is_cancelled_no_worker_is_lost_and_nobody_hears_anothers_answer(
    steps: list[tuple[str, int]], count: int
) -> None:
    async def session() -> None:
        made: list[Obedient] = []

        def start(spec: WorkerSpec) -> Obedient:
            made.append(Obedient(spec))
            return made[-1]

        pool = WorkerPool([BASE] * count, start, fail)
        runs = [pool.for_run(RUN), pool.for_run(OTHER)]
        ends: list[asyncio.Task[None]] = []
        jobs: list[tuple[str, asyncio.Task[tuple[object, ...]]]] = []
        for number, (step, which) in enumerate(steps):
            living = [worker for worker in made if not worker.closed]
            if step in ("screen", "profile"):
                kernel = Kernel("softmax", "cpu", f"{number}")
                job: Job[Evaluation] | Job[Profile] = (
                    Screen(TASK, kernel, ANCHOR, race=False) if step == "screen" else TakeProfile(TASK, kernel, ())
                )
                jobs.append((kernel.id, asyncio.ensure_future(runs[which % 2].run(job))))
            elif step == "cancel" and jobs:
                jobs[which % len(jobs)][1].cancel()
            elif step == "answer":
                living[which % len(living)].answer()
            elif step == "restart":
                runs[which % 2].restart(older_than_s=0.0)
            elif step == "end":
                ends.append(asyncio.ensure_future(runs[which % 2].close()))
                runs[which % 2] = pool.for_run(runs[which % 2].context)
            elif step == "lose":
                living[which % len(living)].die()
            elif step == "turn":
                await asyncio.sleep(0)
        while not all(job.done() for job in (*ends, *(job for _, job in jobs))):
            for worker in made:
                worker.answer()
            await settle()
        for kernel_id, job in jobs:
            outcome = None if job.cancelled() else job.exception() or job.result()
            assert outcome is None or isinstance(outcome, WorkerLost) or outcome == (kernel_id,)
        last = [asyncio.ensure_future(judged(runs[0])) for _ in range(count)]
        for _ in range(3):
            await settle()
            for worker in made:
                worker.answer()
        assert [(await job) for job in last] == [(KERNEL.id,)] * count  # all of them at once
        assert [run.jobs() for run in runs] == [(), ()]
        await pool.close()

    def fail(text: str) -> None:
        raise AssertionError(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evo.workers.dispatch.GRACE_S", 0.0)
        asyncio.run(session())


@pytest.mark.parametrize("yields", [3, 16])
def test_kernels_under_way_go_before_new_ones_and_a_profile_lets_only_so_many_pass(
    yields: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.workers.jobs.TakeProfile.yields", yields)
    served: list[str] = []

    class Noting(Obedient):
        async def ask(self, message: Message) -> Answer:
            served.append(asked(message))
            return await super().ask(message)

    async def session() -> None:
        kernels = [Kernel("softmax", "cpu", f"{number}") for number in range(6)]
        await served_by(
            Noting,
            Screen(TASK, KERNEL, ANCHOR, race=True),
            TakeProfile(TASK, KERNEL, ()),
            *(Build(TASK, kernel) for kernel in kernels[:5]),
            Screen(TASK, kernels[5], ANCHOR, race=True),
            Full(TASK, kernels[5], ANCHOR),
            Confirm(TASK, kernels[5]),
        )

    asyncio.run(session())
    new = ["build"] * 5 + ["screen"]
    new.insert(min(yields, len(new)), "profile")
    assert served == ["screen", "full", "confirm", *new]


def test_a_kernel_that_took_long_to_build_keeps_its_place_before_younger_ones() -> None:
    served: list[str] = []

    class Noting(Obedient):
        async def ask(self, message: Message) -> Answer:
            served.append(f"{asked(message)} {message.job.kernel.source}")
            return await super().ask(message)

    async def session() -> None:
        slow, quick = Kernel("softmax", "cpu", "slow"), Kernel("softmax", "cpu", "quick")
        await served_by(
            Noting,
            Build(TASK, slow),
            Build(TASK, quick),
            Screen(TASK, quick, ANCHOR, race=True),
            Screen(TASK, slow, ANCHOR, race=True),
        )

    asyncio.run(session())
    assert served == ["build slow", "screen slow", "build quick", "screen quick"]


async def served_by(start: Callable[[WorkerSpec], Obedient], *jobs: Job[Any]) -> None:
    """One worker does jobs that all wait at once."""
    shared = WorkerPool([BASE], start)
    pool = shared.for_run(RUN)
    waiting = [asyncio.ensure_future(pool.run(job)) for job in jobs]
    while not all(job.done() for job in waiting):
        await settle()
        for worker in shared._workers:
            worker.answer()  # type: ignore[attr-defined]
    await shared.close()


def test_a_job_that_takes_too_long_is_given_up_even_if_its_worker_notices_nothing() -> None:
    class Deaf(Obedient):
        def close(self) -> None:
            self.closed = True

    async def session() -> None:
        shared = WorkerPool([BASE], Deaf)
        pool = shared.for_run(RUN)
        job = asyncio.ensure_future(judged(pool))
        await settle()
        (seen,) = pool.jobs()
        assert seen.job == Screen(TASK, KERNEL, ANCHOR, race=False)
        assert pool.restart(older_than_s=60.0) == ()
        assert pool.restart(older_than_s=0.0) == (seen,)
        with pytest.raises(WorkerLost, match="took too long"):
            await job
        await shared.close()

    asyncio.run(session())


@pytest.mark.parametrize("method", ["build", "screen"])
def test_every_job_has_a_deadline_after_which_another_worker_takes_the_place(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"build": 0.0, "screen": 0.0}
    monkeypatch.setattr(Job, "limit_s", lambda job, target: limits[job.name])

    async def session() -> None:
        shared = WorkerPool([BASE], Obedient)
        pool = shared.for_run(RUN)
        (first,) = shared._workers
        with pytest.raises(JobOverdue, match=f"{method} did not end within 0 s"):
            await (judged(pool) if method == "screen" else pool.run(Build(TASK, KERNEL)))
        (second,) = shared._workers
        assert first.closed and second is not first  # type: ignore[attr-defined]
        limits[method] = 600.0
        job = asyncio.ensure_future(judged(pool) if method == "screen" else pool.run(Build(TASK, KERNEL)))
        await settle()
        second.answer()  # type: ignore[attr-defined]
        assert await job == (KERNEL.id,)
        await shared.close()

    asyncio.run(session())


@pytest.mark.slow
def test_whatever_is_removed_under_workers_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task("softmax", "fp32", "cpu")
    kernel = Kernel("softmax", "cpu", load("softmax").ancestor("naive", "cpu").read_text())
    monkeypatch.setattr("evo.workers.pool.TRIED_AFTER_S", (0.0,) * 4)
    shutil.copytree(cache_folder(), tmp_path / "cache" / "kernel-evo", symlinks=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "build"
    lost: list[str] = []

    async def note(error: WorkerLost) -> None:
        lost.append(str(error))

    async def session() -> list[Evaluation]:
        shared = LocalPool([WorkerSpec(str(folder))])
        pool = shared.for_run(replace(RUN, folder=str(folder)))
        found = []
        try:
            for gone in (folder, built_program("native/jail.cpp"), folder):
                built = await tried(pool, Build(task, kernel), note, never)
                assert isinstance(built, Built)
                if gone.is_dir():
                    shutil.rmtree(gone)
                else:
                    gone.unlink()
                screen = Screen(task, kernel, Anchor(kernel, 0.0, 0.0), race=False)
                found.append(await tried(pool, screen, note, never))
            return found
        finally:
            await shared.close()

    assert [verdict.status for verdict in asyncio.run(session())] == [Status.CORRECT] * 3
    assert lost and all("No such file or directory" in error for error in lost)


def test_a_worker_that_cannot_be_started_is_a_job_that_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evo.workers.pool.TRIED_AFTER_S", (0.0,) * 2)
    failures = 2

    def start(spec: WorkerSpec, environment: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return Standing()

    class Standing:
        def ask(self, message: Message) -> Answer:
            return "done", "built"

        def signal(self) -> None: ...

        kill = signal

    monkeypatch.setattr("evo.workers.local.WorkerProcess", start)
    lost: list[str] = []

    async def note(error: WorkerLost) -> None:
        lost.append(str(error))

    async def session() -> object:
        shared = LocalPool([WorkerSpec(str(tmp_path))])
        try:
            return await tried(shared.for_run(RUN), Build(TASK, KERNEL), note, never)
        finally:
            await shared.close()

    assert asyncio.run(session()) == "built"
    assert len(lost) == 2 and all("Too many open files" in error for error in lost)


@pytest.mark.slow
def test_a_cancelled_job_of_a_real_process_costs_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a cancelled job comes late, or its process is ended; the next one gets its own in both cases."""
    task = Task("softmax", "fp32", "cpu")
    kernel = Kernel("softmax", "cpu", load("softmax").ancestor("naive", "cpu").read_text())

    async def session() -> list[object]:
        shared = LocalPool([WorkerSpec(str(tmp_path))])
        pool = shared.for_run(replace(RUN, folder=str(tmp_path)))
        try:
            built = await pool.run(Build(task, kernel))
            for grace_s in (60.0, 0.0):
                monkeypatch.setattr("evo.workers.dispatch.GRACE_S", grace_s)
                job = asyncio.ensure_future(pool.run(Build(task, Kernel("softmax", "cpu", "no kernel"))))
                await asyncio.sleep(0.01)
                job.cancel()
                built, earlier = await pool.run(Build(task, kernel)), built
                assert isinstance(built, Built) and isinstance(earlier, Built)
                assert built.code_digest == earlier.code_digest
            return list(pool.jobs())
        finally:
            await shared.close()

    assert asyncio.run(session()) == []
