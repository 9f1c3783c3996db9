"""A kernel's plan as data: what a header declares, and what that comes to for one workload and one setting.

`operators.plan.reading` reads headers and is what others import.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

from operators.definition.spec import Operator
from operators.dtypes import ACCUMULATOR, DTYPES, resolve_dtype
from operators.errors import PlanError, unknown
from operators.expression import Expression, ExpressionError
from operators.plan.launch import (
    MAX_BUFFER_BYTES,
    ArgumentKind,
    Buffer,
    Launch,
    Numbers,
    ResolvedBuffer,
    ResolvedLaunch,
    Zero,
    resolve_buffer,
    unroll,
)
from operators.plan.lets import Environment, closure, with_lets
from operators.plan.tensor_map import ResolvedTensorMap, TensorMap, resolve_tensor_map

FACTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "cuda": frozenset(
            ("sm_count", "warp_size", "max_shared_bytes", "l2_bytes", "sizeof_T", "sizeof_ACC", "blocks_per_sm")
        ),
        "cpu": frozenset(("sizeof_T", "sizeof_ACC", "cpu_count", "l2_bytes")),
    }
)
"""Names by target of what expressions may know of the device and the dtype.

`blocks_per_sm` is a launch's own occupancy and stands in grids only; the sizes follow from the dtype; everything
else is passed in where the plan is resolved.
"""


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan for one workload and one setting: numbers only. Can be sent to other processes."""

    buffers: tuple[ResolvedBuffer, ...]
    zero: tuple[str, ...]
    """Outputs and buffers to clear before the first step."""
    steps: tuple[ResolvedLaunch, ...]
    tensor_maps: tuple[ResolvedTensorMap, ...]
    """Those that some step uses."""

    def canonical(self) -> str:
        """Everything that matters at run time, as stable text for digests: how an integer was written does not."""
        fields = asdict(self)
        for step in fields["steps"]:
            if not step["overlap"]:
                del step["overlap"]  # as texts were before there was such a thing
            step["args"] = [a["value"] if a["kind"] == "integer" else [a["kind"], a["name"]] for a in step["args"]]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Constraint:
    """One condition of `where`, over tunables, sizes of types and facts of the device. `constraint` makes it."""

    expression: Expression
    names: frozenset[str]
    """All that its value rests on, named expressions resolved."""
    lets: Mapping[str, Expression] = field(default_factory=lambda: MappingProxyType({}))
    """The named expressions that it uses, each behind those that it uses."""
    line: int | None = field(default=None, compare=False)

    def breach(self, numbers: Mapping[str, int]) -> str:
        """The breach by these numbers; empty where they do not, or are not all that it rests on."""
        if not self.names <= numbers.keys():
            return ""
        try:
            if self.expression.evaluate(with_lets(numbers, self.lets)):
                return ""
        except ExpressionError as error:
            return f"`where`: {error}"
        known = ", ".join(f"{name} = {numbers[name]}" for name in sorted(self.names))
        return f"`where`: `{self.expression.text}` does not hold with {known}"


def constraint(expression: Expression, lets: Mapping[str, Expression], line: int | None) -> Constraint:
    """The constraint that an expression states; `lets` are all named expressions of its plan, in order."""
    every = closure(expression.names, lets)
    used = MappingProxyType({name: let for name, let in lets.items() if name in every})
    return Constraint(expression, every - used.keys(), used, line)


