/*! evo
[tune]
STAGES = [2, 3]        # of 64 terms of the weights
DEEP = [3, 4]          # stages of 64 terms of the products of pairs

[let]
area = "length * length"
pairs = "batch * length * length"
channels = "64 * ceil_div(dim, 64)"
tiled = "1 if sizeof_T == 2 and length % 8 == 0 and dim % 8 == 0 and hidden % 8 == 0 and dim <= 384 and hidden <= 128 else 0"

swift = "1 if tiled == 1 and length >= 128 and hidden > 64 and (dim == 128 or dim == 384) else 0"  # the projections by wgmma
square = "1 if tiled == 1 and length >= 128 and 4 * length >= 3 * 256 * ceil_div(length, 256) else 0"  # the products by wgmma
kept = "0 if swift == 1 and dim == 128 else 1"  # whether gates of the output are stored, or made anew at the end
units = "batch * ceil_div(area, 256)"
squares = "batch * hidden * ceil_div(length, 256) * ceil_div(length, 256)"

[[buffer]]
name = "left"
dtype = "T"
shape = ["pairs * hidden if tiled == 1 else 1"]

[[buffer]]
name = "right"
dtype = "T"
shape = ["pairs * hidden if tiled == 1 else 1"]

[[buffer]]
name = "gate"
dtype = "T"
shape = ["pairs * hidden if tiled == 1 and kept == 1 else 1"]

[[buffer]]
name = "t"
dtype = "T"
shape = ["pairs * hidden if tiled == 1 else 1"]

[[buffer]]
name = "z_any"
dtype = "ACC"
shape = ["1 if tiled == 1 else pairs * dim"]

[[buffer]]
name = "left_any"
dtype = "ACC"
shape = ["1 if tiled == 1 else pairs * hidden"]

[[buffer]]
name = "right_any"
dtype = "ACC"
shape = ["1 if tiled == 1 else pairs * hidden"]

[[buffer]]
name = "gate_any"
dtype = "ACC"
shape = ["1 if tiled == 1 else pairs * hidden"]

[[buffer]]
name = "t_any"
dtype = "ACC"
shape = ["1 if tiled == 1 else pairs * hidden"]

[[tensor_map]]
name = "x_boxes"
tensor = "x"
shape = ["dim if swift == 1 else 1", "area if swift == 1 else 1", "batch if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16", "2 * dim * area if swift == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "left_weight_boxes"
tensor = "left_weight"
shape = ["dim if swift == 1 else 1", "hidden if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "right_weight_boxes"
tensor = "right_weight"
shape = ["dim if swift == 1 else 1", "hidden if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "left_gate_boxes"
tensor = "left_gate"
shape = ["dim if swift == 1 else 1", "hidden if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "right_gate_boxes"
tensor = "right_gate"
shape = ["dim if swift == 1 else 1", "hidden if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "out_gate_boxes"
tensor = "out_gate"
shape = ["dim if swift == 1 else 1", "hidden if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "left_boxes"
tensor = "left"
shape = ["area if swift == 1 else 1", "hidden if swift == 1 else 1", "batch if swift == 1 else 1"]
strides = ["2 * area if swift == 1 else 16", "2 * area * hidden if swift == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"

[[tensor_map]]
name = "right_boxes"
tensor = "right"
shape = ["area if swift == 1 else 1", "hidden if swift == 1 else 1", "batch if swift == 1 else 1"]
strides = ["2 * area if swift == 1 else 16", "2 * area * hidden if swift == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"

[[tensor_map]]
name = "gate_boxes"
tensor = "gate"
shape = ["area if swift == 1 and kept == 1 else 1", "hidden if swift == 1 and kept == 1 else 1", "batch if swift == 1 and kept == 1 else 1"]
strides = ["2 * area if swift == 1 and kept == 1 else 16", "2 * area * hidden if swift == 1 and kept == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"

[[tensor_map]]
name = "left_tiles"
tensor = "left"
shape = ["length if square == 1 else 1", "length if square == 1 else 1", "batch * hidden if square == 1 else 1"]
strides = ["2 * length if square == 1 else 16", "2 * area if square == 1 else 16"]
box = [64, 128, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "right_tiles"
tensor = "right"
shape = ["length if square == 1 else 1", "length if square == 1 else 1", "batch * hidden if square == 1 else 1"]
strides = ["2 * length if square == 1 else 16", "2 * area if square == 1 else 16"]
box = [64, 128, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "t_tiles"
tensor = "t"
shape = ["length if square == 1 else 1", "length if square == 1 else 1", "batch * hidden if square == 1 else 1"]
strides = ["2 * length if square == 1 else 16", "2 * area if square == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"

[[tensor_map]]
name = "t_boxes"
tensor = "t"
shape = ["area if swift == 1 else 1", "hidden if swift == 1 else 1", "batch if swift == 1 else 1"]
strides = ["2 * area if swift == 1 else 16", "2 * area * hidden if swift == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "out_weight_boxes"
tensor = "out_weight"
shape = ["hidden if swift == 1 else 1", "dim if swift == 1 else 1"]
strides = ["2 * hidden if swift == 1 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "y_boxes"
tensor = "y"
shape = ["dim if swift == 1 else 1", "area if swift == 1 else 1", "batch if swift == 1 else 1"]
strides = ["2 * dim if swift == 1 else 16", "2 * dim * area if swift == 1 else 16"]
box = [64, 64, 1]
swizzle = "128B"

[[launch]]
when = "swift == 1 and dim == 128"
kernel = "project_boxes<2, false>"
grid = ["2 * ceil_div(units, ceil_div(units, sm_count // 2))"]
block = [384]
cluster = [2]
shared = "1024 + 16384 * 8 + 8192 * 4 + 8192 * 4"
args = [
    "x_boxes", "left_weight_boxes", "right_weight_boxes", "left_gate_boxes", "right_gate_boxes", "out_gate_boxes", "left_boxes",
    "right_boxes", "gate_boxes", "mask", "norm_weight", "norm_bias", "eps", "batch", "area", "hidden",
]

[[launch]]
when = "swift == 1 and dim == 384"
kernel = "project_boxes<6, true>"
grid = ["2 * ceil_div(units, ceil_div(units, sm_count // 2))"]
block = [512]
cluster = [2]
shared = "1024 + 16384 * 6 + 8192 * 12 + 8192 * 4"
args = [
    "x_boxes", "left_weight_boxes", "right_weight_boxes", "left_gate_boxes", "right_gate_boxes", "out_gate_boxes", "left_boxes",
    "right_boxes", "gate_boxes", "mask", "norm_weight", "norm_bias", "eps", "batch", "area", "hidden",
]

[[launch]]
when = "tiled == 1 and swift != 1 and dim <= 128"
kernel = "project<1>"
grid = ["ceil_div(pairs, 128)"]
block = [256]
shared = "2 * 128 * (channels + 8) + STAGES * 18432 + 34816"
args = [
    "x", "mask", "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left",
    "right", "gate", "eps", "pairs", "length", "dim", "hidden",
]

[[launch]]
when = "tiled == 1 and swift != 1 and dim > 128"
kernel = "project<3>"
grid = ["ceil_div(pairs, 128)"]
block = [256]
shared = "2 * 128 * (channels + 8) + STAGES * 18432 + 34816"
args = [
    "x", "mask", "norm_weight", "norm_bias", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left",
    "right", "gate", "eps", "pairs", "length", "dim", "hidden",
]

[[launch]]
when = "square == 1"
kernel = "multiply_squares"
grid = ["2 * ceil_div(squares, ceil_div(squares, sm_count // 2))"]
block = [384]
cluster = [2]
shared = "1024 + 49152 * 4 + 32768"
overlap = true
args = ["left_tiles", "right_tiles", "t_tiles", "batch * hidden", "length"]

[[launch]]
when = "tiled == 1 and square != 1"
kernel = "multiply"
grid = ["ceil_div(length, 128) * ceil_div(length, 128) * batch * hidden"]
block = [256]
shared = "DEEP * 36864"
overlap = true
args = ["left", "right", "t", "length"]

[[launch]]
when = "swift == 1 and dim == 128"
kernel = "finish_boxes<2, 1>"
grid = ["min(batch * ceil_div(area, 128), sm_count)"]
block = [384]
shared = "1024 + 16384 * 4 + 8192 * 8 + 8192 * 4"
overlap = true
args = [
    "x_boxes", "out_gate_boxes", "gate_boxes", "t_boxes", "out_weight_boxes", "y_boxes", "norm_weight", "norm_bias",
    "out_norm_weight", "out_norm_bias", "eps", "batch", "area", "hidden",
]

[[launch]]
when = "swift == 1 and dim == 384"
kernel = "finish_boxes<0, 3>"
grid = ["min(batch * ceil_div(area, 128), sm_count)"]
block = [384]
shared = "1024 + 16384 * 6 + 8192 * 8 + 8192 * 4"
overlap = true
args = [
    "x_boxes", "out_gate_boxes", "gate_boxes", "t_boxes", "out_weight_boxes", "y_boxes", "norm_weight", "norm_bias",
    "out_norm_weight", "out_norm_bias", "eps", "batch", "area", "hidden",
]

[[launch]]
when = "tiled == 1 and swift != 1"
kernel = "finish"
grid = ["ceil_div(pairs, 128)"]
block = [256]
shared = "3 * 34816"
overlap = true
args = ["t", "gate", "out_norm_weight", "out_norm_bias", "out_weight", "y", "eps", "pairs", "length", "dim", "hidden"]

[[launch]]
when = "tiled != 1"
kernel = "normalize_any"
grid = ["ceil_div(pairs, 128)"]
block = [128]
args = ["x", "norm_weight", "norm_bias", "z_any", "eps", "pairs", "dim"]

[[launch]]
when = "tiled != 1"
kernel = "project_any"
grid = ["ceil_div(pairs * hidden, 128)"]
block = [128]
args = [
    "z_any", "mask", "left_weight", "right_weight", "left_gate", "right_gate", "out_gate", "left_any", "right_any", "gate_any",
    "pairs", "dim", "hidden",
]

[[launch]]
when = "tiled != 1"
kernel = "multiply_any"
grid = ["ceil_div(pairs * hidden, 128)"]
block = [128]
args = ["left_any", "right_any", "t_any", "pairs", "length", "hidden"]

[[launch]]
when = "tiled != 1"
kernel = "renormalize_any"
grid = ["ceil_div(pairs, 128)"]
block = [128]
args = ["t_any", "gate_any", "out_norm_weight", "out_norm_bias", "eps", "pairs", "hidden"]

[[launch]]
when = "tiled != 1"
kernel = "finish_any"
grid = ["ceil_div(pairs * dim, 128)"]
block = [128]
args = ["t_any", "out_weight", "y", "pairs", "dim", "hidden"]
*/
// Three launches: the norm and five projections, whose results lie channel by channel; the products of pairs, a matrix
// product for every channel; the norm over channels, the gate and the last projection. Everywhere a block computes 128 x 128
// sums on tensor cores, and a warp 64 x 32 of them. Between launches numbers are bf16, sums are fp32.
// Lengths or channels that 8 does not divide take plain kernels, at the end.
constexpr int WIDE = 72;     // numbers from one row of a stage to the next: ldmatrix has no conflicts
constexpr int ACROSS = 136;  // the same of a tile of 128 columns
constexpr int PART = 128 * WIDE;

