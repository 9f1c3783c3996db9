"""A kernel's plan: the launches, scratch buffers and tunables that its header declares; data, never code.

`parse_plan` reads and checks the header against the operator; `Plan.resolve` works out, for one workload and one
setting of the tunables, what exactly is launched with what. All expressions are over the names of `FACTS`, the
operator's dims, the tunables and, in a group, its counter `i`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from operators.dtypes import ACCUMULATOR, DTYPES, TARGETS, resolve_dtype
from operators.errors import PlanError
from operators.expression import Expression, ExpressionError, unknown_name
from operators.header import Header, Section, read_header, show
from operators.spec import CPP_KEYWORDS, IDENTIFIER, RESERVED, Operator
from operators.tensor_map import (
    L2_PROMOTIONS,
    MAX_RANK,
    OOB_FILLS,
    SWIZZLES,
    ResolvedTensorMap,
    TensorMap,
    resolve_tensor_map,
)

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
else comes from whoever resolves the plan.
"""

MAX_LAUNCHES = 64
MAX_BUFFERS = 32
MAX_TENSOR_MAPS = 16
MAX_TUNABLES = 16
MAX_TUNABLE_VALUES = 64
MAX_ARGS = 64
MAX_BUFFER_RANK = 8
MAX_KERNEL_CHARACTERS = 200
MAX_STEPS = 4096
MAX_BUFFER_BYTES = 2**36
"""All buffers of one workload together."""

GRID_LIMITS = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_CLUSTER_BLOCKS = 8

ArgumentKind = Literal["tensor", "buffer", "map", "scalar", "integer"]


@dataclass(frozen=True)
class Buffer:
    """Scratch memory, allocated and poisoned by the harness."""

    name: str
    dtype: str
    """T, ACC or a name of `DTYPES`."""
    shape: tuple[Expression, ...]
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Launch:
    """One `[[launch]]`: on cuda a kernel and its geometry, on cpu a C function."""

    kernel: str
    """A C++ name expression; on cpu a C function's name."""
    args: tuple[Expression, ...]
    when: Expression | None = None
    group: str | None = None
    grid: tuple[Expression, ...] = ()
    """In blocks, also with clusters; empty on cpu."""
    block: tuple[Expression, ...] = ()
    cluster: tuple[Expression, ...] = ()
    shared: Expression | None = None
    """Dynamic shared memory in bytes."""
    cooperative: bool = False
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Argument:
    """What one parameter of one launch gets."""

    kind: ArgumentKind
    name: str
    """The object's name; for an integer the expression's text, which serves messages only."""
    value: int | None = None
    """Of an integer, and only of one."""


@dataclass(frozen=True)
class Step:
    """One launch as it happens."""

    kernel: str
    args: tuple[Argument, ...]
    grid: tuple[int, ...] = ()
    """x, y, z in blocks; empty on cpu, like `block`."""
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = ()
    """x, y, z in blocks; empty without clusters."""
    shared_bytes: int = 0
    cooperative: bool = False


