"""Transforms of CUDA kernels that deal out work anew among threads: what they keep, and what they leave alone."""

from __future__ import annotations

import re
from itertools import product

import pytest

from fitness.emulator.target import emulated
from fitness.evaluation import Rejection
from mutators.analysis.cpp_tree import SyntaxTree
from mutators.transforms.mutator import apply, sites_of
from operators.catalog import load
from operators.kernel import Kernel
from tests.choosing import some_slow

ROWS = """/*! evo
[tune]
BLOCK = [64, 32]
[[launch]]
kernel = "softmax"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols"]
*/
extern "C" __global__ void softmax(const T* x, T* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const T* in = x + (long long)r * cols;
    T* out = y + (long long)r * cols;
"""
LARGEST = """    ACC largest = load(in[0]);
    for (int c = 1; c < cols; c++) largest = fmaxf(largest, load(in[c]));
"""
SUM = "    ACC sum = 0;\n    for (int c = 0; c < cols; c++) sum += expf(load(in[c]) - largest);\n"
STORE = "    for (int c = 0; c < cols; c++) out[c] = store(expf(load(in[c]) - largest) / sum);\n"

RIGHT = {
    "a maximum by a function": LARGEST + SUM + STORE,
    "a value kept in the output": LARGEST
    + "    ACC sum = 0;\n    for (int c = 0; c < cols; c++) { out[c] = store(expf(load(in[c]) - largest)); }\n"
    + SUM.replace("ACC sum = 0;\n", "")
    + "    for (int c = 0; c < cols; c++) out[c] = store(load(out[c]) / sum);\n",
    "in two steps and a start": LARGEST
    + "    ACC sum = expf(load(in[0]) - largest);\n"
    + "    for (int c = 1; c < cols; c += 2) sum += expf(load(in[c]) - largest);\n"
    + "    for (int c = 2; c < cols; c += 2) sum += expf(load(in[c]) - largest);\n"
    + STORE,
    "a difference": LARGEST + SUM.replace("+=", "-=") + STORE.replace("/ sum", "/ -sum"),
    "ends that other threads wrote": LARGEST
    + SUM
    + "    for (int c = 0; c < cols; c++) out[c] = store(expf(load(in[c]) - largest));\n"
    + "    for (int c = 1; c < cols; c++) out[c] = store(load(out[c]) / sum);\n"
    + "    out[0] = store(load(out[0]) / sum);\n",
    "one element alone": LARGEST
    + SUM
    + STORE
    + "    out[0] = store(ACC(0));\n    out[0] = store(expf(load(in[0]) - largest) / sum);\n",
}
LEFT_ALONE = {
    "a value carried on": """    ACC last = 0;
    for (int c = 0; c < cols; c++) { out[c] = store(last); last = load(in[c]); }
""",
    "a sum that is used on the way": """    ACC sum = 0;
    for (int c = 0; c < cols; c++) { sum += load(in[c]); out[c] = store(sum); }
""",
    "a product": "    ACC p = 1;\n    for (int c = 0; c < cols; c++) p *= load(in[c]);\n    out[0] = store(p);\n",
    "neighbours": "    for (int c = 1; c < cols; c++) out[c] = store(load(out[c - 1]));\n",
    "an end within": "    for (int c = 0; c < cols; c++) { if (load(in[c]) > 0) break; out[c] = in[c]; }\n",
    "its own threads": "    for (int c = 0; c < cols; c++) out[c] = store(ACC(threadIdx.x));\n",
    "nothing to share": "    out[0] = in[0];\n",
    "an array in registers": """    ACC kept[1];
    kept[0] = load(in[0]);
    for (int c = 0; c < cols; c++) out[c] = store(kept[0]);
""",
    "a store that counts": """    int k = 0;
    out[k++] = in[0];
    for (int c = k; c < cols; c++) out[c] = in[c];
""",
    "a pointer that moves": """    T* next = y + (long long)r * cols;
    for (int c = 0; c < cols; c++) next[c] = in[0];
    next += 1;
    for (int c = 0; c + 1 < cols; c++) next[c] = in[c];
""",
    "two of one name": """    ACC sum = 0;
    for (int c = 0; c < cols; c++) { sum += load(in[c]); { ACC sum = 3; out[c] = store(sum); } }
""",
    "a branch": LARGEST + SUM + "    if (sum > 0) {\n    " + STORE + "    }\n",
}


def sites(body: str, transform: str, head: str = ROWS) -> list[str]:
    """Every child that a transform makes of a kernel with this body."""
    tree = SyntaxTree(f"{head}{body}}}\n", load("softmax"), "cuda", "fp32")
    return [text for site in sites_of(tree, transform) if (text := apply(tree, site))]


