"""Transforms of scalar arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mutators.analysis.cpp_tree import Loop, SyntaxTree
from mutators.analysis.dataflow import MATH, loop_effects
from mutators.analysis.source_text import Edit
from mutators.analysis.syntax import Node, field_of, walk
from mutators.transforms.base import Site, transform

_FLOATS = frozenset({"ACC", "float", "double"})
_SINGLE = frozenset(MATH) - {"rsqrt", "abs"}
_DOUBLE_LITERAL = re.compile(r"(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


@transform("reciprocal")
def reciprocal(tree: SyntaxTree) -> Iterator[Site]:
    """Replace divisions by something fixed by multiplications with its reciprocal."""
    for loop in tree.loops:
        known = loop_effects(loop)
        divisions = [
            n for n in walk(loop.body) if n.type == "binary_expression" and field_of(n, "operator").type == "/"
        ]
        by_name: dict[str, list[Node]] = {}
        for node in divisions:
            right = field_of(node, "right")
            if right.type == "identifier":
                by_name.setdefault(tree.slice(right), []).append(node)
        for name, nodes in by_name.items():
            kind = loop.function.type_of(name)
            if known.opaque or kind not in _FLOATS or name in known.changing or _fixed_further_out(loop, name):
                continue
            inverse = tree.fresh(f"inverse_{name}")
            edits = [e for n in nodes for e in _times(n, inverse)]
            line = f"const {kind} {inverse} = {kind}(1) / {name};"
            if not loop.within("collapse"):
                made = tree.before(loop, line, inside=edits)
                yield Site(f"multiply by 1 / {name} in {loop.place}", made)


def _fixed_further_out(loop: Loop, name: str) -> bool:
    """Whether the loop around this one leaves the name alone too; then that is the better place."""
    outer = loop.parent
    return outer is not None and not loop_effects(outer).opaque and name not in loop_effects(outer).changing


def _times(node: Node, inverse: str) -> tuple[Edit, Edit]:
    sign, right = field_of(node, "operator"), field_of(node, "right")
    return Edit(sign.start_byte, sign.end_byte, "*"), Edit(right.start_byte, right.end_byte, inverse)


@transform("single_precision")
def single_precision(tree: SyntaxTree) -> Iterator[Site]:
    """Compute in float what the kernel computes in double without need."""
    if tree.dtype == "fp64":
        return
    for function in tree.functions:
        if function.node.has_error:
            continue
        edits = tuple(e for node in walk(function.body) if (e := _single(tree, node)))
        if edits:
            yield Site(f"single precision in {function.name}", edits)


def _single(tree: SyntaxTree, node: Node) -> Edit | None:
    text = tree.slice(node)
    parent = node.parent
    if node.type == "primitive_type" and text == "double":
        return Edit(node.start_byte, node.end_byte, "float")
    if node.type == "number_literal" and _DOUBLE_LITERAL.fullmatch(text) and not text.isdigit():
        return Edit(node.end_byte, node.end_byte, "f")
    called = parent is not None and parent.type == "call_expression" and node == field_of(parent, "function")
    if called and node.type == "identifier" and text in _SINGLE:
        return Edit(node.end_byte, node.end_byte, "f")
    return None
