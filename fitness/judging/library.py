"""The library as a baseline: of an operator's calls the fastest right one for each workload, and sessions with them.

A user may call whichever is the fastest for a size, so the baseline does. The calls are tried where a figure of the
library is first needed, on the timed inputs and by the judgement of kernels: what is wrong on one of them, or on those
of a later confirmation, is left out, what cannot run on a workload is left out there, with the reason. What was found
is kept in the user's cache folder by all that decides about it, for later processes of the machine.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from fitness.evaluation import Status
from fitness.install import can_be_tried, versions
from fitness.judging.device import NAN, UNANSWERED, Device, KernelFault, KernelSession, ProcessEnded
from fitness.judging.paired import LibraryBaseline, LibrarySeat
from fitness.judging.timed_inputs import Placed, TimedInputs
from fitness.oracle.verify import Oracle
from fitness.sandbox.native import cache_folder, publish
from operators.definition.spec import Operator, Task, Workload
from operators.errors import OperatorError
from operators.files import read_bytes
from operators.identity import digest
from operators.libraries import LIBRARIES, UNSERVED, Arrays, LibraryCall

ROUNDS = range(3, 10)
"""Least and most rounds in which a call is timed on every workload."""
TRIAL_S = 1.0
"""Seconds of all workloads' rounds, equal parts each, that end a call's trial between its least and most rounds."""
HOPELESS = 4.0
"""Factor over the fastest call so far on a workload from which a slower one is not called again there."""
CLOSE = 1.02
"""Factor over the least time up to which calls are told apart by noise alone, as two names of one kernel."""


@dataclass(frozen=True)
class CallTrial:
    """Outcome of one call."""

    name: str
    kind: str
    """The rival's class, as `operators.libraries.Kind` has them."""
    us: Mapping[str, float] = field(default_factory=dict)
    """By workload that it can run on, the median of calls from cold caches; empty where it is wrong."""
    lack: str = ""
    """Why it is left out everywhere: what it makes is wrong."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """By workload that it cannot run on, why; on the others it serves."""
    again: bool = False
    """Whether one of those may have been the machine's fault, such as no memory, and may be served later."""

    @property
    def mean_us(self) -> float:
        """The geometric mean over workloads; infinite where it was left out on one."""
        return math.inf if self.lack or self.lacks else _geomean(self.us.values())

    @property
    def left_out(self) -> str:
        """Why it was left out, and where if not everywhere; empty where it serves all workloads."""
        reasons: dict[str, list[str]] = {}
        for workload, reason in self.lacks.items():
            reasons.setdefault(reason, []).append(workload)
        if self.lack or (len(reasons) == 1 and not self.us):
            return self.lack or next(iter(reasons))
        return "; ".join(f"on {', '.join(workloads)}: {reason}" for reason, workloads in reasons.items())


@dataclass(frozen=True)
class BaselineKey:
    """All that decides which call is the fastest, but for the code of the calls."""

    operator: str
    dtype: str
    target: str
    workload_set: str
    device: str
    threads: int
    versions: Mapping[str, str]
    """Versions of the packages, and of the driver on a GPU."""


@dataclass(frozen=True)
class BaselineChoice:
    """The choice among the calls that were tried in a place."""

    place: BaselineKey
    workloads: tuple[str, ...]
    """Their names, in the order of the set."""
    tried: tuple[CallTrial, ...]

    @property
    def best(self) -> dict[str, CallTrial]:
        """The fastest right call of each workload that has one, of those that are CLOSE to it the first declared."""
        found = {}
        for workload in self.workloads:
            right = [t for t in self.tried if workload in t.us]
            if right:
                most_us = CLOSE * min(t.us[workload] for t in right)
                found[workload] = next(t for t in right if t.us[workload] <= most_us)
        return found

    @property
    def mean_us(self) -> float:
        """The time of the baseline: the geometric mean of the workloads' fastest calls; infinite where one has none."""
        return math.inf if self.lack else _geomean(t.us[workload] for workload, t in self.best.items())

    @property
    def settled(self) -> bool:
        """Whether a later process would find the same."""
        return not any(t.again for t in self.tried)

    @property
    def lack(self) -> str:
        """Why it is no baseline: a mean is one over all workloads, so each needs a right call."""
        served = self.best
        without = [workload for workload in self.workloads if workload not in served]
        if not without:
            return ""
        where = f"no call serves {', '.join(without)}: " if served else ""
        return where + "; ".join(f"{t.name}: {t.left_out}" for t in self.tried if t.left_out)


