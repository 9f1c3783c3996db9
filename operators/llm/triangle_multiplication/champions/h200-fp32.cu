/*! evo
requires = "dim <= 384 and hidden <= 352"
[tune]
STAGES = [3, 2]        # of 16 terms of the weights
DEEP = [4, 3]          # stages of 32 terms of the products of pairs

[let]
area = "length * length"
pairs = "batch * length * length"
pitch = "4 * ceil_div(length, 4)"
channels = "16 * ceil_div(dim, 16)"
terms = "16 * ceil_div(hidden, 16)"
fits = "length % 4 == 0 and length >= 128"
tiles = "ceil_div(length, 128) * ceil_div(length, 128) * batch * hidden"

[[buffer]]
name = "left"
dtype = "ACC"
shape = ["batch * hidden * length * pitch"]

[[buffer]]
name = "right"
dtype = "ACC"
shape = ["batch * hidden * length * pitch"]

[[buffer]]
name = "gate"
dtype = "ACC"
shape = ["batch * hidden * area"]

[[buffer]]
name = "t"
dtype = "ACC"
shape = ["batch * hidden * area"]

[[tensor_map]]
name = "left_tiles"
tensor = "left"
shape = ["length if fits else 4", "batch * hidden * length if fits else 1"]
strides = ["4 * length if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "right_tiles"
tensor = "right"
shape = ["length if fits else 4", "batch * hidden * length if fits else 1"]
strides = ["4 * length if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
when = "dim % 4 == 0 and channels <= 128"
kernel = "project<4, 2>"
grid = ["ceil_div(pairs, 128)"]
block = [256]
shared = "4 * (128 * (channels + 4) + STAGES * 64 * 20)"
args = [
    "x", "mask", "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left",
    "right", "gate", "eps", "pairs", "length", "dim", "hidden",
]

[[launch]]
when = "dim % 4 == 0 and channels > 128"
kernel = "project<4, 4>"
grid = ["ceil_div(pairs, 128)"]
block = [512]
shared = "4 * (128 * (channels + 4) + STAGES * 128 * 20)"
args = [
    "x", "mask", "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left",
    "right", "gate", "eps", "pairs", "length", "dim", "hidden",
]

[[launch]]
when = "dim % 4 != 0"
kernel = "project<1, 4>"
grid = ["ceil_div(pairs, 128)"]
block = [512]
shared = "4 * (128 * (channels + 4) + STAGES * 128 * 20)"
args = [
    "x", "mask", "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left",
    "right", "gate", "eps", "pairs", "length", "dim", "hidden",
]

[[launch]]
when = "fits"
kernel = "multiply_tiles"
grid = ["min(tiles, sm_count)"]
block = [512]
shared = "1024 + 4 * 49152"
args = ["left_tiles", "right_tiles", "left", "right", "t", "length", "tiles"]

[[launch]]
when = "not fits"
kernel = "multiply"
grid = ["tiles"]
block = [256]
shared = "4 * DEEP * 2 * 128 * 36"
args = ["left", "right", "t", "length"]

[[launch]]
when = "area % 4 == 0 and hidden % 4 == 0"
kernel = "finish<4>"
grid = ["ceil_div(pairs, 128)"]
block = [256]
shared = "4 * (terms * 136 + STAGES * 64 * 20)"
args = ["t", "gate", "out_norm_weight", "out_norm_bias", "out_weight", "y", "eps", "pairs", "length", "dim", "hidden"]

[[launch]]
when = "area % 4 != 0 or hidden % 4 != 0"
kernel = "finish<1>"
grid = ["ceil_div(pairs, 128)"]
block = [256]
shared = "4 * (terms * 136 + STAGES * 64 * 20)"
args = ["t", "gate", "out_norm_weight", "out_norm_bias", "out_weight", "y", "eps", "pairs", "length", "dim", "hidden"]
*/
// fp32 on tensor cores: each number is hi + lo, two of TF32, and lo hi + hi lo + hi hi make a product. Tensor cores cut off
// what sums lose, always towards zero, which adds up: each instruction's 8 terms are summed alone, and added with rounding.
// Three launches: the norm and five projections, whose results lie channel by channel; the products of pairs, a matrix
// product for every channel; the norm over channels, the gate and the last projection. A block of 4 DOWN warps computes
// 32 DOWN x 128 sums at a time, for 128 pairs, and a warp 32 x 32 of them.
constexpr int WIDE = 20;  // floats from one row of a weight's stage to the next: reads of fragments have no conflicts

