"""The asynchronous face of evaluation workers, wherever they work: a pool, how its jobs fail and are tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from evo.workers.jobs import Found, Job, Runs
from evo.workers.worker import RAISED, Answer, Message, WorkerSpec
from operators.errors import DiskError, MachineError
from operators.identity import short

Waits = Callable[[str, float], bool]
"""Whether to go on to wait for a disk that has been full for so long, given a reason and seconds."""
TRIED_AFTER_S = (0.0, 5.0, 25.0)
"""A job whose worker was lost is tried again after so long each time: at once, on another worker; then when what took
the machine's memory, or its descriptors, has had time to end."""
LOOK_FOR_ROOM_S = 5.0
"""Seconds between two tries of a job for which a disk has no room."""


class EngineError(Exception):
    """Our own bug or a broken machine; carries the traceback of the process where it happened."""


class ClusterLost(MachineError):
    """A process that a cluster cannot do without has ended."""


class Undone(MachineError):
    """No worker could do a job: a machine's failure, which says nothing of what the job was about."""


class WorkerLost(Exception):
    """The worker process ended during a job; the job may be given to another."""


class DeviceLost(WorkerLost):
    """The device of the worker failed during the job, which may be the doing of what the job is about."""


class JobOverdue(WorkerLost):
    """The job took longer than any may, and its worker was ended."""


@dataclass(frozen=True)
class RunningJob:
    """A job that a worker is at."""

    job: Job[Any]
    began: float
    """By `time.monotonic`."""

    def __str__(self) -> str:
        taken_s = time.monotonic() - self.began
        return f"{self.job} of kernel {short(self.job.kernel.id)} for {taken_s:.0f} s"


def value_of(answer: Answer) -> Any:
    """The value of an answer from another process; it raises UserError, or EngineError with that process's traceback.

    An operator that is at fault is an OperatorError here too, so that other tasks can go on; a machine, a MachineError.
    """
    kind, value = answer
    if kind == "done":
        return value
    raise RAISED.get(kind, EngineError)(value)


def never(reason: str, waited_s: float) -> bool:
    """Nothing is waited for: the `Waits` of who would rather hear at once of a full disk."""
    return False


async def tried(
    pool: Runs,
    job: Job[Found],
    lost: Callable[[WorkerLost], Awaitable[None]],
    waits: Waits,
) -> Found:
    """The result of a job, which is given to one worker after the other. This is where a machine's failures end.

    `lost` hears of every worker that it costs, and `waits` says whether a full disk is waited for. It raises Undone
    where no worker could do it, JobOverdue or DeviceLost where two ended in that way, and DiskError.
    """
    pauses, ends, began = iter(TRIED_AFTER_S), 0, time.monotonic()
    while True:
        try:
            return await pool.run(job)
        except WorkerLost as error:
            await lost(error)
            ends += isinstance(error, JobOverdue | DeviceLost)
            pause_s = next(pauses, None)
            if ends > 1:
                raise
            if pause_s is None:
                raise Undone(f"no worker could do it: {error}") from error
        except DiskError as error:
            if not waits(str(error), time.monotonic() - began):
                raise
            pause_s = LOOK_FOR_ROOM_S
        await asyncio.sleep(pause_s)


class Worker(Protocol):
    """One evaluation worker as its pool sees it; it does one job at a time."""

    spec: WorkerSpec

    async def ask(self, message: Message) -> Answer:
        """The answer; it raises WorkerLost, after which the worker is only good for being closed."""
        ...

    def close(self) -> None:
        """It ends the worker at once, whatever that is doing."""
        ...