# --- sessions ---------------------------------------------------------------------------------------------------------


Begun = tuple[LibraryCall, Sequence[int], KernelSession]
"""A call, the numbers of the workloads that it is called on, and a session that starts."""


class TaskLibrary:
    """One task's, on one device. Whatever is wrong with it is no kernel's fault."""

    def __init__(
        self,
        operator: Operator,
        task: Task,
        device: Device,
        oracle: Oracle,
        workloads: Sequence[Workload],
        inputs: Callable[[], TimedInputs],
        accept: Accept,
    ) -> None:
        """`inputs` are those of timed calls, which may be drawn now; `accept` raises KernelFault for a wrong answer."""
        self._operator = operator
        self._task = task
        self._device = device
        self._oracle = oracle
        self._workloads = workloads
        self._inputs = inputs
        self._accept = accept
        self._choices: dict[tuple[str, ...], BaselineChoice] = {}
        """Choices that this process made, by the names of the calls."""

    @contextmanager
    def baseline(self) -> Iterator[Callable[[], LibraryBaseline]]:
        """The fastest call of each workload, which start meanwhile, and come with the inputs when they are called for.

        A call has one session, with the inputs of its workloads alone.
        """
        with ExitStack() as opened:
            begun: list[Begun] = []
            try:
                calls, untried, lack = self._calls()
                for call, numbers in calls:
                    begun.append((call, numbers, opened.enter_context(self._session(call, numbers))))
            except (*UNANSWERED, OperatorError) as fault:
                opened.close()
                begun, untried, lack = [], "", str(fault)

            def seated() -> LibraryBaseline:
                try:
                    return self._seated(begun, untried, lack)
                except (*UNANSWERED, OperatorError) as fault:
                    opened.close()
                    return LibraryBaseline((), str(fault))

            yield seated

    def _seated(self, begun: Sequence[Begun], untried: str, lack: str) -> LibraryBaseline:
        seats: dict[int, LibrarySeat] = {}
        inputs = self._inputs()
        with self._device.machine(exclusive=False):
            for call, numbers, session in begun:
                for number, sets in zip(numbers, inputs.placed(session, numbers), strict=True):
                    seats[number] = LibrarySeat(session, sets, call.name, call.kind, untried)
        return LibraryBaseline([seats[number] for number in sorted(seats)], lack)

    def _calls(self) -> tuple[list[tuple[LibraryCall, list[int]]], str, str]:
        """The calls that kernels are compared with, each with the numbers of its workloads; the names of those that
        were not tried; or none, and why.

        It raises OperatorError.
        """
        every, calls = self._declared(), self._wanted()
        if len(calls) < 2:
            return [(call, list(range(len(self._workloads)))) for call in calls], _others(every, calls), ""
        choice = self.choice()
        if choice.lack:
            return [], "", choice.lack
        best = choice.best
        numbers = {c.name: [n for n, w in enumerate(self._workloads) if best[w.name].name == c.name] for c in calls}
        chosen = [(call, numbers[call.name]) for call in calls if numbers[call.name]]
        # A call that lacked memory may be the strongest where there is some.
        unserved = [trial.name + UNSERVED for trial in choice.tried if trial.again]
        return chosen, "; ".join(filter(None, (_others(every, choice.tried), *unserved))), ""

    def choice(self, *, compiles: bool = False, again: bool = False) -> BaselineChoice:
        """The task's library calls with their times; those are measured where no process of this machine has done it.

        To compile rivals takes up to minutes: without `compiles`, a choice among them serves only if it is kept. It
        raises OperatorError.
        """
        place, every = self._place(), self._wanted()
        wanted = every if compiles else [call for call in every if call.kind != "compiled"]
        for calls in () if again else (every, wanted):
            names = _names(calls)
            if made := self._choices.get(names) or kept(self._operator, place, names):
                return made
        found = choose(
            wanted,
            place,
            [workload.name for workload in self._workloads],
            self._tried,
            self._accept,
            lambda: self._device.machine(exclusive=True),
        )
        keep(self._operator, found)
        self._choices[_names(wanted)] = found
        return found

    def forget(self) -> None:
        """Have a choice made again where there was none, as there may be more memory now."""
        self._choices = {names: choice for names, choice in self._choices.items() if not choice.lack}

    def strike(self, name: str, reason: str) -> bool:
        """Leave out, here and in later processes, a call that was right on the inputs of its trial alone.

        It returns whether there is a baseline without it.
        """
        if len(self._wanted()) < 2:
            return False
        choice = self.choice()
        tried = (replace(trial, us={}, lack=reason) if trial.name == name else trial for trial in choice.tried)
        found = self._choices[_names(choice.tried)] = replace(choice, tried=tuple(tried))
        keep(self._operator, found)
        return not found.lack

    def _place(self) -> BaselineKey:
        peaks = self._device.peaks()
        return BaselineKey(
            self._operator.name,
            self._task.dtype,
            self._task.target,
            "+".join(dict.fromkeys(workload.set for workload in self._workloads)),
            peaks.device,
            peaks.threads,
            versions(self._task.target) | ({"driver": self._device.driver} if self._device.driver else {}),
        )

    def _declared(self) -> list[LibraryCall]:
        return self._oracle.functions.libraries(self._task.target, self._task.dtype)

    def _wanted(self) -> list[LibraryCall]:
        """Those that may be tried in this process, of packages that are there."""
        return [call for call in self._declared() if can_be_tried(call.name, self._task.target)]

    @contextmanager
    def _tried(
        self, call: LibraryCall, workloads: Sequence[str]
    ) -> Iterator[tuple[KernelSession, Sequence[Sequence[Placed]]]]:
        names, inputs = [workload.name for workload in self._workloads], self._inputs()
        numbers = [names.index(name) for name in workloads]
        with self._session(call, numbers) as session:
            with self._device.machine(exclusive=False):
                placed = inputs.placed(session, numbers)
            yield session, placed

    @contextmanager
    def _session(self, call: LibraryCall, numbers: Sequence[int]) -> Iterator[KernelSession]:
        """With a call that starts, to be bound to the sets of these workloads, ended on leaving. Raises KernelFault."""
        inputs = self._inputs()
        with self._device.machine(exclusive=False):
            cases = [inputs.standing(number) for number in numbers]
        session = self._device.open_library(call, cases)
        try:
            yield session
        finally:
            session.close()


