"""Children of two parents without a model: what is taken over, what comes along, and whether it still works."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mutators.base import Parent, Proposal, Request
from mutators.recombine import PARTS, Recombine
from mutators.transforms.mutator import Transform
from operators.catalog import load
from operators.definition.spec import Task
from operators.kernel import Kernel
from operators.plan.reading import Zero, parse_plan
from tests.choosing import size, some_slow
from tests.mutators.running import CompileError, build_all

A = """\
/*! evo
requires = "cols % 2 == 0"
# of A
[tune]
ROWS = [4, 8]            # rows at a time
[[buffer]]
name = "largest"
dtype = "ACC"
shape = ["rows"]
[[launch]]
kernel = "find_max"
args = ["x", "largest", "rows", "cols"]
[[launch]]
kernel = "scale"
args = ["x", "y", "largest", "rows", "cols"]
*/
#include <cmath>

void find_max(const T* x, ACC* largest, int rows, int cols) {
    for (int r = 0; r < rows; r += ROWS) {
        find(x, largest, r, cols);
    }
}

void scale(const T* x, T* y, ACC* largest, int rows, int cols) {
    for (int r = 0; r < rows; r++) row(x, y, largest[r], cols);
}
"""
B = """\
/*! evo
requires = "cols >= 3"
deterministic = false
zero = ["sums"]
[tune]
TILE = [64, 32, 128]
[[buffer]]
name = "largest"
dtype = "ACC"
shape = ["rows"]
[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows", "TILE"]
[group.pass]
repeat = "ceil_log2(cols)"
[[launch]]
kernel = "find_max"
args = ["x", "largest", "rows", "cols"]
[[launch]]
kernel = "scale"            # in passes
group = "pass"
args = ["x", "y", "largest", "sums", "rows", "cols", "i"]
*/
#include <cmath>
#include <algorithm>

struct Pair { ACC a, b; };
static inline ACC partial(Pair p) { return p.a + p.b; }

void find_max(const T* x, ACC* largest, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        find(x, largest, r, cols);
    }
}

