"""Formulas in C++ have the values of ours."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from evo.packaging import cpp_files
from evo.packaging.cpp import choice, identifier, number
from operators.expression import MAX_MAGNITUDE, Expression, ExpressionError, parse

NAMES = ("a", "b", "c")
EDGES = (
    0,
    1,
    2,
    3,
    7,
    62,
    63,
    64,
    1000,
    2**31,
    2**32 + 1,
    3037000499,
    3037000500,
    2**62,
    MAX_MAGNITUDE - 1,
    MAX_MAGNITUDE,
)
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")


def drawn(draw: random.Random, depth: int) -> str:
    """A formula that no author would write."""
    if depth == 0 or draw.random() < 0.15:
        return draw.choice(NAMES) if draw.random() < 0.7 else str(draw.choice(EDGES))

    def part() -> str:
        return drawn(draw, depth - 1)

    form = draw.randrange(11)
    if form < 4:
        return f"({part()} {draw.choice(('+', '-', '*', '//', '%'))} {part()})"
    comparisons = ("==", "!=", "<", "<=", ">", ">=")
    return (
        (
            f"({part()}) ** ({part()})",
            f"({part()} {draw.choice(comparisons)} {part()})",
            f"({part()} {draw.choice(comparisons)} {part()} {draw.choice(comparisons)} {part()} < {part()})",
            f"({part()} if {part()} else {part()})",
            f"({part()} {draw.choice(('and', 'or'))} {part()} {draw.choice(('and', 'or'))} {part()})",
            f"({draw.choice(('-', 'not ', '+'))}({part()}))",
            f"{draw.choice(('min', 'max', 'ceil_div'))}({part()}, {part()})" + draw.choice(("", " * 1", " // -3")),
        )[form - 4]
        if draw.random() < 0.9
        else f"{draw.choice(('ceil_log2', 'next_pow2'))}({part()})"
    )


SIMPLE = [f"a {op} b" for op in ("+", "-", "*", "//", "%", "**")]
SIMPLE += ["ceil_div(a, b)", "ceil_log2(a)", "next_pow2(a)", "-a", "not a", "min(a, b)", "max(a, b)", "a < b", "a == b"]


@pytest.mark.slow
def test_formulas_have_the_same_values_in_cpp(tmp_path: Path) -> None:
    """Simple ones of all pairs of edges, and any ones of some."""
    draw = random.Random(1)
    found = [drawn(draw, 1 + i % 4) for i in range(250)]
    ends = [sign * edge for edge in EDGES for sign in (1, -1)]
    envs = [{name: draw.choice(ends) for name in NAMES} for _ in range(50)]
    envs += [{name: draw.randrange(-9, 10) for name in NAMES} for _ in range(50)]
    pairs = [{"a": a, "b": b, "c": 0} for a in ends for b in ends]
    asked = [
        ([parse(text, NAMES) for text in texts if len(text) <= 500], values)
        for texts, values in ((SIMPLE, pairs), (found, envs))
    ]
    (tmp_path / "main.cpp").write_text(program(asked))
    build = ["g++", "-std=c++17", *WARNINGS, f"-I{cpp_files.STATIC}", "main.cpp", "-o", "main"]
    subprocess.run(build, cwd=tmp_path, check=True)
    told = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    calls = [(formula, env) for formulas, values in asked for env in values for formula in formulas]
    failed = 0
    for (formula, env), line in zip(calls, told, strict=True):
        try:
            assert line == str(formula.evaluate(env)), (formula.text, env)
        except ExpressionError:
            failed += 1  # of several reasons C++ may tell another one
            assert not line.lstrip("-").isdigit(), (formula.text, env)
    assert 0.05 < failed / len(calls) < 0.8


def program(asked: list[tuple[list[Expression], list[dict[str, int]]]]) -> str:
    """A program that prints the value of every formula in every environment, or why it has none."""
    body = ""
    for formulas, values in asked:
        functions = ",\n".join(
            f"+[]([[maybe_unused]] const V& v) {{ return {number(f, lambda name: f'v.{name}')}; }}" for f in formulas
        )
        rows = ", ".join(f"V{{{', '.join(f'{env[name]}LL' for name in NAMES)}}}" for env in values)
        body += f"show({{{rows}}}, {{{functions}}});\n"
    return f"""#include <cstdio>
#include "plan.hpp"
using namespace evo_plan;
struct V {{ long long a, b, c; }};
void show(const std::vector<V>& values, const std::vector<long long (*)(const V&)>& formulas) {{
    for (const V& v : values) {{
        for (const auto formula : formulas) {{
            try {{
                std::printf("%lld\\n", formula(v));
            }} catch (const std::invalid_argument& error) {{
                std::printf("%s\\n", error.what());
            }}
        }}
    }}
}}
int main() {{ {body} }}
"""


@pytest.mark.slow
def test_a_choice_between_objects_is_made_in_cpp() -> None:
    formula = parse("x if a > b else (y if a else 4)", NAMES, objects=("x", "y"))
    made = choice(formula, str, lambda name, made: f"at.{name}" if name else f"none({made})")
    assert made == "(truth(greater(a, b)) != 0 ? at.x : (a != 0 ? at.y : none(4LL)))"


@pytest.mark.parametrize(
    ("folder", "name"),
    [("softmax_h200", "softmax_h200"), ("my-kernel v2", "my_kernel_v2"), ("2d", "kernel_2d"), ("new", "new_kernel")],
)
def test_a_launcher_is_called_as_its_folder_where_cpp_can(folder: str, name: str) -> None:
    assert identifier(folder) == name
