/*! evo
[tune]
VECTORS = [4, 2, 8]                # 16-byte vectors of a row per thread
EACH = [4, 2, 8]                   # short rows per thread
FEW = [4, 8, 0]                    # rows per multiprocessor of which the weight comes with the row
HELD = [2, 1, 4]                   # vectors of a row per thread
STAGES = [3, 2, 4]                 # rows of a block in shared memory
BUSY = [1024, 2048, 512]           # threads per multiprocessor, at most
LOAD = [0, 1, 2]                   # 1: past L1 and 256 bytes at a time from DRAM; 2: from where writes will go to
STORE = [0, 1]                     # 1: first to leave L2

[let]
whole = "cols % (16 // sizeof_T) == 0 and cols > 32 * (16 // sizeof_T)"
few = "whole and cols <= 4096 * VECTORS and (rows <= sm_count or rows <= FEW * sm_count and cols * sizeof_T <= 16384)"
threads = "32 * ceil_div(cols, 32 * HELD * (16 // sizeof_T))"
ring = "STAGES * 32 * HELD * threads"
steps = "512 * VECTORS // sizeof_T"        # a warp\'s elements of a row
large = "rows * cols * sizeof_T >= 67108864 and cols % steps == 0 and cols <= 8 * steps"
flow = "whole and not few and not large and rows > 4 * sm_count and threads <= 1024 and ring + 1280 <= 232448"
odd = "cols % (16 // sizeof_T) != 0"
odd_short = "odd and cols <= 512"      # several rows per block, in shared memory
odd_rows = "16 // sizeof_T * max(1, min(1024 // cols, ceil_div(rows, 16 // sizeof_T * 2 * sm_count)))"
odd_group = "min(32, next_pow2(ceil_div(cols, 4)))"
odd_vectors = "cols // (16 // sizeof_T) + 7"   # counted from the 128 bytes in which a row begins
odd_some = "256 * 4"           # vectors of a block
odd_most = "1024 * 4"                     # of a larger one
odd_least = "ceil_div(odd_vectors, odd_some if odd_vectors <= 8 * odd_some else odd_most)"
odd_parts = "next_pow2(max(odd_least, min(8, sm_count // (2 * rows), odd_vectors // 1024)))"

[[launch]]                         # a group of lanes per row
kernel = "short_rows"
when = "cols % (16 // sizeof_T) == 0 and cols <= 32 * (16 // sizeof_T)"
grid = ["ceil_div(rows, 256 // next_pow2(ceil_div(cols, 16 // sizeof_T)) * EACH)"]
block = [256]
args = ["x", "residual", "weight", "eps", "rows", "cols", "next_pow2(ceil_div(cols, 16 // sizeof_T))"]

[[launch]]                         # a block per row, which stays in registers
kernel = "few_rows"
when = "few"
grid = ["rows"]
block = ["32 * ceil_div(cols, 32 * VECTORS * (16 // sizeof_T))"]
args = ["x", "residual", "weight", "eps", "cols"]

[[launch]]                         # blocks that stay
kernel = "flow_rows"
when = "flow"
grid = ["min(rows, sm_count * max(1, min(BUSY // threads, 232448 // (ring + 1280))))"]
block = ["threads"]
shared = "ring"
args = ["x", "residual", "weight", "eps", "rows", "cols"]

[[launch]]                         # a block per row, which stays in registers
kernel = "long_rows"
when = "whole and not few and not large and not flow and cols <= 4096 * VECTORS"
grid = ["rows"]
block = ["32 * ceil_div(cols, 32 * VECTORS * (16 // sizeof_T))"]
args = ["x", "residual", "weight", "eps", "cols"]

[[launch]]                         # the same for large tensors, whose rows are whole blocks
kernel = "large_rows"
when = "large"
grid = ["rows"]
block = ["cols * sizeof_T // (16 * VECTORS)"]
args = ["x", "residual", "weight", "eps", "cols"]

[[launch]]                         # whatever else
kernel = "any_rows"
when = "cols > 4096 * VECTORS and not flow and (not odd or odd_vectors > 8 * odd_most)"
grid = ["rows"]
block = [256]
args = ["x", "residual", "weight", "eps", "cols"]

[[launch]]                         # short rows whose vectors are not aligned, several per block
kernel = "odd_short_rows<4>"
when = "odd_short and cols <= 128"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "2 * odd_rows * cols * sizeof_T"
args = ["x", "residual", "weight", "eps", "rows", "cols", "odd_rows", "odd_group"]

[[launch]]
kernel = "odd_short_rows<16>"
when = "odd_short and cols > 128"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "2 * odd_rows * cols * sizeof_T"
args = ["x", "residual", "weight", "eps", "rows", "cols", "odd_rows", "odd_group"]

[[launch]]                         # longer ones: up to 8 blocks per row, which stays in registers
kernel = "odd_long_rows"
when = "odd and not odd_short and odd_vectors <= 8 * odd_some"
grid = ["rows * odd_parts"]
block = ["32 * ceil_div(odd_vectors, 32 * 4 * odd_parts)"]
cluster = ["odd_parts"]
args = ["x", "residual", "weight", "eps", "cols", "odd_parts"]

[[launch]]                         # the same with larger blocks, where they are needed
kernel = "odd_longer_rows"
when = "odd and odd_vectors > 8 * odd_some and odd_vectors <= 8 * odd_most"
grid = ["rows * odd_parts"]
block = ["32 * ceil_div(odd_vectors, 32 * 4 * odd_parts)"]
cluster = ["odd_parts"]
args = ["x", "residual", "weight", "eps", "cols", "odd_parts"]
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Both rows are read once; the sum stays in registers, unrounded.
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

// A word is one float or two halves, which are converted together.
namespace whole {
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
constexpr int PARTS = LANES / 4;  // elements of a word
struct Elements { float v[LANES]; };
__device__ __forceinline__ Elements elements(uint4 in) {
    const unsigned words[4] = {in.x, in.y, in.z, in.w};
    const T* type = nullptr;
    Elements e;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float2 two = parted(words[k], type);
        e.v[k * PARTS] = two.x;
        if (PARTS == 2) e.v[k * PARTS + PARTS - 1] = two.y;
    }
    return e;
}
__device__ __forceinline__ uint4 vector(const Elements& e) {
    unsigned words[4];
    const T* type = nullptr;
#pragma unroll
    for (int k = 0; k < 4; k++) words[k] = joined(e.v[k * PARTS], e.v[k * PARTS + PARTS - 1], type);
    return make_uint4(words[0], words[1], words[2], words[3]);
}
}  // namespace whole

// A vector that is read once, and may be written afterwards.
__device__ __forceinline__ uint4 fetched(const T* from) {
    uint4 v;
    if constexpr (LOAD == 1)
        asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y),
            "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    else if constexpr (LOAD == 2)
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z),
            "=r"(v.w) : "l"(from) : "memory");
    else
        v = *reinterpret_cast<const uint4*>(from);
    return v;
}
__device__ __forceinline__ void put(T* to, uint4 v) {
    if constexpr (STORE == 1) __stcs(reinterpret_cast<uint4*>(to), v);
    else *reinterpret_cast<uint4*>(to) = v;
}

extern "C" __global__ void __launch_bounds__(256) short_rows(T* x, T* residual, const T* __restrict__ weight, ACC eps,
        int rows, int cols, int group) {
    const int c = threadIdx.x % group * LANES, at_once = 256 / group;
    const long long first = (long long)blockIdx.x * at_once * EACH + threadIdx.x / group;
    Vector w = {};
    if (c < cols) w = *reinterpret_cast<const Vector*>(weight + c);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const long long row = first + e * at_once;
        const bool mine = c < cols && row < rows;
        Vector a = {}, b = {};
        if (mine) {
            a = *reinterpret_cast<const Vector*>(x + row * cols + c);
            b = *reinterpret_cast<const Vector*>(residual + row * cols + c);
        }
        ACC v[LANES], squares = 0;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            v[l] = mine ? load(a.v[l]) + load(b.v[l]) : ACC(0);
            squares += v[l] * v[l];
        }
        const ACC scale = rsqrtf(over_group(squares, group) / cols + eps);
        if (mine) {
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                b.v[l] = store(v[l]);
                a.v[l] = store(load(w.v[l]) * (v[l] * scale));
            }
            *reinterpret_cast<Vector*>(residual + row * cols + c) = b;
            *reinterpret_cast<Vector*>(x + row * cols + c) = a;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256 * sizeof(T)) few_rows(T* x, T* residual, const T* weight, ACC eps,
        int cols) {
    __shared__ ACC partial[32];
    const long long start = (long long)blockIdx.x * cols;
    uint4 a[VECTORS], b[VECTORS], w[VECTORS];
    ACC v[VECTORS][LANES], squares = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        a[j] = b[j] = w[j] = make_uint4(0, 0, 0, 0);
        if (c < cols) {
            a[j] = *reinterpret_cast<const uint4*>(x + start + c);
            b[j] = *reinterpret_cast<const uint4*>(residual + start + c);
            w[j] = *reinterpret_cast<const uint4*>(weight + c);
        }
    }
    {  // blockIdx.y is zero, which the compiler does not know: it would put loads behind the first sums
        unsigned none = 0;
#pragma unroll
        for (int j = 0; j < VECTORS; j++) none |= a[j].x | b[j].x | w[j].x;
        none &= blockIdx.y;
#pragma unroll
        for (int j = 0; j < VECTORS; j++) a[j].x |= none, a[j].y |= none, a[j].z |= none, a[j].w |= none;
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            v[j][l] = load(reinterpret_cast<const Vector&>(a[j]).v[l]) +
                      load(reinterpret_cast<const Vector&>(b[j]).v[l]);
            squares += v[j][l] * v[j][l];
            out.v[l] = store(v[j][l]);
        }
        if (c < cols) *reinterpret_cast<Vector*>(residual + start + c) = out;
    }
    const ACC scale = rsqrtf(over_block(squares, partial) / cols + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        if (c < cols) {
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++)
                out.v[l] = store(load(reinterpret_cast<const Vector&>(w[j]).v[l]) * (v[j][l] * scale));
            *reinterpret_cast<Vector*>(x + start + c) = out;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256 * sizeof(T)) long_rows(T* x, T* residual, const T* __restrict__ weight,
        ACC eps, int cols) {
    __shared__ ACC partial[32];
    const long long start = (long long)blockIdx.x * cols;
    Vector a[VECTORS], b[VECTORS];
    ACC v[VECTORS][LANES], squares = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        a[j] = b[j] = Vector{};
        if (c < cols) {
            a[j] = *reinterpret_cast<const Vector*>(x + start + c);
            b[j] = *reinterpret_cast<const Vector*>(residual + start + c);
        }
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            v[j][l] = c < cols ? load(a[j].v[l]) + load(b[j].v[l]) : ACC(0);
            squares += v[j][l] * v[j][l];
            out.v[l] = store(v[j][l]);
        }
        if (c < cols) *reinterpret_cast<Vector*>(residual + start + c) = out;
    }
    const ACC scale = rsqrtf(over_block(squares, partial) / cols + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        if (c < cols) {
            const Vector w = *reinterpret_cast<const Vector*>(weight + c);
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(load(w.v[l]) * (v[j][l] * scale));
            *reinterpret_cast<Vector*>(x + start + c) = out;
        }
    }
}

// A block per row again, but what it reads is the last to leave the caches: among the ways that were measured of
// tensors of 64 MiB this was the fastest, 2 to 3 % before plain loads.
__device__ __forceinline__ uint4 kept(const T* from) {
    unsigned long long policy;
    uint4 v;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from), "l"(policy) : "memory");
    return v;
}

extern "C" __global__ void __launch_bounds__(256, 1) large_rows(T* x, T* residual, const T* __restrict__ weight,
        ACC eps, int cols) {
    __shared__ ACC partial[32];
    const int first = threadIdx.x * LANES, apart = blockDim.x * LANES;
    const long long start = (long long)blockIdx.x * cols + first;
    uint4 a[VECTORS], b[VECTORS];
#pragma unroll
    for (int j = 0; j < VECTORS; j++) a[j] = kept(x + start + j * apart), b[j] = kept(residual + start + j * apart);
    whole::Elements s[VECTORS];
    ACC squares = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const whole::Elements one = whole::elements(a[j]), other = whole::elements(b[j]);
#pragma unroll
        for (int l = 0; l < LANES; l++) s[j].v[l] = one.v[l] + other.v[l], squares += s[j].v[l] * s[j].v[l];
        *reinterpret_cast<uint4*>(residual + start + j * apart) = whole::vector(s[j]);
    }
    const ACC scale = rsqrtf(over_block(squares, partial) / cols + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const whole::Elements by = whole::elements(*reinterpret_cast<const uint4*>(weight + first + j * apart));
#pragma unroll
        for (int l = 0; l < LANES; l++) s[j].v[l] = by.v[l] * (s[j].v[l] * scale);
        *reinterpret_cast<uint4*>(x + start + j * apart) = whole::vector(s[j]);
    }
}

// A block stays, and has every so manyth row: the next ones are on their way into shared memory, a thread's vectors in
// places that no other thread reads, while one is added up. The weight stays in registers.
extern "C" __global__ void __launch_bounds__(1024) flow_rows(T* x, T* residual, const T* __restrict__ weight, ACC eps,
        int rows, int cols) {
    extern __shared__ uint4 stages[];
    __shared__ ACC partial[2][32];
    const int t = threadIdx.x, threads = blockDim.x;
    const auto bring = [&](int place, const T* from) {
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(stages + place));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    };
    const auto begin = [&](int row, int stage) {  // a group of copies per row, an empty one behind the last
        if (row < rows) {
            const long long start = (long long)row * cols;
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                const int c = (j * threads + t) * LANES;
                if (c < cols) {
                    bring((stage * 2 * HELD + j) * threads + t, x + start + c);
                    bring((stage * 2 * HELD + HELD + j) * threads + t, residual + start + c);
                }
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) begin(blockIdx.x + s * gridDim.x, s);
    uint4 w[HELD];
#pragma unroll
    for (int j = 0; j < HELD; j++) {
        const int c = (j * threads + t) * LANES;
        w[j] = make_uint4(0, 0, 0, 0);
        if (c < cols) w[j] = *reinterpret_cast<const uint4*>(weight + c);
    }
    const ACC part = ACC(1) / cols;
    int stage = 0, turn = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        const int freed = stage == 0 ? STAGES - 1 : stage - 1;
        begin(row + (STAGES - 1) * gridDim.x, freed);
        const long long start = (long long)row * cols;
        whole::Elements s[HELD];
        ACC squares = 0;
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            const int c = (j * threads + t) * LANES;
            s[j] = whole::Elements{};
            if (c < cols) {
                const whole::Elements one = whole::elements(stages[(stage * 2 * HELD + j) * threads + t]);
                const whole::Elements other = whole::elements(stages[(stage * 2 * HELD + HELD + j) * threads + t]);
#pragma unroll
                for (int l = 0; l < LANES; l++) s[j].v[l] = one.v[l] + other.v[l], squares += s[j].v[l] * s[j].v[l];
                put(residual + start + c, whole::vector(s[j]));
            }
        }
        const ACC scale = rsqrtf(over_block(squares, partial[turn]) * part + eps);
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            const int c = (j * threads + t) * LANES;
            if (c < cols) {
                const whole::Elements by = whole::elements(w[j]);
#pragma unroll
                for (int l = 0; l < LANES; l++) s[j].v[l] = by.v[l] * (s[j].v[l] * scale);
                put(x + start + c, whole::vector(s[j]));
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1, turn ^= 1;
    }
}

// A sum is made twice where it does not fit: x is overwritten only after everybody has read what it needs of it.
extern "C" __global__ void __launch_bounds__(256) any_rows(T* x, T* residual, const T* __restrict__ weight, ACC eps,
        int cols) {
    __shared__ ACC partial[32];
    const long long start = (long long)blockIdx.x * cols;
    ACC squares = 0;
    for (int c = threadIdx.x; c < cols; c += 256) {
        const ACC s = load(x[start + c]) + load(residual[start + c]);
        squares += s * s;
    }
    const ACC scale = rsqrtf(over_block(squares, partial) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += 256) {
        const ACC s = load(x[start + c]) + load(residual[start + c]);
        residual[start + c] = store(s);
        x[start + c] = store(load(weight[c]) * (s * scale));
    }
}

// Rows whose length is no whole number of vectors. Short ones pass through shared memory, several per block, whose
// first begins at a vector's boundary. Longer ones are read and written as aligned vectors, and a few elements before
// and behind these one by one; a row stays in the registers of up to 8 blocks.
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
    __device__ __forceinline__ bool has(int i) const {
        return static_cast<unsigned>(i) < static_cast<unsigned>(vectors);
    }
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

// The sum over a row's threads, in round 0 or 1.
__device__ __forceinline__ float over_row(float value, int parts, int rank, int round) {
    __shared__ float of_warps[2][32], of_parts[2][8];
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    value = sum_of_group(value, 32);
    if (warps > 1) {
        if (lane == 0) of_warps[round][threadIdx.x / 32] = value;
        __syncthreads();
        if (parts == 1 || threadIdx.x < 32) value = sum_of_group(lane < warps ? of_warps[round][lane] : 0.0f, 32);
    }
    if (parts > 1) {
        if (round == 0) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        if (static_cast<int>(threadIdx.x) < parts)
            *cooperative_groups::this_cluster().map_shared_rank(&of_parts[round][0] + rank, threadIdx.x) = value;
        asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
        value = sum_of_group(lane < parts ? of_parts[round][lane] : 0.0f, 32);
    }
    return value;
}

// The vector that begins `elements` behind the first of two.
__device__ __forceinline__ uint4 shifted(uint4 a, uint4 b, int elements) {
    if constexpr (LANES == 8) {
        const unsigned by = elements % 2 * 16;
        unsigned u0 = __funnelshift_r(a.x, a.y, by), u1 = __funnelshift_r(a.y, a.z, by),
            u2 = __funnelshift_r(a.z, a.w, by);
        unsigned u3 = __funnelshift_r(a.w, b.x, by), u4 = __funnelshift_r(b.x, b.y, by),
            u5 = __funnelshift_r(b.y, b.z, by);
        unsigned u6 = __funnelshift_r(b.z, b.w, by);
        elements /= 2;
        if (elements & 1) u0 = u1, u1 = u2, u2 = u3, u3 = u4, u4 = u5, u5 = u6;
        return elements & 2 ? make_uint4(u2, u3, u4, u5) : make_uint4(u0, u1, u2, u3);
    } else {
        if (elements & 1) a.x = a.y, a.y = a.z, a.z = a.w, a.w = b.x, b.x = b.y, b.y = b.z;
        return elements & 2 ? make_uint4(a.z, a.w, b.x, b.y) : a;
    }
}
// The vector i of what begins `head` behind `from` is cut out of these.
struct Pair { uint4 a, b; };
__device__ __forceinline__ Pair pair(const T* from, int i, int head) {
    const uint4* at = reinterpret_cast<const uint4*>(from) + i;
    return {__ldg(at), __ldg(at + (head ? 1 : 0))};
}

__device__ __forceinline__ float2 sum_of(unsigned u, unsigned w) {
    const float2 a = parted(u, TYPE), b = parted(w, TYPE);
    return make_float2(a.x + b.x, a.y + b.y);
}
__device__ __forceinline__ float squares_of(unsigned u, unsigned w) {
    const float2 v = sum_of(u, w);
    return sizeof(T) == 4 ? v.x * v.x : v.x * v.x + v.y * v.y;
}
__device__ __forceinline__ unsigned rounded(unsigned u, unsigned w) {
    const float2 v = sum_of(u, w);
    return packed(v.x, v.y, TYPE);
}
__device__ __forceinline__ unsigned result(unsigned u, unsigned w, unsigned p, float scale) {
    const float2 v = sum_of(u, w), q = parted(p, TYPE);
    return packed(q.x * (v.x * scale), q.y * (v.y * scale), TYPE);
}

template <int DEEP, int AT_ONCE>
__device__ __forceinline__ void in_registers(T* x, T* residual, const T* __restrict__ weight, float eps, int cols,
        int parts) {
    if (parts > 1) begun();
    const int rank = blockIdx.x & (parts - 1);
    const Row row(blockIdx.x / parts, cols);
    const int first = rank * (DEEP * blockDim.x) + threadIdx.x - row.shift, edge = row.edge(rank);
    uint4 *to_x = row.out(x), *to_residual = row.out(residual);
    uint4 a[DEEP], b[DEEP];
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        const int i = first + j * static_cast<int>(blockDim.x);
        a[j] = b[j] = make_uint4(0, 0, 0, 0);
        if (row.has(i)) a[j] = to_x[i], b[j] = to_residual[i];
    }
    const float extra = edge < 0 ? 0.0f : load(x[row.start + edge]) + load(residual[row.start + edge]);
    const float w_extra = edge < 0 ? 0.0f : load(weight[edge]);
    float squares = extra * extra;
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        const int i = first + j * static_cast<int>(blockDim.x);
        if (row.has(i))
            to_residual[i] = make_uint4(rounded(a[j].x, b[j].x), rounded(a[j].y, b[j].y), rounded(a[j].z, b[j].z),
                                        rounded(a[j].w, b[j].w));
        squares += (squares_of(a[j].x, b[j].x) + squares_of(a[j].y, b[j].y)) +
                   (squares_of(a[j].z, b[j].z) + squares_of(a[j].w, b[j].w));
    }
    if (edge >= 0) residual[row.start + edge] = store(extra);
    const float scale = rsqrtf(over_row(squares, parts, rank, 0) / cols + eps);
    keep_packed(a, parts), keep_packed(b, parts);
#pragma unroll
    for (int k = 0; k < DEEP; k += AT_ONCE) {
        Pair w[AT_ONCE];
#pragma unroll
        for (int j = k; j < k + AT_ONCE; j++) {
            const int i = first + j * static_cast<int>(blockDim.x);
            if (row.has(i)) w[j - k] = pair(weight, i, row.head);
        }
#pragma unroll
        for (int j = k; j < k + AT_ONCE; j++) {
            const int i = first + j * static_cast<int>(blockDim.x);
            if (row.has(i)) {
                const uint4 p = shifted(w[j - k].a, w[j - k].b, row.head);
                to_x[i] = make_uint4(result(a[j].x, b[j].x, p.x, scale), result(a[j].y, b[j].y, p.y, scale),
                                     result(a[j].z, b[j].z, p.z, scale), result(a[j].w, b[j].w, p.w, scale));
            }
        }
    }
    if (edge >= 0) x[row.start + edge] = store(w_extra * (extra * scale));
}
}  // namespace odd

extern "C" __global__ void __launch_bounds__(256, 3)
    odd_long_rows(T* x, T* residual, const T* __restrict__ weight, ACC eps, int cols, int parts) {
    odd::in_registers<4, 2>(x, residual, weight, eps, cols, parts);
}
extern "C" __global__ void __launch_bounds__(1024)
    odd_longer_rows(T* x, T* residual, const T* __restrict__ weight, ACC eps, int cols, int parts) {
    odd::in_registers<4, 1>(x, residual, weight, eps, cols, parts);
}

// A group of lanes has a row in shared memory, a lane every so manieth element of it.
template <int EACH_LANE>
__global__ void __launch_bounds__(256, 4) odd_short_rows(T* x, T* residual, const T* __restrict__ weight, ACC eps,
        int rows, int cols, int together, int group) {
    using namespace odd;
    extern __shared__ uint4 span[];
    uint4* others = span + together * cols / LANES;
    T *of_x = reinterpret_cast<T*>(span), *of_residual = reinterpret_cast<T*>(others);
    const long long first = (long long)blockIdx.x * together;
    const int here = static_cast<int>(min(static_cast<long long>(together), rows - first)), lane = threadIdx.x % group;
    arrive(x + first * cols, span, here * cols);
    arrive(residual + first * cols, others, here * cols);
    constexpr int HAD = EACH_LANE <= 4 ? EACH_LANE : 0;  // of the weight from the beginning
    float w[HAD + 1];
#pragma unroll
    for (int e = 0; e < HAD; e++) w[e] = lane + e * group < cols ? load(weight[lane + e * group]) : 0.0f;
    __syncthreads();
    for (int top = 0; top < here; top += 256 / group) {
        const int row = top + threadIdx.x / group;
        float v[EACH_LANE], squares = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            v[e] = 0.0f;
            if (row < here && c < cols) {
                v[e] = load(of_x[row * cols + c]) + load(of_residual[row * cols + c]);
                of_residual[row * cols + c] = store(v[e]);
            }
            squares += v[e] * v[e];
        }
        const float scale = rsqrtf(sum_of_group(squares, group) / cols + eps);
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            if (row < here && c < cols)
                of_x[row * cols + c] = store((HAD ? w[e % (HAD + 1)] : load(weight[c])) * (v[e] * scale));
        }
    }
    __syncthreads();
    leave(residual + first * cols, others, here * cols);
    leave(x + first * cols, span, here * cols);
}
