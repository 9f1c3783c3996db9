/*! evo
[tune]
PART = [16, 32, 8, 1024]
PARTS = [4, 8, 2, 1]
RASTER = [16, 8, 32]
LEAST = [40, 0, 80]

[let]
rounds = "ceil_div(n, 128) * ceil_div(m, 256)"
fits = "k % 4 == 0 and n % 4 == 0 and 100 * rounds >= LEAST * sm_count * ceil_div(rounds, sm_count)"
threads = "128 * 256 // 128"
units = "sm_count * (256 // threads)"
tiles = "ceil_div(m, 128) * ceil_div(n, 256)"
rest = "0 if fits else (ceil_div(m, 128) * ceil_div(n, 256)) % (sm_count * (256 // threads))"

[[buffer]]
name = "parts"
dtype = "ACC"
shape = ["max(2 * units * 128 * 256 * min(rest, 1), 1)"]

[[tensor_map]]
name = "b_tiles"
tensor = "b"
shape = ["k if fits else 4", "n if fits else 4"]
strides = ["4 * (k) if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "a_tiles"
tensor = "a"
shape = ["k if fits else 4", "m if fits else 4"]
strides = ["4 * (k) if fits else 16"]
box = [32, 256]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
kernel = "multiply_tiles"
when = "fits"
grid = ["min(rounds, sm_count)"]
block = [512]
shared = "1024 + 3 * 65536"
args = ["b_tiles", "a_tiles", "a", "b", "c", "m", "n", "k"]

[[launch]]
kernel = "gemm<1>"
when = "not fits"
grid = ["units"]
block = ["threads"]
shared = "4 * 16 * ((128 + 4) + (256 + 4)) * 4"
args = ["a", "b", "c", "parts", "m", "n", "k"]

[[launch]]
kernel = "finish"                  # sums of tiles that several blocks shared
when = "not fits and rest > 0"
grid = ["rest", 32]
block = ["threads"]
args = ["parts", "c", "units", "m", "n", "k"]
*/
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

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* b_tiles, const CUtensorMap* a_tiles, const float* a, const float* b,
    float* c, int m, int n, int k) {
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
#pragma unroll
        for (int i = 0; i < 64; i++) d[0][i] = d[1][i] = 0;
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
            float bad = 0;
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
                                bad += (v + w) * 0;  // NaN where not both are finite
                            }
                    }
                    to += (long long)R_STRIDE * n;
                }
            }
            // Infinity times lo = 0 is NaN: what did not come out finite is computed as a plain product has it.
            if (bad != 0)
#pragma unroll 1
                for (int e = 0; e < 128; e++) {
                    const int i = of_r + R_STRIDE * (e % 4), j = s_lane + e / 8 * 8 + e / 4 % 2;
                    if (i >= m || j >= n) continue;
                    float* to = c + (long long)i * n + j;
                    float sum;
                    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(sum) : "l"(to) : "memory");
                    if (sum * 0 == 0) continue;
                    sum = 0;
#pragma unroll 8
                    for (int l = 0; l < k; l++) sum += a[(long long)i * k + l] * b[(long long)j * k + l];
                    *to = sum;
                }
        }
    }
}

// Other sizes, and those too small to occupy the multiprocessors with whole tiles.
constexpr int FM = 128, FN = 256, FK = 16, FSTAGES = 4, FGROUP = 16;
// fp32 by FFMA: 8 x 16 results a thread, 64 x 64 a warp, so that 128 FFMA come on 6 reads of 128 bits from shared memory.
// One wave of blocks stays; each computes whole tiles, and of the tiles that are left over (fewer than blocks) an equal
// share of the steps along k, so that no multiprocessor waits at the end. A factor whose rows lie along k is turned by
// copies of 4 bytes. What k lacks to whole steps is missing at the first step, so that the loop has no bounds to check;
// rows and columns beyond the border repeat the last one, and are not stored.
constexpr int FTHREADS = FM * FN / 128, FWARPS_N = FN / 64;

