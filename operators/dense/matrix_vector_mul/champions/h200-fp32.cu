/*! evo
[tune]
FOUR = [65536, 4096, 16384, 1000000000]  # least m of blocks of four rows
TWO = [8192, 4096, 1000000000]     # least m of blocks of two rows: smaller blocks leave less to do at the end

[tune.bf16]
FOUR = [4096, 65536]

[tune.fp16]
FOUR = [4096, 65536]

[let]
by_vectors = "n % (16 // sizeof_T) == 0 and n >= 1024"
odd = "n % (16 // sizeof_T) != 0"
odd_short = "odd and n <= 512"      # several rows per block, in shared memory
odd_rows = "16 // sizeof_T * max(1, min(1024 // n, ceil_div(m, 16 // sizeof_T * 2 * sm_count)))"
odd_group = "min(32, next_pow2(ceil_div(n, 4)))"
odd_blocks = "odd and (n > 32768 or m < 32 * sm_count and n > 512 * (16 // sizeof_T))"
odd_parts = "next_pow2(max(1, min(8, 2 * sm_count // m, n // (2048 * (16 // sizeof_T)))))"

[[launch]]                         # a block takes four rows
kernel = "rows_of<4>"
when = "by_vectors and m >= FOUR"
grid = ["ceil_div(m, 4)"]
block = [128]
args = ["a", "x", "y", "m", "n"]

[[launch]]
kernel = "rows_of<2>"
when = "by_vectors and m < FOUR and m >= TWO"
grid = ["ceil_div(m, 2)"]
block = [128]
args = ["a", "x", "y", "m", "n"]

[[launch]]                         # few rows: one each
kernel = "rows_of<1>"
when = "by_vectors and m < FOUR and m < TWO"
grid = ["m"]
block = [128]
args = ["a", "x", "y", "m", "n"]

[[launch]]                         # a warp takes a row
kernel = "short_rows"
when = "n % (16 // sizeof_T) == 0 and n < 1024"
grid = ["ceil_div(m, 4)"]
block = [128]
args = ["a", "x", "y", "m", "n"]

[[launch]]                         # short rows whose vectors are not aligned, several per block
kernel = "odd_short_rows<4>"
when = "odd_short and n <= 128"
grid = ["ceil_div(m, odd_rows)"]
block = [256]
shared = "odd_rows * n * sizeof_T"
args = ["a", "x", "y", "m", "n", "odd_rows", "odd_group"]

[[launch]]
kernel = "odd_short_rows<16>"
when = "odd_short and n > 128"
grid = ["ceil_div(m, odd_rows)"]
block = [256]
shared = "odd_rows * n * sizeof_T"
args = ["a", "x", "y", "m", "n", "odd_rows", "odd_group"]

[[launch]]                         # longer ones: a warp has one
kernel = "odd_warp_rows"
when = "odd and not odd_short and not odd_blocks"
grid = ["ceil_div(m, 4)"]
block = [128]
args = ["a", "x", "y", "m", "n"]

[[launch]]                         # the longest, or few: up to 8 blocks have one
kernel = "odd_block_rows"
when = "odd_blocks"
grid = ["m * odd_parts"]
block = [256]
cluster = ["odd_parts"]
args = ["a", "x", "y", "n", "odd_parts"]
*/
#include <cuda_bf16.h>

constexpr int LANES = 16 / sizeof(T);

__device__ __forceinline__ ACC over_warp(ACC sum) {
#pragma unroll
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    return sum;
}
// Two elements of 16 bits, or one of 32.
__device__ __forceinline__ ACC product(ACC sum, unsigned a, unsigned x) {
    if constexpr (LANES == 8) {
        sum = fmaf(__uint_as_float(a << 16), __uint_as_float(x << 16), sum);
        return fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(x & 0xffff0000u), sum);
    } else {
        return fmaf(__uint_as_float(a), __uint_as_float(x), sum);
    }
}

