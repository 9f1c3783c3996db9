"""Which of an operator's library calls is the baseline on a device: the fastest that is right, chosen once, by time.

The calls are tried where a figure of the library is first needed, on the timed inputs and by the judgement of kernels:
what raises, or is wrong on one of them, is left out, with the reason. What was found is kept in the user's cache folder
by all that decides about it, for later processes of the machine.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from fitness.device import NAN, KernelFault, Session
from fitness.evaluation import Status
from fitness.native import cache_folder, publish
from fitness.timed import Placed
from operators.errors import OperatorError
from operators.files import read_bytes
from operators.identity import digest
from operators.libraries import LIBRARIES, Arrays, LibraryCall
from operators.spec import Operator

ROUNDS = range(3, 10)
"""A call is timed so often on every workload at least, and at most."""
TRIAL_S = 1.0
"""Between the two, until a call's rounds have taken so long."""
HOPELESS = 4.0
"""A call so many times slower than the fastest so far is not called again."""
CLOSE = 1.02
"""Calls that take no more than so many times the least time are told apart by noise, as two names of one kernel."""
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch",), "numpy": ("numpy",), "scipy": ("scipy",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy"),
}  # fmt: skip
"""What packages are called where they are installed from."""
OF_TARGET: Mapping[str, tuple[str, ...]] = {"cpu": ("torch", "numpy", "scipy"), "cuda": ("torch", "cupy")}
"""The packages that a target's calls are of."""


@dataclass(frozen=True)
class Tried:
    """What became of one call."""

    name: str
    kind: str
    """`library`, or `composed` where several calls make the result."""
    us: Mapping[str, float] = field(default_factory=dict)
    """By workload, the median of calls from cold caches; empty where it was left out."""
    lack: str = ""
    """Why it was left out."""
    again: bool = False
    """Whether it was left out for what may have been the machine's fault, such as no memory, and may be right later."""

    @property
    def mean_us(self) -> float:
        """The geometric mean over workloads; infinite where it was left out."""
        return math.exp(sum(map(math.log, self.us.values())) / len(self.us)) if self.us and not self.lack else math.inf


@dataclass(frozen=True)
class Place:
    """All that decides which call is the fastest, but for the code of the calls."""

    operator: str
    dtype: str
    target: str
    workload_set: str
    device: str
    threads: int
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Choice:
    """Of the calls that were tried in a place."""

    place: Place
    tried: tuple[Tried, ...]

    @property
    def best(self) -> Tried | None:
        """The fastest one, of those that are CLOSE to it the first declared; None where none was right."""
        least_us = min((t.mean_us for t in self.tried), default=math.inf)
        return next((t for t in self.tried if t.mean_us <= CLOSE * least_us < math.inf), None)

    @property
    def settled(self) -> bool:
        """Whether a later process would find the same."""
        return not any(t.again for t in self.tried)

    @property
    def lack(self) -> str:
        """Why there is none."""
        return "" if self.best else "; ".join(f"{t.name}: {t.lack}" for t in self.tried)


@lru_cache
def versions(target: str) -> dict[str, str]:
    """Return the versions of the packages whose calls a target has; of one that is not installed, an empty text."""
    return {name: _version(DISTRIBUTIONS[name]) for name in OF_TARGET[target]}


def _version(distributions: Sequence[str]) -> str:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


# --- kept on disk -----------------------------------------------------------------------------------------------------


def kept(operator: Operator, place: Place) -> Choice | None:
    """Return what an earlier process of this machine found; None where none has, or the calls are others now."""
    return _read(_path(operator, place))


def keep(operator: Operator, choice: Choice) -> None:
    """Store a choice for later processes; one that is not settled, or cannot be written, they make again."""
    if not choice.settled:
        return
    try:
        publish(_path(operator, choice.place), json.dumps(asdict(choice), indent=1).encode())
    except OSError:
        return