// PTX begin
__device__ __forceinline__ unsigned shared_address(const void* at) { return __cvta_generic_to_shared(at); }
template <int BYTES> __device__ __forceinline__ void copy_async(float* to, const float* from, int bytes) {
    if (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
// PTX end

// W rows (TURN: of `pitch` elements along k) or columns of a factor, of which a stage holds FK x W.
template <int W, bool TURN, int V> struct Panel {
    static constexpr int PITCH = TURN ? W + 4 : W, ROWS = TURN ? W * 8 / FTHREADS : 1, AT_ONCE = FTHREADS / (W / V);
    const float* from[ROWS];

    __device__ __forceinline__ void begin(const float* x, int start, int size, long long pitch, int k_start) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (TURN) from[r] = x + min(start + (int)threadIdx.x / 8 + r * (FTHREADS / 8), size - 1) * pitch + k_start + threadIdx.x % 8;
            else from[r] = x + (k_start + (int)threadIdx.x / (W / V)) * pitch + min(start + (int)threadIdx.x % (W / V) * V, size - V);
        }
    }
    // Copies the next stage, of which the first `lead` elements along k do not exist.
    template <bool FIRST> __device__ __forceinline__ void copy(float* to, const float* x, long long pitch, int lead) {
        if (TURN) {
            float* mine = to + threadIdx.x % 8 * PITCH + threadIdx.x / 8;
#pragma unroll
            for (int l = 0; l < FK; l += 8)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const bool there = !FIRST || l + (int)threadIdx.x % 8 >= lead;
                    copy_async<4>(mine + l * PITCH + r * (FTHREADS / 8), there ? from[r] + l : x, there ? 4 : 0);
                }
#pragma unroll
            for (int r = 0; r < ROWS; r++) from[r] += FK;
        } else {
            float* mine = to + threadIdx.x / (W / V) * W + threadIdx.x % (W / V) * V;
#pragma unroll
            for (int l = 0; l < FK; l += AT_ONCE) {
                const bool there = !FIRST || l + (int)threadIdx.x / (W / V) >= lead;
                copy_async<4 * V>(mine + l * W, there ? from[0] : x, there ? 4 * V : 0);
                from[0] += AT_ONCE * pitch;
            }
        }
    }
};

// Lanes 0 and 1, and the halves of a warp, differ in columns, other lanes in rows: reads of both factors take two cycles.
__device__ __forceinline__ int lane_row() { return threadIdx.x / 32 / FWARPS_N * 64 + threadIdx.x % 16 / 2 * 4; }
__device__ __forceinline__ int lane_col() { return threadIdx.x / 32 % FWARPS_N * 64 + (threadIdx.x % 2 + threadIdx.x % 32 / 16 * 2) * 4; }

__device__ __forceinline__ void place_any(int tile, int m, int n, int& top, int& left) {
    const int down = (m + FM - 1) / FM, across = (n + FN - 1) / FN, of_group = tile / (FGROUP * across), in_group = tile % (FGROUP * across);
    const int height = min(FGROUP, down - of_group * FGROUP);
    top = (of_group * FGROUP + in_group % height) * FM;
    left = in_group / height * FN;
}

__device__ __forceinline__ void write(float* c, int y, int x, int m, int n, float4 v) {
    if (y >= m || x >= n) return;
    float* to = c + (long long)y * n + x;
    if (n % 4 == 0) { *(float4*)to = v; return; }
    to[0] = v.x;
    if (x + 1 < n) to[1] = v.y;
    if (x + 2 < n) to[2] = v.z;
    if (x + 3 < n) to[3] = v.w;
}

