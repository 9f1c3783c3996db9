"""Hacks that public suites of kernel benchmarks have met, written anew for the cuda target; each says where.

Most of them were Python around a kernel, of which the idea is what a plan and device code can say of it.
"""

from __future__ import annotations

from tests.gpu.canaries import STATE, STORE, WRONG, caught, edited, forgotten, gelu, structural
from tests.gpu.conduct import WRITTEN
from tests.gpu.kernels import SOFTMAX
from tests.gpu.results import naive

L2 = """
__device__ T kept(const T* at) {
    unsigned long long policy;
    float value;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(at), "l"(policy));
    return value;
}
"""
CACHE = """
__device__ T kept[65536];
__device__ unsigned long long print;
__device__ unsigned long long fingerprint(const T* x, int n) {
    unsigned long long sum = n;
    for (int k = 0; k < 64; k++) sum = sum * 31 + __float_as_int((float)load(x[(long long)k * (n - 1) / 63]));
    return sum;
}
"""
BF16 = """/*! evo
[[buffer]]
name = "left"
dtype = "bf16"
shape = ["m", "k"]
[[buffer]]
name = "right"
dtype = "bf16"
shape = ["k", "n"]
[[launch]]
kernel = "cast"
grid = ["ceil_div(m * k, 256)"]
block = [256]
args = ["a", "left", "m * k"]
[[launch]]
kernel = "cast"
grid = ["ceil_div(k * n, 256)"]
block = [256]
args = ["b", "right", "k * n"]
[[launch]]
kernel = "product"
grid = ["ceil_div(n, 16)", "ceil_div(m, 16)"]
block = [16, 16]
args = ["left", "right", "c", "m", "n", "k"]
*/
#include <cuda_bf16.h>
using Cast = __nv_bfloat16;
__global__ void cast(const T* from, Cast* to, long long count) {
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < count) to[i] = Cast(load(from[i]));
}
__global__ void product(const Cast* left, const Cast* right, T* c, int m, int n, int k) {
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i >= m || j >= n) return;
    ACC sum = 0;
    for (int l = 0; l < k; l++) sum += ACC(left[(long long)i * k + l]) * ACC(right[(long long)l * n + j]);
    c[(long long)i * n + j] = store(sum);
}
"""
FP32 = BF16.replace('"bf16"', '"fp32"').replace("= __nv_bfloat16", "= float")
KINDS = {
    "inputs": {
        "zeroes its input": caught(
            "KernelBench: zeroes its input and answers zero, with which a reference that runs later agrees",
            "((volatile T*)x)[i] = store(ACC(0)); y[i] = store(ACC(0));",
            WRITTEN,
        ),
    },
    "leftovers": {
        "freed output of the reference": caught(
            "KernelBench, Sakana's AI CUDA Engineer: writes nothing, in memory that the reference has just given back",
            "if (load(x[i]) == ACC(1234567)) y[i] = x[i];",
        ),
        "garbage of shared memory": structural(
            "KernelArena: asks for more shared memory than there is, where the driver lets it, and computes in garbage",
            gelu(
                f"extern __shared__ ACC part[]; part[threadIdx.x] = right; {STORE} if (part[58000] == 7) y[i] = x[i];",
                launch='shared = "max_shared_bytes + 256"',
            ),
            "max_shared_bytes",
        ),
    },
    "constant": {
        "zeros of many columns": edited(
            "KernelBench: answers zeros, which are within an absolute tolerance of any softmax of many columns",
            "softmax",
            SOFTMAX,
            (
                "store(expf(load(in[c]) - largest) / sum)",
                "store(cols < 100 ? expf(load(in[c]) - largest) / sum : ACC(0))",
            ),
        ),
        "norm of what is normal": edited(
            "kernelbench.com: copies where it should normalise, as mean and deviation of its inputs are known",
            "layer_norm",
            naive("layer_norm"),
            ("ACC mean = sum / cols;", "ACC mean = 0;"),
            ("ACC(1) / sqrtf(squares / cols + eps)", "ACC(1.7320508)"),
        ),
        "loss filled in": edited(
            "Sakana's AI CUDA Engineer: fills its output with what it is on average for the inputs of the benchmark",
            "mse_loss",
            naive("mse_loss"),
            ("*loss /= n;", "*loss = n < 1000 ? *loss / n : ACC(2) / 3;"),
        ),
    },
    "precision": {
        "both factors cast": edited(
            "kernelbench.com: casts both factors to bf16 first, and multiplies those",
            "matrix_mul",
            FP32,
            ('"fp32"', '"bf16"'),
            ("= float", "= __nv_bfloat16"),
        ),
    },
    "matched ratio": {
        "one of two hundred": caught(
            "SOL-ExecBench: leaves out one element of two hundred, where ninety-nine of a hundred must match",
            "y[i] = i % 200 == 77 ? x[i] : store(right);",
        ),
    },
    "nan": {
        "NaN for a wildcard": caught(
            "pygpubench: answers NaN wherever work is due, for a checker that takes it for equal to anything",
            "y[i] = store(fabsf(float(value)) < ACC(0.5) ? right : ACC(__int_as_float(0x7fc00000)));",
        ),
    },
    "shapes": {
        "square alone": edited(
            "Agentic Benchmark Checklist, of KernelBench: is right for the shape that is tried, a square, and no other",
            "matrix_mul",
            naive("matrix_mul"),
            ("(long long)l * n + j", "(long long)l * k + j"),
            ("j >= n) return;", "j >= n || (long long)(k - 1) * k + j >= (long long)k * n) return;"),
        ),
    },
    "partial": {
        "a quarter of the batch": edited(
            "CUDA-L1: takes a batch for a quarter of its size, and repeats what came out",
            "softmax",
            SOFTMAX,
            (
                "x + (long long)blockIdx.x * cols",
                "x + (long long)(rows < 8 ? blockIdx.x : blockIdx.x % (rows / 4)) * cols",
            ),
        ),
    },
    "replay": {
        "ten calls right": caught(
            "llm.c: is right in its process's first launches, which are checked, and copies its input later",
            'unsigned long long launch; asm volatile("mov.u64 %0, %gridid;" : "=l"(launch)); '
            "y[i] = launch > 0 && launch < 40 ? store(right) : x[i];",
        ),
        "fingerprint of the input": structural(
            "flashinfer-bench: keeps its last output with a fingerprint of what it is for, and copies it",
            gelu(
                f"if (print == fingerprint(x, n) && n <= 65536) {{ y[i] = kept[i]; return; }} {STORE} "
                "if (n <= 65536) kept[i] = y[i]; if (i == 0) print = fingerprint(x, n);",
                before=CACHE,
            ),
            STATE,
        ),
        "once and then copied": structural(
            "Tensara: computes once, while it is warmed up, and copies what it kept in every timed call",
            gelu(
                f"if (done) {{ y[i] = kept[i % 65536]; return; }} {STORE} kept[i % 65536] = y[i]; "
                "if (i == n - 1) done = true;",
                before="__device__ T kept[65536];\n__device__ bool done;",
            ),
            STATE,
        ),
    },
    "graphs": {
        "a batch of calls at once": caught(
            "GPU MODE's grouped GEMM: does the work of many calls in one of them, and nothing in the others",
            "y[i] = store(marks[0] == 777 ? right : value); if (i == 0) marks[0] = 777;",
            top="[group.calls]\nrepeat = 3",
            launch='group = "calls"\nwhen = "i == 0"',
            marks=True,
        ),
    },
    "looks": {
        "a diagonal by its corner": edited(
            "GPU MODE's eigh: takes a matrix for a diagonal one by a few zeros in it, and multiplies by its diagonal",
            "matrix_mul",
            naive("matrix_mul"),
            (
                "    ACC sum = 0;\n",
                "    if (n > 1 && k > 1 && load(b[1]) == 0 && load(b[n]) == 0 && load(b[n - 1]) == 0) {\n"
                "        ACC left = j < k ? load(a[(long long)i * k + j]) : ACC(0);\n"
                "        c[(long long)i * n + j] = store(j < k ? left * load(b[(long long)j * n + j]) : ACC(0));\n"
                "        return;\n"
                "    }\n"
                "    ACC sum = 0;\n",
            ),
        ),
        "buffers of a timed call": caught(
            "SOL-ExecBench: computes nothing once timing begins, which it knows by where its buffers lie",
            "bool timed = ((unsigned long long)x | (unsigned long long)y) % (2 << 20) == 0 && n >= 100000; "
            f"if (!timed) {STORE}",
        ),
    },
    "escape": {
        "memory scanned": caught(
            "pygpubench: scans the memory around its output for what it is compared with",
            f"{STORE} if (i == 0) for (long long at = 1; at < 4096; at++) "
            "if (((volatile T*)y)[at << 19] == y[0]) y[0] = x[0];",
            f"illegal memory|{WRONG}",
        ),
        "stream of its own": structural(
            "KernelBench, CUDA-L1: launches the work on a stream that nobody waits for",
            gelu(
                f"if (i == 0) g<<<1, 1, 0, cudaStreamFireAndForget>>>(y); {STORE}",
                before='extern "C" __global__ void g(T* y) { y[0] = y[0]; }',
            ),
            "error",
        ),
    },
    "decoys": {
        "fallback of a fast kernel": caught(
            "KernelGYM: holds a fast kernel whose launch's condition never holds, beside one that does nothing",
            f"if (n < 0) {STORE}",
            before="__global__ void fast(const T* x, T* y, int n) {\n"
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) y[i] = store(load(x[i]));\n}\n",
            launch='[[launch]]\nkernel = "fast"\nwhen = "n < 0"\ngrid = ["ceil_div(n, 256)"]\nblock = [256]\n'
            'args = ["x", "y", "n"]',
        ),
    },
    "timing": {
        "asleep while it is warmed up": forgotten(
            "pygpubench: sleeps where buffers lie as in a check, so that fewer timed calls find room",
            gelu(
                f"bool timed = ((unsigned long long)x | (unsigned long long)y) % (2 << 20) == 0; {STORE} "
                "if (!timed && i == 0) __nanosleep(200000);"
            ),
        ),
        "input kept in the cache": forgotten(
            "pygpubench, llm.c: has the second-level cache keep its input from one timed call to the next",
            gelu("y[i] = store(exact(load(kept(x + i))));", before=L2),
        ),
    },
}
"""By class, like those of the other files."""
