import ctypes
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from operators.errors import PlanError
from operators.plan.reading import parse_plan
from operators.prelude import NEWER_VECTOR_MATH, VECTOR_MATH, prelude, translation_unit
from tests.choosing import some_slow
from tests.operators.sample import OPERATOR, header

CPU = '[tune]\nTILE = [16, 64]\nWIDE = [4294967296]\nBELOW = [-3]\n[[launch]]\nkernel = "f"\nargs = ["x"]'
CUDA = '[tune]\nTILE = [16, 64]\n[[launch]]\nkernel = "twice<TILE, T>"\ngrid = [1]\nblock = ["TILE"]\nargs = ["x"]'

GXX = shutil.which("g++")
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fopenmp",
)
needs_gxx = pytest.mark.skipif(GXX is None, reason="g++ is not installed")


def cpu_unit(code: str, dtype: str = "fp32") -> str:
    source = header(CPU) + code
    return translation_unit(source, OPERATOR, parse_plan(source, OPERATOR, "cpu"), target="cpu", dtype=dtype, values={})


def compiled(folder: Path, unit: str, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "unit.cpp").write_text(unit)
    command = [GXX or "", *FLAGS, "-shared", "-fPIC", *flags, "unit.cpp", "-o", "unit.so", "-lmvec", "-lm"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_cpu_declarations() -> None:
    text = prelude(OPERATOR, parse_plan(header(CPU), OPERATOR, "cpu"), target="cpu", dtype="fp32", values={"TILE": 64})
    assert text.endswith("\n#line 1\n") and "#define" not in text and text.count("#line") == 1
    for line in (
        "using T = float;",
        "using ACC = float;",
        "static inline ACC load(T value) { return static_cast<ACC>(value); }",
        "static inline T store(ACC value) { return static_cast<T>(value); }",
        "constexpr int TILE = 64;",
        "constexpr long long WIDE = 4294967296;",
        "constexpr int BELOW = -3;",
    ):
        assert line in text.split("\n")


@pytest.mark.parametrize(
    ("dtype", "lines", "absent"),
    [
        ("fp32", ("using T = float;", "using ACC = float;"), ("cuda_bf16.h", "cuda_fp16.h")),
        (
            "bf16",
            (
                "#include <cuda_bf16.h>",
                "using T = __nv_bfloat16;",
                "using ACC = float;",
                "__device__ __forceinline__ ACC load(T value) { return __bfloat162float(value); }",
                "__device__ __forceinline__ T store(ACC value) { return __float2bfloat16_rn(value); }",
            ),
            ("cuda_fp16.h",),
        ),
        (
            "fp16",
            (
                "#include <cuda_fp16.h>",
                "__device__ __forceinline__ ACC load(T value) { return __half2float(value); }",
                "__device__ __forceinline__ T store(ACC value) { return __float2half_rn(value); }",
            ),
            ("cuda_bf16.h",),
        ),
    ],
)
def test_cuda_declarations(dtype: str, lines: tuple[str, ...], absent: tuple[str, ...]) -> None:
    plan = parse_plan(header(CUDA), OPERATOR, "cuda")
    text = prelude(OPERATOR, plan, target="cuda", dtype=dtype, values={})
    tensor_map = "struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };"
    for line in (*lines, tensor_map, "typedef struct CUtensorMap_st CUtensorMap;", "constexpr int TILE = 16;"):
        assert line in text.split("\n")
    assert not any(name in text for name in absent) and text.endswith("\n#line 1\n")


def test_a_buffers_type_is_declared_too() -> None:
    body = CUDA + '\n[[buffer]]\nname = "half"\ndtype = "bf16"\nshape = ["rows"]'
    plan = parse_plan(header(body), OPERATOR, "cuda")
    assert "#include <cuda_bf16.h>" in prelude(OPERATOR, plan, target="cuda", dtype="fp32", values={})


def test_undeclared_values_are_refused() -> None:
    plan = parse_plan(header(CUDA), OPERATOR, "cuda")
    with pytest.raises(PlanError, match="TILE = 17 is not a declared value"):
        prelude(OPERATOR, plan, target="cuda", dtype="fp32", values={"TILE": 17})


@needs_gxx
@pytest.mark.parametrize("dtype", ["fp32", "fp64", "fp16"])
def test_the_prelude_compiles_without_a_warning_and_converts(tmp_path: Path, dtype: str) -> None:
    unit = cpu_unit(
        "#include <cmath>\n#include <algorithm>\n#include <cstdint>\n"
        'extern "C" long long f(double a, double* out) {\n'
        "    out[0] = load(store(static_cast<ACC>(a)));\n    return WIDE + TILE + BELOW + sizeof(T);\n}\n",
        dtype,
    )
    result = compiled(tmp_path, unit, "-Wall", "-Wextra", "-Werror")
    assert result.returncode == 0, result.stderr
    f = ctypes.CDLL(str(tmp_path / "unit.so")).f
    f.restype, f.argtypes = ctypes.c_longlong, (ctypes.c_double, ctypes.POINTER(ctypes.c_double))
    out = ctypes.c_double()
    number = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}[dtype]
    assert f(0.1, ctypes.byref(out)) == 2**32 + 16 - 3 + number().itemsize
    assert out.value == float(number(0.1))


