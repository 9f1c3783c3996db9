"""Emulated CUDA: right kernels pass the oracle, wrong indices and missing barriers do not, and say where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fitness.cuda.compile.build import CudaBuild, compile_cuda
from fitness.emulator import target
from fitness.emulator.__main__ import main
from fitness.emulator.target import emulated, flags
from fitness.evaluation import CheckError, Rejection, Status
from operators.catalog import folders, load
from operators.champions import offered
from operators.definition.spec import Operator
from operators.errors import UserError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import some_slow
from tests.gpu.kernels import FEATURES, HALF, REDUCE, ROWS, SOFTMAX, STORE

Verdict = tuple[CheckError, ...] | Rejection
ROWS_SHAPES = ({"rows": 3, "cols": 127}, {"rows": 5, "cols": 1024})


def is_right(found: Verdict) -> bool:
    return not isinstance(found, Rejection) and bool(found) and not any(error.wrong for error in found)


def right(found: Verdict) -> None:
    assert is_right(found), found


def wrong(found: Verdict, status: str, *parts: str) -> None:
    assert isinstance(found, Rejection), found
    assert found.status == status, found
    for part in parts:
        assert part in found.message


def softmax(source: str, dtype: str = "fp32", **options: object) -> Verdict:
    options = {"shapes": ROWS_SHAPES} | options
    return emulated(Kernel("softmax", "cuda", source), load("softmax"), dtype, **options)  # type: ignore[arg-type]


def edited(source: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert old in source
        source = source.replace(old, new, 1)
    return source


# --- the operators' own kernels ---------------------------------------------------------------------------------------

SAMPLE = {"softmax": "bf16", "spmv_csr": "fp32", "stencil_2d": "bf16", "upper_triangular_matrix_mul": "fp16"}
"""Operators and dtypes whose naive kernels are tried without --slow."""
BRIEF_SHAPES = {"prefix_sum": [{"n": n} for n in (1, 17, 1023, 4097)]}
"""Shapes of operators whose naive kernel's work grows faster than its data."""


def kernel_files(operator: Operator) -> Iterator[tuple[Path, str]]:
    """Every CUDA kernel that an operator comes with, in every dtype."""
    for dtype in operator.dtypes.get("cuda", ()):
        for ancestor in (*operator.ancestors("cuda"), *offered(operator, "cuda", dtype)):
            yield operator.ancestor(ancestor, "cuda"), dtype


@pytest.mark.parametrize("name", some_slow(sorted(folders()), SAMPLE))
def test_a_kernel_of_an_operator_is_right(name: str, request: pytest.FixtureRequest) -> None:
    operator, slow = load(name), request.config.getoption("--slow")
    files = kernel_files(operator) if slow else [(operator.ancestor("naive", "cuda"), SAMPLE[name])]
    all_are_right(operator, files, shapes=BRIEF_SHAPES.get(name) or (6 if slow else 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(folders()) - set(BRIEF_SHAPES)))
def test_every_kernel_is_right_on_more_shapes(name: str) -> None:
    operator = load(name)
    all_are_right(operator, kernel_files(operator), shapes=12)


def all_are_right(operator: Operator, files: Iterable[tuple[Path, str]], *, shapes: int | list[dict[str, int]]) -> None:
    """Check that they are, but for what only a GPU can show of kernels other than the naive one."""
    wrongly = []
    for file, dtype in files:
        found = emulated(
            Kernel(operator.name, "cuda", file.read_text(encoding="utf-8")), operator, dtype, shapes=shapes
        )
        for_gpu = isinstance(found, Rejection) and found.message.startswith("needs a GPU")
        if not is_right(found) and not (for_gpu and file.stem != "naive"):
            wrongly.append(f"{file.name}, {dtype}: {found}")
    assert not wrongly, "\n".join(wrongly)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(n for n, folder in folders().items() if (folder / "tunable.cu").exists()))
