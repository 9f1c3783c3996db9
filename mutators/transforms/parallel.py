"""Transforms that spread a loop over threads or vector lanes, or ask the compiler to unroll it."""

from __future__ import annotations

from collections.abc import Iterator

from mutators.analysis.cpp_tree import Loop, SyntaxTree
from mutators.analysis.dataflow import loop_effects
from mutators.analysis.dependence import independent
from mutators.analysis.openmp import IN_LANES, IN_SHARES, admits, bound_to, dispensable, in_parallel
from mutators.analysis.polynomial import split
from mutators.analysis.reduction import reductions
from mutators.analysis.source_text import Edit
from mutators.transforms.base import Site, transform
from mutators.transforms.loops import fixed_outside

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


def _parallel_loops(tree: SyntaxTree) -> Iterator[tuple[Loop, str]]:
    """Outermost loops that threads can share, with their reduction clauses."""
    found: list[Loop] = []
    for loop in tree.loops:
        nested = any(a in found for a in loop.ancestors)
        free = not (loop.pragmas or in_parallel(loop)) and admits(loop, IN_SHARES)
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
        if not admits(loop, IN_LANES):
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
            if not dispensable(text):
                continue
            end = loop.node.start_byte if pragma == loop.pragmas[-1] else pragma.end_byte
            dependents = [Edit(node.start_byte, node.end_byte, "") for node in bound_to(loop, text)]
            yield Site(f"drop `{text}` from {loop.place}", (Edit(pragma.start_byte, end, ""), *dependents))
