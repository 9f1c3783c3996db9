"""Transforms of sums and maxima: tiles of accumulators, in registers and for each thread of a CUDA kernel; independent
partial results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutators.analysis.cpp_tree import Function, Loop, SyntaxTree, body_text
from mutators.analysis.dataflow import effects, loop_effects
from mutators.analysis.dependence import independent
from mutators.analysis.plan_edit import launch_list
from mutators.analysis.polynomial import names_in
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import Edit, block, header, reindent
from mutators.analysis.syntax import Node, walk
from mutators.transforms.base import Site, transform
from mutators.transforms.grid import Axis, guarded, kernels
from mutators.transforms.loops import fixed_outside, operand, tile_headers

TILES = (64, 16, 32, 128, 256)
ROW_TILES = (4, 1, 2, 6, 8)
COLUMN_TILES = (32, 8, 16, 64)
LANES = (16, 4, 8, 32)
EACH = (4, 1, 2, 8)


@dataclass(frozen=True, eq=False)
class _Sums:
    """`ACC s = init; ...; for l { s += ...; } use(s);`, with other declarations before the loop."""

    function: Function
    inner: Loop
    """The loop that sums."""
    accumulators: dict[str, str]
    """Type by name."""
    constants: tuple[Node, ...]
    """The other declarations."""
    tail: tuple[Node, ...]

    def part(self, texts: dict[str, str], *statements: str) -> tuple[str, ...]:
        """Statements for a new place, preceded by those constants that they use."""
        used = names_in(self.function, statements)
        kept = [node for node in self.constants if effects(self.function, node).declared & used]
        return (*(self.function.tree.substitute(node, texts) for node in kept), *statements)

    def start(self, texts: dict[str, str]) -> tuple[str, ...]:
        """Statements that give the accumulators, by what `texts` calls them, their initial values."""
        assigned = []
        for name in self.accumulators:
            value = self.function.declarations[name][0].value
            assigned.append(f"{texts[name]} = {self.function.tree.substitute(value, texts) if value else '0'};")
        return self.part(texts, *assigned)

    def update(self, texts: dict[str, str]) -> tuple[str, ...]:
        """The inner loop's body."""
        return self.part(texts, body_text(self.inner, texts))

    def finish(self, texts: dict[str, str]) -> tuple[str, ...]:
        """The statements that use the accumulators at the end."""
        tree = self.function.tree
        indent = tree.indent_at(self.tail[0].start_byte)
        return self.part(texts, reindent(tree.substitute(self.tail, texts), indent, ""))


@dataclass(frozen=True, eq=False)
class _LoopOfSums(_Sums):
    """`for j { ... }` around them, where j-iterations are independent."""

    loop: Loop


def _loop_of_sums(loop: Loop) -> _LoopOfSums | None:
    """The pattern, if the loop has it and its parts may run one after the other for a whole tile."""
    if not loop.unit_step or loop.within("collapse") or loop.exits or len(loop.children) != 1:
        return None
    inner = loop.children[0]
    if inner.node not in loop.statements or inner.pragmas or inner.children or not fixed_outside(inner, loop):
        return None
    position = loop.statements.index(inner.node)
    head, tail = loop.statements[:position], loop.statements[position + 1 :]
    if not tail or any(node.type != "declaration" for node in head) or not fixed_outside(loop, loop):
        return None
    accumulators: dict[str, str] = {}
    constants = []
    for node in head:
        declared = loop.function.declared_at(node)
        if len(declared) == 1 and declared[0].name in loop_effects(inner).writes and _plain(loop, declared[0].name):
            only = declared[0]
            accumulators[only.name] = only.type
        elif all(loop.function.definition(d.name) for d in declared):
            constants.append(node)
        else:
            return None
    found = _LoopOfSums(loop.function, inner, accumulators, tuple(constants), tail, loop)
    return found if accumulators and _separable(found) else None


def _plain(loop: Loop, name: str) -> bool:
    declared = loop.function.declarations[name]
    return len(declared) == 1 and not (declared[0].pointer or declared[0].array) and declared[0].type != "auto"


def _separable(pattern: _LoopOfSums) -> bool:
    """Whether the inner loop changes nothing but accumulators, and the tail only what is its own iteration's."""
    loop, inner = pattern.loop, loop_effects(pattern.inner)
    whole = loop_effects(loop)
    if whole.opaque or inner.written_arrays or set(inner.writes) != set(pattern.accumulators) or whole.writes:
        return False
    if any(n.type == "preproc_call" for n in pattern.tail):
        return False
    return independent(loop)


