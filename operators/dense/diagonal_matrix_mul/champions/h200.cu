/*! evo
[tune]                             # the first values are what torch's own kernels do
BLOCK = [128, 256, 512]
VECTORS = [2, 1, 4, 8]             # of 16 bytes a thread, all under way at once
LOAD = [0, 1, 2]                   # plain; past L1 and 256 bytes at a time from DRAM; first to leave the caches
STORE = [0, 1]                     # plain; first to leave L2

[tune.bf16]
VECTORS = [1, 2, 4]

[tune.fp16]
VECTORS = [1, 2, 4]

[let]
lanes = "16 // sizeof_T"

[[launch]]                         # no vector is of two rows
kernel = "diagonal_matrix_mul"
when = "cols % lanes == 0"
grid = ["ceil_div(rows * cols // lanes, BLOCK * VECTORS)"]
block = ["BLOCK"]
args = ["diagonal", "x", "y", "rows * cols // lanes", "cols // lanes"]

[[launch]]
kernel = "single"
when = "cols % lanes != 0"
grid = ["ceil_div(cols, BLOCK)", "min(rows, 65535)"]
block = ["BLOCK"]
args = ["diagonal", "x", "y", "rows", "cols"]
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

__device__ __forceinline__ float value(float x, float factor) {
    return factor * x;
}

__device__ __forceinline__ unsigned word(unsigned u, float factor) {
    const T* type = nullptr;
    const float2 v = parted(u, type);
    return joined(value(v.x, factor), sizeof(T) == 4 ? 0.0f : value(v.y, factor), type);
}
__device__ __forceinline__ uint4 values(uint4 v, float factor) {
    return make_uint4(word(v.x, factor), word(v.y, factor), word(v.z, factor), word(v.w, factor));
}

// Over all rows at once, so that blocks are full whatever a row's length; which row it is takes one division a vector.
extern "C" __global__ void __launch_bounds__(BLOCK) diagonal_matrix_mul(const T* __restrict__ diagonal, const T* x, T* y,
                                                                        int vectors, int in_row) {
    const unsigned begin = blockIdx.x * (BLOCK * VECTORS), at = begin + threadIdx.x;
    const int left = vectors - static_cast<int>(begin);
    const uint4* from = reinterpret_cast<const uint4*>(x) + at;
    uint4* to = reinterpret_cast<uint4*>(y) + at;
    if (__builtin_expect(left >= BLOCK * VECTORS, 1)) {
        uint4 v[VECTORS];
        float factor[VECTORS];
#pragma unroll
        for (int e = 0; e < VECTORS; e++) v[e] = fetched(from + e * BLOCK);
#pragma unroll
        for (int e = 0; e < VECTORS; e++) factor[e] = load(diagonal[(at + e * BLOCK) / static_cast<unsigned>(in_row)]);
#pragma unroll
        for (int e = 0; e < VECTORS; e++) put(to + e * BLOCK, values(v[e], factor[e]));
    } else {
#pragma unroll 1
        for (int e = 0; e < VECTORS; e++)
            if (static_cast<int>(threadIdx.x) + e * BLOCK < left) {
                const float factor = load(diagonal[(at + e * BLOCK) / static_cast<unsigned>(in_row)]);
                put(to + e * BLOCK, values(fetched(from + e * BLOCK), factor));
            }
    }
}
extern "C" __global__ void __launch_bounds__(BLOCK) single(const T* diagonal, const T* x, T* y, int rows, int cols) {
    const int c = blockIdx.x * BLOCK + threadIdx.x;
    if (c >= cols) return;
    for (long long r = blockIdx.y; r < rows; r += gridDim.y) y[r * cols + c] = store(load(diagonal[r]) * load(x[r * cols + c]));
}
