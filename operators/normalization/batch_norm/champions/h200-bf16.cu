/*! evo
[tune]
SLOTS = [12, 6, 8]                 # 16-byte vectors that a thread keeps in shared memory from its first look to its second
BLOCK = [128, 32, 64, 256]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]
ACROSS = [2, 1, 4]                 # 16-byte vectors of a row that a block has, of few rows
MOST = [512, 256]                  # threads of such a block, at most
where = ["1024 * ACROSS <= 8 * MOST"]

[let]
few = "cols % (16 // sizeof_T) == 0 and rows <= 1024"
each = "ceil_div(rows * ACROSS, MOST)"     # of few rows per thread

[[buffer]]                         # of every part of the rows: mean and sum of squared deviations of every column
name = "partial"
dtype = "ACC"
shape = ["sm_count * 4 * (128 // sizeof_T)"]

[[buffer]]
name = "mean_2"
dtype = "ACC"
shape = ["cols"]

[[buffer]]
name = "scale_2"
dtype = "ACC"
shape = ["cols"]

[[launch]]                         # all in registers
when = "few and each == 1"
kernel = "few_rows<1>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["max(32, min(MOST, next_pow2(rows * ACROSS)))"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # all in registers
when = "few and each == 2"
kernel = "few_rows<2>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["max(32, min(MOST, next_pow2(rows * ACROSS)))"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # all in registers
when = "few and (each == 3 or each == 4)"
kernel = "few_rows<4>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["max(32, min(MOST, next_pow2(rows * ACROSS)))"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # all in registers
when = "few and each > 4"
kernel = "few_rows<8>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["max(32, min(MOST, next_pow2(rows * ACROSS)))"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]
when = "(rows > 31) and (cols % (16 // sizeof_T) != 0)"
kernel = "batch_norm<true, false>"
grid = ["ceil_div(cols, 128 // sizeof_T)"]
block = [512]
shared = "SLOTS * 8192"
args = ["x", "weight", "bias", "y", "partial", "eps", "rows", "cols"]

[[launch]]
when = "rows > 1024 and cols % (16 // sizeof_T) == 0 and ceil_div(cols, 128 // sizeof_T) > sm_count"
kernel = "batch_norm<true, true>"
grid = ["ceil_div(cols, 128 // sizeof_T)"]
block = [512]
shared = "SLOTS * 8192"
args = ["x", "weight", "bias", "y", "partial", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) == 0 and rows > 1024 and ceil_div(cols, 128 // sizeof_T) <= sm_count)"
kernel = "batch_norm<false, true>"
cooperative = true
grid = ["ceil_div(cols, 128 // sizeof_T)", "min(sm_count * min(blocks_per_sm, 2) // ceil_div(cols, 128 // sizeof_T), ceil_div(rows, 128))"]
block = [512]
shared = "SLOTS * 8192"
args = ["x", "weight", "bias", "y", "partial", "eps", "rows", "cols"]
[[launch]]
when = "rows <= 31 and not few"
kernel = "moments_2"
grid = ["ceil_div(cols, BLOCK)"]
block = ["BLOCK"]
args = ["x", "mean_2", "scale_2", "eps", "rows", "cols"]

[[launch]]
when = "rows <= 31 and not few"
kernel = "batch_norm_2"
grid = ["ceil_div(cols, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "weight", "bias", "mean_2", "scale_2", "y", "rows", "cols"]
*/
// One launch. A block has 128 bytes of every row of its part, and all blocks of the same columns meet at a barrier of the
// grid between mean and variance and the normalization. Of what it has read first a block keeps what its shared memory
// takes; the rest it reads again, the last first, as far as it can from the L2 cache. Means and squared deviations are
// worked out for a few rows at a time and put together by Chan's formula, which does not cancel.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
constexpr int LANES = 16 / sizeof(T), COLUMNS = 8 * LANES, THREADS = 512, STEP = THREADS / 8, DEEP = LANES == 4 ? 8 : 4;
struct alignas(16) Vector { T v[LANES]; };

