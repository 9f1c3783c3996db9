/*! evo
[tune]
THREADS = [512, 256]               # of a block at most, where a row fits into 8 such blocks
VECTORS = [8, 4, 16]               # of 16 bytes that a thread of a long row keeps in registers
EACH = [4, 2, 8]                   # short rows per thread
LOAD = [0, 1, 2]                   # plain; past L1 and 256 bytes at a time from DRAM; first to leave the caches
STORE = [0, 1]                     # plain; first to leave L2

[tune.bf16]                        # a vector has twice the elements, and a block's phases are longer
THREADS = [256, 512]

[tune.fp16]
THREADS = [256, 512]

[let]
lanes = "16 // sizeof_T"
whole = "cols % lanes == 0"
vectors = "cols // lanes + (0 if cols % (8 * lanes) == 0 else 7)"  # counted from the 128 bytes in which a row begins
narrow = "cols <= (32 * lanes if whole else 32)"
some = "THREADS * VECTORS"
most = "1024 * min(VECTORS, 8)"
parts = "next_pow2(ceil_div(vectors, some if vectors <= 8 * some else most))"

[[launch]]                         # a group of lanes per row
kernel = "short_rows"
when = "narrow and whole"
grid = ["ceil_div(rows, 256 // next_pow2(cols // lanes) * EACH)"]
block = [256]
args = ["x", "y", "rows", "cols", "next_pow2(cols // lanes)"]

[[launch]]                         # the same, an element per lane
kernel = "short_odd_rows"
when = "narrow and not whole"
grid = ["ceil_div(rows, 256 // next_pow2(cols) * EACH)"]
block = [256]
args = ["x", "y", "rows", "cols", "next_pow2(cols)"]

[[launch]]                         # up to 8 blocks per row, which stays in registers
kernel = "long_rows"
when = "not narrow and vectors <= 8 * some"
grid = ["rows * parts"]
block = ["32 * ceil_div(vectors, 32 * VECTORS * parts)"]
cluster = ["parts"]
args = ["x", "y", "cols", "parts"]

[[launch]]                         # the same with larger blocks, where they are needed
kernel = "longer_rows"
when = "not narrow and vectors > 8 * some and vectors <= 8 * most"
grid = ["rows * parts"]
block = ["32 * ceil_div(vectors, 32 * min(VECTORS, 8) * parts)"]
cluster = ["parts"]
args = ["x", "y", "cols", "parts"]

[[launch]]                         # whatever else: 8 blocks per row, which is read twice
kernel = "longest_rows"
when = "not narrow and vectors > 8 * some and vectors > 8 * most"
grid = ["rows * 8"]
block = [512]
cluster = [8]
args = ["x", "y", "cols"]
*/
// A row is read once and waits in registers, packed as it came; maximum and sum are found together, so that the blocks
// of a row exchange 8 bytes each, once. Rows of any length are read and written as aligned vectors, and up to LANES - 1
// elements before and behind these one by one.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int LANES = 16 / sizeof(T);
constexpr float LEAST = -3.402823466e+38f;
constexpr unsigned ALL = 0xffffffffu;
__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }

__device__ __forceinline__ uint4 fetched(const uint4* at) {
    if constexpr (LOAD == 1) {
        uint4 v;
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
        return v;
    } else if constexpr (LOAD == 2) {
        return __ldcs(at);
    } else {
        return __ldg(at);
    }
}
__device__ __forceinline__ void put(uint4* at, uint4 v) {
    if constexpr (STORE == 1) __stcs(at, v);
    else *at = v;
}

