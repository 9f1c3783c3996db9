"""Kernels that use all that a plan offers, and kernels that should not pass."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = {name: Path(__file__).with_name(f"{name}.cu") for name in ("wgmma", "cute")}
"""Products of bf16 matrices on Hopper's tensor cores: by hand with TMA, and by CuTe."""
ROWS = """/*! evo
[[launch]]
kernel = "f"
grid = ["rows"]
block = [256]
args = ["x", "y", "rows", "cols"]
*/
#include <cmath>
#include <cuda_fp16.h>
extern "C" __global__ void f(const T* x, T* y, int rows, int cols) {
    const T* in = x + (long long)blockIdx.x * cols;
    T* out = y + (long long)blockIdx.x * cols;
"""
"""One block per row of a softmax; the body follows."""

REDUCE = """
    __shared__ ACC part[8];
    auto reduce = [&](ACC v, bool largest) {
        for (int d = 16; d; d /= 2) {
            ACC o = __shfl_xor_sync(~0u, v, d);
            v = largest ? fmaxf(v, o) : v + o;
            if (largest && (o != o)) v = o;
        }
        __syncthreads();
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        v = part[0];
        for (int w = 1; w < 8; w++) v = largest ? (part[w] != part[w] ? part[w] : fmaxf(v, part[w])) : v + part[w];
        return v;
    };
    ACC largest = -INFINITY;
    for (int c = threadIdx.x; c < cols; c += 256) largest = fmaxf(largest, load(in[c]));
    largest = reduce(largest, true);
    ACC sum = 0;
    for (int c = threadIdx.x; c < cols; c += 256) sum += expf(load(in[c]) - largest);
    sum = reduce(sum, false);
"""
STORE = "    for (int c = threadIdx.x; c < cols; c += 256) out[c] = store(expf(load(in[c]) - largest) / sum);\n"
SOFTMAX = ROWS + REDUCE + STORE + "}\n"

TWO_LAUNCHES = """/*! evo
[tune]
BLOCK = [256, 128]

[[buffer]]
name = "stats"
dtype = "ACC"
shape = ["rows", 2]

[[launch]]
kernel = "stats_of_rows<BLOCK>"
grid = ["rows"]
block = ["BLOCK"]
shared = "100 * 1024"
args = ["x", "stats", "rows", "cols"]

[[launch]]
kernel = "write_four"
when = "cols % 4 == 0"
grid = ["ceil_div(rows * cols // 4, BLOCK)"]
block = ["BLOCK"]
args = ["x", "stats", "y", "rows * cols // 4", "cols"]

[[launch]]
kernel = "write_one"
when = "cols % 4 != 0"
grid = ["ceil_div(rows * cols, BLOCK)"]
block = ["BLOCK"]
args = ["x", "stats", "y", "rows * cols", "cols"]
*/
template <int B> __global__ void stats_of_rows(const T* x, ACC* stats, int rows, int cols) {
    extern __shared__ ACC memory[];
    ACC* part = memory + 100 * 256 - B;  // the far end
    const T* in = x + (long long)blockIdx.x * cols;
    ACC largest = load(in[0]);
    for (int c = threadIdx.x; c < cols; c += B) {
        ACC v = load(in[c]);
        if (v > largest || v != v) largest = v;
    }
    part[threadIdx.x] = largest;
    __syncthreads();
    for (int t = 0; t < B; t++) if (part[t] > largest || part[t] != part[t]) largest = part[t];
    __syncthreads();
    ACC sum = 0;
    for (int c = threadIdx.x; c < cols; c += B) sum += expf(load(in[c]) - largest);
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int t = 0; t < B; t++) sum += part[t];
        stats[2 * blockIdx.x] = largest;
        stats[2 * blockIdx.x + 1] = sum;
    }
}
struct alignas(4 * sizeof(T)) Four { T v[4]; };
extern "C" __global__ void write_four(const Four* x, const ACC* stats, Four* y, long long n, int cols) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const ACC* s = stats + 2 * (4 * i / cols);
    Four four = x[i];
    for (int k = 0; k < 4; k++) four.v[k] = store(expf(load(four.v[k]) - s[0]) / s[1]);
    y[i] = four;
}
extern "C" __global__ void write_one(const T* x, const ACC* stats, T* y, long long n, int cols) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = store(expf(load(x[i]) - stats[2 * (i / cols)]) / stats[2 * (i / cols) + 1]);
}
"""
"""softmax: scratch, two of three launches, a template, 100 KiB of shared memory, vectors."""