@dataclass(frozen=True)
class Plan:
    """The checked header of a kernel file. `parse_plan` makes it."""

    target: str
    requires: Expression
    deterministic: bool
    """False: results may vary between runs, within the error bounds."""
    zero: tuple[Zero, ...]
    tune: Mapping[str, tuple[int, ...]]
    """Tunables and their values, the default first; for one dtype once `for_dtype` was asked."""
    tune_by_dtype: Mapping[str, Mapping[str, tuple[int, ...]]]
    """The same for every dtype; empty where all have the same."""
    where: tuple[Constraint, ...]
    """Conditions that a setting of the tunables must fulfil on every workload, whatever its dims."""
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    lets: Mapping[str, Expression]
    """Named expressions, each behind those that it uses."""
    groups: Mapping[str, Expression]
    """Number of repeats of each group's launches."""
    tensor_maps: tuple[TensorMap, ...]
    file: str | None = field(default=None, compare=False)
    """For messages."""

    def for_dtype(self, dtype: str) -> Plan:
        """Return the plan with the tunables that a task of this dtype has."""
        return replace(self, tune=self.tune_by_dtype[dtype]) if self.tune_by_dtype else self

    def settings(self, values: Mapping[str, int]) -> dict[str, int]:
        """Every tunable's value, the default where `values` has none.

        Raises PlanError for a tunable that does not exist, a value that the plan does not list, and values that break
        a constraint; those that rest on a device or a dtype are checked where these are known.
        """
        for name, value in values.items():
            if name not in self.tune:
                problem = unknown("tunable", name, self.tune)
                raise PlanError(problem, source=self.file)
            if value not in self.tune[name]:
                listed = ", ".join(map(str, self.tune[name]))
                raise PlanError(f"{name} = {value} is not a declared value; [tune] lists {listed}", source=self.file)
        settings = {name: int(values.get(name, listed[0])) for name, listed in self.tune.items()}
        self.check_where(settings)
        return settings

    def breach(self, numbers: Mapping[str, int]) -> str:
        """The breach of a constraint by these values of tunables and facts; empty where none is, as far as they
        tell."""
        return next(filter(None, (constraint.breach(numbers) for constraint in self.where)), "")

    def check_where(self, numbers: Mapping[str, int]) -> None:
        """Raise PlanError where these values of tunables and facts break a constraint."""
        for constraint in self.where:
            if told := constraint.breach(numbers):
                raise PlanError(f"[tune]: {told}", line=constraint.line, source=self.file)

    def facts(self, known: Mapping[str, int], dtype: str) -> dict[str, int]:
        """The facts that expressions may use, out of those `known` of a device, with the sizes of a task's types."""
        sizes = {"sizeof_T": DTYPES[dtype].size, "sizeof_ACC": DTYPES[ACCUMULATOR[dtype]].size}
        return {name: known[name] for name in FACTS[self.target] if name in known and name != "blocks_per_sm"} | sizes

    @property
    def occupancy_kernels(self) -> frozenset[str]:
        """Kernels whose `blocks_per_sm` must be known before the plan can be resolved."""
        return frozenset(launch.kernel for launch in self.launches if launch.needs_occupancy)

    def supports(
        self,
        operator: Operator,
        dims: Mapping[str, int],
        values: Mapping[str, int],
        facts: Mapping[str, int],
        dtype: str,
    ) -> bool:
        """Whether `requires` holds. Raises PlanError where it has no value."""
        env = environment(self, operator, dims, values, facts, dtype)
        try:
            return bool(self.requires.evaluate(env))
        except ExpressionError as error:
            raise PlanError(f"`requires`: {error}", source=self.file) from None

    def resolve(
        self,
        operator: Operator,
        *,
        dtype: str,
        dims: Mapping[str, int],
        values: Mapping[str, int],
        facts: Mapping[str, int],
        occupancy: Mapping[str, int] | None = None,
    ) -> ResolvedPlan:
        """The steps for one workload.

        `dims` are the workload's, data-dependent ones included; derived dims are added. `occupancy` gives
        `blocks_per_sm` for each of `occupancy_kernels`. Raises PlanError where an expression has no value or a limit
        is broken: which launch, which expression, the numbers. `requires` is not asked.
        """
        env = environment(self, operator, dims, values, facts, dtype)
        whole = Numbers("the plan", None, self.file, env)
        buffers = tuple(
            resolve_buffer(buffer, Numbers(f"buffer `{buffer.name}`", buffer.line, self.file, env), dtype)
            for buffer in self.buffers
        )
        total_bytes = sum(buffer.bytes for buffer in buffers)
        if total_bytes > MAX_BUFFER_BYTES:
            sizes = ", ".join(f"`{buffer.name}` {list(buffer.shape)}" for buffer in buffers)
            raise whole.error(f"its buffers take {total_bytes} bytes ({sizes}); at most {MAX_BUFFER_BYTES} are allowed")
        kinds = argument_kinds(operator, self.buffers, self.tensor_maps)
        steps = tuple(unroll(self.launches, self.groups, kinds, occupancy or {}, whole))
        used = {argument.name for step in steps for argument in step.args if argument.kind == "map"}
        maps = tuple(
            _resolve_map(declared, operator, buffers, dtype, env, self.file)
            for declared in self.tensor_maps
            if declared.name in used
        )
        zero = tuple(
            each.name for each in self.zero if each.when is None or whole.value(each.when, f"zero[{each.name}]")
        )
        return ResolvedPlan(buffers, zero, steps, maps)


def environment(
    plan: Plan,
    operator: Operator,
    dims: Mapping[str, int],
    values: Mapping[str, int],
    facts: Mapping[str, int],
    dtype: str,
) -> Environment:
    """Return all that expressions of a plan are over, for a task of this dtype.

    It raises PlanError where a dim has no value and where a setting breaks a constraint.
    """
    try:
        env = operator.environment(dims)
    except ExpressionError as error:
        raise PlanError(f"the dims of this workload: {error}", source=plan.file) from None
    plan = plan.for_dtype(dtype)
    known = plan.facts(facts, dtype) | plan.settings(values)
    plan.check_where(known)
    return with_lets(env | known, plan.lets)


def _resolve_map(
    declared: TensorMap,
    operator: Operator,
    buffers: tuple[ResolvedBuffer, ...],
    dtype: str,
    env: Environment,
    file: str | None,
) -> ResolvedTensorMap:
    sizes = {buffer.name: (buffer.dtype, buffer.bytes) for buffer in buffers}
    for tensor in operator.tensors:
        element = resolve_dtype(tensor.dtype, dtype)
        sizes[tensor.name] = element.name, math.prod(tensor.sizes(env)) * element.size
    numbers = Numbers(f"tensor_map `{declared.name}`", declared.line, file, env)
    try:
        return resolve_tensor_map(declared, *sizes[declared.tensor], numbers.value)
    except ValueError as error:
        raise numbers.error(str(error)) from None


def argument_kinds(
    operator: Operator, buffers: Iterable[Buffer], tensor_maps: Iterable[TensorMap]
) -> dict[str, ArgumentKind]:
    """The kinds of what an argument may name besides numbers."""
    kinds: dict[str, ArgumentKind] = dict.fromkeys((t.name for t in operator.tensors), "tensor")
    kinds |= dict.fromkeys((s.name for s in operator.scalars), "scalar")
    kinds |= dict.fromkeys((b.name for b in buffers), "buffer")
    kinds |= dict.fromkeys((m.name for m in tensor_maps), "map")
    return kinds
