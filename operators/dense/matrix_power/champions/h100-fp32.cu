/*! evo
[tune]
WIDE = [256, 128]                  # columns of a tile
AHEAD = [0, 1]                     # whether the next step's first numbers are read before this one's products are done
CUT = [0, 1]                       # 1: hi is what tensor cores make of the number itself; not written
PART = [16, 8, 32]                 # steps between sums in fp32, where WIDE is 256
KEEP = [85, 95, 0]                 # percent of the multiprocessors that tiles left over must occupy not to be cut
RASTER = [16, 8, 32]
LEAST = [256, 512]
where = ["AHEAD == 0 or WIDE == 128"]   # with more sums registers do not suffice
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[let]
fits = "n % 4 == 0 and n >= LEAST and power >= 2"
bits = "ceil_log2(power + 1) - 1"
rounds = "ceil_div(n, 128) * ceil_div(n, WIDE)"
left_over = "rounds % sm_count"
split = "left_over if fits and 100 * left_over < KEEP * sm_count else 0"   # tiles that are cut along k
blocks = "sm_count if split > 0 else min(rounds, sm_count)"

[[buffer]]
name = "p0"
dtype = "T"
shape = ["n if fits else 4", "n if fits else 4"]

[[buffer]]
name = "p1"
dtype = "T"
shape = ["n if fits else 4", "n if fits else 4"]

[[buffer]]
name = "s"
dtype = "T"
shape = ["n if fits else 4", "n if fits else 4"]

[[buffer]]
name = "pieces"
dtype = "ACC"
shape = ["2 * sm_count * 128 * WIDE if split > 0 else 1"]

[[tensor_map]]
name = "a_left"
tensor = "a"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "p0_left"
tensor = "p0"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "p1_left"
tensor = "p1"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "a_right"
tensor = "a"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 32]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "p0_right"
tensor = "p0"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 32]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "p1_right"
tensor = "p1"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 32]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "s_right"
tensor = "s"
shape = ["n if fits else 4", "n if fits else 4"]
strides = ["4 * n if fits else 16"]
box = [32, 32]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
when = "(n > 361) and (fits)"
kernel = "multiply_tiles"
grid = ["blocks"]
block = [512]
shared = "1024 + (3 * 65536 if WIDE == 256 else 4 * 49152)"
args = ["a_left if i == 0 else (p1_left if i % 2 == 0 else p0_left)", "a_right if i == 0 else (p1_right if i % 2 == 0 else p0_right)", "a if i == 0 else (p1 if i % 2 == 0 else p0)", "a if i == 0 else (p1 if i % 2 == 0 else p0)", "(s if power // 2 ** (bits - 1 - i) % 2 == 1 else (b if i == bits - 1 else (p0 if i % 2 == 0 else p1)))", "pieces", "n", "split"]
group = "bits"

[[launch]]
when = "(n > 361) and (fits and split > 0)"
kernel = "finish_pieces"
grid = ["max(split, 1)", "WIDE // 16"]
block = [256]
args = ["a if i == 0 else (p1 if i % 2 == 0 else p0)", "a if i == 0 else (p1 if i % 2 == 0 else p0)", "pieces", "(s if power // 2 ** (bits - 1 - i) % 2 == 1 else (b if i == bits - 1 else (p0 if i % 2 == 0 else p1)))", "sm_count", "n", "split"]
overlap = true
group = "bits"

[[launch]]
when = "(n > 361) and (fits and power // 2 ** (bits - 1 - i) % 2 == 1)"
kernel = "multiply_tiles"
grid = ["blocks"]
block = [512]
shared = "1024 + (3 * 65536 if WIDE == 256 else 4 * 49152)"
args = ["a_left", "s_right", "a", "s", "(b if i == bits - 1 else (p0 if i % 2 == 0 else p1))", "pieces", "n", "split"]
group = "bits"

[[launch]]
when = "(n > 361) and (fits and split > 0 and power // 2 ** (bits - 1 - i) % 2 == 1)"
kernel = "finish_pieces"
grid = ["max(split, 1)", "WIDE // 16"]
block = [256]
args = ["a", "s", "pieces", "(b if i == bits - 1 else (p0 if i % 2 == 0 else p1))", "sm_count", "n", "split"]
overlap = true
group = "bits"

[group.bits]
repeat = "bits"

[[buffer]]
name = "even"
dtype = "ACC"
shape = ["1 if fits else n", "1 if fits else n"]

[[buffer]]
name = "odd"
dtype = "ACC"
shape = ["1 if fits else n", "1 if fits else n"]

[[buffer]]
name = "even_2"
dtype = "ACC"
shape = ["n", "n"]

[[buffer]]
name = "odd_2"
dtype = "ACC"
shape = ["n", "n"]

[[launch]]
when = "(n > 361) and (not fits)"
kernel = "widen"
grid = ["ceil_div(n, 32)", "ceil_div(n, 8)"]
block = [32, 8]
args = ["a", "even", "n"]

[[launch]]
when = "(n > 361) and (not fits)"
kernel = "plain"
grid = ["ceil_div(n, 32)", "ceil_div(n, 8)"]
block = [32, 8]
args = ["a", "even if i % 2 == 0 else odd", "odd if i % 2 == 0 else even", "n"]
group = "power"

[[launch]]
when = "(n > 361) and (not fits)"
kernel = "narrow"
grid = ["ceil_div(n, 32)", "ceil_div(n, 8)"]
block = [32, 8]
args = ["odd if power % 2 == 0 else even", "b", "n"]

[[launch]]
when = "n <= 361"
kernel = "widen_2"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "even_2", "n"]

[[launch]]
when = "n <= 361"
kernel = "multiply_2"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "even_2 if i % 2 == 0 else odd_2", "odd_2 if i % 2 == 0 else even_2", "n"]
group = "power_2"

[[launch]]
when = "n <= 361"
kernel = "narrow_2"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["odd_2 if power % 2 == 0 else even_2", "b", "n"]

[group.power]
repeat = "power - 1"
[group.power_2]
repeat = "power - 1"
*/
typedef unsigned long long u64;

