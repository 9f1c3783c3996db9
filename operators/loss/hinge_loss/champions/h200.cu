/*! evo
[tune]
BLOCK = [256, 128, 512]
VECTORS = [2, 4, 1]                # per thread, all under way at once
WIDE = [4]                         # samples of a vector: 16 bytes of labels for each four
LOAD = [0, 1, 2]                   # plain; past L1 and 256 bytes at a time from DRAM; first to leave the caches
STORE = [0, 1]                     # plain; first to leave L2

[tune.bf16]
WIDE = [4, 8]                      # 8 bytes of each half in whole lines; 16, and labels by way of L1

[tune.fp16]
WIDE = [4, 8]

[let]
vectors = "n // WIDE"

[[launch]]                         # too little for all multiprocessors: spread over as many threads as there are vectors
kernel = "few"
when = "vectors <= sm_count * 2 * BLOCK * VECTORS"
grid = ["max(ceil_div(vectors, BLOCK), 1)"]
block = ["BLOCK"]
args = ["predicted", "target", "loss", "vectors", "n % WIDE"]

[[launch]]
kernel = "many"
when = "vectors > sm_count * 2 * BLOCK * VECTORS"
grid = ["ceil_div(vectors, BLOCK * VECTORS)"]
block = ["BLOCK"]
args = ["predicted", "target", "loss", "vectors", "n % WIDE"]
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int WORDS = WIDE * sizeof(T) / 4, PER_WORD = 4 / sizeof(T);  // of a vector; samples of a word
struct Labels { uint4 of[WIDE / 4]; };
struct alignas(4 * WORDS) Values { unsigned word[WORDS]; };
template <int> struct Bits;
template <> struct Bits<2> { using Type = uint2; };
template <> struct Bits<4> { using Type = uint4; };
using Vector = Bits<WORDS>::Type;

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
__device__ __forceinline__ uint2 fetched(const uint2* at) {
    if constexpr (LOAD == 1) {
        uint2 v;
        asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
        return v;
    } else if constexpr (LOAD == 2) {
        return __ldcs(at);
    } else {
        return *at;
    }
}
template <class V> __device__ __forceinline__ void put(V* at, V v) {
    if constexpr (STORE == 1) __stcs(at, v);
    else *at = v;
}

__device__ __forceinline__ Values values_at(const T* predicted, int vector) {
    const Vector bits = fetched(reinterpret_cast<const Vector*>(predicted) + vector);
    return reinterpret_cast<const Values&>(bits);
}
__device__ __forceinline__ Labels labels_at(const int* target, int vector) {
    Labels labels;
#pragma unroll
    for (int i = 0; i < WIDE / 4; i++)
        labels.of[i] = fetched(reinterpret_cast<const uint4*>(target) + static_cast<long long>(vector) * (WIDE / 4) + i);
    return labels;
}
__device__ __forceinline__ void put(T* loss, int vector, Values v) {
    put(reinterpret_cast<Vector*>(loss) + vector, reinterpret_cast<const Vector&>(v));
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

__device__ __forceinline__ float value(float predicted, unsigned label) {
    const float margin = label == 1 ? 1.0f - predicted : 1.0f + predicted;
    return margin < 0 ? 0.0f : margin;  // NaN stays
}
__device__ __forceinline__ Values values(Values v, const Labels& labels) {
    const T* type = nullptr;
    unsigned label[WIDE];
#pragma unroll
    for (int i = 0; i < WIDE / 4; i++) {
        label[4 * i] = labels.of[i].x, label[4 * i + 1] = labels.of[i].y;
        label[4 * i + 2] = labels.of[i].z, label[4 * i + 3] = labels.of[i].w;
    }
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        const float2 p = parted(v.word[w], type);
        v.word[w] = joined(value(p.x, label[w * PER_WORD]), value(p.y, label[w * PER_WORD + PER_WORD - 1]), type);
    }
    return v;
}

template <int DEEP>
__device__ __forceinline__ void hinge_loss(const T* predicted, const int* target, T* loss, int vectors, int rest) {
    const int begin = blockIdx.x * (BLOCK * DEEP), left = vectors - begin, first = begin + threadIdx.x;
    if (__builtin_expect(left >= BLOCK * DEEP, 1)) {
        Labels labels[DEEP];
        Values v[DEEP];
#pragma unroll
        for (int e = 0; e < DEEP; e++) labels[e] = labels_at(target, first + e * BLOCK);
#pragma unroll
        for (int e = 0; e < DEEP; e++) v[e] = values_at(predicted, first + e * BLOCK);
#pragma unroll
        for (int e = 0; e < DEEP; e++) put(loss, first + e * BLOCK, values(v[e], labels[e]));
    } else {  // the last block
#pragma unroll 1
        for (int e = 0; e < DEEP; e++)
            if (static_cast<int>(threadIdx.x) + e * BLOCK < left) {
                const int vector = first + e * BLOCK;
                const Labels labels = labels_at(target, vector);
                put(loss, vector, values(values_at(predicted, vector), labels));
            }
    }
    if (blockIdx.x == gridDim.x - 1 && static_cast<int>(threadIdx.x) < rest) {  // less than a vector behind it
        const long long i = static_cast<long long>(vectors) * WIDE + threadIdx.x;
        loss[i] = store(value(load(predicted[i]), target[i]));
    }
}
extern "C" __global__ void __launch_bounds__(BLOCK)
    few(const T* predicted, const int* target, T* loss, int vectors, int rest) {
    hinge_loss<1>(predicted, target, loss, vectors, rest);
}
extern "C" __global__ void __launch_bounds__(BLOCK)
    many(const T* predicted, const int* target, T* loss, int vectors, int rest) {
    hinge_loss<VECTORS>(predicted, target, loss, vectors, rest);
}