@needs_gxx
def test_errors_carry_the_kernel_files_own_lines(tmp_path: Path) -> None:
    unit = cpu_unit("\nvoid g() { undeclared(); }\n")
    result = compiled(tmp_path, unit)
    line = (header(CPU) + "\nvoid g() { undeclared(); }").count("\n") + 1
    assert f"unit.cpp:{line}:" in result.stderr and "undeclared" in result.stderr


@needs_gxx
def test_simd_loops_call_the_vector_library(tmp_path: Path) -> None:
    """`std::exp` of a float and `expf` alike, with the flags of the CPU target, which exclude -ffast-math."""
    unit = cpu_unit(
        "#include <cmath>\n"
        'extern "C" void by_std(const float* x, float* y, int n) {\n'
        "#pragma omp simd\n    for (int i = 0; i < n; i++) y[i] = std::exp(x[i]);\n}\n"
        'extern "C" void by_c(const float* x, float* y, int n) {\n'
        "#pragma omp simd\n    for (int i = 0; i < n; i++) y[i] = expf(x[i]);\n}\n"
        'extern "C" void doubles(const double* x, double* y, int n) {\n'
        "#pragma omp simd\n    for (int i = 0; i < n; i++) y[i] = std::pow(std::sin(x[i]), 2.0);\n}\n"
        'extern "C" void sums(const float* x, float* y, int n) {\n'
        "    float sum = 0;\n#pragma omp simd reduction(+ : sum)\n"
        "    for (int i = 0; i < n; i++) sum += std::exp(x[i]);\n    y[0] = sum;\n}\n"
    )
    result = compiled(tmp_path, unit)
    assert result.returncode == 0, result.stderr
    listing = compiled(tmp_path, unit, "-S").returncode == 0 and (tmp_path / "unit.so").read_text()
    assert compiled(tmp_path, unit).returncode == 0
    calls = {name: vector_calls(str(listing), name) for name in ("by_std", "by_c", "doubles", "sums")}
    assert {"expf"} == calls["by_std"] == calls["by_c"] == calls["sums"] and calls["doubles"] >= {"sin"}
    library = ctypes.CDLL(str(tmp_path / "unit.so"))
    x = np.linspace(-80, 80, 1003, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    for name in ("by_std", "by_c"):
        y = np.zeros_like(x)
        getattr(library, name)(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), x.size)
        assert np.max(np.abs(y / exact - 1)) < 4 * 2.0**-23, name
    d, e = x.astype(np.float64), np.zeros(x.size)
    library.doubles(d.ctypes.data_as(ctypes.c_void_p), e.ctypes.data_as(ctypes.c_void_p), d.size)
    assert np.allclose(e, np.sin(d) ** 2, rtol=1e-14, atol=0)
    small = np.linspace(-1, 1, 1003, dtype=np.float32)
    library.sums(small.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), small.size)
    assert math.isclose(y[0], np.exp(small.astype(np.float64)).sum(), rel_tol=1e-5)