// A word is one float or two halves, which are converted together.
__device__ __forceinline__ float2 parted(unsigned u, const float*) { return make_float2(__uint_as_float(u), 0.0f); }
__device__ __forceinline__ float2 parted(unsigned u, const __nv_bfloat16*) {
    return make_float2(__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u));
}
__device__ __forceinline__ float2 parted(unsigned u, const __half*) {
    return __half22float2(*reinterpret_cast<const __half2*>(&u));
}
__device__ __forceinline__ unsigned joined(float a, float, const float*) { return __float_as_uint(a); }
__device__ __forceinline__ unsigned joined(float a, float b, const __nv_bfloat16*) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ __forceinline__ unsigned joined(float a, float b, const __half*) {
    const __half2 both = __floats2half2_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ __forceinline__ unsigned larger(unsigned u, unsigned w, const float*) {
    return __float_as_uint(fmaxf(__uint_as_float(u), __uint_as_float(w)));
}
__device__ __forceinline__ unsigned larger(unsigned u, unsigned w, const __nv_bfloat16*) {
    const __nv_bfloat162 both =
        __hmax2(*reinterpret_cast<const __nv_bfloat162*>(&u), *reinterpret_cast<const __nv_bfloat162*>(&w));
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ __forceinline__ unsigned larger(unsigned u, unsigned w, const __half*) {
    const __half2 both = __hmax2(*reinterpret_cast<const __half2*>(&u), *reinterpret_cast<const __half2*>(&w));
    return *reinterpret_cast<const unsigned*>(&both);
}

constexpr const T* TYPE = nullptr;
__device__ __forceinline__ uint4 nothing() {  // adds nothing to a sum and is no maximum
    const unsigned u = joined(minus_infinity(), minus_infinity(), TYPE);
    return make_uint4(u, u, u, u);
}
__device__ __forceinline__ unsigned larger(uint4 v) {
    return larger(larger(v.x, v.y, TYPE), larger(v.z, v.w, TYPE), TYPE);
}
__device__ __forceinline__ float largest_of(unsigned u) {  // NaN is none, but makes the sum one
    const float2 v = parted(u, TYPE);
    return sizeof(T) == 4 ? fmaxf(LEAST, v.x) : fmaxf(LEAST, fmaxf(v.x, v.y));
}
__device__ __forceinline__ float exponentials(unsigned u, float largest) {
    const float2 v = parted(u, TYPE);
    return sizeof(T) == 4 ? __expf(v.x - largest) : __expf(v.x - largest) + __expf(v.y - largest);
}
__device__ __forceinline__ unsigned result(unsigned u, float largest, float log_sum) {
    const float2 v = parted(u, TYPE);
    return joined(v.x - largest - log_sum, v.y - largest - log_sum, TYPE);
}
__device__ __forceinline__ uint4 result(uint4 v, float largest, float log_sum) {
    return make_uint4(result(v.x, largest, log_sum), result(v.y, largest, log_sum), result(v.z, largest, log_sum),
                      result(v.w, largest, log_sum));
}

struct Both { float largest, sum; };  // the sum of exp(x - largest)
__device__ __forceinline__ Both of_warp(Both both) {
    float largest = both.largest;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, offset));
    float sum = both.sum * __expf(both.largest - largest);
#pragma unroll
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
    return {largest, sum};
}

// The blocks of a row are a cluster; one that writes into another's shared memory must know that it has begun.
__device__ __forceinline__ void begun() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ Both of_row(Both both, int parts, int rank) {
    __shared__ Both of_warps[32], of_parts[8];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    both = of_warp(both);
    if (warps > 1) {
        if (lane == 0) of_warps[threadIdx.x / 32] = both;
        __syncthreads();
        if (parts == 1 || threadIdx.x < 32) both = of_warp(lane < warps ? of_warps[lane] : Both{LEAST, 0.0f});
    }
    if (parts > 1) {
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        if (static_cast<int>(threadIdx.x) < parts)
            *cooperative_groups::this_cluster().map_shared_rank(of_parts + rank, threadIdx.x) = both;
        asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
        both = of_warp(lane < parts ? of_parts[lane] : Both{LEAST, 0.0f});
    }
    return both;
}

