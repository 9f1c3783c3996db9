"""The reads and writes of a region of a kernel.

Everything here errs on the side of "not known": what is not understood makes a region opaque.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree
from mutators.analysis.polynomial import CASTS, Polynomial, add, polynomial
from mutators.analysis.syntax import Node, field_of, walk

MATH = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "pow", "hypot", "erf", "erfc",
    "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "atan2", "asin", "acos",
    "abs", "fabs", "floor", "ceil", "round", "rint", "trunc", "fma", "fmax", "fmin", "fmod", "copysign", "ldexp",
)  # fmt: skip
"""Functions of <cmath>; with an `f` at the end they take floats."""
PURE = frozenset(
    {*MATH, *(f"{name}f" for name in MATH), *(f"std::{name}" for name in MATH)}
    | {"load", "store", "T", "ACC", "max", "min", "std::max", "std::min", "sizeof", "__builtin_prefetch", "__ldg"}
    | {"__expf", "__logf", "__fdividef", "__frcp_rn", "static_cast", "int", "float", "double", "size_t", "std::size_t"}
)
"""Functions without effects, casts included."""
_OPAQUE = frozenset(
    {"lambda_expression", "goto_statement", "gnu_asm_expression", "throw_statement", "new_expression", "try_statement"}
    | {"delete_expression", "co_await_expression", "co_return_statement", "comma_expression", "ERROR"}
    | {"preproc_if", "preproc_ifdef", "preproc_def", "preproc_function_def"}
)


@dataclass(frozen=True, eq=False)
class Access:
    """One read or write of memory that lives outside the region."""

    array: str
    index: tuple[Polynomial, ...]
    """One polynomial per dimension."""
    write: bool
    node: Node
    accumulates: bool = False
    """The write is `+=`."""


@dataclass
class Effects:
    """Effects of a region on the world outside it."""

    function: Function
    region: tuple[Node, ...]
    declared: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    """Scalars and pointers from outside."""
    writes: dict[str, list[Node]] = field(default_factory=dict)
    """Scalars from outside, and the expressions that change them."""
    accesses: list[Access] = field(default_factory=list)
    opaque: str = ""
    """Why the region is not understood; empty if it is."""

    @property
    def written_arrays(self) -> set[str]:
        """Arrays from outside that the region writes to."""
        return {a.array for a in self.accesses if a.write}

    @property
    def changing(self) -> set[str]:
        """Names whose value differs between places of the region."""
        return self.declared | set(self.writes)

    def touching(self, array: str) -> list[Access]:
        """Every read and write of one array, in the order of the text."""
        return [a for a in self.accesses if a.array == array]


def effects(function: Function, *region: Node) -> Effects:
    """The effects of the statements or expressions `region`, taken together."""
    result = Effects(function, region)
    for node in region:
        for child in walk(node):
            if child.type in ("declaration", "for_range_loop"):
                result.declared |= _declared_at(function, child)
            if child.type in _OPAQUE or child.is_missing:
                result.opaque = f"{child.type} in line {function.tree.line(child)}"
    for node in region:
        _visit(result, node)
    for name in result.declared & set(result.writes):
        del result.writes[name]
    result.reads -= result.declared
    return result


def loop_effects(loop: Loop) -> Effects:
    """The effects of a loop's body, its own variable counted as declared there. Worked out once."""
    known: Effects | None = loop.tree.memo.get(("effects", loop))
    if known is None:
        known = effects(loop.function, loop.body)
        known.declared.add(loop.variable)
        known.reads.discard(loop.variable)
        loop.tree.memo["effects", loop] = known
    return known


def _declared_at(function: Function, node: Node) -> set[str]:
    return {d.name for d in function.declared_at(node)} or {"?"}


def _visit(result: Effects, node: Node) -> None:
    """Record what `node` does, and all below it."""
    tree = result.function.tree
    match node.type:
        case "assignment_expression":
            target, value = field_of(node, "left"), field_of(node, "right")
            sign = field_of(node, "operator").type
            _write(result, target, node, accumulates=sign in ("+=", "-="))
            if sign != "=":
                _visit(result, target)
            _visit(result, value)
        case "update_expression":
            target = field_of(node, "argument")
            _write(result, target, node, accumulates=True)
            _visit(result, target)
        case "subscript_expression":
            _access(result, node, write=False)
            _visit_indices(result, node)
        case "pointer_expression":
            result.opaque = result.opaque or f"`{tree.slice(node)}`"
        case "call_expression":
            _call(result, node)
        case "identifier":
            result.reads.add(tree.slice(node))
        case "declaration":
            names = _declared_at(result.function, node)
            if any(d.reference for n in names for d in result.function.declarations.get(n, ())):
                result.opaque = result.opaque or f"a reference or shared variable in line {tree.line(node)}"
            for child in node.children_by_field_name("declarator"):
                if child.type == "init_declarator":
                    _initialiser(result, field_of(child, "value"))
        case "field_expression":
            _visit(result, field_of(node, "argument"))
        case _:
            for child in node.named_children:
                _visit(result, child)


