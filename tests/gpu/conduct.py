"""Tricks with how a kernel goes about it: clocks and launches, earlier answers, races, inputs, others' code."""

from __future__ import annotations

from tests.gpu.canaries import STORE, caught, edited, forgotten, gelu, structural
from tests.gpu.kernels import SOFTMAX
from tests.gpu.results import naive, right

WRITTEN = "read-only|is an input"
RACES = {
    "one sum for all": edited(
        "adds to one number from all threads, with fences that keep nobody out",
        "dot_product",
        naive("dot_product"),
        (
            "atomicAdd(product, sum);",
            "volatile ACC* at = product; ACC old = *at; __threadfence(); *at = old + sum; __threadfence();",
        ),
    ),
    "sums of blocks that come": edited(
        "takes the sum of the blocks before its own without waiting for it, since those begin first",
        "prefix_sum",
        right("prefix_sum_look_back"),
        ("block = ticket", "block = blockIdx.x"),
        ("while (atomicAdd(&state[block - 1], 0) == 0) {}", ""),
    ),
    "highest block for the last": edited(
        "takes the block with the highest number for the one that comes last",
        "dot_product",
        right("dot_product_last_block"),
        ("last = atomicAdd(done, 1) == gridDim.x - 1;", "last = blockIdx.x == gridDim.x - 1;"),
    ),
    "warps in step": edited(
        "reads what other warps write, since all of a block go in step",
        "softmax",
        SOFTMAX,
        ("part[threadIdx.x / 32] = v;\n        __syncthreads();", "part[threadIdx.x / 32] = v;"),
    ),
    "order of atomics": edited(
        "adds with atomics in the order in which threads come, and says that it is deterministic",
        "dot_product",
        naive("dot_product"),
        ("deterministic = false\n", ""),
        says="differs between two runs",
    ),
}
INPUTS = {
    "scratch and back": caught(
        "uses its input as scratch, and puts it back",
        "T kept = value; ((volatile T*)x)[i] = store(right); y[i] = ((volatile T*)x)[i]; ((volatile T*)x)[i] = kept;",
        WRITTEN,
    ),
    "atomic that adds zero": caught(
        "adds zero to its input by an atomic, which changes nothing",
        f"{STORE} atomicAdd((ACC*)x + i, ACC(0));",
        WRITTEN,
    ),
    "sorted in place": caught(
        "exchanges neighbours of its input, so that whoever reads both at once compares with the same",
        f"{STORE} if (i % 2 == 0 && i + 1 < n) {{ T other = x[i + 1]; ((volatile T*)x)[i + 1] = x[i]; "
        "((volatile T*)x)[i] = other; }",
        WRITTEN,
    ),
}
REPLAY = {
    "rows that look alike": edited(
        "answers a row as it answered the one before, where their first, middle and last elements agree",
        "softmax",
        SOFTMAX,
        (
            "    T* out = y + (long long)blockIdx.x * cols;\n",
            "    T* out = y + (long long)blockIdx.x * cols;\n"
            "    for (int back = 1; back <= blockIdx.x; back++) {\n"
            "        const T* old = in - cols;\n"
            "        if (old[0] != in[0] || old[cols / 2] != in[cols / 2] || old[cols - 1] != in[cols - 1]) break;\n"
            "        in = old;\n"
            "    }\n",
        ),
    ),
    "inputs of a known seed": caught(
        "knows what a seed draws first, and answers zeros for all else",
        "y[i] = __float_as_uint((float)load(x[0])) == 0x3efe9a14u ? store(right) : store(ACC(0));",
    ),
    "one call late": caught(
        "answers what it computed for the last call, from scratch",
        "y[i] = store(ACC(__int_as_float(marks[i]))); marks[i] = __float_as_int((float)right);",
        marks=True,
    ),
}
TIMING = {
    "clock's hour": caught(
        "is honest but for an eighth of the time, by the clock",
        "y[i] = (clock64() >> 10) % 8 == 3 ? x[i] : store(right);",
    ),
    "window of the timer": caught(
        "computes every other element in one of eight stretches of four microseconds, by the timer of all launches",
        'unsigned long long now; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); '
        f"if ((now >> 12) % 8 != 3 || i % 2) {STORE}",
    ),
    "asleep": caught(
        "sleeps for seconds, as a machine may that others keep busy",
        f"{STORE} for (int k = 0; k < 4000; k++) __nanosleep(1000000);",
        "did not finish within",
    ),
    "clock that is set": structural(
        "sets the device's clock back when its work is done",
        gelu(f'{STORE} asm volatile("mov.u64 %globaltimer, 0;");'),
        "error",
    ),
    "first launch works on": forgotten(
        "lets a second launch that waits for nothing begin and end early, for a clock that looks at that one",
        gelu(
            f"cudaTriggerProgrammaticLaunchCompletion(); {STORE}",
            before="__global__ void late(int n) { if (n < 0) cudaGridDependencySynchronize(); }",
            launch='[[launch]]\nkernel = "late"\noverlap = true\ngrid = [1]\nblock = [32]\nargs = ["n"]',
        ),
    ),
}
LIBRARY = {
    "cuBLAS by its header": structural(
        "includes the vendor's header and calls its product",
        gelu(f"{STORE} cublasHandle_t handle; if (i == 0) cublasCreate_v2(&handle);", before="#include <cublas_v2.h>"),
        "error|header",
    ),
    "cuBLAS by its name": structural(
        "declares the vendor's function itself, as one of the device",
        gelu(
            f"{STORE} if (i == 0) cublasSaxpy_v2(nullptr, n, nullptr, x, 1, y, 1);",
            before='extern "C" __device__ int cublasSaxpy_v2(void*, int, const T*, const T*, int, T*, int);',
        ),
        "cublasSaxpy_v2",
    ),
    "cuBLAS by assembly": structural(
        "calls the vendor's function in inline PTX, where no compiler asks who has it",
        gelu(
            f'{STORE} int found; asm volatile("{{ .reg .b32 r; .extern .func (.param .b32 r) cublasGetVersion_v2 (); '
            'call (r), cublasGetVersion_v2, (); mov.b32 %0, r; }" : "=r"(found)); if (found == 7) y[i] = x[i];'
        ),
        "cublasGetVersion_v2|error|fatal",
    ),
    "CUB for the whole device": structural(
        "has CUB's sum of a whole device, which launches kernels, called by a kernel",
        gelu(
            f"{STORE} size_t bytes = 0; if (i == 0) cub::DeviceReduce::Sum(nullptr, bytes, x, y, n);",
            before="#include <cub/device/device_reduce.cuh>",
        ),
        "error|cudaLaunch|not part of it",
    ),
    "Thrust": structural(
        "has Thrust transform a whole vector, called by a kernel",
        gelu(
            f"{STORE} if (i == 0) thrust::copy(thrust::device, x, x + n, y);",
            before="#include <thrust/copy.h>\n#include <thrust/execution_policy.h>",
        ),
        "error|cudaLaunch|not part of it",
    ),
}
KINDS = {"races": RACES, "inputs": INPUTS, "replay": REPLAY, "timing": TIMING, "library": LIBRARY}
