/*! evo
[tune]
STAGES = [4, 3]
RASTER = [8, 4, 16]

[let]
down = "batch * ceil_div(m, 256)"
time256 = "100 * ceil_div(down * ceil_div(n, 256), sm_count // 2)"   # rounds, and what one of them takes
time224 = "92 * ceil_div(down * ceil_div(n, 224), sm_count // 2)"
time128 = "56 * ceil_div(down * ceil_div(n, 128), sm_count // 2)"
width = "256 if time256 <= min(time224, time128) else (224 if time224 <= time128 else 128)"
tiles = "down * ceil_div(n, width)"

aligned = "n % 8 == 0 and k % 8 == 0"
# Rows that are no whole vectors cannot be addressed by TMA: where it is worth it, they are copied into such as are.
odd = "not aligned and batch * m * n * k >= 2 ** 25"
k_wide = "ceil_div(k, 8) * 8"
n_wide = "ceil_div(n, 8) * 8"

[[buffer]]
name = "a_wide_rows"
dtype = "T"
shape = ["batch * m * k_wide if odd else 1"]

[[buffer]]
name = "b_wide_rows"
dtype = "T"
shape = ["batch * k * n_wide if odd else 1"]

[[buffer]]
name = "c_wide_rows"
dtype = "T"
shape = ["batch * m * n_wide if odd else 1"]

[[tensor_map]]
name = "a_tiles"
tensor = "a"
shape = ["k if k % 8 == 0 else 1", "m if k % 8 == 0 else 1", "batch if k % 8 == 0 else 1"]
strides = ["2 * k if k % 8 == 0 else 16", "2 * k * m if k % 8 == 0 else 16"]
box = [64, 128, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "b_tiles"
tensor = "b"
shape = ["n if n % 8 == 0 else 1", "k if n % 8 == 0 else 1", "batch if n % 8 == 0 else 1"]
strides = ["2 * n if n % 8 == 0 else 16", "2 * n * k if n % 8 == 0 else 16"]
box = [64, 64, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "c_tiles"
tensor = "c"
shape = ["n if n % 8 == 0 else 1", "m if n % 8 == 0 else 1", "batch if n % 8 == 0 else 1"]
strides = ["2 * n if n % 8 == 0 else 16", "2 * n * m if n % 8 == 0 else 16"]
box = [64, 64, 1]
swizzle = "128B"

[[tensor_map]]
name = "c_halves"
tensor = "c"
shape = ["n if n % 8 == 0 else 1", "m if n % 8 == 0 else 1", "batch if n % 8 == 0 else 1"]
strides = ["2 * n if n % 8 == 0 else 16", "2 * n * m if n % 8 == 0 else 16"]
box = [32, 64, 1]
swizzle = "64B"

[[tensor_map]]
name = "a_wide"
tensor = "a_wide_rows"
shape = ["k", "m", "batch"]
strides = ["2 * k_wide", "2 * k_wide * m"]
box = [64, 128, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "b_wide"
tensor = "b_wide_rows"
shape = ["n", "k", "batch"]
strides = ["2 * n_wide", "2 * n_wide * k"]
box = [64, 64, 1]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "c_wide"
tensor = "c_wide_rows"
shape = ["n", "m", "batch"]
strides = ["2 * n_wide", "2 * n_wide * m"]
box = [64, 64, 1]
swizzle = "128B"

[[tensor_map]]
name = "c_halves_wide"
tensor = "c_wide_rows"
shape = ["n", "m", "batch"]
strides = ["2 * n_wide", "2 * n_wide * m"]
box = [32, 64, 1]
swizzle = "64B"

[[launch]]
kernel = "widen"
when = "odd"
grid = ["ceil_div(batch * m * k_wide, 2048)"]
block = [256]
args = ["a", "a_wide_rows", "batch * m", "k", "k_wide"]

[[launch]]
kernel = "widen"
when = "odd"
grid = ["ceil_div(batch * k * n_wide, 2048)"]
block = [256]
args = ["b", "b_wide_rows", "batch * k", "n", "n_wide"]

[[launch]]
kernel = "multiply_tiles<256>"
when = "(aligned or odd) and width == 256"
grid = ["2 * ceil_div(tiles, ceil_div(tiles, sm_count // 2))"]
block = [384]
cluster = [2]
shared = "1024 + 49152 * STAGES + 32768"
args = ["a_wide if odd else a_tiles", "b_wide if odd else b_tiles", "c_wide if odd else c_tiles", "c_halves_wide if odd else c_halves", "batch", "m", "n", "k"]

[[launch]]
kernel = "multiply_tiles<224>"
when = "(aligned or odd) and width == 224"
grid = ["2 * ceil_div(tiles, ceil_div(tiles, sm_count // 2))"]
block = [384]
cluster = [2]
shared = "1024 + 49152 * STAGES + 32768"
args = ["a_wide if odd else a_tiles", "b_wide if odd else b_tiles", "c_wide if odd else c_tiles", "c_halves_wide if odd else c_halves", "batch", "m", "n", "k"]

[[launch]]
kernel = "multiply_tiles<128>"
when = "(aligned or odd) and width == 128"
grid = ["2 * ceil_div(tiles, ceil_div(tiles, sm_count // 2))"]
block = [384]
cluster = [2]
shared = "1024 + 32768 * 6 + 32768"
args = ["a_wide if odd else a_tiles", "b_wide if odd else b_tiles", "c_wide if odd else c_tiles", "c_halves_wide if odd else c_halves", "batch", "m", "n", "k"]

[[launch]]
kernel = "narrow"
when = "odd"
grid = ["ceil_div(batch * m * n, 2048)"]
block = [256]
args = ["c_wide_rows", "c", "batch * m", "n", "n_wide"]

[[launch]]
kernel = "multiply_any"
when = "not aligned and not odd"
grid = ["ceil_div(m, 8)", "ceil_div(n, 32)", "min(batch, 65535)"]
block = [32, 8]
args = ["a", "b", "c", "batch", "m", "n", "k"]
*/
typedef unsigned long long u64;

