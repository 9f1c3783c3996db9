"""Writes the C++ launcher of a package: a class (on cpu, functions) that does what the plan says, for any dims.

The plan's formulas become C++ expressions; nothing reads the plan at run time. What does not depend on the kernel lies
beside it in `plan.hpp` and `driver.hpp`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from fitness.judging.signature import Param, check_arguments
from operators.definition.domain import conditions
from operators.definition.spec import CPP_KEYWORDS, Operator, Tensor
from operators.dtypes import DTYPES, resolve_dtype
from operators.expression import Expression, parse
from operators.plan.launch import (
    BLOCK_LIMITS,
    GRID_LIMITS,
    MAX_CLUSTER_BLOCKS,
    Argument,
    Launch,
    ResolvedBuffer,
    together,
)
from operators.plan.model import argument_kinds
from operators.plan.reading import FACTS, Plan, ResolvedLaunch, ResolvedPlan, TensorMap
from operators.plan.tensor_map import DATA_TYPES, SWIZZLES

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floor_div", ast.Mod: "mod", ast.Pow: "power"}
_COMPARISONS = {
    ast.Eq: "equal",
    ast.NotEq: "unequal",
    ast.Lt: "less",
    ast.LtE: "at_most",
    ast.Gt: "greater",
    ast.GtE: "at_least",
}
_FUNCTIONS = {"min": "least", "max": "most"}
"""Functions that take a list in braces; the others are called with plain arguments."""


def number(expression: Expression, name: Callable[[str], str]) -> str:
    """Return a C++ expression of type long long; `name` says what stands for a name."""
    return _Writer(name).number(expression.tree)


def choice(expression: Expression, name: Callable[[str], str], outcome: Callable[[str | None, str], str]) -> str:
    """Return a C++ expression of what is chosen between objects and numbers.

    `outcome` makes what stands for a choice: of an object, told by its name, or of a number, told by None and its C++.
    """
    writer = _Writer(name)

    def chosen(tree: ast.expr) -> str:
        match tree:
            case ast.Name(id=found) if found in expression.objects:
                return outcome(found, "")
            case ast.IfExp(test=test, body=body, orelse=orelse) if expression.objects & _named(tree):
                return f"({writer.number(test)} != 0 ? {chosen(body)} : {chosen(orelse)})"
        return outcome(None, writer.number(tree))

    return chosen(expression.tree)


def literal(text: str) -> str:
    """Return a text as a C++ string, on one line and in characters that every compiler reads."""
    kept = (c if c.isascii() and c.isprintable() else "?" for c in " ".join(text.split()))
    return '"' + "".join("\\" + c if c in '"\\' else c for c in kept) + '"'


def _named(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class _Writer:
    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name
        self._numbers = count()

    def number(self, tree: ast.expr) -> str:
        match tree:
            case ast.Constant(value=int(value)):
                return f"{value}LL"
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right):
                return f"{_BINARY[type(op)]}({self.number(left)}, {self.number(right)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{self.number(operand)})"
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.UnaryOp(operand=operand):
                return f"truth({self.number(operand)} == 0)"
            case ast.BoolOp(op=op, values=values):
                joined = " && " if isinstance(op, ast.And) else " || "
                return f"truth({joined.join(f'{self.number(value)} != 0' for value in values)})"
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._compare(left, ops, rest)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self.number(test)} != 0 ? {self.number(body)} : {self.number(orelse)})"
            case ast.Call(func=ast.Name(id=name), args=args):
                listed = ", ".join(map(self.number, args))
                return f"{_FUNCTIONS[name]}({{{listed}}})" if name in _FUNCTIONS else f"{name}({listed})"
        raise AssertionError(f"parse() let {ast.dump(tree)} through")

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr]) -> str:
        """A chain works every operand out once, and none behind the first comparison that does not hold."""
        if len(ops) == 1:
            return f"truth({_COMPARISONS[type(ops[0])]}({self.number(left)}, {self.number(rest[0])}))"
        before = f"c{next(self._numbers)}"
        made = f"const long long {before} = {self.number(left)}; "
        for op, operand in zip(ops, rest, strict=True):
            after = f"c{next(self._numbers)}"
            made += f"const long long {after} = {self.number(operand)}; "
            made += f"if (!{_COMPARISONS[type(op)]}({before}, {after})) return 0LL; "
            before = after
        return f"[&] {{ {made}return 1LL; }}()"


TAKEN = frozenset(("all", "cases", "evo_plan", "help", "install", "linux", "main", "package", "std", "test", "unix"))
"""Names that a namespace or a target of CMake cannot have, or should not."""
POINTEES = {
    "fp64": "double", "fp32": "float", "int64": "std::int64_t", "int32": "std::int32_t", "int8": "std::int8_t",
    "uint8": "std::uint8_t",
}  # fmt: skip
"""Types of a dtype's elements in the header; those of 16 bits have no type that all compilers share."""

