"""Evaluation workers behind an asynchronous face, wherever they work."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, cast

from evo.worker import PROBE, Answer, WorkerSpec
from fitness.base import Anchor, Built, Fitness
from fitness.evaluation import Evaluation, Timing
from fitness.profiling import Profile
from operators.errors import DiskError, OperatorError, UserError
from operators.kernel import Kernel
from operators.spec import Task

PROBES = 3
"""A device that fails so many times in a row to show that it works is left out."""
PROBE_S = 120.0
"""A device that has not shown by then that it works has failed to."""
GRACE_S = 3.0
"""How long a worker may go on with a job that nobody waits for any more, before it is replaced."""
CONTINUING = frozenset({"full", "confirm"})
"""Jobs that go on with a kernel which has cost an evaluator's time already."""
PROFILE_YIELDS = 16
"""Jobs that came later than a profile and go before it: nobody waits for a profile, but it must come at some time."""
KEPT_MACHINES = 4096


class EngineError(Exception):
    """Our own bug or a broken machine; carries the traceback of the process where it happened."""


class WorkerLost(Exception):
    """The worker process ended during a job; the job may be given to another."""


@dataclass(frozen=True)
class Job:
    """What a worker is doing."""

    method: str
    task: Task
    kernel_id: str
    """Empty: the job is about no single kernel."""
    began: float
    """By `time.monotonic`."""

    def __str__(self) -> str:
        kernel = f" of kernel {self.kernel_id[:12]}" if self.kernel_id else ""
        return f"{self.method} of {self.task}{kernel} for {time.monotonic() - self.began:.0f} s"