# --- kept on disk -----------------------------------------------------------------------------------------------------


def kept(operator: Operator, place: BaselineKey, names: Sequence[str]) -> BaselineChoice | None:
    """Return what an earlier process of this machine found among calls of these names, as they are now; None where none
    has."""
    return _read(_path(operator, place, names))


def keep(operator: Operator, choice: BaselineChoice) -> None:
    """Store a choice for later processes; one that is not settled, or cannot be written, they make again."""
    if not choice.settled:
        return
    try:
        publish(_path(operator, choice.place, _names(choice.tried)), json.dumps(asdict(choice), indent=1).encode())
    except OSError:
        return


def known(operator: Operator) -> list[BaselineChoice]:
    """Return all choices that are kept for an operator as it is now, in whatever place, the latest last."""
    files = sorted(_folder().glob(f"{operator.name}-*.json"), key=lambda path: path.stat().st_mtime)
    return [c for path in files if (c := _read(path)) and path == _path(operator, c.place, _names(c.tried))]


def _read(path: Path) -> BaselineChoice | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        tried = tuple(CallTrial(**tried) for tried in data["tried"])
        return BaselineChoice(BaselineKey(**data["place"]), tuple(data["workloads"]), tried)
    except (OSError, ValueError, TypeError, KeyError):  # missing, cut off, or of another version, without `workloads`
        return None


