"""Launches and buffers: as a plan declares them, and as one workload needs them, within the limits of CUDA."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from operators.definition.spec import CPP_KEYWORDS
from operators.dtypes import resolve_dtype
from operators.errors import PlanError
from operators.expression import Expression, ExpressionError
from operators.plan.lets import Environment

MAX_STEPS = 4096
MAX_TERMS = 2**17
"""The most terms of the formulas that are evaluated for one workload, repeats counted: half a second's work."""
MAX_BUFFER_BYTES = 2**36
"""All buffers of one workload together; fitness.judging.shapes knows how much of it a machine has."""

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
class Zero:
    """An output or buffer that is cleared before the first launch."""

    name: str
    when: Expression | None = None
    """Where it is; None: on every workload."""


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
    overlap: bool = False
    """Whether it may begin before the launch ahead of it has ended."""
    line: int | None = field(default=None, compare=False)

    @property
    def terms(self) -> int:
        """The cost of one step's formulas, as `Expression.terms`."""
        single = tuple(formula for formula in (self.when, self.shared) if formula is not None)
        return sum(formula.terms for formula in (*self.args, *self.grid, *self.block, *self.cluster, *single))

    @property
    def needs_occupancy(self) -> bool:
        """Whether its grid depends on `blocks_per_sm`."""
        return any("blocks_per_sm" in axis.names for axis in self.grid)


@dataclass(frozen=True)
class Argument:
    """Argument for one parameter of one launch."""

    kind: ArgumentKind
    name: str
    """The object's name; for an integer the expression's text, which serves messages only."""
    value: int | None = None
    """The value of an integer; None for any other argument."""


@dataclass(frozen=True)
class ResolvedLaunch:
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
    overlap: bool = False
    """Never of a call's first: what comes before it is no business of a plan."""


@dataclass(frozen=True)
class ResolvedBuffer:
    """Scratch memory of a plan for one workload: its shape in elements, its size in bytes."""

    name: str
    dtype: str
    """A name of `DTYPES`."""
    shape: tuple[int, ...]
    bytes: int


class Numbers:
    """Evaluates the expressions of one part of a plan; every complaint says which part, which line, which numbers."""

    def __init__(self, label: str, line: int | None, file: str | None, env: Environment) -> None:
        self.label = label
        self.line = line
        self.file = file
        self.env = env

    def having(self, name: str, value: int) -> Numbers:
        """The same part with one more number known."""
        return Numbers(self.label, self.line, self.file, self.env.having(name, value))

    def error(self, message: str) -> PlanError:
        return PlanError(f"{self.label}: {message}", line=self.line, source=self.file)

    def value(self, expression: Expression, key: str) -> int:
        """The number that an expression has here. It raises PlanError, which names `key`, where it has none."""
        try:
            return expression.evaluate(self.env)
        except ExpressionError as error:
            raise self.error(f"{key}: {error}") from None

    def within(self, expression: Expression, key: str, smallest: int, largest: int) -> int:
        """The value, which must lie between these two."""
        number = self.value(expression, key)
        if not smallest <= number <= largest:
            names = ", ".join(f"{name} = {self.env[name]}" for name in sorted(expression.names) if name in self.env)
            known = f" with {names}" if names else ""
            raise self.error(f"{key}: `{expression.text}` is {number}{known}; allowed are {smallest} to {largest}")
        return number

    def axes(self, expressions: tuple[Expression, ...], key: str, limits: tuple[int, ...]) -> tuple[int, ...]:
        """x, y, z; axes that are not given count 1."""
        given = tuple(
            self.within(axis, f"{key}[{n}]", 1, limit)
            for n, (axis, limit) in enumerate(zip(expressions, limits, strict=False))
        )
        return given + (1,) * (3 - len(given))


def resolve_buffer(buffer: Buffer, numbers: Numbers, task_dtype: str) -> ResolvedBuffer:
    """The buffer for one workload. Raises PlanError."""
    shape = tuple(numbers.within(axis, f"shape[{n}]", 1, MAX_BUFFER_BYTES) for n, axis in enumerate(buffer.shape))
    dtype = resolve_dtype(buffer.dtype, task_dtype)
    return ResolvedBuffer(buffer.name, dtype.name, shape, math.prod(shape) * dtype.size)


def together(launches: Iterable[Launch]) -> list[tuple[str | None, list[tuple[int, Launch]]]]:
    """Launches with their numbers from 1, neighbours of one group together."""
    runs: list[tuple[str | None, list[tuple[int, Launch]]]] = []
    for number, launch in enumerate(launches, 1):
        if launch.group is None or not runs or runs[-1][0] != launch.group:
            runs.append((launch.group, []))
        runs[-1][1].append((number, launch))
    return runs


