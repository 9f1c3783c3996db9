"""The grid of a CUDA launch, for transforms: which thread has which index, and what stands above a kernel.

A transform of it gives each thread neighbouring elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree
from mutators.analysis.dataflow import Effects, effects
from mutators.analysis.dependence import independent
from mutators.analysis.plan_edit import launch_list
from mutators.analysis.plan_tables import base_name
from mutators.analysis.polynomial import names_in
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import WORD, Edit, block, reindent
from mutators.analysis.syntax import Node, field_of, walk
from mutators.transforms.base import Site, transform
from mutators.transforms.loops import fixed_outside, operand
from operators.plan.launch import Launch

PLACES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
BARRIERS = ("__sync", "__shfl", "__shared__", "__ballot", "__any", "__all", "cooperative_groups", "barrier", "goto")
_QUALIFIER = re.compile(rb"__\w+__(?:\s*\([^()]*\))?\s*\Z")
"""Text before a function that the grammar does not count to it."""
_DEFINED = re.compile(r"#\s*define\s+(\w+)")
_NESTED = re.compile(r"ceil_div\((ceil_div\(.+\)),\w+\)")


def kernels(tree: SyntaxTree) -> Iterator[tuple[Function, int, Launch]]:
    """Functions that exactly one launch uses and that parsed without error, with the launch and its position."""
    for function in tree.functions:
        launches = [
            (index, launch)
            for index, launch in enumerate(tree.plan.launches)
            if base_name(launch.kernel) == function.name
        ]
        if len(launches) == 1 and not function.node.has_error:
            yield function, *launches[0]


@dataclass(frozen=True)
class Axis:
    """`int i = blockIdx.x * blockDim.x + threadIdx.x;`, an index that a thread has along one direction."""

    variable: str
    type: str
    start: str
    """The expression that it is declared with."""
    letter: str
    """The direction's letter: x, y or z."""
    bound: str
    """Bound that it must be less than: an expression over parameters."""
    count: str
    """The bound as the plan would write it."""


@dataclass(frozen=True)
class Guarded:
    """Indices, then `if (i >= n || ...) return;`, then the rest: each thread has an index or a tuple of its own.

    Or `if (i < n && ...)` and the rest within it.
    """

    axes: tuple[Axis, ...]
    declaration: Node
    """The first index's."""
    guard: Node
    rest: tuple[Node, ...]
    """The other statements, comments included."""
    within: bool
    """Whether they stand in the guard."""

    @property
    def end_byte(self) -> int:
        """Where the guard and what it guards end."""
        return self.guard.end_byte if self.within else self.rest[-1].end_byte

    @property
    def axis(self) -> Axis:
        """The first index."""
        return self.axes[0]


def index_letter(text: str) -> str | None:
    """The direction (x, y or z) of which an expression is a thread's index, if it is one."""
    letter = text[-1:]
    product = (f"blockIdx.{letter} * blockDim.{letter}", f"blockDim.{letter} * blockIdx.{letter}")
    return letter if text in {f"{p} + threadIdx.{letter}" for p in product} and letter in "xyz" else None


def guarded(tree: SyntaxTree, function: Function, launch: Launch) -> Guarded | None:
    """The form of a kernel without barriers that has it; the launch has as many threads as there are indices."""
    statements = [n for n in function.body.named_children if n.type != "comment"]
    text = tree.slice(function.body)
    if any(word in text for word in BARRIERS):
        return None
    found: list[re.Match[str]] = []
    for node in statements[:3]:
        match = re.fullmatch(r"(?:const )?([\w ]+?) (\w+) = (.+);", " ".join(tree.slice(node).split()))
        if node.type != "declaration" or not match or not index_letter(match[3]) or "const" in match[1].split():
            break
        found.append(match)
    if not found or len(statements) == len(found) or statements[len(found)].type != "if_statement":
        return None
    declaration, guard = statements[0], statements[len(found)]
    variables, axes = [match[2] for match in found], []
    within = guard is statements[-1]
    rest = (
        _within(guard) if within else tuple(n for n in function.body.named_children if n.start_byte >= guard.end_byte)
    )
    limits = _limits(tree, guard, variables, within=within)
    if not rest or not limits or text.count("return") != (not within) or mentions_places(tree, rest):
        return None
    for match, bound in zip(found, limits, strict=True):
        type_, variable, start_text = match.groups()
        letter, count = start_text[-1], passed(tree, function, launch, bound)
        used = names_in(function, [bound])
        if used & set(variables) or (used | {variable}) & function.assigned or len(function.declarations[variable]) > 1:
            return None
        if count is None or not covers(launch, "xyz".index(letter), count):
            return None
        axes.append(Axis(variable, type_, start_text, letter, bound, count))
    if len({axis.letter for axis in axes}) < len(axes) or len(launch.grid) != len(axes):
        return None
    return Guarded(tuple(axes), declaration, guard, rest, within)


