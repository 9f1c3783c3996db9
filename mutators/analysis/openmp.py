"""Rules of OpenMP: directives of loops, those that belong to others, and those that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutators.analysis.cpp_tree import Loop, SyntaxTree, pragmas_before
from mutators.analysis.syntax import Node, walk

BINDINGS = (
    (r"scan\b", r"\binscan\b"),
    (r"ordered\b.*\bsimd\b", r"^[^(]*\bsimd\b"),
    (r"ordered\b(?!.*\bsimd\b)", r"^[^(]*\bfor\b.*\bordered\b"),
    (r"cancel(?:lation point)?\s+for\b", r"^[^(]*\bfor\b"),
    (r"cancel(?:lation point)?\s+parallel\b", r"^[^(]*\bparallel\b"),
    (r"cancel(?:lation point)?\s+taskgroup\b", r"^[^(]*\btaskloop\b"),
)
"""Directives that are legal only in a loop whose own directive has something: patterns of what follows `omp`."""
IN_LANES = frozenset({"simd", "atomic"})
"""Pragmas that may stand in the body of a loop that becomes `simd`, by the first word."""
IN_SHARES = frozenset({"simd", "atomic", "critical", "flush"})
"""Pragmas that may stand in the body of a loop that threads come to share, none of which waits for other threads."""


def directive(pragma: str) -> str:
    """The text that follows `#pragma omp`, in one line; empty for other pragmas."""
    match = re.fullmatch(r"#\s*pragma\s+omp\s+(.*)", " ".join(pragma.replace("\\\n", " ").split()))
    return match[1] if match else ""


def dispensable(pragma: str) -> bool:
    """Whether the loop below does the same without it.

    Not what shares out the work of threads that run anyway (`for` without `parallel`), which all of them would then do
    in full, nor what gives a loop to one thread (`single`, `section`, `task`).
    """
    words = set(re.findall(r"\w+", directive(pragma).partition("(")[0]))
    alone = words & {"simd", "taskloop"} and not words & {"for", "distribute", "loop"}
    return not words or bool(alone or words & {"parallel", "teams"})


def bound_to(loop: Loop, pragma: str) -> Iterator[Node]:
    """Pragmas inside a loop that are legal only with this one of its own, and not with one of a loop between them."""
    text = directive(pragma)
    for node, inner in _inside(loop):
        needed = next((outer for pattern, outer in BINDINGS if re.match(pattern, inner)), None)
        if needed and re.search(needed, text) and _holder(loop, node, needed) == loop.node:
            yield node


def admits(loop: Loop, words: frozenset[str]) -> bool:
    """Whether all directives in a loop's body begin with one of these."""
    return all(inner.split()[0] in words for _, inner in _inside(loop))


def in_parallel(loop: Loop) -> bool:
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
        if node.type == "preproc_call" and (text := directive(loop.tree.slice(node))):
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
    return [directive(tree.slice(pragma)) for pragma in pragmas_before(node)]
