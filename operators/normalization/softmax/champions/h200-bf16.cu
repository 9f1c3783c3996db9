/*! evo
[tune]
VECTORS = [4, 2, 8]                # 16-byte vectors of a row per thread
EACH = [4, 2, 8]                   # short rows per thread
PER = [4, 2, 1]                    # vectors of a thread where there are few rows
FEW = [16, 4, 0]                   # rows per multiprocessor that are few
LONG = [2048, 1024, 1048576]       # vectors of a row that a cluster shares, where there are very few

WARM = [0, 1]                      # 1: the code is fetched while a row of few is on its way
NARROW = [2, 4, 1]                 # words that a thread has of a row of 256, of few rows
MEDIUM = [4, 2, 8]                 # of 1,024
BROAD = [4, 8]                     # of 4,096
DEEP = [2, 4, 1]                   # vectors that a thread has of one of 4,096 or 8,192, of many rows
LAST = [1, 0]                      # 1: neither these rows nor their results are to stay in the caches
THREADS_OF = [1536, 2048, 1024]    # threads of a multiprocessor that registers are to suffice for, of many rows

[let]
quick = "rows <= sm_count and (cols == 256 or cols == 1024 or cols == 4096)"
stream = "rows > FEW * sm_count and (cols == 4096 or cols == 8192)"
other = "not quick and not stream"
odd = "cols % (16 // sizeof_T) != 0"
odd_short = "odd and cols <= 512"      # several rows per block, in shared memory
odd_rows = "16 // sizeof_T * max(1, min(1024 // cols, ceil_div(rows, 16 // sizeof_T * 2 * sm_count)))"
odd_group = "min(32, next_pow2(ceil_div(cols, 4)))"
odd_vectors = "cols // (16 // sizeof_T) + 7"   # counted from the 128 bytes in which a row begins
odd_some = "128 * sizeof_T * 8"           # vectors of a block
odd_most = "1024 * 8"                     # of a larger one
odd_parts = "next_pow2(max(ceil_div(odd_vectors, odd_some if odd_vectors <= 8 * odd_some else odd_most), min(8, sm_count // (2 * rows), odd_vectors // 1024)))"
odd_mine = "odd"
vectors = "ceil_div(cols, 16 // sizeof_T)"
few = "cols % (16 // sizeof_T) == 0 and rows <= FEW * sm_count and vectors <= 4096"
share = "4 if 4 * rows <= sm_count else 2"  # blocks of a cluster
shared_row = "few and vectors >= LONG and 2 * rows <= sm_count and vectors % (32 * share) == 0"
crew = "min(1024, max(32, next_pow2(ceil_div(vectors // share, PER))))"
each_of_crew = "ceil_div(vectors // share, crew)"
threads = "min(1024, max(32, next_pow2(ceil_div(vectors, PER))))"
each = "ceil_div(vectors, threads)"

[[launch]]                         # few rows of these lengths: a block for each
kernel = "quick_row<NARROW, 256>"
when = "quick and cols == 256"
grid = ["rows"]
block = ["128 // NARROW"]
args = ["x", "y", "2"]

[[launch]]
kernel = "quick_row<MEDIUM, 1024>"
when = "quick and cols == 1024"
grid = ["rows"]
block = ["512 // MEDIUM"]
args = ["x", "y", "2"]

[[launch]]
kernel = "quick_row<BROAD, 4096>"
when = "quick and cols == 4096"
grid = ["rows"]
block = ["2048 // BROAD"]
args = ["x", "y", "2"]

[[launch]]                         # many rows of these lengths: a block for each
kernel = "stream_row<4096>"
when = "stream and cols == 4096"
grid = ["rows"]
block = ["512 // DEEP"]
args = ["x", "y"]

[[launch]]
kernel = "stream_row<8192>"
when = "stream and cols == 8192"
grid = ["rows"]
block = ["1024 // DEEP"]
args = ["x", "y"]

[[launch]]                         # a block per row, of as many threads as it needs
kernel = "one_row<1>"
when = "other and (not odd_mine and (few and not shared_row and each == 1))"
grid = ["rows"]
block = ["threads"]
args = ["x", "y", "cols"]

[[launch]]                         # a block per row, of as many threads as it needs
kernel = "one_row<2>"
when = "other and (not odd_mine and (few and not shared_row and each == 2))"
grid = ["rows"]
block = ["threads"]
args = ["x", "y", "cols"]

[[launch]]                         # a block per row, of as many threads as it needs
kernel = "one_row<4>"
when = "other and (not odd_mine and (few and not shared_row and each > 2))"
grid = ["rows"]
block = ["threads"]
args = ["x", "y", "cols"]

[[launch]]                         # a cluster per row
kernel = "shared_row<2, 1>"
when = "other and (not odd_mine and (shared_row and share == 2 and each_of_crew == 1))"
grid = ["rows * 2"]
cluster = [2]
block = ["crew"]
args = ["x", "y", "cols"]

[[launch]]                         # a cluster per row
kernel = "shared_row<2, 2>"
when = "other and (not odd_mine and (shared_row and share == 2 and each_of_crew == 2))"
grid = ["rows * 2"]
cluster = [2]
block = ["crew"]
args = ["x", "y", "cols"]

[[launch]]                         # a cluster per row
kernel = "shared_row<2, 4>"
when = "other and (not odd_mine and (shared_row and share == 2 and each_of_crew > 2))"
grid = ["rows * 2"]
cluster = [2]
block = ["crew"]
args = ["x", "y", "cols"]

[[launch]]                         # a cluster per row
kernel = "shared_row<4, 1>"
when = "other and (not odd_mine and (shared_row and share == 4 and each_of_crew == 1))"
grid = ["rows * 4"]
cluster = [4]
block = ["crew"]
args = ["x", "y", "cols"]

[[launch]]                         # a cluster per row
kernel = "shared_row<4, 2>"
when = "other and (not odd_mine and (shared_row and share == 4 and each_of_crew == 2))"
grid = ["rows * 4"]
cluster = [4]
block = ["crew"]
args = ["x", "y", "cols"]

[[launch]]                         # a cluster per row
kernel = "shared_row<4, 4>"
when = "other and (not odd_mine and (shared_row and share == 4 and each_of_crew > 2))"
grid = ["rows * 4"]
cluster = [4]
block = ["crew"]
args = ["x", "y", "cols"]

[[launch]]                         # a group of lanes per row
kernel = "short_rows"
when = "other and (not odd_mine and (not few and cols % (16 // sizeof_T) == 0 and cols <= 32 * (16 // sizeof_T)))"
grid = ["ceil_div(rows, 256 // next_pow2(ceil_div(cols, 16 // sizeof_T)) * EACH)"]
block = [256]
args = ["x", "y", "rows", "cols", "next_pow2(ceil_div(cols, 16 // sizeof_T))"]

[[launch]]                         # a block per row, which stays in registers
kernel = "long_rows"
when = "other and (not odd_mine and (not few and cols % (16 // sizeof_T) == 0 and cols > 32 * (16 // sizeof_T) and cols <= 4096 * VECTORS))"
grid = ["rows"]
block = ["32 * ceil_div(cols, 32 * VECTORS * (16 // sizeof_T))"]
args = ["x", "y", "cols"]

[[launch]]                         # whatever else
kernel = "any_rows"
when = "other and (not odd_mine and (not few and (cols % (16 // sizeof_T) != 0 or cols > 4096 * VECTORS)))"
grid = ["rows"]
block = [256]
args = ["x", "y", "cols"]

[[launch]]                         # short rows whose vectors are not aligned, several per block
kernel = "odd_short_rows<4>"
when = "other and (odd_short and cols <= 128)"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "odd_rows * cols * sizeof_T"
args = ["x", "y", "rows", "cols", "odd_rows", "odd_group"]

[[launch]]
kernel = "odd_short_rows<16>"
when = "other and (odd_short and cols > 128)"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "odd_rows * cols * sizeof_T"
args = ["x", "y", "rows", "cols", "odd_rows", "odd_group"]

[[launch]]                         # longer ones: up to 8 blocks per row, which stays in registers
kernel = "odd_long_rows"
when = "other and (odd and not odd_short and odd_vectors <= 8 * odd_some)"
grid = ["rows * odd_parts"]
block = ["32 * ceil_div(odd_vectors, 32 * 8 * odd_parts)"]
cluster = ["odd_parts"]
args = ["x", "y", "cols", "odd_parts"]

[[launch]]                         # the same with larger blocks, where they are needed
kernel = "odd_longer_rows"
when = "other and (odd and odd_vectors > 8 * odd_some and odd_vectors <= 8 * odd_most)"
grid = ["rows * odd_parts"]
block = ["32 * ceil_div(odd_vectors, 32 * 8 * odd_parts)"]
cluster = ["odd_parts"]
args = ["x", "y", "cols", "odd_parts"]

[[launch]]                         # the longest: 8 blocks per row, which is read twice
kernel = "odd_longest_rows"
when = "other and (odd and odd_vectors > 8 * odd_most)"
grid = ["rows * 8"]
block = [512]
cluster = [8]
args = ["x", "y", "cols"]
*/
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// A row is read once; maximum and sum are found together, by one exchange between warps.
constexpr int LANES = 16 / sizeof(T);
struct alignas(16) Vector { T v[LANES]; };

