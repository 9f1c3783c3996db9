"""A kernel's plan: the launches, scratch buffers and tunables that its header declares; data, never code.

`parse_plan` reads and checks the header against the operator; `Plan.resolve` works out, for one workload and one
setting of the tunables, what exactly is launched with what. All expressions are over the names of `FACTS`, the
operator's dims, the tunables, the names that `[let]` gives to others and, in a group, its counter `i`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from operators.definition.spec import CPP_KEYWORDS, IDENTIFIER, RESERVED, Operator
from operators.dtypes import ACCUMULATOR, DTYPES, TARGETS
from operators.errors import PlanError, UnwrittenError, quote, unknown
from operators.expression import Expression
from operators.files import read_text
from operators.plan import keys
from operators.plan.header import Header, HeaderTable, read_header, show
from operators.plan.launch import (
    Argument,
    ArgumentKind,
    Buffer,
    Launch,
    ResolvedBuffer,
    ResolvedLaunch,
    Zero,
    check_function_name,
    check_name_expression,
    together,
)
from operators.plan.lets import in_order
from operators.plan.model import FACTS, Constraint, Plan, ResolvedPlan, argument_kinds, constraint, environment
from operators.plan.tensor_map import L2_PROMOTIONS, MAX_RANK, OOB_FILLS, SWIZZLES, ResolvedTensorMap, TensorMap

__all__ = [
    "FACTS", "Argument", "ArgumentKind", "Buffer", "Launch", "Plan", "ResolvedBuffer", "ResolvedLaunch",
    "ResolvedPlan", "ResolvedTensorMap", "TensorMap", "Zero", "environment", "left_to_write", "parse_plan",
]  # fmt: skip

MAX_LAUNCHES = 2048
MAX_BUFFERS = 512
MAX_TENSOR_MAPS = 32
MAX_TUNABLES = 32
"""Two kernels with sixteen each make a route."""
MAX_TUNABLE_VALUES = 64
MAX_LETS = 32
MAX_CONSTRAINTS = 16
MAX_ARGS = 64
MAX_BUFFER_RANK = 8


def parse_plan(source: str, operator: Operator, target: str, *, name: str | None = None) -> Plan:
    """Read the header of a kernel file and check all that can be checked without a workload.

    `name` is what messages call the file. Raises PlanError: one line with the place, what is wrong, what is right.
    """
    if target not in TARGETS:
        raise PlanError(f"no such target {target!r}; there are {', '.join(TARGETS)}", source=name)
    return _Reader(read_header(source, name), operator, target).plan()


def left_to_write(file: Path, operator: Operator, target: str) -> str:
    """The line that says which functions of a kernel file are left to write; empty where none is."""
    try:
        parse_plan(read_text(file), operator, target, name=str(file))
    except UnwrittenError as error:
        return str(error)
    except PlanError:  # a verdict tells of it
        pass
    return ""


_TUNABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_MACROS = frozenset(("NULL", "NAN", "INFINITY", "EOF", "HUGE_VAL", "SNAN", "MATH_ERRNO", "INT_MAX", "INT_MIN"))
_CPU_ONLY_NOTE = "exists on the cuda target only; on cpu a launch has kernel, args, when and group"


class _Reader:
    """One header on its way to a plan; tables are read in the order in which they give names to each other."""

    def __init__(self, header: Header, operator: Operator, target: str) -> None:
        self.header = header
        self.operator = operator
        self.target = target
        self.top = HeaderTable(header, header.table, (), "")
        self.taken = dict.fromkeys(operator.shape_names, "a dim")
        self.taken |= {t.name: "a tensor" for t in operator.tensors} | {s.name: "a scalar" for s in operator.scalars}
        self.numbers = operator.shape_names | FACTS[target] - {"blocks_per_sm"}

    def plan(self) -> Plan:
        misplaced = {key: "belongs into a [[launch]] table" for key in keys.CUDA_LAUNCH if key not in keys.TOP}
        misplaced["where"] = "belongs into [tune]"
        if self.target == "cpu":
            misplaced["tensor_map"] = "exists on the cuda target only"
        self.top.only([key for key in keys.TOP if key not in misplaced], misplaced)
        # Tunables and named expressions first, which all else may use; then buffers, which maps and launches name.
        tune = self._tune()
        by_dtype = _tune_by_dtype(self._tune_section, tune)
        self.numbers |= tune.keys()
        lets = self._lets()
        self.numbers |= lets.keys()
        buffers = tuple(self._buffer(section) for section in self._sections("buffer", "name", MAX_BUFFERS))
        maps = tuple(
            self._tensor_map(section, buffers) for section in self._sections("tensor_map", "name", MAX_TENSOR_MAPS)
        )
        kinds = argument_kinds(self.operator, buffers, maps)
        groups = self._groups()
        launches = tuple(
            self._launch(section, kinds, groups) for section in self._sections("launch", "kernel", MAX_LAUNCHES)
        )
        if not launches:
            raise self.top.error('there is no [[launch]]; a plan needs one, with kernel = "name" and args = ["x"]')
        _check_groups(self.header, launches, groups)
        self._check_written(launches)
        return Plan(
            target=self.target,
            requires=self._expression(self.top, "requires", self.top.table.get("requires", 1), self.numbers),
            deterministic=self.top.flag("deterministic", default=True),
            zero=self._zero(buffers),
            tune=MappingProxyType(tune),
            tune_by_dtype=MappingProxyType(by_dtype),
            where=self._where((tune, *by_dtype.values()), lets),
            buffers=buffers,
            launches=launches,
            lets=MappingProxyType(lets),
            groups=MappingProxyType(groups),
            tensor_maps=maps,
            file=self.header.file,
        )

    def _sections(self, key: str, title: str, largest: int) -> Iterable[HeaderTable]:
        tables = self.top.table.get(key, [])
        if not isinstance(tables, list):
            raise self.top.error(f"must be written [[{key}]], in double brackets", key)
        if len(tables) > largest:
            raise self.header.error(f"{len(tables)} [[{key}]] tables; at most {largest} are allowed", (key, largest))
        for index, table in enumerate(tables):
            name = table.get(title) if isinstance(table, dict) else None
            label = f"{key} {index + 1}" + (f" `{name[:60]}`" if isinstance(name, str) and name.isprintable() else "")
            yield HeaderTable(self.header, table, (key, index), label)

    def _expression(
        self,
        section: HeaderTable,
        key: str,
        value: Any,
        names: Iterable[str],
        objects: Mapping[str, ArgumentKind] = MappingProxyType({}),
    ) -> Expression:
        return section.expression(value, key, frozenset(names), objects=objects, hint=self._expression_hint)

    def _expression_hint(self, name: str) -> str | None:
        """Why an expression may not use `name` where it does, or None where there is nothing more to say."""
        if name == "blocks_per_sm" and self.target == "cuda":
            return "`blocks_per_sm` may stand in a launch's grid only"
        if name == "i":
            return "`i` counts the repeats of a group; it may stand only in launches that have a group"
        for target, facts in FACTS.items():
            if name in facts and target != self.target:
                return f"`{name}` is known on the {target} target only"
        return f"`{name}` is {self.taken[name]}, not a number" if name in self.taken else None

    def _new_name(self, section: HeaderTable, key: str, name: str, what: str) -> str:
        """`name`, which nothing else may have."""
        subject = "" if key == name else f"{quote(name)} "
        if not IDENTIFIER.fullmatch(name) or "__" in name or len(name) > 60:
            raise section.error(f"{subject}is no proper name; use letters, digits and single _, a letter first", key)
        if name in RESERVED or name in CPP_KEYWORDS or name in _MACROS:
            raise section.error(f"{subject}is reserved; choose another name", key)
        if name in self.taken:
            raise section.error(f"{subject}is already {self.taken[name]}; choose another name", key)
        self.taken[name] = what
        return name

    def _tune(self) -> dict[str, tuple[int, ...]]:
        section = self._tune_section
        apart = {
            name for name, value in section.table.items() if isinstance(value, dict) and not _TUNABLE.fullmatch(name)
        }
        names = [name for name in section.table if name != "where" and name not in apart]
        if len(names) > MAX_TUNABLES:
            raise section.error(f"has {len(names)} tunables; at most {MAX_TUNABLES} are allowed")
        tune: dict[str, tuple[int, ...]] = {}
        for name in names:
            values = _tunable_values(section, name)
            self._new_name(section, name, name, "a tunable")
            if not _TUNABLE.fullmatch(name):
                raise section.error(f"must be in capitals, such as {name.upper()}", name)
            tune[name] = values
        return tune

    @property
    def _tune_section(self) -> HeaderTable:
        return HeaderTable(self.header, self.top.table.get("tune", {}), ("tune",), "[tune]")

    def _where(
        self, tunes: Collection[Mapping[str, tuple[int, ...]]], lets: Mapping[str, Expression]
    ) -> tuple[Constraint, ...]:
        """The constraints that settings must fulfil, which the default ones do as far as they tell without type and
        device."""
        section = self._tune_section
        made = []
        for value in section.items("where", 0, MAX_CONSTRAINTS, '["BLOCK * STAGES <= 4096"]'):
            text = value if isinstance(value, str) else None
            expression = self._expression(section, "where", value, self.numbers)
            found = constraint(expression, lets, self.header.line(("tune", "where"), text))
            if dims := sorted(found.names & self.operator.shape_names):
                problem = f"{quote(expression.text)}: `{dims[0]}` is a dim, and a setting serves all sizes"
                raise section.error(
                    f"{problem}; what depends on sizes belongs into `requires` or `when`", "where", text=text
                )
            if not any(found.names & tune.keys() for tune in tunes):
                raise section.error(f"{quote(expression.text)} names no tunable", "where", text=text)
            defaults = ({name: values[0] for name, values in tune.items()} for tune in tunes)
            if told := next(filter(None, map(found.breach, defaults)), ""):
                problem = f"{told.removeprefix('`where`: ')}, the default setting; put other values first"
                raise section.error(problem, "where", text=text)
            made.append(found)
        return tuple(made)

    def _lets(self) -> dict[str, Expression]:
        section = HeaderTable(self.header, self.top.table.get("let", {}), ("let",), "[let]")
        if len(section.table) > MAX_LETS:
            raise section.error(f"names {len(section.table)} expressions; at most {MAX_LETS} are allowed")
        for name in section.table:
            self._new_name(section, name, name, "a named expression")
        known = self.numbers | section.table.keys()
        lets = {name: self._expression(section, name, text, known) for name, text in section.table.items()}
        ordered, cycle = in_order(lets)
        if cycle:
            found = " uses ".join(f"`{name}`" for name in (*cycle, cycle[0]))
            raise section.error(f"rests on itself: {found}; write one of them without the others", cycle[0])
        return ordered

    def _dtype(self, section: HeaderTable) -> str:
        dtype = section.string("dtype", "ACC")
        allowed = ("T", "ACC", *(d.name for d in DTYPES.values() if self.target == "cuda" or d.cpp))
        if dtype not in allowed:
            raise section.error(f"{show(dtype)} does not exist here; allowed are {', '.join(allowed)}", "dtype")
        return dtype

    def _buffer(self, section: HeaderTable) -> Buffer:
        section.only(keys.BUFFER)
        name = section.string("name", "partial")
        shape = section.items("shape", 1, MAX_BUFFER_RANK, '["rows", "256"]')
        self._new_name(section, "name", name, "a buffer")
        axes = tuple(self._expression(section, "shape", axis, self.numbers) for axis in shape)
        return Buffer(name, self._dtype(section), axes, section.line)

    def _tensor_map(self, section: HeaderTable, buffers: tuple[Buffer, ...]) -> TensorMap:
        section.only(keys.TENSOR_MAP)
        name = self._new_name(section, "name", section.string("name", "x_map"), "a tensor map")
        tensor = section.string("tensor", "x")
        tensors = {t.name for t in self.operator.tensors} | {b.name for b in buffers}
        if tensor not in tensors:
            raise section.error(unknown("tensor or buffer", tensor, tensors), "tensor")
        shape = section.items("shape", 1, MAX_RANK, '["cols", "rows"]')
        rank = len(shape)

        def axes(key: str, count: int, *, required: bool = False) -> tuple[Expression, ...]:
            if not required and key not in section.table:
                return ()
            values = section.items(key, count, count, f"[{', '.join(['64'] * count)}]")
            return tuple(self._expression(section, key, value, self.numbers) for value in values)

        return TensorMap(
            name=name,
            tensor=tensor,
            shape=axes("shape", rank, required=True),
            strides=axes("strides", rank - 1),
            box=axes("box", rank, required=True),
            element_strides=axes("element_strides", rank),
            swizzle=section.choice("swizzle", SWIZZLES, prefix="CU_TENSOR_MAP_SWIZZLE_"),
            l2_promotion=section.choice("l2_promotion", L2_PROMOTIONS, prefix="CU_TENSOR_MAP_L2_PROMOTION_"),
            oob_fill=section.choice("oob_fill", OOB_FILLS, prefix="CU_TENSOR_MAP_FLOAT_OOB_FILL_"),
            line=section.line,
        )

    def _groups(self) -> dict[str, Expression]:
        table = HeaderTable(self.header, self.top.table.get("group", {}), ("group",), "[group]").table
        groups: dict[str, Expression] = {}
        for name, content in table.items():
            section = HeaderTable(self.header, content, ("group", name), f"group `{name[:60]}`")
            if not IDENTIFIER.fullmatch(name):
                raise section.error("has no proper name; use letters, digits and _, a letter first")
            section.only(keys.GROUP)
            if "repeat" not in section.table:
                raise section.error('is missing; write repeat = "ceil_log2(n)"', "repeat")
            groups[name] = self._expression(section, "repeat", section.table["repeat"], self.numbers)
        return groups

    def _launch(
        self, section: HeaderTable, kinds: Mapping[str, ArgumentKind], groups: Mapping[str, Expression]
    ) -> Launch:
        cuda = self.target == "cuda"
        elsewhere = {} if cuda else dict.fromkeys((*keys.CUDA_LAUNCH, "tensor_map"), _CPU_ONLY_NOTE)
        section.only(keys.CUDA_LAUNCH if cuda else keys.CPU_LAUNCH, elsewhere)
        kernel = self._kernel(section)
        group = self._group_name(section, groups)
        names = self.numbers | {"i"} if group else self.numbers

        def axes(key: str, example: str, names: frozenset[str], *, required: bool = False) -> tuple[Expression, ...]:
            if not required and key not in section.table:
                return ()
            return tuple(self._expression(section, key, v, names) for v in section.items(key, 1, 3, example))

        def single(key: str) -> Expression | None:
            return self._expression(section, key, section.table[key], names) if key in section.table else None

        args = section.items("args", 0, MAX_ARGS, '["x", "y", "n"]')
        return Launch(
            kernel=kernel,
            args=tuple(self._expression(section, "args", value, names, kinds) for value in args),
            when=single("when"),
            group=group,
            grid=axes("grid", '["ceil_div(n, 256)"]', names | {"blocks_per_sm"}, required=cuda),
            block=axes("block", '["256"]', names, required=cuda),
            cluster=axes("cluster", "[2]", names),
            shared=single("shared"),
            cooperative=section.flag("cooperative", default=False),
            overlap=section.flag("overlap", default=False),
            line=section.line,
        )

    def _kernel(self, section: HeaderTable) -> str:
        text = section.string("kernel", "softmax_rows<BLOCK, T>" if self.target == "cuda" else "softmax").strip()
        try:
            if self.target == "cpu":
                check_function_name(text)
            else:
                check_name_expression(text, self._template_hint)
        except ValueError as error:
            raise section.error(f"{show(text)}: {error}", "kernel") from None
        return text

    def _template_hint(self, name: str) -> str | None:
        """Why `name` is not for template arguments, or None where it may be."""
        facts = RESERVED - {"T", "ACC", "min", "max", "load", "store"}
        what = self.taken.get(name, "a fact" if name != "i" else "a counter")
        if name in self.operator.names or name in facts or what == "a named expression":
            return f"`{name}` is {what}, known at run time only; template arguments are tunables, T, ACC and constants"
        return None

    def _group_name(self, section: HeaderTable, groups: Mapping[str, Expression]) -> str | None:
        if "group" not in section.table:
            return None
        group = section.string("group", "pass")
        if group not in groups:
            raise section.error(f'{show(group)} is not declared; add [group.{group[:40]}] with repeat = "..."', "group")
        return group

    def _zero(self, buffers: tuple[Buffer, ...]) -> tuple[Zero, ...]:
        listed = [self._cleared(index, entry) for index, entry in enumerate(self.top.items("zero", 0, 64, '["y"]'))]
        allowed = {b.name for b in buffers} | {t.name for t in self.operator.tensors if t.role == "out"}
        roles = {t.name: t.role for t in self.operator.tensors}
        names = [name for name, _ in listed]
        for name in names:
            if not isinstance(name, str) or name not in allowed:
                role = roles.get(name) if isinstance(name, str) else None
                if role:
                    raise self.top.error(f"names `{name}`, which has the role {role}; its values would be lost", "zero")
                near = unknown("name", name, allowed) if isinstance(name, str) else f"holds {show(name)}"
                raise self.top.error(f"may name outputs and buffers: {near}", "zero")
            if names.count(name) > 1:
                raise self.top.error(f"names `{name}` more than once", "zero")
        return tuple(Zero(name, when) for name, when in listed)

    def _check_written(self, launches: tuple[Launch, ...]) -> None:
        """Refuse a kernel with functions that are left to write."""
        left = self.top.items("unwritten", 0, MAX_LAUNCHES, '["rows"]')
        functions = {re.split(r"[<(]", launch.kernel)[0].strip() for launch in launches}
        for name in left:
            if name not in functions:
                near = unknown("function", name, functions) if isinstance(name, str) else f"holds {show(name)}"
                raise self.top.error(f"may name functions of launches: {near}", "unwritten")
        if left:
            raise UnwrittenError(
                f"{', '.join(f'{name}()' for name in left)} {'is' if len(left) == 1 else 'are'} left to write: write "
                f"{'it' if len(left) == 1 else 'them'}, then take `unwritten` out of the header",
                line=self.header.line(("unwritten",)),
                source=self.header.file,
            )

    def _cleared(self, index: int, entry: Any) -> tuple[Any, Expression | None]:
        """The buffer that an entry of `zero` names, and when it is to be cleared."""
        if not isinstance(entry, dict):
            return entry, None
        section = HeaderTable(self.header, entry, ("zero",), f"zero {index + 1}")
        section.only(keys.ZERO)
        name = section.string("name", "counters")
        if "when" not in entry:
            raise section.error(f'is missing; write when = "n > 4096", or "{name[:60]}" alone', "when")
        return name, self._expression(section, "when", entry["when"], self.numbers)


def _tunable_values(section: HeaderTable, name: str) -> tuple[int, ...]:
    values = section.items(name, 1, MAX_TUNABLE_VALUES, "[256, 128, 512]")
    for value in values:
        if type(value) is not int or abs(value) >= 2**63:
            raise section.error(f"holds {show(value)}; tunables are integers below 2**63 in magnitude", name)
        if values.count(value) > 1:
            raise section.error(f"lists {value} more than once", name)
    return tuple(values)


def _tune_by_dtype(whole: HeaderTable, tune: Mapping[str, tuple[int, ...]]) -> dict[str, Mapping[str, tuple[int, ...]]]:
    """The tunables of every dtype: those of [tune], with what [tune.DTYPE] lists in their place."""
    found: dict[str, Mapping[str, tuple[int, ...]]] = {}
    for dtype in [name for name in whole.table if name not in tune and name != "where"]:
        table = whole.table[dtype]
        section = HeaderTable(whole.header, table, ("tune", dtype), f"[tune.{dtype[:60]}]")
        if dtype not in ACCUMULATOR:
            raise section.error(f"is of no dtype; there are {', '.join(ACCUMULATOR)}")
        for name in section.table:
            if name not in tune:
                raise section.error(f"is no tunable of [tune], which lists {', '.join(tune) or 'none'}", name)
        found[dtype] = {**tune} | {name: _tunable_values(section, name) for name in section.table}
    return {dtype: MappingProxyType(found.get(dtype, tune)) for dtype in ACCUMULATOR} if found else {}


def _check_groups(header: Header, launches: tuple[Launch, ...], groups: Mapping[str, Expression]) -> None:
    runs = [group for group, _ in together(launches) if group]
    for group in groups:
        if group not in runs:
            raise header.error(f"group `{group}` is used by no launch", ("group", group))
        if runs.count(group) > 1:
            raise header.error(f"group `{group}`: its launches must follow each other directly", ("group", group))