__device__ __forceinline__ unsigned address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
// Copies 8 numbers, or zeros.
__device__ __forceinline__ void copy(unsigned to, const T* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void wait_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
__device__ __forceinline__ float low(unsigned both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high(unsigned both) { return __uint_as_float(both & 0xffff0000u); }
__device__ __forceinline__ void unpack(float (&v)[8], uint4 from) {
    v[0] = low(from.x), v[1] = high(from.x), v[2] = low(from.y), v[3] = high(from.y);
    v[4] = low(from.z), v[5] = high(from.z), v[6] = low(from.w), v[7] = high(from.w);
}
__device__ __forceinline__ float sigmoid(float v) {
    float e, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-1.4426950408889634f * v));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.f + e));
    return inverse;
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned (&r)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void add_product(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// 16 terms of a warp's 64 x 32 sums. `a` and `b` are where the lane's row of the first ldmatrix lies; rows of a are terms
// if TRANSPOSED, else rows of sums, as those of b are columns of sums. Rows are A and B bytes apart.
template <bool TRANSPOSED> __device__ __forceinline__ void multiply16(float (&sum)[4][4][4], unsigned a, int A, unsigned b, int B) {
    unsigned of_a[4][4], of_b[2][4];
#pragma unroll
    for (int j = 0; j < 2; j++) load_matrices(of_b[j], b + 16 * j * B);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (TRANSPOSED) load_transposed(of_a[i], a + 32 * i);
        else load_matrices(of_a[i], a + 16 * i * A);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) add_product(sum[i][j], of_a[i], of_b[j / 2][j % 2 * 2], of_b[j / 2][j % 2 * 2 + 1]);
}
// Where a lane's row lies in 16 x 16 numbers, by what ldmatrix makes of them.
__device__ __forceinline__ int a_row(int lane) { return lane % 16; }
__device__ __forceinline__ int a_column(int lane) { return lane / 16 * 8; }
__device__ __forceinline__ int b_row(int lane) { return lane / 16 * 8 + lane % 8; }
__device__ __forceinline__ int b_column(int lane) { return lane / 8 % 2 * 8; }

// Tiles of 128 rows of weights: of either side 64 channels, 16 rows of weights before 16 of gates, so that a thread has
// both sums; then those of the output's gate.
struct Tiles {
    const T *left_weight, *right_weight, *left_gate, *right_gate, *out_gate;
    int sides;  // tiles of a side

    __device__ __forceinline__ const T* row(int tile, int r, int& channel) const {
        if (tile >= 2 * sides) {
            channel = (tile - 2 * sides) * 128 + r;
            return out_gate;
        }
        const bool right = tile >= sides;
        channel = (tile - (right ? sides : 0)) * 64 + r / 32 * 16 + r % 16;
        return r / 16 % 2 ? (right ? right_gate : left_gate) : (right ? right_weight : left_weight);
    }
};

