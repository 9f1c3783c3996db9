/*! evo
[let]
m = "batch_size"
n = "out_features"
k = "in_features"
rounds = "ceil_div(n, 128) * ceil_div(m, 256)"
fits = "k % 4 == 0 and n % 4 == 0 and 100 * rounds >= 40 * sm_count * ceil_div(rounds, sm_count)"

[[tensor_map]]
name = "b_tiles"
tensor = "linear_weight"
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
kernel = "multiply_tiles"
when = "fits"
grid = ["min(rounds, sm_count)"]
block = [512]
shared = "1024 + 3 * 65536"
args = ["b_tiles", "a_tiles", "x", "linear_weight", "linear_bias", "y", "m", "n", "k"]

[[launch]]
kernel = "multiply_any"
when = "not fits"
grid = ["ceil_div(n, 32)", "ceil_div(m, 8)"]
block = [32, 8]
args = ["x", "linear_weight", "linear_bias", "y", "m", "n", "k"]

[[launch]]
kernel = "softmax_kept"            # a row in the registers of a block
when = "n % 4 == 0 and n <= 8192"
grid = ["m"]
block = [256]
args = ["y", "n"]

[[launch]]
kernel = "softmax_any"
when = "n % 4 != 0 or n > 8192"
grid = ["m"]
block = [256]
args = ["y", "n"]
*/
constexpr int PART = 16, PARTS = 4, RASTER = 16;  // steps whose sums tensor cores keep, sums at least, rows of tiles in a band
typedef unsigned long long u64;

// fp32 on tensor cores: each number is hi + lo, two of TF32, and lo hi + hi lo + hi hi make a product (what lo lo would
// add is below the last bit). A block computes 128 indices of b x 256 of a. wgmma takes b from shared memory, where it
// must lie along k, and a, its first factor, from registers. Warp groups: two consumers, 128 indices of a each, which
// split their part of a as they read it; a converter, which splits b in shared memory; a producer.
// Tensor cores cut off what sums lose, always towards zero, which adds up: after PART steps, and PARTS times at least, the
// sums go to c (stored, then added with rounding), and new ones begin.
constexpr int STEP = 32, RING = 3;
constexpr int S_BYTES = 128 * STEP * 4;                  // 16384, hi; as much for lo behind it
constexpr int R_BYTES = 256 * STEP * 4;                  // 32768
constexpr int STAGE_BYTES = 2 * S_BYTES + R_BYTES;       // 65536

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
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
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
__device__ __forceinline__ void multiply(float (&d)[64], const float (&r)[4], u64 s, int add) {  // 64 of a x 128 of b, 8 of k
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
// Tiles in bands of RASTER along b, so that those under way share rows and columns.
__device__ __forceinline__ void place(int tile, int down, int across, int& of_s, int& of_r) {
    const int band = RASTER * across, first = tile / band * RASTER, rest = tile % band;
    const int height = min(down - first, RASTER);
    of_s = (first + rest % height) * 128;
    of_r = rest / height * 256;
}

__device__ __forceinline__ float gelu(float v) { return 0.5f * v * (1 + erff(v * 0.70710678118654752440f)); }
__device__ __forceinline__ float finished(float sum, float bias) {
    return gelu(sum + bias);
}

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

__device__ __forceinline__ void sums_of(const float* from, float& v, float& w) {  // past the first-level cache
    asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(v), "=f"(w) : "l"(from) : "memory");
}
__device__ __forceinline__ void mend(float* sum, const float* a, const float* b, int k) {
    float v;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(sum) : "memory");
    if (v * 0 == 0) return;
    v = dot(a, b, k);
    asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(sum), "f"(v) : "memory");
}

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* b_tiles, const CUtensorMap* a_tiles, const float* a, const float* b,
    const float* bias, float* c, int m, int n, int k) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[3 * RING];
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), split = full + 8 * RING, empty = split + 8 * RING;
    const int steps = (k + STEP - 1) / STEP, down = (n + 127) / 128, across = (m + 255) / 256;
    const int count = down * across;
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
                place(tile, down, across, of_s, of_r);
                for (int step = 0; step < steps; step++) {
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
            for (int step = 0; step < steps; step++) {
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
        const int g = lane / 4, t = lane % 4;
        // Rows g, g + 8 (of d[0]), g + 16, g + 24 (of d[1]) of the warp's 32; each time 8 rows of 16 bytes: no conflicts.
        const unsigned mine = 2 * S_BYTES + (group * 4 + warp) * 4096 + g * 128 + t * 4;
        const int r_lane = group * 128 + warp * 32 + g;
        constexpr int R_STRIDE = 8;
        const int part = min(PART, max((steps + PARTS - 1) / PARTS, min(2, (steps + 1) / 2)));  // steps, of short sums fewer
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
            int of_s, of_r;
            place(tile, down, across, of_s, of_r);
            const int s_lane = of_s + t * 2;
            of_r += r_lane;
#pragma unroll
            for (int i = 0; i < 64; i++) d[0][i] = d[1][i] = 0;
            for (int step = 0; step < steps;) {
                const bool first = step == 0;
                const int end = min(step + part, steps);
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
                float* to = c + (long long)of_r * n + s_lane;
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
            // Each thread finishes what it added up. Infinity times lo = 0 is NaN: a sum that is not finite is computed as a
            // plain product has it.
#pragma unroll 1
            for (int i = 0; i < 4; i++) {
                const int y = of_r + R_STRIDE * i;
                if (y >= m) break;
                float* to = c + (long long)y * n + s_lane;
                const float* of_bias = bias + s_lane;
                asm volatile("" : "+l"(to), "+l"(of_bias));  // as above
                float v[16], w[16], bad = 0;
#pragma unroll
                for (int j = 0; j < 16; j++) {
                    v[j] = w[j] = 0;
                    if (s_lane + 8 * j < n) sums_of(to + 8 * j, v[j], w[j]);
                    bad += (v[j] + w[j]) * 0;  // NaN where not both are finite
                }
                if (bad != 0) {
#pragma unroll 1
                    for (int j = 0; j < 32; j++) {
                        const int x = j / 2 * 8 + j % 2;
                        if (s_lane + x < n) mend(to + x, a + (long long)y * k, b + (long long)(s_lane + x) * k, k);
                    }
#pragma unroll
                    for (int j = 0; j < 16; j++)
                        if (s_lane + 8 * j < n) sums_of(to + 8 * j, v[j], w[j]);
                }
#pragma unroll
                for (int j = 0; j < 16; j++)
                    if (s_lane + 8 * j < n) {
                        const float2 add = *(const float2*)(of_bias + 8 * j);
                        *(float2*)(to + 8 * j) = make_float2(finished(v[j], add.x), finished(w[j], add.y));
                    }
            }
            __syncwarp();  // wgmma wants all of the warp
        }
    }
}

