"""Index arithmetic as polynomials over names.

`(long long)i * n + j` through a row pointer and the same without one are equal here. What is not understood stays
in a polynomial as its text.
"""

from __future__ import annotations

from collections.abc import Iterable

from mutators.analysis.cpp_tree import Function
from mutators.analysis.source_text import WORD
from mutators.analysis.syntax import Node, field_of

Polynomial = dict[tuple[str, ...], int]
"""Coefficient by monomial; a monomial is a sorted tuple of atoms (names, or opaque texts such as `rows[i + 1]`)."""

MAX_TERMS = 64

CASTS = frozenset({"int", "long", "size_t", "std::size_t", "unsigned", "int64_t", "ptrdiff_t", "std::ptrdiff_t"})
"""Functional casts between integers, which leave an index as it is."""


def add(a: Polynomial, b: Polynomial, scale: int = 1) -> Polynomial:
    """a + scale * b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + scale * coefficient
    return {monomial: c for monomial, c in total.items() if c}


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """a * b."""
    product: Polynomial = {}
    for left, c in a.items():
        for right, d in b.items():
            product = add(product, {tuple(sorted(left + right)): c * d})
    return product


def constant(number: int) -> Polynomial:
    """An integer as a polynomial; 0 is the empty one."""
    return {(): number} if number else {}


def polynomial(function: Function, node: Node, depth: int = 0) -> Polynomial | None:
    """The value of an integer expression; names with one known definition are expanded. None: too large."""
    tree = function.tree
    text = tree.slice(node)
    match node.type:
        case "number_literal" if text.rstrip("uUlL").isdigit():
            return constant(int(text.rstrip("uUlL")))
        case "identifier":
            known = function.definition(text)
            # The limit ends long chains of definitions, and names that are defined by themselves.
            if known and not known.pointer and known.value is not None and depth < 8:
                return polynomial(function, known.value, depth + 1)
            return {(text,): 1}
        case "parenthesized_expression" if len(node.named_children) == 1:
            return polynomial(function, node.named_children[0], depth)
        case "cast_expression":
            return polynomial(function, field_of(node, "value"), depth)
        case "call_expression":
            arguments = field_of(node, "arguments").named_children
            name = tree.slice(field_of(node, "function")).split("<")[0]
            if len(arguments) == 1 and (name == "static_cast" or name in CASTS):
                return polynomial(function, arguments[0], depth)
        case "binary_expression":
            return _binary(function, node, depth)
    return {(" ".join(text.split()),): 1}


def _binary(function: Function, node: Node, depth: int) -> Polynomial | None:
    sign = field_of(node, "operator").type
    if sign not in "+-*":
        return {(" ".join(function.tree.slice(node).split()),): 1}
    left = polynomial(function, field_of(node, "left"), depth)
    right = polynomial(function, field_of(node, "right"), depth)
    if left is None or right is None or len(left) * len(right) > MAX_TERMS:
        return None
    if sign == "*":
        return multiply(left, right)
    return add(left, right, 1 if sign == "+" else -1)


def names_in(function: Function, texts: Iterable[str]) -> set[str]:
    """Every name that the texts mention, those behind known definitions included."""
    found: set[str] = set()
    waiting = [name for text in texts for name in WORD.findall(text)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            known = function.definition(name)
            if known and known.value is not None:
                waiting += WORD.findall(function.tree.slice(known.value))
    return found


def mentions(function: Function, value: Polynomial, name: str) -> bool:
    """Whether a polynomial depends on a name, be it within opaque texts or behind known definitions."""
    return name in names_in(function, (atom for monomial in value for atom in monomial))


def split(function: Function, value: Polynomial, name: str) -> tuple[Polynomial, Polynomial] | None:
    """(a, b) with value = a * name + b and neither mentioning `name`; None where it is not linear in it."""
    factor: Polynomial = {}
    rest: Polynomial = {}
    for monomial, c in value.items():
        if name in monomial:
            left = list(monomial)
            left.remove(name)
            factor = add(factor, {tuple(left): c})
        else:
            rest[monomial] = c
    if mentions(function, factor, name) or mentions(function, rest, name):
        return None
    return factor, rest