def test_other_settings_of_a_tunable_kernel_are_right(name: str) -> None:
    operator = load(name)
    source = operator.ancestor("tunable", "cuda").read_text(encoding="utf-8")
    tune = parse_plan(source, operator, "cuda").tune
    for seed, dtype in enumerate(operator.dtypes["cuda"]):
        random = Random(f"{name}{seed}")
        values = {tunable: random.choice(listed) for tunable, listed in tune.items()}
        right(emulated(Kernel(name, "cuda", source, values), operator, dtype, shapes=5, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(folders()))
def test_a_naive_kernel_with_a_wrong_index_fails(name: str) -> None:
    operator = load(name)
    source = operator.ancestor("naive", "cuda").read_text(encoding="utf-8")
    index = "threadIdx.x" if "threadIdx.x" in source else "blockIdx.x"
    kernel = Kernel(name, "cuda", edited(source, (index, f"({index} + 1)")))
    found = emulated(kernel, operator, "fp32", shapes=BRIEF_SHAPES.get(name) or 6)
    assert isinstance(found, Rejection)
    assert found.status in (Status.WRONG, Status.RUNTIME_ERROR)


# --- what a plan and a kernel can use ---------------------------------------------------------------------------------

EMULATED_FEATURES = ("two launches", "cluster", "doubling", "cooperative")
BRIEF_FEATURES = (("two launches", "fp32"), ("cluster", "fp32"))


def feature_cases() -> Iterator[Any]:
    for name, kernels in FEATURES.items():
        for feature in EMULATED_FEATURES:
            for dtype in ("fp32", "bf16") if feature in kernels else ():
                marks = [] if (feature, dtype) in BRIEF_FEATURES else [pytest.mark.slow]
                yield pytest.param(name, feature, dtype, marks=marks, id=f"{feature}-{dtype}")


@pytest.mark.parametrize(("name", "feature", "dtype"), list(feature_cases()))
def test_what_a_plan_can_do_is_done(name: str, feature: str, dtype: str) -> None:
    """Groups that repeat, `when`, scratch, `zero`, dynamic shared memory, occupancy, cooperative grids, clusters."""
    right(emulated(Kernel(name, "cuda", FEATURES[name][feature]), load(name), dtype))


def test_infinity_needs_no_header() -> None:
    right(softmax(edited(SOFTMAX, ("#include <cmath>\n", ""))))


def test_a_block_reduces_with_shuffles_and_barriers() -> None:
    right(softmax(SOFTMAX, "bf16"))


TILE = """/*! evo
[[launch]]
kernel = "tiled"
grid = ["ceil_div(n, 16)", "ceil_div(m, 16)"]
block = [16, 16]
args = ["a", "b", "c", "m", "n", "k"]
*/
extern "C" __global__ void __launch_bounds__(256) tiled(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ ACC left[16][17], right[16][17];
    const int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 16 + y, j = blockIdx.x * 16 + x;
    ACC sum = 0;
    for (int at = 0; at < k; at += 16) {
        left[y][x] = i < m && at + x < k ? load(a[(long long)i * k + at + x]) : ACC(0);
        right[y][x] = at + y < k && j < n ? load(b[(long long)(at + y) * n + j]) : ACC(0);
        __syncthreads();
        #pragma unroll
        for (int l = 0; l < 16; l++) sum += left[y][l] * right[l][x];
        __syncthreads();
    }
    if (i < m && j < n) c[(long long)i * n + j] = store(sum);
}
"""
TILE_SHAPES = ({"m": 17, "n": 35, "k": 49}, {"m": 65, "n": 17, "k": 32})


def tiled(source: str, dtype: str = "fp32", *, families: int = 1) -> Verdict:
    kernel = Kernel("matrix_mul", "cuda", source)
    return emulated(kernel, load("matrix_mul"), dtype, shapes=TILE_SHAPES, families=families)


TILE_MUTANTS = {
    "reads the tile before it is written": ((": ACC(0);\n        __syncthreads();", ": ACC(0);"), "wrong"),
    "one row too many": (("if (i < m && j < n) c", "if (i <= m && j < n) c"), ""),
    "a sum that begins anywhere": (("ACC sum = 0;", "ACC sum;"), "wrong"),
    "writes the tile while it is read": (("right[l][x];\n        __syncthreads();", "right[l][x];"), "wrong"),
    "a row of the tile too far": (("left[y][l] *", "left[(y + 1) % 16][l] *"), "wrong"),
    "no guard at the end of k": (("i < m && at + x < k ?", "i < m ?"), ""),
    "one column too few": (("if (i < m && j < n) c", "if (i < m && j < n - 1) c"), "wrong"),
    "the last tile left out": (("at < k; at", "at < k - 15; at"), "wrong"),
}


def test_a_tiled_kernel_is_right() -> None:
    right(tiled(TILE))


@pytest.mark.parametrize("name", some_slow(TILE_MUTANTS, 2))
def test_mutants_of_a_tiled_kernel_fail(name: str) -> None:
    edit, status = TILE_MUTANTS[name]
    if "ACC sum;" in edit and "-ftrivial-auto-var-init=pattern" not in flags():
        pytest.skip("this compiler leaves locals as they are")
    found = tiled(edited(TILE, edit), families=4)  # one whose terms are mostly zero may miss what lacks a few of them
    assert isinstance(found, Rejection), name
    assert found.status == status or not status


REDUCE_MUTANTS = {
    "lanes left out": ("int d = 16; d;", "int d = 8; d;"),
    "a warp left out": ("w < 8; w++) v = largest", "w < 7; w++) v = largest"),
    "another warp's place": ("part[threadIdx.x / 32] = v", "part[(threadIdx.x / 32 + 1) % 7] = v"),
    "no barrier before the partial results are read": ("= v;\n        __syncthreads();", "= v;"),
    "no barrier before they are written again": ("        __syncthreads();\n        if (thr", "        if (thr"),
}


@pytest.mark.parametrize("name", some_slow(REDUCE_MUTANTS, 1))
def test_mutants_of_a_reduction_fail(name: str) -> None:
    wrong(softmax(edited(SOFTMAX, REDUCE_MUTANTS[name])), "wrong")


BARRIER = re.compile(r"__syncthreads\(\);|\w+\.sync\(\);|cooperative_groups::this_grid\(\)\.sync\(\);")
WITH_BARRIERS = {
    "tile": ("matrix_mul", TILE),
    "reduction": ("softmax", SOFTMAX),
    "two launches": ("softmax", FEATURES["softmax"]["two launches"]),
    "cluster": ("softmax", FEATURES["softmax"]["cluster"]),
    "cooperative": ("cross_entropy_loss", FEATURES["cross_entropy_loss"]["cooperative"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", WITH_BARRIERS)
def test_every_barrier_is_missed(kernel: str) -> None:
    name, source = WITH_BARRIERS[kernel]
    for barrier in BARRIER.finditer(source):
        without = source[: barrier.start()] + source[barrier.end() :]
        found = emulated(Kernel(name, "cuda", without), load(name), "fp32", shapes=6)
        assert isinstance(found, Rejection), (
            f"without {barrier[0]} of line {source.count(chr(10), 0, barrier.start()) + 1}"
        )


# --- errors that say what and where -----------------------------------------------------------------------------------

LINE = ROWS.count("\n") + 1
"""The first one of a body that follows."""
SHARED_ROWS = ROWS.replace("block = [256]", 'block = [256]\nshared = "4 * 256"')
ORDER = """/*! evo
zero = ["flags"]

[[buffer]]
name = "flags"
dtype = "int32"
shape = ["rows"]

[[launch]]
kernel = "f"
grid = ["rows"]
block = [1]
args = ["x", "y", "flags", "cols"]
*/
extern "C" __global__ void f(const T* x, T* y, int* flags, int cols) {
    if (blockIdx.x > 0) while (atomicAdd(flags + blockIdx.x - 1, 0) == 0) {}
    atomicExch(flags + blockIdx.x, 1);
}
"""
COPY_TOO_FAR = """/*! evo
[[launch]]
kernel = "copy"
grid = ["ceil_div(n, 64)"]
block = [64]
args = ["x", "y", "n"]
*/
extern "C" __global__ void copy(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = load(x[i]) > ACC(0) ? x[i] : store(load(x[i]) * ACC(0.01));
}
"""


def test_one_element_too_many_is_seen_though_nothing_comes_of_it() -> None:
    found = emulated(Kernel("leaky_relu", "cuda", COPY_TOO_FAR), load("leaky_relu"), "fp32", shapes=[{"n": 127}])
    wrong(found, "wrong", "it wrote past the end of `y`")


FAULTS = {
    # name: (source, status, parts of the message)
    "a barrier in a branch": (
        ROWS + "    if (threadIdx.x < 100) __syncthreads();\n}\n",
        "runtime_error",
        ("not all threads", "156 ended", f"100 wait at __syncthreads() in line {LINE}", "`f`, block"),
    ),
    "past a shared array": (
        ROWS + "    __shared__ float tile[8][33];\n    tile[threadIdx.x / 32][threadIdx.x % 32 + 2] = 0;\n}\n",
        "runtime_error",
        (f"line {LINE + 1}: index 33 is out of bounds of the array 'float [33]'",),
    ),
    "misaligned vectors": (
        ROWS + "    float4 v = *reinterpret_cast<const float4*>(x + 1);\n    out[0] = store(v.x);\n}\n",
        "runtime_error",
        (f"line {LINE}: a misaligned access", "float4", "4 bytes beyond a multiple of 16"),
    ),
    "past the end of an input": (
        f"{ROWS}{REDUCE}{STORE}    if (load(x[rows * cols + threadIdx.x]) == 12345) out[0] = store(sum);\n}}\n",
        "runtime_error",
        ("past the end of `x`", "thread ["),
    ),
    "lanes that never come": (
        ROWS + "    if (threadIdx.x % 32 < 31) __shfl_down_sync(~0u, 1.0f, 1);\n    __syncthreads();\n}\n",
        "runtime_error",
        ("a deadlock", f"wait at __shfl_down_sync() in line {LINE}", f"8 wait at __syncthreads() in line {LINE + 1}"),
    ),
    "no such type": (ROWS + "    floot v = 0;\n}\n", "compile_error", (f"kernel.cu:{LINE}", "floot")),
    "a warp at two barriers": (
        ROWS + "    if (threadIdx.x & 1) __syncthreads();\n    else __syncthreads();\n}\n",
        "runtime_error",
        ("threads of one warp wait at different barriers", f"line {LINE}", f"line {LINE + 1}"),
    ),
    "a mask without the caller": (
        ROWS + "    out[0] = store(__shfl_xor_sync(0xffff, 1.0f, 1));\n}\n",
        "runtime_error",
        (f"line {LINE}: lane", "__shfl_xor_sync() with the mask 0xffff, which it is not part of"),
    ),
    "past dynamic shared memory": (
        SHARED_ROWS + "    extern __shared__ float tile[];\n    tile[threadIdx.x + 1] = 0;\n}\n",
        "runtime_error",
        ("wrote 0 bytes past the end of its 1024 bytes of dynamic shared memory",),
    ),
    "an input written": (
        ROWS + "    const_cast<T*>(x)[threadIdx.x] = store(0);\n}\n",
        "runtime_error",
        ("it wrote to `x`, which is an input",),
    ),
    "half of the output": (f"{ROWS}{REDUCE}{HALF}}}\n", "wrong", ("elements of `y` are out of bounds",)),
    "blocks that wait for others": (ORDER, "timeout", ("did not finish",)),
}


@pytest.mark.parametrize("name", some_slow(FAULTS, 3))
def test_what_is_wrong_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, status, parts = FAULTS[name]
    if status == "timeout":
        monkeypatch.setattr(target, "RUN_TIMEOUT_S", 1.0)
    wrong(softmax(source), status, *parts)


GPU_ONLY = {
    f"line {LINE}: not emulated: wgmma.fence.sync.aligned": (
        ROWS + '    asm volatile("wgmma.fence.sync.aligned;");\n}\n',
        "softmax",
    ),
    "tensor maps (TMA)": (FEATURES["gelu"]["tensor map"], "gelu"),
    "CUB": (edited(SOFTMAX, ("*/\n", "*/\n#include <cub/block/block_reduce.cuh>\n")), "softmax"),
    "CuTe": (edited(SOFTMAX, ("*/\n", "*/\n#include <cute/tensor.hpp>\n")), "softmax"),
    "tensor cores (wmma)": (edited(SOFTMAX, ("*/\n", "*/\n#include <mma.h>\n")), "softmax"),
}


@pytest.mark.parametrize("reason", GPU_ONLY)
def test_what_needs_a_gpu_is_told(reason: str) -> None:
    source, name = GPU_ONLY[reason]
    found = emulated(Kernel(name, "cuda", source), load(name), "fp32")
    assert found == Rejection(Status.UNSUPPORTED, f"needs a GPU: {reason}")


def test_sums_that_depend_on_the_order_of_threads_must_be_declared() -> None:
    operator = load("cross_entropy_loss")
    source = operator.ancestor("naive", "cuda").read_text(encoding="utf-8")
    kernel = Kernel(operator.name, "cuda", edited(source, ("deterministic = false\n", "")))
    wrong(emulated(kernel, operator, "fp32", shapes=[{"classes": 4097}]), "wrong", "differs between two runs")


def test_the_command_says_whether_a_file_is_right(
    axpb: Operator, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = axpb.ancestor("naive", "cuda").read_text(encoding="utf-8")
    (tmp_path / "off.cu").write_text(source.replace("i < n", "i < n - 1"))
    for file, code, words in (
        (axpb.ancestor("naive", "cuda"), 0, "fp32: right on 10 shapes"),
        (tmp_path / "off.cu", 1, "fp32: wrong: wrong result on"),
        (tmp_path / "none.cu", 1, "No such file"),
    ):
        monkeypatch.setattr("sys.argv", ["emulation", str(axpb.folder), str(file), "fp32"])
        assert main() == code
        assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    "trick",
    [
        '__attribute__((constructor)) void early() { volatile int x = 1; }\nextern "C"',
        'extern "C" int system(const char*);\n__device__ int now() { return system("true"); }\n\n'
        '__device__ auto called = &now;\nextern "C"',
    ],
)
def test_a_kernel_that_reaches_beyond_a_gpu_is_not_run(axpb: Operator, trick: str) -> None:
    source = axpb.ancestor("naive", "cuda").read_text(encoding="utf-8")
    found = emulated(Kernel("axpb", "cuda", edited(source, ('extern "C"', trick))), axpb, "fp32")
    wrong(found, "unsupported", "needs a GPU: it")


# --- intrinsics -------------------------------------------------------------------------------------------------------

SELF_CHECK = (Path(__file__).parent / "intrinsics.cu").read_text(encoding="utf-8")


def test_intrinsics_do_what_cuda_says(axpb: Operator) -> None:
    """A kernel that checks them itself, and traps in the line of the first one that is wrong."""
    right(emulated(Kernel("axpb", "cuda", SELF_CHECK), axpb, "fp32", shapes=({"n": 1000}, {"n": 64})))


@pytest.mark.slow
def test_the_intrinsics_that_are_checked_are_cudas(axpb: Operator) -> None:
    try:
        found = compile_cuda(Kernel("axpb", "cuda", SELF_CHECK), axpb, "fp32")
    except UserError as error:
        pytest.skip(str(error))
    assert isinstance(found, CudaBuild), found