// Squarings and products with a, from the power's first bit on, each rounded to fp32.
// fp32 on tensor cores: each number is hi + lo, two of TF32, and lo hi + hi lo + hi hi make a product (what lo lo would add
// is below the last bit). A block computes 128 indices of a x WIDE of b. wgmma takes a from shared memory, where it lies
// along k, and b, its first factor, from registers. Warp groups: two consumers, each for half of b's indices, which they
// split as they read them; a converter, which splits a in shared memory; a producer.
// Tensor cores cut off what sums lose, always towards zero, which adds up: after `part` steps the sums are added with
// rounding to those before, in registers where they have room (WIDE 128), else in memory, and new ones begin.
// Tiles that are left over after whole rounds of all multiprocessors are cut along k: each block gets an equal share of
// their steps, and writes to `pieces` what is not a whole tile; `finish_pieces` adds these up.
constexpr int H = WIDE / 128;                            // times 64 indices of b a consumer has
constexpr int SHORT = 4;                                 // `part`, where sums are in registers
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
// Tiles in bands of RASTER along a, so that those under way share rows and columns.
__device__ __forceinline__ void place(int tile, int down, int across, int& of_s, int& of_r) {
    const int band = RASTER * across, first = tile / band * RASTER, rest = tile % band;
    const int height = min(down - first, RASTER);
    of_s = (first + rest % height) * 128;
    of_r = rest / height * WIDE;
}
// The pieces of a block, one after the other: whole tiles, and its share of those that are cut.
struct Pieces {
    int n, steps, tile, whole, at, end, cuts;
    int of_s, of_r, first, last, slot;  // slot: -1, or which of the block's two in `pieces`
    __device__ __forceinline__ int down() const { return (n + 127) / 128; }
    __device__ __forceinline__ int across() const { return (n + WIDE - 1) / WIDE; }
    __device__ __forceinline__ Pieces(int n, int split) : n(n), steps((n + STEP - 1) / STEP), tile(blockIdx.x), cuts(0) {
        whole = down() * across() - split;
        at = (int)((long long)split * steps * blockIdx.x / gridDim.x), end = (int)((long long)split * steps * (blockIdx.x + 1) / gridDim.x);
    }
    __device__ __forceinline__ bool next() {
        first = 0, last = steps, slot = -1;
        if (tile < whole) {
            place(tile, down(), across(), of_s, of_r);
            tile += gridDim.x;
            return true;
        }
        if (at >= end) return false;
        place(whole + at / steps, down(), across(), of_s, of_r);
        first = at % steps, last = min(steps, first + end - at);
        at += last - first;
        if (last - first < steps) slot = cuts;
        cuts++;
        return true;
    }
};

