"""Forbidden text of a kernel file; headers come before it; no text keeps its readers busy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitness.cpu.build import MAX_LOG_COLUMNS, tidy_log
from fitness.cpu.gate import DIALECT
from fitness.cuda.compile.build import MAX_LOG_LINES, scrub_log
from fitness.sandbox.source import MAX_EXPANDED, forbidden, hoisted, smuggled
from operators.plan.header import MAX_SOURCE_BYTES
from tests.choosing import some_slow

WORDS = (
    "#include <cmath>", '#include "vector"', "  #\tinclude <array>  // why", "%:include <limits>", "int x;", "\r", "",
    "#inc\\\nlude <ratio>", "#include <cmath>\\\n", "/* #include <bit>\n*/", "// #include <span> \\\n",
    "#define N 3", "#if N\n#endif", "'\\n'", '"#include <set>"',
)  # fmt: skip


def test_headers_come_out_and_lines_keep_their_numbers() -> None:
    source = (
        '#include <cmath>  // sqrt\nint a;\n#inc\\\nlude <array> /* b\n*/\n#if 0\n  # include "cmath"\n#endif\nint b;'
    )
    headers, rest = hoisted(source)
    assert headers == ("cmath", "array")
    assert rest.split("\n") == ["  // sqrt", "int a;", " /* b", "", "*/", "#if 0", "  ", "#endif", "int b;"]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_no_directive_that_includes_is_left(words: list[str]) -> None:
    source = "\n".join(words)
    if forbidden(source, "kernel", DIALECT) is not None:
        return
    headers, rest = hoisted(source)
    assert rest.count("\n") == source.count("\n")
    assert hoisted(rest)[0] == ()
    assert set(headers) <= {"cmath", "vector", "array", "limits", "ratio"}


@pytest.mark.parametrize(
    "text",
    [
        '__attribute__((section(".rodata\\nx"))) int a;',
        '__attribute__((section(u8".rodata"))) int a;',
        '__attribute__((section((".rodata")))) int a;',
        '__attribute__((__section__(".ro" "data"))) int a;',
        f'__attribute__((section({"(" * 99}".rodata"{")" * 99}))) int a;',
        '__attribute__((section(f(alias(0), ".rodata")))) int a;',
        "int a = 'b;",
        '[[gnu::alias("a;b")]] void f();',
        'int a __asm__("b");',
    ],
)
def test_what_would_reach_the_assembler_is_told(text: str) -> None:
    assert smuggled(f'# 1 "kernel.cpp"\n{text}\n')
    assert smuggled(f'# 1 "kernel.cpp"\n# 5 "/usr/include/c++/12/ratio" 3\n{text}\n')


@pytest.mark.parametrize(
    "text", ['__attribute__((section(".rodata"))) int a;', "section(3);", "int section = alias(b, (c));"]
)
def test_names_and_ordinary_words_are_not(text: str) -> None:
    assert smuggled(f'# 1 "kernel.cpp"\n{text}\n') is None


WORST = (
    "/",
    '"',
    "'",
    "(",
    "\\\n",
    "#",
    "/*",
    "//",
    " ",
    "\n",
    "\n ",
    'R"',
    "0'",
    "??",
    "section(",
    'section("',
    "/a",
    "ld:",
    "ptxas error",
)
"""Texts that patterns stumble over when there is much of them."""


@pytest.mark.parametrize("piece", some_slow(WORST, 1))
def test_much_of_anything_is_read_in_one_pass(piece: str) -> None:
    text = (piece * MAX_SOURCE_BYTES)[:MAX_SOURCE_BYTES]
    forbidden(text, "kernel", DIALECT)
    hoisted(text)
    smuggled(text)
    assert len(tidy_log(text)) <= 41 * (MAX_LOG_COLUMNS + 10)
    assert len(scrub_log(f"kernel.cu(3): error: {text}", ("f",), ())) <= (MAX_LOG_LINES + 1) * 700


def test_what_macros_make_is_bounded() -> None:
    assert "at most" in str(smuggled(" " * (MAX_EXPANDED + 1)))