class Pool(Protocol):
    """Runs `fitness.base.Fitness` methods elsewhere. Safe to call concurrently; jobs beyond `slots` wait.

    A call may be cancelled at any moment: its worker is free again within GRACE_S, or replaced, and whatever it still
    answers reaches nobody.
    """

    @property
    def slots(self) -> int: ...

    @property
    def judges(self) -> int:
        """How many kernels can be timed at once."""
        ...

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation: ...

    async def screen(self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation: ...

    async def full(self, task: Task, kernel: Kernel, anchor: Anchor) -> Evaluation: ...

    async def confirm(self, task: Task, kernel: Kernel) -> Evaluation: ...

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile: ...

    def jobs(self) -> tuple[Job, ...]:
        """What is being done now, the oldest job first."""
        ...

    def restart(self, older_than_s: float) -> tuple[Job, ...]:
        """Replace the workers of all jobs that take longer; these jobs end as WorkerLost. Returns them."""
        ...

    async def close(self) -> None: ...


Message = tuple[str, Task, tuple[Any, ...], dict[str, Any]]
"""A method of `fitness.base.Fitness`, its task, arguments and options."""


def value_of(answer: Answer) -> Any:
    """The value of an answer from another process. Raises UserError, or EngineError with that process's traceback.

    An operator that is at fault is an OperatorError here too, so that other tasks can go on; a disk, a DiskError.
    """
    kind, value = answer
    if kind == "operator":
        raise OperatorError(value)
    if kind == "disk":
        raise DiskError(value)
    if kind in ("user", "device"):
        raise UserError(value)
    if kind == "broken":
        raise EngineError(value)
    return value


class Worker(Protocol):
    """One evaluation worker as its pool sees it; it does one job at a time."""

    spec: WorkerSpec

    async def ask(self, message: Message) -> Answer:
        """Raises WorkerLost, after which the worker is only good for being closed."""
        ...

    def close(self) -> None:
        """End it at once, whatever it is doing."""
        ...


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A job that waits for a worker."""

    method: str
    machine: str
    """Whose disk holds what is built of its kernel; empty where that does not matter."""
    ticket: int
    """Jobs are served in the order of their tickets."""
    turn: asyncio.Future[Worker]


class WorkerPool:
    """A fixed number of workers; one that is lost is replaced, and its job reported as WorkerLost.

    Who replaces one that works on a GPU first shows that the GPU computes; a GPU that does not is left out. A job
    goes to the machine that worked on its kernel last if a worker is free there, else to any.

    Of jobs that wait, those come first that continue a kernel already under way: so a verdict does not wait behind a
    queue of new kernels. Then the others by age, of which a profile lets PROFILE_YIELDS younger ones go before it.
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
        self._waiting: list[_Waiting] = []
        self._tickets = count()
        self._jobs: dict[Worker, tuple[Job, asyncio.Task[Answer]]] = {}
        """What each worker that is neither idle nor probed works on, until its answer is there."""
        self._orphans: set[asyncio.Task[None]] = set()
        """Those who wait for the end of jobs that were cancelled."""
        self._machines: dict[str, str] = {}
        """By kernel id, whose disk holds what is built of it; of the KEPT_MACHINES kernels worked on last."""
        self._closed = False

    @property
    def slots(self) -> int:
        return len(self._workers)

    @property
    def judges(self) -> int:
        timing = [worker.spec for worker in self._workers if "screen" in worker.spec.jobs]
        groups = {(spec.machine, spec.cores) for spec in timing if spec.cores}  # whose workers take turns
        return max(len(groups) + sum(not spec.cores for spec in timing), 1)

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation:
        return cast(Built | Evaluation, await self._call("build", task, kernel))

    async def screen(self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        return cast(Evaluation, await self._call("screen", task, kernel, anchor, race=race))

    async def full(self, task: Task, kernel: Kernel, anchor: Anchor) -> Evaluation:
        return cast(Evaluation, await self._call("full", task, kernel, anchor))

    async def confirm(self, task: Task, kernel: Kernel) -> Evaluation:
        return cast(Evaluation, await self._call("confirm", task, kernel))

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        return cast(Profile, await self._call("profile", task, kernel, timings))

    def jobs(self) -> tuple[Job, ...]:
        return tuple(sorted((job for job, _ in self._jobs.values()), key=lambda job: job.began))

    def restart(self, older_than_s: float) -> tuple[Job, ...]:
        limit = time.monotonic() - older_than_s
        stuck = [
            (worker, job, answer)
            for worker, (job, answer) in self._jobs.items()
            if job.began <= limit and not answer.done()
        ]
        for worker, _, answer in stuck:
            self._replace(worker)
            answer.cancel()  # also of a worker that would not even notice its end
        return tuple(job for _, job, _ in stuck)

    async def close(self) -> None:
        """End every worker at once, whatever it is doing."""
        self._closed = True
        for waiting in (*self._probing, *self._orphans):
            waiting.cancel()
        answers = [answer for _, answer in self._jobs.values()]
        for worker in self._workers:
            worker.close()
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)

    async def _call(self, method: str, task: Task, *arguments: Any, **options: Any) -> Any:
        kernel_id = arguments[0].id if arguments else ""
        worker = await self._take(method, self._machines.pop(kernel_id, ""))
        answering = asyncio.ensure_future(worker.ask((method, task, arguments, options)))
        self._jobs[worker] = Job(method, task, kernel_id, time.monotonic()), answering
        answering.add_done_callback(lambda _: self._jobs.pop(worker, None))
        try:
            answer = await _unless_cancelled(answering)
        except asyncio.CancelledError:
            orphan = asyncio.ensure_future(self._outlast(worker, answering))
            self._orphans.add(orphan)
            orphan.add_done_callback(self._orphans.discard)
            raise
        except BaseException:
            self._replace(worker)
            raise
        if answer[0] == "device":
            self._replace(worker)
            raise WorkerLost(f"the device of an evaluation worker failed during {method} of {task}: {answer[1]}")
        self._release(worker)
        value = value_of(answer)
        if worker.spec.machine and isinstance(value, Built | Evaluation):
            self._machines[kernel_id] = worker.spec.machine
            if len(self._machines) > KEPT_MACHINES:
                del self._machines[next(iter(self._machines))]
        return value

    async def _outlast(self, worker: Worker, answering: asyncio.Task[Answer]) -> None:
        """Free the worker of a cancelled job: by itself if it ends soon, for another worker if it does not."""
        await asyncio.wait({answering}, timeout=GRACE_S)
        ended = answering.done() and not answering.cancelled() and not answering.exception()
        if ended and answering.result()[0] != "device":
            self._release(worker)
        else:
            self._replace(worker)
            answering.cancel()

    async def _take(self, method: str, machine: str) -> Worker:
        able = [w for w in self._idle if method in w.spec.jobs]
        if able:
            chosen = min(able, key=lambda w: w.spec.machine != machine)
            self._idle.remove(chosen)
            return chosen
        if not self._can(method):
            raise EngineError(f"no evaluation worker is left for {method}")
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        ticket = next(self._tickets) + (PROFILE_YIELDS + 1 if method == "profile" else 0)
        waiting = _Waiting(method, machine, ticket, turn)
        self._waiting.append(waiting)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(waiting)
            else:  # its turn had come in the same moment
                self._release(turn.result())
            raise

    def _release(self, worker: Worker) -> None:
        """To whoever waits for such a worker: kernels under way first, then those who want its machine, then by age."""
        waiting = [w for w in self._waiting if w.method in worker.spec.jobs and not w.turn.done()]
        if not waiting:
            self._idle.append(worker)
            return
        chosen = min(waiting, key=lambda w: (w.method not in CONTINUING, w.machine != worker.spec.machine, w.ticket))
        self._waiting.remove(chosen)
        chosen.turn.set_result(worker)

    def _replace(self, worker: Worker) -> None:
        """Put another worker in its place; nothing happens for one that was replaced already."""
        worker.close()
        if worker not in self._workers:
            return
        self._workers.discard(worker)
        self._jobs.pop(worker, None)
        if self._closed:
            return
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
                    kind, value = await another.ask((PROBE, Task("", "", "cuda"), (), {}))
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

    def _can(self, method: str) -> bool:
        """Whether there is a worker for it, or may soon be one."""
        return any(method in s.jobs for s in (*(w.spec for w in self._workers), *self._probing.values()))

    def _give_up(self) -> None:
        """Tell those who wait in vain."""
        for waiting in self._waiting:
            if not waiting.turn.done() and not self._can(waiting.method):
                waiting.turn.set_exception(EngineError(f"no evaluation worker is left for {waiting.method}"))


async def _unless_cancelled(answering: asyncio.Task[Answer]) -> Answer:
    """Wait for a worker's answer; to be cancelled leaves the worker at it. Raises WorkerLost if the pool gave it up."""
    try:
        return await asyncio.shield(answering)
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if answering.cancelled() and caller and not caller.cancelling():
            raise WorkerLost("the job took too long, its evaluation worker was ended") from None
        raise


class InlinePool:
    """Fitness stages called in the driver's own process, one job after the other; for scripted ones."""

    judges = 1

    def __init__(self, stages: dict[Task, Fitness], *, slots: int = 2) -> None:
        self.slots = slots
        self.stages = stages

    async def build(self, task: Task, kernel: Kernel) -> Built | Evaluation:
        await asyncio.sleep(0)
        return self.stages[task].build(kernel)

    async def screen(self, task: Task, kernel: Kernel, anchor: Anchor, *, race: bool) -> Evaluation:
        await asyncio.sleep(0)
        return self.stages[task].screen(kernel, anchor, race=race)

    async def full(self, task: Task, kernel: Kernel, anchor: Anchor) -> Evaluation:
        await asyncio.sleep(0)
        return self.stages[task].full(kernel, anchor)

    async def confirm(self, task: Task, kernel: Kernel) -> Evaluation:
        await asyncio.sleep(0)
        return self.stages[task].confirm(kernel)

    async def profile(self, task: Task, kernel: Kernel, timings: Sequence[Timing]) -> Profile:
        return self.stages[task].profile(kernel, timings)

    def jobs(self) -> tuple[Job, ...]:
        return ()

    def restart(self, older_than_s: float) -> tuple[Job, ...]:
        return ()

    async def close(self) -> None:
        for stage in self.stages.values():
            stage.close()