@pytest.mark.slow
@pytest.mark.parametrize("case", some_slow(RIGHT, 1))
def test_rows_are_shared_by_blocks_and_by_neighbours_in_a_warp(case: str) -> None:
    by_block, by_lanes = sites(RIGHT[case], "share_rows")
    variants = [Kernel("softmax", "cuda", by_block)]
    variants += [Kernel("softmax", "cuda", by_lanes, {"THREADS_PER_ROW": count}) for count in (32, 8, 2)]
    for kernel in variants:
        found = emulated(kernel, load("softmax"), "fp32", shapes=4, seed=1)
        assert not isinstance(found, Rejection), found.message


@pytest.mark.parametrize(
    "above", some_slow(["// Rows; any.\n// Two lines.\n", "\n", "__device__ int one() { return 1; }\n"], 1)
)
def test_helpers_stand_before_the_kernel_and_what_is_said_of_it(above: str) -> None:
    head = ROWS.replace('extern "C" __global__', f'{above}extern "C" __global__ __launch_bounds__(64)')
    for text in sites(RIGHT["a difference"], "share_rows", head):
        before, after = (
            re.split("template <(class V|int COUNT)>", text, maxsplit=1)[0],
            text.rsplit("return value;\n}\n\n", 1)[1],
        )
        assert "__launch_bounds__" not in before
        assert (above if "//" in above else 'extern "C"') in after
        assert not isinstance(emulated(Kernel("softmax", "cuda", text), load("softmax"), "fp32", shapes=1), Rejection)


def test_a_barrier_stands_only_where_threads_touch_what_others_wrote() -> None:
    apart, crossing = (sites(RIGHT[name], "share_rows") for name in list(RIGHT)[3:5])
    for team, barrier in enumerate(("__syncthreads();", "__syncwarp(row_lanes<THREADS_PER_ROW>());")):
        assert f"\n    {barrier}\n    for" in crossing[team]
        assert f"\n    {barrier}\n    for" not in apart[team]


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_rows_that_are_left_alone(case: str) -> None:
    assert not sites(LEFT_ALONE[case], "share_rows")


@pytest.mark.parametrize(
    "head",
    [
        ROWS.replace("[64, 32]", "[64, 48]"),
        ROWS.replace('block = ["BLOCK"]', 'block = ["BLOCK", "2"]').replace('BLOCK)"]', 'BLOCK)", "1"]'),
        ROWS.replace("return;", "{ y[0] = x[0]; return; }"),
        ROWS.replace("ceil_div(rows, BLOCK)", "1"),  # not all rows that the guard allows
        ROWS.replace('extern "C"', '#define V 4\nextern "C"'),  # which the helper would be made of
    ],
)
def test_teams_are_whole_warps_of_one_axis_whose_threads_end_together(head: str) -> None:
    assert not sites(LARGEST + SUM + STORE, "share_rows", head)


SUMMED = """/*! evo
deterministic = false
zero = ["loss"]
[[launch]]
kernel = "cross_entropy_loss"
grid = ["ceil_div(classes, 128)"]
block = ["128"]
args = ["predicted", "target", "loss", "classes"]
*/
extern "C" __global__ void cross_entropy_loss(const T* predicted, const T* target, ACC* loss, int classes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= classes) return;
    ACC p = fmaxf(load(predicted[i]), ACC(1e-8));
    atomicAdd(loss, -load(target[i]) * logf(p));
}
"""


def added_up(source: str) -> list[str]:
    tree = SyntaxTree(source, load("cross_entropy_loss"), "cuda", "fp32")
    return [text for site in sites_of(tree, "sum_before_atomic") if (text := apply(tree, site))]


