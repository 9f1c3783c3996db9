"""Untimed trials of CUDA kernels on a CPU: a look at a draft whose author waits, and the place for mutation tests.

A look goes over small shapes, the routes of large ones and other settings of tunables. For mutation tests a kernel is
compiled for a GPU as well, where the compiler is here.

A route is the launches of a plan that happen on a shape. It is never forced: its condition may be what makes it right.
What a kernel says to do on a workload is tried on the smallest shape that its own conditions send the same way, whose
sizes leave the same remainders as the workload's.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np

from fitness.cuda.compile.build import compile_cuda
from fitness.cuda.compile.cubin import read_cubin
from fitness.emulator.target import FACTS, EmulatedKernel, Emulation
from fitness.evaluation import CheckError, Rejection, Status
from fitness.judging.base import Checked
from fitness.judging.checks import Call
from fitness.judging.mutation_test import Ready
from fitness.oracle.verify import worst
from fitness.sandbox.native import ToolchainError
from operators.definition.spec import HIDDEN, Operator, Workload
from operators.errors import OperatorError, PlanError, UserError
from operators.expression import ExpressionError
from operators.identity import digest
from operators.kernel import Kernel
from operators.plan.header import read_header
from operators.plan.lets import Environment
from operators.plan.reading import Plan, environment

LOOK_S, LOOK_SHAPES = 15.0, 4
"""Seconds in which shapes are begun, and most hidden ones; routes come on top."""
WALK_S, WALK_SETTINGS, WALK_SHAPES = 10.0, 8, 3
"""Seconds in which other settings of tunables are begun, most of them, and shapes that each is tried on."""
QUICK_S = 2.0
"""Longest time of a shape that other settings are run on."""
CONTROL_S = 5.0
"""Time limit of the naive kernel on a shape of our own."""
OWN_FAULTS = (Status.WRONG, Status.RUNTIME_ERROR)
"""Verdicts that are a kernel's own fault also where a GPU's compiler took it; all others may be the emulation's."""
SLOW = "it takes too long"
Found = tuple[CheckError, ...] | Rejection
CALL_S = 10.0
"""Time limit of an emulated call; hidden shapes are small."""


def looked_at(
    kernel: Kernel,
    operator: Operator,
    dtype: str,
    *,
    judged: Sequence[Workload] = (),
    facts: Mapping[str, int] = FACTS,
) -> Checked:
    """Look at a kernel that compiles for GPUs, for as long as its author may wait.

    First come small hidden shapes; then, for every other set of launches that the kernel's conditions choose on a shape
    it will be `judged` on by a device with these `facts`, a small shape that takes it; then other settings of its
    tunables, the ends of each among them. What the emulation is at fault for, or too slow, is no rejection: then the
    kernel could not be looked at. Nor is what is wrong on a shape that is not named where the naive kernel is not
    right, or a setting that does not compile.
    """
    begin = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = _Look(kernel, operator, dtype, Path(folder)).found(judged or operator.hidden, facts)
    except ToolchainError as error:
        return Checked(lack=str(error))
    return replace(found, seconds=time.monotonic() - begin)


