"""Evaluation workers behind an asynchronous face, wherever they work."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evo.workers.dispatch import Homes, Key, WaitingJobs
from evo.workers.jobs import Found, Job, Runs
from evo.workers.worker import RAISED, SPENT, Answer, Message, RunContext, WorkerSpec
from operators.errors import DiskError, MachineError

Waits = Callable[[str, float], bool]
"""Whether to go on to wait for a disk that has been full for so long, given a reason and seconds."""
PROBES = 3
"""A device that fails so many times in a row to show that it works is left out."""
PROBE_S = 120.0
"""A device that has not shown by then that it works has failed to."""
LOOK_S = 1.0
"""Seconds between two scheduling passes over waiting jobs, at most."""
GRACE_S = 3.0
"""Time that a worker may go on with a job that was cancelled, before it is replaced."""
KEPT_MACHINES = 4096


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
        return f"{self.job} of kernel {self.job.kernel.id[:12]} for {taken_s:.0f} s"


class Pool(Runs, Protocol):
    """Does the jobs of one run, elsewhere.

    Calls may be concurrent; jobs beyond `slots` wait.

    A call may be cancelled at any moment: its worker is free again within GRACE_S, or replaced, and what it still
    answers is dropped.
    """

    @property
    def slots(self) -> int:
        """The number of jobs that can be done at once."""
        ...

    @property
    def judges(self) -> int:
        """The number of kernels that can be timed at once."""
        ...

    def jobs(self) -> tuple[RunningJob, ...]:
        """The jobs that are under way, the oldest first."""
        ...

    def restart(self, older_than_s: float) -> tuple[RunningJob, ...]:
        """It replaces the workers of all jobs that take longer; these jobs end as WorkerLost. It returns them."""
        ...

    async def close(self) -> None:
        """It ends the run's jobs, and gives back what is kept for the run."""
        ...


class SharedPool(Protocol):
    """Evaluation workers that several runs may use at the same time."""

    def for_run(self, context: RunContext) -> Pool:
        """The pool as one run sees it; to close that leaves this pool to the others."""
        ...

    async def close(self) -> None:
        """It ends every worker at once, whatever that is doing; only the owner of the pool does so."""
        ...


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


@dataclass(frozen=True)
class _Assigned:
    """A run's job that a worker is at."""

    run: RunPool
    running: RunningJob
    answering: asyncio.Task[Answer]


