"""Transforms of loops: order, tiles, fusion, fission; threads and vector lanes that share one; pragmas."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutators.analysis.cpp_tree import Loop, SyntaxTree, body_text, pragmas_before
from mutators.analysis.dataflow import Access, Effects, effects, loop_effects
from mutators.analysis.dependence import independent, separate, tile_of
from mutators.analysis.polynomial import names_in, split
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import INDENT, Edit, block, header, reindent
from mutators.analysis.syntax import Node, walk
from mutators.transforms.base import Site, transform

TILES = (32, 8, 16, 64, 128, 256)
CHUNKS = (16, 1, 4, 64, 256)
UNROLLS = (2, 4, 8, 16)


def fixed_outside(loop: Loop, *others: Loop) -> bool:
    """Whether the loop's range mentions neither the variables of `others` nor anything their bodies change."""
    used = names_in(loop.function, map(loop.tree.slice, loop.ends)) - {loop.variable}
    if effects(loop.function, *loop.ends).opaque:
        return False
    return not any(used & (loop_effects(other).changing | loop_effects(other).written_arrays) for other in others)


def _point_bound(start: str, tile: str, bound: str) -> str:
    """Where the loop within a tile ends; `mutators.analysis.dependence.tile_of` knows the form."""
    return f"({start} + {tile} < {bound} ? {start} + {tile} : {bound})"


def tile_headers(loop: Loop, outer: str, tile: str) -> tuple[str, str]:
    """Headers of the loop over tiles and of the loop within one."""
    return (
        header(loop.type, outer, loop.start_text, loop.bound_text, tile),
        header(loop.type, loop.variable, outer, _point_bound(outer, tile, operand(loop.bound_text))),
    )


def operand(text: str) -> str:
    """An expression as an operand of another one: in parentheses unless it is a name, number or element."""
    return text if re.fullmatch(r"\w+(?:\[[^][]*\])*", text) else f"({text})"


@transform("interchange")
def interchange(tree: SyntaxTree) -> Iterator[Site]:
    """Swap two perfectly nested loops."""
    for outer in tree.loops:
        inner = outer.only_child
        if not inner or outer.pragmas or inner.pragmas or outer.within("collapse") or inner.abandoned:
            continue
        if not fixed_outside(inner, outer) or not _reorderable(outer, inner):
            continue
        edits = tuple(
            Edit(place.node.start_byte, place.node.start_byte + len(place.header.encode()), other.header)
            for place, other in ((outer, inner), (inner, outer))
        )
        yield Site(f"interchange loops `{outer.variable}` and `{inner.variable}` at {outer.place}", edits)


def _reorderable(outer: Loop, inner: Loop) -> bool:
    """Whether the iterations of a perfect nest may run in the other order, sums into memory included."""
    known = loop_effects(inner)
    if known.opaque or reductions(inner) is None:
        return False
    # Whatever depends on what does so within one outer iteration, in unchanged order; or all are sums.
    return independent(outer) or all(_only_sums(known.touching(array)) for array in known.written_arrays)


def _only_sums(accesses: list[Access]) -> bool:
    """Whether one element per iteration is added to, and used in no other way."""
    sums = sum(a.accumulates for a in accesses)
    return all(a.index == accesses[0].index for a in accesses) and 2 * sums == len(accesses)


@transform("tile")
def tile(tree: SyntaxTree) -> Iterator[Site]:
    """Split a loop into one over tiles and one within a tile, its size a new tunable."""
    for loop in tree.loops:
        short = loop.bound_text.isdigit() or loop.bound_text in tree.plan.tune
        if short or not loop.unit_step or loop.within("collapse") or loop.abandoned:
            continue
        if tile_of(loop) or not fixed_outside(loop, loop):
            continue
        size = tree.fresh(f"TILE_{loop.variable.upper()}")
        start = tree.fresh(f"{loop.variable}0")
        over, within = tile_headers(loop, start, size)
        simd = [text for text in loop.pragma_texts if "parallel" not in text]
        kept = [text for text in loop.pragma_texts if "parallel" in text]
        if any("section" in _directive(text) for text in simd) or any(any(_bound_to(loop, text)) for text in kept):
            continue  # a block is a section's whole; what belongs to a directive stands in its own loop
        inner = tree.data[loop.body.start_byte : loop.end].decode()
        lines = (*simd, f"{within} {reindent(inner, loop.indent, '')}")
        text = "".join(f"{pragma}\n{loop.indent}" for pragma in kept) + block(over, *lines, indent=loop.indent)
        yield Site(f"tile {loop.place} by {size}", (Edit(loop.begin, loop.end, text),), {size: TILES})