TYPES = {"pointer": "std::uintptr_t", "other": "std::uintptr_t", "integer": "long long", "float": "double"}
"""Type that an argument is worked out as, by its parameter's kind."""


def identifier(name: str) -> str:
    """Return what the namespace and the files of a package are called that lies in a folder of this name."""
    made = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "kernel"
    if made[0].isdigit():
        made = f"kernel_{made}"
    return f"{made}_kernel" if made in CPP_KEYWORDS | TAKEN else made


@dataclass(frozen=True)
class Source:
    """The parts of a launcher."""

    name: str
    """The name of its namespace."""
    operator: Operator
    dtype: str
    plan: Plan
    """With the tunables of the dtype."""
    settings: Mapping[str, int]
    """A value for every tunable."""
    params: Mapping[str, tuple[Param, ...]]
    """The parameters of the compiled kernels, by what launches call them."""
    symbols: Mapping[str, str]
    """Their names in the code; empty on cpu, where they have numbers."""

    @property
    def cuda(self) -> bool:
        """Whether it is for GPUs."""
        return self.plan.target == "cuda"

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims that a caller gives."""
        return (*self.operator.dims, *self.operator.data_dims)

    @property
    def facts(self) -> list[str]:
        """The facts that the machine is asked for."""
        return sorted(FACTS[self.plan.target] - {"blocks_per_sm", "sizeof_T", "sizeof_ACC"})

    def element(self, dtype: str) -> str:
        """The name in `DTYPES` of what a tensor or buffer holds."""
        return resolve_dtype(dtype, self.dtype).name

    def spelled(self, name: str) -> str:
        """The C++ for a name of the plan's formulas."""
        if name in ("i", "blocks_per_sm"):
            return name
        return f"v.{name}()" if name in self.plan.lets else f"v.{name}"

    def pointer(self, tensor: Tensor) -> str:
        """The C++ type of a tensor's address."""
        const = "const " if tensor.role == "in" else ""
        return f"{const}{POINTEES.get(self.element(tensor.dtype), 'void')}*"


def lazily(source: Source, what: str, expression: Expression) -> str:
    """The arguments of `value` and the like of plan.hpp: words for messages, and the formula as a lambda."""
    made = number(expression, source.spelled)
    return f"{literal(f'{what}: `{expression.text}`')}, [&] {{ return {made}; }}"


def indented(lines: Iterable[str]) -> str:
    """Lines, indented; those that are empty stay so."""
    return "".join(f"    {line}\n" if line else "\n" for line in lines)


# --- the parts of a launcher ----------------------------------------------------------------------------------------


