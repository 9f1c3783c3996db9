/*! evo
[let]
m = "batch_size"
n = "out_features // 16"           # pools
k = "in_features"
fits = "k % 4 == 0 and k >= 1024 and n % 4 == 0 and m * n >= 65536"
splits = "8 if fits else 1"
rounds = "ceil_div(n, 128) * ceil_div(m, 256) * splits"

[[buffer]]
name = "pooled"
dtype = "ACC"
shape = ["n", "k"]

[[buffer]]
name = "pooled_bias"
dtype = "ACC"
shape = ["n"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["splits", "m", "n"]

[[tensor_map]]
name = "b_tiles"
tensor = "pooled"
shape = ["k if fits else 4", "n if fits else 4"]
strides = ["4 * k if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "a_tiles"
tensor = "x"
shape = ["k if fits else 4", "m if fits else 4"]
strides = ["4 * k if fits else 16"]
box = [32, 256]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
kernel = "pool<4>"
when = "k % 4 == 0"
grid = ["ceil_div(k, 1024)", "n"]
block = [256]
args = ["matmul_weight", "matmul_bias", "pooled", "pooled_bias", "k"]

[[launch]]
kernel = "pool<1>"
when = "k % 4 != 0"
grid = ["ceil_div(k, 256)", "n"]
block = [256]
args = ["matmul_weight", "matmul_bias", "pooled", "pooled_bias", "k"]

[[launch]]
kernel = "multiply_tiles"
when = "fits"
grid = ["min(rounds, sm_count)"]
block = [512]
shared = "1024 + 3 * 65536"
args = ["b_tiles", "a_tiles", "sums", "m", "n", "k"]

[[launch]]
kernel = "multiply_any"
when = "not fits"
grid = ["ceil_div(n, 32)", "ceil_div(m, 8)"]
block = [32, 8]
args = ["x", "pooled", "sums", "m", "n", "k"]

[[launch]]
kernel = "largest"
grid = ["m"]
block = [128]
args = ["x", "pooled", "pooled_bias", "sums", "y", "m", "n", "k", "splits"]
*/
// The mean of 16 columns of a product with w is a column of a product with the sums of 16 rows of w, over 16: so w is read
// once, and a sixteenth of the products is left. Those are split along k in 8, each with sums of its own.
constexpr int SPLITS = 8;
// @ tf32_parts.cuh
__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1 + erff(v * 0.70710678118654752440f)); }

// A product as it is written, in sums of 64 terms, so that long ones lose little.
__device__ __forceinline__ float dot(const float* a, const float* b, int k) {
    float sum = 0;
    for (int from = 0; from < k; from += 64) {
        float part = 0;
        for (int l = from; l < min(from + 64, k); l++) part += a[l] * b[l];
        sum += part;
    }
    return sum;
}

// The steps along k of a tile's split.
__device__ __forceinline__ int begin_of(int tile, int steps) { return steps * (tile % SPLITS) / SPLITS; }
__device__ __forceinline__ int end_of(int tile, int steps) { return steps * (tile % SPLITS + 1) / SPLITS; }

template <int N> struct Half { static constexpr int value = N; };