// The block walks along its rows, a vector per thread and row, several at once: `a` is read once, x comes from the cache.
template <int ROWS> __global__ void __launch_bounds__(128) rows_of(const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y, int m, int n) {
    constexpr int AT_ONCE = ROWS == 4 ? 2 : 4;
    __shared__ ACC partial[ROWS][4];
    const int vectors = n / LANES, top = blockIdx.x * ROWS, t = threadIdx.x;
    const uint4* values = reinterpret_cast<const uint4*>(x);
    const uint4* row[ROWS];
    ACC sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        row[r] = reinterpret_cast<const uint4*>(a + (long long)(top + r < m ? top + r : m - 1) * n);
        sums[r] = 0;
    }
    int i = t;
    for (; i + 128 * (AT_ONCE - 1) < vectors; i += 128 * AT_ONCE) {
        uint4 in[AT_ONCE][ROWS], with[AT_ONCE];
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) in[s][r] = __ldcs(row[r] + i + 128 * s);
        }
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) with[s] = __ldg(values + i + 128 * s);
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++)
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                sums[r] = product(sums[r], in[s][r].x, with[s].x), sums[r] = product(sums[r], in[s][r].y, with[s].y);
                sums[r] = product(sums[r], in[s][r].z, with[s].z), sums[r] = product(sums[r], in[s][r].w, with[s].w);
            }
    }
    for (; i < vectors; i += 128) {
        const uint4 with = __ldg(values + i);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const uint4 in = __ldcs(row[r] + i);
            sums[r] = product(sums[r], in.x, with.x), sums[r] = product(sums[r], in.y, with.y);
            sums[r] = product(sums[r], in.z, with.z), sums[r] = product(sums[r], in.w, with.w);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const ACC sum = over_warp(sums[r]);
        if (t % 32 == 0) partial[r][t / 32] = sum;
    }
    __syncthreads();
    if (t < ROWS && top + t < m) y[top + t] = store((partial[t][0] + partial[t][1]) + (partial[t][2] + partial[t][3]));
}

extern "C" __global__ void __launch_bounds__(128) short_rows(const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y, int m, int n) {
    const int lane = threadIdx.x % 32, r = blockIdx.x * 4 + threadIdx.x / 32;
    if (r >= m) return;
    const T* row = a + (long long)r * n;
    ACC sum = 0;
    if (n % LANES == 0) {
        for (int i = lane; i < n / LANES; i += 32) {
            const uint4 in = reinterpret_cast<const uint4*>(row)[i], with = reinterpret_cast<const uint4*>(x)[i];
            sum = product(sum, in.x, with.x), sum = product(sum, in.y, with.y);
            sum = product(sum, in.z, with.z), sum = product(sum, in.w, with.w);
        }
    } else {
#pragma unroll 4
        for (int i = lane; i < n; i += 32) sum += load(row[i]) * load(x[i]);
    }
    sum = over_warp(sum);
    if (lane == 0) y[r] = store(sum);
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
        vectors = cols / LANES - (head ? 1 : 0);  // so that vectors beside them can be read
        if (vectors < 0) vectors = 0;
        shift = static_cast<int>((start + head) / LANES & 7);
    }
    __device__ __forceinline__ const uint4* in(const T* x) const {
        return reinterpret_cast<const uint4*>(x) + (start + head) / LANES;
    }
    __device__ __forceinline__ uint4* out(T* y) const { return reinterpret_cast<uint4*>(y) + (start + head) / LANES; }
    __device__ __forceinline__ bool has(int i) const { return static_cast<unsigned>(i) < static_cast<unsigned>(vectors); }
    // Which element the first threads of the first block have besides; -1: none.
    __device__ __forceinline__ int edge(int rank, int t) const {
        const int begin = head + vectors * LANES;
        if (rank || t >= 24) return -1;
        return t < 8 ? (t < head ? t : -1) : (t - 8 < cols - begin ? begin + t - 8 : -1);
    }
};

// The blocks of a row are a cluster; one that writes into another's shared memory must know that it has begun.
__device__ __forceinline__ void begun() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
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
__device__ __forceinline__ float sum_of_group(float value, int group) {
    for (int offset = group / 2; offset; offset /= 2) value += __shfl_xor_sync(ALL, value, offset);
    return value;
}

// The sum over a row's threads.
__device__ __forceinline__ float over_row(float value, int parts, int rank) {
    __shared__ float of_warps[32], of_parts[8];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    value = sum_of_group(value, 32);
    if (warps > 1) {
        if (lane == 0) of_warps[threadIdx.x / 32] = value;
        __syncthreads();
        if (parts == 1 || threadIdx.x < 32) value = sum_of_group(lane < warps ? of_warps[lane] : 0.0f, 32);
    }
    if (parts > 1) {
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        if (static_cast<int>(threadIdx.x) < parts)
            *cooperative_groups::this_cluster().map_shared_rank(of_parts + rank, threadIdx.x) = value;
        asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
        value = sum_of_group(lane < parts ? of_parts[lane] : 0.0f, 32);
    }
    return value;
}

