/*! evo
[tune]
AHEAD = [1, 0]                     # whether the next step's first numbers are read before this one's products are done
CUT = [1, 0]                       # 1: hi is what tensor cores make of the number itself; not written
PART = [4, 2, 1]                   # steps between sums in fp32
LEAST = [1024, 512, 2048]

[let]
fits = "n % 4 == 0 and n >= LEAST"
across = "ceil_div(n, 128)"
threads = "128 * 128 // 128"
units = "sm_count * (256 // threads)"
tiles = "ceil_div(n, 128) * ceil_div(n, 128)"

[[buffer]]
name = "parts"
dtype = "ACC"
shape = ["1 if fits else 2 * units * 128 * 128"]

[[buffer]]
name = "pieces"
dtype = "ACC"
shape = ["2 * sm_count * 128 * 128 if fits else 1"]

[[tensor_map]]
name = "a_tiles"
tensor = "a"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "b_tiles"
tensor = "b"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 32]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
kernel = "multiply_tiles"
when = "fits"
grid = ["sm_count"]
block = [512]
shared = "1024 + 4 * 49152"
args = ["a_tiles", "b_tiles", "a", "b", "c", "pieces", "n"]

[[launch]]
kernel = "finish_pieces"
when = "fits"
grid = ["across * across", 4]
block = [256]
args = ["a", "b", "pieces", "c", "sm_count", "n"]
overlap = true

[[launch]]
kernel = "gemm<4>"
when = "not fits and n % 4 == 0"
grid = ["units"]
block = ["threads"]
shared = "4 * 16 * ((128 + 4) + 128) * 4"
args = ["a", "b", "c", "parts", "n"]

[[launch]]
kernel = "gemm<1>"
when = "not fits and n % 4 != 0"
grid = ["units"]
block = ["threads"]
shared = "4 * 16 * ((128 + 4) + 128) * 4"
args = ["a", "b", "c", "parts", "n"]

[[launch]]
kernel = "finish"                  # zero tiles, and sums of tiles that several blocks shared
when = "not fits"
grid = ["tiles", 4]
block = ["threads"]
args = ["parts", "c", "units", "n"]
*/
typedef unsigned long long u64;

