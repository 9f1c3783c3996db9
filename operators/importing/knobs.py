"""Sizes that a foreign source sets for itself, found in its syntax tree and put under our control.

A knob is an integer that the module gives a name to, or one in the call of a tensor factory of the functions that make
inputs. The module is compiled with a call in each one's place, which answers with a symbol or with another size.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from operators.importing.symbols import whole

FACTORIES = {"rand", "randn", "randint", "empty", "ones", "zeros", "full", "normal", "uniform", "arange", "linspace"}
LEAST_ATTRIBUTE = 8
"""A smaller integer that no input's shape comes from is an attribute, such as a stride, and stays as it is."""
KNOB = "_size_of_a_problem"
WHOLE = "_whole_number_of_a_problem"
"""The name of what is called in the place of `int`, which no symbol outlives."""


class Knobs(ast.NodeTransformer):
    """Rewrites a module: it collects the knobs by name, and puts calls in their places."""

    def __init__(self, makers: tuple[str, ...]) -> None:
        self.makers = makers
        self.found: dict[str, int] = {}

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Rewrite the constants of the module, then the bodies of functions that make inputs."""
        for statement in node.body:
            if isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets):
                names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
                self._assignment(statement, names)
            elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
                self._unpacked(statement.targets[-1], statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                value = integer(statement.value)
                if value is not None and value > 0:
                    statement.value = self.knob(statement.target.id, value)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name in self.makers:
                _Factories(self).visit(statement)
        return ast.fix_missing_locations(self._plain(node))

    def knob(self, name: str, value: int) -> ast.Call:
        """The call that stands for a size."""
        while name in self.found:
            name += "_"
        self.found[name] = value
        return ast.Call(ast.Name(KNOB, ast.Load()), [ast.Constant(name)], [])

    def _assignment(self, statement: ast.Assign, names: list[str]) -> None:
        value = integer(statement.value)
        if value is not None and value > 0:
            calls: list[ast.expr] = [self.knob(name, value) for name in names]
            if len(calls) == 1:
                statement.value = calls[0]
            else:
                statement.targets = [ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())]
                statement.value = ast.Tuple(calls, ast.Load())
        elif isinstance(statement.value, ast.Tuple | ast.List) and len(names) == 1:
            for index, element in enumerate(statement.value.elts):
                value = integer(element)
                if value is not None and value > 1:
                    statement.value.elts[index] = self.knob(f"{names[0]}_{index}", value)

    def _unpacked(self, target: ast.expr, values: ast.Tuple) -> None:
        if isinstance(target, ast.Tuple) and len(target.elts) == len(values.elts):
            for index, (name, element) in enumerate(zip(target.elts, values.elts, strict=True)):
                value = integer(element)
                if isinstance(name, ast.Name) and value is not None and value > 0:
                    values.elts[index] = self.knob(name.id, value)

    @staticmethod
    def _plain(node: ast.Module) -> ast.Module:
        """There is no GPU where a source is looked at, and numbers may be symbols."""
        for each in ast.walk(node):
            match each:
                case ast.Constant(value=str(text)) if re.fullmatch(r"cuda(:\d)?", text):
                    each.value = "cpu"
                case ast.Call(func=ast.Name(id="int") as function, args=[_], keywords=[]):
                    function.id = WHOLE
        return node


class _Factories(ast.NodeTransformer):
    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        defaults = node.args.defaults
        named = node.args.args[len(node.args.args) - len(defaults) :]
        for index, (argument, default) in enumerate(zip(named, defaults, strict=True)):
            value = integer(default)
            if value is not None and value > 1:
                defaults[index] = self.knobs.knob(argument.arg, value)
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        value = integer(node.value)
        if value is not None and value > 1 and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            node.value = self.knobs.knob(node.targets[0].id, value)
            return node
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in FACTORIES:
            if name == "randint":  # bounds come first
                for argument in node.args:
                    if isinstance(argument, ast.Tuple | ast.List):
                        self._sizes(argument.elts)
            else:
                self._sizes(node.args)
                for argument in node.args[:1]:
                    if isinstance(argument, ast.Tuple | ast.List):
                        self._sizes(argument.elts)
        self.generic_visit(node)
        return node

    def _sizes(self, elements: list[ast.expr]) -> None:
        for index, element in enumerate(elements):
            value = integer(element)
            if value is not None and value > 1:
                elements[index] = self.knobs.knob(f"d{len(self.knobs.found)}", value)


def integer(node: ast.expr) -> int | None:
    """The value of an expression of integers and `+ - * // **` alone."""
    match node:
        case ast.Constant(value=int(value)) if type(value) is int and abs(value) < 2**40:
            return value
        case ast.BinOp(left=left, op=op, right=right):
            a, b = integer(left), integer(right)
            if a is None or b is None:
                return None
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv() if b:
                    return a // b
                case ast.Pow() if 0 <= b < 40 and abs(a) < 100:
                    return int(a**b)
    return None


def compiled(text: str, name: str, makers: tuple[str, ...]) -> tuple[CodeType, dict[str, int]]:
    """A module's code with calls in the places of its knobs, and these with their values. Raises SyntaxError."""
    tree = ast.parse(text)
    knobs = Knobs(makers)
    knobs.visit(tree)
    return compile(tree, name, "exec"), knobs.found


def executed(code: CodeType, knob: Callable[[str], Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The names that a module defines."""
    names: dict[str, Any] = {"__name__": "problem", KNOB: knob, WHOLE: whole, **more}
    exec(code, names)
    return names