__device__ __forceinline__ ACC over_group(ACC value, int group) {
    for (int offset = group / 2; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// Of all warps of the block; `partial` may be used once.
__device__ __forceinline__ ACC over_block(ACC value, ACC* partial) {
    const int warps = blockDim.x / 32;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < warps ? partial[threadIdx.x % 32] : ACC(0);
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

constexpr ACC LEAST = ACC(-3.402823466e+38f);
struct Both { ACC largest, sum; };  // the sum of exp(x - largest)
__device__ __forceinline__ Both joined(Both a, Both b) {
    const ACC largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * __expf(a.largest - largest) + b.sum * __expf(b.largest - largest)};
}
__device__ __forceinline__ Both other(Both a, int offset) {
    return {__shfl_xor_sync(0xffffffffu, a.largest, offset), __shfl_xor_sync(0xffffffffu, a.sum, offset)};
}
__device__ __forceinline__ Both all_of_block(Both both) {
    __shared__ Both partial[32];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) both = joined(both, other(both, offset));
    if (lane == 0) partial[threadIdx.x / 32] = both;
    __syncthreads();
    both = lane < warps ? partial[lane] : Both{LEAST, 0};
#pragma unroll
    for (int offset = 16; offset; offset /= 2) both = joined(both, other(both, offset));
    return both;
}

__device__ __forceinline__ ACC largest_of_warp(ACC value) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

__device__ __forceinline__ void begin() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Few rows, a block or a cluster of SHARE blocks for each: all of it is under way at once, and there is little code, which has
// to be fetched, too.
template <int SHARE, int COUNT> __device__ __forceinline__ void row_of(const T* __restrict__ x, T* __restrict__ y, int cols) {
    __shared__ Both of_warps[32], of_blocks[SHARE];
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, vectors = cols / LANES / SHARE;
    const long long start = (long long)blockIdx.x * vectors;  // blocks of a cluster lie beside each other
    if constexpr (SHARE > 1) begin();
    uint4 in[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const int at = j * blockDim.x + threadIdx.x;
        in[j] = make_uint4(0, 0, 0, 0);
        if (at < vectors) in[j] = reinterpret_cast<const uint4*>(x)[start + at];
    }
    ACC v[COUNT][LANES], largest = LEAST, sum = 0;
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            v[j][l] = load(reinterpret_cast<const Vector&>(in[j]).v[l]);
            if (static_cast<int>(j * blockDim.x + threadIdx.x) >= vectors) v[j][l] = ACC(-__int_as_float(0x7f800000));
            largest = fmaxf(largest, v[j][l]);
        }
    largest = largest_of_warp(largest);
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sum += v[j][l] = __expf(v[j][l] - largest);
    sum = over_group(sum, 32);
    ACC scale = 1;
    if (warps > 1 || SHARE > 1) {
        if (lane == 0) of_warps[threadIdx.x / 32] = {largest, sum};
        __syncthreads();
        const Both other = lane < warps ? of_warps[lane] : Both{LEAST, 0};
        ACC most = largest_of_warp(other.largest);
        sum = over_group(other.sum * __expf(other.largest - most), 32);
        if constexpr (SHARE > 1) {
            const cg::cluster_group cluster = cg::this_cluster();
            wait();  // all have begun
            if (threadIdx.x < SHARE) cluster.map_shared_rank(of_blocks, threadIdx.x)[cluster.block_rank()] = {most, sum};
            arrive();
            wait();
            most = of_blocks[0].largest;
#pragma unroll
            for (int r = 1; r < SHARE; r++) most = fmaxf(most, of_blocks[r].largest);
            sum = 0;
#pragma unroll
            for (int r = 0; r < SHARE; r++) sum += of_blocks[r].sum * __expf(of_blocks[r].largest - most);
        }
        scale = __expf(largest - most);
    }
    scale = __fdividef(scale, sum);
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const int at = j * blockDim.x + threadIdx.x;
        if (at < vectors) {
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(v[j][l] * scale);
            reinterpret_cast<Vector*>(y)[start + at] = out;
        }
    }
}
template <int COUNT> __global__ void __launch_bounds__(1024, 1) one_row(const T* __restrict__ x, T* __restrict__ y, int cols) {
    row_of<1, COUNT>(x, y, cols);
}
template <int SHARE, int COUNT> __global__ void __launch_bounds__(1024, 1) shared_row(const T* __restrict__ x, T* __restrict__ y, int cols) {
    row_of<SHARE, COUNT>(x, y, cols);
}