// The vector that begins `elements` behind the first of two.
__device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, int elements) {
    if constexpr (LANES == 8) {
        const unsigned by = elements % 2 * 16;
        unsigned u0 = __funnelshift_r(a.x, a.y, by), u1 = __funnelshift_r(a.y, a.z, by), u2 = __funnelshift_r(a.z, a.w, by);
        unsigned u3 = __funnelshift_r(a.w, b.x, by), u4 = __funnelshift_r(b.x, b.y, by), u5 = __funnelshift_r(b.y, b.z, by);
        unsigned u6 = __funnelshift_r(b.z, b.w, by);
        elements /= 2;
        if (elements & 1) u0 = u1, u1 = u2, u2 = u3, u3 = u4, u4 = u5, u5 = u6;
        return elements & 2 ? make_uint4(u2, u3, u4, u5) : make_uint4(u0, u1, u2, u3);
    } else {
        if (elements & 1) a.x = a.y, a.y = a.z, a.z = a.w, a.w = b.x, b.x = b.y, b.y = b.z;
        return elements & 2 ? make_uint4(a.z, a.w, b.x, b.y) : a;
    }
}

__device__ __forceinline__ float product(float sum, unsigned u, unsigned w) {
    const float2 a = parted(u, TYPE), b = parted(w, TYPE);
    return sizeof(T) == 4 ? fmaf(a.x, b.x, sum) : fmaf(a.y, b.y, fmaf(a.x, b.x, sum));
}
// What the threads from `first` on, `apart` of them, have of a row.
__device__ __forceinline__ float of_thread(const Row& row, const T* __restrict__ a, const T* __restrict__ x, int first, int apart) {
    constexpr int DEEP = 4;
    const uint4 *from = row.in(a), *beside = reinterpret_cast<const uint4*>(x);  // of the vector there, and the next
    const int next = row.head ? 1 : 0;
    float sum = 0.0f, other = 0.0f;
    for (int i = first - row.shift; i < row.vectors; i += DEEP * apart) {
        uint4 in[DEEP], with[DEEP][2];
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            in[j] = make_uint4(0, 0, 0, 0);
            if (row.has(i + j * apart)) in[j] = __ldcs(from + i + j * apart);
        }
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            if (row.has(i + j * apart)) with[j][0] = __ldg(beside + i + j * apart), with[j][1] = __ldg(beside + i + j * apart + next);
        }
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            if (!row.has(i + j * apart)) continue;
            const uint4 v = shifted(with[j][0], with[j][1], row.head);
            sum = product(product(sum, in[j].x, v.x), in[j].y, v.y);
            other = product(product(other, in[j].z, v.z), in[j].w, v.w);
        }
    }
    return sum + other;
}
}  // namespace odd

extern "C" __global__ void __launch_bounds__(128) odd_warp_rows(const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y, int m, int n) {
    const int lane = threadIdx.x % 32, r = blockIdx.x * 4 + threadIdx.x / 32;
    if (r >= m) return;
    const odd::Row row(r, n);
    const int edge = row.edge(0, lane);
    const float extra = edge < 0 ? 0.0f : load(a[row.start + edge]) * load(x[edge]);
    const float sum = odd::sum_of_group(extra + odd::of_thread(row, a, x, lane, 32), 32);
    if (lane == 0) y[r] = store(sum);
}

extern "C" __global__ void __launch_bounds__(256) odd_block_rows(const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y, int n, int parts) {
    using namespace odd;
    if (parts > 1) begun();
    const int rank = blockIdx.x & (parts - 1);
    const Row row(blockIdx.x / parts, n);
    const int edge = row.edge(rank, threadIdx.x);
    const float extra = edge < 0 ? 0.0f : load(a[row.start + edge]) * load(x[edge]);
    const float sum = over_row(extra + of_thread(row, a, x, rank * 256 + threadIdx.x, parts * 256), parts, rank);
    if (rank == 0 && threadIdx.x == 0) y[blockIdx.x / parts] = store(sum);
}

// A group of lanes has a row in shared memory, a lane every so manieth element of it, and of x.
template <int EACH_LANE>
__global__ void __launch_bounds__(256) odd_short_rows(const T* __restrict__ a, const T* __restrict__ x, T* __restrict__ y, int m, int n, int together, int group) {
    using namespace odd;
    extern __shared__ uint4 span[];
    const T* of_rows = reinterpret_cast<const T*>(span);
    const long long first = (long long)blockIdx.x * together;
    const int here = static_cast<int>(min(static_cast<long long>(together), m - first)), lane = threadIdx.x % group;
    float with[EACH_LANE];
#pragma unroll
    for (int e = 0; e < EACH_LANE; e++) with[e] = lane + e * group < n ? load(x[lane + e * group]) : 0.0f;
    arrive(a + first * n, span, here * n);
    __syncthreads();
    for (int top = 0; top < here; top += 256 / group) {
        const int row = top + threadIdx.x / group;
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            if (row < here && c < n) sum = fmaf(load(of_rows[row * n + c]), with[e], sum);
        }
        sum = sum_of_group(sum, group);
        if (row < here && lane == 0) y[first + row] = store(sum);
    }
}