@dataclass(frozen=True)
class ResolvedBuffer:
    name: str
    dtype: str
    """A name of `DTYPES`."""
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan for one workload and one setting: numbers only. Can be sent to other processes."""

    buffers: tuple[ResolvedBuffer, ...]
    zero: tuple[str, ...]
    """Outputs and buffers to clear before the first step."""
    steps: tuple[Step, ...]
    tensor_maps: tuple[ResolvedTensorMap, ...]
    """Those that some step uses."""

    def canonical(self) -> str:
        """Everything that matters at run time, as stable text for digests: how an integer was written does not."""
        fields = asdict(self)
        for step in fields["steps"]:
            step["args"] = [a["value"] if a["kind"] == "integer" else [a["kind"], a["name"]] for a in step["args"]]
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Plan:
    """The checked header of a kernel file. `parse_plan` makes it."""

    target: str
    requires: Expression
    deterministic: bool
    """False: results may vary between runs, within the error bounds."""
    zero: tuple[str, ...]
    tune: Mapping[str, tuple[int, ...]]
    """Tunables and their values, the default first."""
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    groups: Mapping[str, Expression]
    """How often the launches of each group repeat."""
    tensor_maps: tuple[TensorMap, ...]
    file: str | None = field(default=None, compare=False)
    """For messages."""

    def settings(self, values: Mapping[str, int]) -> dict[str, int]:
        """Every tunable's value, the default where `values` has none.

        Raises PlanError for a tunable that does not exist and a value that the plan does not list.
        """
        for name, value in values.items():
            if name not in self.tune:
                problem = unknown_name(name, self.tune).replace("name", "tunable", 1)
                raise PlanError(problem, source=self.file)
            if value not in self.tune[name]:
                listed = ", ".join(map(str, self.tune[name]))
                raise PlanError(f"{name} = {value} is not a declared value; [tune] lists {listed}", source=self.file)
        return {name: int(values.get(name, listed[0])) for name, listed in self.tune.items()}

    @property
    def occupancy_kernels(self) -> frozenset[str]:
        """Kernels whose `blocks_per_sm` must be known before the plan can be resolved."""
        return frozenset(
            launch.kernel for launch in self.launches if any("blocks_per_sm" in axis.names for axis in launch.grid)
        )

    def supports(
        self,
        operator: Operator,
        dims: Mapping[str, int],
        values: Mapping[str, int],
        facts: Mapping[str, int],
        dtype: str,
    ) -> bool:
        """Whether `requires` holds. Raises PlanError where it has no value."""
        env = _environment(self, operator, dims, values, facts, dtype)
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
        """What happens for one workload.

        `dims` are the workload's, data-dependent ones included; derived dims are added. `occupancy` gives
        `blocks_per_sm` for each of `occupancy_kernels`. Raises PlanError where an expression has no value or a limit
        is broken: which launch, which expression, the numbers. `requires` is not asked.
        """
        env = _environment(self, operator, dims, values, facts, dtype)
        buffers = tuple(_resolve_buffer(self, buffer, env, dtype) for buffer in self.buffers)
        total_bytes = sum(buffer.bytes for buffer in buffers)
        if total_bytes > MAX_BUFFER_BYTES:
            sizes = ", ".join(f"`{buffer.name}` {list(buffer.shape)}" for buffer in buffers)
            raise PlanError(
                f"the buffers take {total_bytes} bytes ({sizes}); at most {MAX_BUFFER_BYTES} are allowed",
                line=self.buffers[0].line, source=self.file,
            )  # fmt: skip
        kinds = _kinds(operator, self.buffers, self.tensor_maps)
        steps = tuple(_steps(self, kinds, env, occupancy or {}))
        used = {argument.name for step in steps for argument in step.args if argument.kind == "map"}
        maps = tuple(
            _resolve_map(self, declared, operator, buffers, env, dtype)
            for declared in self.tensor_maps
            if declared.name in used
        )
        return ResolvedPlan(buffers, self.zero, steps, maps)


# --- resolving ---------------------------------------------------------------------------------------------------


def _environment(
    plan: Plan,
    operator: Operator,
    dims: Mapping[str, int],
    values: Mapping[str, int],
    facts: Mapping[str, int],
    dtype: str,
) -> dict[str, int]:
    try:
        env = operator.environment(dims)
    except ExpressionError as error:
        raise PlanError(f"the dims of this workload: {error}", source=plan.file) from None
    sizes = {"sizeof_T": DTYPES[dtype].size, "sizeof_ACC": DTYPES[ACCUMULATOR[dtype]].size}
    known = {name: facts[name] for name in FACTS[plan.target] if name in facts and name != "blocks_per_sm"}
    return env | known | sizes | plan.settings(values)


class _Numbers:
    """Evaluates the expressions of one part of a plan; every complaint says which part, which line, which numbers."""

    def __init__(self, plan: Plan, label: str, line: int | None, env: Mapping[str, int]) -> None:
        self.plan = plan
        self.label = label
        self.line = line
        self.env = env

    def error(self, message: str) -> PlanError:
        return PlanError(f"{self.label}: {message}", line=self.line, source=self.plan.file)

    def value(self, expression: Expression, key: str) -> int:
        try:
            return expression.evaluate(self.env)
        except ExpressionError as error:
            raise self.error(f"{key}: {error}") from None

    def within(self, expression: Expression, key: str, smallest: int, largest: int) -> int:
        number = self.value(expression, key)
        if not smallest <= number <= largest:
            raise self.error(f"{key}: {self.shown(expression, number)}; allowed are {smallest} to {largest}")
        return number

    def shown(self, expression: Expression, number: int) -> str:
        names = ", ".join(f"{name} = {self.env[name]}" for name in sorted(expression.names) if name in self.env)
        return f"`{expression.text}` is {number}{f' with {names}' if names else ''}"

    def axes(self, expressions: tuple[Expression, ...], key: str, limits: tuple[int, ...]) -> tuple[int, ...]:
        """x, y, z; axes that are not given count 1."""
        given = tuple(
            self.within(axis, f"{key}[{n}]", 1, limit)
            for n, (axis, limit) in enumerate(zip(expressions, limits, strict=False))
        )
        return given + (1,) * (3 - len(given))


def _resolve_buffer(plan: Plan, buffer: Buffer, env: Mapping[str, int], dtype: str) -> ResolvedBuffer:
    numbers = _Numbers(plan, f"buffer `{buffer.name}`", buffer.line, env)
    shape = tuple(numbers.within(axis, f"shape[{n}]", 1, MAX_BUFFER_BYTES) for n, axis in enumerate(buffer.shape))
    resolved = resolve_dtype(buffer.dtype, dtype)
    return ResolvedBuffer(buffer.name, resolved.name, shape, math.prod(shape) * resolved.size)


def _resolve_map(
    plan: Plan,
    declared: TensorMap,
    operator: Operator,
    buffers: tuple[ResolvedBuffer, ...],
    env: Mapping[str, int],
    dtype: str,
) -> ResolvedTensorMap:
    numbers = _Numbers(plan, f"tensor_map `{declared.name}`", declared.line, env)
    for buffer in buffers:
        if buffer.name == declared.tensor:
            element, object_bytes = DTYPES[buffer.dtype], buffer.bytes
    for tensor in operator.tensors:
        if tensor.name == declared.tensor:
            element = resolve_dtype(tensor.dtype, dtype)
            object_bytes = math.prod(tensor.sizes(env)) * element.size
    try:
        return resolve_tensor_map(declared, element.name, object_bytes, numbers.value)
    except ValueError as error:
        raise numbers.error(str(error)) from None


def _steps(
    plan: Plan, kinds: Mapping[str, ArgumentKind], env: Mapping[str, int], occupancy: Mapping[str, int]
) -> Iterable[Step]:
    count = 0
    for group, launches in _blocks(plan.launches):
        repeats = 1
        if group:
            numbers = _Numbers(plan, f"group `{group}`", launches[0][1].line, env)
            repeats = numbers.within(plan.groups[group], "repeat", 0, MAX_STEPS)
        for i in range(repeats):
            inner = {**env, "i": i} if group else env
            for number, launch in launches:
                numbers = _Numbers(plan, f"launch {number} `{launch.kernel}`", launch.line, inner)
                if launch.when is not None and not numbers.value(launch.when, "when"):
                    continue
                count += 1
                if count > MAX_STEPS:
                    raise numbers.error(f"the plan makes more than {MAX_STEPS} launches; a group repeats too often")
                yield _step(numbers, launch, kinds, occupancy)


def _blocks(launches: tuple[Launch, ...]) -> list[tuple[str | None, list[tuple[int, Launch]]]]:
    """Launches with their numbers from 1, those of one group together."""
    blocks: list[tuple[str | None, list[tuple[int, Launch]]]] = []
    for number, launch in enumerate(launches, 1):
        if launch.group is None or not blocks or blocks[-1][0] != launch.group:
            blocks.append((launch.group, []))
        blocks[-1][1].append((number, launch))
    return blocks


def _step(numbers: _Numbers, launch: Launch, kinds: Mapping[str, ArgumentKind], occupancy: Mapping[str, int]) -> Step:
    args = tuple(_argument(numbers, expression, n, kinds) for n, expression in enumerate(launch.args))
    if numbers.plan.target == "cpu":
        return Step(launch.kernel, args)
    block = numbers.axes(launch.block, "block", BLOCK_LIMITS)
    if math.prod(block) > MAX_BLOCK_THREADS:
        raise numbers.error(f"block: {_product(block)} threads; a block has at most {MAX_BLOCK_THREADS}")
    grid = _grid(numbers, launch, occupancy)
    cluster = numbers.axes(launch.cluster, "cluster", (MAX_CLUSTER_BLOCKS,) * 3) if launch.cluster else ()
    if math.prod(cluster) > MAX_CLUSTER_BLOCKS:
        raise numbers.error(f"cluster: {_product(cluster)} blocks; a cluster has at most {MAX_CLUSTER_BLOCKS}")
    for axis, size, blocks in zip("xyz", cluster, grid, strict=False):
        if blocks % size:
            raise numbers.error(f"cluster: the grid's {axis} = {blocks} is not a multiple of the cluster's {size}")
    shared_bytes = 0
    if launch.shared is not None:
        shared_bytes = numbers.within(launch.shared, "shared", 0, numbers.env.get("max_shared_bytes", 2**31 - 1))
    return Step(launch.kernel, args, grid, block, cluster, shared_bytes, launch.cooperative)


def _grid(numbers: _Numbers, launch: Launch, occupancy: Mapping[str, int]) -> tuple[int, ...]:
    if not any("blocks_per_sm" in axis.names for axis in launch.grid):
        return numbers.axes(launch.grid, "grid", GRID_LIMITS)
    try:
        env = {**numbers.env, "blocks_per_sm": occupancy[launch.kernel]}
    except KeyError:
        raise numbers.error(
            "grid: blocks_per_sm is known only once the kernel is compiled; no occupancy given"
        ) from None
    return _Numbers(numbers.plan, numbers.label, numbers.line, env).axes(launch.grid, "grid", GRID_LIMITS)


def _argument(numbers: _Numbers, expression: Expression, position: int, kinds: Mapping[str, ArgumentKind]) -> Argument:
    try:
        chosen = expression.choose(numbers.env)
    except ExpressionError as error:
        raise numbers.error(f"args[{position}]: {error}") from None
    if isinstance(chosen, str):
        return Argument(kinds[chosen], chosen)
    return Argument("integer", expression.text, chosen)


def _product(sizes: tuple[int, ...]) -> str:
    return f"{' x '.join(map(str, sizes))} = {math.prod(sizes)}"


def _kinds(operator: Operator, buffers: Iterable[Buffer], tensor_maps: Iterable[TensorMap]) -> dict[str, ArgumentKind]:
    """What an argument may name besides numbers."""
    kinds: dict[str, ArgumentKind] = dict.fromkeys((t.name for t in operator.tensors), "tensor")
    kinds |= dict.fromkeys((s.name for s in operator.scalars), "scalar")
    kinds |= dict.fromkeys((b.name for b in buffers), "buffer")
    kinds |= dict.fromkeys((m.name for m in tensor_maps), "map")
    return kinds


# --- reading the header ------------------------------------------------------------------------------------------


def parse_plan(source: str, operator: Operator, target: str, *, name: str | None = None) -> Plan:
    """Read the header of a kernel file and check all that can be checked without a workload.

    `name` is what messages call the file. Raises PlanError: one line with the place, what is wrong, what is right.
    """
    if target not in TARGETS:
        raise PlanError(f"no such target {target!r}; there are {', '.join(TARGETS)}", source=name)
    return _Reader(read_header(source, name), operator, target).plan()


_TOP_KEYS = ("requires", "deterministic", "zero", "tune", "buffer", "launch", "group", "tensor_map")
_CPU_LAUNCH_KEYS = ("kernel", "args", "when", "group")
_CUDA_LAUNCH_KEYS = (*_CPU_LAUNCH_KEYS, "grid", "block", "cluster", "shared", "cooperative")
_TENSOR_MAP_KEYS = (
    "name", "tensor", "shape", "strides", "box", "element_strides", "swizzle", "l2_promotion", "oob_fill",
)  # fmt: skip
_TUNABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_MACROS = frozenset(("NULL", "NAN", "INFINITY", "EOF", "HUGE_VAL", "SNAN", "MATH_ERRNO", "INT_MAX", "INT_MIN"))
_CPU_ONLY_NOTE = "exists on the cuda target only; on cpu a launch has kernel, args, when and group"


class _Reader:
    """One header on its way to a plan; tables are read in the order in which they give names to each other."""

    def __init__(self, header: Header, operator: Operator, target: str) -> None:
        self.header = header
        self.operator = operator
        self.target = target
        self.top = Section(header, header.table, (), "")
        self.taken = {name: "a dim" for name in operator.shape_names}
        self.taken |= {t.name: "a tensor" for t in operator.tensors} | {s.name: "a scalar" for s in operator.scalars}
        self.numbers = operator.shape_names | FACTS[target] - {"blocks_per_sm"}

    def plan(self) -> Plan:
        elsewhere = {"tensor_map": "exists on the cuda target only"} if self.target == "cpu" else {}
        self.top.only([key for key in _TOP_KEYS if key not in elsewhere], elsewhere | {
            "kernel": "belongs into a [[launch]] table", "grid": "belongs into a [[launch]] table",
        })  # fmt: skip
        tune = self._tune()
        self.numbers |= tune.keys()
        buffers = tuple(self._buffer(section) for section in self._sections("buffer", "name", MAX_BUFFERS))
        maps = tuple(
            self._tensor_map(section, buffers) for section in self._sections("tensor_map", "name", MAX_TENSOR_MAPS)
        )
        kinds = _kinds(self.operator, buffers, maps)
        groups = self._groups()
        launches = tuple(
            self._launch(section, kinds, groups) for section in self._sections("launch", "kernel", MAX_LAUNCHES)
        )
        if not launches:
            raise self.top.error(
                'there is no [[launch]]; a plan needs at least one, such as kernel = "name", args = []'
            )
        self._check_groups(launches, groups)
        return Plan(
            target=self.target,
            requires=self._expression(self.top, "requires", self.top.table.get("requires", 1), self.numbers),
            deterministic=self.top.flag("deterministic", default=True),
            zero=self._zero(buffers),
            tune=MappingProxyType(tune),
            buffers=buffers,
            launches=launches,
            groups=MappingProxyType(groups),
            tensor_maps=maps,
            file=self.header.file,
        )

    def _sections(self, key: str, title: str, largest: int) -> Iterable[Section]:
        tables = self.top.table.get(key, [])
        if not isinstance(tables, list):
            raise self.top.error(f"must be written [[{key}]], in double brackets", key)
        if len(tables) > largest:
            raise self.header.error(f"{len(tables)} [[{key}]] tables; at most {largest} are allowed", (key, largest))
        for index, table in enumerate(tables):
            name = table.get(title) if isinstance(table, dict) else None
            label = f"{key} {index + 1}" + (f" `{name[:60]}`" if isinstance(name, str) and name.isprintable() else "")
            yield Section(self.header, table, (key, index), label)

    def _expression(
        self,
        section: Section,
        key: str,
        value: Any,
        names: Iterable[str],
        objects: Mapping[str, ArgumentKind] = MappingProxyType({}),
    ) -> Expression:
        hints = {name: f"`{name}` is {what}, not a number" for name, what in self.taken.items() if what != "a dim"}
        for target, facts in FACTS.items():
            hints |= {name: f"`{name}` is known on the {target} target only" for name in facts if target != self.target}
        if self.target == "cuda":
            hints["blocks_per_sm"] = "`blocks_per_sm` may stand in a launch's grid only"
        hints["i"] = "`i` counts the repeats of a group; it may stand only in launches that have a group"
        return section.expression(value, key, frozenset(names), objects=objects, hints=hints)

    def _new_name(self, section: Section, key: str, name: str, what: str) -> str:
        """`name`, which nothing else may have."""
        if not IDENTIFIER.fullmatch(name) or "__" in name or len(name) > 60:
            raise section.error(f"must be a name of letters, digits and _, a letter first, not {show(name)}", key)
        if name in RESERVED or name in CPP_KEYWORDS or name in _MACROS:
            raise section.error(f"`{name}` is reserved; choose another name", key)
        if name in self.taken:
            raise section.error(f"`{name}` is already {self.taken[name]}; choose another name", key)
        self.taken[name] = what
        return name

    def _tune(self) -> dict[str, tuple[int, ...]]:
        section = Section(self.header, self.top.table.get("tune", {}), ("tune",), "[tune]")
        if len(section.table) > MAX_TUNABLES:
            raise section.error(f"has {len(section.table)} tunables; at most {MAX_TUNABLES} are allowed")
        tune: dict[str, tuple[int, ...]] = {}
        for name in section.table:
            values = section.items(name, 1, MAX_TUNABLE_VALUES, "[256, 128, 512]")
            self._new_name(section, name, name, "a tunable")
            if not _TUNABLE.fullmatch(name):
                raise section.error(f"must be in capitals, such as {name.upper()}", name)
            for value in values:
                if type(value) is not int or abs(value) >= 2**63:
                    raise section.error(f"holds {show(value)}; the values of a tunable are integers", name)
                if values.count(value) > 1:
                    raise section.error(f"lists {value} more than once", name)
            tune[name] = tuple(values)
        return tune

    def _dtype(self, section: Section) -> str:
        dtype = section.string("dtype", "ACC")
        allowed = ("T", "ACC", *(d.name for d in DTYPES.values() if self.target == "cuda" or d.cpp))
        if dtype not in allowed:
            raise section.error(f"{show(dtype)} does not exist here; allowed are {', '.join(allowed)}", "dtype")
        return dtype

    def _buffer(self, section: Section) -> Buffer:
        section.only(("name", "dtype", "shape"))
        name = section.string("name", "partial")
        shape = section.items("shape", 1, MAX_BUFFER_RANK, '["rows", "256"]')
        self._new_name(section, "name", name, "a buffer")
        axes = tuple(self._expression(section, "shape", axis, self.numbers) for axis in shape)
        return Buffer(name, self._dtype(section), axes, section.line)

    def _tensor_map(self, section: Section, buffers: tuple[Buffer, ...]) -> TensorMap:
        section.only(_TENSOR_MAP_KEYS)
        name = self._new_name(section, "name", section.string("name", "x_map"), "a tensor map")
        tensor = section.string("tensor", "x")
        tensors = {t.name for t in (*self.operator.tensors, *buffers)}
        if tensor not in tensors:
            raise section.error(unknown_name(tensor, tensors).replace("name", "tensor or buffer", 1), "tensor")
        shape = section.items("shape", 1, MAX_RANK, '["cols", "rows"]')
        rank = len(shape)

        def axes(key: str, count: int, *, required: bool = False) -> tuple[Expression, ...]:
            values = (
                section.items(key, count, count, str(["64"] * count).replace("'", '"'))
                if (required or key in section.table)
                else []
            )
            return tuple(self._expression(section, key, value, self.numbers) for value in values)

        return TensorMap(
            name=name,
            tensor=tensor,
            shape=axes("shape", rank),
            strides=axes("strides", rank - 1),
            box=axes("box", rank, required=True),
            element_strides=axes("element_strides", rank),
            swizzle=section.choice("swizzle", SWIZZLES, prefix="CU_TENSOR_MAP_SWIZZLE_"),
            l2_promotion=section.choice("l2_promotion", L2_PROMOTIONS, prefix="CU_TENSOR_MAP_L2_PROMOTION_"),
            oob_fill=section.choice("oob_fill", OOB_FILLS, prefix="CU_TENSOR_MAP_FLOAT_OOB_FILL_"),
            line=section.line,
        )

    def _groups(self) -> dict[str, Expression]:
        table = Section(self.header, self.top.table.get("group", {}), ("group",), "[group]").table
        groups: dict[str, Expression] = {}
        for name, content in table.items():
            section = Section(self.header, content, ("group", name), f"group `{name[:60]}`")
            if not IDENTIFIER.fullmatch(name):
                raise section.error("has no proper name; use letters, digits and _, a letter first")
            section.only(("repeat",))
            if "repeat" not in section.table:
                raise section.error('is missing; write repeat = "ceil_log2(n)"', "repeat")
            groups[name] = self._expression(section, "repeat", section.table["repeat"], self.numbers)
        return groups

    def _launch(self, section: Section, kinds: Mapping[str, ArgumentKind], groups: Mapping[str, Expression]) -> Launch:
        cuda = self.target == "cuda"
        elsewhere = {} if cuda else dict.fromkeys((*_CUDA_LAUNCH_KEYS, "tensor_map"), _CPU_ONLY_NOTE)
        section.only(_CUDA_LAUNCH_KEYS if cuda else _CPU_LAUNCH_KEYS, elsewhere)
        kernel = self._kernel(section)
        group = self._group_name(section, groups)
        names = self.numbers | {"i"} if group else self.numbers

        def axes(key: str, smallest: int, example: str, names: frozenset[str]) -> tuple[Expression, ...]:
            return tuple(self._expression(section, key, v, names) for v in section.items(key, smallest, 3, example))

        def single(key: str) -> Expression | None:
            return self._expression(section, key, section.table[key], names) if key in section.table else None

        args = tuple(
            self._expression(section, "args", value, names, kinds)
            for value in section.items("args", 0, MAX_ARGS, '["x", "y", "n"]')
        )
        common = {"kernel": kernel, "args": args, "when": single("when"), "group": group, "line": section.line}
        if not cuda:
            return Launch(**common)
        return Launch(
            **common,
            grid=axes("grid", 1, '["ceil_div(n, 256)"]', names | {"blocks_per_sm"}),
            block=axes("block", 1, '["256"]', names),
            cluster=axes("cluster", 1, "[2]", names) if "cluster" in section.table else (),
            shared=single("shared"),
            cooperative=section.flag("cooperative", default=False),
        )

    def _kernel(self, section: Section) -> str:
        text = section.string("kernel", "softmax_rows<BLOCK, T>" if self.target == "cuda" else "softmax").strip()
        try:
            if self.target == "cpu":
                _check_function_name(text)
            else:
                _check_name_expression(text, self._template_hint)
        except ValueError as error:
            raise section.error(f"{show(text)}: {error}", "kernel") from None
        return text

    def _template_hint(self, name: str) -> str | None:
        """Why `name` is not for template arguments, or None where it may be."""
        if name in self.operator.names or name in RESERVED - {"T", "ACC", "min", "max", "load", "store"}:
            what = self.taken.get(name, "a fact" if name != "i" else "a counter")
            return f"`{name}` is {what}, known at run time only; template arguments are tunables, T, ACC and constants"
        return None

    def _group_name(self, section: Section, groups: Mapping[str, Expression]) -> str | None:
        if "group" not in section.table:
            return None
        group = section.string("group", "pass")
        if group not in groups:
            raise section.error(f'{show(group)} is not declared; add [group.{group[:40]}] with repeat = "..."', "group")
        return group

    def _check_groups(self, launches: tuple[Launch, ...], groups: Mapping[str, Expression]) -> None:
        runs = [group for group, _ in _blocks(launches) if group]
        for group in groups:
            if group not in runs:
                raise self.header.error(f"group `{group}` is used by no launch", ("group", group))
            if runs.count(group) > 1:
                raise self.header.error(
                    f"group `{group}`: its launches must follow each other directly", ("group", group)
                )

    def _zero(self, buffers: tuple[Buffer, ...]) -> tuple[str, ...]:
        names = self.top.items("zero", 0, 64, '["y"]')
        allowed = {b.name for b in buffers} | {t.name for t in self.operator.tensors if t.role == "out"}
        roles = {t.name: t.role for t in self.operator.tensors}
        for name in names:
            if not isinstance(name, str) or name not in allowed:
                role = roles.get(name) if isinstance(name, str) else None
                if role:
                    raise self.top.error(f"names `{name}`, which has the role {role}; its values would be lost", "zero")
                near = unknown_name(name, allowed) if isinstance(name, str) else f"holds {show(name)}"
                raise self.top.error(f"may name outputs and buffers: {near}", "zero")
            if names.count(name) > 1:
                raise self.top.error(f"names `{name}` more than once", "zero")
        return tuple(names)


# --- names of kernels --------------------------------------------------------------------------------------------

_TYPE_WORDS = frozenset("bool char const double false float int long short signed true unsigned".split())
_NAME_TOKEN = re.compile(r"\s+|[A-Za-z_]\w*|::|[<>(),]|\d+(?:[uU]?[lL]{0,2})\b", re.ASCII)
_CLOSING = {"<": ">", "(": ")"}


def _check_function_name(text: str) -> None:
    """Raise ValueError unless `text` is a C function's name."""
    if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) or text in CPP_KEYWORDS or len(text) > MAX_KERNEL_CHARACTERS:
        raise ValueError('on cpu `kernel` is the plain name of an extern "C" function, such as softmax')


