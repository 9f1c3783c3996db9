"""What a region of a kernel reads and writes, which loops carry dependences, which updates are reductions.

Index arithmetic is compared as polynomials over names, so that `(long long)i * n + j` through a row pointer and the
same without one are equal. Everything here errs on the side of "not known": sizes are taken to be at least 1 and
differently named parameters to be different memory, which the plan guarantees; nothing else is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from mutators.cpp_tree import Function, Loop, Node, SyntaxTree, field_of, walk

Polynomial = dict[tuple[str, ...], int]
"""Coefficient by monomial; a monomial is a sorted tuple of atoms (names, or opaque texts such as `rows[i + 1]`)."""

MAX_TERMS = 64

_NAME = re.compile(r"[A-Za-z_]\w*")
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
_CASTS = frozenset({"int", "long", "size_t", "std::size_t", "unsigned", "int64_t", "ptrdiff_t", "std::ptrdiff_t"})
_MAXIMA = {"max": "max", "fmax": "max", "fmaxf": "max", "min": "min", "fmin": "min", "fminf": "min"}
_OPAQUE = frozenset(
    {"lambda_expression", "goto_statement", "gnu_asm_expression", "throw_statement", "new_expression", "try_statement"}
    | {"delete_expression", "co_await_expression", "co_return_statement", "comma_expression", "ERROR"}
    | {"preproc_if", "preproc_ifdef", "preproc_def", "preproc_function_def"}
)


# --- polynomials -------------------------------------------------------------------------------------------------


def add(a: Polynomial, b: Polynomial, scale: int = 1) -> Polynomial:
    """a + scale * b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + scale * coefficient
    return {monomial: c for monomial, c in total.items() if c}


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for left, c in a.items():
        for right, d in b.items():
            product = add(product, {tuple(sorted(left + right)): c * d})
    return product


def constant(number: int) -> Polynomial:
    return {(): number} if number else {}


def polynomial(function: Function, node: Node, depth: int = 0) -> Polynomial | None:
    """The value of an integer expression; names with one known definition are expanded. None: too large."""
    tree = function.tree
    text = tree.slice(node)
    match node.type:
        case "number_literal" if text.rstrip("uUlL").isdigit():
            return constant(int(text.rstrip("uUlL")))
        case "identifier":
            known = function.definition(text)
            if known and not known.pointer and known.value is not None and depth < 8:
                return polynomial(function, known.value, depth + 1)
            return {(text,): 1}
        case "parenthesized_expression" if len(node.named_children) == 1:
            return polynomial(function, node.named_children[0], depth)
        case "cast_expression":
            return polynomial(function, field_of(node, "value"), depth)
        case "call_expression":
            arguments = field_of(node, "arguments").named_children
            name = tree.slice(field_of(node, "function")).split("<")[0]
            if len(arguments) == 1 and (name == "static_cast" or name in _CASTS):
                return polynomial(function, arguments[0], depth)
        case "binary_expression":
            return _binary(function, node, depth)
    return {(" ".join(text.split()),): 1}


def _binary(function: Function, node: Node, depth: int) -> Polynomial | None:
    sign = field_of(node, "operator").type
    if sign not in "+-*":
        return {(" ".join(function.tree.slice(node).split()),): 1}
    left = polynomial(function, field_of(node, "left"), depth)
    right = polynomial(function, field_of(node, "right"), depth)
    if left is None or right is None or len(left) * len(right) > MAX_TERMS:
        return None
    if sign == "*":
        return multiply(left, right)
    return add(left, right, 1 if sign == "+" else -1)


