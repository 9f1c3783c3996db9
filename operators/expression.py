"""The expression language of operator files and kernel plans.

Integer arithmetic over named values: `+ - * // % **`, comparisons (chained ones too), `and or not`,
`a if c else b`, and the functions of `FUNCTIONS`. Text is parsed with `ast` and evaluated here, node by node;
nothing is ever handed to `eval`. Size, nesting and magnitude are bounded, so that no text, however hostile, costs
more than microseconds. Truth values are the integers 0 and 1.
"""

from __future__ import annotations

import ast
import operator as arithmetic
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

MAX_CHARACTERS = 500
MAX_NODES = 200
MAX_DEPTH = 30
MAX_MAGNITUDE = 2**63 - 1
"""Every value, intermediate ones too, stays within plus or minus this."""


class ExpressionError(ValueError):
    """The expression cannot be read, or has no value in this environment; the text is one line."""


def ceil_div(a: int, b: int) -> int:
    """a / b rounded towards plus infinity."""
    return -(-a // b)


def ceil_log2(n: int) -> int:
    """Smallest k with 2**k >= n; 0 for every n <= 1."""
    return max(n - 1, 0).bit_length()


def next_pow2(n: int) -> int:
    """Smallest power of two that is >= n; 1 for every n <= 1."""
    return 1 << ceil_log2(n)


FUNCTIONS: Mapping[str, tuple[Callable[..., int], int | None]] = {
    "min": (min, None),
    "max": (max, None),
    "ceil_div": (ceil_div, 2),
    "ceil_log2": (ceil_log2, 1),
    "next_pow2": (next_pow2, 1),
}
"""Function and number of arguments (None: two or more)."""

BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: arithmetic.add,
    ast.Sub: arithmetic.sub,
    ast.Mult: arithmetic.mul,
    ast.FloorDiv: arithmetic.floordiv,
    ast.Mod: arithmetic.mod,
}

COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: arithmetic.eq,
    ast.NotEq: arithmetic.ne,
    ast.Lt: arithmetic.lt,
    ast.LtE: arithmetic.le,
    ast.Gt: arithmetic.gt,
    ast.GtE: arithmetic.ge,
}

LANGUAGE = "integers, names, + - * // % **, comparisons, and/or/not, `a if c else b`, " + " ".join(
    f"{f}()" for f in FUNCTIONS
)


@dataclass(frozen=True)
class Expression:
    """A parsed expression. Equal texts make equal expressions."""

    text: str
    names: frozenset[str] = field(compare=False)
    """Every name it mentions, buffers and tensors included."""
    _tree: ast.expr = field(compare=False, repr=False)
    _objects: frozenset[str] = field(compare=False, repr=False)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under `env`. Raises ExpressionError where there is none or it would be an object's name."""
        value = self.choose(env)
        if isinstance(value, str):
            raise ExpressionError(f"`{self.text}` names `{value}`, where an integer is needed")
        return value

    def choose(self, env: Mapping[str, int]) -> int | str:
        """Like `evaluate`, for expressions that may choose between objects: an object's name, or an integer."""
        try:
            return _evaluate(self._tree, env, self._objects)
        except ZeroDivisionError:
            raise ExpressionError(f"`{self.text}` divides by zero{_where(self.names, env)}") from None
        except OverflowError:
            raise ExpressionError(f"`{self.text}` exceeds 2**63 - 1 in magnitude{_where(self.names, env)}") from None
        except KeyError as missing:
            raise ExpressionError(f"`{self.text}`: {missing.args[0]} has no value here") from None


