import ast
import gc
import pickle
import re
import string
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.errors import quote, unknown
from operators.expression import (
    FUNCTIONS,
    MAX_CHARACTERS,
    MAX_MAGNITUDE,
    Expression,
    ExpressionError,
    ceil_div,
    ceil_log2,
    next_pow2,
    parse,
)
from tests.choosing import examples

NAMES = ("n", "m", "BLOCK")

# Texts of the language, fully parenthesised or not: both readings must be Python's own.
atoms = st.one_of(st.integers(0, 1000).map(str), st.sampled_from(NAMES))


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(" ".join)
    comparison = st.tuples(inner, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner).map(" ".join)
    return st.one_of(
        binary,
        st.tuples(inner, st.integers(0, 5)).map(lambda t: f"({t[0]}) ** {t[1]}"),
        comparison.map("({})".format),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"(({t[0]}) <= ({t[1]}) < ({t[2]}))"),
        inner.map("-({})".format),
        inner.map("({})".format),
        st.tuples(st.sampled_from(["min", "max", "ceil_div"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(st.sampled_from(["ceil_log2", "next_pow2"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"(({t[0]}) {t[1]} ({t[2]}))"),
        inner.map("(not {})".format),
    )


texts = st.recursive(atoms, grown, max_leaves=12)
environments = st.fixed_dictionaries({name: st.integers(0, 10_000) for name in NAMES})


class Truth(ast.NodeTransformer):
    """Makes `and` and `or` answer 0 or 1, as they do here, instead of an operand."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return ast.Call(ast.Name("bool", ast.Load()), [node], [])


def pythons_answer(text: str, env: dict[str, int]) -> int | None:
    tree = ast.fix_missing_locations(Truth().visit(ast.parse(text, mode="eval")))
    functions = {name: function for name, (function, _) in FUNCTIONS.items()}
    try:
        return int(eval(compile(tree, "", "eval"), functions, dict(env)))
    except ZeroDivisionError:
        return None


@examples(400)
@given(texts, environments)
def test_agrees_with_python(text: str, env: dict[str, int]) -> None:
    try:
        ours = parse(text, NAMES).evaluate(env)
    except ExpressionError as error:
        if "divides by zero" in str(error):
            assert pythons_answer(text, env) is None
        else:
            assert re.search("exceeds|too large|too deeply|characters", str(error))
    else:
        assert ours == pythons_answer(text, env)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_truth_values_are_zero_and_one(a: int, b: int, c: int) -> None:
    env = {"a": a, "b": b, "c": c}
    value = parse("a and b or c", env).evaluate(env)
    assert type(value) is int and value == int(bool((a and b) or c))
    assert parse("not a", env).evaluate(env) == int(not a)
    assert parse("a < b < c", env).evaluate(env) == int(a < b < c)


@given(st.integers(-3, 2**40), st.integers(1, 2**20))
def test_functions(n: int, d: int) -> None:
    assert (ceil_div(n, d) - 1) * d < n <= ceil_div(n, d) * d
    assert 2 ** ceil_log2(n) >= n and (n <= 1 or 2 ** (ceil_log2(n) - 1) < n)
    assert next_pow2(n) == 2 ** ceil_log2(n)


@examples(300)
@given(st.integers(-4, 4) | st.integers(-MAX_MAGNITUDE, MAX_MAGNITUDE), st.integers(-2, 70) | st.integers(0, 2**62))
def test_powers(base: int, exponent: int) -> None:
    expression = parse("b ** e", ("b", "e"))
    if exponent < 0:
        with pytest.raises(ExpressionError, match="negative exponent with b = "):
            expression.evaluate({"b": base, "e": exponent})
    elif abs(base) <= 1:
        expected = 1 if exponent == 0 or base == 1 else 0 if base == 0 else (-1) ** (exponent % 2)
        assert expression.evaluate({"b": base, "e": exponent}) == expected
    elif exponent <= 63 and abs(base**exponent) <= MAX_MAGNITUDE:
        assert expression.evaluate({"b": base, "e": exponent}) == base**exponent
    else:
        with pytest.raises(ExpressionError, match="exceeds 2\\*\\*63 - 1"):
            expression.evaluate({"b": base, "e": exponent})


words = st.sampled_from(
    [
        "if",
        "else",
        "and",
        "or",
        "not",
        "in",
        "is",
        "lambda",
        "await",
        "yield",
        "for",
        "None",
        "True",
        "__import__",
        "n",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        ":=",
        "=",
        "==",
        ".",
        "**",
        "*",
        "//",
        "/",
        "<<",
        "@",
        "~",
        "'",
        '"',
        "\\",
        "0x1f",
        "1_000",
        "1e9",
        "1j",
        "0777",
        "n(",
        "#",
        ";",
        "f''",
        "é",
        "ﬁ",
        "½",
        "\n",
        "\t",
        "\0",
        "\ud800",
        "9" * 40,
    ]
)
repeated = st.sampled_from(["(", "-", "not ", "n(", "n if ", "2**", "[", "min(", "n<", "~", "lambda:"])
damaged = st.tuples(texts, st.floats(0, 1), st.text(max_size=3)).map(
    lambda t: t[0][: int(len(t[0]) * t[1])] + t[2] + t[0][int(len(t[0]) * t[1]) :]
)
hostile = st.one_of(
    st.text(max_size=600),
    st.text(alphabet=string.printable, max_size=200),
    st.lists(words, max_size=80).map(" ".join),
    st.lists(words, max_size=80).map("".join),
    st.tuples(repeated, st.integers(1, 600)).map(lambda t: t[0] * t[1]),
    damaged,
)


@examples(500)
@given(hostile, environments)
def test_hostile_text_raises_only_its_own_error_and_never_warns(text: str, env: dict[str, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            value = parse(text, NAMES).evaluate(env)
        except ExpressionError as error:
            message = str(error)
            assert "\n" not in message and message.isprintable(), message
            assert len(message) < 400
        else:
            assert abs(value) <= MAX_MAGNITUDE


@pytest.mark.parametrize(
    "text",
    [
        "(" * 500, "(" * 250 + ")" * 250, "-" * 500, "not " * 125, "n(" * 250, "min(" * 100 + "1, 1" + ")" * 100,
        "n if n else " * 41, "1+" * 249 + "1", "9" * 500, "n**" * 166 + "n", "9 ** 9 ** 9 ** 9", "n()" * 160,
        "n<" * 249 + "n", "(n)" * 160, "x" * 500, "(yield n)", "(n for n in n)", "*n", "n, n", "1if 2else 3", "1 is 1",
    ],
)  # fmt: skip
def test_the_worst_texts_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text, NAMES).evaluate(dict.fromkeys(NAMES, 7))


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("", "an empty expression"),
        ("   ", "an empty expression"),
        ("n +", "invalid syntax"),
        ("n / 4", "use `//` or ceil_div()"),
        ("n = 4", "use `==` to compare"),
        ("n & 3", "'&' is not part of the language"),
        ("n.real", "'.' is not part of the language"),
        ("f'{n}'", "is not part of the language"),
        ("0x10", "`0x10` is not a decimal integer"),
        ("1e6", "`1e6` is not a decimal integer"),
        ("2.5", "`2.5` is not a decimal integer"),
        ("4n", "`4n` is not a decimal integer"),
        ("n, m", "one expression is wanted, not several"),
        ("n in m", "`n in m` is not part of the language"),
        ("n m", "invalid syntax"),
        ("n) + (m", "`)` has no opening bracket"),
        ("True", "True is not an integer"),
        ("BLOK", "did you mean `BLOCK`?"),
        ("zzz", "allowed are BLOCK, m, n"),
        ("log2(n)", "unknown function `log2`; allowed are min, max, ceil_div, ceil_log2, next_pow2"),
        ("ceil_div(n)", "ceil_div() takes 2 argument(s), not 1"),
        ("min(n)", "min() takes two or more argument(s), not 1"),
        ("min(n, key=m)", "use `==` to compare"),
        ("min(*n, m)", "`*n` is not part of the language"),
        ("n()()", "`n()()` is not part of the language"),
        ("x", "unknown name `x`"),
        ("9223372036854775808", "exceeds 2**63 - 1"),
        ("n" * (MAX_CHARACTERS + 1), "at most 500 are allowed"),
        ("1 + " * 120 + "1", "too large"),
        (2.5, "2.5 is not an expression"),
        (True, "True is not an expression"),
        (None, "None is not an expression"),
        (["n"], "is not an expression"),
        (10**400, "an integer of 1329 bits exceeds 2**63 - 1"),
    ],
)
def test_messages_of_parse(text: object, phrase: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(text, NAMES)  # type: ignore[arg-type]
    assert phrase in str(error.value)


@pytest.mark.parametrize(
    ("text", "env", "phrase"),
    [
        ("m // (n - 4)", {"n": 4, "m": 1}, "divides by zero with m = 1, n = 4"),
        ("m % n", {"n": 0, "m": 1}, "divides by zero with m = 1, n = 0"),
        ("n * n * n", {"n": 2**30}, "exceeds 2**63 - 1 in magnitude with n = 1073741824"),
        ("n + m", {"n": 1}, "m has no value here"),
        ("2 ** -n", {"n": 1}, "negative exponent with n = 1"),
        ("ceil_div(n, m)", {"n": 1, "m": 0}, "divides by zero"),
    ],
)
def test_messages_of_evaluate(text: str, env: dict[str, int], phrase: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(text, NAMES).evaluate(env)
    assert phrase in str(error.value)


def test_only_what_decides_is_evaluated() -> None:
    env = {"n": 0, "m": 5, "BLOCK": 2}
    for text in ("n and m // n", "0 if not n else m // n", "n == 0 or m // n", "m < n < m // n"):
        assert parse(text, NAMES).evaluate(env) in (0, 1)


def test_objects_stand_only_where_the_value_comes_from() -> None:
    pingpong = parse("x if n % 2 == 0 else (y if m else 3)", NAMES, objects=("x", "y"))
    assert pingpong.names == {"x", "y", "n", "m"}
    assert [pingpong.choose({"n": n, "m": m}) for n, m in ((0, 0), (1, 1), (1, 0))] == ["x", "y", 3]
    with pytest.raises(ExpressionError, match="names `x`, where an integer is needed"):
        pingpong.evaluate({"n": 0, "m": 0})
    for text in ("x + 1", "min(x, 1)", "1 if x else 0", "not x", "x and y", "x < 1", "-x"):
        with pytest.raises(ExpressionError, match="`x` has no numeric value"):
            parse(text, NAMES, objects=("x", "y"))


def test_expressions_compare_by_text_and_survive_pickling() -> None:
    a = parse(" n + 1 ", NAMES)
    assert a == parse("n + 1", NAMES) and hash(a) == hash(parse("n + 1", NAMES)) and a != parse("n+1", NAMES)
    copy: Expression = pickle.loads(pickle.dumps(a))
    assert copy == a and copy.evaluate({"n": 2}) == 3
    assert parse(7, ()).evaluate({}) == 7 and parse(-7, ()).text == "-7"
    assert parse("(n +\n  m)", NAMES).evaluate({"n": 1, "m": 2}) == 3 and parse("n +\n m", NAMES).names == {"n", "m"}


def test_phrases() -> None:
    assert unknown("name", "col", ("cols", "rows")) == "unknown name `col`; did you mean `cols`? Allowed are cols, rows"
    assert unknown("name", "col", ("cols",)) == "unknown name `col`; did you mean `cols`?"
    assert unknown("name", "q", ()) == "unknown name `q`; allowed are none"
    assert quote("a\n b\x1b") == "`a b?`" and len(quote("x" * 500)) == 82


def test_threads_may_parse_at_the_same_time() -> None:
    text = "+".join(["(" * 20 + "n" + ")" * 20, *["ceil_div(n, 3 - -m * 2)"] * 12])

    def let_others_run(phase: str, info: object) -> None:
        time.sleep(0)

    # Threads change places within ast.parse only where garbage is collected.
    before = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as threads:
            parsed = list(threads.map(lambda _: parse(text, {"n", "m"}), range(40)))
    finally:
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*before)
    assert {expression.evaluate({"n": 10, "m": 1}) for expression in parsed} == {10 + 12 * 2}