extern "C" __global__ void __launch_bounds__(256) short_rows(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, int group) {
    const int c = threadIdx.x % group * LANES, at_once = 256 / group;
    const long long first = (long long)blockIdx.x * at_once * EACH + threadIdx.x / group;
    uint4 in[EACH];  // all under way before the first is used
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        in[e] = make_uint4(0, 0, 0, 0);
        if (c < cols && row < rows) in[e] = *reinterpret_cast<const uint4*>(x + row * cols + c);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        const bool mine = c < cols && row < rows;
        ACC v[LANES], largest = LEAST;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            v[l] = mine ? load(reinterpret_cast<const Vector&>(in[e]).v[l]) : ACC(-__int_as_float(0x7f800000));
            largest = fmaxf(largest, v[l]);
        }
        for (int offset = group / 2; offset; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        ACC sum = 0;
#pragma unroll
        for (int l = 0; l < LANES; l++) sum += v[l] = __expf(v[l] - largest);
        const ACC scale = ACC(1) / over_group(sum, group);
        if (mine) {
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(v[l] * scale);
            *reinterpret_cast<Vector*>(y + row * cols + c) = out;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256 * sizeof(T)) long_rows(const T* __restrict__ x, T* __restrict__ y, int cols) {
    const long long start = (long long)blockIdx.x * cols;
    Vector in[VECTORS];
    ACC v[VECTORS][LANES], largest = LEAST, sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        in[j] = Vector{};
        if (c < cols) in[j] = *reinterpret_cast<const Vector*>(x + start + c);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            v[j][l] = (j * blockDim.x + threadIdx.x) * LANES < cols ? load(in[j].v[l]) : ACC(-__int_as_float(0x7f800000));
            largest = fmaxf(largest, v[j][l]);
        }
#pragma unroll
    for (int offset = 16; offset; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sum += v[j][l] = __expf(v[j][l] - largest);
    const Both all = all_of_block({largest, sum});
    const ACC scale = __expf(largest - all.largest) / all.sum;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        if (c < cols) {
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(v[j][l] * scale);
            *reinterpret_cast<Vector*>(y + start + c) = out;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) any_rows(const T* __restrict__ x, T* __restrict__ y, int cols) {
    const long long start = (long long)blockIdx.x * cols;
    ACC largest = LEAST, sum = 0;
    for (int c = threadIdx.x; c < cols; c += 256) largest = fmaxf(largest, load(x[start + c]));
    for (int c = threadIdx.x; c < cols; c += 256) sum += __expf(load(x[start + c]) - largest);
    const Both all = all_of_block({largest, sum});
    const ACC scale = ACC(1) / all.sum;
    for (int c = threadIdx.x; c < cols; c += 256) y[start + c] = store(__expf(load(x[start + c]) - all.largest) * scale);
}

// Rows whose length is no whole number of vectors. Short ones pass through shared memory, several per block, whose first
// begins at a vector's boundary. Longer ones are read and written as aligned vectors, and a few elements before and behind
// these one by one; a row stays in the registers of up to 8 blocks.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace odd {
constexpr unsigned ALL = 0xffffffffu;
constexpr const T* TYPE = nullptr;
__device__ __forceinline__ float2 parted(unsigned u, const float*) { return make_float2(__uint_as_float(u), 0.0f); }
__device__ __forceinline__ float2 parted(unsigned u, const __nv_bfloat16*) {
    return make_float2(__uint_as_float(u << 16), __uint_as_float(u & 0xffff0000u));
}
__device__ __forceinline__ float2 parted(unsigned u, const __half*) {
    return __half22float2(*reinterpret_cast<const __half2*>(&u));
}
__device__ __forceinline__ unsigned packed(float a, float, const float*) { return __float_as_uint(a); }
__device__ __forceinline__ unsigned packed(float a, float b, const __nv_bfloat16*) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&both);
}
__device__ __forceinline__ unsigned packed(float a, float b, const __half*) {
    const __half2 both = __floats2half2_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&both);
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
    __device__ __forceinline__ bool has(int i) const { return static_cast<unsigned>(i) < static_cast<unsigned>(vectors); }
    // Which element the first threads of the first block have besides; -1: none.
    __device__ __forceinline__ int edge(int rank) const {
        const int t = threadIdx.x, begin = head + vectors * LANES;
        if (rank || t >= 24) return -1;
        return t < 8 ? (t < head ? t : -1) : (t - 8 < cols - begin ? begin + t - 8 : -1);
    }
};

