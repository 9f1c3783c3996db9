"""A transform that gives each thread of a CUDA kernel a small rectangle of results, which share what they load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree, body_text
from mutators.analysis.dataflow import effects, loop_effects
from mutators.analysis.plan_edit import launch_list
from mutators.analysis.polynomial import names_in
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import Edit, block, reindent
from mutators.analysis.syntax import Node
from mutators.transforms.base import Site, transform
from mutators.transforms.grid import Axis, guarded, kernels
from mutators.transforms.loops import operand

EACH = (4, 1, 2, 8)


@dataclass(frozen=True)
class _Axis:
    """One index of the result that a thread works on."""

    variable: str
    letter: str
    bound: str
    first: str
    """Name of the first index that is the thread's."""
    count: str
    """Name of the tunable that says how many it has."""
    step: str
    """Name of a loop variable."""

    def at(self, *, inside: bool) -> str:
        """The declaration of the index at a step; `inside`: no further than the last one there is."""
        place, bound = f"{self.first} + {self.step} * int(blockDim.{self.letter})", operand(self.bound)
        # Threads at the edge compute the last result several times rather than branch in the innermost loop.
        value = f"{place} < {bound} ? {place} : int({bound} - 1)" if inside else place
        return f"const int {self.variable} = {value};"


@dataclass(frozen=True)
class _Work:
    """`ACC s = init; ...; for l { s += ...; } use(s);`, all that a kernel does with its indices."""

    function: Function
    nest: tuple[Loop, ...]
    """Perfectly nested, outermost first."""
    accumulators: dict[str, str]
    """Type by name."""
    constants: tuple[Node, ...]
    """Other declarations before the nest."""
    tail: tuple[Node, ...]

    def part(self, texts: dict[str, str], *statements: str) -> tuple[str, ...]:
        """Statements, preceded by those constants that they use."""
        tree, used = self.function.tree, names_in(self.function, statements)
        kept = [node for node in self.constants if effects(self.function, node).declared & used]
        return (*(tree.substitute(node, texts) for node in kept), *statements)


@transform("thread_tile", "cuda")
def thread_tile(tree: SyntaxTree) -> Iterator[Site]:
    """Let each thread compute several results at once, in registers, from what it loads once for all of them."""
    for function, index, launch in kernels(tree):
        found = guarded(tree, function, launch)
        if not found or found.within or len(found.axes) > 2 or {axis.type for axis in found.axes} != {"int"}:
            continue
        if launch.cluster or launch.cooperative or len(launch.grid) != len(launch.block):
            continue
        axes = [_axis(tree, axis) for axis in found.axes]
        work = _work(tree, function, axes, [n for n in found.rest if n.type != "comment"])
        if not work:
            continue
        at = ["xyz".index(axis.letter) for axis in axes]
        grid = [
            launch_list(tree.text, index, "grid", n, f"ceil_div({launch.grid[n].text}, {axis.count})")
            for n, axis in zip(at, axes, strict=True)
        ]
        made = tuple(edit for edit in grid if edit)
        if len(made) < len(axes):
            continue
        text = reindent(_tiled(tree, axes, work), "", tree.indent_at(found.declaration.start_byte))
        edits = (Edit(found.declaration.start_byte, found.end_byte, text), *made)
        sizes = " x ".join(axis.count for axis in axes)
        yield Site(f"{sizes} results for each thread of {function.name}", edits, {a.count: EACH for a in axes})


def _axis(tree: SyntaxTree, axis: Axis) -> _Axis:
    names = (f"{axis.variable}0", f"PER_{axis.variable.upper()}", f"{axis.variable}_step")
    return _Axis(axis.variable, axis.letter, axis.bound, *map(tree.fresh, names))


def _work(tree: SyntaxTree, function: Function, axes: Sequence[_Axis], statements: Sequence[Node]) -> _Work | None:
    """The rest of such a kernel, where it is one sum for each result."""
    tops = function.outer_loops
    at = [n for n, node in enumerate(statements) if node.start_byte in tops]
    if len(at) != 1 or at[0] + 1 == len(statements):
        return None
    nest = [tops[statements[at[0]].start_byte]]
    while inner := nest[-1].only_child:
        nest.append(inner)
    known, operations = loop_effects(nest[0]), reductions(nest[-1])
    if known.opaque or known.written_arrays or not operations or nest[-1].children or any(x.exits for x in nest):
        return None
    ends = [tree.slice(n) for x in nest for n in x.ends]
    if names_in(function, ends) & ({axis.variable for axis in axes} | set(operations)) or any(x.pragmas for x in nest):
        return None
    head, tail = statements[: at[0]], statements[at[0] + 1 :]
    accumulators, constants = {}, []
    for node in head:
        declared = function.declared_at(node)
        if node.type != "declaration" or effects(function, node).opaque:
            return None
        if {d.name for d in declared} & set(operations):
            only = len(declared) == 1 and len(function.declarations[declared[0].name]) == 1
            if not only or declared[0].pointer or declared[0].array or declared[0].type == "auto":
                return None
            accumulators[declared[0].name] = declared[0].type
        elif all(function.definition(d.name) for d in declared):
            constants.append(node)
        else:
            return None
    ends_well = not any(effects(function, n).opaque or n.type == "preproc_call" for n in tail)
    changed = set(effects(function, *tail).writes) - set(accumulators)
    if set(accumulators) != set(operations) or not ends_well or changed:
        return None
    return _Work(function, tuple(nest), accumulators, tuple(constants), tuple(tail))


def _tiled(tree: SyntaxTree, axes: Sequence[_Axis], work: _Work) -> str:
    """The kernel's body, for column 0."""
    tiles = {name: tree.fresh(f"{name}_tile") for name in work.accumulators}
    place = "".join(f"[{axis.step}]" for axis in axes)
    texts = {name: f"{tile}{place}" for name, tile in tiles.items()}

    def every(*lines: str) -> str:
        text = "\n".join(lines)
        for axis in reversed(axes):
            header = f"for (int {axis.step} = 0; {axis.step} < {axis.count}; {axis.step}++)"
            text = f"#pragma unroll\n{block(header, text, indent='')}"
        return text

    inside, beyond = ([axis.at(inside=which) for axis in axes] for which in (True, False))
    starts = []
    for name in work.accumulators:
        value = work.function.declarations[name][0].value
        starts.append(f"{texts[name]} = {tree.substitute(value, texts) if value else '0'};")
    sums = every(*inside, *work.part(texts, body_text(work.nest[-1], texts)))
    for loop in reversed(work.nest):
        sums = block(loop.header, sums, indent="")
    ranges = work.part({}, *(loop.header for loop in work.nest))[: -len(work.nest)]
    indent = tree.indent_at(work.tail[0].start_byte)
    tail = work.part(texts, reindent(tree.substitute(work.tail, texts), indent, ""))
    exists = " && ".join(f"{axis.variable} < {operand(axis.bound)}" for axis in axes)
    lines = [
        f"int {axis.first} = blockIdx.{axis.letter} * blockDim.{axis.letter} * {axis.count} + threadIdx.{axis.letter};"
        for axis in axes
    ]
    sizes = "".join(f"[{axis.count}]" for axis in axes)
    lines.append(f"if ({' || '.join(f'{axis.first} >= {axis.bound}' for axis in axes)}) return;")
    lines += [f"{type_} {tiles[name]}{sizes};" for name, type_ in work.accumulators.items()]
    lines.append(every(*inside, *work.part({}, *starts)))
    lines += [*ranges, sums, every(*beyond, block(f"if ({exists})", *tail, indent=""))]
    return "\n".join(lines)