def _initialiser(result: Effects, value: Node) -> None:
    """Visit a declaration's value; taking an address there is pointer arithmetic and no access."""
    if value.type == "pointer_expression" and value.child(0).type == "&":
        inner = field_of(value, "argument")
        if inner.type == "subscript_expression":
            result.reads.add(_base(result.function.tree, inner)[0])
            _visit_indices(result, inner)
            return
    _visit(result, value)


def _visit_indices(result: Effects, node: Node) -> None:
    while node.type == "subscript_expression":
        _visit(result, field_of(node, "indices"))
        node = field_of(node, "argument")


def _write(result: Effects, target: Node, whole: Node, *, accumulates: bool) -> None:
    tree = result.function.tree
    while target.type == "parenthesized_expression":
        target = target.named_children[0]
    if target.type == "identifier":
        result.writes.setdefault(tree.slice(target), []).append(whole)
    elif target.type == "subscript_expression":
        _access(result, target, write=True, accumulates=accumulates)
        _visit_indices(result, target)
    else:
        result.opaque = result.opaque or f"a write to `{tree.slice(target)}`"


def _call(result: Effects, node: Node) -> None:
    tree = result.function.tree
    name = tree.slice(field_of(node, "function")).split("<")[0]
    if name == "__builtin_prefetch":
        return
    if name not in PURE and name not in CASTS and not _pure_helper(tree, name):
        result.opaque = result.opaque or f"a call of `{name}`"
    _visit(result, field_of(node, "arguments"))


def _pure_helper(tree: SyntaxTree, name: str) -> bool:
    """Whether the file defines `name` as a function of its arguments' values alone."""
    helpers = [f for f in tree.functions if f.name == name]
    if len(helpers) != 1:
        return False
    body = helpers[0].body
    simple = not any(n.type in ("pointer_expression", "subscript_expression", *_OPAQUE) for n in walk(body))
    calls = (field_of(n, "function") for n in walk(body) if n.type == "call_expression")
    values = all(not d.reference for all_of_it in helpers[0].declarations.values() for d in all_of_it)
    return simple and values and all(tree.slice(c).split("<")[0] in PURE for c in calls)


def _base(tree: SyntaxTree, node: Node) -> tuple[str, list[Node]]:
    """Name and indices of `name[i][j]`; an empty name where it is something else."""
    indices: list[Node] = []
    while node.type == "subscript_expression":
        indices[:0] = field_of(node, "indices").named_children
        node = field_of(node, "argument")
    return (tree.slice(node) if node.type == "identifier" else "", indices)


def _access(result: Effects, node: Node, *, write: bool, accumulates: bool = False) -> None:
    resolved = resolve(result.function, node)
    if resolved is None:
        result.opaque = result.opaque or f"`{result.function.tree.slice(node)}`"
        return
    name, index = resolved
    declared = result.function.declarations.get(name, ())
    if name in result.function.assigned and any(d.pointer for d in declared):
        result.opaque = result.opaque or f"pointer `{name}`, which moves"
    elif name in result.declared and any(d.pointer for d in declared):
        result.opaque = result.opaque or f"pointer `{name}`, which changes"
    elif name not in result.declared:
        result.reads.add(_base(result.function.tree, node)[0])
        result.accesses.append(Access(name, index, write, node, accumulates))


def resolve(function: Function, node: Node) -> tuple[str, tuple[Polynomial, ...]] | None:
    """The memory behind `p[i]`: parameter or array, and index, with known pointers such as `p = x + row * n`
    expanded."""
    name, indices = _base(function.tree, node)
    values = [value for index in indices if (value := polynomial(function, index)) is not None]
    if not name or len(values) != len(indices):
        return None
    for _ in range(8):  # `p = q + a; q = x + b;`: a chain of pointers, longer than kernels have
        known = function.definition(name)
        if known is None or not known.pointer or len(values) != 1:
            break
        target = _pointer(function, known.value)
        if target is None:
            return None
        name, offset = target
        values = [add(values[0], offset)]
    return name, tuple(values)


def _pointer(function: Function, node: Node | None) -> tuple[str, Polynomial] | None:
    """Base and offset of `x`, `x + e`, `&x[e]`."""
    if node is None:
        return None
    tree = function.tree
    if node.type == "identifier":
        return tree.slice(node), {}
    if node.type == "binary_expression" and field_of(node, "operator").type == "+":
        base = _pointer(function, field_of(node, "left"))
        offset = polynomial(function, field_of(node, "right"))
        return None if base is None or offset is None else (base[0], add(base[1], offset))
    if node.type == "pointer_expression" and node.child(0).type == "&":
        name, indices = _base(tree, field_of(node, "argument"))
        offset = polynomial(function, indices[0]) if len(indices) == 1 else None
        return None if not name or offset is None else (name, offset)
    return None