__device__ __forceinline__ unsigned address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
// Copies V floats, of which the first `bytes` bytes exist; the others become zero.
template <int V> __device__ __forceinline__ void copy(float* to, const float* from, int bytes) {
    if (V == 4) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void wait_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

__device__ __forceinline__ void split(float x, unsigned& hi, unsigned& lo) {
    hi = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
    lo = __float_as_uint(x - __uint_as_float(hi));
}
__device__ __forceinline__ void first(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.f));
}
__device__ __forceinline__ void further(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// 8 terms of a warp's 16 TALL x 32 sums. `a` and `b` are the thread's first numbers; rows of a are A apart, its terms one, columns
// of b are `column` apart, its terms `term`.
template <int A, int TALL> __device__ __forceinline__ void multiply8(float (&sum)[TALL][4][4], const float* a, const float* b, int column, int term) {
    unsigned b_hi[4][2], b_lo[4][2];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int l = 0; l < 2; l++) split(b[8 * j * column + 4 * l * term], b_hi[j][l], b_lo[j][l]);
#pragma unroll
    for (int i = 0; i < TALL; i += 2) {
        unsigned a_hi[2][4], a_lo[2][4];
        float part[2][4][4];
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int l = 0; l < 4; l++) split(a[(16 * (i + h) + l % 2 * 8) * A + l / 2 * 4], a_hi[h][l], a_lo[h][l]);
#pragma unroll
        for (int e = 0; e < 8; e++) first(part[e / 4][e % 4], a_lo[e / 4], b_hi[e % 4]);
#pragma unroll
        for (int e = 0; e < 8; e++) further(part[e / 4][e % 4], a_hi[e / 4], b_lo[e % 4]);
#pragma unroll
        for (int e = 0; e < 8; e++) further(part[e / 4][e % 4], a_hi[e / 4], b_hi[e % 4]);
#pragma unroll
        for (int e = 0; e < 32; e++) sum[i + e / 16][e / 4 % 4][e % 4] += part[e / 16][e / 4 % 4][e % 4];
    }
}
// Whether a sum of the warp is not finite: infinity times lo = 0 is NaN, and plain products tell what it is.
template <int TALL> __device__ __forceinline__ bool lost(const float (&sum)[TALL][4][4]) {
    float bad = 0;
#pragma unroll
    for (int e = 0; e < 16 * TALL; e++) bad += sum[e / 16][e / 4 % 4][e % 4] * 0;
    return bad != 0;
}
__device__ __forceinline__ float sigmoid(float x) { return 1 / (1 + __expf(-x)); }

// Rows of `weight` that tile `tile` has: of the values and gates of the sides 16 rows each in turn, or all of the gate
// of the results.
template <int ROWS> struct Tiles {
    const float *left_weight, *right_weight, *left_gate, *right_gate, *out_gate;
    int hidden, sides;  // tiles of a side

    __device__ __forceinline__ const float* row(int tile, int r, int& channel) const {
        if (tile >= 2 * sides) {
            channel = (tile - 2 * sides) * ROWS + r;
            return out_gate;
        }
        const bool right = tile >= sides;
        channel = (tile - (right ? sides : 0)) * (ROWS / 2) + r / 32 * 16 + r % 16;
        return r / 16 % 2 ? (right ? right_gate : left_gate) : (right ? right_weight : left_weight);
    }
};