@transform("accumulator_tile")
def accumulator_tile(tree: SyntaxTree) -> Iterator[Site]:
    """Keep a tile of accumulators and make the tiled loop the inner one: i, j, k order becomes i, k, j."""
    for loop in tree.loops:
        pattern = _loop_of_sums(loop)
        if not pattern or loop.within("simd"):
            continue
        size = tree.fresh(f"TILE_{loop.variable.upper()}")
        start = tree.fresh(f"{loop.variable}0")
        over, within = tile_headers(loop, start, size)
        arrays = {name: tree.fresh(f"{name}_tile") for name in pattern.accumulators}
        texts = {name: f"{array}[{loop.variable} - {start}]" for name, array in arrays.items()}
        text = block(
            over,
            *(f"{pattern.accumulators[name]} {array}[{size}];" for name, array in arrays.items()),
            block(within, *pattern.start(texts), indent=""),
            block(pattern.inner.header, block(within, *pattern.update(texts), indent=""), indent=""),
            block(within, *pattern.finish(texts), indent=""),
            indent=loop.indent,
        )
        names = ", ".join(f"`{name}`" for name in arrays)
        yield Site(
            f"accumulate {names} for tiles of {size} in {loop.place}", (Edit(loop.node.start_byte, loop.end, text),),
            {size: TILES},
        )  # fmt: skip


@transform("register_tile")
def register_tile(tree: SyntaxTree) -> Iterator[Site]:
    """Compute a small rectangle of results at once, in accumulators whose number is known to the compiler."""
    for outer in tree.loops:
        loop = outer.only_child
        pattern = _loop_of_sums(loop) if loop else None
        if not loop or not pattern or loop.pragmas or not outer.unit_step or outer.within("collapse"):
            continue
        if not (fixed_outside(loop, outer) and fixed_outside(pattern.inner, outer) and independent(outer)):
            continue
        sizes = (tree.fresh(f"TILE_{outer.variable.upper()}"), tree.fresh(f"TILE_{loop.variable.upper()}"))
        tune = {sizes[0]: ROW_TILES, sizes[1]: COLUMN_TILES}
        edits = (Edit(outer.node.start_byte, outer.end, _register_tile(tree, outer, pattern, sizes)),)
        yield Site(f"register tile of {sizes[0]} x {sizes[1]} in {outer.place}", edits, tune)


def _register_tile(tree: SyntaxTree, outer: Loop, pattern: _LoopOfSums, sizes: tuple[str, str]) -> str:
    """The text of the new nest: full rectangles by constant bounds, the rest as it was."""
    nest = (outer, pattern.loop)
    starts = [tree.fresh(f"{x.variable}0") for x in nest]
    arrays = {name: tree.fresh(f"{name}_tile") for name in pattern.accumulators}
    place = "".join(f"[{x.variable} - {start}]" for x, start in zip(nest, starts, strict=True))
    texts = {name: f"{array}{place}" for name, array in arrays.items()}
    ends = [f"{start} + {size}" for start, size in zip(starts, sizes, strict=True)]
    full = [header(x.type, x.variable, s, e) for x, s, e in zip(nest, starts, ends, strict=True)]
    rest = [tile_headers(x, s, t)[1] for x, s, t in zip(nest, starts, sizes, strict=True)]
    over = [tile_headers(x, s, t)[0] for x, s, t in zip(nest, starts, sizes, strict=True)]

    def both(*lines: str) -> str:
        return block(full[0], block(full[1], *lines, indent=""), indent="")

    complete = " && ".join(f"{end} <= {x.bound_text}" for x, end in zip(nest, ends, strict=True))
    fast = block(
        f"if ({complete})",
        *(f"{pattern.accumulators[n]} {array}[{sizes[0]}][{sizes[1]}];" for n, array in arrays.items()),
        both(*pattern.start(texts)),
        block(pattern.inner.header, both(*pattern.update(texts)), indent=""),
        both(*pattern.finish(texts)),
        indent="",
    )
    original = block(rest[0], block(rest[1], body_text(pattern.loop), indent=""), indent="")
    tiles = f"{fast} else {{\n    {reindent(original, '', '    ')}\n}}"
    return block(over[0], block(over[1], tiles, indent=""), indent=outer.indent)


@transform("split_reduction")
def split_reduction(tree: SyntaxTree) -> Iterator[Site]:
    """Reduce into several independent partial results, their number a new tunable, and combine them at the end."""
    for loop in tree.loops:
        if loop.children or loop.pragmas or not loop.unit_step or loop.exits or not fixed_outside(loop, loop):
            continue
        operations = reductions(loop)
        known = loop_effects(loop)
        if not operations or known.opaque or known.written_arrays or loop.type not in ("int", "long", "long long"):
            continue
        types = {name: loop.function.type_of(name) for name in operations}
        if any(t in (None, "auto") for t in types.values()) or set(operations.values()) - {"+", "max", "min"}:
            continue
        lanes = tree.fresh("LANES")
        edits = _split_reduction(tree, loop, operations, {n: t or "" for n, t in types.items()}, lanes)
        names = ", ".join(f"`{name}`" for name in operations)
        yield Site(f"reduce {names} in {lanes} lanes in {loop.place}", edits, {lanes: LANES})