extern "C" __global__ void __launch_bounds__(512, 1) multiply_tiles(
    const CUtensorMap* a_tiles, const CUtensorMap* b_tiles, const float* a, const float* b,
    float* c, float* pieces, int n, int split) {
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
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 384) {
            Pieces piece(n, split);
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
    } else if (group == 2) {  // the converter
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        const int thread = threadIdx.x % 128;
        Pieces piece(n, split);
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
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
        float d[H][64];
#pragma unroll
        for (int i = 0; i < 64 * H; i++) d[i / 64][i % 64] = 0;
        const int g = lane / 4, t = lane % 4;
        // wgmma does not mind which of the warp's indices is which of its rows.
        // H = 2: of 32, rows g, g + 8 (of d[0]), g, g + 8 (of d[1]) are four neighbours, read at once; neighbouring g are
        // 16 indices apart, so that reads have no conflicts. H = 1: of 32, which two warps share by quads, rows g, g + 8
        // are two neighbours; g, g + 2 a quad; g, g + 1 are 16 indices apart.
        const int quad = H == 2 ? g / 2 + g % 2 * 4 : g % 2 * 4 + warp % 2 * 2 + g / 4;
        const unsigned mine = 2 * S_BYTES + (H == 2 ? group * 4 + warp : group * 2 + warp / 2) * 4096 + t * 128 + (H == 2 ? 0 : g / 2 % 2 * 8);
        const unsigned near = mine + ((quad ^ t) << 4), far = mine + 512 + ((quad ^ t + 4) << 4);  // k = t, t + 4
        const int r_lane = (H == 2 ? group * 4 + warp : group * 2 + warp / 2) * 32 + quad * 4 + (H == 2 ? 0 : g / 2 % 2 * 2);
        const int steps = (n + STEP - 1) / STEP;
        const int part = H == 1 ? SHORT : min(PART, max((steps + 3) / 4, min(2, (steps + 1) / 2)));  // steps, of short sums fewer
        constexpr int EACH = 2 / H;  // times 8 of k at once
        auto take = [&](unsigned at, int l, float (&hi)[2][4], float (&lo)[2][4]) {
            float x[2][4];
            if constexpr (H == 1) {
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const float2 v = read2(at + near + (l + e) * 1024), w = read2(at + far + (l + e) * 1024);
                    x[e][0] = v.x, x[e][1] = v.y, x[e][2] = w.x, x[e][3] = w.y;
                }
            } else {
                const float4 v = read4(at + near + l * 1024), w = read4(at + far + l * 1024);
                x[0][0] = v.x, x[0][1] = v.y, x[1][0] = v.z, x[1][1] = v.w;
                x[0][2] = w.x, x[0][3] = w.y, x[1][2] = w.z, x[1][3] = w.w;
            }
#pragma unroll
            for (int i = 0; i < 8; i++) {
                hi[i / 4][i % 4] = high(x[i / 4][i % 4]);
                lo[i / 4][i % 4] = x[i / 4][i % 4] - hi[i / 4][i % 4];
            }
        };
        float hi_0[2][4], lo_0[2][4];
        bool taken = false;
        Pieces piece(n, split);
        while (same(piece.next())) {
            const int begin = same(piece.first), until = same(piece.last);
            const int s_lane = piece.of_s + t * 2, of_r = piece.of_r + r_lane;
            float bad = 0;
            const bool whole = piece.slot < 0;
            const int pitch = whole ? n : WIDE;
            float* const base = whole ? c + (long long)s_lane * n + of_r : pieces + (blockIdx.x * 2ll + piece.slot) * (128 * WIDE) + t * 2 * WIDE + r_lane;
            float sums[H == 1 ? 64 : 1];
            if constexpr (H == 1)
#pragma unroll
                for (int i = 0; i < 64; i++) sums[i] = 0;
            for (int step = begin; step < until;) {
                const bool first = step == begin;
                const int end = min(step + part, until);
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
                    taken = AHEAD && step + 1 < until;
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
                if constexpr (H == 1) {
#pragma unroll
                    for (int i = 0; i < 64; i++) sums[i] += d[0][i];
                    if (step < until) continue;
                }
                float* to = base;
                asm volatile("" : "+l"(to));  // or all addresses would be computed before the loop, and kept
                if (of_r < n) {
#pragma unroll
                    for (int j = 0; j < 16; j++) {
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            if (s_lane + 8 * j + i < m) {
                                if constexpr (H == 1) {
                                    const float v = sums[4 * j + i], w = sums[4 * j + i + 2];
                                    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to + i * pitch), "f"(v), "f"(w) : "memory");
                                    bad += (v + w) * 0;  // NaN where not both are finite
                                } else {
                                    const float v = d[0][4 * j + i], w = d[0][4 * j + i + 2], x = d[H - 1][4 * j + i], y = d[H - 1][4 * j + i + 2];
                                    if (first) asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * pitch), "f"(v), "f"(w), "f"(x), "f"(y) : "memory");
                                    else asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + i * pitch), "f"(v), "f"(w), "f"(x), "f"(y) : "memory");
                                    bad += (v + w + x + y) * 0;  // NaN where not all are finite
                                }
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
                    for (int l = 0; l < k; l++) sum += a[(long long)i * k + l] * b[(long long)l * n + j];
                    *to = sum;
                }
        }
    }
}

