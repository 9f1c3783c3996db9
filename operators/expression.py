"""The expression language of operator files and kernel plans.

Integer arithmetic over named values: `+ - * // % **`, comparisons (chained ones too), `and or not`,
`a if c else b`, and the functions of `FUNCTIONS`. Text is checked token by token, parsed with `ast` and evaluated
here, node by node; nothing is ever handed to `eval`. Size, nesting and magnitude are bounded, so that no text, however
hostile, costs more than a millisecond. Truth values, those of `and` and `or` too, are the integers 0 and 1.
"""

from __future__ import annotations

import ast
import operator as arithmetic
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from operators.errors import quote, unknown

_parser = threading.Lock()
"""Two threads in `ast.parse` disturb each other's count of its depth and get a SystemError (Python 3.11; cpython issue
106905)."""

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
    f"{name}()" for name in FUNCTIONS
)

TOKEN = re.compile(r"[ \t\r\n]+|[A-Za-z_]\w*|\d[\w.]*|\*\*|//|[=!<>]=|[-+*%/<>(),]", re.ASCII)
"""`/`, and numbers that are no decimal integers, pass here to get messages of their own."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression. Equal texts make equal expressions."""

    text: str
    names: frozenset[str] = field(compare=False)
    """Every name it mentions, buffers and tensors included."""
    terms: int = field(compare=False)
    """Number of its operations and operands: the cost of a value."""
    tree: ast.expr = field(compare=False, repr=False)
    """The syntax tree of `ast`; parse() lets through only what the language has."""
    objects: frozenset[str] = field(compare=False, repr=False)
    """Names without a numeric value that it may choose between."""

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value under `env`. Raises ExpressionError where there is none or it would be an object's name."""
        value = self.choose(env)
        if isinstance(value, str):
            raise ExpressionError(f"{quote(self.text)} names `{value}`, where an integer is needed")
        return value

    def choose(self, env: Mapping[str, int]) -> int | str:
        """The value under `env`, or the name of the object that is chosen. It raises ExpressionError."""
        try:
            return _evaluate(self.tree, env, self.objects)
        except ZeroDivisionError:
            problem = "divides by zero"
        except OverflowError:
            problem = "exceeds 2**63 - 1 in magnitude"
        except ArithmeticError:
            problem = "has a negative exponent"
        except KeyError as missing:
            raise ExpressionError(f"{quote(self.text)}: {missing.args[0]} has no value here") from None
        raise ExpressionError(f"{quote(self.text)} {problem}{_where(self.names, env)}")