// The blocks of a row are a cluster; one that writes into another's shared memory must know that it has begun.
__device__ __forceinline__ void begun() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

// The same halves, but the compiler does not know: else it keeps them as the floats that they were.
template <int DEEP> __device__ __forceinline__ void keep_packed(uint4 (&in)[DEEP], int parts) {
    const unsigned zero = parts >> 4;
    if constexpr (sizeof(T) < 4)
#pragma unroll
        for (int j = 0; j < DEEP; j++) in[j].x ^= zero, in[j].y ^= zero, in[j].z ^= zero, in[j].w ^= zero;
}

// A block's short rows: at most 1024 vectors and a few elements.
__device__ __forceinline__ void arrive(const T* from, uint4* span, int elements) {
    const int vectors = elements / LANES, t = threadIdx.x;
    uint4 in[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (t + j * 256 < vectors) in[j] = __ldcs(reinterpret_cast<const uint4*>(from) + t + j * 256);
    if (t < elements % LANES) reinterpret_cast<T*>(span)[vectors * LANES + t] = from[vectors * LANES + t];
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (t + j * 256 < vectors) span[t + j * 256] = in[j];
}
__device__ __forceinline__ void leave(T* to, const uint4* span, int elements) {
    const int vectors = elements / LANES, t = threadIdx.x;
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (t + j * 256 < vectors) reinterpret_cast<uint4*>(to)[t + j * 256] = span[t + j * 256];
    if (t < elements % LANES) to[vectors * LANES + t] = reinterpret_cast<const T*>(span)[vectors * LANES + t];
}
__device__ __forceinline__ float sum_of_group(float value, int group) {
    for (int offset = group / 2; offset; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
    return value;
}

__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }
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
__device__ __forceinline__ uint4 nothing() {  // adds nothing to a sum and is no maximum
    const unsigned u = packed(minus_infinity(), minus_infinity(), TYPE);
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
__device__ __forceinline__ unsigned result(unsigned u, float largest, float scale) {
    const float2 v = parted(u, TYPE);
    return packed(__expf(v.x - largest) * scale, sizeof(T) == 4 ? 0.0f : __expf(v.y - largest) * scale, TYPE);
}
__device__ __forceinline__ uint4 result(uint4 v, float largest, float scale) {
    return make_uint4(result(v.x, largest, scale), result(v.y, largest, scale), result(v.z, largest, scale),
                      result(v.w, largest, scale));
}
__device__ __forceinline__ Both of_warp(Both both) {
    float largest = both.largest;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, offset));
    float sum = both.sum * __expf(both.largest - largest);
#pragma unroll
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(ALL, sum, offset);
    return {largest, sum};
}
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
        if (row.has(i)) in[j] = __ldg(from + i);
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
    const float scale = 1.0f / all.sum;
    uint4* to = row.out(y);
    keep_packed(in, parts);
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        const int i = first + j * static_cast<int>(blockDim.x);
        if (row.has(i)) to[i] = result(in[j], all.largest, scale);
    }
    if (edge >= 0) y[row.start + edge] = store(__expf(extra - all.largest) * scale);
}
}  // namespace odd