template <int V> __global__ void __launch_bounds__(FTHREADS, 256 / FTHREADS) gemm(const float* a, const float* b, float* c, float* parts, int m, int n, int k) {
    using Left = Panel<FM, true, V>;
    using Right = Panel<FN, true, V>;
    constexpr int OF_LEFT = FK * Left::PITCH, STAGE = OF_LEFT + FK * Right::PITCH;
    alignas(16) extern __shared__ float floats[];
    const long long a_pitch = k, b_pitch = k;
    const int steps = (k + FK - 1) / FK, lead = steps * FK - k, tiles = ((m + FM - 1) / FM) * ((n + FN - 1) / FN);
    const int whole = tiles / gridDim.x, rest = tiles % gridDim.x;
    long long at = (long long)rest * steps * blockIdx.x / gridDim.x;
    const long long end = (long long)rest * steps * (blockIdx.x + 1) / gridDim.x;
    Left of_a;
    Right of_b;
    int piece = 0, top, left, first, last;

    auto next = [&]() {  // where the next piece lies, and the copies of its first stages
        if (piece < whole) {
            place_any(piece * gridDim.x + blockIdx.x, m, n, top, left);
            first = 0, last = steps;
        } else {
            if (at >= end) return false;
            place_any(whole * gridDim.x + (int)(at / steps), m, n, top, left);
            first = at % steps;
            last = (int)min((long long)steps, first + end - at);
            at += last - first;
        }
        of_a.begin(a, top, m, a_pitch, first * FK - lead);
        of_b.begin(b, left, n, b_pitch, first * FK - lead);
        for (int s = 0; s < FSTAGES - 1; s++) {
            if (first + s < last) {
                of_a.template copy<true>(floats + s * STAGE, a, a_pitch, lead - (first + s) * FK);
                of_b.template copy<true>(floats + s * STAGE + OF_LEFT, b, b_pitch, lead - (first + s) * FK);
            }
            copies_end_group();
        }
        return true;
    };

    bool more = next();
    while (more) {
        float sums[8][16] = {}, column[2][8], row[2][16];
        const float *columns = floats + lane_row(), *rows = floats + OF_LEFT + lane_col();
        int from = 0, to = FSTAGES - 1;  // stages
        auto read = [&](int which, int l) {
#pragma unroll
            for (int i = 0; i < 8; i += 4) *(float4*)&column[which][i] = *(const float4*)(columns + l * Left::PITCH + i * 8);
#pragma unroll
            for (int j = 0; j < 16; j += 4) *(float4*)&row[which][j] = *(const float4*)(rows + l * Right::PITCH + j * 4);
        };
        copies_wait<FSTAGES - 2>();
        __syncthreads();
        read(0, 0);
        for (int left_over = last - first; left_over > 0; left_over--) {
#pragma unroll
            for (int l = 0; l < FK; l++) {
                if (l == FK - 1) {
                    const int step = from == FSTAGES - 1 ? STAGE - FSTAGES * STAGE : STAGE;
                    from = from == FSTAGES - 1 ? 0 : from + 1;
                    columns += step, rows += step;
                    copies_wait<FSTAGES - 2>();
                    __syncthreads();
                }
                if (l < FK - 1 || left_over > 1) read((l + 1) % 2, (l + 1) % FK);
                if (l == 0) {
                    if (left_over >= FSTAGES) {
                        of_a.template copy<false>(floats + to * STAGE, a, a_pitch, 0);
                        of_b.template copy<false>(floats + to * STAGE + OF_LEFT, b, b_pitch, 0);
                    }
                    to = to == FSTAGES - 1 ? 0 : to + 1;
                    copies_end_group();
                }
#pragma unroll
                for (int i = 0; i < 8; i++)  // back and forth: neighbours share a factor, and registers of one bank seldom meet
#pragma unroll
                    for (int t = 0; t < 16; t++) {
                        const int j = i % 2 ? 15 - t : t;
                        sums[i][j] += column[l % 2][i] * row[l % 2][j];
                    }
            }
        }
        const int y = top + lane_row(), x = left + lane_col();
        float* part = last - first == steps ? nullptr : parts + ((long long)blockIdx.x * 2 + (piece - whole)) * (FM * FN) + threadIdx.x * 4;
        piece++;
        more = next();
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
            for (int j = 0; j < 16; j += 4) {
                const float4 v = make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
                if (part) *(float4*)(part + (i * 4 + j / 4) * FTHREADS * 4) = v;
                else write(c, y + i / 4 * 32 + i % 4, x + j * 4, m, n, v);
            }
    }
}

extern "C" __global__ void __launch_bounds__(FTHREADS) finish(const float* parts, float* c, int units, int m, int n, int k) {
    const int steps = (k + FK - 1) / FK, tiles = ((m + FM - 1) / FM) * ((n + FN - 1) / FN), rest = tiles % units;
    const long long all = (long long)rest * steps, begin = (long long)blockIdx.x * steps;
    float4 sum = {};
    for (long long u = (long long)blockIdx.x * units / rest; u < units; u++) {
        const long long from = all * u / units, to = all * (u + 1) / units;
        if (from >= begin + steps) break;
        if (to <= begin || from == to) continue;
        if (from <= begin && to >= begin + steps) return;  // one block had all of it
        const float4 v = *(const float4*)(parts + (u * 2 + (from < begin)) * (FM * FN) + (blockIdx.y * FTHREADS + threadIdx.x) * 4);
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    int top, left;
    place_any(tiles - rest + blockIdx.x, m, n, top, left);
    const int i = blockIdx.y / 4, j = blockIdx.y % 4;
    write(c, top + lane_row() + i / 4 * 32 + i % 4, left + lane_col() + j * 16, m, n, sum);
}