struct Moments {
    ACC mean, squares;
    // n of the others join m of these.
    __device__ __forceinline__ void join(Moments other, ACC m, ACC share) {  // share = n / (m + n)
        const ACC delta = other.mean - mean;
        mean += delta * share;
        squares += other.squares + delta * delta * (m * share);
    }
};
__device__ __forceinline__ ACC share_of(int n, int all) { return all ? ACC(n) / ACC(all) : ACC(0); }

template <bool VECTOR> __device__ __forceinline__ Vector fetched(const T* from, int count) {
    Vector x;
    if constexpr (VECTOR) {
        x = *reinterpret_cast<const Vector*>(from);
    } else {
#pragma unroll
        for (int l = 0; l < LANES; l++) x.v[l] = l < count ? from[l] : store(ACC(0));
    }
    return x;
}

template <int COUNT> __device__ __forceinline__ void add_up(Moments (&moments)[LANES], int before, const Vector* x) {
    const ACC share = ACC(COUNT) / ACC(before + COUNT);
#pragma unroll
    for (int l = 0; l < LANES; l++) {
        ACC sum = 0;
#pragma unroll
        for (int u = 0; u < COUNT; u++) sum += load(x[u].v[l]);
        Moments these = {sum * (ACC(1) / COUNT), 0};
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            const ACC deviation = load(x[u].v[l]) - these.mean;
            these.squares += deviation * deviation;
        }
        moments[l].join(these, ACC(before), share);
    }
}

extern __shared__ Vector kept[];