// BLOCKS: of 128 channels of x, at most.
template <int BLOCKS> __global__ void __launch_bounds__(256, BLOCKS == 1 ? 2 : 1) project(
    const T* x, const T* mask, const T* norm_weight, const T* norm_bias, const T* left_weight, const T* right_weight,
    const T* left_gate, const T* right_gate, const T* out_gate, T* left, T* right, T* gate, float eps, int pairs, int length,
    int dim, int hidden) {
    extern __shared__ __align__(16) T numbers[];
    __shared__ float kept[128];
    const int steps = (dim + 63) / 64, across = 64 * steps + 8;
    T *z = numbers, *parts = z + 128 * across, *results = parts + STAGES * PART;
    const int start = blockIdx.x * 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const Tiles of{left_weight, right_weight, left_gate, right_gate, out_gate, (hidden + 63) / 64};
    const int all = (2 * of.sides + 1) * steps, area = length * length;

    auto fetch = [&](int at) {  // 64 terms of 128 rows of weights
        if (at < all) {
            const int tile = at / steps, k = at % steps * 64 + threadIdx.x % 8 * 8;
            const unsigned to = address(parts + at % STAGES * PART + threadIdx.x % 8 * 8);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = e * 32 + threadIdx.x / 8;
                int channel;
                const T* weight = of.row(tile, r, channel);
                const bool there = channel < hidden && k < dim;
                copy(to + 2 * r * WIDE, there ? weight + (long long)channel * dim + k : weight, there);
            }
        }
        end_group();
    };
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    for (int at = 0; at < STAGES - 1; at++) fetch(at);
    if (threadIdx.x < 128) kept[threadIdx.x] = start + threadIdx.x < pairs ? load(mask[start + threadIdx.x]) : 0.f;

    {  // 16 lanes a row, 16 rows a warp
        const int c = lane % 16 * 8;
        uint4 weight[BLOCKS], bias[BLOCKS];
#pragma unroll
        for (int m = 0; m < BLOCKS; m++) {
            const bool there = c + 128 * m < dim;
            weight[m] = there ? *(const uint4*)(norm_weight + c + 128 * m) : make_uint4(0, 0, 0, 0);
            bias[m] = there ? *(const uint4*)(norm_bias + c + 128 * m) : make_uint4(0, 0, 0, 0);
        }
        constexpr int AT_ONCE = BLOCKS == 1 ? 8 : 2;
#pragma unroll 1
        for (int first = 0; first < 8; first += AT_ONCE) {
            uint4 in[AT_ONCE][BLOCKS];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int r = warp * 16 + (first + i) * 2 + lane / 16;
                const T* from = x + (long long)(start + r) * dim;
#pragma unroll
                for (int m = 0; m < BLOCKS; m++) {
                    const bool there = start + r < pairs && c + 128 * m < dim;
                    in[i][m] = there ? *(const uint4*)(from + c + 128 * m) : make_uint4(0, 0, 0, 0);
                }
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                T* to = z + (warp * 16 + (first + i) * 2 + lane / 16) * across;
                float v[BLOCKS][8], sum = 0, squares = 0;
#pragma unroll
                for (int m = 0; m < BLOCKS; m++) {
                    unpack(v[m], in[i][m]);
#pragma unroll
                    for (int e = 0; e < 8; e++) sum += v[m][e];
                }
#pragma unroll
                for (int s = 1; s < 16; s *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, s);
                const float mean = sum / dim;
#pragma unroll
                for (int m = 0; m < BLOCKS; m++)
                    if (c + 128 * m < dim)
#pragma unroll
                        for (int e = 0; e < 8; e++) squares += (v[m][e] - mean) * (v[m][e] - mean);
#pragma unroll
                for (int s = 1; s < 16; s *= 2) squares += __shfl_xor_sync(0xffffffffu, squares, s);
                const float scale = 1 / sqrtf(squares / dim + eps);
#pragma unroll
                for (int m = 0; m < BLOCKS; m++) {
                    float w[8], b[8];
                    unpack(w, weight[m]);
                    unpack(b, bias[m]);
#pragma unroll
                    for (int e = 0; e < 8; e++) v[m][e] = w[e] * ((v[m][e] - mean) * scale) + b[e];
                    const bool there = c + 128 * m < dim;  // what lies behind dim, up to 64 terms, is zero
                    if (c + 128 * m < 64 * steps)
                        *(uint4*)(to + c + 128 * m) =
                            there ? make_uint4(pack(v[m][0], v[m][1]), pack(v[m][2], v[m][3]), pack(v[m][4], v[m][5]), pack(v[m][6], v[m][7]))
                                  : make_uint4(0, 0, 0, 0);
                }
            }
        }
    }

    const int top = warp / 4 * 64, side = warp % 4 * 32;
    const unsigned of_z = address(z + (side + b_row(lane)) * across + b_column(lane));
    const unsigned of_w = address(parts + (top + a_row(lane)) * WIDE + a_column(lane));
    float sum[4][4][4] = {};
    for (int at = 0; at < all; at++) {
        wait_groups<STAGES - 2>();
        __syncthreads();
        fetch(at + STAGES - 1);
        const unsigned a = of_w + 2 * (at % STAGES) * PART, b = of_z + 2 * (at % steps * 64);
#pragma unroll
        for (int k = 0; k < 64; k += 16) multiply16<false>(sum, a + 2 * k, 2 * WIDE, b + 2 * k, 2 * across);
        if (at % steps < steps - 1) continue;

        const int tile = at / steps;
        const bool sides = tile < 2 * of.sides;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int p = side + j * 8 + 2 * t;
            const float keep[2] = {kept[p], kept[p + 1]};
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (sides) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        const float(&v)[4] = sum[2 * i][j];
                        const float(&w)[4] = sum[2 * i + 1][j];
                        *(unsigned*)(results + (top / 2 + 16 * i + 8 * h + g) * ACROSS + p) =
                            pack(keep[0] * v[2 * h] * sigmoid(w[2 * h]), keep[1] * v[2 * h + 1] * sigmoid(w[2 * h + 1]));
                    }
                } else {
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        *(unsigned*)(results + (top + 16 * i + 8 * h + g) * ACROSS + p) =
                            pack(sigmoid(sum[i][j][2 * h]), sigmoid(sum[i][j][2 * h + 1]));
                }
        }
#pragma unroll
        for (int e = 0; e < 64; e++) sum[e / 16][e / 4 % 4][e % 4] = 0;
        __syncthreads();
        T* const out = !sides ? gate : tile >= of.sides ? right : left;
        const int first_channel = sides ? tile % of.sides * 64 : 0, rows = sides ? 64 : 128;
        const int column = threadIdx.x % 16 * 8, p = start + column;
        if (p < pairs) {  // 8 pairs lie in one batch
            const int batch = p / area;
            T* const to = out + (long long)batch * hidden * area + (p - batch * area);
            for (int r = threadIdx.x / 16; r < rows && first_channel + r < hidden; r += 16)
                *(uint4*)(to + (long long)(first_channel + r) * area) = *(const uint4*)(results + r * ACROSS + column);
        }
    }
}

