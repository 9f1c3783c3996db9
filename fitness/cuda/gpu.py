"""The parts of a GPU that all tasks of a process share: the compiler, the runners, the memory that these map, the
tools."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Protocol

import torch

from fitness.cuda.compile.compiler import Compiler
from fitness.cuda.compile.line import check_driver
from fitness.cuda.compile.nvrtc import CompileJob, include_folders, version
from fitness.cuda.compile.program import OWN_KERNELS
from fitness.cuda.peaks import known, peaks, remeasure
from fitness.cuda.profiling.ncu import NOT_INSTALLED
from fitness.cuda.profiling.sanitizer import Sanitizer
from fitness.cuda.profiling.tools import find_tool
from fitness.cuda.running.driver import device_facts
from fitness.cuda.running.library import LibraryRunner
from fitness.cuda.running.memory import BlockPool
from fitness.cuda.running.runner import CudaRunner
from fitness.judging.device import UNANSWERED
from fitness.profiling.roofline import Peaks
from fitness.sandbox.lock import fair_lock
from fitness.sandbox.native import cache_folder, publish
from fitness.sandbox.room import Footprint
from operators.errors import DeviceError
from operators.identity import digest

HARNESS = Path(__file__).with_name("harness.cu")
SPARE_SHARE = 0.06
"""Share of the GPU's memory that is free when a verdict begins, beside what its task takes, as far as other tasks can
give it: for scratch of kernels and for processes."""
STARTS = 2
"""Processes for vendors' calls that do not start, until the machine has shown that none does."""


class Tenant(Protocol):
    """A task that keeps memory of the GPU between its verdicts."""

    @property
    def resident(self) -> bool:
        """Whether it holds the inputs of its timed calls."""
        ...

    @property
    def footprint(self) -> Footprint:
        """The memory that it takes."""
        ...

    def forget(self) -> None:
        """Give back whatever the next verdict can make anew."""
        ...