template <bool ALONE, bool VECTOR>
__global__ void __launch_bounds__(512, 2) batch_norm(const T* x, const T* weight, const T* bias, T* y, ACC* partial, ACC eps, int rows, int cols) {
    __shared__ Moments of_warps[16][COLUMNS];
    __shared__ int counts[16];
    __shared__ ACC means[COLUMNS], scales[COLUMNS], shifts[COLUMNS];
    const int tile = blockIdx.x, part = blockIdx.y, parts = ALONE ? 1 : gridDim.y, tiles = gridDim.x;
    const int begin = (int)((long long)rows * part / parts), end = (int)((long long)rows * (part + 1) / parts);
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = tile * COLUMNS + tx * LANES, columns = min(cols - column, LANES);  // none or fewer beyond the edge
    const int mine = begin + ty < end ? (end - begin - ty + STEP - 1) / STEP : 0;         // rows of this thread
    const long long first = (long long)(begin + ty) * cols + column, apart = (long long)STEP * cols;

    Moments moments[LANES] = {};
    if (columns > 0) {
        int i = 0;
        for (; i + DEEP <= mine; i += DEEP) {
            Vector in[DEEP];
#pragma unroll
            for (int u = 0; u < DEEP; u++) in[u] = fetched<VECTOR>(x + first + (i + u) * apart, columns);
            if (i < SLOTS)
#pragma unroll
                for (int u = 0; u < DEEP; u++)
                    if (i + u < SLOTS) kept[(i + u) * THREADS + threadIdx.x] = in[u];
            add_up<DEEP>(moments, i, in);
        }
        for (; i < mine; i++) {
            const Vector in = fetched<VECTOR>(x + first + i * apart, columns);
            if (i < SLOTS) kept[i * THREADS + threadIdx.x] = in;
            add_up<1>(moments, i, &in);
        }
    }
    int count = mine;
#pragma unroll
    for (int offset = 8; offset < 32; offset *= 2) {
        const int others = __shfl_xor_sync(0xffffffffu, count, offset);
        const ACC share = share_of(others, count + others);
#pragma unroll
        for (int l = 0; l < LANES; l++) {
            const Moments other = {__shfl_xor_sync(0xffffffffu, moments[l].mean, offset), __shfl_xor_sync(0xffffffffu, moments[l].squares, offset)};
            moments[l].join(other, ACC(count), share);
        }
        count += others;
    }
    if (lane < 8) {
#pragma unroll
        for (int l = 0; l < LANES; l++) of_warps[warp][tx * LANES + l] = moments[l];
        if (lane == 0) counts[warp] = count;
    }
    __syncthreads();
    const int c = threadIdx.x % COLUMNS, group = threadIdx.x / COLUMNS;
    constexpr int GROUPS = THREADS / COLUMNS;
    Moments all = {};
    int rows_of_all = 0;
    if (threadIdx.x < COLUMNS) {
#pragma unroll
        for (int w = 0; w < 16; w++) {
            const ACC share = share_of(counts[w], rows_of_all + counts[w]);
            all.join(of_warps[w][c], ACC(rows_of_all), share);
            rows_of_all += counts[w];
        }
    }
    if constexpr (!ALONE) {
        Moments* of_parts = reinterpret_cast<Moments*>(partial);
        if (threadIdx.x < COLUMNS) of_parts[(part * tiles + tile) * COLUMNS + c] = all;
        cg::this_grid().sync();
        all.mean = all.squares = 0;
        rows_of_all = 0;
        for (int p = group; p < parts; p += GROUPS) {
            const float2 bits = __ldcg(reinterpret_cast<const float2*>(of_parts + (p * tiles + tile) * COLUMNS + c));
            const int of_part = (int)((long long)rows * (p + 1) / parts) - (int)((long long)rows * p / parts);
            all.join({bits.x, bits.y}, ACC(rows_of_all), share_of(of_part, rows_of_all + of_part));
            rows_of_all += of_part;
        }
        of_warps[group][c] = all;
        if (c == 0) counts[group] = rows_of_all;
        __syncthreads();
        if (threadIdx.x < COLUMNS) {
            all.mean = all.squares = 0;
            rows_of_all = 0;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                all.join(of_warps[g][c], ACC(rows_of_all), share_of(counts[g], rows_of_all + counts[g]));
                rows_of_all += counts[g];
            }
        }
    }
    if (threadIdx.x < COLUMNS && tile * COLUMNS + c < cols) {
        means[c] = all.mean;
        scales[c] = rsqrtf(all.squares / ACC(rows) + eps) * load(weight[tile * COLUMNS + c]);
        shifts[c] = load(bias[tile * COLUMNS + c]);
    }
    __syncthreads();
    if (columns <= 0) return;
    ACC mean[LANES], scale[LANES], shift[LANES];
#pragma unroll
    for (int l = 0; l < LANES; l++)
        if (VECTOR || l < columns) mean[l] = means[tx * LANES + l], scale[l] = scales[tx * LANES + l], shift[l] = shifts[tx * LANES + l];
    const auto normalize = [&](const Vector& in, int i) {
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++)
            if (VECTOR || l < columns) out.v[l] = store((load(in.v[l]) - mean[l]) * scale[l] + shift[l]);
        if constexpr (VECTOR) {
            __stcs(reinterpret_cast<float4*>(y + first + i * apart), reinterpret_cast<const float4&>(out));
        } else {
#pragma unroll
            for (int l = 0; l < LANES; l++)
                if (l < columns) y[first + i * apart + l] = out.v[l];
        }
    };
    int i = mine - 1;
    for (; i - 3 >= SLOTS; i -= 4) {
        Vector in[4];
#pragma unroll
        for (int u = 0; u < 4; u++) in[u] = fetched<VECTOR>(x + first + (i - u) * apart, columns);
#pragma unroll
        for (int u = 0; u < 4; u++) normalize(in[u], i - u);
    }
    for (; i >= SLOTS; i--) normalize(fetched<VECTOR>(x + first + i * apart, columns), i);
    for (; i >= 0; i--) normalize(kept[i * THREADS + threadIdx.x], i);
}

