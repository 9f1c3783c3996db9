"""A pool of evaluation workers: the jobs that wait, where tasks are at home, which of them a free worker takes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

from evo.workers.jobs import Found, Job
from evo.workers.pool import DeviceLost, EngineError, JobOverdue, RunningJob, Worker, WorkerLost, value_of
from evo.workers.worker import SPENT, Answer, Message, RunContext, WorkerSpec
from operators.definition.spec import Task

PROBES = 3
"""A device that fails so many times in a row to show that it works is left out."""
PROBE_S = 120.0
"""A device that has not shown by then that it works has failed to."""
LOOK_S = 1.0
"""Seconds between two scheduling passes over waiting jobs, at most."""
GRACE_S = 3.0
"""Time that a worker may go on with a job that was cancelled, before it is replaced."""
KEPT_KERNELS = 4096
"""The kernels worked on last whose machine, and place in the queue, are remembered."""

W = TypeVar("W")
Key = tuple[RunContext, Task]
"""A task of a run."""
KEEP = 0.7
"""The weight of earlier jobs of a task beside the latest one, in the estimate of its usual time."""
MOVING_S = 5.0
"""Seconds that moving in takes, as long as a task's first job is under way."""
FURTHER = 0.25
"""The assumed time of a further job, as a share of what moving in took."""


@dataclass
class _Home(Generic[W]):
    workers: list[W] = field(default_factory=list)
    visited: set[W] = field(default_factory=set)
    """Workers that have done a job of the task."""
    moving_s: float = MOVING_S
    """Seconds of the first job on the last worker that it was new to."""
    usual_s: float | None = None
    """Seconds of other jobs; None: there were none."""


class Homes(Generic[W]):
    """Which workers each task is at home with, by run.

    A task's first job on a worker draws inputs and computes references, which takes longer than to judge a kernel. So
    its jobs wait for the worker that has them; another one takes the task over where its jobs, and others that wait for
    the same worker, would wait for longer than it takes to move in.
    """

    def __init__(self) -> None:
        self._homes: dict[Key, _Home[W]] = {}
        self._at: dict[W, tuple[Key, float]] = {}
        """The job that each worker is at, and since when."""

    def of(self, key: Key) -> Sequence[W]:
        """The workers that a task is at home with; none for a new one."""
        home = self._homes.get(key)
        return home.workers if home else ()

    def count(self, worker: W) -> int:
        """The number of tasks that are at home with a worker."""
        return sum(worker in home.workers for home in self._homes.values())

    def settle(self, key: Key, worker: W, *, alone: bool) -> None:
        """A worker is a task's home from now on: the only one, or one more."""
        home = self._homes.setdefault(key, _Home())
        home.workers = [worker] if alone else [*home.workers, worker]

    def begins(self, key: Key, worker: W, now_s: float) -> None:
        """A worker is at a job of a task from now on."""
        self._at[worker] = key, now_s

    def ends(self, worker: W) -> None:
        """It is at none any more."""
        self._at.pop(worker, None)

    def took(self, key: Key, worker: W, seconds: float) -> None:
        """A job of a task took so long on a worker."""
        home = self._homes.get(key)
        if home is None:
            return
        if worker not in home.visited:
            home.visited.add(worker)
            home.moving_s = seconds
        else:
            home.usual_s = seconds if home.usual_s is None else KEEP * home.usual_s + (1 - KEEP) * seconds

    def most_behind(self, waiting: Iterable[Key], now_s: float) -> Key | None:
        """The task with waiting jobs, one entry per job, that another worker had better take over; often none."""
        jobs = Counter(waiting)
        behind_s = defaultdict(float, {worker: self._left_s(*at, now_s) for worker, at in self._at.items()})
        for key, many in jobs.items():
            workers = self.of(key)
            for worker in workers:
                behind_s[worker] += many * self._usual_s(key) / len(workers)
        gains_s = {
            key: min(behind_s[worker] for worker in workers) - self._homes[key].moving_s
            for key in jobs
            if (workers := self.of(key))
        }
        best = max(gains_s, key=lambda key: (gains_s[key], jobs[key]), default=None)
        return best if best is not None and gains_s[best] > 0 else None

    def _left_s(self, key: Key, began_s: float, now_s: float) -> float:
        """The time that a job will still take: the rest of its usual time, or when that is over, as long again as it
        took so far.

        So no task waits for the limits of a job that hangs.
        """
        taken_s = now_s - began_s
        usual_s = self._usual_s(key) if key in self._homes else 0.0
        return usual_s - taken_s if taken_s < usual_s else taken_s

    def _usual_s(self, key: Key) -> float:
        home = self._homes[key]
        return FURTHER * home.moving_s if home.usual_s is None else home.usual_s

    def leave(self, worker: W) -> None:
        """A worker is gone, and what it held."""
        self.ends(worker)
        for home in self._homes.values():
            home.visited.discard(worker)
            home.workers = [other for other in home.workers if other is not worker]

    def end(self, context: RunContext) -> None:
        """A run has ended."""
        self._homes = {key: home for key, home in self._homes.items() if key[0] != context}