template <int V, int DOWN> __global__ void __launch_bounds__(128 * DOWN, 4 / DOWN) project(
    const float* x, const float* mask, const float* norm_weight, const float* norm_bias, const float* left_weight,
    const float* right_weight, const float* left_gate, const float* right_gate, const float* out_gate, float* left,
    float* right, float* gate, float eps, int pairs, int length, int dim, int hidden) {
    alignas(16) extern __shared__ float floats[];
    constexpr int ROWS = 32 * DOWN, THREADS = 128 * DOWN, PART = ROWS * WIDE, EACH = 32 / DOWN;
    const int channels = (dim + 15) / 16 * 16, across = channels + 4, steps = channels / 16;
    float *z = floats, *parts = floats + 128 * across;
    const int start = blockIdx.x * 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const Tiles<ROWS> of{left_weight, right_weight, left_gate, right_gate, out_gate, hidden, (hidden + ROWS / 2 - 1) / (ROWS / 2)};
    const int tiles = 2 * of.sides + (hidden + ROWS - 1) / ROWS, all = tiles * steps;

    for (int r = warp * EACH; r < warp * EACH + EACH; r++) {  // a warp copies the rows that it will normalize
        const bool there = start + r < pairs;
        const float* from = x + (long long)(there ? start + r : 0) * dim;
        for (int c = lane * V; c < channels; c += 32 * V) copy<V>(z + r * across + c, c < dim ? from + c : x, there && c < dim ? 4 * V : 0);
    }
    end_group();
    auto fetch = [&](int at) {  // the weights of 16 terms
        if (at < all) {
            const int tile = at / steps, k = at % steps * 16;
            float* to = parts + at % STAGES * PART;
#pragma unroll
            for (int e = 0; e < 4 / V; e++) {
                const int i = e * THREADS + threadIdx.x, r = i / (16 / V), c = i % (16 / V) * V;
                int channel;
                const float* weight = of.row(tile, r, channel);
                const bool there = channel < hidden && k + c < dim;
                copy<V>(to + r * WIDE + c, there ? weight + (long long)channel * dim + k + c : weight, there ? 4 * V : 0);
            }
        }
        end_group();
    };
    for (int at = 0; at < STAGES - 1; at++) fetch(at);
    wait_groups<STAGES - 1>();
    __syncwarp();
    for (int r = warp * EACH + lane / 8; r < warp * EACH + EACH; r += 4) {  // 8 lanes a row
        float* row = z + r * across;
        float sum = 0, squares = 0;
        for (int c = lane % 8 * 4; c < channels; c += 32) {
            const float4 v = *(const float4*)(row + c);
            sum += v.x + v.y + (v.z + v.w);
        }
        for (int s = 1; s < 8; s *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, s);
        const float mean = sum / dim;
        for (int c = lane % 8 * 4; c < channels; c += 32) {
            const float4 v = *(const float4*)(row + c);
            const float p = v.x - mean, q = c + 1 < dim ? v.y - mean : 0, u = c + 2 < dim ? v.z - mean : 0, w = c + 3 < dim ? v.w - mean : 0;
            if (c < dim) squares += p * p + q * q + (u * u + w * w);
        }
        for (int s = 1; s < 8; s *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, s);
        const float scale = 1 / sqrtf(squares / dim + eps);
        for (int c = lane % 8 * 4; c < channels; c += 32) {
            const float4 v = *(const float4*)(row + c);
            const float in[4] = {v.x, v.y, v.z, v.w};
            float out[4];
#pragma unroll
            for (int i = 0; i < 4; i++) out[i] = c + i < dim ? norm_weight[c + i] * ((in[i] - mean) * scale) + norm_bias[c + i] : 0;
            *(float4*)(row + c) = make_float4(out[0], out[1], out[2], out[3]);
        }
    }

    const int top = warp / 4 * 32, side = warp % 4 * 32;
    const float* mine = z + (side + g) * across + t;
    const int area = length * length, pitch = (length + 3) / 4 * 4;
    float sum[2][4][4] = {};
    for (int at = 0; at < all; at++) {
        wait_groups<STAGES - 2>();
        __syncthreads();
        fetch(at + STAGES - 1);
        const float* a = parts + at % STAGES * PART + (top + g) * WIDE + t;
        const float* b = mine + at % steps * 16;
        multiply8<WIDE>(sum, a, b, across, 1);
        multiply8<WIDE>(sum, a + 8, b + 8, across, 1);
        if (at % steps < steps - 1) continue;

        const int tile = at / steps;
        if (lost(sum))
#pragma unroll
            for (int e = 0; e < 32; e++) {
                float& v = sum[e / 16][e / 4 % 4][e % 4];
                int channel;
                const float* weight = of.row(tile, top + e / 16 * 16 + e / 2 % 2 * 8 + g, channel);
                if (v * 0 == 0 || channel >= hidden) continue;
                const float* row = z + (side + e / 4 % 4 * 8 + 2 * t + e % 2) * across;
                v = 0;
#pragma unroll 1
                for (int c = 0; c < dim; c++) v += row[c] * weight[(long long)channel * dim + c];
            }
        const bool sides = tile < 2 * of.sides;
        float* const out = !sides ? gate : tile >= of.sides ? right : left;
        const int first_channel = (sides ? tile % of.sides * (ROWS / 2) + top / 2 : (tile - 2 * of.sides) * ROWS + top) + g;
        const long long plane = sides ? (long long)length * pitch : area;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int p = start + side + j * 8 + 2 * t;
            const bool here = p < pairs, next = p + 1 < pairs;
            float kept[2] = {1, 1};
            long long to[2];
            int pads[2] = {0, 0};  // zeros behind the end of a row, which copies of 16 bytes read
#pragma unroll
            for (int c = 0; c < 2; c++) {
                const int q = min(p + c, pairs - 1), b = q / area, in = q - b * area, i = in / length;
                if (sides) kept[c] = mask[q];
                if (sides && in - i * length == length - 1) pads[c] = pitch - length;
                to[c] = (long long)b * hidden * plane + (sides ? (long long)i * pitch + (in - i * length) : in);
            }
            auto write = [&](int channel, float v, float w) {
                if (channel >= hidden) return;
                float* at_plane = out + channel * plane;
                if (length % 2 == 0) {  // then both lie together
                    if (here) *(float2*)(at_plane + to[0]) = make_float2(v, w);
                } else {
                    if (here) at_plane[to[0]] = v;
                    if (next) at_plane[to[1]] = w;
                }
                for (int e = 1; here && e <= pads[0]; e++) at_plane[to[0] + e] = 0;
                for (int e = 1; next && e <= pads[1]; e++) at_plane[to[1] + e] = 0;
            };
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (sides) {
                    const float(&v)[4] = sum[0][j];
                    const float(&w)[4] = sum[1][j];
                    write(first_channel + 8 * h, kept[0] * v[2 * h] * sigmoid(w[2 * h]), kept[1] * v[2 * h + 1] * sigmoid(w[2 * h + 1]));
                } else {
#pragma unroll
                    for (int i = 0; i < 2; i++) write(first_channel + 16 * i + 8 * h, sigmoid(sum[i][j][2 * h]), sigmoid(sum[i][j][2 * h + 1]));
                }
        }
#pragma unroll
        for (int e = 0; e < 32; e++) sum[e / 16][e / 4 % 4][e % 4] = 0;
    }
}

