/*! evo
[tune]
VECTORS = [2, 4, 8]                # 16-byte vectors of a row per thread
GROUP = [8, 4, 16]                 # lanes that share a short row
IN_FLIGHT = [8, 4, 16]             # vectors of short rows per thread
BLOCK = [128, 256]                 # threads, for short rows
WAVES = [64, 4, 8, 16]             # blocks per multiprocessor that short rows are dealt to, at most
STREAM = [0, 1]                    # 1: results, and short rows, are not to stay in caches
PER = [2, 1, 4]                    # vectors of a thread, where a block has a short row alone
ROUNDS = [8, 1]                    # unrolled rounds of its reduction: 1 is less code to be fetched
WARP_ROWS = [2, 4, 8, 0]           # rows of a warp whose lanes have a vector of each; 0: groups of lanes have them
FIRST = [0, 1]                     # 1: rows are first to leave the caches
ONCE = [1, 0]                      # 1: mean and variance of long rows in one round
EARLY = [0, 1]                     # 1: weight and bias of long rows come before the sums
KEPT = [4, 2]                   # vectors of a row per thread, where blocks stay
STAGES = [3, 2, 4]                 # rows of these in shared memory
BUSY = [1024, 2048, 512]           # their threads per multiprocessor, at most
CROWD = [8, 6, 4]                  # blocks of warps that have short rows, per multiprocessor, at least
where = ["IN_FLIGHT * GROUP >= 32"]
[tune.bf16]
IN_FLIGHT = [4, 8, 16]
WARP_ROWS = [0, 4, 8]

[let]
odd = "cols % (16 // sizeof_T) != 0"
odd_short = "odd and cols <= 512"      # several rows per block, in shared memory
odd_rows = "16 // sizeof_T * max(1, min(1024 // cols, ceil_div(rows, 16 // sizeof_T * 2 * sm_count)))"
odd_group = "min(32, next_pow2(ceil_div(cols, 4)))"
odd_vectors = "cols // (16 // sizeof_T) + 7"   # counted from the 128 bytes in which a row begins
odd_some = "256 * 4"           # vectors of a block
odd_most = "1024 * 4"                     # of a larger one
odd_parts = "next_pow2(max(ceil_div(odd_vectors, odd_some if odd_vectors <= 8 * odd_some else odd_most), min(8, sm_count // (2 * rows), odd_vectors // 1024)))"
vectors = "ceil_div(cols, GROUP * (16 // sizeof_T))"   # of a short row per lane
alone = "rows <= sm_count and (cols == 64 or cols == 128 or cols == 256 or cols == 512 or cols == 1024)"
warped = "not alone and WARP_ROWS > 0 and cols % (16 // sizeof_T) == 0 and cols > 16 * (16 // sizeof_T) and cols <= 32 * (16 // sizeof_T)"
narrow = "not alone and not warped and cols % (16 // sizeof_T) == 0 and cols <= 32 * (16 // sizeof_T)"
wide = "not alone and cols % (16 // sizeof_T) == 0 and cols > 32 * (16 // sizeof_T) and cols <= 4096 * VECTORS"
at_once = "BLOCK // GROUP * IN_FLIGHT"
threads = "32 * ceil_div(cols, 32 * KEPT * (16 // sizeof_T))"
ring = "STAGES * 16 * KEPT * threads"
flow = "not alone and cols % (16 // sizeof_T) == 0 and cols > 32 * (16 // sizeof_T) and rows > 4 * sm_count and threads <= 1024 and ring + 1536 <= 232448"

[[launch]]
kernel = "one_row<64>"
when = "alone and cols == 64"
grid = ["rows"]
block = ["max(32, 64 * sizeof_T // (16 * PER))"]
args = ["x", "weight", "bias", "y", "eps"]

[[launch]]
kernel = "one_row<128>"
when = "alone and cols == 128"
grid = ["rows"]
block = ["max(32, 128 * sizeof_T // (16 * PER))"]
args = ["x", "weight", "bias", "y", "eps"]

[[launch]]
kernel = "one_row<256>"
when = "alone and cols == 256"
grid = ["rows"]
block = ["max(32, 256 * sizeof_T // (16 * PER))"]
args = ["x", "weight", "bias", "y", "eps"]

[[launch]]
kernel = "one_row<512>"
when = "alone and cols == 512"
grid = ["rows"]
block = ["max(32, 512 * sizeof_T // (16 * PER))"]
args = ["x", "weight", "bias", "y", "eps"]

[[launch]]
kernel = "one_row<1024>"
when = "alone and cols == 1024"
grid = ["rows"]
block = ["max(32, 1024 * sizeof_T // (16 * PER))"]
args = ["x", "weight", "bias", "y", "eps"]

[[launch]]                         # a warp has several rows
kernel = "warp_rows"
when = "warped"
grid = ["ceil_div(rows, 8 * max(1, WARP_ROWS))"]
block = [256]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # a group of lanes per row
kernel = "short_rows<1>"
when = "narrow and vectors == 1"
grid = ["min(ceil_div(rows, at_once // 1), sm_count * WAVES)"]
block = ["BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # a group of lanes per row
kernel = "short_rows<2>"
when = "narrow and vectors == 2"
grid = ["min(ceil_div(rows, at_once // 2), sm_count * WAVES)"]
block = ["BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # a group of lanes per row
kernel = "short_rows<4>"
when = "narrow and (vectors == 3 or vectors == 4)"
grid = ["min(ceil_div(rows, at_once // 4), sm_count * WAVES)"]
block = ["BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # a group of lanes per row
kernel = "short_rows<8>"
when = "narrow and vectors > 4"
grid = ["min(ceil_div(rows, at_once // 8), sm_count * WAVES)"]
block = ["BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # blocks that stay
kernel = "flow_rows"
when = "flow"
grid = ["min(rows, sm_count * max(1, min(BUSY // threads, 232448 // (ring + 1536))))"]
block = ["threads"]
shared = "ring"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # a block per row, which stays in registers
kernel = "long_rows"
when = "wide and not flow"
grid = ["rows"]
block = ["32 * ceil_div(cols, 32 * VECTORS * (16 // sizeof_T))"]
args = ["x", "weight", "bias", "y", "eps", "cols"]

[[launch]]                         # whatever else
kernel = "any_rows"
when = "not alone and cols > 4096 * VECTORS and not flow and (not odd or odd_vectors > 8 * odd_most)"
grid = ["rows"]
block = [256]
args = ["x", "weight", "bias", "y", "eps", "cols"]

[[launch]]                         # short rows whose vectors are not aligned, several per block
kernel = "odd_short_rows<4>"
when = "odd_short and cols <= 128"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "odd_rows * cols * sizeof_T"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols", "odd_rows", "odd_group"]

[[launch]]
kernel = "odd_short_rows<16>"
when = "odd_short and cols > 128"
grid = ["ceil_div(rows, odd_rows)"]
block = [256]
shared = "odd_rows * cols * sizeof_T"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols", "odd_rows", "odd_group"]

[[launch]]                         # longer ones: up to 8 blocks per row, which stays in registers
kernel = "odd_long_rows"
when = "odd and not odd_short and odd_vectors <= 8 * odd_some"
grid = ["rows * odd_parts"]
block = ["32 * ceil_div(odd_vectors, 32 * 4 * odd_parts)"]
cluster = ["odd_parts"]
args = ["x", "weight", "bias", "y", "eps", "cols", "odd_parts"]

[[launch]]                         # the same with larger blocks, where they are needed
kernel = "odd_longer_rows"
when = "odd and odd_vectors > 8 * odd_some and odd_vectors <= 8 * odd_most"
grid = ["rows * odd_parts"]
block = ["32 * ceil_div(odd_vectors, 32 * 4 * odd_parts)"]
cluster = ["odd_parts"]
args = ["x", "weight", "bias", "y", "eps", "cols", "odd_parts"]
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// A row is read once, into registers, and written once.
constexpr int LANES = 16 / sizeof(T);
struct alignas(16) Vector { T v[LANES]; };

__device__ __forceinline__ void put(T* to, const Vector& v) {
    if constexpr (STREAM) __stcs(reinterpret_cast<float4*>(to), reinterpret_cast<const float4&>(v));
    else *reinterpret_cast<Vector*>(to) = v;
}

__device__ __forceinline__ ACC over_group(ACC value) {
#pragma unroll
    for (int offset = GROUP / 2; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
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

__device__ __forceinline__ Vector fetched(const T* from) {
    if constexpr (FIRST) {
        const float4 bits = __ldcs(reinterpret_cast<const float4*>(from));
        return reinterpret_cast<const Vector&>(bits);
    } else {
        return *reinterpret_cast<const Vector*>(from);
    }
}

// Sum and squared deviations from the mean of some elements.
struct Moments { ACC sum, squares; };
// Of as many more: `part` is one over the number of both.
__device__ __forceinline__ Moments joined(Moments a, Moments b, ACC part) {
    const ACC apart = a.sum - b.sum;
    return {a.sum + b.sum, a.squares + b.squares + apart * apart * part};
}
template <int V> __device__ __forceinline__ Moments moments_of(const Vector (&in)[V]) {
    Moments m = {0, 0};
#pragma unroll
    for (int j = 0; j < V; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) m.sum += load(in[j].v[l]);
    const ACC mean = m.sum * (ACC(1) / (V * LANES));
#pragma unroll
    for (int j = 0; j < V; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            const ACC deviation = load(in[j].v[l]) - mean;
            m.squares += deviation * deviation;
        }
    return m;
}
// Of GROUP lanes that have EACH elements.
template <int GROUP, int EACH> __device__ __forceinline__ Moments over_lanes(Moments m) {
    ACC part = ACC(1) / (2 * EACH);
#pragma unroll ROUNDS
    for (int offset = 1; offset < GROUP; offset *= 2) {
        m = joined(m, {__shfl_xor_sync(0xffffffffu, m.sum, offset), __shfl_xor_sync(0xffffffffu, m.squares, offset)}, part);
        part *= ACC(0.5);
    }
    return m;
}

// A row of few, whose length is a constant: three loads, one round of sums, and little code, which has to be fetched, too.
template <int COLS>
__global__ void __launch_bounds__(COLS / (LANES * PER) > 32 ? COLS / (LANES * PER) : 32, 1) one_row(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps) {
    constexpr int GROUP = COLS / (LANES * PER), WARPS = GROUP > 32 ? GROUP / 32 : 1;
    const int c = threadIdx.x % GROUP * LANES, at = blockIdx.x * COLS + c;  // what is beyond a short row repeats it
    Vector in[PER], w[PER], b[PER];
#pragma unroll
    for (int j = 0; j < PER; j++) in[j] = *reinterpret_cast<const Vector*>(x + at + j * GROUP * LANES);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        w[j] = *reinterpret_cast<const Vector*>(weight + c + j * GROUP * LANES);
        b[j] = *reinterpret_cast<const Vector*>(bias + c + j * GROUP * LANES);
    }
    if constexpr (WARPS > 1) {  // blockIdx.y is zero, which the compiler does not know: it would put loads behind the sums
        unsigned none = 0;
#pragma unroll
        for (int j = 0; j < PER; j++) none |= reinterpret_cast<const uint4&>(w[j]).x | reinterpret_cast<const uint4&>(b[j]).x;
        none &= blockIdx.y;
#pragma unroll
        for (int j = 0; j < PER; j++) {
            uint4& bits = reinterpret_cast<uint4&>(in[j]);
            bits.x |= none, bits.y |= none, bits.z |= none, bits.w |= none;
        }
    }
    Moments m = over_lanes<(GROUP > 32 ? 32 : GROUP), LANES * PER>(moments_of(in));
    if constexpr (WARPS > 1) {
        __shared__ Moments of_warps[WARPS];
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = m;
        __syncthreads();
        m = over_lanes<WARPS, 32 * LANES * PER>(of_warps[threadIdx.x % WARPS]);
    }
    const ACC mean = m.sum * (ACC(1) / COLS), scale = rsqrtf(m.squares * (ACC(1) / COLS) + eps);
#pragma unroll
    for (int j = 0; j < PER; j++) {
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) out.v[l] = store(load(w[j].v[l]) * ((load(in[j].v[l]) - mean) * scale) + load(b[j].v[l]));
        *reinterpret_cast<Vector*>(y + at + j * GROUP * LANES) = out;
    }
}

// A lane has a vector of each of its warp's rows, which lie one below the other, and keeps those of weight and bias.
constexpr int HELD = WARP_ROWS > 0 ? WARP_ROWS : 1;
extern "C" __global__ void __launch_bounds__(256, CROWD) warp_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols) {
    const int c = threadIdx.x % 32 * LANES, first = (blockIdx.x * 8 + threadIdx.x / 32) * HELD;
    const bool inside = c < cols;
    const long long start = (long long)first * cols + c;
    const ACC part = ACC(1) / cols;
    Vector in[HELD], w = {}, b = {};
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        in[r] = Vector{};
        if (inside && first + r < rows) in[r] = fetched(x + start + (long long)r * cols);
    }
    if (inside) w = *reinterpret_cast<const Vector*>(weight + c), b = *reinterpret_cast<const Vector*>(bias + c);
    ACC mean[HELD] = {}, squares[HELD] = {};
#pragma unroll
    for (int r = 0; r < HELD; r++)
#pragma unroll
        for (int l = 0; l < LANES; l++) mean[r] += load(in[r].v[l]);
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
#pragma unroll
        for (int r = 0; r < HELD; r++) mean[r] += __shfl_xor_sync(0xffffffffu, mean[r], offset);
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        mean[r] *= part;
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            const ACC deviation = load(in[r].v[l]) - mean[r];
            squares[r] += deviation * deviation;
        }
        if (!inside) squares[r] = 0;
    }
#pragma unroll
    for (int offset = 16; offset; offset /= 2)
#pragma unroll
        for (int r = 0; r < HELD; r++) squares[r] += __shfl_xor_sync(0xffffffffu, squares[r], offset);
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        if (!inside || first + r >= rows) continue;
        const ACC scale = rsqrtf(squares[r] * part + eps);
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) out.v[l] = store(load(w.v[l]) * ((load(in[r].v[l]) - mean[r]) * scale) + load(b.v[l]));
        put(y + start + (long long)r * cols, out);
    }
}

// A lane has V vectors of a row, GROUP vectors apart, and as many of weight and bias, which it keeps for all of its rows:
// so a warp reads 32 / GROUP rows at once, and few lanes have to add up what they have.
template <int V>
__global__ void __launch_bounds__(BLOCK) short_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols) {
    constexpr int EACH = IN_FLIGHT > V ? IN_FLIGHT / V : 1, APART = BLOCK / GROUP;
    const int start = threadIdx.x % GROUP * LANES;
    const ACC part = ACC(1) / cols;
    Vector w[V], b[V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        const int c = start + j * GROUP * LANES;
        w[j] = b[j] = Vector{};
        if (c < cols) w[j] = *reinterpret_cast<const Vector*>(weight + c), b[j] = *reinterpret_cast<const Vector*>(bias + c);
    }
    for (long long first = (long long)blockIdx.x * (APART * EACH); first < rows; first += (long long)gridDim.x * (APART * EACH)) {
        const long long mine = first + threadIdx.x / GROUP;
        Vector in[EACH][V];
#pragma unroll
        for (int e = 0; e < EACH; e++)
#pragma unroll
            for (int j = 0; j < V; j++) {
                const int c = start + j * GROUP * LANES;
                const T* const from = x + (mine + e * APART) * cols + c;
                in[e][j] = Vector{};
                if (c < cols && mine + e * APART < rows) {
                    if constexpr (STREAM) reinterpret_cast<float4&>(in[e][j]) = __ldcs(reinterpret_cast<const float4*>(from));
                    else in[e][j] = fetched(from);
                }
            }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            ACC sum = 0, squares = 0;
#pragma unroll
            for (int j = 0; j < V; j++)
#pragma unroll
                for (int l = 0; l < LANES; l++) sum += load(in[e][j].v[l]);
            const ACC mean = over_group(sum) * part;
#pragma unroll
            for (int j = 0; j < V; j++)
                if (start + j * GROUP * LANES < cols)
#pragma unroll
                    for (int l = 0; l < LANES; l++) {
                        const ACC deviation = load(in[e][j].v[l]) - mean;
                        squares += deviation * deviation;
                    }
            const ACC scale = rsqrtf(over_group(squares) * part + eps);
            if (mine + e * APART >= rows) continue;
#pragma unroll
            for (int j = 0; j < V; j++) {
                const int c = start + j * GROUP * LANES;
                if (c >= cols) continue;
                Vector out;
#pragma unroll
                for (int l = 0; l < LANES; l++) out.v[l] = store(load(w[j].v[l]) * ((load(in[e][j].v[l]) - mean) * scale) + load(b[j].v[l]));
                put(y + (mine + e * APART) * cols + c, out);
            }
        }
    }
}

// Of all warps of the block, whose threads have VECTORS whole vectors each, in one round.
__device__ __forceinline__ Moments over_threads(Moments m, Moments* partial) {
    constexpr int EACH = VECTORS * LANES;
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2)
        m = joined(m, {__shfl_xor_sync(0xffffffffu, m.sum, offset), __shfl_xor_sync(0xffffffffu, m.squares, offset)}, ACC(1) / (2 * offset * EACH));
    if (lane == 0) partial[threadIdx.x / 32] = m;
    __syncthreads();
    const Moments own = lane < warps ? partial[lane] : Moments{0, 0};
    ACC sum = own.sum;
#pragma unroll
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    const ACC apart = own.sum - sum / warps;
    ACC squares = lane < warps ? own.squares + apart * apart * (ACC(1) / (32 * EACH)) : ACC(0);
#pragma unroll
    for (int offset = 16; offset; offset /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
    return {sum, squares};
}

extern "C" __global__ void __launch_bounds__(256 * sizeof(T)) long_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int cols) {
    __shared__ Moments partial[32];
    __shared__ ACC parts[2][32];
    const long long start = (long long)blockIdx.x * cols;
    Vector in[VECTORS], w[VECTORS], b[VECTORS];
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        in[j] = Vector{};
        if (c < cols) in[j] = fetched(x + start + c);
    }
    if constexpr (EARLY) {
#pragma unroll
        for (int j = 0; j < VECTORS; j++) {
            const int c = (j * blockDim.x + threadIdx.x) * LANES;
            if (c < cols) w[j] = *reinterpret_cast<const Vector*>(weight + c), b[j] = *reinterpret_cast<const Vector*>(bias + c);
        }
    }
    ACC mean, variance;
    if (ONCE && cols == VECTORS * LANES * blockDim.x) {  // so that all threads have as many elements
        const Moments m = over_threads(moments_of(in), partial);
        mean = m.sum / cols, variance = m.squares / cols;
    } else {
        ACC sum = 0, squares = 0;
#pragma unroll
        for (int j = 0; j < VECTORS; j++)
#pragma unroll
            for (int l = 0; l < LANES; l++) sum += load(in[j].v[l]);
        mean = over_block(sum, parts[0]) / cols;
#pragma unroll
        for (int j = 0; j < VECTORS; j++)
            if ((j * blockDim.x + threadIdx.x) * LANES < cols)
#pragma unroll
                for (int l = 0; l < LANES; l++) {
                    const ACC deviation = load(in[j].v[l]) - mean;
                    squares += deviation * deviation;
                }
        variance = over_block(squares, parts[1]) / cols;
    }
    const ACC scale = rsqrtf(variance + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        if (c < cols) {
            if constexpr (!EARLY) w[j] = *reinterpret_cast<const Vector*>(weight + c), b[j] = *reinterpret_cast<const Vector*>(bias + c);
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(load(w[j].v[l]) * ((load(in[j].v[l]) - mean) * scale) + load(b[j].v[l]));
            put(y + start + c, out);
        }
    }
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

// A block stays, and has every so manyth row: the next ones are on their way into shared memory, a thread's vectors in places
// that no other thread reads, while one is added up. The weight stays in registers.
extern "C" __global__ void __launch_bounds__(1024) flow_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols) {
    extern __shared__ uint4 stages[];
    __shared__ ACC partial[2][2][32];
    const int t = threadIdx.x, threads = blockDim.x;
    const auto begin = [&](int row, int stage) {  // a group of copies per row, an empty one behind the last
        if (row < rows) {
            const T* const from = x + (long long)row * cols;
#pragma unroll
            for (int j = 0; j < KEPT; j++) {
                const int c = (j * threads + t) * LANES;
                const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(stages + (stage * KEPT + j) * threads + t));
                if (c < cols) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from + c) : "memory");
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) begin(blockIdx.x + s * gridDim.x, s);
    uint4 w[KEPT];
#pragma unroll
    for (int j = 0; j < KEPT; j++) {
        const int c = (j * threads + t) * LANES;
        w[j] = make_uint4(0, 0, 0, 0);
        if (c < cols) w[j] = *reinterpret_cast<const uint4*>(weight + c);
    }
    const ACC part = ACC(1) / cols;
    int stage = 0, turn = 0;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        begin(row + (STAGES - 1) * gridDim.x, stage == 0 ? STAGES - 1 : stage - 1);
        whole::Elements v[KEPT];
#pragma unroll
        for (int j = 0; j < KEPT; j++) {
            v[j] = whole::Elements{};
            if ((j * threads + t) * LANES < cols) v[j] = whole::elements(stages[(stage * KEPT + j) * threads + t]);
        }
        ACC sum = 0, squares = 0;
#pragma unroll
        for (int j = 0; j < KEPT; j++)
#pragma unroll
            for (int l = 0; l < LANES; l++) sum += v[j].v[l];
        const ACC mean = over_block(sum, partial[turn][0]) * part;
#pragma unroll
        for (int j = 0; j < KEPT; j++)
            if ((j * threads + t) * LANES < cols)
#pragma unroll
                for (int l = 0; l < LANES; l++) {
                    v[j].v[l] -= mean;
                    squares += v[j].v[l] * v[j].v[l];
                }
        const ACC scale = rsqrtf(over_block(squares, partial[turn][1]) * part + eps);
#pragma unroll
        for (int j = 0; j < KEPT; j++) {
            const int c = (j * threads + t) * LANES;
            if (c < cols) {
                const whole::Elements by = whole::elements(w[j]), more = whole::elements(*reinterpret_cast<const uint4*>(bias + c));
#pragma unroll
                for (int l = 0; l < LANES; l++) v[j].v[l] = by.v[l] * (v[j].v[l] * scale) + more.v[l];
                *reinterpret_cast<uint4*>(y + (long long)row * cols + c) = whole::vector(v[j]);
            }
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1, turn ^= 1;
    }
}

extern "C" __global__ void __launch_bounds__(256) any_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int cols) {
    __shared__ ACC partial[2][32];
    const long long start = (long long)blockIdx.x * cols;
    const T* in = x + start;
    ACC sum = 0;
    for (int c = threadIdx.x; c < cols; c += 256) sum += load(in[c]);
    const ACC mean = over_block(sum, partial[0]) / cols;
    ACC squares = 0;
    for (int c = threadIdx.x; c < cols; c += 256) {
        const ACC d = load(in[c]) - mean;
        squares += d * d;
    }
    const ACC scale = rsqrtf(over_block(squares, partial[1]) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += 256)
        y[start + c] = store(load(weight[c]) * ((load(in[c]) - mean) * scale) + load(bias[c]));
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
// The vector i of what begins `head` behind `from` is cut out of these.
struct Pair { uint4 a, b; };
__device__ __forceinline__ Pair pair(const T* from, int i, int head) {
    const uint4* at = reinterpret_cast<const uint4*>(from) + i;
    return {__ldg(at), __ldg(at + (head ? 1 : 0))};
}

__device__ __forceinline__ float sum_of(uint4 v) {
    const float2 a = parted(v.x, TYPE), b = parted(v.y, TYPE), c = parted(v.z, TYPE), d = parted(v.w, TYPE);
    return sizeof(T) == 4 ? (a.x + b.x) + (c.x + d.x) : ((a.x + a.y) + (b.x + b.y)) + ((c.x + c.y) + (d.x + d.y));
}
__device__ __forceinline__ float squares_of(unsigned u, float mean) {
    const float2 v = parted(u, TYPE);
    const float a = v.x - mean, b = v.y - mean;
    return sizeof(T) == 4 ? a * a : a * a + b * b;
}

__device__ __forceinline__ unsigned result(unsigned u, unsigned w, unsigned b, float mean, float scale) {
    const float2 v = parted(u, TYPE), p = parted(w, TYPE), q = parted(b, TYPE);
    return packed(p.x * ((v.x - mean) * scale) + q.x, sizeof(T) == 4 ? 0.0f : p.y * ((v.y - mean) * scale) + q.y, TYPE);
}

template <int DEEP, int AT_ONCE>
__device__ __forceinline__ void in_registers(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, float eps, int cols, int parts) {
    if (parts > 1) begun();
    const int rank = blockIdx.x & (parts - 1);
    const Row row(blockIdx.x / parts, cols);
    const int first = rank * (DEEP * blockDim.x) + threadIdx.x - row.shift, edge = row.edge(rank);
    const float part = 1.0f / cols;
    const uint4* from = row.in(x);
    uint4 in[DEEP];
#pragma unroll
    for (int j = 0; j < DEEP; j++) {
        const int i = first + j * static_cast<int>(blockDim.x);
        in[j] = make_uint4(0, 0, 0, 0);
        if (row.has(i)) in[j] = __ldcs(from + i);
    }
    const float extra = edge < 0 ? 0.0f : load(x[row.start + edge]);
    const float w_extra = edge < 0 ? 0.0f : load(weight[edge]), b_extra = edge < 0 ? 0.0f : load(bias[edge]);
    float sum = extra;
#pragma unroll
    for (int j = 0; j < DEEP; j++) sum += sum_of(in[j]);
    const float mean = over_row(sum, parts, rank, 0) * part;
    keep_packed(in, parts);
    float squares = edge < 0 ? 0.0f : (extra - mean) * (extra - mean);
#pragma unroll
    for (int j = 0; j < DEEP; j++)
        if (row.has(first + j * static_cast<int>(blockDim.x))) squares += (squares_of(in[j].x, mean) + squares_of(in[j].y, mean)) + (squares_of(in[j].z, mean) + squares_of(in[j].w, mean));
    const float scale = rsqrtf(over_row(squares, parts, rank, 1) * part + eps);
    keep_packed(in, parts);
    uint4* to = row.out(y);
#pragma unroll
    for (int k = 0; k < DEEP; k += AT_ONCE) {
        Pair w[AT_ONCE], b[AT_ONCE];
#pragma unroll
        for (int j = k; j < k + AT_ONCE; j++) {
            const int i = first + j * static_cast<int>(blockDim.x);
            if (row.has(i)) w[j - k] = pair(weight, i, row.head), b[j - k] = pair(bias, i, row.head);
        }
#pragma unroll
        for (int j = k; j < k + AT_ONCE; j++) {
            const int i = first + j * static_cast<int>(blockDim.x);
            if (row.has(i)) {
                const uint4 p = shifted(w[j - k].a, w[j - k].b, row.head), q = shifted(b[j - k].a, b[j - k].b, row.head);
                to[i] = make_uint4(result(in[j].x, p.x, q.x, mean, scale), result(in[j].y, p.y, q.y, mean, scale),
                                   result(in[j].z, p.z, q.z, mean, scale), result(in[j].w, p.w, q.w, mean, scale));
            }
        }
    }
    if (edge >= 0) y[row.start + edge] = store(w_extra * ((extra - mean) * scale) + b_extra);
}
}  // namespace odd

extern "C" __global__ void __launch_bounds__(256, 3)
    odd_long_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int cols, int parts) {
    odd::in_registers<4, 2>(x, weight, bias, y, eps, cols, parts);
}
extern "C" __global__ void __launch_bounds__(1024)
    odd_longer_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int cols, int parts) {
    odd::in_registers<4, 1>(x, weight, bias, y, eps, cols, parts);
}

// A group of lanes has a row in shared memory, a lane every so manieth element of it, and of weight and bias.
template <int EACH_LANE>
__global__ void __launch_bounds__(256, 4) odd_short_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols, int together, int group) {
    using namespace odd;
    extern __shared__ uint4 span[];
    T* of_rows = reinterpret_cast<T*>(span);
    const long long first = (long long)blockIdx.x * together;
    const int here = static_cast<int>(min(static_cast<long long>(together), rows - first)), lane = threadIdx.x % group;
    const float part = 1.0f / cols;
    constexpr int HAD = EACH_LANE <= 4 ? EACH_LANE : 0;  // of weight and bias from the beginning
    float w[HAD + 1], b[HAD + 1];
#pragma unroll
    for (int e = 0; e < HAD; e++) {
        const int c = lane + e * group;
        w[e] = c < cols ? load(weight[c]) : 0.0f, b[e] = c < cols ? load(bias[c]) : 0.0f;
    }
    arrive(x + first * cols, span, here * cols);
    __syncthreads();
    for (int top = 0; top < here; top += 256 / group) {
        const int row = top + threadIdx.x / group;
        float v[EACH_LANE], squares = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            v[e] = row < here && c < cols ? load(of_rows[row * cols + c]) : 0.0f;
        }
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) sum += v[e];
        const float mean = sum_of_group(sum, group) * part;
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++)
            if (lane + e * group < cols) squares += (v[e] - mean) * (v[e] - mean);
        const float scale = rsqrtf(sum_of_group(squares, group) * part + eps);
#pragma unroll
        for (int e = 0; e < EACH_LANE; e++) {
            const int c = lane + e * group;
            if (row < here && c < cols) {
                const float p = HAD ? w[e % (HAD + 1)] : load(weight[c]), q = HAD ? b[e % (HAD + 1)] : load(bias[c]);
                of_rows[row * cols + c] = store(p * ((v[e] - mean) * scale) + q);
            }
        }
    }
    __syncthreads();
    leave(y + first * cols, span, here * cols);
}