def _folder() -> Path:
    folder = cache_folder() / "libraries"
    folder.mkdir(exist_ok=True)
    return folder


def _others(every: Iterable[LibraryCall], tried: Iterable[LibraryCall | CallTrial]) -> str:
    """The names of calls that were not tried."""
    known = set(_names(tried))
    return "; ".join(name for name in _names(every) if name not in known)


def _names(calls: Iterable[LibraryCall | CallTrial]) -> tuple[str, ...]:
    return tuple(call.name for call in calls)


def _path(operator: Operator, place: BaselineKey, names: Sequence[str]) -> Path:
    key = digest(json.dumps([asdict(place), *names], sort_keys=True), _code(operator.folder))
    return _folder() / f"{operator.name}-{place.dtype}-{place.target}-{key[:16]}.json"


def _code(folder: Path) -> str:
    """The text of what the calls are made of."""
    from operators.catalog import ROOT

    files = [folder / "operator.toml", folder / "reference.py", folder / LIBRARIES, *sorted(ROOT.glob("shared/*.py"))]
    return digest(*(read_bytes(path) for path in files if path.is_file()))


# --- the trial --------------------------------------------------------------------------------------------------------


Seated = Callable[
    [LibraryCall, Sequence[str]], AbstractContextManager[tuple[KernelSession, Sequence[Sequence[Placed]]]]
]
Accept = Callable[[Any, KernelSession, int], object]


def choose(
    calls: Sequence[LibraryCall],
    place: BaselineKey,
    workloads: Sequence[str],
    seated: Seated,
    accept: Accept,
    machine: Callable[[], AbstractContextManager[None]],
) -> BaselineChoice:
    """Try the calls one after another.

    `seated` opens a session with a call that has the timed inputs of the workloads of these names, in their order;
    `accept` raises KernelFault for a wrong answer; `machine` gives the device to a timing alone.
    """
    tried: list[CallTrial] = []
    for call in calls:
        known = {w: [t.us[w] for t in tried if w in t.us] for w in workloads}
        most_us = {w: HOPELESS * min(known[w], default=math.inf) for w in workloads}
        tried.append(_Trial(call, seated, accept, machine, most_us).told())
    return BaselineChoice(place, tuple(workloads), tuple(tried))


