"""A plan's formulas as C++ over `plan.hpp`, whose functions have the values of ours and fail where ours have none."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import count

from operators.expression import Expression

_BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floor_div", ast.Mod: "mod", ast.Pow: "power"}
_COMPARISONS = {
    ast.Eq: "equal",
    ast.NotEq: "unequal",
    ast.Lt: "less",
    ast.LtE: "at_most",
    ast.Gt: "greater",
    ast.GtE: "at_least",
}
_FUNCTIONS = {"min": "least", "max": "most"}
"""That take a list in braces; the others are called as they are."""


def number(expression: Expression, name: Callable[[str], str]) -> str:
    """Return a C++ expression of type long long; `name` says what stands for a name."""
    return _Writer(name).number(expression.tree)


def choice(expression: Expression, name: Callable[[str], str], outcome: Callable[[str | None, str], str]) -> str:
    """Return a C++ expression of what is chosen between objects and numbers.

    `outcome` makes what stands for a choice: of an object, told by its name, or of a number, told by None and its C++.
    """
    writer = _Writer(name)

    def chosen(tree: ast.expr) -> str:
        match tree:
            case ast.Name(id=found) if found in expression.objects:
                return outcome(found, "")
            case ast.IfExp(test=test, body=body, orelse=orelse) if expression.objects & _named(tree):
                return f"({writer.number(test)} != 0 ? {chosen(body)} : {chosen(orelse)})"
        return outcome(None, writer.number(tree))

    return chosen(expression.tree)


def literal(text: str) -> str:
    """Return a text as a C++ string, on one line and in characters that every compiler reads."""
    kept = (c if c.isascii() and c.isprintable() else "?" for c in " ".join(text.split()))
    return '"' + "".join("\\" + c if c in '"\\' else c for c in kept) + '"'


def _named(tree: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class _Writer:
    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name
        self._numbers = count()

    def number(self, tree: ast.expr) -> str:
        match tree:
            case ast.Constant(value=int(value)):
                return f"{value}LL"
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=op, right=right):
                return f"{_BINARY[type(op)]}({self.number(left)}, {self.number(right)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{self.number(operand)})"
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.UnaryOp(operand=operand):
                return f"truth({self.number(operand)} == 0)"
            case ast.BoolOp(op=op, values=values):
                joined = " && " if isinstance(op, ast.And) else " || "
                return f"truth({joined.join(f'{self.number(value)} != 0' for value in values)})"
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._compare(left, ops, rest)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self.number(test)} != 0 ? {self.number(body)} : {self.number(orelse)})"
            case ast.Call(func=ast.Name(id=name), args=args):
                listed = ", ".join(map(self.number, args))
                return f"{_FUNCTIONS[name]}({{{listed}}})" if name in _FUNCTIONS else f"{name}({listed})"
        raise AssertionError(f"parse() let {ast.dump(tree)} through")

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr]) -> str:
        """A chain works every operand out once, and none behind the first comparison that does not hold."""
        if len(ops) == 1:
            return f"truth({_COMPARISONS[type(ops[0])]}({self.number(left)}, {self.number(rest[0])}))"
        before = f"c{next(self._numbers)}"
        made = f"const long long {before} = {self.number(left)}; "
        for op, operand in zip(ops, rest, strict=True):
            after = f"c{next(self._numbers)}"
            made += f"const long long {after} = {self.number(operand)}; "
            made += f"if (!{_COMPARISONS[type(op)]}({before}, {after})) return 0LL; "
            before = after
        return f"[&] {{ {made}return 1LL; }}()"
