/*! evo
[tune]
VECTORS = [4, 2, 8]                # 16-byte vectors of a row per thread
GROUP = [8, 4, 16]                 # lanes that share a short row
IN_FLIGHT = [8, 4, 16]             # vectors of short rows per thread
BLOCK = [128, 256]                 # threads, for short rows
WAVES = [64, 4, 8, 16]             # blocks per multiprocessor that short rows are dealt to, at most
STREAM = [0, 1]                    # 1: results, and short rows, are not to stay in caches
where = ["IN_FLIGHT * GROUP >= 32"]
[tune.bf16]
IN_FLIGHT = [4, 8, 16]

[let]
vectors = "ceil_div(cols, GROUP * (16 // sizeof_T))"   # of a short row per lane
narrow = "cols % (16 // sizeof_T) == 0 and cols <= 32 * (16 // sizeof_T)"
at_once = "BLOCK // GROUP * IN_FLIGHT"

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
when = "cols % (16 // sizeof_T) == 0 and cols > 32 * (16 // sizeof_T) and cols <= 4096 * VECTORS"
grid = ["rows"]
block = ["32 * ceil_div(cols, 32 * VECTORS * (16 // sizeof_T))"]
args = ["x", "weight", "bias", "y", "eps", "cols"]

[[launch]]                         # whatever else
kernel = "any_rows"
when = "cols % (16 // sizeof_T) != 0 or cols > 4096 * VECTORS"
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
                    else in[e][j] = *reinterpret_cast<const Vector*>(from);
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

extern "C" __global__ void __launch_bounds__(256 * sizeof(T)) long_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int cols) {
    __shared__ ACC partial[2][32];
    const long long start = (long long)blockIdx.x * cols;
    Vector in[VECTORS];
    ACC v[VECTORS][LANES];
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        in[j] = Vector{};
        if (c < cols) in[j] = *reinterpret_cast<const Vector*>(x + start + c);
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) v[j][l] = (j * blockDim.x + threadIdx.x) * LANES < cols ? load(in[j].v[l]) : ACC(0);
    ACC sum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sum += v[j][l];
    const ACC mean = over_block(sum, partial[0]) / cols;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
        if ((j * blockDim.x + threadIdx.x) * LANES < cols)
#pragma unroll
            for (int l = 0; l < LANES; l++) v[j][l] -= mean;
    ACC squares = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) squares += v[j][l] * v[j][l];
    const ACC scale = rsqrtf(over_block(squares, partial[1]) / cols + eps);
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
        const int c = (j * blockDim.x + threadIdx.x) * LANES;
        if (c < cols) {
            const Vector w = *reinterpret_cast<const Vector*>(weight + c), b = *reinterpret_cast<const Vector*>(bias + c);
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(load(w.v[l]) * (v[j][l] * scale) + load(b.v[l]));
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