// fp32 on tensor cores: each number is hi + lo, two of TF32, and lo hi + hi lo + hi hi make a product (what lo lo would add
// is below the last bit). A block computes 128 indices of a x 128 of b. wgmma takes a from shared memory, where it lies
// along k, and b, its first factor, from registers. Warp groups: two consumers, each for half of b's indices, which they
// split as they read them; a converter, which splits a in shared memory; a producer.
// Tensor cores cut off what sums lose, always towards zero, which adds up: after PART steps the sums are added with
// rounding to those before, and new ones begin.
// A tile sums only where both factors may be other than zero. All steps of all such tiles stand in one row, tile by tile,
// of which each block takes an equal share, and writes to `pieces` what is not a whole tile; `finish_pieces` adds these
// up. Warps of the producer's group write the zeros of the other triangle.
constexpr int H = 1, WIDE = 128;
constexpr int STEP = 32, RING = H == 2 ? 3 : 4;
constexpr int S_BYTES = 128 * STEP * 4;                  // 16384, hi; as much for lo behind it
constexpr int R_BYTES = WIDE * STEP * 4;
constexpr int STAGE_BYTES = 2 * S_BYTES + R_BYTES;       // 65536 or 49152

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
__device__ __forceinline__ void multiply(float (&d)[64], const float (&r)[4], u64 s, int add) {  // 64 of b x 128 of a, 8 of k
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
// What all lanes have, for the compiler to know: descriptors are then computed in uniform registers.
__device__ __forceinline__ int same(int v) { return (int)__reduce_min_sync(0xffffffffu, (unsigned)v); }
__device__ __forceinline__ float cut(float x) { return __uint_as_float(__float_as_uint(x) & 0xffffe000u); }
__device__ __forceinline__ float4 cut(float4 v) { return make_float4(cut(v.x), cut(v.y), cut(v.z), cut(v.w)); }
__device__ __forceinline__ float2 read2(unsigned from) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
    return v;
}
// Tiles by columns (outer) and rows (inner): sums begin where the outer begins, and end where the inner ends.
struct Walk {
    int steps, inners, o, p, begins, length;
    long long at;  // the step that the tile begins with, of all
    __device__ __forceinline__ explicit Walk(int n) : steps((n + STEP - 1) / STEP), inners((n + 127) / 128), at(0) { enter(0); }
    __device__ __forceinline__ void enter(int outer) { o = outer, begins = o * 4, go(o); }
    __device__ __forceinline__ void go(int inner) { p = inner, length = min(4 * (p + 1), steps) - begins; }
    __device__ __forceinline__ long long of_outer() const {  // steps from this tile, its outer's first, to its outer's last
        const long long before = inners - 1 - p;
        return 2 * before * (before + 1) + steps - begins;
    }
    __device__ __forceinline__ void next() {
        at += length;
        if (p + 1 < inners) go(p + 1); else enter(o + 1);
    }
    __device__ __forceinline__ void skip_outer() { at += of_outer(), enter(o + 1); }
};
__device__ __forceinline__ long long all_steps(int n) {
    const long long blocks = (n + 127) / 128, steps = (n + STEP - 1) / STEP;
    return 2 * (blocks - 1) * blocks * (blocks + 1) / 3 + blocks * (steps - 2 * (blocks - 1));
}
// The pieces of a block, one after the other.
struct Pieces {
    Walk tile;
    long long at, end;
    int of_s, of_r, first, last, slot;  // slot: 0 where a tile's beginning is another block's, 1 where only its end is, else -1
    __device__ __forceinline__ explicit Pieces(int n) : tile(n) {
        const long long all = all_steps(n);
        at = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
        while (tile.o < tile.inners && tile.at + tile.of_outer() <= at) tile.skip_outer();
        while (tile.o < tile.inners && tile.at + tile.length <= at) tile.next();
    }
    __device__ __forceinline__ bool next() {
        if (at >= end) return false;
        of_s = tile.p * 128, of_r = tile.o * 128;
        first = tile.begins + (int)(at - tile.at);
        slot = at > tile.at ? 0 : tile.at + tile.length > end ? 1 : -1;
        at = min(end, tile.at + tile.length);
        last = tile.begins + (int)(at - tile.at);
        if (at == tile.at + tile.length) tile.next();
        return true;
    }
};

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* a_tiles, const CUtensorMap* b_tiles, const float* a, const float* b,
    float* c, float* pieces, int n) {
    const int m = n, k = n;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[3 * RING];
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), split_up = full + 8 * RING, empty = split_up + 8 * RING;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < RING; stage++) {
            init(full + 8 * stage, 1);
            init(split_up + 8 * stage, 4);  // the converter's warps
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
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (threadIdx.x == 384) {
            Pieces piece(n);
            while (piece.next()) {
                for (int step = piece.first; step < piece.last; step++) {
                    wait(empty + 8 * stage, parity ^ 1);  // the first round does not wait
                    const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
                    expect(ready, S_BYTES + R_BYTES);
                    fetch(to, a_tiles, step * STEP, piece.of_s, ready);
#pragma unroll
                    for (int box = 0; box < WIDE / 32; box++) fetch(to + 2 * S_BYTES + 4096 * box, b_tiles, piece.of_r + 32 * box, step * STEP, ready);
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
            }
        }
        if (warp > 0) {  // zeros
            const int across = (n + 127) / 128;
            for (int tile = blockIdx.x; tile < across * across; tile += gridDim.x) {
                const int y = tile / across * 128, x = tile % across * 128;
                if (x > y)
                    for (int i = y + warp - 1; i < min(y + 128, n); i += 3)
                        if (x + lane * 4 < n) *reinterpret_cast<float4*>(c + (long long)i * n + x + lane * 4) = make_float4(0, 0, 0, 0);
            }
        }
    } else if (group == 2) {  // the converter
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        const int thread = threadIdx.x % 128;
        Pieces piece(n);
        while (piece.next())
            for (int step = piece.first; step < piece.last; step++) {
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
                        if (CUT) {  // hi is what tensor cores read of the number as it is
                            write4(from + i * 2048 + S_BYTES, high(less(v[i], cut(v[i]))));
                        } else {
                            const float4 hi = high(v[i]);
                            write4(from + i * 2048, hi);
                            write4(from + i * 2048 + S_BYTES, less(v[i], hi));
                        }
                    }
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what was written, wgmma will read
                __syncwarp();
                if (lane == 0) arrive(split_up + 8 * stage);
                if (++stage == RING) stage = 0, parity ^= 1;
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
        float d[H][64];
#pragma unroll
        for (int i = 0; i < 64 * H; i++) d[i / 64][i % 64] = 0;
        const int g = lane / 4, t = lane % 4;
        // wgmma does not mind which of the warp's indices is which of its rows. Of 32, which two warps share by quads, rows
        // g, g + 8 are two neighbours, read at once; g, g + 2 a quad; g, g + 1 are 16 indices apart: no conflicts.
        const int quad = g % 2 * 4 + warp % 2 * 2 + g / 4;
        const unsigned mine = 2 * S_BYTES + (group * 2 + warp / 2) * 4096 + t * 128 + g / 2 % 2 * 8;
        const unsigned near = mine + ((quad ^ t) << 4), far = mine + 512 + ((quad ^ t + 4) << 4);  // k = t, t + 4
        const int r_lane = (group * 2 + warp / 2) * 32 + quad * 4 + g / 2 % 2 * 2;
        const int part = PART;
        constexpr int EACH = 2 / H;  // times 8 of k at once
        auto take = [&](unsigned at, int l, float (&hi)[2][4], float (&lo)[2][4]) {
            float x[2][4];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float2 v = read2(at + near + (l + e) * 1024), w = read2(at + far + (l + e) * 1024);
                x[e][0] = v.x, x[e][1] = v.y, x[e][2] = w.x, x[e][3] = w.y;
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                hi[i / 4][i % 4] = high(x[i / 4][i % 4]);
                lo[i / 4][i % 4] = x[i / 4][i % 4] - hi[i / 4][i % 4];
            }
        };
        float hi_0[2][4], lo_0[2][4];
        bool taken = false;
        Pieces piece(n);
        while (same(piece.next())) {
            const int begin = same(piece.first), until = same(piece.last);
            const int s_lane = piece.of_s + t * 2, of_r = piece.of_r + r_lane;
            float bad = 0;
            const bool whole = piece.slot < 0;
            const int pitch = whole ? n : WIDE;
            float* const base = whole ? c + (long long)s_lane * n + of_r : pieces + (blockIdx.x * 2ll + piece.slot) * (128 * WIDE) + t * 2 * WIDE + r_lane;
            float sums[64];
#pragma unroll
            for (int i = 0; i < 64; i++) sums[i] = 0;
            // Steps in which all of this group's columns of b are zero: at the beginning of the second one's.
            auto pass = [&](int from, int to) {
                for (; from < to; from++) {
                    wait(full + 8 * stage, parity);
                    __syncwarp();
                    if (lane == 0) arrive(empty + 8 * stage);
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
            };
            const int step_first = min(until, max(begin, same(piece.of_r + 64 * group) / STEP)), step_last = until;
            pass(begin, step_first);
            int step = step_first;
            for (bool more = true; more;) {
                const int end = min(step + part, step_last);
                int add = 0;
                for (; step < end; step++) {
                    const unsigned at = tiles + STAGE_BYTES * stage;
                    if (!taken) {
                        wait(full + 8 * stage, parity);
                        take(at, 0, hi_0, lo_0);
                    }
                    wait(split_up + 8 * stage, parity);
                    const unsigned s_at = same(at);
#pragma unroll
                    for (int l = 0; l < STEP / 8; l += EACH) {
                        float hi_l[2][4], lo_l[2][4];
                        if (l) take(at, l, hi_l, lo_l);
                        float (&hi)[2][4] = l ? hi_l : hi_0, (&lo)[2][4] = l ? lo_l : lo_0;
                        u64 s_hi[2], s_lo[2];
#pragma unroll
                        for (int e = 0; e < 2; e++) {
                            const int eighth = l + e % EACH;
                            s_hi[e] = tile_of(s_at) + 2 * eighth, s_lo[e] = tile_of(s_at + S_BYTES) + 2 * eighth;  // 32 bytes of a's rows
                        }
                        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                        multiply(d[0], lo[0], s_hi[0], l ? 1 : add);
                        multiply(d[H - 1], lo[1], s_hi[1], l || H == 1 ? 1 : add);
                        multiply(d[0], hi[0], s_lo[0], 1);
                        multiply(d[H - 1], hi[1], s_lo[1], 1);
                        multiply(d[0], hi[0], s_hi[0], 1);
                        multiply(d[H - 1], hi[1], s_hi[1], 1);
                        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                        if (AHEAD || l < STEP / 8 - EACH) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    }
                    taken = AHEAD && step + 1 < step_last;
                    if (taken) {  // the next step's first numbers, while the last products are made
                        const int next = stage == RING - 1 ? 0 : stage + 1;
                        wait(full + 8 * next, next ? parity : parity ^ 1);
                        take(tiles + STAGE_BYTES * next, 0, hi_0, lo_0);
                    }
                    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // the other group has work meanwhile
#pragma unroll
                    for (int i = 0; i < 64 * H; i++) asm volatile("" : "+f"(d[i / 64][i % 64])::"memory");
                    if (lane == 0) arrive(empty + 8 * stage);
                    add = 1;
                    if (++stage == RING) stage = 0, parity ^= 1;
                }
                if (add)
#pragma unroll
                    for (int i = 0; i < 64; i++) sums[i] += d[0][i];
                more = step < step_last;
                if (more) continue;
                float* to = base;
                asm volatile("" : "+l"(to));  // or all addresses would be computed before the loop, and kept
                if (of_r < n) {
#pragma unroll
                    for (int j = 0; j < 16; j++) {
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (s_lane + 8 * j + i < m) {
                                const float v = sums[4 * j + i], w = sums[4 * j + i + 2];
                                asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to + i * pitch), "f"(v), "f"(w) : "memory");
                                bad += (v + w) * 0;  // NaN where not both are finite
                            }
                        to += 8ll * pitch;
                    }
                }
            }
            // Infinity times lo = 0 is NaN: what did not come out finite is computed as a plain product has it.
            if (whole && bad != 0)
#pragma unroll 1
                for (int e = 0; e < 64 * H; e++) {
                    const int i = s_lane + e / (4 * H) * 8 + e / (2 * H) % 2, j = of_r + e % (2 * H);
                    if (i >= m || j >= n) continue;
                    float* to = c + (long long)i * n + j;
                    float sum;
                    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(sum) : "l"(to) : "memory");
                    if (sum * 0 == 0) continue;
                    sum = 0;
#pragma unroll 8
                    for (int l = j; l < i + 1; l++) sum += a[(long long)i * k + l] * b[(long long)l * n + j];
                    *to = sum;
                }
            pass(step_last, until);
        }
    }
}