// A row as aligned vectors, and what is before and behind them.
struct Row {
    long long start;
    int cols, head, vectors, shift;  // `shift` vectors of the first 128 bytes are not the row's
    __device__ __forceinline__ Row(long long number, int cols) : start(number * cols), cols(cols) {
        head = min(static_cast<int>(-start & (LANES - 1)), cols);
        vectors = (cols - head) / LANES;
        shift = static_cast<int>((start + head) / LANES & 7);
    }
    __device__ __forceinline__ const uint4* in(const T* x) const {
        return reinterpret_cast<const uint4*>(x) + (start + head) / LANES;
    }
    __device__ __forceinline__ uint4* out(T* y) const { return reinterpret_cast<uint4*>(y) + (start + head) / LANES; }
    // Which element the first threads of the first block have besides; -1: none.
    __device__ __forceinline__ int edge(int rank) const {
        const int t = threadIdx.x, tail = cols - head - vectors * LANES;
        if (rank || t >= 16) return -1;
        return t < 8 ? (t < head ? t : -1) : (t - 8 < tail ? cols - tail + t - 8 : -1);
    }
};

template <int DEEP> __device__ __forceinline__ void in_registers(const T* __restrict__ x, T* __restrict__ y, int cols, int parts) {
    if (parts > 1) begun();
    const int rank = blockIdx.x & (parts - 1);
    const Row row(blockIdx.x / parts, cols);
    const int first = rank * (DEEP * blockDim.x) + threadIdx.x - row.shift, edge = row.edge(rank);
    const uint4* from = row.in(x);
    uint4 in[DEEP];
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        const int i = first + j * static_cast<int>(blockDim.x);
        in[j] = nothing();
        if (static_cast<unsigned>(i) < static_cast<unsigned>(row.vectors)) in[j] = fetched(from + i);
    }
    const float extra = edge < 0 ? minus_infinity() : load(x[row.start + edge]);
    unsigned words = larger(in[0]);
#pragma unroll
    for (int j = 1; j < DEEP; j++) words = larger(words, larger(in[j]), TYPE);
    const float own = fmaxf(largest_of(words), extra);
    float sums[2] = {__expf(extra - own), 0.0f};
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        sums[0] += exponentials(in[j].x, own), sums[1] += exponentials(in[j].y, own);
        sums[0] += exponentials(in[j].z, own), sums[1] += exponentials(in[j].w, own);
    }
    const Both all = of_row({own, sums[0] + sums[1]}, parts, rank);
    const float log_sum = logf(all.sum);
    uint4* to = row.out(y);
    const unsigned zero = parts >> 4;  // the compiler does not know: else it keeps halves as the floats that they were
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        if constexpr (sizeof(T) < 4) in[j].x ^= zero, in[j].y ^= zero, in[j].z ^= zero, in[j].w ^= zero;
        const int i = first + j * static_cast<int>(blockDim.x);
        if (static_cast<unsigned>(i) < static_cast<unsigned>(row.vectors)) put(to + i, result(in[j], all.largest, log_sum));
    }
    if (edge >= 0) y[row.start + edge] = store(extra - all.largest - log_sum);
}

constexpr int RESIDENT = VECTORS <= 4 ? 1536 : VECTORS <= 8 ? 1024 : 512;  // threads of a multiprocessor at least
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
    long_rows(const T* __restrict__ x, T* __restrict__ y, int cols, int parts) {
    in_registers<VECTORS>(x, y, cols, parts);
}
extern "C" __global__ void __launch_bounds__(1024)
    longer_rows(const T* __restrict__ x, T* __restrict__ y, int cols, int parts) {
    in_registers<(VECTORS < 8 ? VECTORS : 8)>(x, y, cols, parts);
}

