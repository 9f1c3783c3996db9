"""Two runs on one pool with one GPU: verdicts by their own operators, and memory that is seen by both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from evo.workers.dispatch import RunPool
from evo.workers.jobs import Build, Screen
from evo.workers.local import LocalPool
from evo.workers.worker import RunContext, WorkerSpec, gpu_specs
from fitness.evaluation import Status
from fitness.judging.base import Anchor, Built
from fitness.targets import devices
from operators.definition.spec import Task
from operators.kernel import Kernel
from tests.evo.twins import AXPB, difference

pytestmark = pytest.mark.gpu
TASK = Task("axpb", "fp32", "cuda")


def test_operators_of_one_name_are_judged_by_their_own_definitions_on_one_gpu(tmp_path: Path) -> None:
    places = [AXPB, difference(tmp_path)]
    kernels = [Kernel("axpb", "cuda", (place / "naive.cu").read_text()) for place in places]
    for name in ("shared", "0", "1"):
        (tmp_path / name).mkdir()

    async def verdict(run: RunPool, anchor: Kernel, kernel: Kernel) -> Status:
        built = await run.run(Build(TASK, kernel))
        assert isinstance(built, Built), built
        return (await run.run(Screen(TASK, kernel, Anchor(anchor, 0.0, 0.0), race=False))).status

    async def session() -> list[Status]:
        pool = LocalPool(gpu_specs(WorkerSpec(str(tmp_path / "shared")), devices("cuda")[:1], builders=1, cores=2))
        contexts = [RunContext((("axpb", str(p)),), "cpu", str(tmp_path / str(n))) for n, p in enumerate(places)]
        runs = [pool.for_run(one) for one in contexts]
        jobs = [verdict(run, own, kernel) for run, own in zip(runs, kernels, strict=True) for kernel in kernels]
        try:
            found = await asyncio.gather(*jobs)
            await runs[0].close()
            return [*found, await verdict(runs[1], kernels[1], kernels[1])]
        finally:
            await pool.close()

    right, wrong = Status.CORRECT, Status.WRONG
    assert asyncio.run(session()) == [right, wrong, wrong, right, right]
