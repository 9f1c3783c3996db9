"""A pool without workers: fitness stages in the driver's own process."""

from __future__ import annotations

import asyncio

from evo.workers.jobs import Found, Job
from evo.workers.pool import RunningJob
from evo.workers.worker import RunContext
from fitness.judging.base import Fitness
from operators.definition.spec import Task


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

    async def run(self, job: Job[Found]) -> Found:
        """The answer of the task's stage, while nothing else is done."""
        await asyncio.sleep(0)
        return job.asked_of(self.stages[job.task])

    def jobs(self) -> tuple[RunningJob, ...]:
        """No job: each is done before this can be asked."""
        return ()

    def restart(self, older_than_s: float) -> tuple[RunningJob, ...]:
        """No job: none is ever stuck."""
        return ()

    async def close(self) -> None:
        """It closes the stages."""
        for stage in self.stages.values():
            stage.close()