extern "C" __global__ void __launch_bounds__(512) longest_rows(const T* __restrict__ x, T* __restrict__ y, int cols) {
    begun();
    constexpr int DEEP = 4, STEP = 8 * 512;
    const int rank = blockIdx.x & 7;
    const Row row(blockIdx.x / 8, cols);
    const int first = rank * 512 + threadIdx.x - row.shift, edge = row.edge(rank);
    const uint4* from = row.in(x);
    const float extra = edge < 0 ? minus_infinity() : load(x[row.start + edge]);
    float own = fmaxf(LEAST, extra), sum = __expf(extra - own);
    long long i = first;
    for (; i < row.vectors; i += DEEP * STEP) {
        uint4 in[DEEP];
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            const long long at = i + j * STEP;
            in[j] = nothing();
            if (at >= 0 && at < row.vectors) in[j] = __ldg(from + at);
        }
        unsigned words = larger(in[0]);
#pragma unroll
        for (int j = 1; j < DEEP; j++) words = larger(words, larger(in[j]), TYPE);
        const float before = own;
        own = fmaxf(own, largest_of(words));
        sum *= __expf(before - own);
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            sum += exponentials(in[j].x, own) + exponentials(in[j].y, own);
            sum += exponentials(in[j].z, own) + exponentials(in[j].w, own);
        }
    }
    const Both all = of_row({own, sum}, 8, rank);
    const float log_sum = logf(all.sum);
    uint4* to = row.out(y);
    for (i -= DEEP * STEP; i >= first; i -= DEEP * STEP) {  // back, as the end is still in L2
        uint4 in[DEEP];
#pragma unroll
        for (int j = 0; j < DEEP; j++)
            if (i + j * STEP >= 0 && i + j * STEP < row.vectors) in[j] = __ldg(from + i + j * STEP);
#pragma unroll
        for (int j = 0; j < DEEP; j++)
            if (i + j * STEP >= 0 && i + j * STEP < row.vectors) put(to + i + j * STEP, result(in[j], all.largest, log_sum));
    }
    if (edge >= 0) y[row.start + edge] = store(extra - all.largest - log_sum);
}

// A lane of a group has a vector, or an element, of each of EACH rows.
__device__ __forceinline__ float over_group(float value, int group) {
    for (int offset = group / 2; offset; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
    return value;
}
__device__ __forceinline__ float largest_of_group(float value, int group) {
    for (int offset = group / 2; offset; offset /= 2) value = fmaxf(value, __shfl_xor_sync(ALL, value, offset));
    return value;
}

extern "C" __global__ void __launch_bounds__(256)
    short_rows(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, int group) {
    const int c = threadIdx.x % group, vectors = cols / LANES, at_once = 256 / group;
    const long long first = (long long)blockIdx.x * at_once * EACH + threadIdx.x / group;
    uint4 in[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        in[e] = nothing();
        if (c < vectors && row < rows) in[e] = fetched(reinterpret_cast<const uint4*>(x) + row * vectors + c);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        const float largest = largest_of_group(largest_of(larger(in[e])), group);
        float sum = exponentials(in[e].x, largest) + exponentials(in[e].y, largest);
        sum += exponentials(in[e].z, largest) + exponentials(in[e].w, largest);
        const float log_sum = logf(over_group(sum, group));
        if (c < vectors && row < rows) put(reinterpret_cast<uint4*>(y) + row * vectors + c, result(in[e], largest, log_sum));
    }
}

extern "C" __global__ void __launch_bounds__(256)
    short_odd_rows(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, int group) {
    const int c = threadIdx.x % group, at_once = 256 / group;
    const long long first = (long long)blockIdx.x * at_once * EACH + threadIdx.x / group;
    float in[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        in[e] = c < cols && row < rows ? load(x[row * cols + c]) : minus_infinity();
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        const float largest = largest_of_group(fmaxf(LEAST, in[e]), group);
        const float log_sum = logf(over_group(__expf(in[e] - largest), group));
        if (c < cols && row < rows) y[row * cols + c] = store(in[e] - largest - log_sum);
    }
}
