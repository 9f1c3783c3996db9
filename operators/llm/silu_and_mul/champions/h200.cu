/*! evo
[tune]                             # the first values are what torch's own kernels do
BLOCK = [128, 256, 512]
VECTORS = [2, 1, 4, 8]             # of 16 bytes a thread, all under way at once
LOAD = [0, 1, 2]                   # plain; past L1 and 256 bytes at a time from DRAM; first to leave the caches
STORE = [0, 1]                     # plain; first to leave L2
LITTLE = [1048576, 262144, 0]      # results of which a thread has four

[tune.bf16]
VECTORS = [1, 2, 4]

[tune.fp16]
VECTORS = [1, 2, 4]

[let]
lanes = "16 // sizeof_T"
# Where the launch is most of the time, little code that is straight: it comes from DRAM as the data does.
little = "cols % 4 == 0 and rows <= 65535 and rows * cols <= LITTLE"

[[launch]]
kernel = "four"
when = "little"
grid = ["ceil_div(cols, 512)", "rows"]
block = [128]
args = ["x", "y", "cols // 4"]

[[launch]]                         # both halves of every row begin at a vector's boundary
kernel = "silu_and_mul"
when = "cols % lanes == 0 and not little"
grid = ["ceil_div(cols // lanes, BLOCK * VECTORS)", "min(rows, 65535)"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols // lanes"]

[[launch]]
kernel = "single"
when = "cols % lanes != 0 and not little"
grid = ["ceil_div(cols, BLOCK)", "min(rows, 65535)"]
block = ["BLOCK"]
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

struct alignas(4 * sizeof(T)) Four { unsigned w[sizeof(T)]; };
extern "C" __global__ void __launch_bounds__(128) four(const T* x, T* y, int fours) {
    const int i = blockIdx.x * 128 + threadIdx.x, row = blockIdx.y * fours;
    if (i >= fours) return;
    const Four a = reinterpret_cast<const Four*>(x)[2 * row + i], b = reinterpret_cast<const Four*>(x)[2 * row + fours + i];
    Four found;
#pragma unroll
    for (int e = 0; e < sizeof(T); e++) found.w[e] = word(a.w[e], b.w[e]);
    reinterpret_cast<Four*>(y)[row + i] = found;
}

// A block takes a part of one row; `vectors` are those of half a row.
extern "C" __global__ void __launch_bounds__(BLOCK) silu_and_mul(const T* x, T* y, int rows, int vectors) {
    const int begin = blockIdx.x * (BLOCK * VECTORS), left = vectors - begin;
    for (int r = blockIdx.y; r < rows; r += gridDim.y) {
        const uint4* gates = reinterpret_cast<const uint4*>(x) + 2LL * r * vectors + (begin + threadIdx.x);
        const uint4* others = gates + vectors;
        uint4* to = reinterpret_cast<uint4*>(y) + static_cast<long long>(r) * vectors + (begin + threadIdx.x);
        if (__builtin_expect(left >= BLOCK * VECTORS, 1)) {
            uint4 a[VECTORS], b[VECTORS];
#pragma unroll
            for (int e = 0; e < VECTORS; e++) a[e] = fetched(gates + e * BLOCK);
#pragma unroll
            for (int e = 0; e < VECTORS; e++) b[e] = fetched(others + e * BLOCK);
#pragma unroll
            for (int e = 0; e < VECTORS; e++) put(to + e * BLOCK, values(a[e], b[e]));
        } else {
#pragma unroll 1
            for (int e = 0; e < VECTORS; e++)
                if (static_cast<int>(threadIdx.x) + e * BLOCK < left)
                    put(to + e * BLOCK, values(fetched(gates + e * BLOCK), fetched(others + e * BLOCK)));
        }
    }
}
extern "C" __global__ void __launch_bounds__(BLOCK) single(const T* x, T* y, int rows, int cols) {
    const int c = blockIdx.x * BLOCK + threadIdx.x;
    if (c >= cols) return;
    for (long long r = blockIdx.y; r < rows; r += gridDim.y)
        y[r * cols + c] = store(value(load(x[2 * r * cols + c]), load(x[(2 * r + 1) * cols + c])));
}