class _Trial:
    """A trial of one call, on every workload that it can run on.

    A session is only closed after a fault, so the workloads that are left then have another one.
    """

    def __init__(
        self,
        call: LibraryCall,
        seated: Seated,
        accept: Accept,
        machine: Callable[[], AbstractContextManager[None]],
        most_us: Mapping[str, float],
    ) -> None:
        """`most_us` has all workloads, and what is hopeless there."""
        self._call = call
        self._seated = seated
        self._accept = accept
        self._machine = machine
        self._most_us = most_us
        self._us: dict[str, float] = {}
        self._lacks: dict[str, str] = {}
        self._again = False
        self._ended: set[str] = set()
        """Workloads on which it has ended its process, or made the device fail."""

    def told(self) -> CallTrial:
        """The outcome of the call."""
        call, groups = self._call, [list(self._most_us)]
        while groups:
            group = groups.pop(0)
            try:
                self._try(group)
            except (*UNANSWERED, OperatorError) as fault:
                reason = " ".join(str(fault).split())[:400]
                if isinstance(fault, KernelFault) and fault.rejection.status is Status.WRONG:
                    return CallTrial(call.name, call.kind, lack=reason)
                left = [w for w in group if w not in self._us]
                late = isinstance(fault, KernelFault) and fault.rejection.status is Status.TIMEOUT
                if late and call.kind == "compiled":  # it would take as long again for each that is left
                    self._lacks |= {w: reason for w in self._most_us if w not in self._us}
                    self._again = True
                    break
                if isinstance(fault, ProcessEnded) and left[0] not in self._ended:  # once may be the machine's fault
                    self._ended.add(left[0])
                    groups.insert(0, left)
                    continue
                if len(left) == len(group) > 1:  # beside others it may only lack room, so each tells for itself
                    groups[:0] = [[w] for w in group]
                    continue
                self._lacks[left[0]] = reason
                self._again |= not isinstance(fault, OperatorError)
                if left[1:]:
                    groups.insert(0, left[1:])
        by_name = {w: self._lacks[w] for w in self._most_us if w in self._lacks}
        return CallTrial(call.name, call.kind, self._us, lacks=by_name, again=self._again)

    def _try(self, group: Sequence[str]) -> None:
        """Have the times of workloads, one after another; the first that has none raises what is wrong with it."""
        with self._seated(self._call, group) as (session, placed), self._machine():
            for workload, sets in zip(group, placed, strict=True):
                self._us[workload] = self._timed(session, sets, self._most_us[workload])

    def _timed(self, session: KernelSession, sets: Sequence[Placed], most_us: float) -> float:
        """Microseconds on a workload, once every set of its inputs was answered rightly.

        A call that takes longer than `most_us` is timed once after its first call.
        """
        samples: list[float] = []

        def called(which: int) -> None:
            slot, case = sets[which % len(sets)]
            sample = session.run(slot, poison=NAN, cold=True)
            self._accept(case, session, slot)
            samples.append(1e-3 * max(sample.elapsed_ns, 1))

        for which in range(len(sets)):
            called(which)
        if len(samples) > 1:
            del samples[0]  # it warmed up
        begin = time.monotonic()
        if median(samples) <= most_us:
            for turn in range(ROUNDS.stop - 1):
                if turn >= ROUNDS.start and time.monotonic() - begin > TRIAL_S / len(self._most_us):
                    break
                called(turn)
        return median(samples)


def _geomean(values: Iterable[float]) -> float:
    """The geometric mean of times; infinite where there are none."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.inf


# --- arrays -----------------------------------------------------------------------------------------------------------


def handed(values: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return values with the tensors among them as the arrays that a library takes, of the same memory.

    It raises OperatorError where that library cannot be imported.
    """
    import torch

    if arrays == "torch":
        return dict(values)
    as_array = _from_torch(arrays)
    return {name: as_array(value) if isinstance(value, torch.Tensor) else value for name, value in values.items()}


def _from_torch(arrays: Arrays) -> Callable[[Any], Any]:
    if arrays == "numpy":
        return lambda tensor: tensor.numpy()
    try:
        import cupy
    except Exception as error:  # noqa: BLE001 the border to a package that may find no CUDA of its version
        raise OperatorError(f"CuPy cannot be imported: {type(error).__name__}: {error}") from None
    return lambda tensor: cupy.from_dlpack(tensor)


def taken(result: Any, outputs: Sequence[str]) -> dict[str, Any]:
    """Return what a call made, as torch's tensors by the name of the output, of the same memory."""
    by_name = result if isinstance(result, Mapping) else {outputs[0]: result}
    return {name: _to_torch(value) for name, value in by_name.items()}


def _to_torch(value: Any) -> Any:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, np.ndarray | np.generic | float | int):
        return torch.from_numpy(np.asarray(value))
    return torch.utils.dlpack.from_dlpack(value)
