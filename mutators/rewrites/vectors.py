"""A rewrite of CUDA kernels that moves neighbouring elements between memory and registers at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mutators.cpp_tree import Edit, Function, Loop, Node, Program, block, field_of, reindent, walk
from mutators.dataflow import effects, independent, reductions
from mutators.plan_edit import launch_list
from mutators.rewrites.base import Site, rewrite
from mutators.rewrites.cuda import above, guarded_index, kernels
from mutators.rewrites.loops import fixed_outside, operand

SIZES = (4, 2, 1, 8)
PACK = "Adjacent"
_PACK = f"""// Neighbours that are moved at once, 16 bytes at most.
template <class V, int N> struct alignas(sizeof(V) * N < 16 ? sizeof(V) * N : 16) {PACK} {{
    V at[N];
}};

"""


@rewrite("vectorize", "cuda")
def vectorize(program: Program) -> Iterator[Site]:
    """Let a thread take neighbouring elements, which it loads and stores at once as vectors."""
    for function, index, launch in kernels(program):
        found = guarded_index(program, function)
        if found and len(launch.grid) == 1:
            declaration, guard, variable, type_, start, bound = found
            rest = [n for n in function.body.named_children if n.start_byte >= guard.end_byte]
            count = program.fresh("VECTOR")
            lines = _vectorized(program, function, rest, variable, type_, bound, count)
            grid = launch_list(program.text, index, "grid", 0, f"ceil_div({launch.grid[0].text}, {count})")
            if lines and grid:
                first = program.fresh(f"{variable}0")
                text = "\n".join(
                    (f"{type_} {first} = ({start}) * {count};", f"if ({first} >= {bound}) return;", *lines)
                )
                text = reindent(text, "", program.indent_at(declaration.start_byte))
                edits = (Edit(declaration.start_byte, rest[-1].end_byte, text), grid, *_helper(program, function))
                yield Site(f"vectors of {count} in {function.name}", edits, {count: SIZES})
    for loop in program.loops:
        yield from _strided(program, loop)


def _strided(program: Program, loop: Loop) -> Iterator[Site]:
    """A loop whose steps are a whole grid's threads."""
    function = loop.function
    if function.name not in program.launched or loop.parent or loop.inclusive or loop.exits or loop.pragmas:
        return
    if "threadIdx.x" not in loop.start_text or "gridDim.x" not in loop.step_text or not fixed_outside(loop, loop):
        return
    if reductions(loop) is None or not independent(loop):
        return
    count = program.fresh("VECTOR")
    statements = list(loop.body.named_children) if loop.body.type == "compound_statement" else [loop.body]
    lines = _vectorized(program, function, statements, loop.variable, loop.type, loop.bound_text, count)
    if lines:
        first = program.fresh(f"{loop.variable}0")
        head = (
            f"for ({loop.type} {first} = ({loop.start_text}) * {count}; {first} < {loop.bound_text}; "
            f"{first} += {operand(loop.step_text)} * {count})"
        )
        edits = (*program.replace(loop, block(head, *lines, indent="")), *_helper(program, function))
        yield Site(f"vectors of {count} in {loop.place}", edits, {count: SIZES})


def _helper(program: Program, function: Function) -> tuple[Edit, ...]:
    place = above(program, function)
    return () if _PACK in program.text else (Edit(place, place, _PACK),)


def _vectorized(
    program: Program, function: Function, statements: Sequence[Node], variable: str, type_: str, bound: str, count: str
) -> list[str]:
    """Statements, for column 0, that do for `count` values what others do for one; none where no array allows it."""
    known = effects(function, *(n for n in statements if n.type != "comment"))
    if not statements or known.opaque or (PACK in program.names and _PACK not in program.text):
        return []
    moved = {}
    for array in {a.array for a in known.accesses}:
        element, nodes = _element(function, array), [a.node for a in known.touching(array)]
        written = [a.node for a in known.touching(array) if a.write]
        alone = all(" ".join(program.slice(n).split()) == f"{array}[{variable}]" for n in nodes)
        if element and alone and all(_unconditional(n, statements) for n in written):
            moved[array] = element
    if not moved or (known.written_arrays and not known.written_arrays & set(moved)):
        return []
    first, lane = program.fresh(f"{variable}0"), program.fresh("lane")
    packs = {array: program.fresh(f"{array}_vector") for array in moved}
    edits = [
        Edit(n.start_byte, n.end_byte, f"{packs[program.slice(field_of(n, 'argument'))]}.at[{lane}]")
        for statement in statements
        for n in walk(statement)
        if n.type == "subscript_expression" and program.slice(field_of(n, "argument")) in moved
    ]
    begin, end = statements[0].start_byte, statements[-1].end_byte
    indent = program.indent_at(begin)
    many, one = (reindent(program.edited(begin, end, which), indent, "") for which in (edits, []))
    loads, stores = [], []
    for array, name in sorted(packs.items()):
        kind = f"{PACK}<{moved[array]}, {count}>"
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
    """The type that a pointer parameter points to."""
    declared = function.declarations.get(array, ())
    if len(declared) != 1 or declared[0].node not in function.parameters or not declared[0].pointer:
        return None
    return declared[0].type


def _unconditional(node: Node, statements: Sequence[Node]) -> bool:
    """Whether an element is the target of an assignment that is a statement of its own among these."""
    assignment = node.parent
    statement = assignment.parent if assignment else None
    return statement in statements and statement is not None and statement.type == "expression_statement"