// A block computes 128 x WIDTH of a matrix of c: two consumer warp groups, 64 x WIDTH each, and a producer. The two blocks
// of a cluster lie one below the other (256 x WIDTH together) and share the tile of b: each fetches a half for both.
// WIDTH is what fills the rounds best; results of few columns take 128. Of 224 columns, 256 are fetched.
constexpr int STEP = 64;
constexpr int A_BYTES = 128 * STEP * 2;            // 16384
constexpr int OUT_BOX = 64 * 64 * 2;               // 8192
constexpr int B_BOX = 64 * STEP * 2;               // 8192: 64 columns, 64 rows of b

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
// No release at cluster scope, which costs a memory fence beyond the block in each step: what was read before, wgmma
// has read, and wgmma.wait_group has waited for it; nothing was written that the other block is to see.
__device__ __forceinline__ void arrive_at(unsigned remote) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
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
__device__ __forceinline__ void fetch_for_both(unsigned to, const CUtensorMap* map, int x, int y, int z, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3, %4}], [%5], %6;"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"((unsigned short)3) : "memory");
}
__device__ __forceinline__ void put(const CUtensorMap* map, int x, int y, int z, unsigned from) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
                 ::"l"(map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}
__device__ __forceinline__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// K-major, 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ __forceinline__ u64 tile_a(unsigned address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// N-major, 128-byte swizzle: blocks of 64 columns are 8192 bytes apart, groups of 8 steps of k 1024 bytes.
__device__ __forceinline__ u64 tile_b(unsigned address) {
    return (u64)((address & 0x3ffff) >> 4) | 512ull << 16 | 64ull << 32 | 1ull << 62;
}

