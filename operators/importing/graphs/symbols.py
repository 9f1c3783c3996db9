"""Expressions of torch's symbolic sizes, written in the language of `operators.expression`."""

from __future__ import annotations

import math
import operator as arithmetic
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.functions import FloorDiv

from operators.expression import FUNCTIONS
from operators.importing.graphs.graph import CALC

MOST_BELOW = 2**20
"""Largest denominator of a factor such as 0.75; 0.1 as a computer has it is no quotient of small numbers."""

BY_VALUES = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""Errors of sizes and of decisions that hang on values of tensors."""


class Unwritable(ValueError):
    """An expression that graphs have no words for, with the symbols that are in it."""

    def __init__(self, expr: Any, reason: str = "no formula of a graph says this size") -> None:
        self.symbols = frozenset(getattr(expr, "free_symbols", ()))
        super().__init__(f"{reason}: {str(expr)[:80]}")


def value_of(number: Any) -> Any:
    """A symbolic number as sympy has it; other numbers as they are."""
    return number.node.expr if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool) else number


def plain(number: Any) -> Any:
    """A symbolic number's value at the sizes of the source."""
    return number.node.hint if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool) else number


def real(number: Any) -> Any:
    """The number that `float` makes; that of a tensor whose value is not known is a tensor."""
    number = number.item() if isinstance(number, torch.Tensor) else number
    if not isinstance(number, torch.Tensor):
        return float(number)
    return number if number.is_floating_point() else number.to(torch.get_default_dtype())


def whole(number: Any) -> Any:
    """The whole part of a number, which `int` has no symbol for; that of a symbol over a number is a symbol too, and
    that of a tensor whose value is not known a tensor."""
    number = number.item() if isinstance(number, torch.Tensor) else number
    if isinstance(number, torch.Tensor):
        return number.to(torch.int64)
    if isinstance(number, torch.SymInt):
        return number
    if not isinstance(number, torch.SymFloat):
        return int(number)
    above, below = _exact(number.node.expr).as_numer_denom()
    if not below.is_Integer or below > MOST_BELOW or not above.is_integer:
        return int(number)
    return number.node.shape_env.create_symintnode(FloorDiv(above, below), hint=int(number.node.hint))


def length(value: Any) -> Any:
    """The length of a tensor, of which `len` makes a constant where it is a symbol; that of anything else."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else len(value)


def _exact(expr: Any) -> Any:
    """An expression of floating numbers as one of rational ones."""
    if not expr.args:
        return sympy.Rational(float(expr)) if expr.is_Float else expr
    args, kind = [_exact(arg) for arg in expr.args], type(expr).__name__
    if kind == "ToFloat":
        return args[0]
    return args[0] / args[1] if kind in ("FloatTrueDiv", "IntTrueDiv") else expr.func(*args)


def integer_text(expr: Any, names: Mapping[Any, str]) -> str:
    """An integer expression over the symbols, in our language. Raises Unwritable."""
    expr = sympy.sympify(expr)
    if expr.is_Symbol:
        return names[expr]
    if expr.is_Integer:
        return str(int(expr))
    if expr.is_Add:
        terms = sorted(expr.args, key=lambda term: (term.could_extract_minus_sign(), bool(term.is_Integer)))
        text = integer_text(terms[0], names)
        for term in terms[1:]:
            negative = term.could_extract_minus_sign()
            written = integer_text(-term if negative else term, names)
            text += (
                f" - ({written})" if negative and " " in written else f" - {written}" if negative else f" + {written}"
            )
        return text
    if expr.is_Mul:
        below = [1 / factor for factor in expr.args if factor.is_Rational and not factor.is_Integer]
        if below:
            raise Unwritable(expr)
        return " * ".join(_closed(integer_text(factor, names)) for factor in expr.args)
    if expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
        return f"{_closed(integer_text(expr.base, names))} ** {int(expr.exp)}"
    kind = type(expr).__name__
    if kind in ("FloorToInt", "TruncToInt", "CeilToInt"):
        above, below = _exact(expr.args[0]).as_numer_denom()
        if not below.is_Integer or below > MOST_BELOW or not above.is_integer:
            raise Unwritable(expr, "a size has a factor that is no quotient of small integers")
        texts = integer_text(above, names), str(below)
        return f"ceil_div({', '.join(texts)})" if kind == "CeilToInt" else f"{_closed(texts[0])} // {texts[1]}"
    args = [integer_text(arg, names) for arg in expr.args]
    if kind in ("FloorDiv", "CleanDiv"):
        return f"{_closed(args[0])} // {_closed(args[1])}"
    if kind in ("Mod", "PythonMod"):
        return f"{_closed(args[0])} % {_closed(args[1])}"
    if kind == "ModularIndexing":
        return f"{_closed(args[0])} // {_closed(args[1])} % {_closed(args[2])}"
    if kind in ("Max", "Min"):
        return f"{kind.lower()}({', '.join(args)})"
    raise Unwritable(expr)


def _closed(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() or text.split("(")[0] in FUNCTIONS else f"({text})"


def argument(expr: Any, names: Mapping[Any, str]) -> Any:
    """A number of a node's arguments as graphs write it: a number, `expr` or `calc`. Raises Unwritable."""
    expr = sympy.sympify(expr)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if not expr.free_symbols:
        return int(expr) if expr.is_integer else float(expr)
    try:
        if expr.is_integer or (expr.is_integer is None and "Float" not in str(expr) and "sqrt" not in str(expr)):
            return {"expr": integer_text(expr, names)}
    except Unwritable:
        pass
    return _calc(expr, names)


