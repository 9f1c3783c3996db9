"""Which iterations of a loop touch the same memory.

Everything here errs on the side of "not known": sizes are taken to be at least 1 and differently named parameters to be
different memory, which the plan guarantees; nothing else is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree
from mutators.analysis.dataflow import Access, loop_effects
from mutators.analysis.polynomial import Polynomial, add, constant, multiply, names_in, polynomial, split
from mutators.analysis.syntax import Node, field_of


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
    # Two iterations are one stride or more apart, so they cannot meet if no access strays as far as a stride.
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
    # Substituting n = 1 + n' with n' >= 0 makes the sign of each coefficient decide: enough, though not necessary.
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
    """Distance that the index moves per iteration."""
    fixed: Polynomial
    """Part that does not change while the loop runs."""
    high: Polynomial
    """Part that moves in steps of the loop's whole extent."""
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
    # The index is factor * v + fixed + moving, where only `moving` depends on the loops inside this one.
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
    """The index with v = v0 + offset in place of v, where `loop` is v0's, and the offset's name and the tile's size."""
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
    # In x[(k * n + i) * m + j], where i runs to n, the term k * n * m moves in whole extents of the i-loop: different k
    # never make two iterations of i meet.
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
