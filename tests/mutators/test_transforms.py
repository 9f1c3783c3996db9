"""Each transform: its golden file, what it keeps when it runs, and the places it must keep away from."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mutators.analysis.cpp_tree import SyntaxTree
from mutators.transforms import TRANSFORMS
from mutators.transforms.mutator import apply, sites_of
from operators.catalog import load
from tests.choosing import some_slow
from tests.mutators import golden_cases as golden
from tests.mutators.running import SHAPES, Built, build_all, inputs

MATRIX_MUL = '/*! evo\n[[launch]]\nkernel = "matrix_mul"\nargs = ["a", "b", "c", "m", "n", "k"]\n*/\n'

OUTER, INNER = "for (int i = 0; i < m; i++)", "for (int j = 0; j < n; j++)"


def matrix_mul(body: str) -> SyntaxTree:
    """A tree whose only function has this body."""
    head = 'extern "C" void matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {\n'
    return SyntaxTree(f"{MATRIX_MUL}{head}{body}\n}}\n", load("matrix_mul"), "cpu", "fp32")


def names(tree: SyntaxTree) -> set[str]:
    """Transforms that apply, and `transform variable` for each loop to which one does."""
    found = set()
    for name in TRANSFORMS:
        for site in sites_of(tree, name):
            found |= {name, *(f"{name} {variable}" for variable in re.findall(r"loops? `(\w+)`", site.description))}
    return found


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_transform_has_a_golden_file_for_a_target(target: str) -> None:
    cases = golden.CPU if target == "cpu" else golden.CUDA
    assert set(cases) <= {name for name, r in TRANSFORMS.items() if target in r.targets}
    assert set(golden.CPU) | set(golden.CUDA) == set(TRANSFORMS)


@pytest.mark.parametrize("transform", golden.CPU)
def test_golden_cpu(transform: str) -> None:
    assert apply(*golden.site(transform, "cpu")) == golden.source(transform, "cpu", after=True)


@pytest.mark.parametrize("transform", golden.CUDA)
def test_golden_cuda(transform: str) -> None:
    assert apply(*golden.site(transform, "cuda")) == golden.source(transform, "cuda", after=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Built, Built]]:
    """Original and transformed kernel of every case on the cpu."""
    folder = tmp_path_factory.mktemp("built")
    made = {}
    for operator in {operator for operator, _ in golden.CPU.values()}:
        cases = [name for name, (of, _) in golden.CPU.items() if of == operator]
        sources = [(golden.source(name, "cpu", after=after), {}) for name in cases for after in (False, True)]
        kernels = build_all(sources, load(operator), folder)
        made |= dict(zip(cases, zip(kernels[::2], kernels[1::2], strict=True), strict=True))
    return made


@pytest.mark.parametrize("transform", some_slow(golden.CPU, 8))
def test_transformed_kernels_compute_the_same(transform: str, built: dict[str, tuple[Built, Built]]) -> None:
    original, child = built[transform]
    operator = original.operator
    for seed, dims in enumerate(SHAPES[operator.name]):
        wanted = original.run(dims, inputs(operator, dims, seed))
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(child.run(dims, inputs(operator, dims, seed)), wanted, rtol=2e-5, atol=2e-5)


def test_the_harness_notices_a_wrong_kernel(tmp_path: Path) -> None:
    source = golden.source("simd", "cpu", after=True)
    wrong = [source.replace("/ sum", "/ (sum + 1)"), source.replace("c < cols; c++) out", "c < cols - 1; c++) out")]
    built = build_all([(text, {}) for text in (source, *wrong)], load("softmax"), tmp_path)
    right, scaled, short = (kernel.worst_error() for kernel in built)
    assert right < 1e-6 and scaled > 1e-3 and short == np.inf


@pytest.mark.parametrize(
    ("body", "forbidden"),
    [
        # Every iteration needs the one before it.
        ("for (int i = 1; i < m; i++) c[i] = c[i - 1] + a[i];", {"parallel", "simd"}),
        # Iterations overlap: i + j reaches the same element for several i.
        ("for (int i = 0; i < m; i++)\nfor (int j = 0; j < n; j++) c[i + j] = a[i];", {"parallel i", "interchange"}),
        # Several iterations assign to one element.
        ("for (int i = 0; i < m; i++)\nfor (int j = 0; j < n; j++) c[i] = a[j];", {"parallel j", "parallel_collapse"}),
        # A scalar that carries a value from one iteration to the next, and is no reduction.
        ("ACC s = 0;\nfor (int i = 0; i < m; i++) { c[i] = s; s += a[i]; }", {"parallel", "simd", "split_reduction"}),
        ("ACC s = 0;\nfor (int i = 0; i < m; i++) { s = a[i] - s; }\nc[0] = s;", {"parallel", "simd"}),
        # A sum whose terms depend on it.
        ("for (int i = 0; i < m; i++)\nfor (int j = 0; j < n; j++) c[0] += c[0] + a[j];", {"interchange"}),
        # An inner range that depends on the outer loop.
        ("for (int i = 0; i < m; i++)\nfor (int j = 0; j < i; j++) c[i * n + j] = a[j];", {"interchange"}),
        # The second loop reads what later iterations of the first one write.
        ("for (int i = 0; i < m; i++) c[i] = a[i];\nfor (int i = 0; i < m; i++) c[i] += c[m - 1 - i];", {"fuse"}),
        ("for (int i = 0; i < m; i++) c[i] += c[m - 1 - i];", {"parallel", "simd"}),
        ("ACC s = 0;\nfor (int i = 0; i < m; i++) s += a[i];\nfor (int i = 0; i < m; i++) c[i] = s;", {"fuse"}),
        # The second statement reads what a later iteration of the first one writes.
        ("for (int i = 0; i < m - 1; i++) {\nc[i] = a[i];\nc[i + 1] = c[i + 1] + b[i];\n}", {"fission", "parallel"}),
        # The bound changes while the loop runs, or the loop leaves early.
        ("for (int i = 0; i < m; i++) {\nif (a[i] > 0) m--;\nc[i] = 0;\n}", {"tile", "parallel", "simd", "fission"}),
        ("for (int i = 0; i < m; i++) {\nif (a[i] > 0) break;\nc[i] = 0;\n}", {"tile", "parallel", "simd", "fission"}),
        ("for (int i = 0; i < m; i++) {\nif (a[i] > 0) { switch (n) { case 1: return; } }\nc[i] = 0;\n}",
         {"tile", "parallel", "simd"}),
        ("for (int i = 0; i < m; i++) {\nif (a[i] > 0) goto done;\nc[i] = 0;\n}\ndone:;", {"tile", "parallel", "simd"}),
        # What a call does is not known.
        ("for (int i = 0; i < m; i++) c[i] = work(c, i);", {"parallel", "simd", "tile_reduction", "hoist", "fission"}),
        # Through a pointer that moves, or a reference, anything may be written.
        ("T* p = c;\nfor (int i = 0; i < m; i++) *p++ = a[i];", {"parallel", "simd"}),
        ("for (int i = 0; i < m; i++) { T& e = c[0]; e = a[i]; }", {"parallel", "simd"}),
        # The value that would be hoisted is written in the loop, or computed under a condition only.
        ("for (int i = 0; i < m; i++) { c[i] = c[0] + 1; }", {"hoist", "parallel", "simd"}),
        ("for (int i = 0; i < m; i++) { if (k > 0) c[i] = a[k - 1]; }", {"hoist"}),
        # The divisor changes, or is an integer.
        ("ACC s = 1;\nfor (int i = 0; i < m; i++) { s = s * 2; c[i] = a[i] / s; }", {"reciprocal"}),
        ("for (int i = 0; i < m; i++) c[i / n] = a[i];", {"reciprocal", "parallel", "simd"}),
        # A loop that counts down, an unsigned one, or one whose variable the body moves.
        ("ACC s = 0;\nfor (unsigned i = 0; i < m; i++) s += a[i];\nc[0] = s;", {"split_reduction"}),
        ("for (int i = m - 1; i >= 0; i--) c[i] = a[i];", {"parallel", "tile", "simd", "unroll"}),
        ("for (int i = 0; i < m; i++) { c[i] = a[i]; i++; }", {"parallel", "tile", "simd", "unroll"}),
        # The inner loop is all that the outer one does, though the parser takes a pragma for an end.
        ("for (int i = 0; i < m; i++)\n#pragma GCC unroll 4\nfor (int j = 0; j < n; j++) c[i * n + j] = a[i] / b[j];",
         {"tile", "parallel", "hoist", "simd", "reciprocal"}),
        # Preprocessor conditions inside a loop may hide anything.
        ("for (int i = 0; i < m; i++) {\n#if 1\nc[0] = a[i];\n#endif\n}", {"parallel", "simd", "fission"}),
    ],
)  # fmt: skip
def test_keeps_away(body: str, forbidden: set[str]) -> None:
    assert not names(matrix_mul(body)) & forbidden


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for (int i = 0; i < m; i++) c[i] = a[i];", {"parallel", "simd", "tile", "unroll"}),
        # Through row pointers, casts, named indices and column-major order alike.
        (f"{OUTER} {{ T* row = c + (size_t)i * n; {INNER} row[j] = 0; }}", {"parallel i"}),
        (f"{OUTER} {{ T* row = &c[i * n]; {INNER} row[j] = 0; }}", {"parallel i"}),
        (f"{OUTER} {INNER} {{ const int at = i * n + j; c[at] = 0; }}", {"parallel i", "interchange"}),
        (f"{OUTER} {INNER} c[i + j * m] = 0;", {"parallel i", "interchange", "parallel_collapse"}),
        (f"{OUTER} for (int l = 0; l < k; l++) {INNER} c[(i * k + l) * n + j] = 0;", {"parallel i", "interchange l"}),
        (f"ACC s = 0; {OUTER} {{ const ACC v = a[i]; s += v * v; }}", {"parallel i", "simd", "split_reduction"}),
        (f"ACC s = a[0]; {OUTER} {{ if (a[i] < s) s = a[i]; }}", {"simd", "split_reduction"}),
        # An iteration may end early, and an inner loop or a switch may be left.
        (f"{OUTER} {{ if (a[i] > 0) {{ c[i] = 1; continue; }} c[i] = 0; }}", {"parallel i", "simd", "tile"}),
        (f"{OUTER} {INNER} {{ if (j == 3) {{ c[i * n + j] = 1; continue; }} c[i * n + j] = 0; }}",
         {"parallel i", "interchange", "parallel_collapse"}),
        (f"{OUTER} {INNER} {{ if (j == 3) break; c[i * n + j] = 0; }}", {"parallel i"}),
        ("ACC s = a[0];\nfor (int i = 1; i < m; i++) s = fmaxf(s, a[i]);\nc[0] = s;", {"simd", "split_reduction"}),
    ],
)  # fmt: skip
def test_applies(body: str, expected: set[str]) -> None:
    assert expected <= names(matrix_mul(body))


def test_a_parallel_loop_over_tiles_is_recognised() -> None:
    tree, site = golden.site("tile", "cpu")
    tiled = SyntaxTree(apply(tree, site) or "", load("matrix_mul"), "cpu", "fp32")
    assert {"parallel", "full_tile", "interchange"} <= names(tiled)
    assert "loop `i` of matrix_mul" in next(sites_of(tiled, "parallel")).description
    inner = next(sites_of(tiled, "full_tile"))
    assert "parallel" in names(SyntaxTree(apply(tiled, inner) or "", load("matrix_mul"), "cpu", "fp32"))


def test_nothing_is_done_twice() -> None:
    for transform in ("restrict", "full_tile", "parallel", "prefetch", "keep_values", "single_precision"):
        tree, site = golden.site(transform, "cpu")
        child = SyntaxTree(apply(tree, site) or "", tree.operator, "cpu", "fp32")
        assert not any(sites_of(child, transform)), transform


def test_keeps_away_from_syntax_errors() -> None:
    broken = "for (int i = 0; i < m; i++) { c[i] = a[i] @ 2 }\n"
    fine = "for (int j = 0; j < n; j++) { c[j] = a[j]; }\n"
    tree = matrix_mul(broken + fine)
    assert tree.error_count > 0
    described = [s.description for name in TRANSFORMS for s in sites_of(tree, name)]
    assert any("`j`" in d for d in described)
    assert not any("`i`" in d for d in described)


def test_values_are_kept_only_where_the_output_does_not_round_them() -> None:
    source = golden.source("keep_values", "cpu")
    for dtype, applies in (("fp32", True), ("fp64", True), ("fp16", False), ("bf16", False)):
        assert any(sites_of(SyntaxTree(source, load("softmax"), "cpu", dtype), "keep_values")) is applies


def test_double_precision_stays_in_fp64() -> None:
    source = golden.source("single_precision", "cpu")
    assert not any(sites_of(SyntaxTree(source, load("softmax"), "cpu", "fp64"), "single_precision"))


def test_pointers_passed_twice_are_not_restricted() -> None:
    text = golden.source("restrict", "cpu").replace('["a", "b"', '["a", "a"')
    assert not any(sites_of(SyntaxTree(text, load("matrix_mul"), "cpu", "fp32"), "restrict"))


def test_no_pragma_comes_between_loops_that_are_collapsed(tmp_path: Path) -> None:
    tree, site = golden.site("parallel_collapse", "cpu")
    child = SyntaxTree(apply(tree, site) or "", tree.operator, "cpu", "fp32")
    for name in TRANSFORMS:
        for found in sites_of(child, name):
            text = apply(child, found) or ""
            nest = text[text.index("collapse(2)") :] if "collapse(2)" in text else "\nfor (\nfor ("
            assert [line.strip()[:5] for line in nest.split("\n")[1:3]] == ["for (", "for ("], found.description


def test_every_transform_says_what_it_does() -> None:
    for transform in TRANSFORMS.values():
        assert transform.summary.endswith(".")
        assert len(transform.summary) < 120


SCAN = (
    "float s = 0;\n#pragma omp simd reduction(inscan, +:s)\nfor (int i = 0; i < m; i++) {\n    s += a[i];\n"
    "    #pragma omp scan inclusive(s)\n    c[i] = s;\n}"
)
ORDERED = (
    "float s = 0;\n#pragma omp parallel for ordered reduction(+:s)\nfor (int i = 0; i < m; i++) {\n"
    "    float v = a[i];\n    #pragma omp ordered\n    { s += v; }\n}\nc[0] = s;"
)
DOACROSS = (
    "#pragma omp parallel for ordered(1)\nfor (int i = 1; i < m; i++) {\n    #pragma omp ordered depend(sink: i - 1)\n"
    "    c[i] = c[i - 1] + a[i];\n    #pragma omp ordered depend(source)\n}"
)
LANES = (
    "#pragma omp parallel for simd\nfor (int i = 0; i < m; i++) {\n    float v = a[i];\n"
    "    #pragma omp ordered simd\n    { c[(int)v] += v; }\n}"
)
CANCEL = (
    "#pragma omp parallel for\nfor (int i = 0; i < m; i++) {\n    if (a[i] < 0) {\n"
    "        #pragma omp cancel for\n    }\n    #pragma omp cancellation point for\n    c[i] = a[i];\n}"
)
NESTED = (
    "#pragma omp parallel for\nfor (int i = 0; i < m; i++) {\n    float s = 0;\n"
    "    #pragma omp simd reduction(inscan, + : s)\n    for (int j = 0; j < n; j++) {\n        c[i * n + j] = s;\n"
    "        #pragma omp scan exclusive(s)\n        s += a[i * n + j];\n    }\n}"
)
SECTIONS = (
    "#pragma omp parallel for\nfor (int i = 0; i < m; i++) {\n    #pragma omp parallel sections\n    {\n"
    "        #pragma omp section\n        c[i] = a[i];\n        #pragma omp section\n        c[i + m] = a[i];\n    }\n}"
)


@pytest.mark.parametrize(
    ("body", "left"),
    some_slow(
        [
            (SCAN, [[]]), (NESTED, [["simd reduction(inscan, + : s)", "scan exclusive(s)"], ["parallel for"]]),
            (ORDERED, [[]]), (DOACROSS, [[]]), (LANES, [[]]), (CANCEL, [[]]),
            (SECTIONS, [["parallel sections", "section", "section"]]),
        ],
        2,
        ids=["scan", "nested", "ordered", "doacross", "ordered simd", "cancel", "sections"],
    ),
)  # fmt: skip
def test_a_dropped_pragma_takes_along_what_is_only_legal_inside_it(
    body: str, left: list[list[str]], tmp_path: Path
) -> None:
    tree = matrix_mul(body)
    children = [apply(tree, site) for site in sites_of(tree, "drop_pragma")]
    assert [re.findall(r"#pragma omp (.*)", child) for child in children] == left
    build_all([(text, {}) for text in (tree.text, *children)], load("matrix_mul"), tmp_path)


BLOCKS = {
    "critical": "for (int i = 0; i < m; i++) {\n    #pragma omp critical\n    { c[i] = a[i]; }\n}",
    "barrier": (
        "#pragma omp parallel\n{\n    for (int i = 0; i < m; i++) {\n        #pragma omp barrier\n"
        "        for (int j = 0; j < n; j++) c[i * n + j] = a[i];\n    }\n}"
    ),
    "copyprivate": (
        "#pragma omp parallel\n{\n    for (int i = 0; i < m; i++) {\n        float v;\n"
        "        #pragma omp single copyprivate(v)\n        { v = a[i]; }\n        #pragma omp for\n"
        "        for (int j = 0; j < n; j++) c[i * n + j] = v;\n    }\n}"
    ),
    "section": (
        "#pragma omp parallel sections\n{\n    #pragma omp section\n    for (int i = 0; i < m; i++) c[i] = a[i];\n"
        "    #pragma omp section\n    for (int i = 0; i < m; i++) c[i + m] = a[i];\n}"
    ),
    "task": (
        "#pragma omp parallel\n#pragma omp single\nfor (int i = 0; i < m; i++) {\n    #pragma omp task\n"
        "    c[i] = a[i];\n}"
    ),
}


@pytest.mark.parametrize(
    "body", some_slow([SCAN, NESTED, ORDERED, DOACROSS, LANES, CANCEL, SECTIONS, *BLOCKS.values()], 2)
)
def test_no_transform_puts_a_directive_where_openmp_forbids_it(body: str, tmp_path: Path) -> None:
    tree = matrix_mul(body)
    children = [apply(tree, site) for name in TRANSFORMS for site in sites_of(tree, name)]
    build_all([(child, {}) for child in children if child], load("matrix_mul"), tmp_path)


def test_the_share_of_a_parallel_region_keeps_its_pragma() -> None:
    """Without it each thread would add everything."""
    loop = "#pragma omp for reduction(+:s)\nfor (int i = 0; i < m; i++) s += a[i];"
    tree = matrix_mul(f"float s = 0;\n#pragma omp parallel\n{{\n{loop}\n}}\nc[0] = s;")
    assert not list(sites_of(tree, "drop_pragma"))