def _check_name_expression(text: str, hint: Callable[[str], str | None]) -> None:
    """Raise ValueError unless `text` is a C++ name, possibly qualified and with template arguments, and nothing else.

    The text is handed to the compiler, so only names, `::`, `<>`, `()`, commas and integers may stand in it. `hint`
    says of a name why it may not stand there.
    """
    if len(text) > MAX_KERNEL_CHARACTERS:
        raise ValueError(f"a kernel's name has at most {MAX_KERNEL_CHARACTERS} characters")
    open_brackets: list[str] = []
    position, previous = 0, ""
    while position < len(text):
        match = _NAME_TOKEN.match(text, position)
        if not match:
            raise ValueError(f"`{text[position]}` cannot stand in a kernel's name; write name or name<BLOCK, T>")
        position = match.end()
        token = match[0]
        if token.isspace():
            continue
        _check_token(token, previous, open_brackets, hint)
        previous = token
    if open_brackets:
        raise ValueError(f"`{open_brackets[-1]}` is not closed")
    if not previous or previous in ("::", ","):
        raise ValueError("the name is incomplete; write name or name<BLOCK, T>")


def _check_token(token: str, previous: str, open_brackets: list[str], hint: Callable[[str], str | None]) -> None:
    if token in _CLOSING:
        if token == "(" and not open_brackets or not previous:
            raise ValueError(f"`{token}` cannot stand here; write name or name<BLOCK, T>, without arguments")
        open_brackets.append(token)
    elif token in (">", ")"):
        if not open_brackets or _CLOSING[open_brackets.pop()] != token:
            raise ValueError(f"`{token}` has no opening bracket")
        if previous == ",":
            raise ValueError(f"`,` is followed by `{token}`")
    elif token == ",":
        if not open_brackets or previous in (",", "<", "(", "::"):
            raise ValueError("`,` cannot stand here")
    elif token != "::":
        if not open_brackets and previous not in ("", "::"):
            raise ValueError(f"`{token}` cannot follow `{previous}`; write name or name<BLOCK, T>")
        if not open_brackets and (token in _TYPE_WORDS or token[0].isdigit()):
            raise ValueError(f"`{token}` is not a kernel's name")
        if token in CPP_KEYWORDS and token not in _TYPE_WORDS:
            raise ValueError(f"`{token}` is a word of C++ that cannot stand in a kernel's name")
        if open_brackets and previous != "::" and (problem := hint(token)):
            raise ValueError(problem)