// Of one channel the sums over k of left[i][k] right[j][k].
extern "C" __global__ void __launch_bounds__(256, 2) multiply(const T* left, const T* right, T* t_planes, int length) {
    extern __shared__ __align__(16) T numbers[];
    const int down = (length + 127) / 128, tile = blockIdx.x % (down * down);
    // From the last plane on: those that were written last may still be in the cache.
    const long long plane = (long long)((gridDim.x - 1 - blockIdx.x) / (down * down)) * length * length;
    const int of_i = tile / down * 128, of_j = tile % down * 128, steps = (length + 63) / 64;
    const T *a = left + plane, *b = right + plane;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int row = threadIdx.x / 8, column = threadIdx.x % 8 * 8;

    auto fetch = [&](int step) {
        if (step < steps) {
            const int k = step * 64 + column;
            const unsigned to = address(numbers + step % DEEP * (2 * PART) + row * WIDE + column);
#pragma unroll
            for (int r = 0; r < 128; r += 32) {
                const int i = of_i + row + r, j = of_j + row + r;
                const bool of_a = i < length && k < length, of_b = j < length && k < length;
                copy(to + 2 * r * WIDE, of_a ? a + (long long)i * length + k : a, of_a);
                copy(to + 2 * (PART + r * WIDE), of_b ? b + (long long)j * length + k : b, of_b);
            }
        }
        end_group();
    };
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    cudaGridDependencySynchronize();
    for (int step = 0; step < DEEP - 1; step++) fetch(step);
    const int top = warp / 4 * 64, side = warp % 4 * 32;
    const unsigned first_a = address(numbers + (top + a_row(lane)) * WIDE + a_column(lane));
    const unsigned first_b = address(numbers + PART + (side + b_row(lane)) * WIDE + b_column(lane));
    float sum[4][4][4] = {};
    for (int step = 0; step < steps; step++) {
        wait_groups<DEEP - 2>();
        __syncthreads();
        fetch(step + DEEP - 1);
        const unsigned at = 2 * (step % DEEP) * (2 * PART);
#pragma unroll
        for (int k = 0; k < 64; k += 16) multiply16<false>(sum, first_a + at + 2 * k, 2 * WIDE, first_b + at + 2 * k, 2 * WIDE);
    }
    wait_groups<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(unsigned*)(numbers + (top + 16 * i + 8 * h + g) * ACROSS + side + 8 * j + 2 * t) =
                    pack(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
    __syncthreads();
    const int to_j = threadIdx.x % 16 * 8;
    if (of_j + to_j < length)
#pragma unroll
        for (int r = threadIdx.x / 16; r < 128; r += 16)
            if (of_i + r < length)
                *(uint4*)(t_planes + plane + (long long)(of_i + r) * length + of_j + to_j) =
                    *(const uint4*)(numbers + r * ACROSS + to_j);
}

extern "C" __global__ void __launch_bounds__(256, 2) finish(
    const T* t_planes, const T* gate, const T* norm_weight, const T* norm_bias, const T* out_weight, T* y, float eps, int pairs,
    int length, int dim, int hidden) {
    extern __shared__ __align__(16) T numbers[];
    T *u = numbers, *part = u + 128 * ACROSS, *results = part + 128 * ACROSS;
    float(*both)[128] = (float(*)[128])results;  // 16 parts of the sums of 128 pairs
    const int steps = (hidden + 15) / 16, area = length * length;
    const int start = blockIdx.x * 128, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int tiles = (dim + 127) / 128;

    auto fetch = [&](int tile) {  // the weights of 128 channels
        const int k = threadIdx.x % 16 * 8;
        const unsigned to = address(part + k);
        if (k < 16 * steps)
            for (int r = threadIdx.x / 16; r < 128; r += 16) {
                const bool there = tile * 128 + r < dim && k < hidden;
                copy(to + 2 * r * ACROSS, there ? out_weight + (long long)(tile * 128 + r) * hidden + k : out_weight, there);
            }
        end_group();
    };
    fetch(0);
    cudaGridDependencySynchronize();
    {  // A thread has 8 pairs of every 16th channel.
        const int column = threadIdx.x % 16 * 8, of = threadIdx.x / 16, p = start + column;
        const int batch = min(p, pairs - 1) / area;
        const long long from = (long long)batch * hidden * area + (p - batch * area);
        uint4 in[8], gates[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int d = of + 16 * e;
            in[e] = p < pairs && d < hidden ? *(const uint4*)(t_planes + from + (long long)d * area) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int d = of + 16 * e;
            gates[e] = p < pairs && d < hidden ? *(const uint4*)(gate + from + (long long)d * area) : make_uint4(0, 0, 0, 0);
        }
        float mean[8] = {}, scale[8] = {}, v[8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            unpack(v, in[e]);
#pragma unroll
            for (int i = 0; i < 8; i++) mean[i] += v[i];
        }
        *(float4*)(&both[of][column]) = make_float4(mean[0], mean[1], mean[2], mean[3]);
        *(float4*)(&both[of][column + 4]) = make_float4(mean[4], mean[5], mean[6], mean[7]);
        __syncthreads();
        if (threadIdx.x < 128) {
            float all = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) all += both[i][threadIdx.x];
            both[16][threadIdx.x] = all / hidden;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) mean[i] = both[16][column + i];
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (of + 16 * e < hidden) {
                unpack(v, in[e]);
#pragma unroll
                for (int i = 0; i < 8; i++) scale[i] += (v[i] - mean[i]) * (v[i] - mean[i]);
            }
        *(float4*)(&both[of][column]) = make_float4(scale[0], scale[1], scale[2], scale[3]);
        *(float4*)(&both[of][column + 4]) = make_float4(scale[4], scale[5], scale[6], scale[7]);
        __syncthreads();
        if (threadIdx.x < 128) {
            float all = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) all += both[i][threadIdx.x];
            both[17][threadIdx.x] = 1 / sqrtf(all / hidden + eps);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) scale[i] = both[17][column + i];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const int d = of + 16 * e;
            if (d >= 16 * steps) break;
            uint4 out = make_uint4(0, 0, 0, 0);
            if (d < hidden && p < pairs) {
                float gated[8];
                unpack(v, in[e]);
                unpack(gated, gates[e]);
                const float w = load(norm_weight[d]), b = load(norm_bias[d]);
#pragma unroll
                for (int i = 0; i < 8; i++) v[i] = (w * ((v[i] - mean[i]) * scale[i]) + b) * gated[i];
                out = make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
            }
            *(uint4*)(u + d * ACROSS + column) = out;
        }
    }

    const int top = warp / 4 * 64, side = warp % 4 * 32;
    const unsigned of_u = address(u + b_row(lane) * ACROSS + top + b_column(lane));
    const unsigned of_w = address(part + (side + b_row(lane)) * ACROSS + b_column(lane));
    for (int tile = 0; tile < tiles; tile++) {
        wait_groups<0>();
        __syncthreads();
        float sum[4][4][4] = {};
#pragma unroll 2
        for (int step = 0; step < steps; step++) multiply16<true>(sum, of_u + 32 * step * ACROSS, 0, of_w + 32 * step, 2 * ACROSS);
        __syncthreads();
        if (tile + 1 < tiles) fetch(tile + 1);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *(unsigned*)(results + (top + 16 * i + 8 * h + g) * ACROSS + side + 8 * j + 2 * t) =
                        pack(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
        __syncthreads();
        const int c = tile * 128 + threadIdx.x % 16 * 8;
        if (c < dim)
#pragma unroll
            for (int r = threadIdx.x / 16; r < 128; r += 16)
                if (start + r < pairs)
                    *(uint4*)(y + (long long)(start + r) * dim + c) = *(const uint4*)(results + r * ACROSS + threadIdx.x % 16 * 8);
    }
}

// --- wgmma and TMA ----------------------------------------------------------------------------------------------------
// Blocks of two consumer warp groups and a producer, in clusters of two, which fetch halves of what both need.
typedef unsigned long long u64;
constexpr int BOX = 64 * 64 * 2;  // 8192 bytes: 64 rows of 128 bytes, with the 128-byte swizzle

__device__ __forceinline__ void init(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ unsigned address_in(unsigned barrier, int rank) {  // the same barrier in a block of the cluster
    unsigned at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(barrier), "r"(rank));
    return at;
}
__device__ __forceinline__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// No release at cluster scope, which costs a memory fence beyond the block in each step: what was read before, wgmma
// has read, and wgmma.wait_group has waited for it; nothing was written that the other block is to see.
__device__ __forceinline__ void arrive_at(unsigned remote) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
// Tells that this warp has read a box, which TMA may then overwrite. An arrival alone does not order reads of the generic
// proxy before writes of the async one: ldmatrix may still be under way when it is seen. The fence of every lane does.
__device__ __forceinline__ void release(unsigned barrier, int lane) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0) arrive(barrier);
}
__device__ __forceinline__ void wait(unsigned barrier, int parity) {
    for (int done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, int z, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier) : "memory");
}
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
__device__ __forceinline__ void fetch_for_both(unsigned to, const CUtensorMap* map, int x, int y, int z, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"((unsigned short)3) : "memory");
}
__device__ __forceinline__ void fetch_for_both(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"((unsigned short)3) : "memory");
}
__device__ __forceinline__ void put(const CUtensorMap* map, int x, int y, int z, unsigned from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
                 ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}