def vector_calls(assembly: str, function: str) -> set[str]:
    """Names of the functions whose vector variants this function of an assembly listing calls."""
    body = assembly.split(f"\n{function}:\n")[1].split(f".size\t{function}")[0]
    return set(re.findall(r"_ZGV[a-e]N\d+v+_(\w+)", body))


@needs_gxx
@pytest.mark.parametrize("suffix", ["", "f"])
def test_every_declared_function_exists_and_is_right(tmp_path: Path, suffix: str) -> None:
    number = "float" if suffix else "double"
    names = VECTOR_MATH | NEWER_VECTOR_MATH
    loops = "".join(
        f'extern "C" void map_{name}(const {number}* x, {number}* y, int n) {{\n#pragma omp simd\n'
        f"    for (int i = 0; i < n; i++) y[i] = {name}{suffix}({', '.join(['x[i]', '1.5'][:count])});\n}}\n"
        for name, count in names.items()
    )
    result = compiled(tmp_path, cpu_unit(loops))
    assert result.returncode == 0, result.stderr
    library = ctypes.CDLL(str(tmp_path / "unit.so"), mode=ctypes.RTLD_GLOBAL)
    dtype = np.float32 if suffix else np.float64
    x = np.linspace(0.1, 3, 77, dtype=dtype)
    for name, count in names.items():
        y = np.zeros_like(x)
        getattr(library, f"map_{name}")(x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p), x.size)
        scalar = {"exp2": lambda v: 2.0**v, "cbrt": lambda v: v ** (1 / 3)}.get(name) or getattr(math, name)
        exact = np.array([scalar(float(v), *[1.5][: count - 1]) for v in x])
        assert np.allclose(y, exact, rtol=16 * np.finfo(dtype).eps, atol=16 * np.finfo(dtype).eps), name


@pytest.mark.parametrize(
    ("dtype", "include"),
    some_slow([("fp32", ""), ("bf16", ""), ("fp16", ""), ("bf16", "#include <cuda/barrier>\n")], 1),
)
def test_the_cuda_prelude_compiles(dtype: str, include: str) -> None:
    """With a header that declares CUtensorMap itself, too, and with a type that only a buffer has."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="the extra `nvrtc` is not installed")
    nvidia = pytest.importorskip("nvidia.cu13", reason="the extra `nvrtc` is not installed")
    folder = Path(next(iter(nvidia.__path__))) / "include"
    source = header(CUDA + '\n[[buffer]]\nname = "half"\ndtype = "bf16"\nshape = ["rows"]') + include + (
        "template <int N, class U> __global__ void twice(const U* x, U* y, const CUtensorMap* map) {\n"
        "    y[threadIdx.x] = store(load(x[threadIdx.x]) * ACC(N));\n"
        '    asm volatile("prefetch.tensormap [%0];" ::"l"(map));\n    static_assert(sizeof(__nv_bfloat16) == 2);\n}\n'
    )  # fmt: skip
    plan = parse_plan(source, OPERATOR, "cuda")
    unit = translation_unit(source, OPERATOR, plan, target="cuda", dtype=dtype, values={})
    _, program = nvrtc.nvrtcCreateProgram(unit.encode(), b"kernel.cu", 0, [], [])
    nvrtc.nvrtcAddNameExpression(program, b"twice<TILE, T>")
    options = [b"--gpu-architecture=sm_90a", b"-std=c++17", b"-I%b" % bytes(folder), b"-I%b" % bytes(folder / "cccl")]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