def numbers(source: Source) -> str:
    """The C++ of the numbers that formulas are over, worked out from the dims and the machine."""
    operator, plan = source.operator, source.plan
    sizes = plan.facts({}, source.dtype)
    constants = {**sizes, **source.settings}
    variables = [*source.dims, *operator.derived, *source.facts]
    fields = [f"static constexpr long long {name} = {value}LL;" for name, value in constants.items()]
    fields += [f"long long {name} = 0;" for name in variables]
    fields += [f"Let {name};" for name in plan.lets]
    body = ["Numbers v;"]
    for name in source.dims:
        body.append(f"v.{name} = within({literal(f'dim `{name}`')}, [&] {{ return dims.{name}; }}, 0, MOST);")
    for name, expression in operator.derived.items():
        body.append(f"v.{name} = value({lazily(source, f'dim `{name}`', expression)});")
    body += [f"v.{name} = facts.{name};" for name in source.facts]
    body += [f"v.{name} = Let({lazily(source, f'[let] `{name}`', each)});" for name, each in plan.lets.items()]
    for each in plan.where:
        if each.names & set(source.facts):  # the rest is known: it holds
            what = f"the kernel's tunables need another device: {each.expression.text}"
            body.append(f"if (value({lazily(source, '`where`', each.expression)}) == 0) fail({literal(what)});")
    known = {*operator.dims, *operator.derived}
    judged = [parse(text, known) for text in conditions(operator)]
    holds = "".join(f"\n        && value({lazily(source, 'sizes', each)}) != 0" for each in judged)
    elsewhere = "".join(
        f"    if (value({lazily(source, 'sizes', each)}) == 0) "
        f"fail(std::string({literal(f'the kernel was judged where `{each.text}`, which these dims do not fulfil:')})"
        f"{_said(source)});\n"
        for each in judged
    )
    unfulfilled = f"the kernel requires `{plan.requires.text}`, which these dims do not fulfil:"
    return f"""// What formulas are over: sizes of types, tunables, dims, and what the machine is.
struct Numbers {{
{indented(fields)}}};

Numbers numbers(const Dims& dims, [[maybe_unused]] const Facts& facts) {{
{indented([*body, "return v;"])}}}

bool holds([[maybe_unused]] const Numbers& v) {{
    return value({lazily(source, "`requires`", plan.requires)}) != 0{holds};
}}

void require(const Numbers& v) {{
{elsewhere}    if (!holds(v)) fail(std::string({literal(unfulfilled)}){_said(source)});
}}
"""


def _said(source: Source) -> str:
    return "".join(f' + " {name} = " + std::to_string(v.{name})' for name in source.dims)


def memory(source: Source) -> str:
    """Where tensors and scratch lie."""
    operator, plan = source.operator, source.plan
    names = [*(t.name for t in operator.tensors), *(b.name for b in plan.buffers)]
    body = []
    for tensor in operator.tensors:
        size = _bytes(source, tensor.name, tensor.dtype, tensor.shape, "")
        address = f"reinterpret_cast<std::uintptr_t>(tensors.{tensor.name})"
        body.append(f"at.{tensor.name} = {{{literal(tensor.name)}, {address}, {size}}};")
    listed = ", ".join(f"at.{tensor.name}" for tensor in operator.tensors)
    written = ", ".join(literal(tensor.name) for tensor in operator.outputs)
    body.append(f"check_tensors({{{listed}}}, {{{written}}});")
    placed = []
    for buffer in plan.buffers:
        size = _bytes(source, f"buffer `{buffer.name}`", buffer.dtype, buffer.shape, "Scratch::MOST_BYTES")
        placed.append(f"at.{buffer.name} = {{{literal(buffer.name)}, 0, {size}}};")
        placed.append(f"at.{buffer.name}.address = base + scratch.add(at.{buffer.name}.bytes);")
    return f"""struct Memory {{
    Extent {", ".join(names)};
}};

void place_tensors([[maybe_unused]] const Numbers& v, const Tensors& tensors, Memory& at) {{
{indented(body)}}}

// Returns how many bytes all buffers take, of which the first begins at `base`.
std::size_t place_scratch([[maybe_unused]] const Numbers& v, [[maybe_unused]] std::uintptr_t base,
                          [[maybe_unused]] Memory& at) {{
    Scratch scratch;
{indented([*placed, "return scratch.total();"])}}}
"""


def _bytes(source: Source, what: str, dtype: str, shape: Sequence[Expression], most: str) -> str:
    """`most` is the largest axis of what has at least one element."""
    element = DTYPES[source.element(dtype)].size
    axes = []
    for position, axis in enumerate(shape):
        limits = f"1, {most}" if most else "0, MOST"
        axes.append(f"within({lazily(source, f'{what} shape[{position}]', axis)}, {limits})")
    return f"bytes_of({element}, {{{', '.join(axes)}}})"


