/*! evo
[tune]
VECTORS = [4, 2, 8]                # 16-byte vectors of a row per thread
GROUP = [8, 4, 16]                 # lanes that share a short row
IN_FLIGHT = [8, 4, 16]             # vectors of short rows per thread
BLOCK = [128, 256]                 # threads, for short rows
WAVES = [64, 4, 8, 16]             # blocks per multiprocessor that short rows are dealt to, at most
STREAM = [0, 1]                    # 1: results, and short rows, are not to stay in caches
PER = [1, 2, 4]                    # vectors of a thread, where a block has a short row alone
ROUNDS = [8, 1]                    # unrolled rounds of its reduction: 1 is less code to be fetched
WARP_ROWS = [4, 8, 2, 0]           # rows of a warp whose lanes have a vector of each; 0: groups of lanes have them
FIRST = [0, 1]                     # 1: rows are first to leave the caches
ONCE = [1, 0]                      # 1: mean and variance of long rows in one round
EARLY = [0, 1]                     # 1: weight and bias of long rows come before the sums
HALF = [4, 2, 8]                   # rows of a lane, of a vector each, where 16 lanes have a row of 128
HALF_BLOCK = [128, 256, 512]       # threads
LAST = [0, 1]                      # 1: neither these rows nor their results are to stay in caches
where = ["IN_FLIGHT * GROUP >= 32"]
[tune.bf16]
IN_FLIGHT = [4, 8, 16]
WARP_ROWS = [0, 4, 8]

[let]
vectors = "ceil_div(cols, GROUP * (16 // sizeof_T))"   # of a short row per lane
alone = "rows <= sm_count and (cols == 64 or cols == 128 or cols == 256 or cols == 512 or cols == 1024)"
halves = "not alone and cols == 128"
warped = "not alone and not halves and WARP_ROWS > 0 and cols % (16 // sizeof_T) == 0 and cols > 16 * (16 // sizeof_T) and cols <= 32 * (16 // sizeof_T)"
narrow = "not alone and not halves and not warped and cols % (16 // sizeof_T) == 0 and cols <= 32 * (16 // sizeof_T)"
wide = "not alone and cols % (16 // sizeof_T) == 0 and cols > 32 * (16 // sizeof_T) and cols <= 4096 * VECTORS"
at_once = "BLOCK // GROUP * IN_FLIGHT"

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

[[launch]]                         # half of a warp has several rows of 128
kernel = "half_rows"
when = "halves"
grid = ["ceil_div(rows, HALF_BLOCK // 16 * HALF)"]
block = ["HALF_BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows"]

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

[[launch]]                         # a block per row, which stays in registers
kernel = "long_rows"
when = "wide"
grid = ["rows"]
block = ["32 * ceil_div(cols, 32 * VECTORS * (16 // sizeof_T))"]
args = ["x", "weight", "bias", "y", "eps", "cols"]

[[launch]]                         # whatever else
kernel = "any_rows"
when = "not alone and (cols % (16 // sizeof_T) != 0 or cols > 4096 * VECTORS)"
grid = ["rows"]
block = [256]
args = ["x", "weight", "bias", "y", "eps", "cols"]
*/
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
__global__ void __launch_bounds__(COLS / (LANES * PER) > 32 ? COLS / (LANES * PER) : 32) one_row(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps) {
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
extern "C" __global__ void __launch_bounds__(256) warp_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols) {
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

// Rows of 128: a lane has a vector of every other of its warp's rows, all under way at once, and the same of weight and bias.
struct alignas(16) Packed { unsigned w[4]; };
__device__ __forceinline__ float low(unsigned u) { return __uint_as_float(u << 16); }
__device__ __forceinline__ float high(unsigned u) { return __uint_as_float(u & 0xffff0000u); }
extern "C" __global__ void __launch_bounds__(HALF_BLOCK) half_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows) {
    const int lane = threadIdx.x % 16, first = (blockIdx.x * (HALF_BLOCK / 32) + threadIdx.x / 32) * (2 * HALF) + threadIdx.x % 32 / 16;
    const long long start = (long long)first * 16 + lane;
    Packed in[HALF];
#pragma unroll
    for (int r = 0; r < HALF; r++) {
        const uint4* from = reinterpret_cast<const uint4*>(x) + start + r * 32;
        uint4 bits = make_uint4(0, 0, 0, 0);
        if (first + 2 * r < rows) bits = LAST ? __ldcs(from) : *from;
        in[r] = reinterpret_cast<const Packed&>(bits);
    }
    const Packed w = reinterpret_cast<const Packed*>(weight)[lane], b = reinterpret_cast<const Packed*>(bias)[lane];
    float mean[HALF], squares[HALF];
#pragma unroll
    for (int r = 0; r < HALF; r++) {
        mean[r] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) mean[r] += low(in[r].w[i]) + high(in[r].w[i]);
    }
#pragma unroll
    for (int offset = 8; offset; offset /= 2)
#pragma unroll
        for (int r = 0; r < HALF; r++) mean[r] += __shfl_xor_sync(0xffffffffu, mean[r], offset);
#pragma unroll
    for (int r = 0; r < HALF; r++) {
        mean[r] *= 1.0f / 128, squares[r] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float one = low(in[r].w[i]) - mean[r], two = high(in[r].w[i]) - mean[r];
            squares[r] += one * one, squares[r] += two * two;
        }
    }
#pragma unroll
    for (int offset = 8; offset; offset /= 2)
#pragma unroll
        for (int r = 0; r < HALF; r++) squares[r] += __shfl_xor_sync(0xffffffffu, squares[r], offset);
#pragma unroll
    for (int r = 0; r < HALF; r++) {
        float scale;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(scale) : "f"(squares[r] * (1.0f / 128) + eps));
        const float shift = -mean[r] * scale;
        uint4 bits;
        Packed& out = reinterpret_cast<Packed&>(bits);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const __nv_bfloat162 both = __floats2bfloat162_rn(low(w.w[i]) * (low(in[r].w[i]) * scale + shift) + low(b.w[i]), high(w.w[i]) * (high(in[r].w[i]) * scale + shift) + high(b.w[i]));
            out.w[i] = reinterpret_cast<const unsigned&>(both);
        }
        uint4* to = reinterpret_cast<uint4*>(y) + start + r * 32;
        if (first + 2 * r < rows) {
            if constexpr (LAST) {
                __stcs(to, bits);
            } else {
                *to = bits;
            }
        }
    }
}
