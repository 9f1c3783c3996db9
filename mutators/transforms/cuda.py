"""Transforms of CUDA kernels and their launches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutators.analysis.cpp_tree import Function, SyntaxTree
from mutators.analysis.plan_edit import launch_list
from mutators.analysis.source_text import Edit, block, reindent
from mutators.analysis.syntax import walk
from mutators.transforms.base import Site, transform
from mutators.transforms.grid import along_x, changed_scalars, kernels
from mutators.transforms.loops import operand

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