// Adds up the pieces of tiles that several blocks had.
extern "C" __global__ void __launch_bounds__(256) finish_pieces(const float* a, const float* b, const float* pieces, float* c, int units, int n, int split) {
    cudaGridDependencySynchronize();
    const int steps = (n + STEP - 1) / STEP, down = (n + 127) / 128, across = (n + WIDE - 1) / WIDE;
    const long long all = (long long)split * steps, begin = (long long)blockIdx.x * steps, end = begin + steps;
    int of_s, of_r;
    place(down * across - split + blockIdx.x, down, across, of_s, of_r);
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
            const float4 v = *reinterpret_cast<const float4*>(pieces + (u * 2 + (from < begin)) * (128 * WIDE) + q * 4);
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

// What the tiles do not fit: a product after the other, each with one thread per element.
extern "C" __global__ void widen(const T* a, ACC* product, int n) {
    const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && j < n) product[(long long)i * n + j] = load(a[(long long)i * n + j]);
}
extern "C" __global__ void plain(const T* a, const ACC* from, ACC* to, int n) {
    const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n) return;
    ACC sum = 0;
    for (int l = 0; l < n; l++) sum += load(a[(long long)i * n + l]) * from[(long long)l * n + j];
    to[(long long)i * n + j] = sum;
}
extern "C" __global__ void narrow(const ACC* product, T* b, int n) {
    const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && j < n) b[(long long)i * n + j] = store(product[(long long)i * n + j]);
}

// A product after the other, each with one thread per element; what lies between them is not rounded to T.
extern "C" __global__ void widen_2(const T* a, ACC* product, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && j < n) product[(long long)i * n + j] = load(a[(long long)i * n + j]);
}

extern "C" __global__ void multiply_2(const T* a, const ACC* from, ACC* to, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n) return;
    ACC sum = 0;
    for (int l = 0; l < n; l++) sum += load(a[(long long)i * n + l]) * from[(long long)l * n + j];
    to[(long long)i * n + j] = sum;
}

extern "C" __global__ void narrow_2(const ACC* product, T* b, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && j < n) b[(long long)i * n + j] = store(product[(long long)i * n + j]);
}
