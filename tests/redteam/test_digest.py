"""A code digest passes a verdict on to another kernel, so no two kernels that may differ anywhere share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fitness.judging.base import Built
from operators.kernel import Kernel
from tests.choosing import some_slow
from tests.redteam.arena import Arena, Secret

LAUNCH = '[[launch]]\nkernel = "{0}"\nargs = ["x", "b", "y", "alpha", "n"]\n{1}\n'
BODIES = """
extern "C" void first(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
extern "C" void second(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i];
}
"""
FIRST = LAUNCH.format("first", "")
PLAIN = f"/*! evo\n{FIRST}*/\n{BODIES}"
OTHERS = {
    "launched on no hidden shape": PLAIN.replace(FIRST, LAUNCH.format("first", 'when = "n >= 40000"')),
    "other function launched": PLAIN.replace(FIRST, LAUNCH.format("second", "")),
    "names exchanged": PLAIN.replace("first(", "third(").replace("second(", "first(").replace("third(", "second("),
    "supports fewer shapes": PLAIN.replace("/*! evo\n", '/*! evo\nrequires = "n > 2"\n'),
    "may differ between runs": PLAIN.replace("/*! evo\n", "/*! evo\ndeterministic = false\n"),
    "output cleared first": PLAIN.replace("/*! evo\n", '/*! evo\nzero = ["y"]\n'),
    "other constant": PLAIN.replace("y[i] = alpha * x[i] + b[i]", "y[i] = alpha * x[i] + b[i] * T(1.5)"),
}
TABLE = (
    "{0} const float table[8] = {{1, 2, 3, 4, 5, 6, 7, 8}};\n{1} const float other[8] = {{1, 2, 3, 4, 5, 6, 7, 9}};\n"
)
READS = "    y[0] = table[n & 7] + other[n & 7] + float(reinterpret_cast<unsigned long>(table) & 255);\n"
CRITICAL = (
    "#pragma omp parallel for\nfor (int i = 0; i < n; i++) {{\n#pragma omp critical({0})\n y[i] = alpha * x[i];\n"
)
CRITICAL += "#pragma omp critical({1})\n y[i] += b[i];\n}}\n"
CALLED = 'extern "C" float {0}(float v) {{ return v {1} 1; }}\n'


def kernel(before: str, body: str) -> str:
    header = f"/*! evo\n{LAUNCH.format('first', '')}*/\n"
    return f'{header}{before}extern "C" void first(const T* x, const T* b, T* y, T alpha, int n) {{\n{body}\n}}\n'


PAIRS = {
    "alignment of a constant": [kernel(TABLE.format(f"alignas({n}) static", "static"), READS) for n in (32, 128)],
    "order of constants": [
        kernel(TABLE.format("static", "static"), READS),
        kernel("".join(reversed(TABLE.format("static", "static").splitlines(keepends=True))), READS),
    ],
    "one lock or two": [kernel("", CRITICAL.format("one", other)) for other in ("one", "two")],
    "what a pointer points to": [
        kernel(f"const float a[3] = {{1, 2, 3}};\nconst float* const p[2] = {{a + {n}, a}};\n", "    y[0] = *p[n & 1];")
        for n in (1, 2)
    ],
    "which function a table names": [
        kernel(
            CALLED.format("add", "+") + CALLED.format("sub", "-") + f"float (*const p[2])(float) = {{{name}, add}};\n",
            "    y[0] = p[n & 1](x[0]);",
        )
        for name in ("add", "sub")
    ],
    "which function of the library is called": [
        kernel("#include <cmath>\n", f"    for (int i = 0; i < n; i++) y[i] = std::{name}(x[i]);")
        for name in ("sin", "cos")
    ],
}
"""Programs that differ somewhere in what is mapped, and nowhere else."""

SPARSE = """/*! evo
[[launch]]
kernel = "spmv"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
when = "max_row_nnz {0}"
*/
extern "C" void spmv(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {{
    for (int r = 0; r < rows; r++) {{
        ACC sum = 0;
        for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) sum += values[p] * x[col_indices[p]];
        y[r] = sum;
    }}
}}
"""


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("build"), Secret.planted(tmp_path_factory.mktemp("secret"), "-")) as made:
        yield made


def digest(arena: Arena, source: str, operator: str = "axpb") -> str:
    built = arena.stage(operator).build(Kernel(operator, "cpu", source))
    assert isinstance(built, Built), built
    return built.code_digest


def test_another_name_or_comment_changes_no_digest(arena: Arena) -> None:
    renamed = PLAIN.replace("second(", "other(").replace("*/\n", "*/\n// a comment\n")
    assert digest(arena, renamed) == digest(arena, PLAIN)


@pytest.mark.parametrize("name", some_slow(OTHERS, ("other function launched", "supports fewer shapes")))
def test_what_may_behave_differently_has_another_digest(name: str, arena: Arena) -> None:
    assert digest(arena, OTHERS[name]) != digest(arena, PLAIN)


@pytest.mark.parametrize("name", some_slow(PAIRS, ("alignment of a constant", "which function a table names")))
def test_what_is_mapped_differently_has_another_digest(name: str, arena: Arena) -> None:
    one, other = PAIRS[name]
    assert digest(arena, one) != digest(arena, other)


def test_plans_that_agree_on_the_canonical_dims_alone_have_different_digests(arena: Arena) -> None:
    """Those dims come from inputs that anyone can draw; only a plan's text tells what it does on others."""
    always, nearly = (digest(arena, SPARSE.format(condition), "spmv_csr") for condition in (">= 0", "< 1000000"))
    assert always != nearly