def known(operator: Operator) -> list[Choice]:
    """Return all choices that are kept for an operator as it is now, in whatever place, the latest last."""
    files = sorted(_folder().glob(f"{operator.name}-*.json"), key=lambda path: path.stat().st_mtime)
    return [choice for path in files if (choice := _read(path)) and path == _path(operator, choice.place)]


def _read(path: Path) -> Choice | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Choice(Place(**data["place"]), tuple(Tried(**tried) for tried in data["tried"]))
    except (OSError, ValueError, TypeError, KeyError):  # missing, cut off, or of another version
        return None


def _folder() -> Path:
    folder = cache_folder() / "libraries"
    folder.mkdir(exist_ok=True)
    return folder


def _path(operator: Operator, place: Place) -> Path:
    key = digest(json.dumps(asdict(place), sort_keys=True), _code(operator.folder))
    return _folder() / f"{operator.name}-{place.dtype}-{place.target}-{key[:16]}.json"


def _code(folder: Path) -> str:
    """The text of what the calls are made of."""
    from operators.catalog import ROOT

    files = [folder / "operator.toml", folder / "reference.py", folder / LIBRARIES, *sorted(ROOT.glob("shared/*.py"))]
    return digest(*(read_bytes(path) for path in files if path.is_file()))


# --- the trial --------------------------------------------------------------------------------------------------------


def choose(
    calls: Sequence[LibraryCall],
    place: Place,
    seated: Callable[[LibraryCall], AbstractContextManager[tuple[Session, Sequence[Sequence[Placed]]]]],
    accept: Callable[[Any, Session, int], object],
    machine: Callable[[], AbstractContextManager[None]],
) -> Choice:
    """Try the calls one after another.

    `seated` opens a session with a call that has the timed inputs, by workload; `accept` raises KernelFault for a wrong
    answer; `machine` gives the device to a timing alone.
    """
    tried: list[Tried] = []
    for call in calls:
        least_us = min((t.mean_us for t in tried), default=math.inf)
        try:
            with seated(call) as (session, workloads), machine():
                us = _timed(session, workloads, accept, HOPELESS * least_us)
            tried.append(Tried(call.name, call.kind, us))
        except (KernelFault, OperatorError) as fault:
            lack = " ".join(str(fault).split())[:400]
            again = isinstance(fault, KernelFault) and fault.rejection.status is not Status.WRONG
            tried.append(Tried(call.name, call.kind, lack=lack, again=again))
    return Choice(place, tuple(tried))


def _timed(
    session: Session,
    workloads: Sequence[Sequence[Placed]],
    accept: Callable[[Any, Session, int], object],
    most_us: float,
) -> dict[str, float]:
    """Microseconds by workload, once every set of inputs was answered rightly.

    A call that takes longer than `most_us` is timed once after its first call.
    """
    names = [sets[0][1].workload.name for sets in workloads]
    samples: list[list[float]] = [[] for _ in workloads]

    def called(number: int, which: int) -> None:
        sets = workloads[number]
        slot, case = sets[which % len(sets)]
        sample = session.run(slot, poison=NAN, cold=True)
        accept(case, session, slot)
        samples[number].append(1e-3 * max(sample.elapsed_ns, 1))

    for number, sets in enumerate(workloads):
        for which in range(len(sets)):
            called(number, which)
        samples[number] = samples[number][1:] or samples[number]  # the first one warms up
    begin = time.monotonic()
    if _geomean(samples) <= most_us:
        for turn in range(ROUNDS.stop - 1):
            if turn >= ROUNDS.start and time.monotonic() - begin > TRIAL_S:
                break
            for number in range(len(workloads)):
                called(number, turn)
    return {name: median(found) for name, found in zip(names, samples, strict=True)}


def _geomean(samples: Sequence[Sequence[float]]) -> float:
    return math.exp(sum(math.log(median(found)) for found in samples) / max(len(samples), 1))


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
