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

[[launch]]                         # a vector read is one to be written
kernel = "reverse_array"
when = "n % lanes == 0"
grid = ["ceil_div(n // lanes, BLOCK * VECTORS)"]
block = ["BLOCK"]
args = ["x", "y", "n // lanes"]

[[launch]]
kernel = "single"
when = "n % lanes != 0"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "n"]
*/
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

__device__ __forceinline__ unsigned turned(unsigned u) { return sizeof(T) == 4 ? u : u << 16 | u >> 16; }
__device__ __forceinline__ uint4 turned(uint4 v) {
    return make_uint4(turned(v.w), turned(v.z), turned(v.y), turned(v.x));
}

extern "C" __global__ void __launch_bounds__(BLOCK) reverse_array(const T* x, T* y, int vectors) {
    const int begin = blockIdx.x * (BLOCK * VECTORS), left = vectors - begin;
    const uint4* from = reinterpret_cast<const uint4*>(x) + (left - 1 - static_cast<int>(threadIdx.x));
    uint4* to = reinterpret_cast<uint4*>(y) + (begin + threadIdx.x);
    if (__builtin_expect(left >= BLOCK * VECTORS, 1)) {
        uint4 v[VECTORS];
#pragma unroll
        for (int e = 0; e < VECTORS; e++) v[e] = fetched(from - e * BLOCK);
#pragma unroll
        for (int e = 0; e < VECTORS; e++) put(to + e * BLOCK, turned(v[e]));
    } else {
#pragma unroll 1
        for (int e = 0; e < VECTORS; e++)
            if (static_cast<int>(threadIdx.x) + e * BLOCK < left) put(to + e * BLOCK, turned(fetched(from - e * BLOCK)));
    }
}
extern "C" __global__ void __launch_bounds__(BLOCK) single(const T* x, T* y, int n) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = x[n - 1 - i];
}
