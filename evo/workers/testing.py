"""A pool without workers: fitness stages in the driver's own process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from evo.workers.pool import Job
from evo.workers.worker import RunContext
from fitness.evaluation import Evaluation, Timing
from fitness.judging.base import Anchor, Built, Checked, Fitness
from fitness.profiling.profiles import Profile
from operators.definition.spec import Task
from operators.kernel import Kernel


class InlinePool:
    """Fitness stages called in the driver's own process, one job after the other; for scripted ones.

    Its stages are those of one run, whose view it is itself.
    """

    judges = 1

    def __init__(self, stages: dict[Task, Fitness], *, slots: int = 2) -> None:
        self.slots = slots
        self.stages = stages

    def for_run(self, context: RunContext) -> InlinePool:
        """The pool itself."""
        return self

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation:
        """See `fitness.judging.base.Builder`."""
        await asyncio.sleep(0)
        return self.stages[task].build(kernel)

    async def emulate(self, task: Task, kernel: Kernel) -> Checked:
        """See `fitness.judging.base.Builder`."""
        await asyncio.sleep(0)
        return self.stages[task].emulate(kernel)

    async def spot_check(self, task: Task, kernel: Kernel) -> Checked:
        """See `fitness.judging.base.Fitness`."""
        await asyncio.sleep(0)
        return self.stages[task].spot_check(kernel)

    async def screen(self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        """See `fitness.judging.base.Fitness`."""
        await asyncio.sleep(0)
        return self.stages[task].screen(kernel, anchor, race=race)

    async def full(self, task: Task, kernel: Kernel, anchor: Anchor) -> Evaluation:
        """See `fitness.judging.base.Fitness`."""
        await asyncio.sleep(0)
        return self.stages[task].full(kernel, anchor)

    async def confirm(self, task: Task, kernel: Kernel) -> Evaluation:
        """See `fitness.judging.base.Fitness`."""
        await asyncio.sleep(0)
        return self.stages[task].confirm(kernel)

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        """See `fitness.judging.base.Fitness`."""
        return self.stages[task].profile(kernel, timings)

    def jobs(self) -> tuple[Job, ...]:
        """No job: each is done before this can be asked."""
        return ()

    def restart(self, older_than_s: float) -> tuple[Job, ...]:
        """No job: none is ever stuck."""
        return ()

    async def close(self) -> None:
        """It closes the stages."""
        for stage in self.stages.values():
            stage.close()
