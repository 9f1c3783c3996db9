"""The settings of a kernel file's tunables: which there are, and which of them its plan rules out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from random import Random

from mutators.base import Request
from operators.definition.spec import Operator, Workload
from operators.dtypes import ACCUMULATOR
from operators.errors import PlanError
from operators.kernel import Kernel
from operators.plan.reading import Plan, parse_plan

FACTS: Mapping[str, Mapping[str, int]] = {
    "cpu": {"cpu_count": 8, "l2_bytes": 2**20},
    "cuda": {"sm_count": 132, "warp_size": 32, "max_shared_bytes": 232448, "l2_bytes": 50 * 2**20},
}
"""Facts that plans are checked against where the request's params bring no `facts`: a desktop processor, an H100."""

MAX_LISTED = 2048
"""Spaces up to this size are searched exhaustively for what is left; larger ones are sampled."""
MAX_SAMPLES = 200
"""Settings looked at in a larger space before giving up."""
MAX_STEPS = 4096
"""Values tried one after the other for a setting that breaks no constraint."""

Setting = tuple[int, ...]
"""Positions in the sorted values of each tunable, in the plan's order."""


@dataclass(frozen=True)
class Space:
    """The settings of one file, and what rules them out."""

    plan: Plan
    operator: Operator
    dtype: str
    workloads: tuple[Workload, ...]
    facts: Mapping[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """The tunables, in the plan's order."""
        return tuple(self.plan.tune)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each tunable."""
        return tuple(len(values) for values in self.plan.tune.values())

    @property
    def size(self) -> int:
        """The number of settings, those that the plan rules out included."""
        return math.prod(self.sizes)

    def values(self, setting: Setting) -> dict[str, int]:
        """The value of each tunable in a setting."""
        return {name: sorted(self.plan.tune[name])[at] for name, at in zip(self.names, setting, strict=True)}

    def setting(self, values: Mapping[str, int]) -> Setting | None:
        """The setting that has these values; None for values that the plan does not declare."""
        try:
            known = self.plan.settings(values)
        except PlanError:
            return None
        return self._positions(known)

    def problem(self, setting: Setting) -> str:
        """Why the plan rules the setting out on some workload; empty if it does not."""
        values = self.values(setting)
        # How many blocks fit a multiprocessor is known on the device alone; one is the least that any grid relies on.
        occupancy = {launch.kernel: 1 for launch in self.plan.launches}
        for workload in self.workloads:
            dims = self.operator.environment(workload.dims) | dict.fromkeys(self.operator.data_dims, 1)
            try:
                if not self.plan.supports(self.operator, dims, values, self.facts, self.dtype):
                    return f"`requires` excludes {workload.name}"
                self.plan.resolve(
                    self.operator, dtype=self.dtype, dims=dims, values=values, facts=self.facts, occupancy=occupancy
                )
            except PlanError as error:
                return str(error)
        return ""

    def nearest(self, wanted: Setting, tried: set[Setting], random: Random) -> Setting | None:
        """The feasible setting nearest to `wanted` (in steps between neighbouring values) that was not tried."""
        left = [s for s in self.candidates(wanted, random) if s not in tried]
        random.shuffle(left)
        left.sort(key=lambda setting: sum(abs(a - b) for a, b in zip(setting, wanted, strict=True)))
        return next((setting for setting in left if not self.problem(setting)), None)

    def candidates(self, wanted: Setting, random: Random) -> Iterable[Setting]:
        """Every setting of a small space; of a large one the neighbours of `wanted` and a sample."""
        if self.size <= MAX_LISTED:
            return product(*map(range, self.sizes))
        return dict.fromkeys((*self._neighbours(wanted), *islice(self.drawn(random), MAX_SAMPLES)))

    @property
    def default(self) -> Setting:
        """The setting of the file's author."""
        return tuple(sorted(values).index(values[0]) for values in self.plan.tune.values())

    def like(self, values: Mapping[str, int]) -> Setting:
        """The default setting with those of another file's values that this one offers, too."""
        offered = {name: value for name, value in values.items() if value in self.plan.tune.get(name, ())}
        return self.setting(offered) or self.default

    @cached_property
    def _facts(self) -> dict[str, int]:
        return self.plan.facts(self.facts, self.dtype)

    def _permitted(self, random: Random) -> Setting:
        """A random setting that breaks no constraint, or any one where MAX_STEPS find none.

        Values are drawn for one tunable after the other; those with which what is set so far breaks a constraint are
        left out, however few settings hold them all.
        """
        values: dict[str, int] = {}
        orders: list[list[int]] = []
        for _ in range(MAX_STEPS):
            if len(values) == len(self.names):
                return self._positions(values)
            name = self.names[len(values)]
            if len(orders) == len(values):
                orders.append(random.sample(range(len(self.plan.tune[name])), len(self.plan.tune[name])))
            if not orders[-1]:
                orders.pop()
                if not orders:
                    break
                del values[self.names[len(orders) - 1]]
                continue
            values[name] = self.plan.tune[name][orders[-1].pop()]
            if self.plan.breach(self._facts | values):
                del values[name]
        return tuple(random.randrange(size) for size in self.sizes)

    def _positions(self, values: Mapping[str, int]) -> Setting:
        return tuple(sorted(self.plan.tune[name]).index(values[name]) for name in self.names)

    def _neighbours(self, wanted: Setting) -> Iterator[Setting]:
        for axis, size in enumerate(self.sizes):
            for at in range(size):
                yield (*wanted[:axis], at, *wanted[axis + 1 :])

    def drawn(self, random: Random) -> Iterator[Setting]:
        """Random settings, endlessly; they break no constraint wherever one could be found that breaks none."""
        while True:
            if self.plan.where:
                yield self._permitted(random)
            else:
                yield tuple(random.randrange(size) for size in self.sizes)


def space_of(kernel: Kernel, request: Request, operator: Operator) -> Space:
    """The choices in a kernel's file, on the workloads and device of the request's params. Raises PlanError."""
    plan = parse_plan(kernel.source, operator, kernel.target).for_dtype(request.task.dtype)
    wanted = request.params.get("workload_set")
    workloads = operator.workload_set(wanted) if wanted else operator.workloads
    facts = dict(request.params.get("facts") or FACTS[kernel.target])
    return Space(plan, operator, request.task.dtype, workloads, facts)


def with_setting(kernel: Kernel, space: Space, setting: Setting) -> tuple[Kernel, str]:
    """The kernel with this setting, and what was set."""
    defaults = space.plan.settings({})
    values = space.values(setting)
    text = "set " + ", ".join(f"{name} = {value}" for name, value in values.items())
    return kernel.with_values({n: v for n, v in values.items() if v != defaults[n]}), text


def bad_params(request: Request, parent: Kernel) -> str:
    """The fault of the request's params for `space_of`; empty if there is none."""
    facts = request.params.get("facts")
    if parent.target not in FACTS:
        return f"no such target {parent.target!r}"
    if request.task.dtype not in ACCUMULATOR:
        return f"no such dtype {request.task.dtype!r}"
    if not isinstance(request.params.get("workload_set"), str | None):
        return f"workload_set must be a name, not {request.params['workload_set']!r}"
    if facts is not None and not _integers(facts):
        return "facts must be a table of integers"
    siblings, under_way = request.params.get("siblings", ()), request.params.get("under_way", ())
    if not (isinstance(siblings, list | tuple) and all(map(_integers, siblings))):
        return "siblings must be a list of tables of integers"
    if not (isinstance(under_way, list | tuple) and all(type(seed) is int for seed in under_way)):
        return "under_way must be a list of integers"
    return ""


def _integers(table: object) -> bool:
    return isinstance(table, Mapping) and all(type(value) is int for value in table.values())


def drawn(space: Space, random: Random) -> Setting | None:
    """A random setting of those that the plan does not rule out; None where MAX_SAMPLES draws found none."""
    return next((s for s in islice(space.drawn(random), MAX_SAMPLES) if not space.problem(s)), None)
