"""Rewrites that spread a loop over threads or vector lanes, or ask the compiler to unroll it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutators.cpp_tree import Edit, Loop, Node, Program, pragmas_before, walk
from mutators.dataflow import independent, loop_effects, reductions, split
from mutators.rewrites.base import Site, rewrite
from mutators.rewrites.loops import fixed_outside

CHUNKS = (16, 1, 4, 64, 256)
UNROLLS = (2, 4, 8, 16)


def _clause(loop: Loop) -> str | None:
    """The reduction clauses that the loop needs; None where a scalar is written in any other way."""
    operations = reductions(loop)
    if operations is None:
        return None
    return "".join(f" reduction({operation}:{name})" for name, operation in sorted(operations.items()))


def _openmp(loop: Loop) -> bool:
    """Whether OpenMP can run the loop at all: it counts to a fixed end and does not leave early."""
    return not loop.abandoned and not loop.within("collapse") and fixed_outside(loop, loop)


def _parallel_loops(program: Program) -> Iterator[tuple[Loop, str]]:
    """Outermost loops that threads can share, with their reduction clauses."""
    found: list[Loop] = []
    for loop in program.loops:
        nested = any(a in found for a in loop.ancestors)
        threaded = loop.within("parallel") or any("parallel" in p for inner in _below(loop) for p in inner.pragma_texts)
        if nested or threaded or loop.pragmas or not _openmp(loop) or not independent(loop):
            continue
        clause = _clause(loop)
        if clause is not None:
            found.append(loop)
            yield loop, clause


def _below(loop: Loop) -> Iterator[Loop]:
    for child in loop.children:
        yield child
        yield from _below(child)


@rewrite("parallel", "cpu")
def parallel(program: Program) -> Iterator[Site]:
    """Share an outer loop among threads."""
    for loop, clause in _parallel_loops(program):
        edits = program.before(loop, f"#pragma omp parallel for{clause}")
        yield Site(f"run {loop.place} in parallel", edits)


@rewrite("parallel_dynamic", "cpu")
def parallel_dynamic(program: Program) -> Iterator[Site]:
    """Share an outer loop among threads, in chunks of a new tunable size, dealt out as threads get free."""
    for loop, clause in _parallel_loops(program):
        size = program.fresh(f"CHUNK_{loop.variable.upper()}")
        edits = program.before(loop, f"#pragma omp parallel for schedule(dynamic, {size}){clause}")
        yield Site(f"run {loop.place} in parallel, dynamic chunks of {size}", edits, {size: CHUNKS})


@rewrite("parallel_collapse", "cpu")
def parallel_collapse(program: Program) -> Iterator[Site]:
    """Share two perfectly nested loops among threads."""
    for loop, clause in _parallel_loops(program):
        inner = loop.only_child
        if not inner or inner.pragmas or inner.abandoned or not independent(inner) or clause:
            continue
        if not fixed_outside(inner, loop) or reductions(inner) != {}:
            continue
        edits = program.before(loop, "#pragma omp parallel for collapse(2)")
        yield Site(f"run {loop.place} and `{inner.variable}` in parallel", edits)


@rewrite("simd", "cpu")
def simd(program: Program) -> Iterator[Site]:
    """Run an innermost loop in vector lanes, reductions included."""
    for loop in program.loops:
        if loop.children or loop.pragmas or not _openmp(loop) or not _vectorisable(loop):
            continue
        clause = _clause(loop)
        if clause is not None:
            yield Site(f"vectorise {loop.place}{clause}", program.before(loop, f"#pragma omp simd{clause}"))


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


@rewrite("unroll")
def unroll(program: Program) -> Iterator[Site]:
    """Ask the compiler to unroll a loop by a fixed factor."""
    word = "GCC unroll" if program.target == "cpu" else "unroll"
    for loop in program.loops:
        if loop.pragmas or loop.within("collapse") or len(loop.children) > 1:
            continue
        for factor in UNROLLS:
            yield Site(f"unroll {loop.place} by {factor}", program.before(loop, f"#pragma {word} {factor}"))


@rewrite("drop_pragma")
def drop_pragma(program: Program) -> Iterator[Site]:
    """Take a pragma away from a loop, with those inside the loop that mean nothing without it."""
    for loop in program.loops:
        for pragma, text in zip(loop.pragmas, loop.pragma_texts, strict=True):
            if _shares_work(text):
                continue
            end = loop.node.start_byte if pragma == loop.pragmas[-1] else pragma.end_byte
            dependents = [Edit(node.start_byte, node.end_byte, "") for node in _bound_to(loop, text)]
            yield Site(f"drop `{text}` from {loop.place}", (Edit(pragma.start_byte, end, ""), *dependents))


BINDINGS = (
    (r"scan\b", r"\binscan\b"),
    (r"ordered\b.*\bsimd\b", r"^[^(]*\bsimd\b"),
    (r"ordered\b(?!.*\bsimd\b)", r"^[^(]*\bfor\b.*\bordered\b"),
    (r"cancel(?:lation point)?\s+for\b", r"^[^(]*\bfor\b"),
    (r"cancel(?:lation point)?\s+parallel\b", r"^[^(]*\bparallel\b"),
    (r"cancel(?:lation point)?\s+taskgroup\b", r"^[^(]*\btaskloop\b"),
)
"""Directives that OpenMP allows only in a loop whose own directive has something: patterns of what follows `omp`.

Those of blocks (`section` in `sections`) stand and fall with a pragma that is no loop's.
"""


def _openmp_text(text: str) -> str:
    """What follows `#pragma omp`; empty for other pragmas."""
    match = re.fullmatch(r"#\s*pragma\s+omp\s+(.*)", " ".join(text.replace("\\\n", " ").split()))
    return match[1] if match else ""


def _shares_work(text: str) -> bool:
    """Whether it deals the loop out to threads that run anyway: without it each of them would do all of the work."""
    words = set(re.findall(r"\w+", re.split(r"\(", _openmp_text(text))[0]))
    return bool(words & {"for", "distribute", "loop"}) and not words & {"parallel", "teams"}


def _bound_to(loop: Loop, text: str) -> Iterator[Node]:
    """Pragmas inside a loop that belong to this one of its own, and not to one of a loop between them."""
    directive = _openmp_text(text)
    for node in walk(loop.body):
        inner = _openmp_text(loop.program.slice(node)) if node.type == "preproc_call" else ""
        needed = [outer for pattern, outer in BINDINGS if re.match(pattern, inner)]
        if needed and re.search(needed[0], directive) and _holder(loop, node, needed[0]) == loop.node:
            yield node


def _holder(loop: Loop, node: Node, needed: str) -> Node:
    """The innermost loop around a node, `loop` at the latest, whose directive has what is needed."""
    around = node.parent
    while around is not None and around != loop.node:
        if around.type == "for_statement" and any(
            re.search(needed, _openmp_text(loop.program.slice(pragma))) for pragma in pragmas_before(around)
        ):
            return around
        around = around.parent
    return loop.node