def _split_reduction(
    tree: SyntaxTree, loop: Loop, operations: dict[str, str], types: dict[str, str], lanes: str
) -> tuple[Edit, ...]:
    parts = {name: tree.fresh(f"{name}_part") for name in operations}
    start, lane = tree.fresh(f"{loop.variable}0"), tree.fresh("lane")
    each = header("int", lane, "0", lanes)
    low, high = operand(loop.start_text), _signed(loop, operand(loop.bound_text))
    texts = {name: f"{part}[{lane}]" for name, part in parts.items()}
    lines = [f"{types[name]} {part}[{lanes}];" for name, part in parts.items()]
    lines.append(block(each, *(f"{texts[n]} = {'0' if o == '+' else n};" for n, o in operations.items()), indent=""))
    body = (f"const {loop.type} {loop.variable} = {start} + {lane};", body_text(loop, texts))
    main = header(loop.type, start, loop.start_text, f"{high} - {lanes}", lanes, relation="<=")
    lines.append(block(main, block(each, *body, indent=""), indent=""))
    lines.append(block(each, *(_combine(n, o, texts[n]) for n, o in operations.items()), indent=""))
    # The main loop leaves fewer than `lanes` iterations, the last ones; a remainder modulo `lanes` says how many.
    rest = high if low == "0" else f"({high} - {low})"
    begin = f"{high} - {rest} % {lanes}"
    lines.append(block(header(loop.type, loop.variable, begin, loop.bound_text), body_text(loop), indent=""))
    return tree.replace(loop, *lines)


def _signed(loop: Loop, bound: str) -> str:
    """A bound that may be smaller than what is taken from it."""
    # An unsigned `n - LANES` is huge where n is the smaller one, and the loop would run past the end.
    names = {loop.tree.slice(n) for n in walk(loop.bound) if n.type == "identifier"} - set(loop.tree.plan.tune)
    known = [loop.function.declarations.get(name, ()) for name in names]
    signed = all(listed and {d.type for d in listed} <= {"int", "long", "long long"} for listed in known)
    return bound if signed else f"({loop.type}){bound}"


def _combine(name: str, operation: str, part: str) -> str:
    if operation == "+":
        return f"{name} += {part};"
    return f"{name} = {part} {'>' if operation == 'max' else '<'} {name} ? {part} : {name};"


# --- a rectangle of results for each thread of a CUDA kernel ----------------------------------------------------------


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


@dataclass(frozen=True, eq=False)
class _Work(_Sums):
    """All that a kernel does with its indices."""

    nest: tuple[Loop, ...]
    """Perfectly nested, outermost first."""


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
    return _Work(function, nest[-1], accumulators, tuple(constants), tuple(tail), tuple(nest))


def _tiled(tree: SyntaxTree, axes: Sequence[_Axis], work: _Work) -> str:
    """The kernel's body, for column 0."""
    tiles = {name: tree.fresh(f"{name}_tile") for name in work.accumulators}
    place = "".join(f"[{axis.step}]" for axis in axes)
    texts = {name: f"{tile}{place}" for name, tile in tiles.items()}

    def every(*lines: str) -> str:
        text = "\n".join(lines)
        for axis in reversed(axes):
            steps = f"for (int {axis.step} = 0; {axis.step} < {axis.count}; {axis.step}++)"
            text = f"#pragma unroll\n{block(steps, text, indent='')}"
        return text

    inside, beyond = ([axis.at(inside=which) for axis in axes] for which in (True, False))
    sums = every(*inside, *work.update(texts))
    for loop in reversed(work.nest):
        sums = block(loop.header, sums, indent="")
    ranges = work.part({}, *(loop.header for loop in work.nest))[: -len(work.nest)]
    exists = " && ".join(f"{axis.variable} < {operand(axis.bound)}" for axis in axes)
    lines = [
        f"int {axis.first} = blockIdx.{axis.letter} * blockDim.{axis.letter} * {axis.count} + threadIdx.{axis.letter};"
        for axis in axes
    ]
    sizes = "".join(f"[{axis.count}]" for axis in axes)
    lines.append(f"if ({' || '.join(f'{axis.first} >= {axis.bound}' for axis in axes)}) return;")
    lines += [f"{type_} {tiles[name]}{sizes};" for name, type_ in work.accumulators.items()]
    lines.append(every(*inside, *work.start(texts)))
    lines += [*ranges, sums, every(*beyond, block(f"if ({exists})", *work.finish(texts), indent=""))]
    return "\n".join(lines)