def names_in(function: Function, texts: Iterable[str]) -> set[str]:
    """Every name that the texts mention, those behind known definitions included."""
    found: set[str] = set()
    waiting = [name for text in texts for name in _NAME.findall(text)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            known = function.definition(name)
            if known and known.value is not None:
                waiting += _NAME.findall(function.tree.slice(known.value))
    return found


def mentions(function: Function, value: Polynomial, name: str) -> bool:
    return name in names_in(function, (atom for monomial in value for atom in monomial))


def split(function: Function, value: Polynomial, name: str) -> tuple[Polynomial, Polynomial] | None:
    """(a, b) with value = a * name + b and neither mentioning `name`; None where it is not linear in it."""
    factor: Polynomial = {}
    rest: Polynomial = {}
    for monomial, c in value.items():
        if name in monomial:
            left = list(monomial)
            left.remove(name)
            factor = add(factor, {tuple(left): c})
        else:
            rest[monomial] = c
    if mentions(function, factor, name) or mentions(function, rest, name):
        return None
    return factor, rest


def tile_of(loop: Loop) -> tuple[str, Polynomial, Polynomial] | None:
    """(v0, TILE, limit) of a point loop `for (v = v0; v < (v0 + TILE < limit ? v0 + TILE : limit); v++)`."""
    start = loop.start_text
    outer = next((a for a in loop.ancestors if a.variable == start), None)
    node = loop.bound
    while node.type == "parenthesized_expression":
        node = node.named_children[0]
    if outer is None or not loop.unit_step:
        return None
    parts = _minimum(loop.tree, node)
    step = polynomial(loop.function, outer.step) if outer.step else None
    if step is None:
        return None
    wanted = add({(start,): 1}, step)
    values = [polynomial(loop.function, part) for part in parts or (node,)]
    if wanted not in values:
        return None
    others = [v for v in values if v != wanted and v is not None]
    limit = others[0] if others else add(polynomial(loop.function, outer.bound) or {}, constant(int(outer.inclusive)))
    return start, step, limit


def _minimum(tree: SyntaxTree, node: Node) -> tuple[Node, Node] | None:
    """The two values whose smaller one the expression is."""
    if node.type == "conditional_expression":
        condition = field_of(node, "condition")
        while condition.type == "parenthesized_expression":
            condition = condition.named_children[0]
        a, b = field_of(node, "consequence"), field_of(node, "alternative")
        sign = condition.child_by_field_name("operator")
        if sign is not None and sign.type in ("<", "<="):
            sides = [tree.slice(field_of(condition, side)) for side in ("left", "right")]
            return (a, b) if sides == [tree.slice(a), tree.slice(b)] else None
    if node.type == "call_expression":
        arguments = field_of(node, "arguments").named_children
        if tree.slice(field_of(node, "function")).split("<")[0] in ("std::min", "min") and len(arguments) == 2:
            return arguments[0], arguments[1]
    return None


# --- effects -----------------------------------------------------------------------------------------------------


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
    """What a region does to the world outside it."""

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
        return {a.array for a in self.accesses if a.write}

    @property
    def changing(self) -> set[str]:
        """Names whose value differs between places of the region."""
        return self.declared | set(self.writes)

    def touching(self, array: str) -> list[Access]:
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
    if name not in PURE and name not in _CASTS and not _pure_helper(tree, name):
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
    """What `p[i]` really is: parameter or array, and index, with known pointers such as `p = x + row * n` expanded."""
    name, indices = _base(function.tree, node)
    values = [value for index in indices if (value := polynomial(function, index)) is not None]
    if not name or len(values) != len(indices):
        return None
    for _ in range(8):
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


# --- dependences -------------------------------------------------------------------------------------------------


def separate(accesses: list[tuple[Loop, Access]], changing: set[str]) -> bool:
    """Whether different iterations touch different elements, given all accesses to one array.

    Each access comes with the loop whose iterations are meant: one loop, or several that run over the same values.
    `changing` are names whose value is not fixed while the loop runs; loop variables among them do not matter.
    """
    dimensions = {len(a.index) for _, a in accesses}
    if len(dimensions) != 1:
        return False
    return any(_separate(accesses, changing, d) for d in range(dimensions.pop()))


def _separate(accesses: list[tuple[Loop, Access]], changing: set[str], dimension: int) -> bool:
    """The same for one dimension of the index: a * v + r, where r stays within one stride."""
    ranges = [_range(loop, a, dimension, changing - {loop.variable}) for loop, a in accesses]
    first = ranges[0]
    if not first or not first.stride:
        return False
    for r in ranges:
        if not r or r.stride != first.stride or r.fixed != first.fixed or r.high != first.high:
            return False
    spans = [add(add(first.stride, r.largest, -1), q.smallest) for r in ranges for q in ranges if r and q]
    return all(_positive(span) for span in spans)


def _positive(value: Polynomial) -> bool:
    """Whether the value is at least 1 when all names are: no negative coefficient is left with n = 1 + n'."""
    shifted: Polynomial = {}
    for monomial, c in value.items():
        term = constant(c)
        for atom in monomial:
            term = add(term, multiply(term, {(atom,): 1}))
        shifted = add(shifted, term)
    return add(shifted, constant(-1)).get((), 0) >= 0 and all(c >= 0 for m, c in shifted.items() if m)


@dataclass(frozen=True)
class _Range:
    stride: Polynomial
    """How far the index moves per iteration."""
    fixed: Polynomial
    """What does not change while the loop runs."""
    high: Polynomial
    """What moves in steps of the loop's whole extent."""
    smallest: Polynomial
    largest: Polynomial


def _range(loop: Loop, access: Access, dimension: int, changing: set[str]) -> _Range | None:
    function = loop.function
    inner = _loops_between(loop, access.node)
    value, tile = _expand_tile(loop, access.index[dimension], inner)
    parts = split(function, value, loop.variable)
    step = polynomial(function, loop.step) if loop.step else constant(1)
    if parts is None or step is None:
        return None
    factor, rest = parts
    variables = set(inner) | ({tile[0]} if tile else set())
    fixed = {m: c for m, c in rest.items() if not names_in(function, m) & (variables | changing)}
    moving = {m: c for m, c in rest.items() if m not in fixed}
    low, high = _by_extent(loop, factor, moving, variables)
    smallest, largest = (_extreme(function, low, inner, tile, upper) for upper in (False, True))
    if smallest is None or largest is None:
        return None
    for part, allowed in ((factor, ()), (step, ()), (smallest, ()), (largest, ()), (high, inner)):
        if names_in(function, (atom for m in part for atom in m)) & (variables | changing) - set(allowed):
            return None
    return _Range(multiply(factor, step), fixed, high, smallest, largest)


def _loops_between(loop: Loop, node: Node) -> dict[str, Loop]:
    """Loops inside `loop` and around `node`, by variable."""
    return {
        inner.variable: inner
        for inner in loop.tree.loops
        if inner is not loop and loop in inner.ancestors
        and inner.node.start_byte <= node.start_byte and node.end_byte <= inner.node.end_byte
    }  # fmt: skip


def _expand_tile(
    loop: Loop, value: Polynomial, inner: Mapping[str, Loop]
) -> tuple[Polynomial, tuple[str, Polynomial] | None]:
    """With v replaced by v0 + `v within the tile`, where `loop` is v0's: the name of the latter and the tile's size."""
    for variable, point in inner.items():
        tile = tile_of(point)
        if tile and tile[0] == loop.variable:
            parts = split(loop.function, value, variable)
            if parts is None:
                return value, None
            offset = "__offset"  # reserved to the implementation, so no kernel's name
            replaced = add({(loop.variable,): 1}, {(offset,): 1})
            return add(multiply(parts[0], replaced), parts[1]), (offset, tile[1])
    return value, None


def _by_extent(
    loop: Loop, factor: Polynomial, moving: Polynomial, variables: set[str]
) -> tuple[Polynomial, Polynomial]:
    """`moving` as (what stays small, what moves in multiples of factor * the loop's extent)."""
    bound = polynomial(loop.function, loop.bound)
    extent = multiply(factor, bound) if bound else {}
    if len(extent) != 1 or loop.inclusive:
        return moving, {}
    ((whole, coefficient),) = extent.items()
    high = {}
    for monomial, c in moving.items():
        left = list(monomial)
        for atom in whole:
            if atom in left:
                left.remove(atom)
            else:
                break
        else:
            if set(left) & variables and whole and c % coefficient == 0:
                high[monomial] = c
    return {m: c for m, c in moving.items() if m not in high}, high


def _extreme(
    function: Function, value: Polynomial, inner: Mapping[str, Loop], tile: tuple[str, Polynomial] | None, upper: bool
) -> Polynomial | None:
    """The largest (or smallest) value, with every inner loop's variable replaced by its last (or first) value."""
    result = value
    for variable in (*reversed(tuple(inner)), *((tile[0],) if tile else ())):
        parts = split(function, result, variable)
        if parts is None or len({c > 0 for c in parts[0].values()}) > 1:
            return None
        if not parts[0]:
            continue
        last = upper == all(c > 0 for c in parts[0].values())
        if tile and variable == tile[0]:
            value_there: Polynomial | None = add(tile[1], constant(-1)) if last else {}
        else:
            value_there = _last(inner[variable]) if last else polynomial(function, inner[variable].start)
        if value_there is None:
            return None
        result = add(multiply(parts[0], value_there), parts[1])
    return result


def _last(loop: Loop) -> Polynomial | None:
    tile = tile_of(loop)
    bound = tile[2] if tile else polynomial(loop.function, loop.bound)
    return None if bound is None else add(bound, constant(0 if loop.inclusive else -1))


def independent(loop: Loop) -> bool:
    """Whether the iterations of `loop` touch different memory; scalars are for the caller to judge."""
    known = loop_effects(loop)
    return not known.opaque and all(
        separate([(loop, a) for a in known.touching(array)], known.changing) for array in known.written_arrays
    )


# --- reductions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Reduction:
    """A statement `s = s op value` for an operation that may be reordered."""

    operation: str
    """+, *, max or min."""
    name: str
    statement: Node


def reduction(tree: SyntaxTree, statement: Node) -> Reduction | None:
    """The reduction that a statement is, if it is one over a plain variable."""
    if statement.type == "if_statement":
        return _guarded(tree, statement)
    if statement.type != "expression_statement" or not statement.named_children:
        return None
    node = statement.named_children[0]
    if node.type != "assignment_expression" or field_of(node, "left").type != "identifier":
        return None
    name = tree.slice(field_of(node, "left"))
    value, sign = field_of(node, "right"), field_of(node, "operator").type
    operation = {"+=": "+", "-=": "+", "*=": "*"}.get(sign) or (_plain(tree, name, value) if sign == "=" else None)
    allowed = 0 if sign != "=" else 2 if value.type == "conditional_expression" else 1
    if operation is None or _count(tree, value, name) != allowed:
        return None
    return Reduction(operation, name, statement)


def _count(tree: SyntaxTree, node: Node, name: str) -> int:
    return sum(n.type == "identifier" and tree.slice(n) == name for n in walk(node))


def _plain(tree: SyntaxTree, name: str, value: Node) -> str | None:
    """The operation of `name = value`."""
    if value.type == "binary_expression":
        sign = field_of(value, "operator").type
        sides = [tree.slice(field_of(value, side)) for side in ("left", "right")]
        return sign if (sign in ("+", "*") and name in sides) or (sign == "-" and sides[0] == name) else None
    if value.type == "call_expression":
        function = tree.slice(field_of(value, "function")).split("<")[0].removeprefix("std::")
        arguments = [tree.slice(a) for a in field_of(value, "arguments").named_children]
        return _MAXIMA.get(function) if len(arguments) == 2 and name in arguments else None
    if value.type == "conditional_expression":
        outcomes = tuple(tree.slice(field_of(value, f)) for f in ("consequence", "alternative"))
        return _compared(tree, field_of(value, "condition"), name, outcomes[0], outcomes[1])
    return None


def _compared(tree: SyntaxTree, condition: Node, name: str, chosen: str, otherwise: str) -> str | None:
    """max or min for `x > s ? x : s` and its relatives."""
    while condition.type in ("parenthesized_expression", "condition_clause"):
        condition = condition.named_children[0]
    sign = condition.child_by_field_name("operator")
    if condition.type != "binary_expression" or sign is None or sign.type not in ("<", "<=", ">", ">="):
        return None
    left, right = (tree.slice(field_of(condition, side)) for side in ("left", "right"))
    if name not in (left, right) or {left, right} != {chosen, otherwise}:
        return None
    return "max" if (chosen == left) == (sign.type in (">", ">=")) else "min"


def _guarded(tree: SyntaxTree, statement: Node) -> Reduction | None:
    """`if (x > s) s = x;`."""
    inner = field_of(statement, "consequence")
    if statement.child_by_field_name("alternative") is not None or inner is None:
        return None
    if inner.type == "compound_statement" and len(inner.named_children) == 1:
        inner = inner.named_children[0]
    node = inner.named_children[0] if inner.type == "expression_statement" and inner.named_children else None
    if node is None or node.type != "assignment_expression" or field_of(node, "operator").type != "=":
        return None
    name, value = (tree.slice(field_of(node, side)) for side in ("left", "right"))
    operation = _compared(tree, field_of(statement, "condition"), name, value, name)
    return Reduction(operation, name, statement) if operation and name != value else None


def reductions(loop: Loop) -> dict[str, str] | None:
    """Operation by name for every outer scalar that the loop writes; None where one is written in another way."""
    tree, known = loop.tree, loop_effects(loop)
    found: dict[str, str] = {}
    statements = [s for s in _statements(loop.body) if reduction(tree, s)]
    for name in known.writes:
        own = [r for s in statements if (r := reduction(tree, s)) and r.name == name]
        inside = sum(_count(tree, r.statement, name) for r in own)
        if not own or len({r.operation for r in own}) > 1 or inside != _count(tree, loop.body, name):
            return None
        found[name] = own[0].operation
    return found


def _statements(node: Node) -> Iterator[Node]:
    """Statements at any depth; of a reducing `if`, the whole one."""
    for child in walk(node):
        if child.type in ("expression_statement", "if_statement"):
            yield child