extern "C" __global__ void __launch_bounds__(128 * sizeof(T), 8 / sizeof(T))
    odd_long_rows(const T* __restrict__ x, T* __restrict__ y, int cols, int parts) {
    odd::in_registers<8>(x, y, cols, parts);
}
extern "C" __global__ void __launch_bounds__(1024)
    odd_longer_rows(const T* __restrict__ x, T* __restrict__ y, int cols, int parts) {
    odd::in_registers<8>(x, y, cols, parts);
}

extern "C" __global__ void __launch_bounds__(512) odd_longest_rows(const T* __restrict__ x, T* __restrict__ y, int cols) {
    using namespace odd;
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
    const float scale = 1.0f / all.sum;
    uint4* to = row.out(y);
    for (i -= DEEP * STEP; i >= first; i -= DEEP * STEP) {  // back, as the end is still in L2
        uint4 in[DEEP];
#pragma unroll
        for (int j = 0; j < DEEP; j++)
            if (i + j * STEP >= 0 && i + j * STEP < row.vectors) in[j] = __ldg(from + i + j * STEP);
#pragma unroll
        for (int j = 0; j < DEEP; j++)
            if (i + j * STEP >= 0 && i + j * STEP < row.vectors) to[i + j * STEP] = result(in[j], all.largest, scale);
    }
    if (edge >= 0) y[row.start + edge] = store(__expf(extra - all.largest) * scale);
}