def _limits(tree: SyntaxTree, guard: Node, variables: Sequence[str], *, within: bool) -> tuple[str, ...]:
    """The bounds that each variable is compared with, for threads to leave or to stay within; empty where it is not
    so."""
    sign, joint = ("<", " && ") if within else (">=", r" \|\| ")
    form = joint.join(rf"{variable} {sign} ([^|&?<>=!]+)" for variable in variables)
    condition, body = (" ".join(tree.slice(field_of(guard, n)).split()) for n in ("condition", "consequence"))
    match = re.fullmatch(rf"\({form}\)", condition)
    alone = not guard.child_by_field_name("alternative") and (within or body in ("return;", "{ return; }"))
    return match.groups() if match and alone else ()


def _within(guard: Node) -> tuple[Node, ...]:
    """The statements that are done where its condition holds."""
    body = field_of(guard, "consequence")
    return tuple(body.named_children) if body.type == "compound_statement" else (body,)


def along_x(tree: SyntaxTree, function: Function, launch: Launch, *, within: bool = False) -> Guarded | None:
    """The form `guarded` finds, where it has one index whose bound is a parameter; `within`: the second form too."""
    found = guarded(tree, function, launch)
    if not found or len(found.axes) > 1 or not found.axis.bound.isidentifier():
        return None
    return found if within or not found.within else None


def passed(tree: SyntaxTree, function: Function, launch: Launch, text: str) -> str | None:
    """An expression over parameters as the plan would write it."""
    names = [[d.name for d in function.declared_at(parameter)] for parameter in function.parameters]
    if len(names) != len(launch.args) or any(len(name) != 1 for name in names):
        return None
    values = {name: argument.text for (name,), argument in zip(names, launch.args, strict=True)}
    if not set(WORD.findall(text)) <= set(values) | set(tree.plan.tune):
        return None
    return WORD.sub(lambda m: _operand(values.get(m[0], m[0]), text), text)


def _operand(value: str, whole: str) -> str:
    return value if value.isidentifier() or value.isdigit() or whole.isidentifier() else f"({value})"


def covers(launch: Launch, axis: int, count: str | None) -> bool:
    """Whether a launch has a thread for each of `count` indices along an axis, and no more blocks than that takes.

    So it is with `ceil_div(count, block)`, and where transforms divided that by what each thread takes.
    """
    if count is None or axis >= min(len(launch.grid), len(launch.block)):
        return False
    grid = "".join(launch.grid[axis].text.split())
    while match := _NESTED.fullmatch(grid):
        grid = match[1]
    return grid == f"ceil_div({count},{launch.block[axis].text})".replace(" ", "")


def mentions_places(tree: SyntaxTree, nodes: Iterable[Node]) -> bool:
    """Whether statements ask which thread they are in, other than by an index that was worked out before."""
    return any(n.type == "identifier" and tree.slice(n) in PLACES for node in nodes for n in walk(node))


def changed_scalars(function: Function, nodes: Iterable[Node]) -> set[str]:
    """Variables that statements change and that are declared outside of them."""
    return set(effects(function, *(n for n in nodes if n.type != "comment")).writes)