class Gpu:
    """The first GPU that CUDA_VISIBLE_DEVICES shows. Not thread-safe, but for `machine` and `quiet`."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds what was compiled. Raises DeviceError where there is no GPU."""
        self.facts = device_facts()  # says what is missing before torch does
        self.folder = folder
        self.compiler = Compiler()
        self.runners = Runners(self._runner, self.quiet)
        self._library: LibraryRunner | None = None
        self._library_failures = 0
        """Number of the last processes for vendors' calls that did not start."""
        self.auditors = ThreadPoolExecutor(1, thread_name_prefix="audit")
        self.ncu_lack = "" if find_tool("ncu") else NOT_INSTALLED
        """Why Nsight Compute tells nothing on this machine, once that is known."""
        self._tenants: list[Tenant | None] = []
        self._turns: list[Tenant] = []
        """Tasks that had a verdict, the one that has its turn now last."""

    def library(self) -> LibraryRunner:
        """The process that runs vendors' calls, which starts where there is none.

        Where STARTS of them did not start, the last one is handed out, which says so at once: each attempt would take
        seconds, for every call on every workload.
        """
        if self._library is None or not self._library.alive:
            if self._library is not None and self._library.failed:
                self._library_failures += 1
                if self._library_failures >= STARTS:
                    return self._library
            self.end_library()
            self._library = LibraryRunner(self.facts.ordinal, quiet=self.quiet)
        return self._library

    def end_library(self) -> None:
        """End that process, beside no clock, so that its memory is free; no session of it may be open."""
        if self._library is not None:
            if not self._library.failed:
                self._library_failures = 0
            with self.quiet():
                self._library.close()
        self._library = None

    @cached_property
    def pool(self) -> BlockPool:
        """The blocks of memory of this GPU. It raises UserError where torch has no CUDA."""
        return BlockPool(self.facts.ordinal)

    def prepare(self, *, computes: bool) -> None:
        """Have at hand what every task needs: what runners load, and the pool where this process computes.

        It raises UserError for what this machine lacks.
        """
        self._harness_file()
        if computes:
            self.pool.trim()

    @cached_property
    def sanitizer(self) -> Sanitizer:
        """The sanitizer of this GPU, whose control runs once."""
        return Sanitizer(self.facts.ordinal, self._harness, self.folder)

    @contextmanager
    def machine(self, *, exclusive: bool) -> Iterator[None]:
        """See `fitness.judging.device.Device.machine`."""
        lock = fair_lock(cache_folder(), f"gpu-{self.facts.uuid}")
        try:
            with lock.alone() if exclusive else lock.shared():
                yield
        finally:
            if exclusive:
                self.runners.refresh()

    def quiet(self) -> AbstractContextManager[None]:
        """No kernel is timed meanwhile."""
        return self.machine(exclusive=False)

    def peaks(self, *, again: bool = False) -> Peaks:
        """See `fitness.judging.device.Device.peaks`."""
        found = None if again else known(self.facts.ordinal)
        if found:
            return found
        with self.machine(exclusive=True):
            return remeasure(self.facts.ordinal) if again else peaks(self.facts.ordinal)

    def make_room(self, tenant: Tenant) -> None:
        """Where a task's share of the memory is not free, tasks that wait give theirs back, and draw it again later.

        Tasks take turns: so the ones whose turn ended last give way, as theirs is the last to come again. But the very
        last one goes behind all others, as a kernel of its may go on to its next level.
        """
        if tenant in self._turns:
            self._turns.remove(tenant)
        self._turns.append(tenant)
        need = tenant.footprint
        wanted = need.working_bytes + (0 if tenant.resident else need.held_bytes)
        others = [other for other in reversed(self._turns[:-1]) if other.resident]
        if not others or self._roomy(wanted):
            return
        self.pool.trim()
        for other in (*others[1:], others[0]):
            if self._roomy(wanted):
                return
            self._dismiss(other)
        if not self._roomy(wanted):
            self._disperse()

    def relieve(self, tenant: Tenant) -> bool:
        """All that others hold is given back, because `tenant` lacked memory; whether there was anything."""
        others = self._others(tenant)
        for other in others:
            self._dismiss(other)
        if others:
            self._disperse()
        return bool(others)

    def _others(self, tenant: Tenant) -> list[Tenant]:
        """The other tasks that hold memory."""
        return [other for other in self._turns if other is not tenant and other.resident]

    def _dismiss(self, tenant: Tenant) -> None:
        tenant.forget()
        self.runners.settle()  # what they have mapped is not back before they are gone

    def _disperse(self) -> None:
        self.end_library()
        self.runners.disperse()
        self.runners.settle()
        self.pool.trim()

    def _roomy(self, wanted_bytes: int) -> bool:
        free, total = torch.cuda.mem_get_info(self.facts.ordinal)
        return free > wanted_bytes + SPARE_SHARE * total

    def join(self, tenant: Tenant | None) -> None:
        """One more task uses it, which has to `leave`; None: one that keeps no memory."""
        self._tenants.append(tenant)

    def leave(self, tenant: Tenant | None) -> None:
        """The last one ends the processes."""
        self._tenants.remove(tenant)
        if tenant in self._turns:
            self._turns.remove(tenant)
        if not self._tenants:
            _gpus.pop(self.folder, None)
            self.auditors.shutdown(cancel_futures=True)
            self.compiler.close()
            self.runners.close()
            self.end_library()

    def _runner(self) -> CudaRunner:
        """One that has not begun."""
        return CudaRunner(self.facts.ordinal, self._harness, quiet=self.quiet)

    @cached_property
    def _harness(self) -> bytes:
        return self._harness_file().read_bytes()

    def _harness_file(self) -> Path:
        """Compiled once on this machine, for all runs."""
        check_driver(version())
        unit, folders = HARNESS.read_text(encoding="utf-8"), tuple(map(str, include_folders()))
        made_of = digest(unit, *OWN_KERNELS, self.facts.arch, version(), *folders)
        path = cache_folder() / f"harness-{made_of[:16]}.cubin"
        if not path.exists():
            publish(path, self.compiler.compile(CompileJob(unit, OWN_KERNELS, self.facts.arch, folders)).cubin)
        return path


_gpus: dict[Path, Gpu] = {}
"""GPUs of this process, by the folder that they compile into."""