// A group of lanes has a row in shared memory, a lane every so manieth element of it.
template <int EACH_LANE>
__global__ void __launch_bounds__(256, 4) odd_short_rows(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, int together, int group) {
    using namespace odd;
    extern __shared__ uint4 span[];
    T* of_rows = reinterpret_cast<T*>(span);
    const long long first = (long long)blockIdx.x * together;
    const int here = static_cast<int>(min(static_cast<long long>(together), rows - first)), lane = threadIdx.x % group;
    arrive(x + first * cols, span, here * cols);
    __syncthreads();
    for (int top = 0; top < here; top += 256 / group) {
        const int row = top + threadIdx.x / group;
        float v[EACH_LANE], largest = LEAST, sum = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            v[e] = row < here && c < cols ? load(of_rows[row * cols + c]) : minus_infinity();
            largest = fmaxf(largest, v[e]);
        }
        for (int offset = group / 2; offset; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, offset));
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) sum += v[e] = __expf(v[e] - largest);
        const float scale = 1.0f / sum_of_group(sum, group);
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            if (row < here && c < cols) of_rows[row * cols + c] = store(v[e] * scale);
        }
    }
    __syncthreads();
    leave(y + first * cols, span, here * cols);
}

// Rows whose length is a constant. A warp's largest number, as an integer in the same order, and its sum of exponentials, as
// an integer as well, take an instruction each; so do those of the warps. Both words of a pair of numbers become one.
namespace quick {
__device__ __forceinline__ unsigned larger(unsigned a, unsigned b) {  // of both halves; NaN is the largest
    const __nv_bfloat162 both = __hmax2_nan(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const unsigned&>(both);
}
__device__ __forceinline__ float low(unsigned u) { return __uint_as_float(u << 16); }
__device__ __forceinline__ float high(unsigned u) { return __uint_as_float(u & 0xffff0000u); }
__device__ __forceinline__ unsigned packed(float a, float b) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const unsigned&>(both);
}
__device__ __forceinline__ float power(float d) {  // e^d; what is subnormal becomes zero
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(d * 1.4426950408889634f));
    return e;
}
__device__ __forceinline__ float inverse(float d) {
    float e;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(d));
    return e;
}
// Integers in the order of the numbers that both halves of a word are, and back.
__device__ __forceinline__ int key(unsigned w) { return static_cast<int>(w) ^ (static_cast<int>(w) >> 31 & 0x7fffffff); }
__device__ __forceinline__ float number(int k) { return __uint_as_float((k ^ (k >> 31 & 0x7fff0000)) & 0xffff0000u); }
}  // namespace quick

