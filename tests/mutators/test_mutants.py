"""Wrong kernels made of right ones: one change each, of every kind that fits, none twice."""

from __future__ import annotations

import difflib
from random import Random

import pytest

from mutators.analysis.cpp_tree import SyntaxTree
from mutators.mutants import Mutant, chosen, mutants
from operators.catalog import load
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.operators.sampling import SAMPLE

SUM = """/*! evo
zero = ["product"]
[[launch]]
kernel = "dot_product"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "y", "product", "n"]
*/
extern "C" __global__ void dot_product(const T* x, const T* y, ACC* product, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC sum = 0;
    for (int k = i; k < n; k += 7) sum += load(x[k]) * load(y[k]) - ACC(1e-6);
    atomicAdd(product, sum);
}
"""


def made(name: str, target: str, source: str = "") -> list[Mutant]:
    operator = load(name)
    kernel = Kernel(name, target, source or operator.naive(target))
    return mutants(kernel, SyntaxTree(kernel.source, operator, target, "fp32"))


def changed(mutant: Mutant, source: str) -> str:
    """The one line that is another; without what it was indented by."""
    lines = difflib.ndiff(source.splitlines(), mutant.kernel.source.splitlines())
    return [line[2:].strip() for line in lines if line.startswith("+ ")][-1]


def test_each_kind_of_mistake_is_made_where_it_fits() -> None:
    found = {(m.kind, changed(m, SUM)) for m in made("dot_product", "cuda", SUM)}
    line = "for (int k = i; k < n; k += 7) sum += load(x[k]) * load(y[k]) - ACC(1e-6);"
    assert {
        ("the last block not launched", 'grid = ["max((n) // (256), 1)"]'),
        ("a bound off by one", "if (i > n) return;"),
        ("a bound off by one", "if (i >= n - 1) return;"),
        ("another constant", "ACC sum = 1;"),
        ("a statement left out", ";"),
        ("the last turn of a loop left out", line.replace("k < n", "k < n - 1")),
        ("the tail of a loop left out", line.replace("k < n", "k < n / 8 * 8")),
        ("the first turn of a loop left out", line.replace("k = i", "k = i + 1")),
        ("the last term alone", line.replace("+= load", "= load")),
        ("a factor dropped", line.replace(" * load(y[k])", "")),
        ("a term dropped", line.replace(" - ACC(1e-6)", "")),
        ("another input read", line.replace("y[k]", "x[k]")),
        ("the element before read", line.replace("y[k]", "y[k > 0 ? k - 1 : 0]")),
        ("another constant", line.replace("1e-6", "2e-06")),
        (
            "inputs in a lower precision",
            line.replace("load(x[k])", "evo_coarse(load(x[k]))").replace("load(y[k])", "evo_coarse(load(y[k]))"),
        ),
    } <= found
    assert "outputs not cleared" in {kind for kind, _ in found}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", SAMPLE)
def test_mutants_are_many_and_no_two_are_one(name: str, target: str) -> None:
    operator = load(name)
    source = operator.naive(target)
    found = made(name, target)
    assert len(found) >= 12
    assert len({source, *(m.kernel.source for m in found)}) == len(found) + 1
    for mutant in Random(0).sample(found, 8):
        parse_plan(mutant.kernel.source, operator, target)


def test_a_few_are_of_as_many_kinds_as_there_are() -> None:
    found = made("softmax", "cpu")
    kinds = {mutant.kind for mutant in found}
    assert {mutant.kind for mutant in chosen(found, len(kinds))} == kinds
    assert chosen(found, 7, seed=3) == chosen(found, 7, seed=3)
    assert sorted(m.line for m in chosen(found, 1000)) == [m.line for m in found]