__device__ __forceinline__ void prefetch(const CUtensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// What the launches before have stored, by whichever proxy, TMA may read.
__device__ __forceinline__ void wait_for_launches() {
    cudaGridDependencySynchronize();
    asm volatile("fence.proxy.async.global;" ::: "memory");
}
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// K-major, 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ u64 tile_at(unsigned address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define SIXTEEN(I) FOUR(I), FOUR(I + 4), FOUR(I + 8), FOUR(I + 12)
__device__ __forceinline__ void add_tiles(float (&d)[128], u64 a, u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %130, 0; "
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, p, 1, 1, 0, 0; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void add_rows(float (&d)[64], const unsigned (&a)[4], u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, p, 1, 1, 0; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
__device__ __forceinline__ void store_matrices(unsigned to, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}
__device__ __forceinline__ void store_transposed(unsigned to, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

// A warp's 16 rows of 16 COUNT numbers, as factors of mma: rows g and g + 8, of 16 terms: g, g + 8, g and g + 8 of the later 8.
// Finds the means of the first `terms` of each, the others being zero, and the factors that make their variance one.
template <int COUNT> __device__ __forceinline__ void statistics(
    const unsigned (&a)[COUNT][4], int terms, float eps, float& mean, float& mean8, float& scale, float& scale8) {
    mean = mean8 = scale = scale8 = 0;
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        mean += low(a[k][0]) + high(a[k][0]) + (low(a[k][2]) + high(a[k][2]));
        mean8 += low(a[k][1]) + high(a[k][1]) + (low(a[k][3]) + high(a[k][3]));
    }
#pragma unroll
    for (int s = 1; s < 4; s *= 2) {
        mean += __shfl_xor_sync(0xffffffffu, mean, s);
        mean8 += __shfl_xor_sync(0xffffffffu, mean8, s);
    }
    mean /= terms;
    mean8 /= terms;
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
        for (int h = 0; h < 4; h += 2) {
            if (k * 16 + h * 4 >= terms) continue;
            const float v = low(a[k][h]) - mean, w = high(a[k][h]) - mean;
            const float v8 = low(a[k][h + 1]) - mean8, w8 = high(a[k][h + 1]) - mean8;
            scale += v * v + w * w;
            scale8 += v8 * v8 + w8 * w8;
        }
#pragma unroll
    for (int s = 1; s < 4; s *= 2) {
        scale += __shfl_xor_sync(0xffffffffu, scale, s);
        scale8 += __shfl_xor_sync(0xffffffffu, scale8, s);
    }
    scale = 1 / sqrtf(scale / terms + eps);
    scale8 = 1 / sqrtf(scale8 / terms + eps);
}
// `norm`: weights and biases of columns, in twos.
template <int COUNT> __device__ __forceinline__ void normalize(unsigned (&a)[COUNT][4], const unsigned (&norm)[2][COUNT * 8], float eps, int t) {
    float mean, mean8, scale, scale8;
    statistics(a, 16 * COUNT, eps, mean, mean8, scale, scale8);
#pragma unroll
    for (int k = 0; k < COUNT; k++)
#pragma unroll
        for (int h = 0; h < 4; h += 2) {
            const unsigned w = norm[0][k * 8 + h * 2 + t], b = norm[1][k * 8 + h * 2 + t];
            a[k][h] = pack(low(w) * ((low(a[k][h]) - mean) * scale) + low(b), high(w) * ((high(a[k][h]) - mean) * scale) + high(b));
            a[k][h + 1] = pack(low(w) * ((low(a[k][h + 1]) - mean8) * scale8) + low(b),
                               high(w) * ((high(a[k][h + 1]) - mean8) * scale8) + high(b));
        }
}

__device__ __forceinline__ uint4 load_shared(unsigned from) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ void store_shared(unsigned to, uint4 v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// The norm of row r of boxes, in place, by 16 lanes, which take 8 numbers of every 128.
template <int CHUNKS> __device__ __forceinline__ void normalize_row(
    unsigned row, int r, const unsigned (&norm)[2][CHUNKS * 32], float eps, int lane) {
    constexpr int COUNT = CHUNKS / 2;
    const unsigned at = row + lane / 8 * BOX + ((lane % 8 ^ (r & 7)) << 4);
    uint4 in[COUNT];
    float v[8], mean = 0, scale = 0;
#pragma unroll
    for (int m = 0; m < COUNT; m++) {
        in[m] = load_shared(at + 2 * m * BOX);
        unpack(v, in[m]);
#pragma unroll
        for (int e = 0; e < 8; e++) mean += v[e];
    }
#pragma unroll
    for (int s = 1; s < 16; s *= 2) mean += __shfl_xor_sync(0xffffffffu, mean, s);
    mean /= 64 * CHUNKS;
#pragma unroll
    for (int m = 0; m < COUNT; m++) {
        unpack(v, in[m]);
#pragma unroll
        for (int e = 0; e < 8; e++) scale += (v[e] - mean) * (v[e] - mean);
    }
#pragma unroll
    for (int s = 1; s < 16; s *= 2) scale += __shfl_xor_sync(0xffffffffu, scale, s);
    scale = 1 / sqrtf(scale / (64 * CHUNKS) + eps);
#pragma unroll
    for (int m = 0; m < COUNT; m++) {
        float w[8], b[8];
        unpack(v, in[m]);
        unpack(w, *(const uint4*)&norm[0][64 * m + 4 * lane]);
        unpack(b, *(const uint4*)&norm[1][64 * m + 4 * lane]);
#pragma unroll
        for (int e = 0; e < 8; e++) v[e] = w[e] * ((v[e] - mean) * scale) + b[e];
        store_shared(at + 2 * m * BOX, make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7])));
    }
}

// The norm and the projections of 256 pairs by a cluster at a time, 64 by a warp group, which keeps them normalized in
// registers, as factors of wgmma. CHUNKS: of 64 channels of x. GATE: with the output's gate. A stage holds a chunk of 128 rows of weights: of 64 channels
// of a side and of their gates, or of the output's gate. If there is room for all of the weights, they come once; if not, the
// consumers would wait for each other while they normalize, and a warp group of its own does it ahead, in shared memory.
template <int CHUNKS, bool GATE> __global__ void __launch_bounds__(CHUNKS <= 2 ? 384 : 512, 1) project_boxes(
    const CUtensorMap* x_boxes, const CUtensorMap* left_weight, const CUtensorMap* right_weight, const CUtensorMap* left_gate,
    const CUtensorMap* right_gate, const CUtensorMap* out_gate, const CUtensorMap* left, const CUtensorMap* right,
    const CUtensorMap* gate, const T* mask, const T* norm_weight, const T* norm_bias, float eps, int batch, int area, int hidden) {
    constexpr bool ONCE = CHUNKS <= 2;
    constexpr int DEPTH = ONCE ? (GATE ? 5 : 4) * CHUNKS : 6, STAGE = 2 * BOX;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * DEPTH + 6];
    __shared__ alignas(16) unsigned norm[2][CHUNKS * 32];  // weights and biases, in twos
    const unsigned stages = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned rows = stages + DEPTH * STAGE, out = rows + 2 * CHUNKS * BOX;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), empty = full + 8 * DEPTH;
    const unsigned rows_full = empty + 8 * DEPTH, rows_empty = rows_full + 16;  // one of each warp group
    const unsigned normalized = rows_empty + 16;
    const int sides = (hidden + 63) / 64, parts = 2 * sides + GATE, in_one = (area + 255) / 256, units = batch * in_one;
    const int clusters = gridDim.x / 2, first_unit = blockIdx.x / 2;
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));

    if (threadIdx.x == 256) {
        prefetch(rank == 0 ? left_weight : left_gate);
        prefetch(rank == 0 ? right_weight : right_gate);
    }
    if (threadIdx.x == 288) prefetch(x_boxes);
    for (int i = threadIdx.x; i < CHUNKS * 32; i += blockDim.x) {
        norm[0][i] = ((const unsigned*)norm_weight)[i];
        norm[1][i] = ((const unsigned*)norm_bias)[i];
    }
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < DEPTH; stage++) {
            init(full + 8 * stage, 1);
            init(empty + 8 * stage, 16);  // 8 warps of each of the two blocks
        }
        for (int group = 0; group < 2; group++) {
            init(rows_full + 8 * group, 1);
            init(rows_empty + 8 * group, 4);  // its warps
            init(normalized + 8 * group, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    cluster_barrier();
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), lane = threadIdx.x % 32;  // uniform in a warp
    if (!ONCE && group == 3) {  // normalizes rows in place, 16 lanes a row
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        int parity = 0;
        for (int unit = first_unit; unit < units; unit += clusters, parity ^= 1)
            for (int of = 0; of < 2; of++) {
                wait(rows_full + 8 * of, parity);
                for (int r = threadIdx.x % 128 / 16; r < 64; r += 8)
                    normalize_row<CHUNKS>(rows + of * CHUNKS * BOX + r * 128, r, norm, eps, lane % 16);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // TMA will write there
                __syncwarp();
                if (lane == 0) arrive(normalized + 8 * of);
            }
    } else if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 256) {  // fetches weights
            int stage = 0, parity = 1;  // the first round does not wait
            for (int unit = first_unit; unit < (ONCE ? first_unit + 1 : units); unit += clusters)
                for (int part = 0; part < parts; part++) {
                    const bool is_right = part % 2 == 1;
                    const CUtensorMap* map = part == 2 * sides ? out_gate
                        : rank == 0 ? is_right ? right_weight : left_weight : is_right ? right_gate : left_gate;
                    const int channel = (part == 2 * sides ? rank : part / 2) * 64;
                    for (int chunk = 0; chunk < CHUNKS; chunk++) {
                        if (!ONCE) wait(empty + 8 * stage, parity);  // empty in both blocks
                        expect(full + 8 * stage, STAGE);
                        fetch_for_both(stages + STAGE * stage + BOX * rank, map, 64 * chunk, channel, full + 8 * stage);
                        if (++stage == DEPTH) stage = 0, parity ^= 1;
                    }
                }
        } else if (threadIdx.x == 288) {  // fetches x
            int parity = 1;
            for (int unit = first_unit; unit < units; unit += clusters, parity ^= 1)
                for (int of = 0; of < 2; of++) {
                    const int first = unit % in_one * 256 + 128 * rank + 64 * of;
                    wait(rows_empty + 8 * of, parity);
                    expect(rows_full + 8 * of, CHUNKS * BOX);
                    for (int chunk = 0; chunk < CHUNKS; chunk++)
                        fetch(rows + (of * CHUNKS + chunk) * BOX, x_boxes, 64 * chunk, first, unit / in_one, rows_full + 8 * of);
                }
        }
    } else {
        if (ONCE) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        else asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        const unsigned remote_empty = address_in(empty, lane & 1);  // lane 0 tells block 0, lane 1 block 1
        const int warp = threadIdx.x % 128 / 32, g = lane / 4, t = lane % 4;
        const bool leader = threadIdx.x % 128 == 0;
        const int row = warp * 16 + lane % 16;  // whose address this lane gives to ldmatrix
        const unsigned own_row = rows + group * CHUNKS * BOX + row * 128;
        const unsigned own_boxes = out + group * 2 * BOX;
        const int box_row = lane / 16 * 8 + lane % 8, box_column = warp * 2 + lane / 8 % 2;  // to stmatrix
        auto to_box = [&](unsigned box, int j) {  // of 16 channels
            const int r = j * 16 + box_row;
            return box + r * 128 + ((box_column ^ (r & 7)) << 4);
        };
        int stage = 0, parity = 0, of_rows = 0, turn = 0;
        if (ONCE)
            for (int i = 0; i < parts * CHUNKS; i++) wait(full + 8 * i, 0);
        for (int unit = first_unit; unit < units; unit += clusters) {
            const int z = unit / in_one, first = unit % in_one * 256 + 128 * rank + 64 * group, p = first + warp * 16 + g;
            const float keep = p < area ? load(mask[(long long)z * area + p]) : 0.f;
            const float keep8 = p + 8 < area ? load(mask[(long long)z * area + p + 8]) : 0.f;
            unsigned a[4 * CHUNKS][4];
            wait((ONCE ? rows_full : normalized) + 8 * group, of_rows);
            of_rows ^= 1;
#pragma unroll
            for (int k = 0; k < 4 * CHUNKS; k++)
                load_matrices(a[k], own_row + k / 4 * BOX + (((k % 4 * 2 + lane / 16) ^ (row & 7)) << 4));
            release(rows_empty + 8 * group, lane);
            if constexpr (ONCE) normalize(a, norm, eps, t);

            auto multiply_part = [&](int part, float (&d)[64]) {  // leaves the last wgmma under way
                int previous = 0;
                if (ONCE) stage = part * CHUNKS;
#pragma unroll
                for (int chunk = 0; chunk < CHUNKS; chunk++) {
                    if (!ONCE) wait(full + 8 * stage, parity);
                    const u64 weights = tile_at(stages + STAGE * stage);
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                    for (int k = 0; k < 4; k++)  // 32 bytes along the rows
                        add_rows(d, a[4 * chunk + k], weights + 2 * k, chunk | k);
                    if (!ONCE || chunk == CHUNKS - 1) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                    if (!ONCE) {
                        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                        if (chunk > 0 && lane < 2) arrive_at(remote_empty + 8 * previous);
                    }
                    previous = stage;
                    if (++stage == DEPTH) stage = 0, parity ^= 1;
                }
                if (!ONCE) {
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                    if (lane < 2) arrive_at(remote_empty + 8 * previous);
                }
            };
            auto begin_box = [&]() {
                if (leader) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // of the box before the last
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                return own_boxes + turn * BOX;
            };
            auto end_box = [&](const CUtensorMap* map, int channel) {
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                if (leader) {
                    put(map, first, channel, z, own_boxes + turn * BOX);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
                turn ^= 1;
            };
            auto finish_side = [&](int part, float (&d)[64]) {
#pragma unroll
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
                unsigned r[4][4];
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const float *v = d + 4 * i, *w = v + 32;
                    r[i / 2][i % 2 * 2] = pack(keep * v[0] * sigmoid(w[0]), keep * v[1] * sigmoid(w[1]));
                    r[i / 2][i % 2 * 2 + 1] = pack(keep8 * v[2] * sigmoid(w[2]), keep8 * v[3] * sigmoid(w[3]));
                }
                const unsigned box = begin_box();
#pragma unroll
                for (int j = 0; j < 4; j++) store_transposed(to_box(box, j), r[j][0], r[j][1], r[j][2], r[j][3]);
                end_box(part % 2 ? right : left, part / 2 * 64);
            };
            auto finish_gate = [&](float (&d)[64]) {
#pragma unroll
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    if (64 * half >= hidden) break;
                    unsigned r[4][4];
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        const float* v = d + 32 * half + 4 * i;
                        r[i / 2][i % 2 * 2] = pack(sigmoid(v[0]), sigmoid(v[1]));
                        r[i / 2][i % 2 * 2 + 1] = pack(sigmoid(v[2]), sigmoid(v[3]));
                    }
                    const unsigned box = begin_box();
#pragma unroll
                    for (int j = 0; j < 4; j++) store_transposed(to_box(box, j), r[j][0], r[j][1], r[j][2], r[j][3]);
                    end_box(gate, 64 * half);
                }
            };
            if constexpr (ONCE) {  // the next part's sums are made while those of this one are finished
                float d[64], e[64];
#pragma unroll
                for (int i = 0; i < 64; i++) d[i] = e[i] = 0;
                multiply_part(0, d);
#pragma unroll
                for (int part = 0; part < 4; part += 2) {
                    multiply_part(part + 1, e);
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    finish_side(part, d);
                    if (GATE || part < 2) {
                        multiply_part(part + 2, d);
                        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    } else {
                        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                    }
                    finish_side(part + 1, e);
                }
                if (GATE) {
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                    finish_gate(d);
                }
            } else {
                float d[64];
#pragma unroll
                for (int i = 0; i < 64; i++) d[i] = 0;
#pragma unroll 1
                for (int part = 0; part < 2 * sides; part++) {
                    multiply_part(part, d);
                    finish_side(part, d);
                }
                if (GATE) {
                    multiply_part(2 * sides, d);
                    finish_gate(d);
                }
            }
        }
        if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    cluster_barrier();  // no block leaves while the other may still write to it
}