def plan_function(source: Source) -> str:
    """The C++ function that clears buffers and launches kernels."""
    plan = source.plan
    used = {name for launch in plan.launches for argument in launch.args for name in argument.names}
    body = ["Plan made;", "Bounds bounds;"]
    for declared in plan.tensor_maps:
        if declared.name in used:
            body += _map(source, declared)
    for group, members in together(plan.launches):
        inner = [line for position, launch in members for line in _launch(source, position, launch)]
        if group:
            repeats, what = f"repeats_{members[0][0]}", f"group `{group}` repeat"
            made = f"within({lazily(source, what, plan.groups[group])}, 0, Bounds::MAX_STEPS)"
            body.append(f"const long long {repeats} = {made};")
            body.append(f"for (long long i = 0; i < {repeats}; ++i) {{")
            body += [*(f"    {line}" for line in inner), "}"]
        else:
            body += inner
    for zero in plan.zero:
        push = f"made.zero.push_back(at.{zero.name});"
        what = f"zero[{zero.name}]"
        body.append(push if zero.when is None else f"if (value({lazily(source, what, zero.when)}) != 0) {push}")
    descriptors = ", [[maybe_unused]] Descriptors& descriptors" if source.cuda else ""
    return f"""struct Plan {{
    std::vector<Extent> zero;
    std::vector<Call> calls;
}};

Plan plan([[maybe_unused]] const Numbers& v, [[maybe_unused]] const Memory& at,
          [[maybe_unused]] const std::vector<long long>& occupancy{descriptors}) {{
{indented([*body, "return made;"])}}}
"""


def _map(source: Source, declared: TensorMap) -> list[str]:
    objects = {t.name: t.dtype for t in source.operator.tensors} | {b.name: b.dtype for b in source.plan.buffers}
    dtype = source.element(objects[declared.tensor])

    def listed(key: str, formulas: Sequence[Expression]) -> str:
        what = f"tensor_map `{declared.name}` {key}"
        return f"{{{', '.join(f'value({lazily(source, what, each)})' for each in formulas)}}}"

    kind = [
        literal(declared.name),
        f"CU_TENSOR_MAP_DATA_TYPE_{DATA_TYPES[dtype]}",
        str(DTYPES[dtype].size),
        f"CU_TENSOR_MAP_SWIZZLE_{declared.swizzle}",
        str(SWIZZLES[declared.swizzle]),
        f"CU_TENSOR_MAP_L2_PROMOTION_{declared.l2_promotion}",
        f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{declared.oob_fill}",
    ]
    sizes = [listed("shape", declared.shape), listed("strides", declared.strides), listed("box", declared.box)]
    sizes.append(listed("element_strides", declared.element_strides))
    made = ", ".join((f"MapKind{{{', '.join(kind)}}}", f"at.{declared.tensor}", *sizes))
    return [f"Map map_{declared.name}([&] {{ return descriptors.address(tensor_map({made})); }});"]


def _launch(source: Source, position: int, launch: Launch) -> list[str]:
    label = f"launch {position} `{launch.kernel}`"
    kernels = list(source.params)
    inner = ["bounds.launch();", "Call call;", f"call.kernel = {kernels.index(launch.kernel)};"]
    for number_, (expression, param) in enumerate(zip(launch.args, source.params[launch.kernel], strict=True)):
        inner.append(_argument(source, f"{label} args[{number_}]", launch.kernel, expression, param))
    if source.cuda:
        inner += _geometry(source, label, launch, kernels.index(launch.kernel))
    inner.append("made.calls.push_back(std::move(call));")
    begin = f"{{  // {label}"
    if launch.when is not None:
        begin = f"if (value({lazily(source, f'{label} when', launch.when)}) != 0) {{"
    return [f"bounds.step({launch.terms});", begin, *(f"    {line}" for line in inner), "}"]