// The products of pairs by wgmma, which takes its first factor (left) from registers and the second (right) from shared
// memory. A block computes 128 x 128 sums at a time. Warp groups: two consumers, 64 rows of left each, which split them as
// they read; a converter, which splits right in shared memory; a producer. Sums of 32 terms are added with rounding.
typedef unsigned long long u64;
constexpr int STEP = 32, RING = 4;
constexpr int TILE_BYTES = 128 * STEP * 4;
constexpr int STAGE_BYTES = 3 * TILE_BYTES;  // right's hi and lo, left

__device__ __forceinline__ void init(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void wait(unsigned barrier, int parity) {
    for (int done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void fetch_tile(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
__device__ __forceinline__ float4 read4(unsigned from) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ float read1(unsigned from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ void write4(unsigned to, float4 v) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
// Rounded to 11 bits. What this makes of numbers that are not finite, or near it, comes out as no finite sum: see repair.
__device__ __forceinline__ float high(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); }
__device__ __forceinline__ float4 high(float4 v) { return make_float4(high(v.x), high(v.y), high(v.z), high(v.w)); }
__device__ __forceinline__ float4 less(float4 v, float4 w) { return make_float4(v.x - w.x, v.y - w.y, v.z - w.z, v.w - w.w); }

// K-major, 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ u64 tile_of(unsigned address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#define FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define SIXTEEN(I) FOUR(I), FOUR(I + 4), FOUR(I + 8), FOUR(I + 12)
__device__ __forceinline__ void multiply_by(float (&d)[64], const float (&r)[4], u64 s, int add) {  // 64 of left x 128 of right, 8 of k
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
        : "r"(__float_as_uint(r[0])), "r"(__float_as_uint(r[1])), "r"(__float_as_uint(r[2])), "r"(__float_as_uint(r[3])),
          "l"(s), "r"(add));
}

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* left_tiles, const CUtensorMap* right_tiles, const float* left, const float* right, float* t_planes,
    int length, int count) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[3 * RING];
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), split = full + 8 * RING, empty = split + 8 * RING;
    const int steps = (length + STEP - 1) / STEP, down = (length + 127) / 128;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < RING; stage++) {
            init(full + 8 * stage, 1);
            init(split + 8 * stage, 4);  // the converter's warps
            init(empty + 8 * stage, 8);  // the consumers'
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), lane = threadIdx.x % 32;  // uniform in a warp
    const int warp = threadIdx.x % 128 / 32;
    int stage = 0, parity = 0;
    if (group == 3) {  // the producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 384) {
            for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
                const int plane = tile / (down * down) * length, of_i = plane + tile / down % down * 128, of_j = plane + tile % down * 128;
                for (int step = 0; step < steps; step++) {
                    wait(empty + 8 * stage, parity ^ 1);  // the first round does not wait
                    const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
                    expect(ready, 2 * TILE_BYTES);
                    fetch_tile(to, right_tiles, step * STEP, of_j, ready);
                    fetch_tile(to + 2 * TILE_BYTES, left_tiles, step * STEP, of_i, ready);
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
            }
        }
    } else if (group == 2) {  // the converter
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        const int thread = threadIdx.x % 128;
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x)
            for (int step = 0; step < steps; step++) {
                const unsigned at = tiles + STAGE_BYTES * stage;
                wait(full + 8 * stage, parity);
#pragma unroll
                for (int half = 0; half < 2; half++) {  // element by element: the swizzle does not matter
                    float4 v[4];
                    const unsigned from = at + half * (TILE_BYTES / 2) + thread * 16;
#pragma unroll
                    for (int i = 0; i < 4; i++) v[i] = read4(from + i * 2048);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float4 hi = high(v[i]);
                        write4(from + i * 2048, hi);
                        write4(from + i * 2048 + TILE_BYTES, less(v[i], hi));
                    }
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what was written, wgmma will read
                __syncwarp();
                if (lane == 0) arrive(split + 8 * stage);
                if (++stage == RING) stage = 0, parity ^= 1;
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        float d[64];
#pragma unroll
        for (int i = 0; i < 64; i++) d[i] = 0;
        const int g = lane / 4, t = lane % 4;
        const unsigned mine = 2 * TILE_BYTES + (group * 64 + warp * 16 + g) * 128 + t * 4;  // rows g and g + 8 of the warp's 16
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
            const long long plane = tile / (down * down);
            const int of_i = tile / down % down * 128 + group * 64 + warp * 16 + g, of_j = tile % down * 128 + t * 2;
            float sum[64];
#pragma unroll
            for (int i = 0; i < 64; i++) sum[i] = 0;
            for (int step = 0; step < steps; step++) {
                const unsigned at = tiles + STAGE_BYTES * stage;
                const u64 s_hi = tile_of(at), s_lo = tile_of(at + TILE_BYTES);
                wait(full + 8 * stage, parity);
#pragma unroll
                for (int l = 0; l < STEP / 8; l++) {  // 8 of k: 32 bytes of rows
                    float x[4], hi[4], lo[4];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        x[i] = read1(at + mine + i % 2 * 1024 + ((2 * l + i / 2 ^ g) << 4));
                        hi[i] = high(x[i]);
                        lo[i] = x[i] - hi[i];
                    }
                    if (l == 0) wait(split + 8 * stage, parity);
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                    multiply_by(d, lo, s_hi + 2 * l, l);  // new sums every step
                    multiply_by(d, hi, s_lo + 2 * l, 1);
                    multiply_by(d, hi, s_hi + 2 * l, 1);
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    if (l < STEP / 8 - 1) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                }
                // An arrival alone does not order this thread's reads of left before TMA's next write there: the fence does.
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // the other group has work meanwhile
#pragma unroll
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
                __syncwarp();
                if (lane == 0) arrive(empty + 8 * stage);
                if (++stage == RING) stage = 0, parity ^= 1;
#pragma unroll
                for (int i = 0; i < 64; i++) sum[i] += d[i];
            }
            float bad = 0;
            float* to = t_planes + plane * length * length + (long long)of_i * length + of_j;
            asm volatile("" : "+l"(to));  // or all addresses would be computed before the loop, and kept
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (of_i + 8 * h < length) {
#pragma unroll
                    for (int j = 0; j < 16; j++)
                        if (of_j + 8 * j < length) {
                            const float v = sum[4 * j + 2 * h], w = sum[4 * j + 2 * h + 1];
                            *(float2*)(to + 8 * j) = make_float2(v, w);
                            bad += (v + w) * 0;  // NaN where not both are finite
                        }
                }
                to += 8ll * length;
            }
            // Infinity times lo = 0 is NaN: what did not come out finite is computed as a plain product has it.
            if (bad != 0)