@transform("full_tile")
def full_tile(tree: SyntaxTree) -> Iterator[Site]:
    """Give complete tiles a copy of the code in which the tile's size is a constant."""
    for loop in tree.loops:
        inner = [p for p in tree.loops if loop in p.ancestors and "?" in p.bound_text]
        points = [p for p in inner if (found := tile_of(p)) and found[0] == loop.variable]
        if not points or loop.step is None or loop.inclusive or loop.exits or loop.body.type != "compound_statement":
            continue
        end = f"{loop.variable} + {loop.step_text}"
        if loop.within("collapse") or f"{end} <= {loop.bound_text}" in tree.slice(loop.body):
            continue  # the loops that belong together would part; or it is done already
        begin = loop.body.start_byte + 1
        inside = tree.data[begin : loop.end - 1].decode().strip("\n").rstrip()
        edits = [Edit(p.bound.start_byte, p.bound.end_byte, end) for p in points]
        constant = tree.edited(begin, loop.end - 1, edits).strip("\n").rstrip()
        indent = loop.indent + INDENT
        shifted = [reindent("\n" + text, indent, indent + INDENT) for text in (constant, inside)]
        branches = f"if ({end} <= {loop.bound_text}) {{{shifted[0]}\n{indent}}} else {{{shifted[1]}\n{indent}}}"
        text = f"\n{indent}{branches}\n{loop.indent}"
        yield Site(f"specialise full tiles in {loop.place}", (Edit(begin, loop.end - 1, text),))


@transform("fuse")
def fuse(tree: SyntaxTree) -> Iterator[Site]:
    """Merge two neighbouring loops that run over the same values."""
    for first in tree.loops:
        second = next((loop for loop in tree.loops if loop.node == first.node.next_named_sibling), None)
        if not second or first.signature != second.signature or first.pragmas or second.pragmas:
            continue
        if first.exits or second.exits or not fixed_outside(first, first, second) or not _fusible(first, second):
            continue
        lines = [_braced(loop, first, second) for loop in (first, second)]
        text = block(first.header, *lines, indent=first.indent)
        place = f"fuse {first.place} with the one in line {tree.line(second.node)}"
        yield Site(place, (Edit(first.begin, second.end, text),))


def _fusible(first: Loop, second: Loop) -> bool:
    one, two = loop_effects(first), loop_effects(second)
    both = ((first, one), (second, two))
    return _apart(one, two) and all(
        separate([(loop, a) for loop, side in both for a in side.touching(array)], _changing(one, two))
        for array in _shared(one, two)
    )


def _apart(one: Effects, two: Effects) -> bool:
    """Whether neither side writes a scalar that the other uses."""
    if one.opaque or two.opaque or set(one.writes) & (two.reads | set(two.writes)):
        return False
    return not set(two.writes) & one.reads


def _shared(one: Effects, two: Effects) -> set[str]:
    """Arrays that one side writes and the other touches."""
    touched = [{a.array for a in side.accesses} for side in (one, two)]
    return one.written_arrays & touched[1] | two.written_arrays & touched[0]


def _changing(one: Effects, two: Effects) -> set[str]:
    return one.changing | two.changing


def _braced(loop: Loop, first: Loop, second: Loop) -> str:
    """A body's statements, in braces of their own where both bodies declare a name."""
    clash = loop_effects(first).declared & loop_effects(second).declared - {first.variable}
    text = body_text(loop)
    return block("", text, indent="").lstrip() if clash else text


@transform("fission")
def fission(tree: SyntaxTree) -> Iterator[Site]:
    """Split a loop in two, each with a part of the body."""
    for loop in tree.loops:
        if loop.pragmas or loop.exits or loop.within("collapse") or not fixed_outside(loop, loop):
            continue
        for cut in range(1, len(loop.statements)):
            head, tail = loop.statements[:cut], loop.statements[cut:]
            if head[-1].type == "preproc_call" or not _divisible(loop, head, tail):
                continue
            parts = [_with_comments(loop, part[0], part[-1]) for part in (head, tail)]
            text = f"\n{loop.indent}".join(block(loop.header, part, indent=loop.indent) for part in parts)
            place = f"split {loop.place} before line {tree.line(tail[0])}"
            yield Site(place, (Edit(loop.begin, loop.end, text),))


def _with_comments(loop: Loop, first: Node, last: Node) -> str:
    """Statements of the body for column 0, with the comments right before and after them."""
    children = list(loop.body.named_children)
    begin, end = children.index(first), children.index(last)
    while begin > 0 and children[begin - 1].type == "comment":
        begin -= 1
    while end + 1 < len(children) and children[end + 1].type == "comment" and last == loop.statements[-1]:
        end += 1
    indent = loop.tree.indent_at(children[begin].start_byte)
    return reindent(loop.tree.substitute(children[begin : end + 1], {}), indent, "")


