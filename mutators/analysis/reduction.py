"""Statements that fold values into one variable by an operation that may be reordered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mutators.analysis.cpp_tree import Loop, SyntaxTree
from mutators.analysis.dataflow import loop_effects
from mutators.analysis.syntax import Node, field_of, walk

_MAXIMA = {"max": "max", "fmax": "max", "fmaxf": "max", "min": "min", "fmin": "min", "fminf": "min"}


@dataclass(frozen=True, eq=False)
class Reduction:
    """A statement `s = s op value` for an operation that may be reordered."""

    operation: str
    """+, *, max or min."""
    name: str
    statement: Node


def reduction(tree: SyntaxTree, statement: Node) -> Reduction | None:
    """The reduction that a statement is, if it is one over a plain variable."""
    if statement.type == "if_statement":
        return _guarded(tree, statement)
    if statement.type != "expression_statement" or not statement.named_children:
        return None
    node = statement.named_children[0]
    if node.type != "assignment_expression" or field_of(node, "left").type != "identifier":
        return None
    name = tree.slice(field_of(node, "left"))
    value, sign = field_of(node, "right"), field_of(node, "operator").type
    operation = {"+=": "+", "-=": "+", "*=": "*"}.get(sign) or (_plain(tree, name, value) if sign == "=" else None)
    # `s = s + x` reads the variable once and `s = x > s ? x : s` twice; one more reading would be of a partial result.
    allowed = 0 if sign != "=" else 2 if value.type == "conditional_expression" else 1
    if operation is None or _count(tree, value, name) != allowed:
        return None
    return Reduction(operation, name, statement)


def _count(tree: SyntaxTree, node: Node, name: str) -> int:
    return sum(n.type == "identifier" and tree.slice(n) == name for n in walk(node))


def _plain(tree: SyntaxTree, name: str, value: Node) -> str | None:
    """The operation of `name = value`."""
    if value.type == "binary_expression":
        sign = field_of(value, "operator").type
        sides = [tree.slice(field_of(value, side)) for side in ("left", "right")]
        return sign if (sign in ("+", "*") and name in sides) or (sign == "-" and sides[0] == name) else None
    if value.type == "call_expression":
        function = tree.slice(field_of(value, "function")).split("<")[0].removeprefix("std::")
        arguments = [tree.slice(a) for a in field_of(value, "arguments").named_children]
        return _MAXIMA.get(function) if len(arguments) == 2 and name in arguments else None
    if value.type == "conditional_expression":
        outcomes = tuple(tree.slice(field_of(value, f)) for f in ("consequence", "alternative"))
        return _compared(tree, field_of(value, "condition"), name, outcomes[0], outcomes[1])
    return None


def _compared(tree: SyntaxTree, condition: Node, name: str, chosen: str, otherwise: str) -> str | None:
    """max or min for `x > s ? x : s` and its relatives."""
    while condition.type in ("parenthesized_expression", "condition_clause"):
        condition = condition.named_children[0]
    sign = condition.child_by_field_name("operator")
    if condition.type != "binary_expression" or sign is None or sign.type not in ("<", "<=", ">", ">="):
        return None
    left, right = (tree.slice(field_of(condition, side)) for side in ("left", "right"))
    if name not in (left, right) or {left, right} != {chosen, otherwise}:
        return None
    return "max" if (chosen == left) == (sign.type in (">", ">=")) else "min"


def _guarded(tree: SyntaxTree, statement: Node) -> Reduction | None:
    """`if (x > s) s = x;`."""
    inner = field_of(statement, "consequence")
    if statement.child_by_field_name("alternative") is not None or inner is None:
        return None
    if inner.type == "compound_statement" and len(inner.named_children) == 1:
        inner = inner.named_children[0]
    node = inner.named_children[0] if inner.type == "expression_statement" and inner.named_children else None
    if node is None or node.type != "assignment_expression" or field_of(node, "operator").type != "=":
        return None
    name, value = (tree.slice(field_of(node, side)) for side in ("left", "right"))
    operation = _compared(tree, field_of(statement, "condition"), name, value, name)
    return Reduction(operation, name, statement) if operation and name != value else None


def reductions(loop: Loop) -> dict[str, str] | None:
    """Operation by name for every outer scalar that the loop writes; None where one is written in another way."""
    tree, known = loop.tree, loop_effects(loop)
    found: dict[str, str] = {}
    statements = [s for s in _statements(loop.body) if reduction(tree, s)]
    for name in known.writes:
        own = [r for s in statements if (r := reduction(tree, s)) and r.name == name]
        inside = sum(_count(tree, r.statement, name) for r in own)
        if not own or len({r.operation for r in own}) > 1 or inside != _count(tree, loop.body, name):
            return None
        found[name] = own[0].operation
    return found


def _statements(node: Node) -> Iterator[Node]:
    """Statements at any depth; of a reducing `if`, the whole one."""
    for child in walk(node):
        if child.type in ("expression_statement", "if_statement"):
            yield child