#define FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define SIXTEEN(I) FOUR(I), FOUR(I + 4), FOUR(I + 8), FOUR(I + 12)
__device__ __forceinline__ void multiply(float (&d)[128], u64 a, u64 b, int add) {
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
        "%128, %129, p, 1, 1, 0, 1; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96), SIXTEEN(112)
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void multiply(float (&d)[112], u64 a, u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %114, 0; "
        "wgmma.mma_async.sync.aligned.m64n224k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111}, "
        "%112, %113, p, 1, 1, 0, 1; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80), SIXTEEN(96)
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void multiply(float (&d)[64], u64 a, u64 b, int add) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 1; }"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
        : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned both;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
// Tiles of 256 x WIDTH, in bands of RASTER tiles from top to bottom, so that those under way share rows and columns.
template <int WIDTH>
__device__ __forceinline__ void place(int square, int down, int across, int& row, int& col) {
    const int band = RASTER * across, first = square / band * RASTER, rest = square % band;
    const int height = min(down - first, RASTER);
    row = (first + rest % height) * 256;
    col = rest / height * WIDTH;
}

// 64 columns of a warp group's sums, as bf16, into a box of 64 rows of 128 bytes with the 128-byte swizzle.
template <int QUARTER, int SUMS>
__device__ __forceinline__ void stage_out(const float (&d)[SUMS], unsigned box, int box_row, int lane) {
#pragma unroll
    for (int j = 0; j < 4; j++) {  // 16 columns
        const int i = QUARTER * 32 + j * 8;
        const unsigned to = box + box_row * 128 + (((j * 2 + lane / 16) ^ (box_row & 7)) << 4);
        const unsigned r0 = pack(d[i], d[i + 1]), r1 = pack(d[i + 2], d[i + 3]);
        const unsigned r2 = pack(d[i + 4], d[i + 5]), r3 = pack(d[i + 6], d[i + 7]);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
    }
}

// The last 32 of 224 columns: rows of 64 bytes, with the swizzle of that name.
__device__ __forceinline__ void stage_half(const float (&d)[112], unsigned box, int box_row, int lane) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const int i = 96 + j * 8;
        const unsigned to = box + box_row * 64 + (((j * 2 + lane / 16) ^ (box_row >> 1 & 3)) << 4);
        const unsigned r0 = pack(d[i], d[i + 1]), r1 = pack(d[i + 2], d[i + 3]);
        const unsigned r2 = pack(d[i + 4], d[i + 5]), r3 = pack(d[i + 6], d[i + 7]);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
    }
}

