/*! evo
[tune]
EACH = [2, 1, 4]                   # vectors that a thread writes
THREADS = [128, 256, 512]          # of a block
LOAD = [0, 2]                      # 2: first to leave the caches
STORE = [0, 1]                     # 1: first to leave L2
BLOCK = [128, 256]                 # odd lengths: threads
VECTORS = [2, 1, 4]                # and vectors of a thread

[let]
lanes = "16 // sizeof_T"

[[launch]]                         # a vector read is one to be written
kernel = "reverse_array"
when = "n % lanes == 0"
grid = ["ceil_div(n // lanes, THREADS * EACH)"]
block = ["THREADS"]
args = ["x", "y", "n // lanes"]

[[launch]]
kernel = "odd_array"
when = "n % lanes != 0"
grid = ["ceil_div(max(1, n // lanes), BLOCK * VECTORS)"]
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

// A thread reads 4 bytes at a time, and writes four of these as a vector: the first load of a warp brings what all four want.
extern "C" __global__ void __launch_bounds__(THREADS) reverse_array(const T* x, T* y, int vectors) {
    const int begin = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    const unsigned* from = reinterpret_cast<const unsigned*>(x) + (4LL * vectors - 1);
    unsigned v[EACH][4];
#pragma unroll
    for (int e = 0; e < EACH; e++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (begin + e * THREADS < vectors) v[e][k] = from[-4LL * (begin + e * THREADS) - k];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (begin + e * THREADS < vectors)
            reinterpret_cast<uint4*>(y)[begin + e * THREADS] = make_uint4(turned(v[e][0]), turned(v[e][1]), turned(v[e][2]), turned(v[e][3]));
}

// Where n is no whole number of vectors, one to be written is cut out of two aligned ones, the second from the L1 cache. The
// first vector, whose elements are the last ones, and those behind all vectors are written one by one.
namespace odd {
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

extern "C" __global__ void __launch_bounds__(BLOCK) odd_array(const T* __restrict__ x, T* __restrict__ y, int n) {
    const int vectors = n / LANES, shift = n % LANES, t = threadIdx.x, first = blockIdx.x * (BLOCK * VECTORS) + t;
    const uint4* from = reinterpret_cast<const uint4*>(x) + (vectors - 1);
    uint4 a[VECTORS], b[VECTORS];
#pragma unroll
    for (int e = 0; e < VECTORS; e++) {
        const int i = first + e * BLOCK;
        if (i > 0 && i < vectors) a[e] = __ldg(from - i), b[e] = __ldg(from - i + 1);
    }
#pragma unroll
    for (int e = 0; e < VECTORS; e++) {
        const int i = first + e * BLOCK;
        if (i > 0 && i < vectors) put(reinterpret_cast<uint4*>(y) + i, turned(odd::shifted(a[e], b[e], shift)));
    }
    if (blockIdx.x == 0 && t < 2 * LANES) {
        const int i = t < LANES ? t : vectors * LANES + t - LANES;
        if (i < n && (t >= LANES || vectors > 0)) y[i] = x[n - 1 - i];
    }
}