@dataclass(frozen=True, eq=False)
class Waiting(Generic[W]):
    """A job that waits for a worker."""

    job: Job[Any]
    key: Key
    """The run's task that it is for."""
    machine: str
    """Whose disk holds what is built of its kernel; empty where that does not matter."""
    ticket: int
    """Jobs are served in the order of their tickets."""
    turn: asyncio.Future[W]
    """It gets the worker."""

    @property
    def at_home(self) -> bool:
        """Whether it needs what a worker holds of its task."""
        return not self.job.builds


class WaitingJobs(Generic[W]):
    """Jobs that wait, whatever run they belong to.

    A worker takes the jobs of tasks that are at home with it, then those of a task that it takes over, see `Homes`. Of
    these, those come first that continue a kernel already under way: so a verdict does not wait behind a queue of new
    kernels. Then, for a worker that only judges, those of the task that it was at last: where a GPU's memory is short,
    each change of the task costs a drawing of inputs. Then the others by the age of their kernel, so that one that
    takes long to build keeps its place; some, as `Job.yields` says, let younger ones go before them.
    """

    def __init__(self, homes: Homes[W]) -> None:
        self._homes = homes
        self._last: dict[W, Key] = {}
        """The task that each worker was at last."""
        self._jobs: list[Waiting[W]] = []
        self._tickets = count()
        self._first: dict[tuple[RunContext, str], int] = {}
        """By run and kernel id, the ticket of its first job; of the KEPT_KERNELS kernels that came last."""

    def add(self, job: Job[Any], context: RunContext, machine: str) -> Waiting[W]:
        """A job joins the queue; `discard` takes it out again."""
        ticket = next(self._tickets)
        if job.yields:
            ticket += job.yields + 1
        elif job.has_files:
            ticket = self._first.setdefault((context, job.kernel.id), ticket)
            if len(self._first) > KEPT_KERNELS:
                del self._first[next(iter(self._first))]
        waiting = Waiting(job, (context, job.task), machine, ticket, asyncio.get_running_loop().create_future())
        self._jobs.append(waiting)
        return waiting

    def discard(self, waiting: Waiting[W]) -> None:
        """A job that is served, or no longer wanted, leaves the queue; nothing happens for one that has left."""
        if waiting in self._jobs:
            self._jobs.remove(waiting)

    def serve(self, spec: WorkerSpec, worker: W) -> bool:
        """A free worker goes to a job that it can do, rather to one of its machine; False where none waits for it."""
        able = [w for w in self._jobs if spec.does(w.job) and not w.turn.done()]
        mine = [w for w in able if not w.at_home or not self._homes.of(w.key) or worker in self._homes.of(w.key)]
        if not mine and (key := self._homes.most_behind((w.key for w in able), time.monotonic())):
            mine = [w for w in able if w.key == key]
        if not mine:
            return False
        chosen = min(mine, key=lambda w: self._place(w, spec, self._last.get(worker)))
        self._jobs.remove(chosen)
        if chosen.at_home:
            self._last[worker] = chosen.key
        if chosen.at_home and worker not in self._homes.of(chosen.key):
            # Where more jobs of the same task wait, there is work for both workers.
            self._homes.settle(chosen.key, worker, alone=all(w.key != chosen.key for w in able if w is not chosen))
        chosen.turn.set_result(worker)
        return True

    def _place(self, waiting: Waiting[W], spec: WorkerSpec, last: Key | None) -> tuple[bool, bool, bool, int]:
        """A job's place in the queue for a worker, the lowest first."""
        elsewhere = waiting.key != last or waiting.job.yields > 0 or spec.compiles
        return not waiting.job.continues, waiting.machine != spec.machine, elsewhere, waiting.ticket

    def forget(self, worker: W) -> None:
        """A worker is gone."""
        self._last.pop(worker, None)
        self._homes.leave(worker)

    def refuse(self, error: Callable[[Job[Any]], Exception | None]) -> None:
        """The jobs that have an `error` end with it."""
        for waiting in self._jobs:
            if not waiting.turn.done() and (found := error(waiting.job)):
                waiting.turn.set_exception(found)


# --- the workers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Assigned:
    """A run's job that a worker is at."""

    run: RunPool
    running: RunningJob
    answering: asyncio.Task[Answer]


class WorkerPool:
    """A fixed number of workers, for any number of runs; a worker that is lost is replaced, its job is WorkerLost.

    Before another worker takes the place of one on a GPU, it shows that the GPU computes; a GPU that does not is left
    out. A kernel is judged where its task is at home, see `Homes`, and compiled on the same machine if a
    worker is free there, else on any. Which of the jobs that wait comes first, see `WaitingJobs`.
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
        """By run and kernel id, whose disk holds what is built; of the KEPT_KERNELS kernels worked on last."""
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
        """It ends every worker at once, whatever that is doing; only the owner of the pool does so."""
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
            if len(self._machines) > KEPT_KERNELS:
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
    """A pool as one run sees it. Calls may be concurrent; jobs beyond `slots` wait.

    A call may be cancelled at any moment: its worker is free again within GRACE_S, or replaced, and what it still
    answers is dropped. To close it ends that run's jobs and leaves the pool to the others.
    """

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