template <int WIDTH>
__global__ void __launch_bounds__(384, 1) multiply_tiles(
    const CUtensorMap* a_tiles, const CUtensorMap* b_tiles,
    const CUtensorMap* c_tiles, const CUtensorMap* c_halves, int batch, int m, int n, int k) {
    constexpr int B_BYTES = (WIDTH + 63) / 64 * B_BOX, STAGE_BYTES = A_BYTES + B_BYTES, DEEP = WIDTH == 128 ? 6 : STAGES;
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * DEEP];
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned out = tiles + DEEP * STAGE_BYTES;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), empty = full + 8 * DEEP;
    const int steps = (k + STEP - 1) / STEP;
    const int down = (m + 255) / 256, across = (n + WIDTH - 1) / WIDTH, in_one = down * across, squares = batch * in_one;
    const int clusters = gridDim.x / 2, first_square = blockIdx.x / 2;
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 256) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(a_tiles) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(b_tiles) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(c_tiles) : "memory");
        if constexpr (WIDTH == 224) asm volatile("prefetch.tensormap [%0];" ::"l"(c_halves) : "memory");
    }

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < DEEP; stage++) {
            init(full + 8 * stage, 1);
            init(empty + 8 * stage, 16);  // 8 warps of each of the two blocks
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    cluster_barrier();

    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0), lane = threadIdx.x % 32;  // uniform in a warp
    if (group == 2) {  // the producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            int stage = 0, parity = 1;  // the first round does not wait
            for (int square = first_square; square < squares; square += clusters) {
                int row, col;
                place<WIDTH>(square % in_one, down, across, row, col);
                const int z = square / in_one;
                row += 128 * rank;
                for (int step = 0; step < steps; step++) {
                    wait(empty + 8 * stage, parity);  // empty in both blocks
                    const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
                    expect(ready, STAGE_BYTES);
                    fetch(to, a_tiles, step * STEP, row, z, ready);
                    const unsigned half = to + A_BYTES + B_BYTES / 2 * rank;
                    for (int box = 0; box < B_BYTES / B_BOX / 2; box++)
                        fetch_for_both(half + B_BOX * box, b_tiles, col + B_BYTES / B_BOX * 32 * rank + 64 * box, step * STEP, z, ready);
                    if (++stage == DEEP) stage = 0, parity ^= 1;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[WIDTH / 2];
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) d[i] = 0;
        const unsigned remote_empty = address_in(empty, lane & 1);  // lane 0 tells block 0, lane 1 block 1
        const int warp = threadIdx.x % 128 / 32;
        const bool leader = threadIdx.x % 128 == 0;
        const unsigned boxes = out + group * 2 * OUT_BOX;
        const int box_row = warp * 16 + lane % 16;  // the row whose address this lane gives to stmatrix
        int stage = 0, parity = 0, held = -1;  // held: the stage lent to the output of the square before
        const int give_back = min(1, steps - 1);
        for (int square = first_square; square < squares; square += clusters) {
            int row, col;
            place<WIDTH>(square % in_one, down, across, row, col);
            const int z = square / in_one;
            row += 128 * rank + 64 * group;
            int previous = 0;
            for (int step = 0; step < steps; step++) {
                wait(full + 8 * stage, parity);
                const unsigned at = tiles + STAGE_BYTES * stage;
                const u64 a = tile_a(at + group * (A_BYTES / 2)), b = tile_b(at + A_BYTES);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int part = 0; part < STEP / 16; part++)  // 32 bytes along a's rows, 16 rows of 128 bytes of b
                    multiply(d, a + 2 * part, b + 128 * part, step | part);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if (step > 0 && lane < 2) arrive_at(remote_empty + 8 * previous);
                if (step == give_back && held >= 0 && leader) {  // for its warp, to both blocks
                    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // the lent stage has been read
                    arrive_at(remote_empty + 8 * held);  // the leader is a lane 0: block 0
                    arrive_at(address_in(empty, 1) + 8 * held);
                }
                previous = stage;
                if (++stage == DEEP) stage = 0, parity ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) asm volatile("" : "+f"(d[i])::"memory");
            if constexpr (WIDTH > 128) {
                // The last stage is lent to the output: the arrivals of the two leaders' warps are put off until it has
                // been read, in the next square. So all of the sums find room at once and nobody waits for stores.
                if (warp != 0 && lane < 2) arrive_at(remote_empty + 8 * previous);
                held = previous;
                const unsigned lent = tiles + STAGE_BYTES * previous;
                const unsigned box0 = lent + group * (A_BYTES / 2);       // this group's own half of a's tile
                const unsigned box1 = lent + A_BYTES + group * OUT_BOX;   // in b's tile, which both groups read
                asm volatile("bar.arrive %0, 256;" ::"r"(4 - group) : "memory");  // to the other group: done with b
                if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // of the square before
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                stage_out<0>(d, box0, box_row, lane);
                asm volatile("bar.sync %0, 256;" ::"r"(3 + group) : "memory");  // the other group is done with b
                stage_out<1>(d, box1, box_row, lane);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                if (leader) {
                    put(c_tiles, col, row, z, box0);
                    put(c_tiles, col + 64, row, z, box1);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
                stage_out<2>(d, boxes, box_row, lane);
                if constexpr (WIDTH == 256) stage_out<3>(d, boxes + OUT_BOX, box_row, lane);
                else stage_half(d, boxes + OUT_BOX, box_row, lane);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                if (leader) {
                    put(c_tiles, col + 128, row, z, boxes);
                    put(WIDTH == 256 ? c_tiles : c_halves, col + 192, row, z, boxes + OUT_BOX);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
                // With fewer steps than stages no lent stage keeps one group from running a square ahead of the other.
                if (steps < DEEP) asm volatile("bar.sync 5, 256;" ::: "memory");
            } else {  // there is room for all of the sums
                if (lane < 2) arrive_at(remote_empty + 8 * previous);
                if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // of the tile before
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                stage_out<0>(d, boxes, box_row, lane);
                stage_out<1>(d, boxes + OUT_BOX, box_row, lane);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                if (leader) {
                    for (int box = 0; box < WIDTH / 64; box++) put(c_tiles, col + 64 * box, row, z, boxes + OUT_BOX * box);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
        }
        if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    cluster_barrier();  // no block leaves while the other may still write to it
}

// Small sizes that TMA cannot address: one thread per element, of several matrices where there are more than a grid has.
extern "C" __global__ void __launch_bounds__(256) multiply_any(const T* a, const T* b, T* c, int batch, int m, int n, int k) {
    const int i = blockIdx.x * 8 + threadIdx.y, j = blockIdx.y * 32 + threadIdx.x;
    if (i >= m || j >= n) return;
    for (int s = blockIdx.z; s < batch; s += gridDim.z) {
        const long long row = (long long)s * m + i;
        ACC sum = 0;
        for (int l = 0; l < k; l++) sum += load(a[row * k + l]) * load(b[((long long)s * k + l) * n + j]);
        c[row * n + j] = store(sum);
    }
}

// Rows that are no whole vectors, which TMA cannot address, are copied into rows that are; the numbers behind their ends stand
// outside of the tensor maps. A vector of the new row is four words of the old one, or parts of five.
extern "C" __global__ void __launch_bounds__(256) widen(const T* from, T* to, int rows, int columns, int pitch) {
    const unsigned v = blockIdx.x * 256 + threadIdx.x, across = pitch / 8, row = v / across;
    if (row >= rows) return;
    const int column = (v - row * across) * 8;
    const long long first = (long long)row * columns + column;
    uint4 found;
    if (column + 8 <= columns && first + 8 < (long long)rows * columns) {
        const unsigned* const words = reinterpret_cast<const unsigned*>(from) + first / 2;
        const unsigned w0 = words[0], w1 = words[1], w2 = words[2], w3 = words[3];
        if (first % 2) {
            const unsigned w4 = words[4];
            found = make_uint4(w0 >> 16 | w1 << 16, w1 >> 16 | w2 << 16, w2 >> 16 | w3 << 16, w3 >> 16 | w4 << 16);
        } else {
            found = make_uint4(w0, w1, w2, w3);
        }
    } else {
        const unsigned short* const numbers = reinterpret_cast<const unsigned short*>(from) + first;
        unsigned u[8];
#pragma unroll
        for (int e = 0; e < 8; e++) u[e] = column + e < columns ? numbers[e] : 0;
        found = make_uint4(u[0] | u[1] << 16, u[2] | u[3] << 16, u[4] | u[5] << 16, u[6] | u[7] << 16);
    }
    reinterpret_cast<uint4*>(to)[v] = found;
}
// And back, eight numbers of the narrow rows, of one or several, to a thread.
extern "C" __global__ void __launch_bounds__(256) narrow(const T* from, T* to, int rows, int columns, int pitch) {
    const long long all = (long long)rows * columns, first = (blockIdx.x * 256ll + threadIdx.x) * 8;
    if (first >= all) return;
    const unsigned short* numbers = reinterpret_cast<const unsigned short*>(from);
    long long row = first / columns;
    int column = (int)(first - row * columns);
    unsigned u[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        u[e] = first + e < all ? numbers[row * pitch + column] : 0;
        if (++column == columns) column = 0, row++;
    }
    if (first + 8 <= all) {
        *reinterpret_cast<uint4*>(to + first) = make_uint4(u[0] | u[1] << 16, u[2] | u[3] << 16, u[4] | u[5] << 16, u[6] | u[7] << 16);
    } else {
        unsigned short* const at = reinterpret_cast<unsigned short*>(to) + first;
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (first + e < all) at[e] = u[e];
    }
}