def _divisible(loop: Loop, head: tuple[Node, ...], tail: tuple[Node, ...]) -> bool:
    one, two = effects(loop.function, *head), effects(loop.function, *tail)
    if loop_effects(loop).opaque or not _apart(one, two) or one.declared & (two.reads | set(two.writes)):
        return False
    if not all(side.writes or side.written_arrays for side in (one, two)):
        return False  # one half would do nothing
    return all(
        separate([(loop, a) for side in (one, two) for a in side.touching(array)], _changing(one, two))
        for array in _shared(one, two)
    )


# --- threads, vector lanes, pragmas -----------------------------------------------------------------------------------


def _clause(loop: Loop) -> str | None:
    """The reduction clauses that the loop needs; None where a scalar is written in any other way."""
    operations = reductions(loop)
    if operations is None:
        return None
    return "".join(f" reduction({operation}:{name})" for name, operation in sorted(operations.items()))


def _openmp(loop: Loop) -> bool:
    """Whether OpenMP can run the loop at all: it counts to a fixed end and does not leave early."""
    return not loop.abandoned and not loop.within("collapse") and fixed_outside(loop, loop)


def _parallel_loops(tree: SyntaxTree) -> Iterator[tuple[Loop, str]]:
    """Outermost loops that threads can share, with their reduction clauses."""
    found: list[Loop] = []
    for loop in tree.loops:
        nested = any(a in found for a in loop.ancestors)
        free = not (loop.pragmas or _in_parallel(loop)) and _admits(loop, _IN_SHARES)
        if nested or not free or not _openmp(loop) or not independent(loop):
            continue
        clause = _clause(loop)
        if clause is not None:
            found.append(loop)
            yield loop, clause


@transform("parallel", "cpu")
def parallel(tree: SyntaxTree) -> Iterator[Site]:
    """Share an outer loop among threads."""
    for loop, clause in _parallel_loops(tree):
        edits = tree.before(loop, f"#pragma omp parallel for{clause}")
        yield Site(f"run {loop.place} in parallel", edits)


@transform("parallel_dynamic", "cpu")
def parallel_dynamic(tree: SyntaxTree) -> Iterator[Site]:
    """Share an outer loop among threads, in chunks of a new tunable size, dealt out as threads get free."""
    for loop, clause in _parallel_loops(tree):
        size = tree.fresh(f"CHUNK_{loop.variable.upper()}")
        edits = tree.before(loop, f"#pragma omp parallel for schedule(dynamic, {size}){clause}")
        yield Site(f"run {loop.place} in parallel, dynamic chunks of {size}", edits, {size: CHUNKS})


@transform("parallel_collapse", "cpu")
def parallel_collapse(tree: SyntaxTree) -> Iterator[Site]:
    """Share two perfectly nested loops among threads."""
    for loop, clause in _parallel_loops(tree):
        inner = loop.only_child
        if not inner or inner.pragmas or inner.abandoned or not independent(inner) or clause:
            continue
        if not fixed_outside(inner, loop) or reductions(inner) != {}:
            continue
        edits = tree.before(loop, "#pragma omp parallel for collapse(2)")
        yield Site(f"run {loop.place} and `{inner.variable}` in parallel", edits)


@transform("simd", "cpu")
def simd(tree: SyntaxTree) -> Iterator[Site]:
    """Run an innermost loop in vector lanes, reductions included."""
    for loop in tree.loops:
        if loop.children or loop.pragmas or not _openmp(loop) or not _vectorisable(loop):
            continue
        if not _admits(loop, _IN_LANES):
            continue
        clause = _clause(loop)
        if clause is not None:
            yield Site(f"vectorise {loop.place}{clause}", tree.before(loop, f"#pragma omp simd{clause}"))


def _vectorisable(loop: Loop) -> bool:
    """Whether every array written is touched at one place per iteration, which moves with the loop."""
    known = loop_effects(loop)
    if known.opaque:
        return False
    for array in known.written_arrays:
        indices = [a.index for a in known.touching(array)]
        parts = [split(loop.function, axis, loop.variable) for axis in indices[0]]
        if any(index != indices[0] for index in indices) or not all(parts) or not any(p[0] for p in parts if p):
            return False
    return True