def shared_gpu(folder: Path) -> Gpu:
    """The one of this process and folder, for every task to `join`. It raises DeviceError where there is none."""
    if folder not in _gpus:
        _gpus[folder] = Gpu(folder)
    return _gpus[folder]


# --- processes that come and go beside no clock -----------------------------------------------------------------------


SPARES = 2
"""Processes that are about to be ready: a confirmation asks for several."""
MOST_IDLE = 3
"""Processes that wait for their next kernel at most: of a candidate, of an anchor that it is measured with anew, and of
neither."""
TURNS = 2
"""Processes that wait before any of them works again: what passes its screening in one is measured anew in another."""
SERVES = 30
"""Candidates that a process serves at most."""


class Runners:
    """The runners of one GPU: spare ones, idle ones, and those that are leaving. Not thread-safe.

    They come and go so that no verdict waits for a process, and none starts or ends beside a clock. A process that
    makes its context, or gives it up, keeps the driver and the device busy for a tenth of a second. Spare processes
    therefore load what they need at once, and touch the device only when nothing is timed; and one that ran a sound
    kernel serves another, but where a fresh process is asked for.
    """

    def __init__(self, start: Callable[[], CudaRunner], quiet: Callable[[], AbstractContextManager[None]]) -> None:
        """`start` makes a runner that has not begun; `quiet` keeps others from timing while it is held."""
        self._start = start
        self.quiet = quiet
        self._spares: list[CudaRunner] = []
        self._idle: list[CudaRunner] = []
        self._leaving: list[Thread] = []

    def hire(self, *, fresh: bool = False) -> CudaRunner:
        """One that is ready; others start already. `fresh`: one that has run nothing yet, else the longest idle.

        Raises DeviceError where runners do not start on this machine.
        """
        while len(self._idle) >= TURNS and not fresh:
            runner = self._idle.pop(0)
            if runner.alive:
                return runner
            runner.close()
        for _ in range(SPARES):  # which may have been killed just now
            with suppress(DeviceError):
                return self._begun()
        return self._begun()

    def expect(self, fresh: int) -> None:
        """Announces the number of fresh ones that will be hired soon: they make their contexts meanwhile."""
        while len(self._spares) < fresh:
            self._spares.append(self._start())
        for spare in self._spares[:fresh]:
            spare.begin()

    def _begun(self) -> CudaRunner:
        runner = self._spare()
        runner.begin()
        while len(self._spares) < SPARES:
            self._spares.append(self._start())
        runner.ready()
        return runner

    def _spare(self) -> CudaRunner:
        while self._spares:
            runner = self._spares.pop(0)
            if runner.alive:
                return runner
            runner.close()
        return self._start()

    def release(self, runner: CudaRunner) -> None:
        """Its candidate did nothing wrong: it may serve another one, which costs a tenth of a new process."""
        if runner.served >= SERVES or len(self._idle) >= MOST_IDLE:
            self.dismiss(runner)
            return
        try:
            with self.quiet():
                runner.unload()
        except UNANSWERED:
            runner.close()
        else:
            self._idle.append(runner)

    def disperse(self) -> None:
        """End all that wait: they keep some memory, those that never ran anything too."""
        for runner in (*self._idle, *self._spares):
            self.dismiss(runner)
        self._idle, self._spares = [], []

    def refresh(self) -> None:
        """Something was timed, and what comes next is not: spares may make their contexts."""
        for runner in self._spares:
            runner.begin()

    def dismiss(self, runner: CudaRunner) -> None:
        """End one whose last call has ended, without waiting for that.

        One that may still run something is closed instead: it would write to memory that belongs to another by then.
        """

        def leave() -> None:
            with self.quiet():
                runner.close()

        self._leaving = [thread for thread in self._leaving if thread.is_alive()]
        self._leaving.append(Thread(target=leave, name="dismiss", daemon=True))
        self._leaving[-1].start()

    def settle(self) -> None:
        """Wait until those that are leaving are gone, and their memory with them."""
        for thread in self._leaving:
            thread.join()
        self._leaving = []

    def close(self) -> None:
        """End those that wait for work, and wait for all that are leaving."""
        self.settle()
        for runner in (*self._spares, *self._idle):
            runner.close()
        self._spares, self._idle = [], []