def test_threads_beyond_the_end_add_nothing() -> None:
    [child] = added_up(SUMMED)
    assert child.count("return;") == 0 and child.count("atomicAdd") == 1
    found = emulated(Kernel("cross_entropy_loss", "cuda", child), load("cross_entropy_loss"), "fp32", shapes=4, seed=1)
    assert not isinstance(found, Rejection), found.message
    assert not added_up(child)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("atomicAdd(loss, ", "atomicAdd(loss + i % 1, "),  # not the same element for all
        ("    atomicAdd", "    if (p > 0) atomicAdd"),  # not all threads come along
        ("ACC p =", "if (target[i] == T(0)) return;\n    ACC p ="),
        ("}\n", "    atomicAdd(loss, ACC(0));\n    loss[0] = 0;\n}\n"),
        ("128", "100"),
    ],
)
def test_sums_that_are_left_alone(old: str, new: str) -> None:
    assert old in SUMMED and not added_up(SUMMED.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("l < k", "l < k + 0 * i"),  # threads of one tile would not agree where to end
        ("int j = blockIdx.x * blockDim.x + threadIdx.x", "int j = blockIdx.x * blockDim.x + threadIdx.y"),
        ("if (i >= m || j >= n) return;", "if (i >= m && j >= n) return;"),
        ("    ACC sum = 0;", "    ACC sum = 0;\n    if (j == 3) return;"),
        ("    ACC sum = 0;", "    ACC sum = 0;\n    c[0] = a[threadIdx.x];"),
        ("    ACC sum = 0;", "    ACC sum = 0;\n    __shared__ T kept[4];"),
        ("j >= n)", "j >= n && n > 0)"),
        ('"ceil_div(n, BLOCK_X)"', '"2 * ceil_div(n, BLOCK_X)"'),
    ],
)
def test_tiles_that_are_left_alone(old: str, new: str) -> None:
    source = load("matrix_mul").ancestor("naive", "cuda").read_text()
    operator = load("matrix_mul")
    assert list(sites_of(SyntaxTree(source, operator, "cuda", "fp32"), "thread_tile"))
    assert old in source
    assert not list(sites_of(SyntaxTree(source.replace(old, new), operator, "cuda", "fp32"), "thread_tile"))


ELEMENTS = """/*! evo
[[launch]]
kernel = "relu"
grid = ["ceil_div(n, 64)"]
block = ["64"]
args = ["x", "y", "n"]
*/
extern "C" __global__ void relu(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ACC value = load(x[i]);
    y[i] = store(value > 0 ? value : ACC(0));
}
"""


def vectors(source: str) -> list[str]:
    tree = SyntaxTree(source, load("relu"), "cuda", "fp32")
    return [text for site in sites_of(tree, "vectorize") if (text := apply(tree, site))]


@pytest.mark.parametrize("dtype", some_slow(["fp32", "bf16"], 1))
@pytest.mark.parametrize(
    ("old", "new"),
    some_slow(
        [
            ("", ""),
            ("load(x[i])", "load(x[i]) + (n < 0 ? load(x[n - 1]) : ACC(0))"),  # x is not moved at once, y is
            ("    y[i] =", "    y[i] = store(ACC(1));\n    y[i] ="),
            ("    if (i >= n) return;\n", "    if (i >= n) { return; }\n    // of one element\n"),
        ],
        2,
    ),
)
def test_vectors_of_any_size_and_what_remains(old: str, new: str, dtype: str) -> None:
    assert old in ELEMENTS
    [child] = vectors(ELEMENTS.replace(old, new) if old else ELEMENTS)
    assert ("x_vector" in child) == ("x[n - 1]" not in new) and "y_vector" in child
    for size in (1, 2, 4, 8):
        found = emulated(Kernel("relu", "cuda", child, {"VECTOR": size}), load("relu"), dtype, shapes=5, seed=size)
        assert not isinstance(found, Rejection), found.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    y[i] =", "    if (value > 1) y[i] ="),  # the others' elements are not known
        ("y[i]", "y[n - 1 - i]"),
        ("x[i]", "x[blockIdx.x * blockDim.x + threadIdx.x]"),
        ("    y[i] = store(value > 0 ? value : ACC(0));", "    y[i] = store(value);\n    y[i / 2] = store(value);"),
    ],
)
def test_elements_that_are_left_alone(old: str, new: str) -> None:
    assert old in ELEMENTS and not vectors(ELEMENTS.replace(old, new))
    if "threadIdx" in new:
        tree = SyntaxTree(ELEMENTS.replace(old, new), load("relu"), "cuda", "fp32")
        assert not list(sites_of(tree, "coarsen"))


BODY = """    if (i >= n) return;
    ACC value = load(x[i]);
    y[i] = store(value > 0 ? value : ACC(0));
"""
INSIDE = {
    "a block": """    if (i < n) {
        // of one element
        ACC value = load(x[i]);
        y[i] = store(value > 0 ? value : ACC(0));
    }
""",
    "a statement": "    if (i < n) y[i] = store(load(x[i]) > 0 ? load(x[i]) : ACC(0));\n",
    "on the next line": "    if (i < n)\n        y[i] = store(load(x[i]) > 0 ? load(x[i]) : ACC(0));\n",
}


def guarded_children(body: str, transform: str) -> list[str]:
    assert BODY in ELEMENTS
    tree = SyntaxTree(ELEMENTS.replace(BODY, body), load("relu"), "cuda", "fp32")
    return [text for site in sites_of(tree, transform) if (text := apply(tree, site))]


