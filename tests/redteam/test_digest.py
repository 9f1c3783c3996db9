"""A code digest passes a verdict on to another kernel, so no two kernels that may differ anywhere share one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fitness.base import Built
from operators.kernel import Kernel
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


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with Arena(tmp_path_factory.mktemp("build"), Secret.planted(tmp_path_factory.mktemp("secret"), "-")) as made:
        yield made


def digest(arena: Arena, source: str) -> str:
    built = arena.stage("axpb").build(Kernel("axpb", "cpu", source))
    assert isinstance(built, Built), built
    return built.code_digest


def test_another_name_or_comment_changes_no_digest(arena: Arena) -> None:
    renamed = PLAIN.replace("second(", "other(").replace("*/\n", "*/\n// a comment\n")
    assert digest(arena, renamed) == digest(arena, PLAIN)


@pytest.mark.parametrize("name", OTHERS)
def test_what_may_behave_differently_has_another_digest(name: str, arena: Arena) -> None:
    assert digest(arena, OTHERS[name]) != digest(arena, PLAIN)