class Above:
    """Text that a transform puts before a kernel, unless it stands there already; text below the kernel is moved
    there."""

    def __init__(self, tree: SyntaxTree, function: Function) -> None:
        self._tree = tree
        self._place = _begin(tree, function)
        self._needed: dict[str, tuple[str, str]] = {}
        """Name that a definition has itself, and its name here."""
        self._moved: list[Edit] = []
        self._taken: set[str] = set()
        self.usable = True
        """False where macros of the file would change what is put there."""

    def fresh(self, base: str) -> str:
        """A name for what the transform declares."""
        self._taken.add(name := self._tree.fresh(base, self._taken))
        return name

    def need(self, name: str, text: str) -> str:
        """Have a definition; what the defined `name` is called here."""
        # A `#define value ...` of the file would be expanded within the definition that is put there.
        if set(_DEFINED.findall(self._tree.text)) & set(WORD.findall(text)):
            self.usable = False
        data = text.encode()
        at = self._tree.data.find(data)
        if 0 <= at < self._place:
            return name
        if text not in self._needed:
            self._needed[text] = name, self._tree.fresh(name) if at < 0 else name
            if at >= 0:
                self._moved.append(Edit(at, at + len(data), ""))
        return self._needed[text][1]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The edits that put all that was needed before the kernel, and take it away below."""
        whole = "".join(re.sub(rf"\b{own}\b", name, text) + "\n\n" for text, (own, name) in self._needed.items())
        return (*self._moved, Edit(self._place, self._place, whole)) if whole else ()


def _begin(tree: SyntaxTree, function: Function) -> int:
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
    while match := _QUALIFIER.search(tree.data, 0, begin):
        begin = match.start()
    while comment is not None and comment.type == "comment" and tree.slice(comment).startswith("//"):
        if tree.data[comment.end_byte : begin].strip(b" \t") != b"\n":
            break
        begin, comment = comment.start_byte, comment.prev_named_sibling
    return begin


# --- neighbouring elements for each thread, moved at once -------------------------------------------------------------


SIZES = (4, 2, 1, 8)
PACK = "Adjacent"
_PACK = f"""// Neighbours that are moved at once, 16 bytes at most.
template <class V, int N> struct alignas(sizeof(V) * N < 16 ? sizeof(V) * N : 16) {PACK} {{
    V at[N];
}};"""
STEPS = frozenset({"gridDim.x * blockDim.x", "blockDim.x * gridDim.x"})
_CONDITIONAL = frozenset(
    {"if_statement", "conditional_expression", "switch_statement", "for_statement", "while_statement", "do_statement"}
    | {"for_range_loop", "lambda_expression", "case_statement"}
)


@transform("vectorize", "cuda")
def vectorize(tree: SyntaxTree) -> Iterator[Site]:
    """Let a thread take neighbouring elements, which it loads and stores at once as vectors."""
    for function, index, launch in kernels(tree):
        found = along_x(tree, function, launch, within=True)
        if not found or changed_scalars(function, found.rest):
            continue
        axis = found.axis
        count, above = tree.fresh("VECTOR"), Above(tree, function)
        lines = _vectorized(above, function, found.rest, axis.variable, axis.type, axis.bound, count)
        grid = launch_list(tree.text, index, "grid", 0, f"ceil_div({launch.grid[0].text}, {count})")
        if lines and grid:
            first, begin = tree.fresh(f"{axis.variable}0"), found.declaration.start_byte
            head = (f"{axis.type} {first} = ({axis.start}) * {count};", f"if ({first} >= {axis.bound}) return;")
            text = reindent("\n".join((*head, *lines)), "", tree.indent_at(begin))
            edits = (Edit(begin, found.end_byte, text), grid, *above.edits)
            yield Site(f"vectors of {count} in {function.name}", edits, {count: SIZES})
    for loop in tree.loops:
        yield from _strided(tree, loop)


def _strided(tree: SyntaxTree, loop: Loop) -> Iterator[Site]:
    """A loop that begins with a thread's index, and whose steps are a whole grid's threads."""
    function = loop.function
    if function.name not in tree.launched or loop.parent or loop.inclusive or loop.exits or loop.pragmas:
        return
    if index_letter(_plain(loop.start_text)) != "x" or _plain(loop.step_text) not in STEPS:
        return
    if not fixed_outside(loop, loop) or reductions(loop) is None or not independent(loop):
        return
    count, above = tree.fresh("VECTOR"), Above(tree, function)
    statements = loop.body.named_children if loop.body.type == "compound_statement" else [loop.body]
    lines = _vectorized(above, function, statements, loop.variable, loop.type, loop.bound_text, count)
    if lines:
        first = tree.fresh(f"{loop.variable}0")
        head = (
            f"for ({loop.type} {first} = ({loop.start_text}) * {count}; {first} < {loop.bound_text}; "
            f"{first} += {operand(loop.step_text)} * {count})"
        )
        edits = (*tree.replace(loop, block(head, *lines, indent="")), *above.edits)
        yield Site(f"vectors of {count} in {loop.place}", edits, {count: SIZES})


def _plain(text: str) -> str:
    """An index or a step without what does not change its value."""
    text = " ".join(re.sub(r"\((?:int|long|long long|size_t|unsigned)\)", "", text).split())
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text


def _vectorized(
    above: Above, function: Function, statements: Sequence[Node], variable: str, type_: str, bound: str, count: str
) -> list[str]:
    """Statements, for column 0, that do for `count` values what others do for one; none where no array allows it."""
    tree = function.tree
    known = effects(function, *(n for n in statements if n.type != "comment"))
    moved = _moved(function, known, statements, variable)
    pack = above.need(PACK, _PACK) if moved else ""
    if not pack or not above.usable:
        return []
    first, lane = tree.fresh(f"{variable}0"), tree.fresh("lane")
    vectors = {array: tree.fresh(f"{array}_vector") for array in sorted(moved)}
    edits = [
        Edit(n.start_byte, n.end_byte, f"{vectors[tree.slice(field_of(n, 'argument'))]}.at[{lane}]")
        for statement in statements
        for n in walk(statement)
        if n.type == "subscript_expression" and tree.slice(field_of(n, "argument")) in moved
    ]
    begin, end = statements[0].start_byte, statements[-1].end_byte
    indent = tree.indent_at(begin)
    many, one = (reindent(tree.edited(begin, end, which), indent, "") for which in (edits, []))
    loads, stores = [], []
    for array, name in vectors.items():
        kind = f"{pack}<{moved[array]}, {count}>"
        read = any(not a.write or a.accumulates for a in known.touching(array))
        loads.append(f"{kind} {name}" + (f" = *({kind} const*)({array} + {first});" if read else ";"))
        if array in known.written_arrays:
            stores.append(f"*({kind}*)({array} + {first}) = {name};")
    each = block(
        f"for (int {lane} = 0; {lane} < {count}; {lane}++)",
        f"const {type_} {variable} = {first} + {lane};",
        many,
        indent="",
    )
    whole = block(f"if ({first} + {count} <= {bound})", *loads, f"#pragma unroll\n{each}", *stores, indent="")
    rest = block(f"for ({type_} {variable} = {first}; {variable} < {bound}; {variable}++)", one, indent="")
    return [whole + block(" else", rest, indent="")]


def _moved(function: Function, known: Effects, statements: Sequence[Node], variable: str) -> dict[str, str]:
    """By array whose elements can be moved as vectors, their type; none where the statements do not allow it."""
    if not statements or known.opaque or variable in known.declared:
        return {}
    found = {
        array: element
        for array in {a.array for a in known.accesses}
        if (element := _element(function, array))
        and _movable([a.node for a in known.touching(array)], f"{array}[{variable}]", function.tree, statements)
        and all(_stored(a.node, statements) for a in known.touching(array) if a.write)
    }
    return found if not known.written_arrays or known.written_arrays & set(found) else {}


def _element(function: Function, array: str) -> str | None:
    """The type that a pointer parameter points to, which stays where it is."""
    declared = function.declarations.get(array, ())
    if len(declared) != 1 or declared[0].node not in function.parameters or not declared[0].pointer:
        return None
    return None if array in function.assigned else declared[0].type


def _movable(nodes: Sequence[Node], element: str, tree: SyntaxTree, statements: Sequence[Node]) -> bool:
    """Whether all accesses are to a thread's own element, and one of them, whatever happens: so it is there."""
    alone = all(" ".join(tree.slice(n).split()) == element for n in nodes)
    return alone and any(_always(n, statements) for n in nodes)


def _always(node: Node, statements: Sequence[Node]) -> bool:
    """Whether one of these statements uses an element whatever happens."""
    place: Node | None = node
    while place is not None:
        sign = place.child_by_field_name("operator") if place.type == "binary_expression" else None
        if place.type in _CONDITIONAL or (sign is not None and sign.type in ("&&", "||")):
            return False
        if place in statements:
            return True
        place = place.parent
    return False


def _stored(node: Node, statements: Sequence[Node]) -> bool:
    """Whether an element is the target of an assignment that is a statement of its own among these."""
    assignment = node.parent
    statement = assignment.parent if assignment else None
    return statement in statements and statement is not None and statement.type == "expression_statement"