DOUBLING = """/*! evo
[[buffer]]
name = "even"
dtype = "fp64"
shape = ["n"]

[[buffer]]
name = "odd"
dtype = "fp64"
shape = ["n"]

[[launch]]
kernel = "widen"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "even", "n"]

[group.pass]
repeat = "ceil_log2(n)"

[[launch]]
kernel = "add"
group = "pass"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["even if i % 2 == 0 else odd", "odd if i % 2 == 0 else even", "2 ** i", "n"]

[[launch]]
kernel = "narrow"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["even if ceil_log2(n) % 2 == 0 else odd", "y", "n"]
*/
extern "C" __global__ void widen(const T* x, double* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = load(x[i]);
}
extern "C" __global__ void add(const double* a, double* b, int distance, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = i >= distance ? a[i] + a[i - distance] : a[i];
}
extern "C" __global__ void narrow(const double* a, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = store((ACC)a[i]);
}
"""
"""prefix_sum: a group that repeats, two buffers that take turns."""

COOPERATIVE = """/*! evo
zero = ["count"]

[[buffer]]
name = "partial"
dtype = "ACC"
shape = ["sm_count * 32"]

[[buffer]]
name = "count"
dtype = "int32"
shape = [1]

[[launch]]
kernel = "sum"
cooperative = true
grid = ["sm_count * blocks_per_sm"]
block = [256]
args = ["predicted", "target", "loss", "partial", "count", "classes"]
*/
#include <cooperative_groups.h>
extern "C" __global__ void sum(const T* predicted, const T* target, ACC* loss, ACC* partial, int* count, int classes) {
    __shared__ ACC part[256];
    ACC mine = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < classes; i += gridDim.x * 256)
        mine += load(target[i]) * logf(fmaxf(load(predicted[i]), ACC(1e-8)));
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int d = 128; d; d /= 2) {
        if (threadIdx.x < d) part[threadIdx.x] += part[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = part[0];
        atomicAdd(count, 1);
    }
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        ACC total = 0;
        for (int b = 0; b < *(volatile int*)count; b++) total += partial[b];
        *loss = -total;
    }
}
"""
"""cross_entropy_loss: one launch whose blocks wait for each other, sized by occupancy; a counter that is cleared."""

CLUSTER = """/*! evo
[[launch]]
kernel = "f"
grid = ["2 * rows"]
block = [128]
cluster = [2]
args = ["x", "y", "cols"]
*/
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void f(const T* x, T* y, int cols) {
    __shared__ ACC found[2];
    __shared__ ACC part[128];
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = cluster.block_rank(), row = blockIdx.x / 2;
    const T* in = x + (long long)row * cols;
    T* out = y + (long long)row * cols;
    ACC largest = load(in[0]);
    for (int c = rank * 128 + threadIdx.x; c < cols; c += 256) {
        ACC v = load(in[c]);
        if (v > largest || v != v) largest = v;
    }
    part[threadIdx.x] = largest;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 0; t < 128; t++) if (part[t] > largest || part[t] != part[t]) largest = part[t];
        found[0] = largest;
    }
    cluster.sync();
    ACC other = cluster.map_shared_rank(found, 1 - rank)[0];
    largest = other > found[0] || other != other ? other : found[0];
    ACC sum = 0;
    for (int c = rank * 128 + threadIdx.x; c < cols; c += 256) sum += expf(load(in[c]) - largest);
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int t = 0; t < 128; t++) sum += part[t];
        found[1] = sum;
    }
    cluster.sync();
    sum = found[1] + cluster.map_shared_rank(found, 1 - rank)[1];
    for (int c = rank * 128 + threadIdx.x; c < cols; c += 256) out[c] = store(expf(load(in[c]) - largest) / sum);
    cluster.sync();
}
"""
"""softmax: two blocks of a cluster share a row through each other's shared memory."""

