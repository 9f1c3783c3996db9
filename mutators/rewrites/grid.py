"""What rewrites of CUDA kernels must know of a launch: which thread has which index, and what stands above a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mutators.cpp_tree import Edit, Function, Node, Program, walk
from mutators.dataflow import effects
from mutators.plan_tables import base_name
from operators.launch import Launch

PLACES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
BARRIERS = ("__sync", "__shfl", "__shared__", "__ballot", "__any", "__all", "cooperative_groups", "barrier", "goto")
INDEX = re.compile(r"(?:blockIdx\.x \* blockDim\.x|blockDim\.x \* blockIdx\.x) \+ threadIdx\.x")
_QUALIFIER = re.compile(rb"__\w+__(?:\s*\([^()]*\))?\s*\Z")
"""What the grammar does not count to a function."""
_DEFINED = re.compile(r"#\s*define\s+(\w+)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_NESTED = re.compile(r"ceil_div\((ceil_div\(.+\)),\w+\)")


def kernels(program: Program) -> Iterator[tuple[Function, int, Launch]]:
    """Functions that exactly one launch uses and that parsed without error, with the launch and its position."""
    for function in program.functions:
        launches = [
            (index, launch)
            for index, launch in enumerate(program.plan.launches)
            if base_name(launch.kernel) == function.name
        ]
        if len(launches) == 1 and not function.node.has_error:
            yield function, *launches[0]


@dataclass(frozen=True)
class Guarded:
    """`int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; ...`: each thread has an index of its own."""

    declaration: Node
    guard: Node
    rest: tuple[Node, ...]
    """The other statements, comments included."""
    variable: str
    type: str
    start: str
    bound: str
    """A parameter."""
    count: str
    """What the launch passes for it."""


def guarded(program: Program, function: Function, launch: Launch) -> Guarded | None:
    """The form of a kernel without barriers that has it; the launch has as many threads as there are indices."""
    statements = [n for n in function.body.named_children if n.type != "comment"]
    text = program.slice(function.body)
    if len(statements) < 3 or any(word in text for word in BARRIERS) or text.count("return") != 1:
        return None
    declaration, guard = statements[:2]
    match = re.fullmatch(r"(?:const )?([\w ]+?) (\w+) = (.+);", " ".join(program.slice(declaration).split()))
    if declaration.type != "declaration" or guard.type != "if_statement" or not match or not INDEX.fullmatch(match[3]):
        return None
    type_, variable, start = match.groups()
    condition = " ".join(program.slice(guard).split())
    limit = re.fullmatch(rf"if \({variable} >= (\w+)\) (?:return;|\{{ return; \}})", condition)
    if not limit or "const" in type_.split() or len(function.declarations[variable]) > 1:
        return None
    count = passed(program, function, launch, limit[1])
    changed = {variable, limit[1]} & function.assigned
    if changed or mentions_places(program, statements[1:]) or len(launch.grid) != 1 or not covers(launch, 0, count):
        return None
    rest = tuple(n for n in function.body.named_children if n.start_byte >= guard.end_byte)
    return Guarded(declaration, guard, rest, variable, type_, start, limit[1], count or "")


def passed(program: Program, function: Function, launch: Launch, text: str) -> str | None:
    """An expression over parameters as the plan would write it."""
    names = [[d.name for d in function.declared_at(parameter)] for parameter in function.parameters]
    if len(names) != len(launch.args) or any(len(name) != 1 for name in names):
        return None
    values = {name: argument.text for (name,), argument in zip(names, launch.args, strict=True)}
    if not set(_WORD.findall(text)) <= set(values) | set(program.plan.tune):
        return None
    return _WORD.sub(lambda m: _operand(values.get(m[0], m[0]), text), text)


def _operand(value: str, whole: str) -> str:
    return value if value.isidentifier() or value.isdigit() or whole.isidentifier() else f"({value})"


def covers(launch: Launch, axis: int, count: str | None) -> bool:
    """Whether a launch has a thread for each of `count` indices along an axis, and no more blocks than that takes.

    So it is with `ceil_div(count, block)`, and where rewrites divided that by what each thread takes.
    """
    if count is None or axis >= min(len(launch.grid), len(launch.block)):
        return False
    grid = "".join(launch.grid[axis].text.split())
    while match := _NESTED.fullmatch(grid):
        grid = match[1]
    return grid == f"ceil_div({count},{launch.block[axis].text})".replace(" ", "")


def mentions_places(program: Program, nodes: Iterable[Node]) -> bool:
    """Whether statements ask which thread they are in, other than by an index that was worked out before."""
    return any(n.type == "identifier" and program.slice(n) in PLACES for node in nodes for n in walk(node))


def changed_scalars(function: Function, nodes: Iterable[Node]) -> set[str]:
    """Variables that statements change and that are declared outside of them."""
    return set(effects(function, *(n for n in nodes if n.type != "comment")).writes)


class Above:
    """What a rewrite puts before a kernel, unless it stands there already; what stands below it is moved there."""

    def __init__(self, program: Program, function: Function) -> None:
        self._program = program
        self._place = _begin(program, function)
        self._needed: dict[str, tuple[str, str]] = {}
        """What a definition calls itself, and what it is called here."""
        self._moved: list[Edit] = []
        self._taken: set[str] = set()
        self.usable = True
        """False where macros of the file would change what is put there."""

    def fresh(self, base: str) -> str:
        """A name for what the rewrite declares."""
        self._taken.add(name := self._program.fresh(base, self._taken))
        return name

    def need(self, name: str, text: str) -> str:
        """Have a definition; what the defined `name` is called here."""
        if set(_DEFINED.findall(self._program.text)) & set(_WORD.findall(text)):
            self.usable = False
        data = text.encode()
        at = self._program.data.find(data)
        if 0 <= at < self._place:
            return name
        if text not in self._needed:
            self._needed[text] = name, self._program.fresh(name) if at < 0 else name
            if at >= 0:
                self._moved.append(Edit(at, at + len(data), ""))
        return self._needed[text][1]

    @property
    def edits(self) -> tuple[Edit, ...]:
        whole = "".join(re.sub(rf"\b{own}\b", name, text) + "\n\n" for text, (own, name) in self._needed.items())
        return (*self._moved, Edit(self._place, self._place, whole)) if whole else ()


def _begin(program: Program, function: Function) -> int:
    """Where a function begins, with its qualifiers and the comment above it."""
    node, parent = function.node, function.node.parent
    while parent is not None:
        braces = parent.parent if parent.type == "declaration_list" else None
        if braces is not None and braces.type == "linkage_specification":
            parent = braces
        elif parent.type not in ("linkage_specification", "template_declaration"):
            break
        node, parent = parent, parent.parent
    begin, comment = node.start_byte, node.prev_named_sibling
    while match := _QUALIFIER.search(program.data, 0, begin):
        begin = match.start()
    while comment is not None and comment.type == "comment" and program.slice(comment).startswith("//"):
        if program.data[comment.end_byte : begin].strip(b" \t") != b"\n":
            break
        begin, comment = comment.start_byte, comment.prev_named_sibling
    return begin