#pragma unroll 1
                for (int e = 0; e < 64; e++) {
                    const int i = of_i + 8 * (e / 2 % 2), j = of_j + e / 4 * 8 + e % 2;
                    if (i >= length || j >= length) continue;
                    float* place = t_planes + plane * length * length + (long long)i * length + j;
                    if (*place * 0 == 0) continue;
                    const float *a = left + (plane * length + i) * length, *b = right + (plane * length + j) * length;
                    float plain = 0;
#pragma unroll 8
                    for (int l = 0; l < length; l++) plain += a[l] * b[l];
                    *place = plain;
                }
        }
    }
}

// For lengths that TMA cannot address, and short ones: of one channel the sums over k of left[i][k] right[j][k].
extern "C" __global__ void __launch_bounds__(256, 1) multiply(const float* left, const float* right, float* t_planes, int length) {
    alignas(16) extern __shared__ float stages[];
    constexpr int ACROSS = 36, FACTOR = 128 * ACROSS;
    const int down = (length + 127) / 128, tile = blockIdx.x % (down * down), pitch = (length + 3) / 4 * 4;
    const long long plane = blockIdx.x / (down * down);
    const int of_i = tile / down * 128, of_j = tile % down * 128, steps = (length + 31) / 32;
    const float *a = left + plane * length * pitch, *b = right + plane * length * pitch;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = threadIdx.x / 8, column = threadIdx.x % 8 * 4;

    auto fetch = [&](int step) {
        if (step < steps) {
            const int k = step * 32 + column, bytes = min(max(length - k, 0), 4) * 4;
            float* to = stages + step % DEEP * (2 * FACTOR) + row * ACROSS + column;
#pragma unroll
            for (int r = 0; r < 128; r += 32) {
                const int i = of_i + row + r, j = of_j + row + r;
                const int of_a = i < length ? bytes : 0, of_b = j < length ? bytes : 0;
                copy<4>(to + r * ACROSS, of_a ? a + (long long)i * pitch + k : a, of_a);
                copy<4>(to + FACTOR + r * ACROSS, of_b ? b + (long long)j * pitch + k : b, of_b);
            }
        }
        end_group();
    };
    for (int step = 0; step < DEEP - 1; step++) fetch(step);
    const int top = warp / 4 * 64, side = warp % 4 * 32;
    float sum[4][4][4] = {};
    for (int step = 0; step < steps; step++) {
        wait_groups<DEEP - 2>();
        __syncthreads();
        fetch(step + DEEP - 1);
        const float* of_a = stages + step % DEEP * (2 * FACTOR) + (top + g) * ACROSS + t;
        const float* of_b = stages + step % DEEP * (2 * FACTOR) + FACTOR + (side + g) * ACROSS + t;
#pragma unroll
        for (int l = 0; l < 32; l += 8) multiply8<ACROSS>(sum, of_a + l, of_b + l, ACROSS, 1);
    }
    if (lost(sum))
#pragma unroll
        for (int e = 0; e < 64; e++) {
            float& v = sum[e / 16][e / 4 % 4][e % 4];
            const int i = of_i + top + e / 16 * 16 + e / 2 % 2 * 8 + g, j = of_j + side + e / 4 % 4 * 8 + 2 * t + e % 2;
            if (v * 0 == 0 || i >= length || j >= length) continue;
            v = 0;
#pragma unroll 1
            for (int k = 0; k < length; k++) v += a[(long long)i * pitch + k] * b[(long long)j * pitch + k];
        }
    float* const out = t_planes + plane * length * length;
#pragma unroll
    for (int e = 0; e < 32; e++) {
        const int i = of_i + top + e / 8 * 16 + e % 2 * 8 + g, j = of_j + side + e / 2 % 4 * 8 + 2 * t;
        const float v = sum[e / 8][e / 2 % 4][e % 2 * 2], w = sum[e / 8][e / 2 % 4][e % 2 * 2 + 1];
        if (i >= length || j >= length) continue;
        float* to = out + (long long)i * length + j;
        if (length % 2 == 0) *(float2*)to = make_float2(v, w);
        else {
            to[0] = v;
            if (j + 1 < length) to[1] = w;
        }
    }
}