void scale(const T* x, T* y, ACC* largest, ACC* sums, int rows, int cols, int pass) {
    for (int r = 0; r < rows; r++) sums[r * TILE + pass % TILE] = partial({largest[r], ACC(1)});
}
"""
SOFTMAX = load("softmax")


def recombine(
    first: Kernel | str, second: Kernel | str, seed: int = 0, *, dtype: str = "fp32", **params: object
) -> Proposal:
    kernels = [k if isinstance(k, Kernel) else Kernel("softmax", "cpu", k) for k in (first, second)]
    task = Task(kernels[0].operator, dtype, kernels[0].target)
    request = Request(task, 3, "recombine", tuple(k.id for k in kernels), seed, params)
    return Recombine().propose(request, tuple(map(Parent, kernels)), load(kernels[0].operator))


def children(first: str, second: str, part: str, seeds: int = 30) -> dict[str, Proposal]:
    """Different children by source."""
    made = (recombine(first, second, seed, part=part) for seed in range(seeds))
    return {p.kernel.source: p for p in made if p.kernel}


def transformed(operator: str, target: str, count: int) -> list[Kernel]:
    """Children of the naive kernel, by a random transform or two each."""
    loaded = load(operator)
    naive = Kernel(operator, target, loaded.ancestor("naive", target).read_text(encoding="utf-8"))
    made = {}
    for seed in range(3 * count):
        request = Request(Task(operator, "fp32", target), seed, "transform", (naive.id,), seed, {"count": 1 + seed % 3})
        kernel = Transform().propose(request, (Parent(naive),), loaded).kernel
        if kernel:
            made[kernel.id] = kernel
    return list(made.values())[:count]


# --- functions ---------------------------------------------------------------------------------------------------


def test_a_function_comes_with_all_that_it_needs() -> None:
    found = [s for s in children(A, B, "functions") if "r += ROWS" in s and "partial(" in s]
    (child,) = found
    plan = parse_plan(child, SOFTMAX, "cpu")
    assert [launch.kernel for launch in plan.launches] == ["find_max", "scale"]
    assert [a.text for a in plan.launches[1].args] == ["x", "y", "largest", "sums", "rows", "cols", "i"]
    assert plan.launches[1].group == "pass" and set(plan.groups) == {"pass"}
    assert [buffer.name for buffer in plan.buffers] == ["largest", "sums"]
    assert plan.tune == {"ROWS": (4, 8), "TILE": (64, 32, 128)}
    assert plan.requires.text == "(cols % 2 == 0) and (cols >= 3)"
    assert plan.zero == (Zero("sums"),) and not plan.deterministic
    assert child.count("#include <cmath>") == 1 and "#include <algorithm>" in child
    struct, helper, user = (child.index(text) for text in ("struct Pair", "static inline ACC partial", "partial({"))
    assert struct < helper < user
    assert "# of A" in child and "# rows at a time" in child and "# in passes" in child


def test_a_tunable_that_nothing_uses_any_more_goes() -> None:
    (child,) = [s for s in children(A, B, "functions") if "r += ROWS" not in s and "partial(" not in s]
    plan = parse_plan(child, SOFTMAX, "cpu")
    assert "ROWS" not in child and plan.tune == {}
    assert [a.text for a in plan.launches[1].args] == ["x", "y", "largest", "rows", "cols"]
    assert [buffer.name for buffer in plan.buffers] == ["largest"]


def test_values_come_with_what_uses_them() -> None:
    first, second = Kernel("softmax", "cpu", A, {"ROWS": 8}), Kernel("softmax", "cpu", B, {"TILE": 128})
    made = [recombine(first, second, seed, part="functions").kernel for seed in range(20)]
    both = [k for k in made if k and "ROWS" in k.source and "TILE" in k.source]
    assert both and all(dict(k.values) == {"ROWS": 8, "TILE": 128} for k in both)


# --- statements --------------------------------------------------------------------------------------------------


def test_changes_in_different_places_are_united() -> None:
    naive = SOFTMAX.ancestor("naive", "cpu").read_text(encoding="utf-8")
    parallel = naive.replace("    for (int r", "    #pragma omp parallel for\n    for (int r")
    quick = naive.replace("ACC sum = 0;", "ACC sum = 0; // zero\n        ACC scale = 1;").replace(
        "- largest) / sum)", "- largest) / sum * scale)"
    )
    found = children(parallel, quick, "statements", 60)
    united = [s for s in found if "#pragma omp parallel for" in s and "* scale" in s]
    assert len(united) == 1 and "ACC scale = 1;" in united[0]
    assert "differences in softmax as in" in found[united[0]].description
    # Nothing is left without its declaration.
    assert all("* scale" not in s or "ACC scale" in s for s in found)


def test_statements_bring_their_tunables_and_headers() -> None:
    tiled = B.replace(
        "        find(x, largest, r, cols);", "        find(x, largest, r + TILE % 1, cols);\n        more();"
    )
    part = A.replace("    for (int r = 0; r < rows; r += ROWS) {", "    start();\n    for (int r = 0; r < rows; r++) {")
    found = children(part, tiled, "statements", 60)
    brought = [s for s in found if "TILE % 1" in s]
    assert brought
    for source in brought:
        assert parse_plan(source, SOFTMAX, "cpu").tune["TILE"] == (64, 32, 128)
        assert "#include <algorithm>" in source


# --- plan and values ---------------------------------------------------------------------------------------------


def test_launches_and_buffers_are_exchanged() -> None:
    naive = SOFTMAX.ancestor("naive", "cuda").read_text(encoding="utf-8")
    other = naive.replace('grid = ["ceil_div(rows, BLOCK)"]', 'grid = ["rows"]').replace(
        "__global__", "__global__ /**/"
    )
    proposal = recombine(Kernel("softmax", "cuda", naive), Kernel("softmax", "cuda", other), part="launches")
    assert proposal.kernel and proposal.kernel.source == naive.replace('["ceil_div(rows, BLOCK)"]', '["rows"]')
    assert proposal.description.startswith("launches: launch softmax of ")


def test_values_of_shared_tunables_are_exchanged() -> None:
    first = A.replace("ROWS = [4, 8]", "ROWS = [4, 8]\nTILE = [1, 2]").replace("r += ROWS", "r += ROWS * TILE")
    a, b = (Kernel("softmax", "cpu", first, v) for v in ({"ROWS": 4, "TILE": 2}, {"ROWS": 8, "TILE": 1}))
    made = {tuple(k.values.items()) for seed in range(20) if (k := recombine(a, b, seed).kernel)}
    assert made == {(("ROWS", 8), ("TILE", 2)), ()}


# --- always ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", some_slow(["cpu", "cuda"], 1))
@pytest.mark.parametrize("operator", some_slow(["softmax", "matrix_mul", "spmv_csr"], 1))
def test_children_parse_and_are_neither_parent_and_come_back_the_same(operator: str, target: str) -> None:
    pool, loaded, found = transformed(operator, target, 12), load(operator), 0
    for seed in range(size(25, 8)):
        first, second = Random(seed).sample(pool, 2)
        proposal = recombine(first, second, seed)
        if proposal.kernel is None:
            assert proposal.failure == "no mixture of anything was found that is neither parent"
            continue
        found += 1
        child = proposal.kernel
        parse_plan(child.source, loaded, target).settings(child.values)
        assert child.id not in (first.id, second.id)
        assert proposal.description.split(":")[0] in PARTS and second.id[:8] in proposal.description
        again = recombine(first, second, seed)
        assert (again.kernel, again.description) == (child, proposal.description)
    assert found >= 1


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["softmax", "matrix_mul", "spmv_csr"])
def test_nearly_all_children_of_right_parents_compile_and_are_right(operator: str, tmp_path: Path) -> None:
    pool = transformed(operator, "cpu", 12)
    made: dict[str, Kernel] = {}
    for seed in range(60):
        first, second = Random(seed).sample(pool, 2)
        child = recombine(first, second, seed).kernel
        if child and len(made) < 12:
            made[child.id] = child
    right = sum(_right(kernel, tmp_path / str(n)) for n, kernel in enumerate(made.values()))
    assert len(made) >= 6 and right >= 0.8 * len(made), f"{right} of {len(made)}"


def _right(kernel: Kernel, folder: Path) -> bool:
    folder.mkdir()
    try:
        (built,) = build_all([(kernel.source, kernel.values)], load(kernel.operator), folder)
    except CompileError:
        return False
    return built.worst_error() < 1e-4


@pytest.mark.parametrize(
    ("first", "second", "params", "phrase"),
    [
        (A, B, {"part": "halves"}, "there is no part 'halves' to mix; there are functions, statements"),
        (A, A, {}, "recombine needs two parents that differ"),
        (A, "int x;", {}, "a parent's plan cannot be used: line 1: there is no header"),
        (A, A.replace("# of A", "# of B"), {}, "no mixture of anything was found that is neither parent"),
        (A, B, {"part": "tunables"}, "no mixture of tunables was found that is neither parent"),
        (
            '/*! evo\nlaunch = [{kernel = "f", args = []}]\n*/\nvoid f() {}', B, {},
            "a parent's header is not written table by table",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_mixed_fails_with_a_reason(
    first: str, second: str, params: dict[str, object], phrase: str
) -> None:
    proposal = recombine(first, second, **params)
    assert proposal.kernel is None and proposal.failure.startswith(phrase)


def test_one_parent_is_too_few() -> None:
    kernel = Kernel("softmax", "cpu", A)
    request = Request(Task("softmax", "fp32", "cpu"), 0, "recombine", (kernel.id,), 0)
    assert Recombine().propose(request, (Parent(kernel),), SOFTMAX).failure == "recombine needs two parents that differ"


def test_broken_code_is_no_crash() -> None:
    broken = A.replace("for (int r = 0; r < rows; r++)", "for (((((((int r = {{{")
    for seed in range(20):
        proposal = recombine(broken, B, seed)
        assert proposal.kernel or proposal.failure
        proposal = recombine(B, broken, seed)
        assert proposal.kernel or proposal.failure


def test_named_expressions_come_with_the_launches_that_use_them() -> None:
    named = (
        '[let]\nsteps = "ceil_log2(width)"\nwidth = "max(cols, TILE)"\nunused = "rows"\n[group.pass]\nrepeat = "steps"'
    )
    second = B.replace('[group.pass]\nrepeat = "ceil_log2(cols)"', named)
    for first in (A, A.replace("[[buffer]]", '[let]\nrows_at_once = "ROWS"     # kept\n[[buffer]]', 1)):
        (child,) = [s for s in children(first, second, "functions") if "r += ROWS" in s and "partial(" in s]
        plan = parse_plan(child, SOFTMAX, "cpu")
        assert {"steps", "width"} <= plan.lets.keys() and "unused" not in plan.lets
        assert plan.groups["pass"].text == "steps" and plan.tune == {"ROWS": (4, 8), "TILE": (64, 32, 128)}
        assert ("# kept" in child) == ("rows_at_once" in plan.lets) == ("rows_at_once" in first)


def test_what_is_cleared_on_conditions_is_cleared_so_in_children() -> None:
    named = '[let]\nwide = "cols > 64"\n[tune]'
    when = '{ name = "sums", when = "wide" }'
    second = B.replace('zero = ["sums"]', f"zero = [{when}]").replace("[tune]", named, 1)
    (child,) = [s for s in children(A, second, "functions") if "r += ROWS" in s and "partial(" in s]
    plan = parse_plan(child, SOFTMAX, "cpu")
    (zero,) = plan.zero
    assert zero.name == "sums" and zero.when and zero.when.text == "wide" and "wide" in plan.lets
    always = A.replace("# of A", 'zero = ["sums"]').replace(
        "[[launch]]", '[[buffer]]\nname = "sums"\ndtype = "ACC"\nshape = ["rows", 128]\n[[launch]]', 1
    )
    (child,) = [s for s in children(always, second, "functions") if "r += ROWS" in s and "partial(" in s]
    assert parse_plan(child, SOFTMAX, "cpu").zero == (Zero("sums"),)
