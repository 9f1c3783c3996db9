"""Rewrites of CUDA kernels and their launches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from mutators.cpp_tree import Edit, Function, Node, Program, walk
from mutators.plan_edit import launch_list
from mutators.rewrites.base import Site, rewrite
from mutators.rewrites.loops import operand
from operators.plan import Launch

BLOCKS = (32, 64, 128, 256, 512, 1024)
RESIDENT = (1, 2, 3, 4, 6, 8)
COARSE = (2, 1, 4, 8, 16)
_QUALIFIER = re.compile(rb"__\w+__(?:\s*\([^()]*\))?\s*\Z")
"""What the grammar does not count to a function."""


def _launches_of(program: Program, function: Function) -> list[tuple[int, Launch]]:
    """Launches of a kernel, with their position among the `[[launch]]` tables."""
    return [
        (index, launch)
        for index, launch in enumerate(program.plan.launches)
        if launch.kernel.split("<")[0].split("::")[-1].strip() == function.name
    ]


def kernels(program: Program) -> Iterator[tuple[Function, int, Launch]]:
    """Functions that exactly one launch uses and that parsed without error."""
    for function in program.functions:
        launches = _launches_of(program, function)
        if len(launches) == 1 and not function.node.has_error:
            yield function, *launches[0]


@rewrite("block_size", "cuda")
def block_size(program: Program) -> Iterator[Site]:
    """Make a launch's fixed block size a tunable."""
    for function, index, launch in kernels(program):
        for axis, size in enumerate(launch.block):
            literal = size.text
            if not literal.isdigit() or int(literal) == 1 or _literal_in(program, function, literal):
                continue
            name = program.fresh("BLOCK" if len(launch.block) == 1 else f"BLOCK_{'XYZ'[axis]}")
            edits = [launch_list(program.text, index, "block", axis, name)]
            if axis < len(launch.grid) and re.search(rf"\b{literal}\b", launch.grid[axis].text):
                grid = re.sub(rf"\b{literal}\b", name, launch.grid[axis].text)
                edits.append(launch_list(program.text, index, "grid", axis, grid))
            if None not in edits:
                values = (int(literal), *(b for b in BLOCKS if b != int(literal)))
                made = tuple(e for e in edits if e)
                yield Site(f"make the block size of {function.name} the tunable {name}", made, {name: values})


def _literal_in(program: Program, function: Function, literal: str) -> bool:
    """Whether the kernel's own code mentions the number, which might mean the block size."""
    return any(n.type == "number_literal" and program.slice(n) == literal for n in walk(function.body))


@rewrite("launch_bounds", "cuda")
def launch_bounds(program: Program) -> Iterator[Site]:
    """Tell the compiler the block size, and how many blocks a multiprocessor should hold at least."""
    for function, _, launch in kernels(program):
        head = program.data[_head(program, function) : function.declarator.start_byte]
        allowed = all(axis.names <= set(program.plan.tune) and _plain(axis.text) for axis in launch.block)
        if b"__launch_bounds__" in head or b"__global__" not in head or not allowed or launch.cluster:
            continue
        threads = " * ".join(operand(axis.text) for axis in launch.block)
        place = function.declarator.start_byte
        resident = program.fresh("RESIDENT")
        plain = (Edit(place, place, f"__launch_bounds__({threads}) "),)
        yield Site(f"launch bounds {threads} for {function.name}", plain)
        wanted = (Edit(place, place, f"__launch_bounds__({threads}, {resident}) "),)
        yield Site(
            f"launch bounds {threads}, {resident} blocks resident, for {function.name}", wanted, {resident: RESIDENT}
        )


def _head(program: Program, function: Function) -> int:
    """Where the line of the function's first qualifier begins."""
    marks = (b";", b"}", b"*/", b"\n\n")
    return max(program.data.rfind(mark, 0, function.declarator.start_byte) for mark in marks) + 1


def _plain(text: str) -> bool:
    """Whether an expression of the plan means the same in C++."""
    return re.fullmatch(r"[\w\s*+()-]+", text) is not None and "**" not in text


@rewrite("coarsen", "cuda")
def coarsen(program: Program) -> Iterator[Site]:
    """Let each thread take several elements, a grid apart, instead of one: `if (i >= n) return;` becomes a loop."""
    for function, index, launch in kernels(program):
        found = guarded_index(program, function)
        if not found or len(launch.grid) != 1:
            continue
        declaration, guard, variable, type_, start, bound = found
        factor = program.fresh("PER_THREAD")
        grid = launch_list(program.text, index, "grid", 0, f"ceil_div({launch.grid[0].text}, {factor})")
        rest = [n for n in function.body.named_children if n.start_byte >= guard.end_byte]
        if grid is None or not rest or len(grid.text) > 480:
            continue
        indent = program.indent_at(declaration.start_byte)
        head = f"for ({type_} {variable} = {start}; {variable} < {bound}; {variable} += gridDim.x * blockDim.x) {{"
        body = program.data[guard.end_byte : rest[-1].end_byte].decode().replace("\n", "\n    ")
        edits = (Edit(declaration.start_byte, rest[-1].end_byte, f"{head}{body}\n{indent}}}"), grid)
        yield Site(f"{factor} elements per thread in {function.name}", edits, {factor: COARSE})


_INDEX = re.compile(r"(?:blockIdx\.x \* blockDim\.x|blockDim\.x \* blockIdx\.x) \+ threadIdx\.x")
PLACES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})
BARRIERS = ("__sync", "__shfl", "__shared__", "__ballot", "__any", "__all", "cooperative_groups", "barrier", "goto")


def mentions_places(program: Program, nodes: Iterable[Node]) -> bool:
    """Whether statements ask which thread they are in, other than by an index that was worked out before."""
    return any(n.type == "identifier" and program.slice(n) in PLACES for node in nodes for n in walk(node))


def guarded_index(program: Program, function: Function) -> tuple[Node, Node, str, str, str, str] | None:
    """The opening `int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;` of a kernel without barriers."""
    statements = [n for n in function.body.named_children if n.type != "comment"]
    text = program.slice(function.body)
    if len(statements) < 3 or any(word in text for word in BARRIERS) or text.count("return") != 1:
        return None
    declaration, guard = statements[0], statements[1]
    match = re.fullmatch(r"(?:const )?([\w ]+?) (\w+) = (.+);", " ".join(program.slice(declaration).split()))
    if declaration.type != "declaration" or guard.type != "if_statement" or not match or not _INDEX.fullmatch(match[3]):
        return None
    condition = " ".join(program.slice(guard).split())
    limit = re.fullmatch(rf"if \({match[2]} >= (\w+)\) (?:return;|\{{ return; \}})", condition)
    if not limit or match[2] in function.assigned or mentions_places(program, statements[1:]):
        return None
    return declaration, guard, match[2], match[1], match[3], limit[1]


def above(program: Program, function: Function) -> int:
    """Where a function begins, with its qualifiers and the comment above it."""
    node = function.node
    while node.parent is not None and node.parent.type in ("linkage_specification", "template_declaration"):
        node = node.parent
    begin, comment = node.start_byte, node.prev_named_sibling
    while match := _QUALIFIER.search(program.data, 0, begin):
        begin = match.start()
    while comment is not None and comment.type == "comment" and program.slice(comment).startswith("//"):
        if program.data[comment.end_byte : begin].strip(b" \t") != b"\n":
            break
        begin, comment = comment.start_byte, comment.prev_named_sibling
    return begin