def _geometry(source: Source, label: str, launch: Launch, kernel: int) -> list[str]:
    def axes(key: str, formulas: Sequence[Expression], limits: Sequence[int]) -> str:
        made = []
        for position, (each, limit) in enumerate(zip(formulas, limits, strict=False)):
            made.append(f"axis({lazily(source, f'{label} {key}[{position}]', each)}, {limit})")
        return f"call.{key} = {{{', '.join([*made, *['1'] * (3 - len(made))])}}};"

    lines = [axes("block", launch.block, BLOCK_LIMITS), f"check_block({literal(label)}, call.block);"]
    if launch.kernel in source.plan.occupancy_kernels:
        lines.append("call.asks_occupancy = true;")
    if launch.needs_occupancy:
        lines.append(f"const long long blocks_per_sm = occupancy[{kernel}];")
    lines.append(axes("grid", launch.grid, GRID_LIMITS))
    if launch.cluster:
        lines.append(axes("cluster", launch.cluster, (MAX_CLUSTER_BLOCKS,) * 3))
        lines += [f"check_cluster({literal(label)}, call.cluster, call.grid);", "call.has_cluster = true;"]
    if launch.shared is not None:
        made = f"within({lazily(source, f'{label} shared', launch.shared)}, 0, v.max_shared_bytes)"
        lines.append(f"call.shared_bytes = static_cast<unsigned>({made});")
    if launch.cooperative:
        lines.append("call.cooperative = true;")
    if launch.overlap:
        lines.append("call.overlap = !made.calls.empty();")
    return lines


# --- arguments ------------------------------------------------------------------------------------------------------


def _argument(source: Source, what: str, kernel: str, expression: Expression, param: Param) -> str:
    """The C++ that puts one argument where the driver finds it, as the parameter's type has it."""
    kinds = argument_kinds(source.operator, source.plan.buffers, source.plan.tensor_maps)

    def of_object(name: str) -> str:
        if param.kind in ("integer", "float"):
            value = next(scalar.value for scalar in source.operator.scalars if scalar.name == name)
            return _integer(int(value), param.size) if param.kind == "integer" else _real(value)
        return f"map_{name}()" if kinds[name] == "map" else f"at.{name}.address"

    type_ = TYPES[param.kind]

    def outcome(name: str | None, made: str) -> str:
        kind = kinds[name] if name is not None else "integer"
        argument = Argument(kind, name or expression.text, 0 if name is None else None)
        if problem := _problem(source, kernel, argument, param):
            return f"refused<{type_}>({literal(f'{what}: {problem}')})"
        if name is not None:
            return of_object(name)
        return f"static_cast<double>({made})" if param.kind == "float" else made

    chosen = choice(expression, source.spelled, outcome)
    told = f"{literal(f'{what}: `{expression.text}`')}, [&]() -> {type_} {{ return {chosen}; }}"
    if param.kind == "integer":
        return f"call.arguments.integer<{param.size}>({told});"
    made = chosen if expression.text in kinds and "refused" not in chosen else f"value({told})"
    if param.kind == "float" and param.size == 4:
        made = f"static_cast<float>({made})"
    return f"call.arguments.copy({made});"


def _problem(source: Source, kernel: str, argument: Argument, param: Param) -> str:
    """Why the parameter does not take it, in words; empty where it does."""
    buffers = tuple(ResolvedBuffer(b.name, source.element(b.dtype), (1,), 1) for b in source.plan.buffers)
    plan = ResolvedPlan(buffers, (), (ResolvedLaunch(kernel, (argument,)),), ())
    told = check_arguments(plan, {kernel: (param,)}, source.operator, source.dtype)
    return told.partition("`) ")[2] if told else ""


def _integer(value: int, size: int) -> str:
    wrapped = value % (1 << 8 * size)
    return f"{wrapped - (1 << 64) if wrapped >= 1 << 63 else wrapped}LL"


def _real(value: float) -> str:
    if math.isfinite(value):
        return float(value).hex()
    name = "quiet_NaN" if math.isnan(value) else "infinity"
    return f"{'-' if value < 0 else ''}std::numeric_limits<double>::{name}()"