TENSOR_MAP = """/*! evo
[[tensor_map]]
name = "map"
tensor = "x"
shape = ["n"]
box = [256]

[[launch]]
kernel = "f"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["map", "y", "n"]
*/
extern "C" __global__ void f(const CUtensorMap* map, T* y, int n) {
    __shared__ alignas(128) T tile[256];
    __shared__ alignas(8) unsigned long long barrier;
    const unsigned to = __cvta_generic_to_shared(tile), at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at));
        asm volatile("fence.proxy.async.shared::cta;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"((int)sizeof(tile)));
        asm volatile(
            "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];"
            :: "r"(to), "l"(map), "r"((int)blockIdx.x * 256), "r"(at) : "memory");
    }
    int done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at) : "memory");
    const int i = blockIdx.x * 256 + threadIdx.x;
    const ACC v = load(tile[threadIdx.x]);
    if (i < n) y[i] = store(ACC(0.5) * v * (ACC(1) + erff(v * ACC(0.70710678118654752440))));
}
"""
"""gelu: tiles that the Tensor Memory Accelerator fetches."""

WAIT = "cudaGridDependencySynchronize();"
OVERLAP = """/*! evo
[[buffer]]
name = "stats"
dtype = "ACC"
shape = ["rows", 2]
[[launch]]
kernel = "stats_of_rows<32>"
grid = ["rows"]
block = [32]
args = ["x", "stats", "rows", "cols"]
[[launch]]
kernel = "write_rows"
overlap = true
grid = ["rows"]
block = [128]
args = ["x", "stats", "y", "rows", "cols"]
*/
template <int LANES> __global__ void stats_of_rows(const T* x, ACC* stats, int rows, int cols) {
    cudaTriggerProgrammaticLaunchCompletion();
    const T* in = x + (long long)blockIdx.x * cols;
    ACC largest = load(in[0]);
    for (int c = threadIdx.x; c < cols; c += LANES) {
        ACC v = load(in[c]);
        largest = v > largest || v != v ? v : largest;
    }
    for (int d = LANES / 2; d; d /= 2) {
        ACC other = __shfl_xor_sync(~0u, largest, d);
        largest = other > largest || other != other ? other : largest;
    }
    ACC sum = 0;
    for (int c = threadIdx.x; c < cols; c += LANES) sum += expf(load(in[c]) - largest);
    for (int d = LANES / 2; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x == 0) stats[2 * blockIdx.x] = largest, stats[2 * blockIdx.x + 1] = sum;
}
__global__ void write_rows(const T* x, const ACC* stats, T* y, int rows, int cols) {
    const long long row = blockIdx.x;
    cudaGridDependencySynchronize();
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        y[row * cols + c] = store(expf(load(x[row * cols + c]) - stats[2 * row]) / stats[2 * row + 1]);
}
"""
"""The second launch begins while the first one runs, and waits for what that writes."""
OUTLIVED_NS = 300_000
NOMINAL_ALONE = """/*! evo
[[launch]]
kernel = "relu"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "y", "n"]
*/
__global__ void relu(const T* x, T* y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const ACC value = load(x[i]);
    ACC late = value;
    for (int k = 0; value > 64 && k < 100000; k++) late = fmaf(late, 0.5f, 1.0f);  // ends near 2
    y[i] = store(value > 0 && late > 0 ? value : ACC(0));
}
"""
"""Right, and slow where a number is larger than any nominal one."""
OUTLIVED = """/*! evo
[[launch]]
kernel = "late"
grid = ["ceil_div(n, 256)"]
block = [256]
args = ["x", "y", "n"]
[[launch]]
kernel = "hasty"
overlap = true
grid = [1]
block = [32]
args = ["n"]
*/
__global__ void late(const T* x, T* y, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < 300000ull);
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) { const ACC v = load(x[i]); y[i] = v < 0 ? store(ACC(0)) : x[i]; }
}
__global__ void hasty(int n) {
    if (n < 0) cudaGridDependencySynchronize();
}
"""
"""Its last launch ends long before the first one, which a clock must wait for all the same."""