// The sums of 16 rows of w, by pairs.
template <int V> __global__ void __launch_bounds__(256) pool(const float* w, const float* bias, float* pooled, float* pooled_bias, int k) {
    struct alignas(4 * V) Some { float v[V]; };
    const int at = (blockIdx.x * 256 + threadIdx.x) * V, pool = blockIdx.y;
    if (at == 0) {
        float sum = 0;
        for (int i = 0; i < 16; i++) sum += bias[pool * 16 + i];
        pooled_bias[pool] = sum;
    }
    if (at >= k) return;
    const float* from = w + (long long)pool * 16 * k + at;
    Some row[16];
#pragma unroll
    for (int i = 0; i < 16; i++) row[i] = *(const Some*)(from + (long long)i * k);
    auto halve = [&](auto far) {
#pragma unroll
        for (int i = 0; i < far.value; i++)
#pragma unroll
            for (int e = 0; e < V; e++) row[i].v[e] += row[i + far.value].v[e];
    };
    halve(Half<8>()), halve(Half<4>()), halve(Half<2>()), halve(Half<1>());
    *(Some*)(pooled + (long long)pool * k + at) = row[0];
}

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* b_tiles, const CUtensorMap* a_tiles, float* c, int m, int n, int k) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[3 * RING];
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), split = full + 8 * RING, empty = split + 8 * RING;
    const int steps = (k + STEP - 1) / STEP, down = (n + 127) / 128, across = (m + 255) / 256;
    const int count = down * across * SPLITS;
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
                int of_s, of_r;
                place(tile / SPLITS, down, across, of_s, of_r);
                for (int step = begin_of(tile, steps); step < end_of(tile, steps); step++) {
                    wait(empty + 8 * stage, parity ^ 1);  // the first round does not wait
                    const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
                    expect(ready, S_BYTES + R_BYTES);
                    fetch(to, b_tiles, step * STEP, of_s, ready);
                    fetch(to + 2 * S_BYTES, a_tiles, step * STEP, of_r, ready);
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
            }
        }
    } else if (group == 2) {  // the converter
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        const int thread = threadIdx.x % 128;
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x)
            for (int step = begin_of(tile, steps); step < end_of(tile, steps); step++) {
                const unsigned at = tiles + STAGE_BYTES * stage;
                wait(full + 8 * stage, parity);
#pragma unroll
                for (int half = 0; half < 2; half++) {  // element by element: the swizzle does not matter
                    float4 v[4];
                    const unsigned from = at + half * (S_BYTES / 2) + thread * 16;
#pragma unroll
                    for (int i = 0; i < 4; i++) v[i] = read4(from + i * 2048);
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const float4 hi = high(v[i]);
                        write4(from + i * 2048, hi);
                        write4(from + i * 2048 + S_BYTES, less(v[i], hi));
                    }
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what was written, wgmma will read
                __syncwarp();
                if (lane == 0) arrive(split + 8 * stage);
                if (++stage == RING) stage = 0, parity ^= 1;
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        float d[2][64];
#pragma unroll
        for (int i = 0; i < 64; i++) d[0][i] = d[1][i] = 0;
        const int g = lane / 4, t = lane % 4;
        // Rows g, g + 8 (of d[0]), g + 16, g + 24 (of d[1]) of the warp's 32; each time 8 rows of 16 bytes: no conflicts.
        const unsigned mine = 2 * S_BYTES + (group * 4 + warp) * 4096 + g * 128 + t * 4;
        const int r_lane = group * 128 + warp * 32 + g;
        constexpr int R_STRIDE = 8;
        const int part = min(PART, max(steps / (SPLITS * PARTS), 1));  // steps, of short sums fewer
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
            int of_s, of_r;
            place(tile / SPLITS, down, across, of_s, of_r);
            const int s_lane = of_s + t * 2;
            of_r += r_lane;
            const int last = end_of(tile, steps);
            for (int step = begin_of(tile, steps); step < last;) {
                const bool first = step == begin_of(tile, steps);
                const int end = min(step + part, last);
                int add = 0;
                for (; step < end; step++) {
                    const unsigned at = tiles + STAGE_BYTES * stage;
                    const u64 s_hi = tile_of(at), s_lo = tile_of(at + S_BYTES);
                    wait(full + 8 * stage, parity);
#pragma unroll
                    for (int l = 0; l < STEP / 8; l++) {  // 8 of k: 32 bytes of b's rows
                        float x[2][4], hi[2][4], lo[2][4];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            x[i / 2][i % 2] = read1(at + mine + i * 1024 + ((2 * l ^ g) << 4));
                            x[i / 2][i % 2 + 2] = read1(at + mine + i * 1024 + ((2 * l + 1 ^ g) << 4));
                        }
#pragma unroll
                        for (int i = 0; i < 8; i++) {
                            hi[i / 4][i % 4] = high(x[i / 4][i % 4]);
                            lo[i / 4][i % 4] = x[i / 4][i % 4] - hi[i / 4][i % 4];
                        }
                        if (l == 0) wait(split + 8 * stage, parity);
                        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                        multiply(d[0], lo[0], s_hi + 2 * l, l ? 1 : add);
                        multiply(d[1], lo[1], s_hi + 2 * l, l ? 1 : add);
                        multiply(d[0], hi[0], s_lo + 2 * l, 1);
                        multiply(d[1], hi[1], s_lo + 2 * l, 1);
                        multiply(d[0], hi[0], s_hi + 2 * l, 1);
                        multiply(d[1], hi[1], s_hi + 2 * l, 1);
                        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                        if (l < STEP / 8 - 1) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    }
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // the other group has work meanwhile
#pragma unroll
                    for (int i = 0; i < 128; i++) asm volatile("" : "+f"(d[i / 64][i % 64])::"memory");
                    if (lane == 0) arrive(empty + 8 * stage);
                    add = 1;
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
                float* to = c + ((long long)(tile % SPLITS) * m + of_r) * n + s_lane;
                asm volatile("" : "+l"(to));  // or all addresses would be computed before the loop, and kept
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (of_r + R_STRIDE * i < m) {
#pragma unroll
                        for (int j = 0; j < 16; j++)
                            if (s_lane + 8 * j < n) {
                                const float v = d[i / 2][4 * j + i % 2 * 2], w = d[i / 2][4 * j + i % 2 * 2 + 1];
                                if (first) asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to + 8 * j), "f"(v), "f"(w) : "memory");
                                else asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to + 8 * j), "f"(v), "f"(w) : "memory");
                            }
                    }
                    to += (long long)R_STRIDE * n;
                }
            }
        }
    }
}

extern "C" __global__ void multiply_any(const float* a, const float* b, float* c, int m, int n, int k) {
    const int i = blockIdx.y * 8 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    if (i < m && j < n) c[(long long)i * n + j] = dot(a + (long long)i * k, b + (long long)j * k, k);
}

__device__ __forceinline__ float larger(float v, float w) { return v > w || v != v ? v : w; }  // NaN is the largest

extern "C" __global__ void __launch_bounds__(128) largest(
    const float* x, const float* pooled, const float* pooled_bias, const float* sums, float* y, int m, int n, int k, int splits) {
    __shared__ float warps[4];
    const int i = blockIdx.x;
    float best = -INFINITY;
    for (int j = threadIdx.x; j < n; j += 128) {
        float sum = 0;
        for (int s = 0; s < splits; s++) sum += sums[((long long)s * m + i) * n + j];
        // Infinity times lo = 0 is NaN: what is not finite is computed as a plain product has it.
        if (sum * 0 != 0) sum = dot(x + (long long)i * k, pooled + (long long)j * k, k);
        const float mean = (sum + pooled_bias[j]) / 16;
        best = larger(best, 2 * gelu(mean));
    }
    for (int far = 16; far; far /= 2) best = larger(best, __shfl_xor_sync(0xffffffffu, best, far));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x == 0) y[i] = larger(larger(warps[0], warps[1]), larger(warps[2], warps[3]));
}
