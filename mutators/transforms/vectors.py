"""A transform of CUDA kernels that moves neighbouring elements between memory and registers at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree
from mutators.analysis.dataflow import effects
from mutators.analysis.dependence import independent
from mutators.analysis.plan_edit import launch_list
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import Edit, block, reindent
from mutators.analysis.syntax import Node, field_of, walk
from mutators.transforms.base import Site, transform
from mutators.transforms.grid import Above, along_x, changed_scalars, index_letter, kernels
from mutators.transforms.loops import fixed_outside, operand

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
    if not statements or known.opaque or variable in known.declared:
        return []
    moved = {
        array: element
        for array in {a.array for a in known.accesses}
        if (element := _element(function, array))
        and _movable([a.node for a in known.touching(array)], f"{array}[{variable}]", tree, statements)
        and all(_stored(a.node, statements) for a in known.touching(array) if a.write)
    }
    if not moved or (known.written_arrays and not known.written_arrays & set(moved)):
        return []
    pack = above.need(PACK, _PACK)
    if not above.usable:
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