// 64 columns of a warp group's sums, as bf16, into a box.
template <int QUARTER> __device__ __forceinline__ void stage_quarter(const float (&d)[128], unsigned box, int box_row, int lane) {
#pragma unroll
    for (int part = 0; part < 4; part++) {  // 16 columns
        const int at = QUARTER * 32 + part * 8;
        store_matrices(box + box_row * 128 + (((part * 2 + lane / 16) ^ (box_row & 7)) << 4), pack(d[at], d[at + 1]),
                       pack(d[at + 2], d[at + 3]), pack(d[at + 4], d[at + 5]), pack(d[at + 6], d[at + 7]));
    }
}

// Of a channel 256 x 256 sums over k of left[i][k] right[j][k] by a cluster at a time, 128 x 256 by a block. From the
// last plane on: those that were written last may still be in the cache.
extern "C" __global__ void __launch_bounds__(384, 1) multiply_squares(
    const CUtensorMap* left, const CUtensorMap* right, const CUtensorMap* t_planes, int planes, int length) {
    constexpr int DEPTH = 4, FACTOR = 2 * BOX, STAGE = 3 * FACTOR;  // 128 rows of left, 256 of right
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * DEPTH];
    const unsigned stages = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned out = stages + DEPTH * STAGE;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), empty = full + 8 * DEPTH;
    const int steps = (length + 63) / 64, down = (length + 255) / 256, in_one = down * down, squares = planes * in_one;
    const int clusters = gridDim.x / 2, first_square = blockIdx.x / 2;
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));

    if (threadIdx.x == 256) {
        prefetch(left);
        prefetch(right);
        prefetch(t_planes);
    }
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < DEPTH; stage++) {
            init(full + 8 * stage, 1);
            init(empty + 8 * stage, 16);  // 8 warps of each of the two blocks
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    cluster_barrier();
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    wait_for_launches();

    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), lane = threadIdx.x % 32;  // uniform in a warp
    if (group == 2) {  // the producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            int stage = 0, parity = 1;  // the first round does not wait
            for (int square = first_square; square < squares; square += clusters) {
                const int z = planes - 1 - square / in_one, i = square % in_one / down * 256 + 128 * rank, j = square % down * 256 + 128 * rank;
                for (int step = 0; step < steps; step++) {
                    wait(empty + 8 * stage, parity);  // empty in both blocks
                    const unsigned to = stages + STAGE * stage, ready = full + 8 * stage;
                    expect(ready, STAGE);
                    fetch(to, left, step * 64, i, z, ready);
                    fetch_for_both(to + FACTOR + FACTOR * rank, right, step * 64, j, z, ready);
                    if (++stage == DEPTH) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[128];
#pragma unroll
        for (int i = 0; i < 128; i++) d[i] = 0;
        const unsigned remote_empty = address_in(empty, lane & 1);  // lane 0 tells block 0, lane 1 block 1
        const int warp = threadIdx.x % 128 / 32;
        const bool leader = threadIdx.x % 128 == 0;
        const unsigned boxes = out + group * 2 * BOX;
        const int box_row = warp * 16 + lane % 16;  // whose address this lane gives to stmatrix
        int stage = 0, parity = 0, held = -1;  // held: the stage lent to the output of the square before
        const int give_back = min(1, steps - 1);
        for (int square = first_square; square < squares; square += clusters) {
            const int z = planes - 1 - square / in_one, i = square % in_one / down * 256 + 128 * rank + 64 * group, j = square % down * 256;
            int previous = 0;
            for (int step = 0; step < steps; step++) {
                wait(full + 8 * stage, parity);
                const unsigned at = stages + STAGE * stage;
                const u64 a = tile_at(at + group * BOX), b = tile_at(at + FACTOR);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int part = 0; part < 4; part++)  // 32 bytes along the rows of both
                    add_tiles(d, a + 2 * part, b + 2 * part, step | part);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (step > 0 && lane < 2) arrive_at(remote_empty + 8 * previous);
                if (step == give_back && held >= 0 && leader) {  // for its warp, to both blocks
                    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // the lent stage has been read
                    arrive_at(remote_empty + 8 * held);  // the leader is a lane 0: block 0
                    arrive_at(address_in(empty, 1) + 8 * held);
                }
                previous = stage;
                if (++stage == DEPTH) stage = 0, parity ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int e = 0; e < 128; e++) asm volatile("" : "+f"(d[e])::"memory");
            // The last stage is lent to the output: the arrivals of the two leaders' warps are put off until it has been
            // read, in the next square. So all of the sums find room at once and nobody waits for stores.
            if (warp != 0 && lane < 2) arrive_at(remote_empty + 8 * previous);
            held = previous;
            const unsigned lent = stages + STAGE * previous;
            const unsigned box0 = lent + group * BOX;           // this group's own half of left's rows
            const unsigned box1 = lent + FACTOR + group * BOX;  // in right's rows, which both groups read
            asm volatile("bar.arrive %0, 256;" ::"r"(4 - group) : "memory");  // to the other group: done with right's rows
            if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // of the square before
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            stage_quarter<0>(d, box0, box_row, lane);
            asm volatile("bar.sync %0, 256;" ::"r"(3 + group) : "memory");  // the other group is done with right's rows
            stage_quarter<1>(d, box1, box_row, lane);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            if (leader) {
                put(t_planes, j, i, z, box0);
                put(t_planes, j + 64, i, z, box1);
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
            stage_quarter<2>(d, boxes, box_row, lane);
            stage_quarter<3>(d, boxes + BOX, box_row, lane);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            if (leader) {
                put(t_planes, j + 128, i, z, boxes);
                put(t_planes, j + 192, i, z, boxes + BOX);
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
            // With fewer steps than stages no lent stage keeps one group from running a square ahead of the other.
            if (steps < DEPTH) asm volatile("bar.sync 5, 256;" ::: "memory");
        }
        if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    cluster_barrier();  // no block leaves while the other may still write to it
}


// The end of the update, of 64 pairs by a warp group at a time. Channels of a pair lie in registers from the norm of t to the
// last product, whose factors they are. CHUNKS: of 64 channels of x, of which the output's gate is made; 0: it is read.
// PARTS: of 128 channels of y. All weights stay in shared memory.
template <int CHUNKS, int PARTS> __global__ void __launch_bounds__(384, 1) finish_boxes(
    const CUtensorMap* x_boxes, const CUtensorMap* out_gate, const CUtensorMap* gate, const CUtensorMap* t_boxes,
    const CUtensorMap* out_weight, const CUtensorMap* y_boxes, const T* norm_weight, const T* norm_bias,
    const T* out_norm_weight, const T* out_norm_bias, float eps, int batch, int area, int hidden) {
    constexpr bool READ = CHUNKS == 0;
    constexpr int WEIGHTS = CHUNKS + 2 * PARTS, STAGE = 2 * BOX;  // stages of 128 rows of weights, 64 terms each
    constexpr int WITH = READ ? 2 : CHUNKS;                       // boxes of gates or of x
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[9];
    __shared__ unsigned norm[2][READ ? 1 : CHUNKS * 32], out_norm[2][64];  // weights and biases, in twos
    const unsigned stages = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned rows = stages + WEIGHTS * STAGE, planes = rows + 2 * WITH * BOX, out = planes + 4 * BOX;
    const unsigned ready = (unsigned)__cvta_generic_to_shared(barriers);
    const unsigned rows_full = ready + 8, rows_empty = rows_full + 16, t_full = rows_empty + 16, t_empty = t_full + 16;
    const int in_one = (area + 63) / 64, units = batch * in_one;

    if (!READ)
        for (int i = threadIdx.x; i < CHUNKS * 32; i += 384) {
            norm[0][i] = ((const unsigned*)norm_weight)[i];
            norm[1][i] = ((const unsigned*)norm_bias)[i];
        }
    if (threadIdx.x < 64) {
        const bool there = 2 * threadIdx.x < hidden;
        out_norm[0][threadIdx.x] = there ? ((const unsigned*)out_norm_weight)[threadIdx.x] : 0;
        out_norm[1][threadIdx.x] = there ? ((const unsigned*)out_norm_bias)[threadIdx.x] : 0;
    }
    if (threadIdx.x == 0) {
        init(ready, 1);
        for (int group = 0; group < 2; group++) {
            init(rows_full + 8 * group, 1);
            init(t_full + 8 * group, 1);
            init(rows_empty + 8 * group, 4);  // its warps
            init(t_empty + 8 * group, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), lane = threadIdx.x % 32;  // uniform in a warp
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 352) {
            prefetch(t_boxes);
            prefetch(y_boxes);
        } else if (threadIdx.x == 320) {  // fetches weights
            expect(ready, WEIGHTS * STAGE);
            for (int half = 0; half < 2; half++) {
                for (int chunk = 0; chunk < CHUNKS; chunk++)
                    fetch(stages + chunk * STAGE + half * BOX, out_gate, 64 * chunk, 64 * half, ready);
                for (int part = 0; part < PARTS; part++)
                    for (int chunk = 0; chunk < 2; chunk++)
                        fetch(stages + (CHUNKS + 2 * part + chunk) * STAGE + half * BOX, out_weight, 64 * chunk, 128 * part + 64 * half, ready);
            }
        } else if (threadIdx.x == 256 || threadIdx.x == 288) {  // fetch x or gates, and t, for a warp group each
            const int of = threadIdx.x == 288;
            int parity = 1;
            if (READ) wait_for_launches();
            for (int unit = blockIdx.x * 2 + of; unit < units; unit += gridDim.x * 2, parity ^= 1) {
                const int z = unit / in_one, first = unit % in_one * 64;
                wait(rows_empty + 8 * of, parity);
                expect(rows_full + 8 * of, WITH * BOX);
                for (int chunk = 0; chunk < WITH; chunk++)
                    if (READ) fetch(rows + (of * WITH + chunk) * BOX, gate, first, 64 * chunk, z, rows_full + 8 * of);
                    else fetch(rows + (of * WITH + chunk) * BOX, x_boxes, 64 * chunk, first, z, rows_full + 8 * of);
                if (!READ && unit < gridDim.x * 2) wait_for_launches();  // x is there already
                wait(t_empty + 8 * of, parity);
                expect(t_full + 8 * of, 2 * BOX);
                for (int chunk = 0; chunk < 2; chunk++)
                    fetch(planes + (of * 2 + chunk) * BOX, t_boxes, first, 64 * chunk, z, t_full + 8 * of);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int warp = threadIdx.x % 128 / 32, t = lane % 4;
        const bool leader = threadIdx.x % 128 == 0;
        const int row = warp * 16 + lane % 16;  // of 64 pairs, whose address this lane gives where rows are pairs
        const int channel = lane / 16 * 8 + lane % 8, column = warp * 2 + lane / 8 % 2;  // the same where rows are channels
        const unsigned own_rows = rows + group * WITH * BOX, own_planes = planes + group * 2 * BOX, own_boxes = out + group * 2 * BOX;
        auto in_plane = [&](unsigned boxes, int k) {  // of 16 channels
            const int r = k % 4 * 16 + channel;
            return boxes + k / 4 * BOX + r * 128 + ((column ^ (r & 7)) << 4);
        };
        int parity = 0;
        wait(ready, 0);
        for (int unit = blockIdx.x * 2 + group; unit < units; unit += gridDim.x * 2, parity ^= 1) {
            const int z = unit / in_one, first = unit % in_one * 64;
            float d[64];
#pragma unroll
            for (int i = 0; i < 64; i++) d[i] = 0;
            unsigned x[READ ? 8 : 4 * CHUNKS][4], u[8][4];  // x or gates; t
            wait(rows_full + 8 * group, parity);
            if constexpr (READ) {
#pragma unroll
                for (int k = 0; k < 8; k++) load_transposed(x[k], in_plane(own_rows, k));
            } else {
#pragma unroll
                for (int k = 0; k < 4 * CHUNKS; k++)
                    load_matrices(x[k], own_rows + k / 4 * BOX + row * 128 + (((k % 4 * 2 + lane / 16) ^ (row & 7)) << 4));
            }
            release(rows_empty + 8 * group, lane);
            if constexpr (!READ) normalize(x, norm, eps, t);
            wait(t_full + 8 * group, parity);
            if constexpr (!READ) {
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < 4 * CHUNKS; k++)  // 32 bytes along the rows
                    add_rows(d, x[k], tile_at(stages + k / 4 * STAGE) + 2 * (k % 4), k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            }
#pragma unroll
            for (int k = 0; k < 8; k++) load_transposed(u[k], in_plane(own_planes, k));
            release(t_empty + 8 * group, lane);
            float mean, mean8, scale, scale8;
            statistics(u, hidden, eps, mean, mean8, scale, scale8);
            if constexpr (!READ) {
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
            }
#pragma unroll
            for (int k = 0; k < 8; k++)
#pragma unroll
                for (int h = 0; h < 4; h++) {
                    const unsigned w = out_norm[0][k * 8 + h / 2 * 4 + t], b = out_norm[1][k * 8 + h / 2 * 4 + t];
                    const float m = h % 2 ? mean8 : mean, s = h % 2 ? scale8 : scale;
                    const float v = READ ? low(x[k % (READ ? 8 : 4 * CHUNKS)][h]) : sigmoid(d[8 * k + 2 * h]);
                    const float v1 = READ ? high(x[k % (READ ? 8 : 4 * CHUNKS)][h]) : sigmoid(d[8 * k + 2 * h + 1]);
                    u[k][h] = pack((low(w) * ((low(u[k][h]) - m) * s) + low(b)) * v, (high(w) * ((high(u[k][h]) - m) * s) + high(b)) * v1);
                }
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < 8; k++)
                    add_rows(d, u[k], tile_at(stages + (CHUNKS + 2 * part + k / 4) * STAGE) + 2 * (k % 4), k);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const unsigned box = own_boxes + half * BOX;
                    if (leader) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // of the box before the last
                    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
#pragma unroll
                    for (int j = 0; j < 4; j++) {  // 16 columns
                        const float* v = d + half * 32 + j * 8;
                        store_matrices(box + row * 128 + (((j * 2 + lane / 16) ^ (row & 7)) << 4), pack(v[0], v[1]), pack(v[2], v[3]),
                                       pack(v[4], v[5]), pack(v[6], v[7]));
                    }
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                    if (leader) {
                        put(y_boxes, 128 * part + 64 * half, first, z, box);
                        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                    }
                }
            }
        }
        if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// Any sizes.
__device__ __forceinline__ ACC product(const ACC* z, const T* weight, int count) {
    ACC sum = 0;
    for (int c = 0; c < count; c++) sum += z[c] * load(weight[c]);
    return sum;
}

// One thread per pair.
extern "C" __global__ void normalize_any(const T* x, const T* weight, const T* bias, ACC* z, ACC eps, int pairs, int dim) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    const T* in = x + (long long)p * dim;
    ACC* out = z + (long long)p * dim;
    ACC sum = 0, squares = 0;
    for (int c = 0; c < dim; c++) sum += load(in[c]);
    ACC mean = sum / dim;
    for (int c = 0; c < dim; c++) squares += (load(in[c]) - mean) * (load(in[c]) - mean);
    ACC scale = 1 / sqrtf(squares / dim + eps);
    for (int c = 0; c < dim; c++) out[c] = load(weight[c]) * ((load(in[c]) - mean) * scale) + load(bias[c]);
}

// One thread per pair and hidden channel.
extern "C" __global__ void project_any(
    const ACC* z, const T* mask, const T* left_weight, const T* right_weight, const T* left_gate, const T* right_gate,
    const T* out_gate, ACC* left, ACC* right, ACC* gate, int pairs, int dim, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * hidden) return;
    const ACC* row = z + at / hidden * dim;
    long long w = at % hidden * dim;
    ACC kept = load(mask[at / hidden]);
    left[at] = kept * product(row, left_weight + w, dim) * sigmoid(product(row, left_gate + w, dim));
    right[at] = kept * product(row, right_weight + w, dim) * sigmoid(product(row, right_gate + w, dim));
    gate[at] = sigmoid(product(row, out_gate + w, dim));
}

// One thread per pair and hidden channel.
extern "C" __global__ void multiply_any(const ACC* left, const ACC* right, ACC* t, int pairs, int length, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * hidden) return;
    long long p = at / hidden, i = p / length, j = p / length / length * length + p % length;
    const ACC* a = left + i * length * hidden + at % hidden;
    const ACC* b = right + j * length * hidden + at % hidden;
    ACC sum = 0;
    for (int k = 0; k < length; k++) sum += a[(long long)k * hidden] * b[(long long)k * hidden];
    t[at] = sum;
}

// One thread per pair.
extern "C" __global__ void renormalize_any(ACC* t, const ACC* gate, const T* weight, const T* bias, ACC eps, int pairs, int hidden) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    ACC* row = t + (long long)p * hidden;
    ACC sum = 0, squares = 0;
    for (int d = 0; d < hidden; d++) sum += row[d];
    ACC mean = sum / hidden;
    for (int d = 0; d < hidden; d++) squares += (row[d] - mean) * (row[d] - mean);
    ACC scale = 1 / sqrtf(squares / hidden + eps);
    for (int d = 0; d < hidden; d++)
        row[d] = (load(weight[d]) * ((row[d] - mean) * scale) + load(bias[d])) * gate[(long long)p * hidden + d];
}

// One thread per element of the result.
extern "C" __global__ void finish_any(const ACC* t, const T* weight, T* y, int pairs, int dim, int hidden) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)pairs * dim) return;
    y[at] = store(product(t + at / dim * hidden, weight + at % dim * hidden, hidden));
}
