"""Transforms of CUDA kernels and their launches, and those that give one thread's rows and sums to many threads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree, body_text
from mutators.analysis.dataflow import Effects, effects, loop_effects
from mutators.analysis.dependence import independent, separate
from mutators.analysis.plan_edit import launch_list
from mutators.analysis.polynomial import names_in
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import Edit, block, reindent
from mutators.analysis.syntax import Node, field_of, walk
from mutators.transforms.base import Site, transform
from mutators.transforms.grid import Above, along_x, changed_scalars, kernels
from mutators.transforms.loops import fixed_outside, operand
from operators.plan.launch import Launch

WARP = 32
LANES = (32, 16, 8, 4, 2)
"""Numbers of threads of a warp that may share a row."""
SUMMED = frozenset({"ACC", "float", "double", "int", "unsigned", "long long"})
"""Types whose values threads can exchange."""
COUNTED = frozenset({"int", "unsigned", "unsigned int", "long", "long long", "size_t", "int64_t", "uint64_t"})
"""Types of loop variables that a whole block's threads do not overflow."""

_COMBINED = {
    "+": "value + other",
    "max": "other > value ? other : value",
    "min": "other < value ? other : value",
}
_WORD = {"+": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Team:
    """Threads that share a row: a block, or neighbours in a warp."""

    name: str
    rank: str
    """A thread's number in its team, as an operand."""
    size: str

    def barrier(self, above: Above) -> str:
        """The statement at which all wait, and after which they see what the others wrote."""
        return "__syncthreads();" if self is BLOCK else f"__syncwarp({_mask(above)}<{self.size}>());"

    def combined(self, above: Above, operation: str, value: str) -> str:
        """The values of all threads, combined, for every thread."""
        kind, arguments = ("block", "") if self is BLOCK else ("lanes", f"<{self.size}>")
        name = f"{kind}_{_WORD[operation]}"
        made = _of_block(name, operation) if self is BLOCK else _of_lanes(name, operation, _mask(above))
        return f"{above.need(name, made)}{arguments}({value})"


BLOCK = Team("a block", "threadIdx.x", "blockDim.x")


def _some_lanes(count: str) -> Team:
    """The team of neighbours in a warp, as many as a tunable says, a power of two."""
    return Team(f"{count} threads", f"(threadIdx.x % {count})", count)


def _mask(above: Above) -> str:
    text = block(
        "template <int COUNT> __device__ __forceinline__ unsigned row_lanes()",
        f"return (0xffffffffu >> ({WARP} - COUNT)) << (threadIdx.x % {WARP} / COUNT * COUNT);",
        indent="",
    )
    return above.need(
        "row_lanes", f"// Who shares this thread's row: others of the warp may be elsewhere, or gone.\n{text}"
    )


def _exchange(mask: str, half: str, operation: str) -> str:
    return block(
        f"for (int lanes = {half}; lanes; lanes /= 2)",
        f"const V other = __shfl_xor_sync({mask}, value, lanes);",
        f"value = {_COMBINED[operation]};",
        indent="",
    )


def _of_block(name: str, operation: str) -> str:
    """The device function that combines one value of every thread of a block."""
    return block(
        f"template <class V> __device__ __forceinline__ V {name}(V value)",
        _exchange("0xffffffffu", str(WARP // 2), operation),
        "__shared__ V parts[32];",
        "__syncthreads();  // an earlier call may still be read",
        "if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;",
        "__syncthreads();",
        "value = parts[0];",
        block(
            "for (int warp = 1; warp < blockDim.x / 32; warp++)",
            "const V other = parts[warp];",
            f"value = {_COMBINED[operation]};",
            indent="",
        ),
        "return value;",
        indent="",
    )


def _of_lanes(name: str, operation: str, mask: str) -> str:
    return block(
        f"template <int COUNT, class V> __device__ __forceinline__ V {name}(V value)",
        _exchange(f"{mask}<COUNT>()", "COUNT / 2", operation),
        f"__syncwarp({mask}<COUNT>());",
        "return value;",
        indent="",
    )


@transform("share_rows", "cuda")
def share_rows(tree: SyntaxTree) -> Iterator[Site]:
    """Give each row to a block, or some threads of a warp: loops are dealt out, sums and maxima combined."""
    for function, index, launch in kernels(tree):
        threads = _threads(tree, launch)
        found = along_x(tree, function, launch) if threads else None
        if not found or not threads:
            continue
        statements, axis = [n for n in found.rest if n.type != "comment"], found.axis
        lanes = tree.fresh("THREADS_PER_ROW")
        narrow = f"ceil_div({operand(axis.count)} * {lanes}, {operand(threads)})"
        for team, row, grid, tune in (
            (BLOCK, "blockIdx.x", axis.count, {}),
            (_some_lanes(lanes), f"({axis.start}) / {lanes}", narrow, {lanes: LANES}),
        ):
            above = Above(tree, function)
            dealt = _dealt(tree, function, statements, team, above)
            wider = launch_list(tree.text, index, "grid", 0, grid)
            at = next((n for n in walk(found.declaration) if tree.slice(n) == axis.start), None)
            if dealt and wider and at and above.usable:
                edits = (Edit(at.start_byte, at.end_byte, row), wider, *dealt, *above.edits)
                yield Site(f"{team.name} for each of `{axis.bound}` in {function.name}", edits, tune)


def _threads(tree: SyntaxTree, launch: Launch) -> str | None:
    """The size of a launch's blocks, where all are whole warps along one axis."""
    if len(launch.block) != 1 or len(launch.grid) != 1 or launch.cluster or launch.cooperative:
        return None
    # The shuffles below name all 32 lanes of a warp: with a part of one missing their result is undefined.
    text = launch.block[0].text
    sizes = tree.plan.tune.get(text, (int(text),) if text.isdigit() else ())
    return text if sizes and all(size % WARP == 0 for size in sizes) else None


@dataclass(frozen=True)
class _Part:
    """A statement of a row's work, and what it does to memory."""

    node: Node
    known: Effects
    loop: Loop | None = None
    """None: every thread does the same."""
    header: frozenset[str] = frozenset()
    """Arrays that the loop's range is read from."""
    combined: bool = False
    """Whether it ends with a barrier."""

    @property
    def touched(self) -> set[str]:
        return {a.array for a in self.known.accesses} | self.header


def _dealt(
    tree: SyntaxTree, function: Function, statements: Sequence[Node], team: Team, above: Above
) -> tuple[Edit, ...]:
    """The edits that deal loops out among a team's threads; none where that might change what is computed."""
    loops = function.outer_loops
    edits: list[Edit] = []
    since: list[_Part] = []  # the last barrier
    for node in statements:
        if node.type == "preproc_call":
            continue
        loop = loops.get(node.start_byte)
        part = _loop_part(loop) if loop else _plain_part(function, node)
        if part is None:
            return ()
        # Threads run apart between barriers: what one writes and another touches needs a barrier between the two.
        if any(_conflict(earlier, part) for earlier in since):
            place = loop.begin if loop else node.start_byte
            edits.append(Edit(place, place, f"{team.barrier(above)}\n{tree.indent_at(place)}"))
            since = []
        since = [] if part.combined else [*since, part]
        edits += _shared_loop(tree, loop, team, above) if loop else _once(tree, part, team)
    return tuple(edits) if any(n.start_byte in loops for n in statements) else ()


def _loop_part(loop: Loop) -> _Part | None:
    function, operations = loop.function, reductions(loop)
    if operations is None or loop.exits or not fixed_outside(loop, loop) or not independent(loop):
        return None
    types = {function.type_of(name) for name in operations}
    if set(operations.values()) - set(_COMBINED) or types - SUMMED or loop.type not in COUNTED:
        return None
    header = effects(function, *loop.ends)
    known = loop_effects(loop)
    if not _of_parameters(function, known) or not _of_parameters(function, header) or known.declared & _outer(function):
        return None
    return _Part(loop.node, known, loop, frozenset(a.array for a in header.accesses), combined=bool(operations))


def _plain_part(function: Function, node: Node) -> _Part | None:
    """A statement without control flow, which every thread may do alike, but for what it stores; None for others."""
    if node.type not in ("declaration", "expression_statement"):
        return None
    known = effects(function, node)
    lasting = known.writes or node.type == "declaration"  # what the others would miss if one did it
    if known.opaque or not _of_parameters(function, known) or (known.written_arrays and lasting):
        return None
    return _Part(node, known)


def _of_parameters(function: Function, known: Effects) -> bool:
    """Whether all memory is reached through parameters that stay what they are; each thread has its own of the rest."""
    for access in known.accesses:
        declared = function.declarations.get(access.array, ())
        passed = len(declared) == 1 and declared[0].node in function.parameters
        if access.array in function.assigned or (access.write and not passed) or (declared and not passed):
            return False
    return True


def _outer(function: Function) -> set[str]:
    """Names of parameters and of the body's own declarations."""
    outer = {*function.parameters, *function.body.named_children}
    return {name for name, listed in function.declarations.items() if any(d.node in outer for d in listed)}


def _conflict(first: _Part, second: _Part) -> bool:
    """Whether one writes what the other touches, other than each thread its own."""
    shared = first.known.written_arrays & second.touched | second.known.written_arrays & first.touched
    if not shared:
        return False
    if not first.loop or not second.loop or shared & (first.header | second.header):
        return True
    moving = first.loop.function.assigned  # between the loops, perhaps
    if _values(first.loop) != _values(second.loop) or names_in(first.loop.function, _values(first.loop)[1:]) & moving:
        return True
    both = ((first.loop, first.known), (second.loop, second.known))
    changing = first.known.changing | second.known.changing | moving
    return not all(
        separate([(loop, a) for loop, known in both for a in known.touching(array)], changing) for array in shared
    )


def _values(loop: Loop) -> tuple[str, str, str]:
    """Equal for loops whose n-th iterations have equal variables, where these expressions keep their values."""
    return loop.variable, loop.start_text, loop.step_text


def _shared_loop(tree: SyntaxTree, loop: Loop, team: Team, above: Above) -> tuple[Edit, ...]:
    """The loop with every team-size-th iteration for each thread, and what it reduces combined after it."""
    operations = reductions(loop) or {}
    sums = {name: above.fresh(f"{name}_part") for name, operation in operations.items() if operation == "+"}
    step = "" if loop.step is None else f" * {operand(loop.step_text)}"
    # Not unsigned, where the start may be negative and the variable wide.
    first = team.rank + step if loop.start_text == "0" else f"{operand(loop.start_text)} + int({team.rank}){step}"
    relation = "<=" if loop.inclusive else "<"
    head = (
        f"for ({loop.type} {loop.variable} = {first}; {loop.variable} {relation} {loop.bound_text}; "
        f"{loop.variable} += {team.size}{step})"
    )
    lines = [f"{loop.function.type_of(name)} {part} = 0;" for name, part in sums.items()]
    lines += [*loop.pragma_texts, block(head, body_text(loop, sums), indent="")]
    for name, operation in operations.items():
        value = team.combined(above, operation, sums.get(name, name))
        lines.append(f"{name} += {value};" if operation == "+" else f"{name} = {value};")
    return tree.replace(loop, *lines)


def _once(tree: SyntaxTree, part: _Part, team: Team) -> tuple[Edit, ...]:
    """The edits by which one thread stores what a statement stores."""
    if not part.known.written_arrays:
        return ()
    place = part.node.start_byte
    return (Edit(place, place, f"if ({team.rank} == 0) "),)


@transform("sum_before_atomic", "cuda")
def sum_before_atomic(tree: SyntaxTree) -> Iterator[Site]:
    """Add up what a block's threads would each add to a result, so that one thread does so for all."""
    for function, _, launch in kernels(tree):
        found = along_x(tree, function, launch)
        returns = any(n.type == "return_statement" for n in walk(function.body))
        if not _threads(tree, launch) or (returns and not found):
            continue
        statements = [n for n in function.body.named_children if n.type != "comment"]
        for statement in statements[-1:] if found else statements:
            added = _added(tree, function, statement)
            if not added:
                continue
            target, value, type_ = added
            above, part = Above(tree, function), tree.fresh("part")
            if found:
                indent, begin = tree.indent_at(found.guard.start_byte), found.guard.start_byte
                inside = tree.data[found.guard.end_byte : statement.start_byte].decode().strip()
                body = [reindent(inside, indent, "")] if inside else []
                lines = [
                    f"{type_} {part} = 0;",
                    block(f"if ({found.axis.variable} < {found.axis.bound})", *body, f"{part} = {value};", indent=""),
                    f"{part} = {BLOCK.combined(above, '+', part)};",
                ]
            else:
                indent, begin = tree.indent_at(statement.start_byte), statement.start_byte
                lines = [f"const {type_} {part} = {BLOCK.combined(above, '+', f'{type_}({value})')};"]
            lines.append(f"if (threadIdx.x == 0) atomicAdd({target}, {part});")
            text = f"\n{indent}".join(reindent(line, "", indent) for line in lines)
            if above.usable:
                edits = (Edit(begin, statement.end_byte, text), *above.edits)
                yield Site(f"add up a block's `{value}` before `{target}` in {function.name}", edits)


def _added(tree: SyntaxTree, function: Function, statement: Node) -> tuple[str, str, str] | None:
    """Target, value and type of `atomicAdd(parameter, value);`."""
    call = statement.named_children[0] if statement.type == "expression_statement" else None
    if call is None or call.type != "call_expression" or tree.slice(field_of(call, "function")) != "atomicAdd":
        return None
    arguments = field_of(call, "arguments").named_children
    declared = function.declarations.get(tree.slice(arguments[0]), ()) if len(arguments) == 2 else ()
    if len(declared) != 1 or declared[0].node not in function.parameters or declared[0].type not in SUMMED:
        return None
    if declared[0].name in function.assigned:
        return None  # perhaps another element for each thread
    return declared[0].name, tree.slice(arguments[1]), declared[0].type


# --- launches ---------------------------------------------------------------------------------------------------------


BLOCKS = (32, 64, 128, 256, 512, 1024)
RESIDENT = (1, 2, 3, 4, 6, 8)
COARSE = (2, 1, 4, 8, 16)


@transform("block_size", "cuda")
def block_size(tree: SyntaxTree) -> Iterator[Site]:
    """Make a launch's fixed block size a tunable."""
    for function, index, launch in kernels(tree):
        for axis, size in enumerate(launch.block):
            literal = size.text
            # 256 in the kernel's own code may mean the block size, and would no longer agree with it.
            if not literal.isdigit() or int(literal) == 1 or _literal_in(tree, function, literal):
                continue
            name = tree.fresh("BLOCK" if len(launch.block) == 1 else f"BLOCK_{'XYZ'[axis]}")
            edits = [launch_list(tree.text, index, "block", axis, name)]
            if axis < len(launch.grid) and re.search(rf"\b{literal}\b", launch.grid[axis].text):
                grid = re.sub(rf"\b{literal}\b", name, launch.grid[axis].text)
                edits.append(launch_list(tree.text, index, "grid", axis, grid))
            if None not in edits:
                values = (int(literal), *(b for b in BLOCKS if b != int(literal)))
                made = tuple(e for e in edits if e)
                yield Site(f"make the block size of {function.name} the tunable {name}", made, {name: values})


def _literal_in(tree: SyntaxTree, function: Function, literal: str) -> bool:
    """Whether the kernel's own code mentions the number, which might mean the block size."""
    return any(n.type == "number_literal" and tree.slice(n) == literal for n in walk(function.body))


@transform("launch_bounds", "cuda")
def launch_bounds(tree: SyntaxTree) -> Iterator[Site]:
    """Tell the compiler the block size, and how many blocks a multiprocessor should hold at least."""
    for function, _, launch in kernels(tree):
        head = tree.data[_head(tree, function) : function.declarator.start_byte]
        allowed = all(axis.names <= set(tree.plan.tune) and _plain(axis.text) for axis in launch.block)
        if b"__launch_bounds__" in head or b"__global__" not in head or not allowed or launch.cluster:
            continue
        threads = " * ".join(operand(axis.text) for axis in launch.block)
        place = function.declarator.start_byte
        resident = tree.fresh("RESIDENT")
        plain = (Edit(place, place, f"__launch_bounds__({threads}) "),)
        yield Site(f"launch bounds {threads} for {function.name}", plain)
        wanted = (Edit(place, place, f"__launch_bounds__({threads}, {resident}) "),)
        yield Site(
            f"launch bounds {threads}, {resident} blocks resident, for {function.name}", wanted, {resident: RESIDENT}
        )


def _head(tree: SyntaxTree, function: Function) -> int:
    """Where the line of the function's first qualifier begins."""
    marks = (b";", b"}", b"*/", b"\n\n")
    return max(tree.data.rfind(mark, 0, function.declarator.start_byte) for mark in marks) + 1


def _plain(text: str) -> bool:
    """Whether an expression of the plan means the same in C++."""
    return re.fullmatch(r"[\w\s*+()-]+", text) is not None and "**" not in text


@transform("coarsen", "cuda")
def coarsen(tree: SyntaxTree) -> Iterator[Site]:
    """Let each thread take several elements, a grid apart, instead of one: `if (i >= n) return;` becomes a loop."""
    for function, index, launch in kernels(tree):
        found = along_x(tree, function, launch, within=True)
        if not found or changed_scalars(function, found.rest):
            continue
        factor = tree.fresh("PER_THREAD")
        grid = launch_list(tree.text, index, "grid", 0, f"ceil_div({launch.grid[0].text}, {factor})")
        if grid is None or len(grid.text) > 480:
            continue  # expressions of plans have 500 characters at most
        indent = tree.indent_at(found.declaration.start_byte)
        axis = found.axis
        step = f"{axis.variable} += gridDim.x * blockDim.x"
        head = f"for ({axis.type} {axis.variable} = {axis.start}; {axis.variable} < {axis.bound}; {step})"
        first, last = found.rest[0], found.rest[-1]
        body = tree.data[first.start_byte : last.end_byte].decode()
        text = block(head, reindent(body, tree.indent_at(first.start_byte), ""), indent=indent)
        edits = (Edit(found.declaration.start_byte, found.end_byte, text), grid)
        yield Site(f"{factor} elements per thread in {function.name}", edits, {factor: COARSE})
