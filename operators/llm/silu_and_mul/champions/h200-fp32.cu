/*! evo
[tune]
WIDTH = [16, 4, 8]                # bytes that a thread reads and writes at a time
EACH = [1, 2, 4, 8]               # of these under way at once
THREADS = [256, 128, 512]          # of a block
LOAD = [0, 2]                      # 2: first to leave the caches
STORE = [0, 1]                     # 1: first to leave L2
where = ["WIDTH * EACH >= 8", "WIDTH * EACH <= 64"]

[let]
lanes = "16 // sizeof_T"
parts = "WIDTH // sizeof_T"
odd_rows = "lanes * max(1, min(512 // cols, ceil_div(rows, lanes * 2 * sm_count)))"

[[launch]]                         # both halves of every row begin at a vector's boundary
kernel = "silu_and_mul"
when = "cols % lanes == 0"
grid = ["ceil_div(cols // parts, THREADS * EACH)", "min(rows, 65535)"]
block = ["THREADS"]
args = ["x", "y", "rows", "cols // parts"]

[[launch]]                         # short rows whose vectors are not aligned, several per block
kernel = "odd_short_rows"
when = "cols % lanes != 0 and cols <= 512"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "3 * odd_rows * cols * sizeof_T"
args = ["x", "y", "rows", "cols", "odd_rows"]

[[launch]]                         # longer ones
kernel = "odd_long_rows"
when = "cols % lanes != 0 and cols > 512"
grid = ["ceil_div(cols // lanes, 512)", "min(rows, 65535)"]
block = [256]
args = ["x", "y", "rows", "cols"]
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int LANES = 16 / sizeof(T);

// No pointer is __restrict__, so that a plain load stays one.
__device__ __forceinline__ uint4 fetched(const uint4* at) {
    if constexpr (LOAD == 1) {
        uint4 v;
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
        return v;
    } else if constexpr (LOAD == 2) {
        return __ldcs(at);
    } else {
        return *at;
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

__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ float inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float value(float g, float v) {
    return g * inverse(1.0f + power_of_2(g * -1.44269504088896341f)) * v;
}

__device__ __forceinline__ unsigned word(unsigned u, unsigned w) {
    const T* type = nullptr;
    const float2 a = parted(u, type), b = parted(w, type);
    return joined(value(a.x, b.x), sizeof(T) == 4 ? 0.0f : value(a.y, b.y), type);
}
__device__ __forceinline__ uint4 values(uint4 a, uint4 b) {
    return make_uint4(word(a.x, b.x), word(a.y, b.y), word(a.z, b.z), word(a.w, b.w));
}

__device__ __forceinline__ uint2 values(uint2 a, uint2 b) { return make_uint2(word(a.x, b.x), word(a.y, b.y)); }
__device__ __forceinline__ unsigned values(unsigned a, unsigned b) { return word(a, b); }

// What a thread reads and writes at a time. No pointer is __restrict__, so that a plain load stays one.
template <int BYTES> struct Words { using Type = uint4; };
template <> struct Words<8> { using Type = uint2; };
template <> struct Words<4> { using Type = unsigned; };
using Word = Words<WIDTH>::Type;
constexpr int PARTS = WIDTH / sizeof(T);  // elements of a word

__device__ __forceinline__ Word read(const Word* at) {
    if constexpr (LOAD == 2) return __ldcs(at);
    else return *at;
}
__device__ __forceinline__ void write(Word* at, Word v) {
    if constexpr (STORE == 1) __stcs(at, v);
    else *at = v;
}

// A block takes a part of one row; `words` are those of half a row.
extern "C" __global__ void __launch_bounds__(THREADS) silu_and_mul(const T* x, T* y, int rows, int words) {
    const int begin = blockIdx.x * (THREADS * EACH), left = words - begin;
    for (int r = blockIdx.y; r < rows; r += gridDim.y) {
        const Word* gates = reinterpret_cast<const Word*>(x) + 2LL * r * words + (begin + threadIdx.x);
        const Word* others = gates + words;
        Word* to = reinterpret_cast<Word*>(y) + static_cast<long long>(r) * words + (begin + threadIdx.x);
        if (__builtin_expect(left >= THREADS * EACH, 1)) {
            Word a[EACH], b[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++) a[e] = read(gates + e * THREADS), b[e] = read(others + e * THREADS);
#pragma unroll
            for (int e = 0; e < EACH; e++) write(to + e * THREADS, values(a[e], b[e]));
        } else {
#pragma unroll 1
            for (int e = 0; e < EACH; e++)
                if (static_cast<int>(threadIdx.x) + e * THREADS < left) write(to + e * THREADS, values(read(gates + e * THREADS), read(others + e * THREADS)));
        }
    }
}

// Rows whose length is no whole number of vectors. Short ones pass through shared memory, several per block, whose first
// begins at a vector's boundary. Longer ones are written as aligned vectors, and a few elements before and behind these
// one by one; what a vector is made of is cut out of two aligned ones of either half, the second from the L1 cache.
namespace odd {
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

}  // namespace odd

extern "C" __global__ void __launch_bounds__(256) odd_long_rows(const T* __restrict__ x, T* __restrict__ y, int rows, int cols) {
    constexpr int DEEP = 2;
    for (long long r = blockIdx.y; r < rows; r += gridDim.y) {
        const int head = static_cast<int>(-(r * cols) & (LANES - 1));
        const long long gates = 2 * r * cols + head, others = gates + cols;
        const int shift = static_cast<int>(gates % LANES), other_shift = static_cast<int>(others % LANES);
        // The second vector of the last ones of the last row may be beyond the end.
        const long long whole = 2LL * rows * cols / LANES - others / LANES - (other_shift ? 1 : 0);
        const int vectors = static_cast<int>(min(static_cast<long long>((cols - head) / LANES), whole));
        const uint4* gate = reinterpret_cast<const uint4*>(x) + gates / LANES;
        const uint4* other = reinterpret_cast<const uint4*>(x) + others / LANES;
        uint4* to = reinterpret_cast<uint4*>(y) + (r * cols + head) / LANES;
        const int first = blockIdx.x * (DEEP * 256) + threadIdx.x;
        uint4 a[DEEP][2], b[DEEP][2];
#pragma unroll
        for (int j = 0; j < DEEP; j++) {
            const int i = first + j * 256;
            if (i < vectors) {
                a[j][0] = __ldg(gate + i), b[j][0] = __ldg(other + i);
                a[j][1] = __ldg(gate + i + (shift ? 1 : 0)), b[j][1] = __ldg(other + i + (other_shift ? 1 : 0));
            }
        }
#pragma unroll
        for (int j = 0; j < DEEP; j++)
            if (first + j * 256 < vectors)
                put(to + first + j * 256, values(odd::shifted(a[j][0], a[j][1], shift), odd::shifted(b[j][0], b[j][1], other_shift)));
        if (blockIdx.x == 0 && threadIdx.x < 24) {
            const int t = threadIdx.x, begin = head + vectors * LANES, c = t < 8 ? t : begin + t - 8;
            if (t < 8 ? t < head : c < cols) y[r * cols + c] = store(value(load(x[2 * r * cols + c]), load(x[(2 * r + 1) * cols + c])));
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) odd_short_rows(const T* __restrict__ x, T* __restrict__ y, int rows, int cols, int together) {
    extern __shared__ uint4 span[];
    uint4* results = span + 2 * together * cols / LANES;
    const T* halves = reinterpret_cast<const T*>(span);
    const long long first = (long long)blockIdx.x * together;
    const int here = static_cast<int>(min(static_cast<long long>(together), rows - first));
    odd::arrive(x + 2 * first * cols, span, 2 * here * cols);
    __syncthreads();
    int r = threadIdx.x / cols, c = threadIdx.x % cols;
    const int down = 256 / cols, across = 256 % cols;
    for (int e = threadIdx.x; e < here * cols; e += 256) {
        const T* at = halves + 2 * r * cols + c;
        reinterpret_cast<T*>(results)[e] = store(value(load(at[0]), load(at[cols])));
        r += down, c += across;
        if (c >= cols) c -= cols, r++;
    }
    __syncthreads();
    odd::leave(y + first * cols, results, here * cols);
}