class _Look:
    def __init__(self, kernel: Kernel, operator: Operator, dtype: str, folder: Path) -> None:
        self._kernel = kernel
        self._operator = operator
        self._dtype = dtype
        seed = int(kernel.id[:8], 16)
        self._emulation = Emulation(operator, dtype, folder=folder, seed=seed, run_timeout_s=LOOK_S)
        self._rng = np.random.default_rng(seed)
        self._lack = ""
        self._errors: list[CheckError] = []
        self._seen: dict[Workload, float] = {}
        """Shapes on which it is right, and the seconds that each took."""
        self._settings = 0

    def found(self, judged: Sequence[Workload], facts: Mapping[str, int]) -> Checked:
        prepared = self._emulation.prepare(self._kernel)
        if isinstance(prepared, Rejection):
            return Checked(prepared) if prepared.status in OWN_FAULTS else Checked(lack=prepared.message)
        shapes = self._small(prepared)
        there, here = (
            Routes(prepared.plan, self._kernel, self._operator, self._dtype, known) for known in (facts, FACTS)
        )
        further, beyond = missing(judged, shapes, there, here)
        fault = self._on_shapes(prepared, [*shapes, *sorted(further, key=self._work)])
        fault = fault or self._with_settings(prepared.plan, here)
        if fault:
            return Checked(fault)
        if self._lack:
            return Checked(lack=self._lack)
        unseen = [route for shape in further if shape not in self._seen and (route := here.of(shape.dims))]
        return Checked(errors=worst(self._errors), scope=self._scope(here, [*beyond, *unseen]))

    def _small(self, prepared: EmulatedKernel) -> list[Workload]:
        """LOOK_SHAPES of the hidden shapes: some of the smaller half, and the largest of those that are cheap."""
        hidden = [w for w in self._operator.hidden if w.name in prepared.supported]
        hidden.sort(key=lambda w: math.prod(max(size, 1) for size in w.dims.values()))
        small = hidden[: max(LOOK_SHAPES, len(hidden) // 2)]
        cheap = [w for w in hidden if is_small(self._operator, w.dims, self._dtype, CHEAP)]
        largest = max(cheap, key=self._work, default=hidden[-1])
        drawn = [small[i] for i in self._rng.permutation(len(small)) if small[i] != largest]
        return [*drawn[: LOOK_SHAPES - 1], largest]

    def _work(self, shape: Workload) -> tuple[float, float]:
        return work(self._operator, shape.dims, self._dtype)

    def _on_shapes(self, prepared: EmulatedKernel, shapes: Iterable[Workload]) -> Rejection | None:
        """The kernel's own fault on one of them. Where hidden ones cannot be emulated, the look has no result."""
        end = time.monotonic() + LOOK_S
        for shape in shapes:
            if time.monotonic() > end:
                break
            begin = time.monotonic()
            found = self._on_shape(prepared, shape)
            if isinstance(found, Rejection):
                if found.status in OWN_FAULTS:
                    return found
                if shape.set == HIDDEN:
                    self._lack = self._lack or (found.message if found.status is not Status.TIMEOUT else SLOW)
            elif found is not None:
                self._errors += found
                self._seen[shape] = time.monotonic() - begin
        return None

    def _on_shape(self, prepared: EmulatedKernel, shape: Workload) -> Found | None:
        """The finding on a kernel on a shape; None where the shape may make no sense."""
        if shape.set != OWN:
            return self._emulation.examined(prepared, [shape])
        try:
            found = self._emulation.examined(prepared, [shape])
        except OperatorError:
            return None
        is_fault = isinstance(found, Rejection) and found.status in OWN_FAULTS
        return None if is_fault and not self._makes_sense(shape) else found

    def _makes_sense(self, shape: Workload) -> bool:
        """Whether the naive kernel is right on it."""
        operator, folder = self._operator, self._emulation.folder
        control = Emulation(operator, self._dtype, folder=folder, run_timeout_s=CONTROL_S)
        prepared = control.prepare(Kernel(operator.name, "cuda", operator.naive("cuda")))
        return not isinstance(prepared, Rejection) and not isinstance(control.examined(prepared, [shape]), Rejection)

    def _with_settings(self, plan: Plan, here: Routes) -> Rejection | None:
        """The first fault that another setting of the tunables has, on shapes where the kernel's own has none."""
        end = time.monotonic() + WALK_S
        own, known = plan.settings(self._kernel.values), plan.facts(FACTS, self._dtype)
        quick = [shape for shape, seconds in self._seen.items() if seconds < QUICK_S]
        for values in settings(plan.tune, own, self._rng, lambda values: not plan.breach(known | values)):
            prepared = self._emulation.prepare(replace(self._kernel, values=values))
            if isinstance(prepared, Rejection):
                continue
            for shape in self._some(quick, here):
                if time.monotonic() > end:
                    return None
                found = self._on_shape(prepared, shape)
                if isinstance(found, Rejection) and found.status in OWN_FAULTS:
                    changed = ", ".join(f"{name} = {value}" for name, value in values.items() if value != own[name])
                    return Rejection(found.status, f"with {changed}: {found.message}")
            self._settings += 1
        return None

    def _some(self, shapes: Sequence[Workload], here: Routes) -> list[Workload]:
        """WALK_SHAPES of them: of as many routes as there are the largest each, then others."""
        drawn = [shapes[number] for number in self._rng.permutation(len(shapes))]
        largest: dict[Route | None, Workload] = {}
        for shape in drawn:
            route = here.of(shape.dims)
            largest[route] = max(largest.get(route, shape), shape, key=self._work)
        others = [shape for shape in drawn if shape not in largest.values()]
        return [*largest.values(), *others][:WALK_SHAPES]

    def _scope(self, here: Routes, beyond: Sequence[Route]) -> str:
        further = sum(shape.set != HIDDEN for shape in self._seen)
        parts = [f"on {len(self._seen)} shapes"]
        if further:
            parts.append(f" ({further} for the launches of larger ones)")
        if self._settings:
            parts.append(f" and on some with {self._settings} other settings of its tunables")
        if beyond:
            parts.append(f", but not where {'; '.join(map(here.named, beyond[:3]))} would run")
        return "".join(parts)


def settings(
    tune: Mapping[str, Sequence[int]],
    own: Mapping[str, int],
    rng: np.random.Generator,
    allowed: Callable[[dict[str, int]], bool] = lambda values: True,
) -> Iterator[Mapping[str, int]]:
    """Yield other settings that are allowed: the ends of every tunable alone, in random order, both corners of all.

    The ends are the least and the largest value that the others allow as they are. At most WALK_SETTINGS, the kernel's
    own not among them.
    """
    fitting = {name: [v for v in listed if allowed({**own, name: v})] or [own[name]] for name, listed in tune.items()}
    ends = {name: (min(listed), max(listed)) for name, listed in fitting.items()}
    corners = [{name: end(listed) for name, listed in tune.items()} for end in (min, max)]
    single = [{**own, name: value} for name, both in ends.items() for value in both]
    single = [single[i] for i in rng.permutation(len(single))]
    different: list[dict[str, int]] = []
    for values in (*single[:4], *corners, *single[4:]):
        if values != own and values not in different and allowed(values):
            different.append(values)
    yield from different[:WALK_SETTINGS]


class EmulatedPlace:
    """`fitness.judging.mutation_test.KernelHost` without a GPU."""

    def __init__(self, operator: Operator, dtype: str, folder: Path) -> None:
        self._operator = operator
        self._dtype = dtype
        self._emulation = Emulation(operator, dtype, folder=folder, run_timeout_s=CALL_S)
        self._has_compiler = True
        self.oracle = self._emulation.oracle
        self.stage = None

    @property
    def words(self) -> str:
        """The extent of the trial in words; once a kernel was made ready it is known whether the compiler is here."""
        compiled = "compiled by NVRTC and " if self._has_compiler else ""
        return f"no GPU here: {compiled}emulated on a CPU"

    def ready(self, kernel: Kernel) -> Ready | Rejection:
        code = self._compiled(kernel)
        if isinstance(code, Rejection):
            return code
        prepared = self._emulation.prepare(kernel)
        return prepared if isinstance(prepared, Rejection) else Ready(prepared, code, prepared.plan.deterministic)

    def _compiled(self, kernel: Kernel) -> str | Rejection:
        """A digest of what the GPU's compiler makes of it and of its plan; empty where that compiler is not here."""
        if not self._has_compiler:
            return ""
        try:
            build = compile_cuda(kernel, self._operator, self._dtype)
        except UserError:
            self._has_compiler = False
            return ""
        if isinstance(build, Rejection):
            return build
        return digest("code", read_cubin(build.cubin).digest(), repr(read_header(kernel.source).table))

    @contextmanager
    def opened(self, ready: Ready) -> Iterator[Call]:
        with self._emulation.opened(ready.held) as call:
            yield call

    def close(self) -> None:
        """Nothing is left: every process ends with its kernel."""

    def is_own_fault(self, status: Status) -> bool:
        """See `fitness.judging.mutation_test.KernelHost`: of kernels that compile, others may be the emulation's."""
        return not self._has_compiler or status in OWN_FAULTS


Route = tuple[bool, ...]
"""For every launch of a plan whether it happens, and then for all that it clears on conditions whether it does."""
OWN = "emulated"
"""The set that shapes of our own belong to."""
MOST_FLOPS, MOST_BYTES = 2e8, 64e6
"""Most work of a shape that is emulated, by the operator's own formulas: about a second."""
CHEAP = 0.1
"""Share of these that a shape may take for which no smaller one is looked for."""
MOST_REPEATS = 64
"""Most repeats of a group that are asked whether a launch happens in them."""
MOST_TERMS = 10_000
"""Most terms of all conditions of a plan, repeats included, for which routes are looked for."""
GRID = 1.15
"""Ratio between sizes that are tried."""
SEARCH_S = 3.0
"""Longest search for small shapes."""
WIDE, NARROW = 64, 8
"""A size leaves the same remainder by this as the workload's: vectors, tiles and tails are as there."""


@dataclass(frozen=True)
class Routes:
    """The routes of a kernel's conditions, as one device with these facts sees them."""

    plan: Plan
    kernel: Kernel
    operator: Operator
    dtype: str
    facts: Mapping[str, int]

    def of(self, dims: Mapping[str, int]) -> Route | None:
        """Return the route of a shape; None where the kernel does not support it, or data decide."""
        try:
            env = environment(self.plan, self.operator, dims, self.kernel.values, self.facts, self.dtype)
            if not self.plan.requires.evaluate(env):
                return None
            launched = (self._happens(number, env) for number in range(len(self.plan.launches)))
            return (*launched, *(bool(zero.when.evaluate(env)) for zero in self.plan.zero if zero.when))
        except (ExpressionError, PlanError):
            return None

    @property
    def terms(self) -> int:
        """The largest number of terms that asking for one route evaluates."""
        asked = [(launch.when, launch.group) for launch in self.plan.launches]
        asked += [(zero.when, None) for zero in self.plan.zero]
        return sum(when.terms * (MOST_REPEATS if group else 1) for when, group in asked if when is not None)

    def _happens(self, number: int, env: Environment) -> bool:
        launch = self.plan.launches[number]
        if launch.group is None:
            return launch.when is None or bool(launch.when.evaluate(env))
        repeats = min(self.plan.groups[launch.group].evaluate(env), MOST_REPEATS)
        return any(launch.when is None or launch.when.evaluate(env.having("i", i)) for i in range(repeats))

    def named(self, route: Route) -> str:
        """Return a route in words: its kernels that have a condition, and where each stands in the plan."""
        chosen = [
            f"launch {number} `{launch.kernel}`"
            for number, (launch, happens) in enumerate(zip(self.plan.launches, route, strict=False), 1)
            if happens and (launch.when is not None or launch.group)
        ]
        return " with ".join(chosen[:3]) or "no launch"


def work(operator: Operator, dims: Mapping[str, int], dtype: str) -> tuple[float, float]:
    """Return flops of the plain algorithm and least bytes on a shape; infinite where they have no value."""
    try:
        env = operator.cost_environment(dims, dtype)
        return operator.flops.evaluate(env), operator.min_bytes.evaluate(env)
    except ExpressionError:
        return math.inf, math.inf


def is_small(operator: Operator, dims: Mapping[str, int], dtype: str, share: float = 1.0) -> bool:
    """Whether a shape can be emulated while its author waits, or in this share of the time."""
    flops, size = work(operator, dims, dtype)
    return flops <= share * MOST_FLOPS and size <= share * MOST_BYTES


def shrunk(workload: Workload, wanted: Route, routes: Routes, end: float = math.inf) -> Workload | None:
    """Return a small shape that takes a workload's route; None where there is none, or none is found until `end`.

    One size after the other becomes the smallest that still leads there, the largest size first.
    """
    operator, dims = routes.operator, dict(workload.dims)
    rules = Likeness(operator)
    for name in 2 * sorted(dims, key=lambda name: -dims[name]):
        for size in rules.sizes(name, dims[name], workload.dims[name]):
            tried = {**dims, name: size}
            if rules.has(tried) and routes.of(tried) == wanted:
                dims = tried
                break
            if time.monotonic() > end:
                return None
    if routes.of(dims) != wanted or not is_small(operator, dims, routes.dtype):
        return None
    return Workload(OWN, dims)


class Likeness:
    """Properties that all shapes have in common which an operator names itself: others may make no sense.

    Sizes that are always powers of two stay such; what never exceeds another, or the product of two, or always divides
    or equals another, goes on doing so.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        shapes = [w.dims for w in (*operator.workloads, *operator.hidden)]
        self._least = {name: min(dims[name] for dims in shapes) for name in operator.dims}
        self._powers = {name for name in operator.dims if all(_is_power(dims[name]) for dims in shapes)}
        pairs = list(permutations(operator.dims, 2))
        self._ordered = [(a, b) for a, b in pairs if all(dims[a] <= dims[b] for dims in shapes)]
        self._dividing = [(a, b) for a, b in pairs if all(_divides(dims[a], dims[b]) for dims in shapes)]
        triples = [(a, b, c) for a, b, c in permutations(operator.dims, 3) if b < c]
        self._fitting = [(a, b, c) for a, b, c in triples if all(dims[a] <= dims[b] * dims[c] for dims in shapes)]

    def has(self, dims: Mapping[str, int]) -> bool:
        """Whether a shape is like those."""
        return (
            all(dims[name] >= least for name, least in self._least.items())
            and all(_is_power(dims[name]) for name in self._powers)
            and all(dims[a] <= dims[b] for a, b in self._ordered)
            and all(_divides(dims[a], dims[b]) for a, b in self._dividing)
            and all(dims[a] <= dims[b] * dims[c] for a, b, c in self._fitting)
        )

    def sizes(self, name: str, largest: int, like: int) -> Iterator[int]:
        """Sizes of a dim up to the largest, small ones first, that are like another one."""
        if name in self._powers:
            yield from (1 << n for n in range(largest.bit_length()) if 1 << n < largest)
            return
        modulus = WIDE if like > WIDE else NARROW
        remainder, step, last = like % modulus, 0.0, -1
        while (size := remainder + modulus * int(step)) < largest:
            if size != last and size > 0:
                yield size
            last, step = size, max(step + 1, step * GRID)


def _is_power(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0


def _divides(a: int, b: int) -> bool:
    return a > 0 and b % a == 0


def missing(
    judged: Iterable[Workload], seen: Iterable[Workload], there: Routes, here: Routes
) -> tuple[list[Workload], list[Route]]:
    """Return shapes for the routes that judged shapes take on a device and `seen` ones do not take in emulation, and
    the routes for which there are none.

    `there` has the device's facts and `here` those of the emulation. A judged shape that is small goes first.
    """
    if there.terms > MOST_TERMS:
        return [], []
    wanted: dict[Route, list[Workload]] = {}
    for workload in judged:
        if route := there.of(workload.dims):
            wanted.setdefault(route, []).append(workload)
    for shape in seen:
        if route := here.of(shape.dims):
            wanted.pop(route, None)
    end = time.monotonic() + SEARCH_S
    nearest = {route: _nearest(route, shapes, here, end) for route, shapes in wanted.items()}
    return [shape for shape in nearest.values() if shape], [route for route, shape in nearest.items() if not shape]


def _nearest(route: Route, shapes: Sequence[Workload], here: Routes, end: float) -> Workload | None:
    """The smallest of the judged shapes that lead there; one of our own where that saves much."""
    ordered = sorted(shapes, key=lambda w: work(here.operator, w.dims, here.dtype))
    for shape in ordered:
        if here.of(shape.dims) == route and is_small(here.operator, shape.dims, here.dtype, CHEAP):
            return shape
    own = next((small for shape in ordered[:3] if (small := shrunk(shape, route, here, end))), None)
    if own and is_small(here.operator, own.dims, here.dtype, CHEAP):
        return own
    judged = (s for s in ordered if here.of(s.dims) == route and is_small(here.operator, s.dims, here.dtype))
    return next(judged, own)