@pytest.mark.slow
@pytest.mark.parametrize("transform", some_slow(["coarsen", "vectorize"], 1))
@pytest.mark.parametrize("form", some_slow(INSIDE, 1))
def test_what_stands_within_the_guard_is_taken_for_what_follows_it(form: str, transform: str) -> None:
    [child] = guarded_children(INSIDE[form], transform)
    name = {"coarsen": "PER_THREAD", "vectorize": "VECTOR"}[transform]
    for count, dtype in product((1, 2, 8), ("fp32", "bf16")):
        found = emulated(Kernel("relu", "cuda", child, {name: count}), load("relu"), dtype, shapes=4, seed=count)
        assert not isinstance(found, Rejection), found.message


@pytest.mark.parametrize(
    "body",
    [
        INSIDE["a block"].rstrip() + " else y[0] = x[0];\n",
        INSIDE["a block"].replace("// of one element", "if (n == 7) return;"),
        INSIDE["a block"] + "    if (i == n) y[0] = x[0];\n",
        INSIDE["a statement"].replace("i < n", "i < n && n > 3"),
        INSIDE["a statement"].replace("i < n", "i < n - 1"),
        "    if (i < n) {}\n",
    ],
)
def test_guards_that_hold_more_or_less_are_left_alone(body: str) -> None:
    assert not guarded_children(body, "coarsen") and not guarded_children(body, "vectorize")


@pytest.mark.slow
def test_bounds_that_are_unsigned_do_not_wrap_around() -> None:
    text = sites(RIGHT["a difference"], "share_rows")[0]
    tree = SyntaxTree(text, load("softmax"), "cuda", "fp32")
    for site in sites_of(tree, "split_reduction"):
        child = apply(tree, site)
        assert child
        found = emulated(Kernel("softmax", "cuda", child), load("softmax"), "fp32", shapes=2, seed=1)
        assert not isinstance(found, Rejection), found.message


@pytest.mark.parametrize(
    ("old", "new"),
    some_slow(
        [
            ("for (int l = 0; l < k; l++)", "const int depth = k;\n    for (int l = 0; l < depth; l++)"),
            ("ACC sum = 0;", "ACC sum = 0, unused = 1;"),
            ("ACC sum = 0;", "const T* row = a + (long long)i * k;\n    ACC sum = load(row[0]) - load(row[0]);"),
            ("int i = blockIdx.y", "const int i = blockIdx.y"),
        ],
        1,
    ),
)
def test_tiles_of_any_size_are_right(old: str, new: str) -> None:
    operator = load("matrix_mul")
    source = operator.ancestor("naive", "cuda").read_text()
    assert old in source
    tree = SyntaxTree(source.replace(old, new), operator, "cuda", "fp32")
    children = [apply(tree, site) for site in sites_of(tree, "thread_tile")]
    assert len(children) == ("unused" not in new)  # one declaration of several names is left alone
    for child, size in product(children, ((1, 4), (8, 2))):
        values = dict(zip(("PER_I", "PER_J"), size, strict=True))
        found = emulated(Kernel("matrix_mul", "cuda", child or "", values), operator, "fp32", shapes=3, seed=1)
        assert not isinstance(found, Rejection), found.message


def test_elements_that_need_not_be_there_are_not_moved() -> None:
    [child] = vectors(ELEMENTS.replace("load(x[i])", "i < n / 2 ? load(x[i]) : ACC(0)"))
    assert "y_vector" in child and "x_vector" not in child


def test_loops_that_begin_elsewhere_are_no_vectors() -> None:
    operator = load("cross_entropy_loss")
    source = operator.ancestor("naive", "cuda").read_text()
    assert list(sites_of(SyntaxTree(source, operator, "cuda", "fp32"), "vectorize"))
    for old, new in (("threadIdx.x; i <", "threadIdx.x + 1; i <"), ("i += gridDim.x", "i += 2 * gridDim.x")):
        assert old in source
        assert not list(sites_of(SyntaxTree(source.replace(old, new), operator, "cuda", "fp32"), "vectorize"))


def test_a_helper_stands_above_all_that_use_it() -> None:
    operator = load("top_k")
    text = operator.ancestor("naive", "cuda").read_text()
    for kernel in ("take", "number"):  # the lower one first
        tree = SyntaxTree(text, operator, "cuda", "fp32")
        [text] = [apply(tree, s) or "" for s in sites_of(tree, "vectorize") if s.description.endswith(kernel)]
    assert text.count("struct") == 1
    found = emulated(Kernel("top_k", "cuda", text), operator, "fp32", shapes=2, seed=1)
    assert not isinstance(found, Rejection), found.message