def unroll(
    launches: Iterable[Launch],
    groups: Mapping[str, Expression],
    kinds: Mapping[str, ArgumentKind],
    occupancy: Mapping[str, int],
    numbers: Numbers,
) -> Iterable[ResolvedLaunch]:
    """The steps that happen, groups repeated and `when` applied. Raises PlanError.

    `numbers` is the part of the whole plan; `kinds` are the objects that arguments may name.
    """
    count = terms = 0
    for group, members in together(launches):
        repeats = 1
        if group:
            part = Numbers(f"group `{group}`", members[0][1].line, numbers.file, numbers.env)
            repeats = part.within(groups[group], "repeat", 0, MAX_STEPS)
        for i in range(repeats):
            env = numbers.env.having("i", i) if group else numbers.env
            for position, launch in members:
                terms += launch.terms
                part = Numbers(f"launch {position} `{launch.kernel}`", launch.line, numbers.file, env)
                if terms > MAX_TERMS:
                    raise part.error(
                        f"the formulas of all launches have more than {MAX_TERMS} terms; a group repeats too often"
                    )
                if launch.when is not None and not part.value(launch.when, "when"):
                    continue
                count += 1
                if count > MAX_STEPS:
                    raise part.error(f"the plan makes more than {MAX_STEPS} launches; a group repeats too often")
                yield _step(launch, kinds, occupancy, part, overlap=launch.overlap and count > 1)


def _step(
    launch: Launch,
    kinds: Mapping[str, ArgumentKind],
    occupancy: Mapping[str, int],
    numbers: Numbers,
    *,
    overlap: bool,
) -> ResolvedLaunch:
    args = tuple(_argument(expression, f"args[{n}]", kinds, numbers) for n, expression in enumerate(launch.args))
    if not launch.grid:
        return ResolvedLaunch(launch.kernel, args)
    block = numbers.axes(launch.block, "block", BLOCK_LIMITS)
    if math.prod(block) > MAX_BLOCK_THREADS:
        raise numbers.error(f"block: {_product(block)} threads; a block has at most {MAX_BLOCK_THREADS}")
    grid = _grid(launch, occupancy, numbers)
    cluster = _cluster(launch, grid, numbers)
    shared_bytes = 0
    if launch.shared is not None:
        shared_bytes = numbers.within(launch.shared, "shared", 0, numbers.env.get("max_shared_bytes", 2**31 - 1))
    return ResolvedLaunch(launch.kernel, args, grid, block, cluster, shared_bytes, launch.cooperative, overlap)


def _grid(launch: Launch, occupancy: Mapping[str, int], numbers: Numbers) -> tuple[int, ...]:
    if launch.needs_occupancy:
        if launch.kernel not in occupancy:
            raise numbers.error("grid: blocks_per_sm is known once the kernel is compiled; no occupancy was given")
        numbers = numbers.having("blocks_per_sm", occupancy[launch.kernel])
    return numbers.axes(launch.grid, "grid", GRID_LIMITS)


def _cluster(launch: Launch, grid: tuple[int, ...], numbers: Numbers) -> tuple[int, ...]:
    if not launch.cluster:
        return ()
    cluster = numbers.axes(launch.cluster, "cluster", (MAX_CLUSTER_BLOCKS,) * 3)
    if math.prod(cluster) > MAX_CLUSTER_BLOCKS:
        raise numbers.error(f"cluster: {_product(cluster)} blocks; a cluster has at most {MAX_CLUSTER_BLOCKS}")
    for axis, size, blocks in zip("xyz", cluster, grid, strict=True):
        if blocks % size:
            raise numbers.error(f"cluster: the grid's {axis} = {blocks} is not a multiple of the cluster's {size}")
    return cluster


def _argument(expression: Expression, key: str, kinds: Mapping[str, ArgumentKind], numbers: Numbers) -> Argument:
    try:
        chosen = expression.choose(numbers.env)
    except ExpressionError as error:
        raise numbers.error(f"{key}: {error}") from None
    if isinstance(chosen, str):
        return Argument(kinds[chosen], chosen)
    return Argument("integer", expression.text, chosen)


def _product(sizes: tuple[int, ...]) -> str:
    return f"{' x '.join(map(str, sizes))} = {math.prod(sizes)}"


# --- the name of a kernel ---------------------------------------------------------------------------------------------


MAX_KERNEL_CHARACTERS = 200

_TYPE_WORDS = frozenset(
    ("bool", "char", "const", "double", "false", "float", "int", "long", "short", "signed", "true", "unsigned")
)
_NAME_TOKEN = re.compile(r"\s+|[A-Za-z_]\w*|::|[<>(),]|\d+(?:[uU]?[lL]{0,2})\b", re.ASCII)
_CLOSING = {"<": ">", "(": ")"}


def check_function_name(text: str) -> None:
    """Raise ValueError unless `text` is a C function's name."""
    if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) or text in CPP_KEYWORDS or len(text) > MAX_KERNEL_CHARACTERS:
        raise ValueError('on cpu `kernel` is the plain name of an extern "C" function, such as softmax')


def check_name_expression(text: str, hint: Callable[[str], str | None]) -> None:
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
        if (token == "(" and not open_brackets) or not previous:
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