// Other sizes, and those too small to occupy the multiprocessors with whole tiles.
extern "C" __global__ void multiply_any(const float* a, const float* b, const float* bias, float* c, int m, int n, int k) {
    const int i = blockIdx.y * 8 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    if (i >= m || j >= n) return;
    c[(long long)i * n + j] = finished(dot(a + (long long)i * k, b + (long long)j * k, k), bias[j]);
}

// The largest, or the sum, of what the 256 threads of a block have.
template <bool SUM> __device__ __forceinline__ float of_block(float v) {
    __shared__ float warps[8];
    for (int far = 16; far; far /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, v, far);
        v = SUM ? v + other : fmaxf(v, other);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = warps[0];
    for (int w = 1; w < 8; w++) v = SUM ? v + warps[w] : fmaxf(v, warps[w]);
    return v;
}

extern "C" __global__ void __launch_bounds__(256) softmax_kept(float* y, int n) {
    float4* row = (float4*)(y + (long long)blockIdx.x * n);
    float4 v[8];
    float largest = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = i * 256 + threadIdx.x;
        v[i] = at < n / 4 ? row[at] : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        largest = fmaxf(largest, fmaxf(fmaxf(v[i].x, v[i].y), fmaxf(v[i].z, v[i].w)));
    }
    largest = of_block<false>(largest);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        v[i] = make_float4(expf(v[i].x - largest), expf(v[i].y - largest), expf(v[i].z - largest), expf(v[i].w - largest));
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    }
    sum = of_block<true>(sum);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int at = i * 256 + threadIdx.x;
        if (at < n / 4) row[at] = make_float4(v[i].x / sum, v[i].y / sum, v[i].z / sum, v[i].w / sum);
    }
}

extern "C" __global__ void __launch_bounds__(256) softmax_any(float* y, int n) {
    float* row = y + (long long)blockIdx.x * n;
    float largest = -INFINITY, sum = 0;
    for (int j = threadIdx.x; j < n; j += 256) largest = fmaxf(largest, row[j]);
    largest = of_block<false>(largest);
    for (int j = threadIdx.x; j < n; j += 256) sum += expf(row[j] - largest);
    sum = of_block<true>(sum);
    for (int j = threadIdx.x; j < n; j += 256) row[j] = expf(row[j] - largest) / sum;
}
