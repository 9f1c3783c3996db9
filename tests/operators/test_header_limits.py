"""No header, however it is written, keeps its reader busy: the work grows with its length alone."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.errors import PlanError
from operators.plan.header import MAX_HEADER_BYTES, MAX_LINES
from operators.plan.launch import MAX_TERMS
from operators.plan.reading import parse_plan
from tests.choosing import examples, some_slow
from tests.operators.sample import FACTS, OPERATOR

LAUNCH = '[[launch]]\nkernel = "f"\nargs = ["x"]\n'
CALLS_PER_CHARACTER = 40
PIECES = (
    "a", ".", "a.", '"a".', " ", "\t", "[", "]", "[[", "]]", "{", "}", "=", "a=1\n", "a = ", "\n", '"', "'",
    '"""', "'''", "\\", "\\\n", "#", ",", "1,", "1", "1_", "0x", "1e", "nan", "2026-11-22T10:00:00.", "[a.b]\n",
    "[[a]]\n", "{a=", "é", LAUNCH, "[group.g]\nrepeat = 4096\n", '[[buffer]]\nname = "b"\nshape = ["rows"]\n',
)  # fmt: skip


def calls_of(text: str) -> tuple[int, str]:
    """The number of calls of Python functions that reading a header takes, and the result."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    said = ""
    sys.setprofile(count)
    try:
        parse_plan(f"/*! evo\n{text}*/\n", OPERATOR, "cpu")
    except PlanError as error:
        said = str(error)
    finally:
        sys.setprofile(None)
    return calls, said


@pytest.mark.parametrize(
    "text",
    some_slow(
        [
            "a" + ".a" * 16000 + " = 1\n",
            ("a" + ".a" * 15 + " = 1\n") * 1500,
            ".".join(['"a"'] * 10000) + " = 1\n",
            "z = " + "[" * 30000 + "]" * 30000 + "\n",
            ("z = " + "[" * 15 + "]" * 15 + "\n") * 1000,
            "z = " + "{a=" * 15000 + "\n",
            "".join(f"[a{n}.b.c.d.e.f.g.h]\n" for n in range(2500)),
            " " * 60000 + "\n",
            (" " * 4000 + "\n") * 15 + "zz = 1\n",
            ("a " * 2000 + "\n") * 15,
            ("'" * 4000 + "\n") * 15,
            '"' * 60000,
            'z = """' + "\\\n   " * 4000 + '"""\n',
        ],
        6,
    ),
)
def test_the_worst_headers_are_told_quickly(text: str) -> None:
    calls, said = calls_of(text + LAUNCH)
    assert said
    assert calls <= CALLS_PER_CHARACTER * len(text) + 20000


@examples(60)
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 4000)), min_size=1, max_size=6))
def test_work_grows_with_the_length_alone(pieces: list[tuple[str, int]]) -> None:
    text = "".join(piece * count for piece, count in pieces)[: MAX_HEADER_BYTES - len(LAUNCH)] + LAUNCH
    calls, _ = calls_of(text)
    assert calls <= CALLS_PER_CHARACTER * len(text) + 20000


def test_limits_are_told_with_their_line() -> None:
    for text, line, reason in (
        ("a.b\n" * 3 + "k" * 5000 + " = 1\n", 5, "5004 characters"),
        ("\n" * MAX_LINES, MAX_LINES + 1, "the last one that is allowed"),
        ("x = 1\n" + "a." * 20 + "a = 1\n", 3, "dots"),
        ("x = [\n" + "[" * 20 + "\n", 3, "brackets"),
    ):
        assert f"line {line}: " in calls_of(text)[1]
        assert reason in calls_of(text)[1]


def test_strings_and_comments_hold_what_they_like() -> None:
    text = f'requires = "rows > 0"  # {"." * 200}{"[" * 200}\nzero = [\n  "y",  # {"{" * 99}\n]\n{LAUNCH}'
    parse_plan(f"/*! evo\n{text}*/\n", OPERATOR, "cpu")


@pytest.mark.parametrize(
    "launch", ["args = [@]\n", 'when = "0 and rows"\nargs = ["x"]\n'], ids=["arguments", "left out"]
)
def test_a_group_cannot_repeat_more_formulas_than_a_plan_may_have(launch: str) -> None:
    formula = '"' + "+".join(["rows"] * 25) + '"'
    body = f'[[launch]]\nkernel = "f"\ngroup = "g"\n{launch.replace("@", ", ".join([formula] * 10))}' * 20
    plan = parse_plan(f"/*! evo\n[group.g]\nrepeat = 4096\n{body}*/\n", OPERATOR, "cpu")
    with pytest.raises(PlanError, match=f"more than {MAX_TERMS} terms"):
        plan.resolve(OPERATOR, dtype="fp32", dims={"rows": 6, "cols": 100, "longest": 9}, values={}, facts=FACTS)
