"""Tensors are judged as arrays are: by a kernel on a GPU, here compiled for a processor."""

from __future__ import annotations

import ctypes
import math
import subprocess

import numpy as np
import pytest
import torch

from fitness.cuda import oracle
from fitness.cuda.compile.nvrtc import compile_here
from fitness.oracle.bounds import Judgement, bound, judge
from fitness.sandbox.native import CXX

ONE_THREAD = """
#include <cmath>
#include <cstring>
#define __device__
#define __global__
#define __shared__ static
using std::isnan;
static struct { unsigned x; } threadIdx, blockIdx, gridDim;
static void __syncthreads() {}
static void __threadfence() {}
static unsigned atomicAdd(unsigned* at, unsigned value) { *at += value; return *at - value; }
template <class To, class From> To bits(From value) { To to; std::memcpy(&to, &value, sizeof to); return to; }
static double __longlong_as_double(long long value) { return bits<double>(value); }
static float __uint_as_float(unsigned value) { return bits<float>(value); }
"""
CALLS = """
template <class Y>
void all(const Y* y, const double* want, const double* bound, long long n, unsigned blocks, Found* sums) {
    Found parts[8];
    unsigned ticket = 0;
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) judge(y, want, bound, n, parts, &ticket, sums);
}
#define CALL(NAME, Y) extern "C" void NAME( \
    const Y* y, const double* want, const double* bound, long long n, unsigned blocks, Found* sums) { \
    all(y, want, bound, n, blocks, sums); \
}
CALL(judge_float32, float)
CALL(judge_float64, double)
CALL(judge_bfloat16, unsigned short)
extern "C" void limit_all(const double* y, const double* s, double* allowed, const Limits* limits, long long n,
                          unsigned blocks, Usual* sums) {
    Usual parts[8];
    unsigned ticket = 0;
    gridDim.x = blocks;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) limit(y, s, allowed, *limits, n, parts, &ticket, sums);
}
"""


def sample(size: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, answers and bounds, special ones among them."""
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal(size)
    allowed = np.abs(rng.standard_normal(size)) * 1e-3
    y = expected + rng.standard_normal(size) * 1e-3 * rng.choice([0.01, 0.3, 1.0])
    for values, special in (
        (expected, [np.inf, -np.inf, np.nan, 0.0]),
        (allowed, [np.inf, 0.0]),
        (y, [np.nan, np.inf]),
    ):
        for _ in range(rng.integers(4) if size else 0):
            values[rng.integers(size)] = rng.choice(special)
    return y, expected, allowed


def assert_same(one: Judgement, two: Judgement) -> None:
    assert (one.mismatches, one.first_bad, one.independent) == (two.mismatches, two.first_bad, two.independent)
    assert two.max_ratio == pytest.approx(one.max_ratio, rel=1e-12)
    assert two.rms_ratio == pytest.approx(one.rms_ratio, rel=1e-9)


@pytest.fixture(scope="module")
def one_thread(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """judge.cu for a processor, a thread in each block."""
    folder = tmp_path_factory.mktemp("judge")
    text = oracle.JUDGE.read_text()
    assert f"THREADS = {oracle.THREADS}" in text
    text = ONE_THREAD + text.replace(f"THREADS = {oracle.THREADS}", "THREADS = 1") + CALLS
    source, library = folder / "judge.cpp", folder / "judge.so"
    source.write_text(text)
    subprocess.run([CXX, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (5, 3), (500, 1), (500, 3)])
def test_the_kernel_that_judges_gives_the_same(
    one_thread: ctypes.CDLL, dtype: torch.dtype, size: int, blocks: int
) -> None:
    for seed in range(20):
        values, expected, allowed = sample(size, seed)
        y = torch.from_numpy(values).to(dtype)
        found = (ctypes.c_double * oracle.SUMS)()
        run = getattr(one_thread, f"judge_{str(dtype).removeprefix('torch.')}")
        addresses = [ctypes.c_void_p(a) for a in (y.data_ptr(), expected.ctypes.data, allowed.ctypes.data)]
        run(*addresses, ctypes.c_longlong(size), ctypes.c_uint(blocks), found)
        largest, squares, bad, first, changes = found
        two = Judgement(
            largest, math.sqrt(squares / size), int(bad), int(first) if bad else None, min(int(2 * changes + 1), size)
        )
        assert_same(judge(y.double().numpy(), expected, allowed), two)


def test_the_kernel_that_judges_compiles() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    job = oracle.judge_job("sm_90a")
    made = compile_here(job)
    assert made.cubin, made.log
    assert set(made.lowered) == set(job.expressions)


NUMBERS = {
    "rounding": 1e-3, "growth": 1e-4, "eta": 1e-9, "y_limit": 2.0, "s_limit": 2.5, "usual_rounding": 1e-4,
    "usual_growth": 1e-5,
}  # fmt: skip


def magnitudes(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Answers and the sizes of their sums, special ones among them, some beyond the limits of NUMBERS."""
    rng = np.random.default_rng(size)
    y = rng.standard_normal(size)
    s = np.abs(y) + rng.random(size)
    for place, value in enumerate([np.inf, -np.inf, np.nan, 0.0] if size > 8 else []):
        y[place] = value
        s[-1 - place] = value
    return y, s


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (5, 3), (1000, 1), (1000, 3)])
def test_the_kernel_that_bounds_gives_the_same(one_thread: ctypes.CDLL, size: int, blocks: int) -> None:
    y, s = magnitudes(size)
    allowed, sums = np.zeros(size), (ctypes.c_double * 2)()
    limits = (ctypes.c_double * len(NUMBERS))(*NUMBERS.values())
    addresses = [ctypes.c_void_p(array.ctypes.data) for array in (y, s, allowed)]
    one_thread.limit_all(*addresses, limits, ctypes.c_longlong(size), ctypes.c_uint(blocks), sums)
    wanted = bound(y, s, **NUMBERS)
    np.testing.assert_allclose(allowed, wanted.allowed, rtol=1e-13)
    assert [math.sqrt(found / size) for found in sums] == pytest.approx([wanted.least_rms, wanted.usual_rms], rel=1e-9)
    if size > 8:
        assert np.isinf(allowed).any() and not allowed[:3].any()


def test_sizes_must_agree() -> None:
    with pytest.raises(ValueError, match="3 values against 2 answers"):
        judge(torch.zeros(3), torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