FEATURES = {
    "softmax": {"two launches": TWO_LAUNCHES, "cluster": CLUSTER, "overlap": OVERLAP},
    "prefix_sum": {"doubling": DOUBLING},
    "cross_entropy_loss": {"cooperative": COOPERATIVE},
    "gelu": {"tensor map": TENSOR_MAP},
}

FOR_SECONDS = """
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < 4000000000ull);
"""
"""Code that takes far longer than a kernel may; it ends by itself all the same, so that it need not be killed."""

HALF = STORE.replace("c < cols;", "c < cols / 2;")
FAULTS = {
    # name: (body after the head of ROWS, status, part of the message)
    "reads far away": ("    out[0] = in[(1ll << 38)];\n", "runtime_error", "illegal memory access"),
    "reads one past the end": (
        f"{REDUCE}{STORE}    if (blockIdx.x == rows - 1 && threadIdx.x < 8) sum += load(in[cols + threadIdx.x]);\n"
        "    if (sum == 12345) out[0] = store(sum);\n",
        "runtime_error",
        "illegal memory access",
    ),
    "writes past the end": (
        f"{REDUCE}{STORE}    if (blockIdx.x == rows - 1) out[cols + threadIdx.x] = store(sum);\n",
        "runtime_error",
        "illegal memory access",
    ),
    "writes its input": (
        f"{REDUCE}{STORE}    ((T*)in)[threadIdx.x % cols] = store(sum);\n",
        "runtime_error",
        "an input, which is read-only",
    ),
    "traps": ("    __trap();\n", "runtime_error", "CUDA_ERROR"),
    "runs for seconds": (FOR_SECONDS, "timeout", "did not finish within"),
    "does nothing": ("", "wrong", "out of bounds"),
    "writes half": (f"{REDUCE}{HALF}", "wrong", "out of bounds"),
    "writes the mean": (STORE.replace("expf(load(in[c]) - largest) / sum", "ACC(1) / cols"), "wrong", ""),
    "is less precise": (
        f"{REDUCE}{STORE}".replace("expf(load(in[c]) - largest)", "ACC(__float2half(expf(load(in[c]) - largest)))"),
        "wrong",
        "",
    ),
}
REJECTED = {
    "keeps results": ("__device__ T kept;\n", "    out[0] = kept; kept = in[0];\n", "__device__ variable `kept`"),
    "prints": ("", '    printf("hello");\n', "vprintf"),
    "allocates": ("", "    out[0] = *(T*)malloc(8);\n", "malloc"),
}