template <int N> struct alignas(4 * N) Words { unsigned w[N]; };

// The results of a thread's words, with the sums of all WARPS warps of its row.
template <int PARTS, int N, int WARPS>
__device__ __forceinline__ void softmax_of(const Words<N> (&in)[PARTS], Words<N> (&out)[PARTS], int2* of_warps) {
    using namespace quick;
    constexpr int COUNT = PARTS * N, BITS = COUNT > 16 ? 20 : COUNT > 8 ? 21 : COUNT > 4 ? 22 : 23;  // of a sum behind the point
    unsigned top = 0xff7fff7fu;  // the least finite number, so that where all are minus infinity they become zero
#pragma unroll
    for (int i = 0; i < COUNT; i++) top = larger(top, in[i / N].w[i % N]);
    const int own_key = __reduce_max_sync(0xffffffffu, key(larger(top, __byte_perm(top, top, 0x1032))));
    const float own = number(own_key);
    float v[2 * COUNT], sums[2] = {};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sums[0] += v[2 * i] = power(low(in[i / N].w[i % N]) - own);
        sums[1] += v[2 * i + 1] = power(high(in[i / N].w[i % N]) - own);
    }
    // A sum is 2 * COUNT at most, that of the warp below 2^32.
    unsigned sum = __reduce_add_sync(0xffffffffu, __float2uint_rn((sums[0] + sums[1]) * float(1 << BITS)));
    float scale, most = own;
    if constexpr (WARPS > 1) {
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = make_int2(own_key, static_cast<int>(sum));
        __syncthreads();
        const int2 other = of_warps[threadIdx.x % WARPS];  // those of each warp 32 / WARPS times
        most = number(__reduce_max_sync(0xffffffffu, other.x));
        const float part = static_cast<float>(static_cast<unsigned>(other.y)) * power(number(other.x) - most);
        sum = __reduce_add_sync(0xffffffffu, __float2uint_rn(part * 0.03125f));
        scale = power(own - most) * float(WARPS > 1 ? (1 << BITS) / WARPS : 1);
    } else {
        scale = float(1 << BITS);
    }
    scale *= inverse(fmaf(most, 0.0f, static_cast<float>(sum)));  // NaN where the largest is no finite number
