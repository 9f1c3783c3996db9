/*! evo
[tune]
SLOTS = [12, 6, 8]                 # 16-byte vectors that a thread keeps in shared memory from its first look to its second
BLOCK = [128, 32, 64, 256]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]
ACROSS = [2, 1, 4]                 # 16-byte vectors of a row that a block has, of few rows
MOST = [512, 256, 1024]            # threads of such a block, at most
PER = [4, 2, 1]                    # vectors of a thread of it, where it has not so many rows
where = ["1024 * ACROSS <= 8 * MOST"]
SLOTS_2 = [12, 6, 8]

[tune.bf16]
ACROSS = [1, 2, 4]
[tune.fp16]
ACROSS = [1, 2, 4]

[let]
odd = "cols % (16 // sizeof_T) != 0"
few = "cols % (16 // sizeof_T) == 0 and rows <= 1024"
threads = "max(32, min(MOST, next_pow2(ceil_div(rows * ACROSS, PER))))"
each = "ceil_div(rows * ACROSS, threads)"     # of few rows per thread

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

[[buffer]]                         # of every part of the rows: mean and sum of squared deviations of every column
name = "partial_2"
dtype = "ACC"
shape = ["sm_count * 4 * (128 // sizeof_T)"]

[[launch]]                         # all in registers
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (few and each == 1)"
kernel = "few_rows<1>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["threads"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # all in registers
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (few and each == 2)"
kernel = "few_rows<2>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["threads"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # all in registers
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (few and (each == 3 or each == 4))"
kernel = "few_rows<4>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["threads"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]                         # all in registers
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (few and each > 4)"
kernel = "few_rows<8>"
grid = ["ceil_div(cols, ACROSS * (16 // sizeof_T))"]
block = ["threads"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and ((rows > 31) and (cols % (16 // sizeof_T) != 0))"
kernel = "batch_norm<true, false>"
grid = ["ceil_div(cols, 128 // sizeof_T)"]
block = [512]
shared = "SLOTS * 8192"
args = ["x", "weight", "bias", "y", "partial", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (rows > 1024 and cols % (16 // sizeof_T) == 0 and ceil_div(cols, 128 // sizeof_T) > sm_count)"
kernel = "batch_norm<true, true>"
grid = ["ceil_div(cols, 128 // sizeof_T)"]
block = [512]
shared = "SLOTS * 8192"
args = ["x", "weight", "bias", "y", "partial", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and ((cols % (16 // sizeof_T) == 0 and rows > 1024 and ceil_div(cols, 128 // sizeof_T) <= sm_count))"
kernel = "batch_norm<false, true>"
cooperative = true
grid = ["ceil_div(cols, 128 // sizeof_T)", "min(sm_count * min(blocks_per_sm, 2) // ceil_div(cols, 128 // sizeof_T), ceil_div(rows, 128))"]
block = [512]
shared = "SLOTS * 8192"
args = ["x", "weight", "bias", "y", "partial", "eps", "rows", "cols"]
[[launch]]
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (rows <= 31 and not few)"
kernel = "moments_2"
grid = ["ceil_div(cols, BLOCK)"]
block = ["BLOCK"]
args = ["x", "mean_2", "scale_2", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) == 0 or rows <= 31) and (rows <= 31 and not few)"
kernel = "batch_norm_2"
grid = ["ceil_div(cols, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "weight", "bias", "mean_2", "scale_2", "y", "rows", "cols"]
[[launch]]
when = "(cols % (16 // sizeof_T) != 0 and rows > 31) and (cols % (16 // sizeof_T) == 0 and (rows <= 1024 or ceil_div(cols, 128 // sizeof_T) > sm_count))"
kernel = "batch_norm_3<true, true>"
grid = ["ceil_div(cols, 128 // sizeof_T)"]
block = [512]
shared = "SLOTS_2 * 8192"
args = ["x", "weight", "bias", "y", "partial_2", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) != 0 and rows > 31) and (cols % (16 // sizeof_T) == 0 and rows > 1024 and ceil_div(cols, 128 // sizeof_T) <= sm_count)"
kernel = "batch_norm_3<false, true>"
cooperative = true
grid = ["ceil_div(cols, 128 // sizeof_T)", "min(sm_count * min(blocks_per_sm, 2) // ceil_div(cols, 128 // sizeof_T), ceil_div(rows, 128))"]
block = [512]
shared = "SLOTS_2 * 8192"
args = ["x", "weight", "bias", "y", "partial_2", "eps", "rows", "cols"]

[[launch]]                         # rows whose vectors are not aligned
when = "(cols % (16 // sizeof_T) != 0 and rows > 31) and (odd and (rows <= 256 or ceil_div(cols, 128 // sizeof_T) > sm_count))"
kernel = "odd_batch_norm<true>"
grid = ["ceil_div(cols, 128 // sizeof_T)"]
block = [512]
shared = "SLOTS_2 * 8192"
args = ["x", "weight", "bias", "y", "partial_2", "eps", "rows", "cols"]

[[launch]]
when = "(cols % (16 // sizeof_T) != 0 and rows > 31) and (odd and rows > 256 and ceil_div(cols, 128 // sizeof_T) <= sm_count)"
kernel = "odd_batch_norm<false>"
cooperative = true
grid = ["ceil_div(cols, 128 // sizeof_T)", "min(sm_count * min(blocks_per_sm, 2) // ceil_div(cols, 128 // sizeof_T), ceil_div(rows, 128))"]
block = [512]
shared = "SLOTS_2 * 8192"
args = ["x", "weight", "bias", "y", "partial_2", "eps", "rows", "cols"]
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
constexpr int FEW_COLUMNS = ACROSS * LANES, APART = 32 / LANES, GROUPS_OF_WARPS = 32 / FEW_COLUMNS;

// The sums of a block's threads over all rows, by column; `partial` may be used once. In a warp halves of the columns are
// exchanged until a lane has one; the warps' sums are added up by every warp for itself.
__device__ __forceinline__ void over_rows(ACC (&sums)[LANES], ACC (*partial)[FEW_COLUMNS]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, place = lane % ACROSS;
    int held = LANES;
#pragma unroll
    for (int offset = 16; offset >= ACROSS; offset /= 2) {
        if (held > 1) {
            held /= 2;
#pragma unroll
            for (int l = 0; l < LANES / 2; l++)
                if (l < held) {
                    const bool upper = lane & offset;
                    const ACC given = upper ? sums[l] : sums[l + held], kept = upper ? sums[l + held] : sums[l];
                    sums[l] = kept + __shfl_xor_sync(0xffffffffu, given, offset);
                }
        } else {
            sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], offset);
        }
    }
    ACC sum = sums[0];  // of column `place * LANES + lane / APART`
    int first = place, step = APART;
    if (warps > 1) {
        if (lane % APART < ACROSS) partial[warp][place * LANES + lane / APART] = sum;
        __syncthreads();
        sum = 0;
#pragma unroll
        for (int w = 0; w < MOST / 32; w += GROUPS_OF_WARPS) {
            const int other = w + lane / FEW_COLUMNS;
            if (other < warps) sum += partial[other][lane % FEW_COLUMNS];
        }
#pragma unroll
        for (int offset = FEW_COLUMNS; offset < 32; offset *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        first = place * LANES, step = 1;
    }
#pragma unroll
    for (int l = 0; l < LANES; l++) sums[l] = __shfl_sync(0xffffffffu, sum, first + l * step);
}

template <int EACH>
__global__ void __launch_bounds__(MOST, 1) few_rows(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ y, ACC eps, int rows, int cols) {
    __shared__ __align__(16) ACC partial[2][MOST / 32][FEW_COLUMNS];
    const int c = blockIdx.x * FEW_COLUMNS + threadIdx.x % ACROSS * LANES, apart = blockDim.x / ACROSS, first = threadIdx.x / ACROSS;
    const long long start = (long long)first * cols + c, step = (long long)apart * cols;
    const bool inside = c < cols;
    uint4 in[EACH];
    Vector w = {}, b = {};
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        in[e] = make_uint4(0, 0, 0, 0);
        if (inside && first + e * apart < rows) in[e] = *reinterpret_cast<const uint4*>(x + start + e * step);
    }
    if (inside) w = *reinterpret_cast<const Vector*>(weight + c), b = *reinterpret_cast<const Vector*>(bias + c);
    const ACC part = ACC(1) / rows;
    ACC v[EACH][LANES], mean[LANES] = {}, sums[LANES];
#pragma unroll
    for (int e = 0; e < EACH; e++)
#pragma unroll
        for (int l = 0; l < LANES; l++) v[e][l] = load(reinterpret_cast<const Vector&>(in[e]).v[l]);
#pragma unroll 1  // the sums over rows are one piece of the program, to be fetched once: first for the mean, then for the variance
    for (int round = 0; round < 2; round++) {
#pragma unroll
        for (int l = 0; l < LANES; l++) sums[l] = 0;
        if (round == 0) {
#pragma unroll
            for (int e = 0; e < EACH; e++)
#pragma unroll
                for (int l = 0; l < LANES; l++) sums[l] += v[e][l];
        } else {
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (first + e * apart < rows)
#pragma unroll
                    for (int l = 0; l < LANES; l++) {
                        v[e][l] -= mean[l];
                        sums[l] += v[e][l] * v[e][l];
                    }
        }
        over_rows(sums, partial[round]);
#pragma unroll
        for (int l = 0; l < LANES; l++) mean[l] = sums[l] * part;
    }
    ACC scale[LANES];
#pragma unroll
    for (int l = 0; l < LANES; l++) scale[l] = rsqrtf(mean[l] + eps) * load(w.v[l]);
    if (!inside) return;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (first + e * apart >= rows) continue;
        Vector out;
#pragma unroll
        for (int l = 0; l < LANES; l++) out.v[l] = store(v[e][l] * scale[l] + load(b.v[l]));
        *reinterpret_cast<Vector*>(y + start + e * step) = out;
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

// One launch. A block has 128 bytes of every row of its part, and all blocks of the same columns meet at a barrier of the
// grid between mean and variance and the normalization. Of what it has read first a block keeps what its shared memory
// takes; the rest it reads again, the last first, as far as it can from the L2 cache. Means and squared deviations are
// worked out for a few rows at a time and put together by Chan's formula, which does not cancel.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
constexpr int LANES_2 = 16 / sizeof(T), COLUMNS_2 = 8 * LANES_2, THREADS_2 = 512, STEP_2 = THREADS_2 / 8, DEEP_2 = LANES_2 == 4 ? 8 : 4;
struct alignas(16) Vector_2 { T v[LANES_2]; };

struct Moments_2 {
    ACC mean, squares;
    // n of the others join m of these.
    __device__ __forceinline__ void join(Moments_2 other, ACC m, ACC share) {  // share = n / (m + n)
        const ACC delta = other.mean - mean;
        mean += delta * share;
        squares += other.squares + delta * delta * (m * share);
    }
};
__device__ __forceinline__ ACC share_of_2(int n, int all) { return all ? ACC(n) / ACC(all) : ACC(0); }

template <bool VECTOR> __device__ __forceinline__ Vector_2 fetched_2(const T* from, int count) {
    Vector_2 x;
    if constexpr (VECTOR) {
        x = *reinterpret_cast<const Vector_2*>(from);
    } else {
#pragma unroll
        for (int l = 0; l < LANES_2; l++) x.v[l] = l < count ? from[l] : store(ACC(0));
    }
    return x;
}

template <int COUNT> __device__ __forceinline__ void add_up_2(Moments_2 (&moments)[LANES_2], int before, const Vector_2* x) {
    const ACC share = ACC(COUNT) / ACC(before + COUNT);
#pragma unroll
    for (int l = 0; l < LANES_2; l++) {
        ACC sum = 0;
#pragma unroll
        for (int u = 0; u < COUNT; u++) sum += load(x[u].v[l]);
        Moments_2 these = {sum * (ACC(1) / COUNT), 0};
#pragma unroll
        for (int u = 0; u < COUNT; u++) {
            const ACC deviation = load(x[u].v[l]) - these.mean;
            these.squares += deviation * deviation;
        }
        moments[l].join(these, ACC(before), share);
    }
}

extern __shared__ Vector_2 kept_2[];

template <bool ALONE, bool VECTOR>
__global__ void __launch_bounds__(512, 2) batch_norm_3(const T* x, const T* weight, const T* bias, T* y, ACC* partial_2, ACC eps, int rows, int cols) {
    __shared__ Moments_2 of_warps[16][COLUMNS_2];
    __shared__ int counts[16];
    __shared__ ACC means[COLUMNS_2], scales[COLUMNS_2], shifts[COLUMNS_2];
    const int tile = blockIdx.x, part = blockIdx.y, parts = ALONE ? 1 : gridDim.y, tiles = gridDim.x;
    const int begin = (int)((long long)rows * part / parts), end = (int)((long long)rows * (part + 1) / parts);
    const int tx = threadIdx.x % 8, ty = threadIdx.x / 8, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = tile * COLUMNS_2 + tx * LANES_2, columns = min(cols - column, LANES_2);  // none or fewer beyond the edge
    const int mine = begin + ty < end ? (end - begin - ty + STEP_2 - 1) / STEP_2 : 0;         // rows of this thread
    const long long first = (long long)(begin + ty) * cols + column, apart = (long long)STEP_2 * cols;

    Moments_2 moments[LANES_2] = {};
    if (columns > 0) {
        int i = 0;
        for (; i + DEEP_2 <= mine; i += DEEP_2) {
            Vector_2 in[DEEP_2];
#pragma unroll
            for (int u = 0; u < DEEP_2; u++) in[u] = fetched_2<VECTOR>(x + first + (i + u) * apart, columns);
            if (i < SLOTS_2)
#pragma unroll
                for (int u = 0; u < DEEP_2; u++)
                    if (i + u < SLOTS_2) kept_2[(i + u) * THREADS_2 + threadIdx.x] = in[u];
            add_up_2<DEEP_2>(moments, i, in);
        }
        for (; i < mine; i++) {
            const Vector_2 in = fetched_2<VECTOR>(x + first + i * apart, columns);
            if (i < SLOTS_2) kept_2[i * THREADS_2 + threadIdx.x] = in;
            add_up_2<1>(moments, i, &in);
        }
    }
    int count = mine;
#pragma unroll
    for (int offset = 8; offset < 32; offset *= 2) {
        const int others = __shfl_xor_sync(0xffffffffu, count, offset);
        const ACC share = share_of_2(others, count + others);
#pragma unroll
        for (int l = 0; l < LANES_2; l++) {
            const Moments_2 other = {__shfl_xor_sync(0xffffffffu, moments[l].mean, offset), __shfl_xor_sync(0xffffffffu, moments[l].squares, offset)};
            moments[l].join(other, ACC(count), share);
        }
        count += others;
    }
    if (lane < 8) {
#pragma unroll
        for (int l = 0; l < LANES_2; l++) of_warps[warp][tx * LANES_2 + l] = moments[l];
        if (lane == 0) counts[warp] = count;
    }
    __syncthreads();
    const int c = threadIdx.x % COLUMNS_2, group = threadIdx.x / COLUMNS_2;
    constexpr int GROUPS = THREADS_2 / COLUMNS_2;
    Moments_2 all = {};
    int rows_of_all = 0;
    if (threadIdx.x < COLUMNS_2) {
#pragma unroll
        for (int w = 0; w < 16; w++) {
            const ACC share = share_of_2(counts[w], rows_of_all + counts[w]);
            all.join(of_warps[w][c], ACC(rows_of_all), share);
            rows_of_all += counts[w];
        }
    }
    if constexpr (!ALONE) {
        Moments_2* of_parts = reinterpret_cast<Moments_2*>(partial_2);
        if (threadIdx.x < COLUMNS_2) of_parts[(part * tiles + tile) * COLUMNS_2 + c] = all;
        cg::this_grid().sync();
        all.mean = all.squares = 0;
        rows_of_all = 0;
        for (int p = group; p < parts; p += GROUPS) {
            const float2 bits = __ldcg(reinterpret_cast<const float2*>(of_parts + (p * tiles + tile) * COLUMNS_2 + c));
            const int of_part = (int)((long long)rows * (p + 1) / parts) - (int)((long long)rows * p / parts);
            all.join({bits.x, bits.y}, ACC(rows_of_all), share_of_2(of_part, rows_of_all + of_part));
            rows_of_all += of_part;
        }
        of_warps[group][c] = all;
        if (c == 0) counts[group] = rows_of_all;
        __syncthreads();
        if (threadIdx.x < COLUMNS_2) {
            all.mean = all.squares = 0;
            rows_of_all = 0;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                all.join(of_warps[g][c], ACC(rows_of_all), share_of_2(counts[g], rows_of_all + counts[g]));
                rows_of_all += counts[g];
            }
        }
    }
    if (threadIdx.x < COLUMNS_2 && tile * COLUMNS_2 + c < cols) {
        means[c] = all.mean;
        scales[c] = rsqrtf(all.squares / ACC(rows) + eps) * load(weight[tile * COLUMNS_2 + c]);
        shifts[c] = load(bias[tile * COLUMNS_2 + c]);
    }
    __syncthreads();
    if (columns <= 0) return;
    ACC mean[LANES_2], scale[LANES_2], shift[LANES_2];
#pragma unroll
    for (int l = 0; l < LANES_2; l++)
        if (VECTOR || l < columns) mean[l] = means[tx * LANES_2 + l], scale[l] = scales[tx * LANES_2 + l], shift[l] = shifts[tx * LANES_2 + l];
    const auto normalize = [&](const Vector_2& in, int i) {
        Vector_2 out;
#pragma unroll
        for (int l = 0; l < LANES_2; l++)
            if (VECTOR || l < columns) out.v[l] = store((load(in.v[l]) - mean[l]) * scale[l] + shift[l]);
        if constexpr (VECTOR) {
            __stcs(reinterpret_cast<float4*>(y + first + i * apart), reinterpret_cast<const float4&>(out));
        } else {
#pragma unroll
            for (int l = 0; l < LANES_2; l++)
                if (l < columns) y[first + i * apart + l] = out.v[l];
        }
    };
    int i = mine - 1;
    for (; i - 3 >= SLOTS_2; i -= 4) {
        Vector_2 in[4];
#pragma unroll
        for (int u = 0; u < 4; u++) in[u] = fetched_2<VECTOR>(x + first + (i - u) * apart, columns);
#pragma unroll
        for (int u = 0; u < 4; u++) normalize(in[u], i - u);
    }
    for (; i >= SLOTS_2; i--) normalize(fetched_2<VECTOR>(x + first + i * apart, columns), i);
    for (; i >= 0; i--) normalize(kept_2[i * THREADS_2 + threadIdx.x], i);
}

// Rows whose length is no whole number of vectors: a warp has a row's part, its lanes an element, or two of 16 bits, each, so
// that what it reads and writes at once lies together.
constexpr int WIDE = COLUMNS_2 / 32, ROWS_KEPT = SLOTS_2 * 4;  // rows per warp that stay in shared memory
template <bool ALONE>
__global__ void __launch_bounds__(512, 2) odd_batch_norm(const T* x, const T* weight, const T* bias, T* y, ACC* partial_2, ACC eps, int rows, int cols) {
    constexpr int MANY = 8, WARPS = THREADS_2 / 32;
    __shared__ Moments_2 of_warps[WARPS][COLUMNS_2];
    __shared__ int counts[WARPS];
    __shared__ ACC means[COLUMNS_2], scales[COLUMNS_2], shifts[COLUMNS_2];
    T* const kept_rows = reinterpret_cast<T*>(kept_2);
    const int tile = blockIdx.x, part = blockIdx.y, parts = ALONE ? 1 : gridDim.y, tiles = gridDim.x;
    const int begin = (int)((long long)rows * part / parts), end = (int)((long long)rows * (part + 1) / parts);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int mine = begin + warp < end ? (end - begin - warp + WARPS - 1) / WARPS : 0;  // rows of this warp
    const long long first = (long long)(begin + warp) * cols + tile * COLUMNS_2 + lane, apart = (long long)WARPS * cols;
    bool inside[WIDE];
#pragma unroll
    for (int w = 0; w < WIDE; w++) inside[w] = tile * COLUMNS_2 + lane + 32 * w < cols;

    Moments_2 moments[WIDE] = {};
    for (int i = 0; i < mine; i += MANY) {
        const int many = min(MANY, mine - i);
        T in[MANY][WIDE];
#pragma unroll
        for (int u = 0; u < MANY; u++)
#pragma unroll
            for (int w = 0; w < WIDE; w++) in[u][w] = u < many && inside[w] ? x[first + (i + u) * apart + 32 * w] : store(ACC(0));
        if (i < ROWS_KEPT)
#pragma unroll
            for (int u = 0; u < MANY; u++)
#pragma unroll
                for (int w = 0; w < WIDE; w++)
                    if (u < many && i + u < ROWS_KEPT) kept_rows[((i + u) * WARPS + warp) * COLUMNS_2 + lane + 32 * w] = in[u][w];
        const ACC share = ACC(many) / ACC(i + many), each = ACC(1) / ACC(many);
#pragma unroll
        for (int w = 0; w < WIDE; w++) {
            ACC sum = 0;
#pragma unroll
            for (int u = 0; u < MANY; u++) sum += load(in[u][w]);
            Moments_2 these = {sum * each, 0};
#pragma unroll
            for (int u = 0; u < MANY; u++) {
                const ACC deviation = load(in[u][w]) - these.mean;
                if (u < many) these.squares += deviation * deviation;
            }
            moments[w].join(these, ACC(i), share);
        }
    }
#pragma unroll
    for (int w = 0; w < WIDE; w++) of_warps[warp][lane + 32 * w] = moments[w];
    if (lane == 0) counts[warp] = mine;
    __syncthreads();
    const int c = threadIdx.x % COLUMNS_2, group = threadIdx.x / COLUMNS_2;
    constexpr int GROUPS = THREADS_2 / COLUMNS_2;
    Moments_2 all = {};
    int rows_of_all = 0;
    if (threadIdx.x < COLUMNS_2) {
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            all.join(of_warps[w][c], ACC(rows_of_all), share_of_2(counts[w], rows_of_all + counts[w]));
            rows_of_all += counts[w];
        }
    }
    if constexpr (!ALONE) {
        Moments_2* of_parts = reinterpret_cast<Moments_2*>(partial_2);
        if (threadIdx.x < COLUMNS_2) of_parts[(part * tiles + tile) * COLUMNS_2 + c] = all;
        cg::this_grid().sync();
        all.mean = all.squares = 0;
        rows_of_all = 0;
        for (int p = group; p < parts; p += GROUPS) {
            const float2 bits = __ldcg(reinterpret_cast<const float2*>(of_parts + (p * tiles + tile) * COLUMNS_2 + c));
            const int of_part = (int)((long long)rows * (p + 1) / parts) - (int)((long long)rows * p / parts);
            all.join({bits.x, bits.y}, ACC(rows_of_all), share_of_2(of_part, rows_of_all + of_part));
            rows_of_all += of_part;
        }
        of_warps[group][c] = all;
        if (c == 0) counts[group] = rows_of_all;
        __syncthreads();
        if (threadIdx.x < COLUMNS_2) {
            all.mean = all.squares = 0;
            rows_of_all = 0;
#pragma unroll
            for (int g = 0; g < GROUPS; g++) {
                all.join(of_warps[g][c], ACC(rows_of_all), share_of_2(counts[g], rows_of_all + counts[g]));
                rows_of_all += counts[g];
            }
        }
    }
    if (threadIdx.x < COLUMNS_2 && tile * COLUMNS_2 + c < cols) {
        means[c] = all.mean;
        scales[c] = rsqrtf(all.squares / ACC(rows) + eps) * load(weight[tile * COLUMNS_2 + c]);
        shifts[c] = load(bias[tile * COLUMNS_2 + c]);
    }
    __syncthreads();
    ACC mean[WIDE], scale[WIDE], shift[WIDE];
#pragma unroll
    for (int w = 0; w < WIDE; w++)
        if (inside[w]) mean[w] = means[lane + 32 * w], scale[w] = scales[lane + 32 * w], shift[w] = shifts[lane + 32 * w];
    int i = mine - 1;
    for (; i >= ROWS_KEPT; i -= MANY) {  // the last ones, which may still be in L2, first
        T in[MANY][WIDE];
#pragma unroll
        for (int u = 0; u < MANY; u++)
#pragma unroll
            for (int w = 0; w < WIDE; w++)
                if (i - u >= ROWS_KEPT && inside[w]) in[u][w] = x[first + (i - u) * apart + 32 * w];
#pragma unroll
        for (int u = 0; u < MANY; u++)
#pragma unroll
            for (int w = 0; w < WIDE; w++)
                if (i - u >= ROWS_KEPT && inside[w]) y[first + (i - u) * apart + 32 * w] = store((load(in[u][w]) - mean[w]) * scale[w] + shift[w]);
    }
    for (i = min(mine, ROWS_KEPT) - 1; i >= 0; i--)
#pragma unroll
        for (int w = 0; w < WIDE; w++)
            if (inside[w]) y[first + i * apart + 32 * w] = store((load(kept_rows[(i * WARPS + warp) * COLUMNS_2 + lane + 32 * w]) - mean[w]) * scale[w] + shift[w]);
}