// Few rows: a block has ACROSS vectors of all of them, a thread EACH vectors, read once, into registers.
constexpr int FEW_COLUMNS = ACROSS * LANES;

// The sums of a block's threads over all rows, by column; `partial` may be used once.
__device__ __forceinline__ void over_rows(ACC (&sums)[LANES], ACC (*partial)[FEW_COLUMNS]) {
#pragma unroll
    for (int offset = ACROSS; offset < 32; offset *= 2)
#pragma unroll
        for (int l = 0; l < LANES; l++) sums[l] += __shfl_xor_sync(0xffffffffu, sums[l], offset);
    const int warps = blockDim.x / 32, start = threadIdx.x % ACROSS * LANES;
    if (warps == 1) return;
    if (threadIdx.x % 32 < ACROSS)
#pragma unroll
        for (int l = 0; l < LANES; l++) partial[threadIdx.x / 32][start + l] = sums[l];
    __syncthreads();
#pragma unroll
    for (int l = 0; l < LANES; l++) sums[l] = 0;
    for (int w = 0; w < warps; w++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sums[l] += partial[w][start + l];
}

template <int EACH>
__global__ void __launch_bounds__(MOST) few_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols) {
    __shared__ __align__(16) ACC partial[2][MOST / 32][FEW_COLUMNS];
    const int c = blockIdx.x * FEW_COLUMNS + threadIdx.x % ACROSS * LANES, apart = blockDim.x / ACROSS, first = threadIdx.x / ACROSS;
    const bool inside = c < cols;
    Vector in[EACH], w = {}, b = {};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        in[e] = Vector{};
        if (inside && first + e * apart < rows) in[e] = *reinterpret_cast<const Vector*>(x + (long long)(first + e * apart) * cols + c);
    }
    if (inside) w = *reinterpret_cast<const Vector*>(weight + c), b = *reinterpret_cast<const Vector*>(bias + c);
    const ACC part = ACC(1) / rows;
    ACC mean[LANES] = {}, scale[LANES] = {};
#pragma unroll
    for (int e = 0; e < EACH; e++)
#pragma unroll
        for (int l = 0; l < LANES; l++) mean[l] += load(in[e].v[l]);
    over_rows(mean, partial[0]);
#pragma unroll
    for (int l = 0; l < LANES; l++) mean[l] *= part;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * apart < rows)
#pragma unroll
            for (int l = 0; l < LANES; l++) {
                const ACC deviation = load(in[e].v[l]) - mean[l];
                scale[l] += deviation * deviation;
            }
    over_rows(scale, partial[1]);
#pragma unroll
    for (int l = 0; l < LANES; l++) scale[l] = rsqrtf(scale[l] * part + eps) * load(w.v[l]);
    if (!inside) return;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (first + e * apart >= rows) continue;
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) out.v[l] = store((load(in[e].v[l]) - mean[l]) * scale[l] + load(b.v[l]));
        *reinterpret_cast<Vector*>(y + (long long)(first + e * apart) * cols + c) = out;
    }
}

// One thread per column.
extern "C" __global__ void moments_2(const T* x, ACC* mean_2, ACC* scale_2, ACC eps, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    ACC sum = 0, squares = 0;
    for (int r = 0; r < rows; r++) sum += load(x[(long long)r * cols + c]);
    ACC m = sum / rows;
    for (int r = 0; r < rows; r++) {
        ACC deviation = load(x[(long long)r * cols + c]) - m;
        squares += deviation * deviation;
    }
    mean_2[c] = m;
    scale_2[c] = ACC(1) / sqrtf(squares / rows + eps);
}

// One thread per element; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void batch_norm_2(const T* x, const T* weight, const T* bias, const ACC* mean_2, const ACC* scale_2,
                                      T* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        long long at = (long long)r * cols + c;
        y[at] = store(load(weight[c]) * (load(x[at]) - mean_2[c]) * scale_2[c] + load(bias[c]));
    }
}