template <int V> __global__ void __launch_bounds__(256, 2) finish(
    const float* t_planes, const float* gate, const float* norm_weight, const float* norm_bias, const float* out_weight, float* y,
    float eps, int pairs, int length, int dim, int hidden) {
    alignas(16) extern __shared__ float floats[];
    __shared__ float both[2][128];
    constexpr int ACROSS = 136, PART = 64 * WIDE;
    const int terms = (hidden + 15) / 16 * 16, steps = terms / 16, area = length * length;
    float *u = floats, *parts = floats + terms * ACROSS;
    const int start = blockIdx.x * 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int all = (dim + 63) / 64 * steps;
    {
        const int p = start + threadIdx.x % (128 / V) * V, b = min(p, pairs - 1) / area;
        const float* from = t_planes + (long long)b * hidden * area + (p - b * area);
        for (int d = threadIdx.x / (128 / V); d < terms; d += 2 * V) {
            const bool there = p < pairs && d < hidden;
            copy<V>(u + d * ACROSS + threadIdx.x % (128 / V) * V, there ? from + (long long)d * area : t_planes, there ? 4 * V : 0);
        }
    }
    end_group();
    auto fetch = [&](int at) {  // the weights of 16 terms
        if (at < all) {
            const int tile = at / steps * 64, k = at % steps * 16;
            float* to = parts + at % STAGES * PART;
#pragma unroll
            for (int e = 0; e < 4 / V; e++) {
                const int i = e * 256 + threadIdx.x, r = i / (16 / V), c = i % (16 / V) * V;
                const bool there = tile + r < dim && k + c < hidden;
                copy<V>(to + r * WIDE + c, there ? out_weight + (long long)(tile + r) * hidden + k + c : out_weight, there ? 4 * V : 0);
            }
        }
        end_group();
    };
    for (int at = 0; at < STAGES - 1; at++) fetch(at);
    wait_groups<STAGES - 1>();
    __syncthreads();
    {
        // Two threads a pair, each with half of the channels.
        const int column = threadIdx.x % 128, half = threadIdx.x / 128, middle = (hidden + 1) / 2;
        const int from = half ? middle : 0, to = half ? hidden : middle;
        const int p = min(start + column, pairs - 1), b = p / area;
        const float* gates = gate + (long long)b * hidden * area + (p - b * area);
        float* mine = u + column;
        float sum = 0, squares = 0;
#pragma unroll 8
        for (int d = from; d < to; d++) sum += mine[d * ACROSS];
        both[half][column] = sum;
        __syncthreads();
        const float mean = (both[0][column] + both[1][column]) / hidden;
        __syncthreads();
#pragma unroll 8
        for (int d = from; d < to; d++) squares += (mine[d * ACROSS] - mean) * (mine[d * ACROSS] - mean);
        both[half][column] = squares;
        __syncthreads();
        const float scale = 1 / sqrtf((both[0][column] + both[1][column]) / hidden + eps);
#pragma unroll 8
        for (int d = from; d < to; d++)
            mine[d * ACROSS] = (norm_weight[d] * ((mine[d * ACROSS] - mean) * scale) + norm_bias[d]) * gates[(long long)d * area];
    }

    const int top = warp / 4 * 32, side = warp % 4 * 32;
    float sum[2][4][4] = {};
    for (int at = 0; at < all; at++) {
        wait_groups<STAGES - 2>();
        __syncthreads();
        fetch(at + STAGES - 1);
        const float* a = parts + at % STAGES * PART + (top + g) * WIDE + t;
        const float* b = u + (at % steps * 16 + t) * ACROSS + side + g;
        multiply8<WIDE>(sum, a, b, 1, ACROSS);
        multiply8<WIDE>(sum, a + 8, b + 8 * ACROSS, 1, ACROSS);
        if (at % steps < steps - 1) continue;

        const int row = at / steps * 64 + top + g;
        if (lost(sum))
#pragma unroll
            for (int e = 0; e < 32; e++) {
                float& v = sum[e / 16][e / 4 % 4][e % 4];
                const int c = row + e / 16 * 16 + e / 2 % 2 * 8;
                if (v * 0 == 0 || c >= dim) continue;
                const float* column = u + side + e / 4 % 4 * 8 + 2 * t + e % 2;
                v = 0;
#pragma unroll 1
                for (int d = 0; d < hidden; d++) v += column[d * ACROSS] * out_weight[(long long)c * hidden + d];
            }
#pragma unroll
        for (int e = 0; e < 32; e++) {
            const int c = row + e / 16 * 16 + e / 2 % 2 * 8, p = start + side + e / 4 % 4 * 8 + 2 * t + e % 2;
            if (c < dim && p < pairs) y[(long long)p * dim + c] = sum[e / 16][e / 4 % 4][e % 4];
            sum[e / 16][e / 4 % 4][e % 4] = 0;
        }
    }
}