def _calc(expr: Any, names: Mapping[Any, str]) -> Any:
    def call(name: str, *args: Any) -> dict[str, Any]:
        assert name in CALC, name
        return {"calc": name, "args": list(args)}

    if expr.is_Symbol:
        return {"expr": names[expr]}
    if expr.is_Number:
        return int(expr) if expr.is_Integer else float(expr)
    args = [argument(arg, names) for arg in expr.args]
    kind = type(expr).__name__
    if kind == "ToFloat":
        return call("float", args[0])
    if kind in ("FloatTrueDiv", "IntTrueDiv"):
        return call("truediv", *args)
    if kind in ("FloatPow", "Pow"):
        exponent = expr.args[1]
        if exponent.is_Number and math.isclose(float(exponent), 0.5):
            return call("sqrt", args[0])
        return call("pow", *args)
    if kind in ("FloorDiv", "CleanDiv"):
        return call("floordiv", *args)
    if kind.startswith("OpaqueUnaryFn_") and kind.removeprefix("OpaqueUnaryFn_") in ("sqrt", "log", "exp"):
        return call(kind.removeprefix("OpaqueUnaryFn_"), *args)
    if expr.is_Add or expr.is_Mul:
        made = args[0]
        for arg in args[1:]:
            made = call("add" if expr.is_Add else "mul", made, arg)
        return made
    raise Unwritable(expr)


COMPARED: Mapping[type, Callable[[Any, Any], bool]] = {
    sympy.Eq: arithmetic.eq, sympy.Ne: arithmetic.ne, sympy.Lt: arithmetic.lt, sympy.Le: arithmetic.le,
    sympy.Gt: arithmetic.gt, sympy.Ge: arithmetic.ge,
}  # fmt: skip


def at(expr: Any, values: Mapping[Any, int], known: dict[Any, Any]) -> Any:
    """The value of an expression where its symbols have these; `known` is kept for others with the same values.

    sympy's own substitution, which is left for rare functions, takes a hundred times as long.
    """
    if isinstance(expr, int | float):
        return expr
    if expr in known:
        return known[expr]
    found: Any
    if expr.is_Symbol:
        found = values[expr]
    elif expr.is_Rational:
        found = int(expr) if expr.is_Integer else Fraction(int(expr.p), int(expr.q))
    elif not expr.args or not all(isinstance(each, sympy.Basic) for each in expr.args):
        found = expr.subs(values)
    else:
        args, kind = [at(each, values, known) for each in expr.args], type(expr).__name__
        if any(isinstance(each, sympy.Basic) for each in args):
            found = expr.subs(values)
        elif expr.is_Add:
            found = sum(args)
        elif expr.is_Mul:
            found = math.prod(args)
        elif expr.is_Pow and expr.exp.is_Integer and expr.exp > 0:
            found = args[0] ** args[1]
        elif kind in ("FloorDiv", "CleanDiv"):
            found = args[0] // args[1]
        elif kind in ("Mod", "PythonMod"):
            found = args[0] % args[1]
        elif kind == "ModularIndexing":
            found = args[0] // args[1] % args[2]
        elif kind in ("Max", "Min"):
            found = max(args) if kind == "Max" else min(args)
        elif expr.func in COMPARED:
            found = COMPARED[expr.func](*args)
        else:
            found = expr.subs(values)
    known[expr] = found
    return found