def parse(text: str | int, names: Collection[str], *, objects: Collection[str] = ()) -> Expression:
    """Read `text`, which may use the integers called `names` and may choose between `objects`.

    `objects` are names without a numeric value (tensors, buffers); they may stand only where the whole
    expression's value comes from: alone, or as an outcome of `a if c else b`.
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise ExpressionError(f'{text!r} is not an expression; write an integer or a string such as "ceil_div(n, 4)"')
    text = str(text).strip()
    if not text:
        raise ExpressionError("an empty expression; write an integer or a formula")
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "cannot be parsed"
        raise ExpressionError(f"`{text}`: {reason}; allowed are {LANGUAGE}") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ExpressionError(f"`{text[:60]}...` is too large: at most {MAX_NODES} operations and operands")
    _check(tree, text, frozenset(names), frozenset(objects), result=True, depth=0)
    mentioned = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in FUNCTIONS)
    return Expression(text, mentioned, tree, frozenset(objects))


def unknown_name(name: str, allowed: Collection[str]) -> str:
    """One phrase for a name that does not exist: the nearest one, or all there are."""
    near = get_close_matches(name, allowed, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"allowed are {', '.join(sorted(allowed)) or 'none'}"
    return f"unknown name `{name}`; {hint}"


def _where(names: frozenset[str], env: Mapping[str, int]) -> str:
    known = ", ".join(f"{name} = {env[name]}" for name in sorted(names) if name in env)
    return f" with {known}" if known else ""


def _check(
    node: ast.expr, text: str, names: frozenset[str], objects: frozenset[str], *, result: bool, depth: int
) -> None:
    """Raise unless the tree holds only what the language has. `result`: an object's name may stand here."""

    def check(child: ast.expr, *, result: bool = False) -> None:
        _check(child, text, names, objects, result=result, depth=depth + 1)

    if depth > MAX_DEPTH:
        raise ExpressionError(f"`{text[:60]}` is nested too deeply: at most {MAX_DEPTH} levels")
    match node:
        case ast.Constant(value=value):
            if type(value) is not int:
                raise ExpressionError(f"`{text}`: {value!r} is not an integer; allowed are {LANGUAGE}")
            if abs(value) > MAX_MAGNITUDE:
                raise ExpressionError(f"`{text}`: {str(value)[:24]} exceeds 2**63 - 1")
        case ast.Name(id=name):
            if name in objects and not result:
                raise ExpressionError(
                    f"`{text}`: `{name}` has no numeric value; only `x if condition else y` may name it"
                )
            if name not in objects and name not in names:
                raise ExpressionError(f"`{text}`: {unknown_name(name, names | objects if result else names)}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY or isinstance(op, ast.Pow):
            check(left)
            check(right)
        case ast.BinOp(op=ast.Div()):
            raise ExpressionError(f"`{text}`: `/` would leave the integers; use `//` or ceil_div()")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            check(operand)
        case ast.BoolOp(values=values):
            for value in values:
                check(value)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in COMPARISONS for op in ops):
            for value in (left, *comparators):
                check(value)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            check(test)
            check(body, result=result)
            check(orelse, result=result)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if name not in FUNCTIONS:
                raise ExpressionError(f"`{text}`: unknown function `{name}`; allowed are {', '.join(FUNCTIONS)}")
            wanted = FUNCTIONS[name][1]
            if len(args) < 2 if wanted is None else len(args) != wanted:
                raise ExpressionError(
                    f"`{text}`: {name}() takes {wanted or 'two or more'} argument(s), not {len(args)}"
                )
            for value in args:
                check(value)
        case _:
            raise ExpressionError(
                f"`{text}`: `{ast.unparse(node)[:40]}` is not part of the language; allowed are {LANGUAGE}"
            )


def _evaluate(node: ast.expr, env: Mapping[str, int], objects: frozenset[str]) -> int | str:
    def value(child: ast.expr) -> int:
        result = _evaluate(child, env, objects)
        assert not isinstance(result, str), "parse() lets objects stand only in result position"
        return result

    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return name if name in objects else int(env[name])
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(value(left), value(right))
        case ast.BinOp(left=left, op=op, right=right):
            return _bounded(BINARY[type(op)](value(left), value(right)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return value(operand)
        case ast.UnaryOp(operand=operand):
            return int(not value(operand))
        case ast.BoolOp(op=ast.And(), values=values):
            return int(all(value(v) for v in values))
        case ast.BoolOp(values=values):
            return int(any(value(v) for v in values))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            terms = [value(left), *map(value, comparators)]
            return int(all(COMPARISONS[type(op)](a, b) for op, a, b in zip(ops, terms, terms[1:], strict=False)))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if value(test) else orelse, env, objects)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _bounded(FUNCTIONS[name][0](*map(value, args)))
    raise AssertionError(f"parse() let {ast.dump(node)} through")


def _bounded(number: int) -> int:
    if abs(number) > MAX_MAGNITUDE:
        raise OverflowError
    return number


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise OverflowError
    if abs(base) > 1 and exponent > 64:
        raise OverflowError
    return _bounded(base ** min(exponent, 64 + exponent % 2))
