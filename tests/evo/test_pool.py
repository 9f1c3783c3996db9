"""Workers on GPUs: who does what, and what becomes of a device that fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine

import pytest

from evo.pool import PROBES, EngineError, Message, WorkerLost, WorkerPool, WorkerProcess
from evo.worker import BUILD_JOBS, JUDGE_JOBS, PROBE, Answer, WorkerSpec, answered, gpu_specs
from fitness.base import Anchor, Built
from operators.errors import DeviceError, OperatorError
from operators.kernel import Kernel
from operators.spec import Task

TASK = Task("softmax", "fp32", "cuda")
KERNEL = Kernel("softmax", "cuda", "...")
ANCHOR = Anchor(KERNEL, 0.0, 0.0)
BASE = WorkerSpec({}, "cpu", "build")


def test_every_device_has_one_judge_and_others_compile() -> None:
    specs = gpu_specs(BASE, ["2", "3"], builders=0, cores=16)
    assert [(s.device, s.gpus) for s in specs if s.jobs == JUDGE_JOBS] == [("2", 1), ("3", 1)]
    assert [s.device for s in specs if s.jobs == BUILD_JOBS] == ["2", "3"] * 3
    assert len(gpu_specs(BASE, ["0"], builders=0, cores=2)) == 2
    assert len(gpu_specs(BASE, ["0"], builders=5, cores=2)) == 6
    assert gpu_specs(BASE, [], builders=5, cores=2) == []


def test_a_device_that_fails_is_no_error_of_the_users() -> None:
    def fail(error: Exception) -> Callable[[], None]:
        def call() -> None:
            raise error

        return call

    assert answered(fail(DeviceError("gone"))) == ("device", "gone")
    assert answered(fail(OperatorError("wrong"))) == ("user", "wrong")


class Device:
    """A GPU, by how often it fails from now on."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked: list[str] = []


class FakeWorker:
    """Answers at once, or fails as its device does."""

    def __init__(self, spec: WorkerSpec, device: Device) -> None:
        self.spec = spec
        self._device = device
        self.closed = False

    async def ask(self, message: Message) -> Answer:
        assert not self.closed
        await asyncio.sleep(0)
        self._device.asked.append(message[0])
        if self._device.failures:
            self._device.failures -= 1
            return "device", "the GPU failed: unknown error"
        if message[0] == "build":
            return "done", Built(KERNEL.id, "digest", ())
        return "done", None if message[0] == PROBE else ()

    def close(self) -> None:
        self.closed = True


def run(
    failures: dict[str, int], session: Callable[[WorkerPool, dict[str, Device]], Coroutine[None, None, None]]
) -> list[str]:
    """What the pool said, of a session on devices that fail so often."""
    devices = {name: Device(count) for name, count in failures.items()}
    builder = Device(0)
    said: list[str] = []

    def start(spec: WorkerSpec) -> FakeWorker:
        return FakeWorker(spec, builder if spec.jobs == BUILD_JOBS else devices[spec.device])

    async def carried() -> None:
        pool = WorkerPool(gpu_specs(BASE, list(devices), builders=1, cores=4), start, said.append)
        try:
            await session(pool, devices)
        finally:
            await pool.close()

    asyncio.run(carried())
    return said


async def judged(pool: WorkerPool) -> object:
    return await pool.judge(TASK, KERNEL, ANCHOR, race=False, best=None)


def test_a_device_that_failed_once_shows_that_it_works_and_goes_on() -> None:
    async def session(pool: WorkerPool, devices: dict[str, Device]) -> None:
        with pytest.raises(WorkerLost, match="unknown error"):
            await judged(pool)
        assert await judged(pool) == ()  # waits for the probe
        assert devices["0"].asked == ["judge", PROBE, "judge"]

    assert run({"0": 1}, session) == []


def test_a_device_that_keeps_failing_is_left_out_and_its_jobs_go_to_others() -> None:
    async def session(pool: WorkerPool, devices: dict[str, Device]) -> None:
        outcomes = await asyncio.gather(*(judged(pool) for _ in range(6)), return_exceptions=True)
        assert [type(o) for o in outcomes].count(WorkerLost) == 1
        assert outcomes.count(()) == 5
        await asyncio.sleep(0.01)
        assert devices["0"].asked == ["judge", *[PROBE] * PROBES]
        assert await judged(pool) == ()
        assert len(devices["1"].asked) == 6

    (said,) = run({"0": 10**6, "1": 0}, session)
    assert "GPU 0 is left out" in said
    assert "unknown error" in said


def test_without_any_device_left_those_who_wait_are_told() -> None:
    async def session(pool: WorkerPool, devices: dict[str, Device]) -> None:
        outcomes = await asyncio.gather(*(judged(pool) for _ in range(3)), return_exceptions=True)
        assert [type(o) for o in outcomes] == [WorkerLost, EngineError, EngineError]
        with pytest.raises(EngineError, match="no evaluation worker is left for judge"):
            await judged(pool)
        assert isinstance(await pool.build(TASK, KERNEL), Built)

    assert len(run({"0": 10**6}, session)) == 1


def test_a_worker_sees_its_own_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    held: list[int] = []

    class Nothing:
        def __init__(self, *_: object, env: dict[str, str], pass_fds: tuple[int], **__: object) -> None:
            seen.append(env.get("CUDA_VISIBLE_DEVICES"))
            held.append(os.dup(pass_fds[0]))

    monkeypatch.setattr("evo.pool.subprocess.Popen", Nothing)
    for spec in gpu_specs(BASE, ["GPU-7"], builders=1, cores=4):
        WorkerProcess(spec, {"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-7"})
    WorkerProcess(BASE, {"CUDA_VISIBLE_DEVICES": "GPU-3,GPU-7"})
    for descriptor in held:
        os.close(descriptor)
    assert seen == ["GPU-7", "GPU-7", "GPU-3,GPU-7"]