def parse(text: str | int, names: Collection[str], *, objects: Collection[str] = ()) -> Expression:
    """Read `text`, which may use the integers called `names` and may choose between `objects`.

    `objects` are names without a numeric value (tensors, buffers); they may stand only where the whole
    expression's value comes from: alone, or as an outcome of `a if c else b`.
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise ExpressionError(
            f'{ascii(text)[:60]} is not an expression; write an integer or a string: "ceil_div(n, 4)"'
        )
    if isinstance(text, int):
        if abs(text) > MAX_MAGNITUDE:
            raise ExpressionError(f"an integer of {text.bit_length()} bits exceeds 2**63 - 1")
        text = str(text)
    text = text.strip()
    _check_tokens(text)
    try:
        # In parentheses, so that it may stand on several lines.
        with _parser:
            tree = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError as error:
        reason = (error.msg or "cannot be parsed").removesuffix(". Perhaps you forgot a comma?")
        raise ExpressionError(f"{quote(text)}: {reason}; allowed are {LANGUAGE}") from None
    except (ValueError, MemoryError, RecursionError):  # what parsers of other versions may say instead
        raise ExpressionError(f"{quote(text)} cannot be parsed; allowed are {LANGUAGE}") from None
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    if len(nodes) > MAX_NODES:
        raise ExpressionError(f"{quote(text)} is too large: at most {MAX_NODES} operations and operands")
    objects = frozenset(objects)
    # Checked once, here, so that `_evaluate` meets only what it knows.
    _check(tree, text, frozenset(names), objects, result=True, depth=0)
    mentioned = frozenset(node.id for node in nodes if isinstance(node, ast.Name) and node.id not in FUNCTIONS)
    return Expression(text, mentioned, len(nodes), tree, objects)


def _where(names: frozenset[str], env: Mapping[str, int]) -> str:
    known = ", ".join(f"{name} = {env[name]}" for name in sorted(names) if name in env)
    return f" with {known}" if known else ""


def _check_tokens(text: str) -> None:
    """Raise unless `text` is of bounded size and holds only what the language's tokens are made of.

    So Python's parser never meets hostile text: no strings, no odd literals that it would warn of, no deep nesting.
    """
    if not text:
        raise ExpressionError("an empty expression; write an integer or a formula")
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(f"the expression has {len(text)} characters; at most {MAX_CHARACTERS} are allowed")
    depth = position = 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            hint = "use `==` to compare" if text[position] == "=" else f"allowed are {LANGUAGE}"
            raise ExpressionError(f"{quote(text)}: {text[position]!a} is not part of the language; {hint}")
        token = match[0]
        if token[0].isdigit() and not token.isdigit():
            raise ExpressionError(f"{quote(text)}: {quote(token, 30)} is not a decimal integer")
        depth += (token == "(") - (token == ")")
        if depth < 0:
            raise ExpressionError(f"{quote(text)}: `)` has no opening bracket")
        if depth > MAX_DEPTH:
            raise ExpressionError(f"{quote(text)} is nested too deeply: at most {MAX_DEPTH} levels")
        position = match.end()


def _check(
    node: ast.AST, text: str, names: frozenset[str], objects: frozenset[str], *, result: bool, depth: int
) -> None:
    """Raise unless the tree holds only what the language has. `result`: an object's name may stand here."""

    def check(*children: ast.expr, result: bool = False) -> None:
        for child in children:
            _check(child, text, names, objects, result=result, depth=depth + 1)

    def error(problem: str) -> ExpressionError:
        return ExpressionError(f"{quote(text)}: {problem}")

    if depth > MAX_DEPTH:
        raise ExpressionError(f"{quote(text)} is nested too deeply: at most {MAX_DEPTH} levels")
    match node:
        case ast.Constant(value=value):
            if problem := _number_problem(value):
                raise error(problem)
        case ast.Name(id=name):
            if name in objects and not result:
                raise error(f"`{name}` has no numeric value; only `x if condition else y` may name it")
            if name not in objects and name not in names:
                raise error(unknown("name", name, names | objects if result else names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY or isinstance(op, ast.Pow):
            check(left, right)
        case ast.Tuple():
            raise error("one expression is wanted, not several; in a list each stands in quotes of its own")
        case ast.BinOp(op=ast.Div()):
            raise error("`/` would leave the integers; use `//` or ceil_div()")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            check(operand)
        case ast.BoolOp(values=values):
            check(*values)
        case ast.Compare(left=first, ops=ops, comparators=rest) if all(type(op) in COMPARISONS for op in ops):
            check(first, *rest)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            check(test)
            check(body, orelse, result=result)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            if problem := _call_problem(name, len(args)):
                raise error(problem)
            check(*args)
        case _:
            part = ast.get_source_segment(f"({text}\n)", node) or text
            raise error(f"{quote(part, 40)} is not part of the language; allowed are {LANGUAGE}")


def _number_problem(value: object) -> str:
    """The reason why a literal is no number of the language; empty where it is one."""
    if type(value) is not int:
        return f"{value!r} is not an integer; allowed are {LANGUAGE}"
    return f"{quote(str(value), 24)} exceeds 2**63 - 1" if abs(value) > MAX_MAGNITUDE else ""


def _call_problem(name: str, count: int) -> str:
    """The fault of a call of a function with so many arguments; empty where there is none."""
    if name not in FUNCTIONS:
        return f"unknown function {quote(name, 60)}; allowed are {', '.join(FUNCTIONS)}"
    wanted = FUNCTIONS[name][1]
    fits = count >= 2 if wanted is None else count == wanted
    return "" if fits else f"{name}() takes {wanted or 'two or more'} argument(s), not {count}"


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
        case ast.Compare(left=first, ops=ops, comparators=rest):
            return _compare(value, first, ops, rest)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if value(test) else orelse, env, objects)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _bounded(FUNCTIONS[name][0](*map(value, args)))
    raise AssertionError(f"parse() let {ast.dump(node)} through")


def _compare(value: Callable[[ast.expr], int], first: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr]) -> int:
    """A chain of comparisons, which stops at the first that does not hold."""
    left = value(first)
    for op, operand in zip(ops, rest, strict=True):
        right = value(operand)
        if not COMPARISONS[type(op)](left, right):
            return 0
        left = right
    return 1


def _bounded(number: int) -> int:
    if abs(number) > MAX_MAGNITUDE:
        raise OverflowError
    return number


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise ArithmeticError
    if abs(base) > 1 and exponent > 63:
        raise OverflowError
    parity = exponent % 2  # all that matters beyond 63, where the base is 0, 1 or -1
    return _bounded(base ** min(exponent, 64 + parity))