@transform("unroll")
def unroll(tree: SyntaxTree) -> Iterator[Site]:
    """Ask the compiler to unroll a loop by a fixed factor."""
    word = "GCC unroll" if tree.target == "cpu" else "unroll"
    for loop in tree.loops:
        if loop.pragmas or loop.within("collapse") or len(loop.children) > 1:
            continue
        for factor in UNROLLS:
            yield Site(f"unroll {loop.place} by {factor}", tree.before(loop, f"#pragma {word} {factor}"))


@transform("drop_pragma")
def drop_pragma(tree: SyntaxTree) -> Iterator[Site]:
    """Take a pragma away from a loop, with those inside the loop that mean nothing without it."""
    for loop in tree.loops:
        for pragma, text in zip(loop.pragmas, loop.pragma_texts, strict=True):
            if not _dispensable(text):
                continue
            end = loop.node.start_byte if pragma == loop.pragmas[-1] else pragma.end_byte
            dependents = [Edit(node.start_byte, node.end_byte, "") for node in _bound_to(loop, text)]
            yield Site(f"drop `{text}` from {loop.place}", (Edit(pragma.start_byte, end, ""), *dependents))


# --- rules of OpenMP: directives of loops, those that belong to others, those that exclude each other -----------------


_BINDINGS = (
    (r"scan\b", r"\binscan\b"),
    (r"ordered\b.*\bsimd\b", r"^[^(]*\bsimd\b"),
    (r"ordered\b(?!.*\bsimd\b)", r"^[^(]*\bfor\b.*\bordered\b"),
    (r"cancel(?:lation point)?\s+for\b", r"^[^(]*\bfor\b"),
    (r"cancel(?:lation point)?\s+parallel\b", r"^[^(]*\bparallel\b"),
    (r"cancel(?:lation point)?\s+taskgroup\b", r"^[^(]*\btaskloop\b"),
)
"""Directives that are legal only in a loop whose own directive has something: patterns of what follows `omp`."""
_IN_LANES = frozenset({"simd", "atomic"})
"""Pragmas that may stand in the body of a loop that becomes `simd`, by the first word."""
_IN_SHARES = frozenset({"simd", "atomic", "critical", "flush"})
"""Pragmas that may stand in the body of a loop that threads come to share, none of which waits for other threads."""


def _directive(pragma: str) -> str:
    """The text that follows `#pragma omp`, in one line; empty for other pragmas."""
    match = re.fullmatch(r"#\s*pragma\s+omp\s+(.*)", " ".join(pragma.replace("\\\n", " ").split()))
    return match[1] if match else ""


def _dispensable(pragma: str) -> bool:
    """Whether the loop below does the same without it.

    Not what shares out the work of threads that run anyway (`for` without `parallel`), which all of them would then do
    in full, nor what gives a loop to one thread (`single`, `section`, `task`).
    """
    words = set(re.findall(r"\w+", _directive(pragma).partition("(")[0]))
    alone = words & {"simd", "taskloop"} and not words & {"for", "distribute", "loop"}
    return not words or bool(alone or words & {"parallel", "teams"})


def _bound_to(loop: Loop, pragma: str) -> Iterator[Node]:
    """Pragmas inside a loop that are legal only with this one of its own, and not with one of a loop between them."""
    text = _directive(pragma)
    for node, inner in _inside(loop):
        needed = next((outer for pattern, outer in _BINDINGS if re.match(pattern, inner)), None)
        if needed and re.search(needed, text) and _holder(loop, node, needed) == loop.node:
            yield node


def _admits(loop: Loop, words: frozenset[str]) -> bool:
    """Whether all directives in a loop's body begin with one of these."""
    return all(inner.split()[0] in words for _, inner in _inside(loop))


def _in_parallel(loop: Loop) -> bool:
    """Whether a statement around the loop is already the business of several threads, or of one of several."""
    node: Node | None = loop.node
    while node is not None:
        if re.search(r"\b(?:parallel|section|task)\b", " ".join(_directives_before(loop.tree, node))):
            return True
        node = node.parent
    return False


def _inside(loop: Loop) -> Iterator[tuple[Node, str]]:
    """OpenMP's pragmas in the body, with their directives."""
    for node in walk(loop.body):
        if node.type == "preproc_call" and (text := _directive(loop.tree.slice(node))):
            yield node, text


def _holder(loop: Loop, node: Node, needed: str) -> Node:
    """The innermost loop around a node, `loop` at the latest, whose directive has what is needed."""
    around = node.parent
    while around is not None and around != loop.node:
        texts = _directives_before(loop.tree, around) if around.type == "for_statement" else []
        if any(re.search(needed, text) for text in texts):
            return around
        around = around.parent
    return loop.node


def _directives_before(tree: SyntaxTree, node: Node) -> list[str]:
    return [_directive(tree.slice(pragma)) for pragma in pragmas_before(node)]