AUDITED = {
    # name: (kernel, tool, part of the message): right on every input, by luck or because it makes no difference
    "races for shared memory": (
        SOFTMAX.replace(
            "part[threadIdx.x / 32] = v;\n        __syncthreads();\n",
            "part[threadIdx.x / 32] = v;\n"
            "        unsigned later = threadIdx.x;\n"
            "        for (int i = 0; i < 4000; i++)\n"
            '            asm volatile("mad.lo.u32 %0, %0, 1664525, 1013904223;" : "+r"(later) :: "memory");\n'
            "        if (later == 12345 && rows < 0) return v;\n",
        ),
        "racecheck",
        "race for shared memory",
    ),
    "races within a warp": (
        SOFTMAX.replace("block = [256]", "block = [32]")
        .replace("c += 256", "c += 32")
        .replace("        __syncthreads();\n", "")
        .replace("part[8]", "part[32]")
        .replace("if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;", "((volatile ACC*)part)[threadIdx.x] = v;")
        .replace("v = part[0];", "v = ((volatile ACC*)part)[31 - threadIdx.x];")
        .replace("w < 8", "w < 1"),
        "racecheck",
        "race for shared memory",
    ),
    "reads shared memory out of bounds": (
        SOFTMAX.replace(
            "    ACC largest = -INFINITY;\n",
            "    if (cols < 0 || (((volatile ACC*)part)[8 + threadIdx.x % 8] == ACC(12345) && rows < 0)) return;\n"
            "    ACC largest = -INFINITY;\n",
        ),
        "memcheck",
        "Invalid __shared__ read",
    ),
    "leaves before a barrier": (
        SOFTMAX.replace("block = [256]", "block = [288]").replace(
            "    __shared__ ACC part[8];\n",
            "    __shared__ ACC part[8];\n"
            "    if (threadIdx.x >= 256) {\n"
            "        if (threadIdx.x % 2) return;\n"
            "        for (int i = 0; i < 4; i++) __syncthreads();\n"
            "        return;\n"
            "    }\n",
        ),
        "synccheck",
        "barrier",
    ),
    "reads scratch that nobody wrote": (
        SOFTMAX.replace("/*! evo\n", '/*! evo\n[[buffer]]\nname = "unwritten"\ndtype = "int32"\nshape = [64]\n\n')
        .replace('"rows", "cols"]', '"unwritten", "rows", "cols"]')
        .replace("T* y, int rows", "T* y, const int* unwritten, int rows")
        .replace(
            "    ACC largest = -INFINITY;\n",
            "    if (unwritten[0] == 12345 && rows < 0) return;\n    ACC largest = -INFINITY;\n",
        ),
        "initcheck",
        "nobody has written",
    ),
}

TF32_PRODUCT = """/*! evo
[[launch]]
kernel = "f"
grid = ["ceil_div(n, 8)", "ceil_div(m, 16)"]
block = [32]
args = ["a", "b", "c", "m", "n", "k"]
*/
__device__ unsigned tf32(float v) { unsigned r; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v)); return r; }
__device__ void product(float* d, const unsigned* p, const unsigned* q) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "r"(q[0]), "r"(q[1]));
}
extern "C" __global__ void f(const float* a, const float* b, float* c, int m, int n, int k) {
    const int row = blockIdx.y * 16, column = blockIdx.x * 8, g = threadIdx.x / 4, t = threadIdx.x % 4;
    float d[4] = {0, 0, 0, 0};
    for (int l = 0; l < k; l += 8) {
        float s[4], o[2];
        for (int i = 0; i < 4; i++) {
            const int r = row + g + 8 * (i % 2), x = l + t + 4 * (i / 2);
            s[i] = r < m && x < k ? a[(long long)r * k + x] : 0;
        }
        for (int i = 0; i < 2; i++) {
            const int x = l + t + 4 * i, j = column + g;
            o[i] = x < k && j < n ? b[(long long)x * n + j] : 0;
        }
        unsigned p[4], q[2];
        for (int i = 0; i < 4; i++) p[i] = tf32(s[i]);
        for (int i = 0; i < 2; i++) q[i] = tf32(o[i]);
        product(d, p, q);
    }
    for (int i = 0; i < 4; i++) {
        const int r = row + g + 8 * (i / 2), j = column + 2 * t + i % 2;
        if (r < m && j < n) c[(long long)r * n + j] = d[i];
    }
}
"""
"""matrix_mul in fp32 by tensor cores that keep 11 binary digits of every factor."""