#pragma unroll
    for (int i = 0; i < COUNT; i++) out[i / N].w[i % N] = packed(v[2 * i] * scale, v[2 * i + 1] * scale);
}

// Few rows. The load and the code come from memory, both late: so the code is executed once for nothing, beside the load.
template <int WORDS, int COLS> __global__ void __launch_bounds__(COLS / 2 / WORDS) quick_row(const T* __restrict__ x, T* __restrict__ y, int rounds) {
    constexpr int WARPS = COLS / 64 / WORDS, PARTS = WORDS > 4 ? WORDS / 4 : 1, N = WORDS / PARTS;
    constexpr bool TWICE = WARM && WARPS > 1;  // of one warp the compiler makes the first round code of its own
    __shared__ int2 of_warps[2][WARPS];
    const int at = blockIdx.x * (32 * WARPS * PARTS) + threadIdx.x;
    Words<N> in[PARTS], now[PARTS], out[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        const void* from = reinterpret_cast<const Words<N>*>(x) + at + p * 32 * WARPS;
        if constexpr (N == 4)
            asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(in[p].w[0]), "=r"(in[p].w[1]), "=r"(in[p].w[2]), "=r"(in[p].w[3]) : "l"(from));
        else if constexpr (N == 2)
            asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(in[p].w[0]), "=r"(in[p].w[1]) : "l"(from));
        else
            asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(in[p].w[0]) : "l"(from));
#pragma unroll
        for (int i = 0; i < N; i++) now[p].w[i] = (threadIdx.x & rounds) >> 2;  // which is zero, and the compiler does not know
    }
    if constexpr (!TWICE) {
#pragma unroll
        for (int p = 0; p < PARTS; p++) now[p] = in[p];
    }
#pragma unroll 1
    for (int left = TWICE ? rounds : 1;; left--) {  // two: an argument, so that both rounds are the same code
        softmax_of<PARTS, N, WARPS>(now, out, of_warps[left & 1]);
#pragma unroll
        for (int i = 0; i < PARTS * N; i++) asm volatile("" : "+r"(out[i / N].w[i % N]));  // here, not behind the loop
        if (left == 1) break;
        const unsigned zero = out[PARTS - 1].w[N - 1] >> 31;  // of results for nothing, so that only here is waited for the row
#pragma unroll
        for (int i = 0; i < PARTS * N; i++) now[i / N].w[i % N] = in[i / N].w[i % N] + zero;
    }
#pragma unroll
    for (int p = 0; p < PARTS; p++) reinterpret_cast<Words<N>*>(y)[at + p * 32 * WARPS] = out[p];
}

// Many rows, too many for the caches.
template <int COLS> __global__ void __launch_bounds__(COLS / 8 / DEEP, THREADS_OF / (COLS / 8 / DEEP)) stream_row(const T* __restrict__ x, T* __restrict__ y) {
    constexpr int WARPS = COLS / 256 / DEEP;
    __shared__ int2 of_warps[WARPS];
    const long long at = (long long)blockIdx.x * (32 * WARPS * DEEP) + threadIdx.x;
    Words<4> in[DEEP], out[DEEP];
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        const uint4* from = reinterpret_cast<const uint4*>(x) + at + j * 32 * WARPS;
        const uint4 bits = LAST ? __ldcs(from) : *from;
        in[j] = reinterpret_cast<const Words<4>&>(bits);
    }
    softmax_of<DEEP, 4, WARPS>(in, out, of_warps);
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        uint4* to = reinterpret_cast<uint4*>(y) + at + j * 32 * WARPS;
        if constexpr (LAST) __stcs(to, reinterpret_cast<const uint4&>(out[j]));
        else *to = reinterpret_cast<const uint4&>(out[j]);
    }
}