// Adds up the pieces of tiles that several blocks had.
extern "C" __global__ void __launch_bounds__(256) finish_pieces(const float* a, const float* b, const float* pieces, float* c, int units, int n) {
    cudaGridDependencySynchronize();
    const int across = (n + 127) / 128, s = blockIdx.x / across, r = blockIdx.x % across, outer = r, inner = s;
    if (inner < outer) return;
    Walk w(n);
    while (w.o < outer) w.skip_outer();
    while (w.p < inner) w.next();
    const long long begin = w.at, end = w.at + w.length, all = all_steps(n);
    const int of_s = s * 128, of_r = r * 128;
    const int first_unit = (int)max(0ll, begin * units / all - 1);
    for (int q = blockIdx.y * 256 + threadIdx.x; q < 32 * WIDE; q += gridDim.y * 256) {
        const int i = of_s + q / (WIDE / 4), j = of_r + q % (WIDE / 4) * 4;
        float4 sum = {};
        for (long long u = first_unit; u < units; u++) {
            const long long from = all * u / units, to = all * (u + 1) / units;
            if (from >= end) break;
            if (to <= begin || from == to) continue;
            if (from <= begin && to >= end) return;  // one block had all of it
            if (i >= n || j >= n) continue;
            const float4 v = *reinterpret_cast<const float4*>(pieces + (u * 2 + (from <= begin)) * (128 * WIDE) + q * 4);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
        if (i >= n || j >= n) continue;
        if ((sum.x + sum.y + sum.z + sum.w) * 0 != 0) {
            const float found[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float v = found[e];
                if (v * 0 != 0) {
                    v = 0;
#pragma unroll 4
                    for (int l = 0; l < n; l++) v += a[(long long)i * n + l] * b[(long long)l * n + j + e];
                }
                c[(long long)i * n + j + e] = v;
            }
            continue;
        }
        *reinterpret_cast<float4*>(c + (long long)i * n + j) = sum;
    }
}

// Other sizes.
constexpr int FM = 128, FN = 128, FK = 16, FSTAGES = 4;
// fp32 by FFMA: 8 x 16 results a thread, 64 x 64 a warp, so that 128 FFMA come on 6 reads of 128 bits from shared memory.
// Tiles on the wrong side of the diagonal are zero; of the others a tile sums only
// where both factors may be other than zero. All their steps along k stand in one row, tile by tile, of which each of one
// wave of blocks takes an equal share. A factor whose rows lie along k is turned by
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

// Tiles by columns (outer) and rows (inner): sums begin where the outer begins, and end where the inner ends.
constexpr int FOUTER = FN, FINNER = FM;
struct FWalk {
    int steps, late, inners, o, p, begins, length;  // `late`: of the first step something is missing
    long long at;  // step that the tile begins with

    __device__ __forceinline__ FWalk(int n) : steps((n + FK - 1) / FK), late(n % FK != 0), inners((n + FINNER - 1) / FINNER), at(0) { enter(0); }
    __device__ __forceinline__ void enter(int outer) { o = outer, begins = o * (FOUTER / FK), go(o * FOUTER / FINNER); }
    __device__ __forceinline__ void go(int inner) { p = inner, length = (p + 1 < inners ? (p + 1) * (FINNER / FK) + late : steps) - begins; }
    __device__ __forceinline__ long long of_outer() const {  // steps from this tile, its outer's first, to its outer's last
        const long long before = inners - 1 - p;
        return before * (late - begins) + before * (inners + p) / 2 * (FINNER / FK) + steps - begins;
    }
    __device__ __forceinline__ void next() {
        at += length;
        if (p + 1 < inners) go(p + 1); else enter(o + 1);
    }
    __device__ __forceinline__ void skip_outer() { at += of_outer(), enter(o + 1); }
    __device__ __forceinline__ int top() const { return p * FM; }
    __device__ __forceinline__ int left() const { return o * FN; }
};
__device__ __forceinline__ long long all_steps_any(int n) {
    FWalk w(n);
    while (w.o * FOUTER < n) w.skip_outer();
    return w.at;
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

template <int V> __global__ void __launch_bounds__(FTHREADS, 256 / FTHREADS) gemm(const float* a, const float* b, float* c, float* parts, int n) {
    const int m = n, k = n;
    using Left = Panel<FM, true, V>;
    using Right = Panel<FN, false, V>;
    constexpr int OF_LEFT = FK * Left::PITCH, STAGE = OF_LEFT + FK * Right::PITCH;
    alignas(16) extern __shared__ float floats[];
    const long long a_pitch = k, b_pitch = n;
    const int steps = (k + FK - 1) / FK, lead = steps * FK - k;
    const long long all = all_steps_any(n), end = all * (blockIdx.x + 1) / gridDim.x;
    long long at = all * blockIdx.x / gridDim.x;
    Left of_a;
    Right of_b;
    FWalk tile(n);
    while (tile.o * FOUTER < n && tile.at + tile.of_outer() <= at) tile.skip_outer();
    while (tile.o * FOUTER < n && tile.at + tile.length <= at) tile.next();
    int top, left, first, last, slot;  // slot: 0 where a tile's beginning is another block's, 1 where only its end is, else -1

    auto next = [&]() {  // where the next piece lies, and the copies of its first stages
        if (at >= end) return false;
        top = tile.top(), left = tile.left();
        first = tile.begins + (int)(at - tile.at);
        slot = at > tile.at ? 0 : tile.at + tile.length > end ? 1 : -1;
        at = min(end, tile.at + tile.length);
        last = tile.begins + (int)(at - tile.at);
        if (at == tile.at + tile.length) tile.next();
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
        float* part = slot < 0 ? nullptr : parts + ((long long)blockIdx.x * 2 + slot) * (FM * FN) + threadIdx.x * 4;
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

extern "C" __global__ void __launch_bounds__(FTHREADS) finish(const float* parts, float* c, int units, int n) {
    const int m = n, k = n;
    const int across = (n + FN - 1) / FN, top = blockIdx.x / across * FM, left = blockIdx.x % across * FN;
    const int outer = left, inner = top;
    const bool zero = inner + FINNER <= outer;
    long long all = 0, begin = 0, end = 0, first_unit = 0;
    if (!zero) {
        FWalk w(n);
        while (w.o * FOUTER < outer) w.skip_outer();
        while (w.p * FINNER < inner) w.next();
        begin = w.at, end = w.at + w.length;
        all = all_steps_any(n), first_unit = begin * units / all;
    }
    for (int q = blockIdx.y * 8; q < blockIdx.y * 8 + 8; q++) {
        float4 sum = {};
        if (!zero)
            for (long long u = first_unit; u < units; u++) {
                const long long from = all * u / units, to = all * (u + 1) / units;
                if (from >= end) break;
                if (to <= begin || from == to) continue;
                if (from <= begin && to >= end) return;  // one block had all of it
                const float4 v = *(const float4*)(parts + (u * 2 + (from <= begin)) * (FM * FN) + (q * FTHREADS + threadIdx.x) * 4);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
        const int i = q / 4, j = q % 4;
        write(c, top + lane_row() + i / 4 * 32 + i % 4, left + lane_col() + j * 16, m, n, sum);
    }
}