class WorkerPool:
    """A fixed number of workers, for any number of runs; a worker that is lost is replaced, its job is WorkerLost.

    Before another worker takes the place of one on a GPU, it shows that the GPU computes; a GPU that does not is left
    out. A kernel is judged where its task is at home, see `evo.workers.dispatch`, and compiled on the same machine if a
    worker is free there, else on any. Which of the jobs that wait comes first, see `evo.workers.dispatch`.
    """

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        start: Callable[[WorkerSpec], Worker | None],
        say: Callable[[str], None] = lambda text: print(f"evo: {text}", file=sys.stderr),
    ) -> None:
        """One worker for each of `specs`; `start` makes it at once, or says with None that it cannot be had again.

        `say` tells the user that a device was left out.
        """
        self._start = start
        self._say = say
        self._probing: dict[asyncio.Task[None], WorkerSpec] = {}
        """Places whose device has to show that it works."""
        self._idle = [worker for spec in specs if (worker := start(spec))]
        self._workers = set(self._idle)
        self._runs: set[RunPool] = set()
        """The views that are open."""
        self._ended: dict[Worker, tuple[RunContext, ...]] = {}
        """Runs that have ended, by each worker that has not been told yet."""
        self._homes: Homes[Worker] = Homes()
        self._waiting: WaitingJobs[Worker] = WaitingJobs(self._homes)
        self._assigned: dict[Worker, _Assigned] = {}
        """Work of each worker that is neither idle nor probed, until its answer is there."""
        self._orphans: dict[asyncio.Task[None], RunPool] = {}
        """Tasks that wait for the end of jobs that were cancelled."""
        self._machines: dict[tuple[RunContext, str], str] = {}
        """By run and kernel id, whose disk holds what is built; of the KEPT_MACHINES kernels worked on last."""
        self._closed = False

    def for_run(self, context: RunContext) -> RunPool:
        """The pool as one run sees it; other runs may use it at the same time."""
        run = RunPool(self, context)
        self._runs.add(run)
        return run

    def add(self, specs: Sequence[WorkerSpec]) -> None:
        """It makes one more worker for each of `specs`, which takes part from now on."""
        for worker in filter(None, map(self._start, () if self._closed else specs)):
            self._workers.add(worker)
            self._release(worker)

    @property
    def slots(self) -> int:
        """The number of workers."""
        return len(self._workers)

    @property
    def judges(self) -> int:
        """The number of kernels that can be timed at once."""
        timing = [worker.spec for worker in self._workers if worker.spec.judges]
        groups = {(spec.machine, spec.cores) for spec in timing if spec.cores}  # whose workers take turns
        return max(len(groups) + sum(not spec.cores for spec in timing), 1)

    def jobs(self, run: RunPool) -> tuple[RunningJob, ...]:
        """The jobs of a run that are under way, the oldest first."""
        return tuple(sorted((a.running for a in self._assigned.values() if a.run is run), key=lambda at: at.began))

    def restart(self, older_than_s: float, run: RunPool) -> tuple[RunningJob, ...]:
        """It replaces the workers of a run's jobs that take longer; these jobs end as WorkerLost. It returns them."""
        limit = time.monotonic() - older_than_s
        stuck = [
            (worker, at)
            for worker, at in self._assigned.items()
            if at.run is run and at.running.began <= limit and not at.answering.done()
        ]
        for worker, at in stuck:
            self._replace(worker)
            at.answering.cancel()  # also of a worker that would not even notice its end
        return tuple(at.running for _, at in stuck)

    async def end(self, run: RunPool) -> None:
        """It waits for the end of a run's cancelled jobs, and has the workers give back what they keep for the run."""
        if orphans := [orphan for orphan, of in self._orphans.items() if of is run]:
            await asyncio.wait(orphans)
        self._runs.discard(run)
        if all(other.context != run.context for other in self._runs):
            self._homes.end(run.context)
            for worker in self._workers:
                self._ended[worker] = (*self._ended.get(worker, ()), run.context)

    async def close(self) -> None:
        """It ends every worker at once, whatever that is doing."""
        self._closed = True
        for waiting in (*self._probing, *self._orphans):
            waiting.cancel()
        answers = [at.answering for at in self._assigned.values()]
        for worker in self._workers:
            worker.close()
        for answering in answers:
            answering.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def run(self, run: RunPool, job: Job[Found]) -> Found:
        """The answer of a run's job. It raises WorkerLost, EngineError where no worker is left, and UserError.

        Every job has a deadline, whatever its kind: a worker that is at it for longer is replaced, which is JobOverdue.
        """
        key = run.context, job.task
        worker = await self._take(job, run.context, self._machine(key, job))
        began, limit_s = time.monotonic(), job.limit_s(worker.spec.target)
        answering = asyncio.ensure_future(worker.ask(Message(job, run.context, self._ended.pop(worker, ()))))
        self._assigned[worker] = _Assigned(run, RunningJob(job, began), answering)
        if not job.builds:
            self._homes.begins(key, worker, began)
        answering.add_done_callback(lambda _: self._leaves(worker))
        try:
            async with asyncio.timeout(limit_s):
                answer = await _unless_cancelled(answering)
        except TimeoutError:
            self._replace(worker)
            answering.cancel()
            raise JobOverdue(f"{job.name} did not end within {limit_s:.0f} s") from None
        except asyncio.CancelledError:
            orphan = asyncio.ensure_future(self._outlast(worker, answering))
            self._orphans[orphan] = run
            orphan.add_done_callback(self._orphans.pop)
            raise
        except BaseException:
            self._replace(worker)
            raise
        if answer[0] in SPENT:
            self._replace(worker)
            lost = DeviceLost if answer[0] == "device" else WorkerLost
            raise lost(f"the {answer[0]} of an evaluation worker failed during {job}: {answer[1]}")
        if not job.builds:
            self._homes.took(key, worker, time.monotonic() - began)
        self._release(worker)
        value: Found = value_of(answer)
        if worker.spec.machine and job.has_files:
            self._machines[run.context, job.kernel.id] = worker.spec.machine
            if len(self._machines) > KEPT_MACHINES:
                del self._machines[next(iter(self._machines))]
        return value

    def _leaves(self, worker: Worker) -> None:
        """A worker has no job any more."""
        self._assigned.pop(worker, None)
        self._homes.ends(worker)

    async def _outlast(self, worker: Worker, answering: asyncio.Task[Answer]) -> None:
        """Free the worker of a cancelled job: by itself if it ends soon, for another worker if it does not."""
        await asyncio.wait({answering}, timeout=GRACE_S)
        ended = answering.done() and not answering.cancelled() and not answering.exception()
        if ended and answering.result()[0] not in SPENT:
            self._release(worker)
        else:
            self._replace(worker)
            answering.cancel()

    def _machine(self, key: Key, job: Job[Any]) -> str:
        """The machine whose disk holds what is built of a job's kernel, else the one where its task is at home."""
        home = next((worker.spec.machine for worker in self._homes.of(key)), "")
        return self._machines.pop((key[0], job.kernel.id), home) if job.has_files else home

    async def _take(self, job: Job[Any], context: RunContext, machine: str) -> Worker:
        if error := self._lack(job):
            raise error
        waiting = self._waiting.add(job, context, machine)
        self._dispatch()
        try:
            while not waiting.turn.done():  # what a worker is at may take so long that another one had better come
                await asyncio.wait({waiting.turn}, timeout=LOOK_S)
                self._dispatch()
            return waiting.turn.result()
        except asyncio.CancelledError:
            if waiting.turn.done() and not waiting.turn.exception():  # its turn had come in the same moment
                self._release(waiting.turn.result())
            raise
        finally:
            self._waiting.discard(waiting)

    def _release(self, worker: Worker) -> None:
        """Hand a free worker to a job that waits for one."""
        self._idle.append(worker)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give the free workers to jobs that wait: first those with which few tasks are at home."""
        for worker in sorted(self._idle, key=self._homes.count):
            if self._waiting.serve(worker.spec, worker):
                self._idle.remove(worker)

    def _replace(self, worker: Worker) -> None:
        """Put another worker in its place; nothing happens for one that was replaced already."""
        worker.close()
        if worker not in self._workers:
            return
        self._workers.discard(worker)
        self._assigned.pop(worker, None)
        self._ended.pop(worker, None)
        self._waiting.forget(worker)
        if self._closed:
            return
        self._dispatch()  # what waited for it may go to others
        if worker.spec.cuda:
            probe = asyncio.ensure_future(self._recover(worker.spec))
            self._probing[probe] = worker.spec
            probe.add_done_callback(self._recovered)
        elif another := self._start(worker.spec):
            self._workers.add(another)
            self._release(another)
        else:
            self._give_up()

    async def _recover(self, spec: WorkerSpec) -> None:
        """A new worker in a place, once its device has shown that it works; none if it does not."""
        said = "its worker cannot be had again"
        for _ in range(PROBES):
            another = self._start(spec)
            if another is None:
                break
            self._workers.add(another)
            try:
                async with asyncio.timeout(PROBE_S):
                    kind, value = await another.ask(Message())
            except WorkerLost as error:
                kind, value = "device", str(error)
            except TimeoutError:
                kind, value = "device", f"no sign of life in {PROBE_S:g} s"
            if kind == "done":
                self._release(another)
                return
            said = str(value).strip().splitlines()[-1]
            another.close()
            self._workers.discard(another)
        where = " ".join(filter(None, (spec.device and f"GPU {spec.device}", spec.machine and f"of {spec.machine}")))
        self._say(f"{where or 'a GPU'} is left out, the search goes on without it: {said}")

    def _recovered(self, probe: asyncio.Task[None]) -> None:
        del self._probing[probe]
        if not probe.cancelled():
            self._give_up()

    def _lack(self, job: Job[Any]) -> EngineError | None:
        """The error of a job that no worker can do, nor may be able to soon."""
        specs = (*(w.spec for w in self._workers), *self._probing.values())
        if any(spec.does(job) for spec in specs):
            return None
        return EngineError(f"no evaluation worker is left for {job.name}")

    def _give_up(self) -> None:
        """End the jobs that wait in vain."""
        self._waiting.refuse(self._lack)


class RunPool:
    """A pool as one run sees it: `Pool`. To close it ends that run's jobs and leaves the pool to the others."""

    def __init__(self, pool: WorkerPool, context: RunContext) -> None:
        self.context = context
        self._pool = pool
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False

    @property
    def slots(self) -> int:
        """The number of workers, for all runs together."""
        return self._pool.slots

    @property
    def judges(self) -> int:
        """The number of kernels that can be timed at once, of all runs together."""
        return self._pool.judges

    async def run(self, job: Job[Found]) -> Found:
        """See `WorkerPool.run`."""
        if self._closed:
            raise EngineError(f"{job}: the run has closed its pool")
        call = asyncio.ensure_future(self._pool.run(self, job))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await call
        except asyncio.CancelledError:
            if not _is_cancelled():
                raise WorkerLost(f"{job}: the run has closed its pool") from None
            raise

    def jobs(self) -> tuple[RunningJob, ...]:
        """The jobs of this run that are under way, the oldest first."""
        return self._pool.jobs(self)

    def restart(self, older_than_s: float) -> tuple[RunningJob, ...]:
        """It replaces the workers of this run's jobs that take longer; these end as WorkerLost. It returns them."""
        return self._pool.restart(older_than_s, self)

    async def close(self) -> None:
        """It ends this run's jobs as WorkerLost, within GRACE_S or so; no worker is at one of them afterwards."""
        self._closed = True
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._pool.end(self)


def _is_cancelled() -> bool:
    """Whether the task that asks is to end itself, rather than something that it waits for."""
    task = asyncio.current_task()
    return bool(task and task.cancelling())


async def _unless_cancelled(answering: asyncio.Task[Answer]) -> Answer:
    """Wait for a worker's answer; to be cancelled leaves the worker at it. Raises WorkerLost if the pool gave it up."""
    try:
        return await asyncio.shield(answering)
    except asyncio.CancelledError:
        if answering.cancelled() and not _is_cancelled():
            raise WorkerLost("the job took too long, its evaluation worker was ended") from None
        raise
