/*! evo
[tune]
STAGES = [6, 5, 4]

[let]
tiles = "(ceil_div(n, 128) + 1) ** 2 // 4"

aligned = "n % 8 == 0"
# Rows that are no whole vectors cannot be addressed by TMA: where it is worth it, they are copied into such as are.
odd = "not aligned and n ** 3 >= 2 ** 25"
n_wide = "ceil_div(n, 8) * 8"

[[buffer]]
name = "a_wide_rows"
dtype = "T"
shape = ["n * n_wide if odd else 1"]

[[buffer]]
name = "b_wide_rows"
dtype = "T"
shape = ["n * n_wide if odd else 1"]

[[buffer]]
name = "c_wide_rows"
dtype = "T"
shape = ["n * n_wide if odd else 1"]

[[tensor_map]]
name = "a_tiles"
tensor = "a"
shape = ["n if n % 8 == 0 else 1", "n if n % 8 == 0 else 1"]
strides = ["2 * n if n % 8 == 0 else 16"]
box = [64, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "b_tiles"
tensor = "b"
shape = ["n if n % 8 == 0 else 1", "n if n % 8 == 0 else 1"]
strides = ["2 * n if n % 8 == 0 else 16"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "c_tiles"
tensor = "c"
shape = ["n if n % 8 == 0 else 1", "n if n % 8 == 0 else 1"]
strides = ["2 * n if n % 8 == 0 else 16"]
box = [64, 64]
swizzle = "128B"

[[tensor_map]]
name = "a_wide"
tensor = "a_wide_rows"
shape = ["n", "n"]
strides = ["2 * n_wide"]
box = [64, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "b_wide"
tensor = "b_wide_rows"
shape = ["n", "n"]
strides = ["2 * n_wide"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "c_wide"
tensor = "c_wide_rows"
shape = ["n", "n"]
strides = ["2 * n_wide"]
box = [64, 64]
swizzle = "128B"

[[launch]]
kernel = "widen"
when = "odd"
grid = ["ceil_div(n * n_wide, 2048)"]
block = [256]
args = ["a", "a_wide_rows", "n", "n", "n_wide"]

[[launch]]
kernel = "widen"
when = "odd"
grid = ["ceil_div(n * n_wide, 2048)"]
block = [256]
args = ["b", "b_wide_rows", "n", "n", "n_wide"]

[[launch]]
kernel = "multiply_tiles"
when = "aligned or odd"
grid = ["2 * min(tiles, sm_count // 2)"]
block = [384]
cluster = [2]
shared = "1024 + 32768 * STAGES + 32768"
args = ["a_wide if odd else a_tiles", "b_wide if odd else b_tiles", "c_wide if odd else c_tiles", "c_wide_rows if odd else c", "n"]

[[launch]]
kernel = "narrow"
when = "odd"
grid = ["ceil_div(n * n, 2048)"]
block = [256]
args = ["c_wide_rows", "c", "n", "n", "n_wide"]

[[launch]]
kernel = "multiply_any"
when = "not aligned and not odd"
grid = ["ceil_div(n, 8)", "ceil_div(n, 32)"]
block = [32, 8]
args = ["a", "b", "c", "n"]
*/
typedef unsigned long long u64;

// A block computes 128 x 128 of c: two consumer warp groups, 64 x 128 each, and a producer. The two blocks of a cluster lie
// one below the other (256 x 128 of c together) and share the tile of b: each fetches a half for both. Only tiles that
// reach the upper half are computed, and of their sums only what both factors are not zero in. Those tiles differ in
// length by n / 128: every block works out which cluster takes which, always the longest to who is free first.
constexpr int STEP = 64;
constexpr int WIDTH = 128;
constexpr int A_BYTES = 128 * STEP * 2;            // 16384
constexpr int B_BOX = 64 * STEP * 2;               // 8192: 64 columns, 64 rows of b
constexpr int STAGE_BYTES = A_BYTES + 2 * B_BOX;   // 32768
constexpr int OUT_BOX = 64 * 64 * 2;               // 8192
constexpr int LISTED = 128;                        // tiles of a cluster that are assigned so
constexpr int EXTRA = 3;                           // steps that a tile costs besides its own

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
__device__ __forceinline__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
__device__ __forceinline__ void fetch_for_both(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"((unsigned short)3) : "memory");
}
__device__ __forceinline__ void put(const CUtensorMap* map, int x, int y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(map), "r"(x), "r"(y), "r"(from) : "memory");
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
// The tiles of 256 x 128 that reach the upper half, the longest first: those whose column lies `ahead` tiles of 128 right
// of where their row meets the diagonal, for falling `ahead`. Their sums run from `first` on.
struct Tiles {
    int n, across, ahead, begin;  // `begin`: the number of the first tile that is so far ahead
    __device__ explicit Tiles(int n) : n(n), across((n + 127) / 128), ahead((n + 127) / 128 - 1), begin(0) {}
    __device__ int count() const { return (across + 1) * (across + 1) / 4; }
    __device__ void find(int tile, int& row, int& col, int& first, int& steps) {  // of rising numbers
        for (int many; tile >= begin + (many = (across + 1 - ahead) / 2); ahead--) begin += many;
        row = (tile - begin) * 256;
        col = row + ahead * 128;
        first = row;
        steps = (min(col + 128, n) - first + STEP - 1) / STEP;
    }
};
// The number of the cluster's next tile, once it is known; atomically, as one warp writes what the others wait for.
__device__ __forceinline__ int listed(int* list, int turn, bool balanced, int clusters, int cluster, int tiles) {
    if (!balanced) return min(turn * clusters + (turn % 2 ? clusters - 1 - cluster : cluster), tiles);  // to and fro
    int tile;
    while ((tile = atomicOr(list + turn, 0)) < 0) {}
    return tile;
}

// 64 columns of a warp group's sums, as bf16, into a box of 64 rows of 128 bytes with the 128-byte swizzle.
template <int QUARTER>
__device__ __forceinline__ void stage_out(const float (&d)[WIDTH / 2], unsigned box, int box_row, int lane) {
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

extern "C" __global__ void __launch_bounds__(384, 1) multiply_tiles(
    const CUtensorMap* a_tiles, const CUtensorMap* b_tiles,
    const CUtensorMap* c_tiles, T* c, int n) {
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    __shared__ int list[LISTED];  // this cluster's tiles; count: the end; -1: not known yet
    const unsigned tiles = ((unsigned)__cvta_generic_to_shared(memory) + 1023) & ~1023u;
    const unsigned out = tiles + STAGES * STAGE_BYTES;
    const unsigned full = (unsigned)__cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
    const int clusters = gridDim.x / 2, cluster = blockIdx.x / 2;
    Tiles tiles_of(n);
    const int pitch = (n + 7) & ~7;  // of c: of its rows, or of the wider ones that stand for them
    const int count = tiles_of.count();
    const bool balanced = clusters <= 96 && count <= 16 * clusters;  // else to and fro is about as good
    int rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 256) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(a_tiles) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(b_tiles) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(c_tiles) : "memory");
    }

    for (int i = threadIdx.x; i < LISTED; i += 384) list[i] = i ? -1 : cluster;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
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
        asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
        if (threadIdx.x == 256) {
            int stage = 0, parity = 1;  // the first round does not wait
            for (int turn = 0;; turn++) {
                const int tile = listed(list, turn, balanced, clusters, cluster, count);
                if (tile >= count) break;
                int row, col, first, steps;
                tiles_of.find(tile, row, col, first, steps);
                row += 128 * rank;
                for (int step = 0; step < steps; step++) {
                    wait(empty + 8 * stage, parity);  // empty in both blocks
                    const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
                    expect(ready, STAGE_BYTES);
                    fetch(to, a_tiles, first + step * STEP, row, ready);
                    fetch_for_both(to + A_BYTES + B_BOX * rank, b_tiles, col + 64 * rank, first + step * STEP, ready);
                    if (++stage == STAGES) stage = 0, parity ^= 1;
                }
            }
        } else if (threadIdx.x / 32 == 9) {  // assigns: lane l holds the steps of clusters l, l + 32 and l + 64
            if (balanced) {
                int load[3], found = 1;
#pragma unroll
                for (int i = 0; i < 3; i++) load[i] = lane + 32 * i < clusters ? 0 : 1 << 22;
                for (int tile = 0; tile < count; tile++) {
                    int row, col, first, steps;
                    tiles_of.find(tile, row, col, first, steps);
                    unsigned least = load[0] << 7 | lane;
                    least = min(least, (unsigned)(load[1] << 7 | lane + 32));
                    least = __reduce_min_sync(0xffffffffu, min(least, (unsigned)(load[2] << 7 | lane + 64)));
                    const int taker = least & 127;
#pragma unroll
                    for (int i = 0; i < 3; i++) load[i] += taker == lane + 32 * i ? steps + EXTRA : 0;
                    if (taker == cluster && tile >= clusters) {  // the first of all is known
                        if (lane == 0) atomicExch(list + found, tile);
                        found++;
                    }
                }
                if (lane == 0) atomicExch(list + found, count);
            }
        } else if (threadIdx.x / 32 >= 10) {  // writes the zeros: to every tile off the diagonal belong 128 x 256 opposite
            for (int tile = cluster; tile < count; tile += clusters) {
                int row, col, first, steps;
                tiles_of.find(tile, row, col, first, steps);
                if (col >= row + 256) {
                    const int y = col + 64 * rank, x = row + lane * 8;
                    for (int i = threadIdx.x / 32 - 10; i < 64; i += 2)
                        if (y + i < n && x < n) *reinterpret_cast<uint4*>(c + (long long)(y + i) * pitch + x) = make_uint4(0, 0, 0, 0);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        float d[WIDTH / 2];
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) d[i] = 0;
        const unsigned remote_empty = address_in(empty, lane & 1);  // lane 0 tells block 0, lane 1 block 1
        const int warp = threadIdx.x % 128 / 32;
        const bool leader = threadIdx.x % 128 == 0;
        const unsigned boxes = out + group * 2 * OUT_BOX;
        const int box_row = warp * 16 + lane % 16;  // the row whose address this lane gives to stmatrix
        int stage = 0, parity = 0;
        for (int turn = 0;; turn++) {
            int tile = lane == 0 ? listed(list, turn, balanced, clusters, cluster, count) : 0;
            tile = __shfl_sync(0xffffffffu, tile, 0);
            if (tile >= count) break;
            int row, col, first, steps;
            tiles_of.find(tile, row, col, first, steps);
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
                previous = stage;
                if (++stage == STAGES) stage = 0, parity ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int i = 0; i < WIDTH / 2; i++) asm volatile("" : "+f"(d[i])::"memory");
            if (lane < 2) arrive_at(remote_empty + 8 * previous);
            if (leader) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // of the tile before
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            stage_out<0>(d, boxes, box_row, lane);
            stage_out<1>(d, boxes + OUT_BOX, box_row, lane);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
            if (leader) {
                for (int box = 0; box < WIDTH / 64; box++) put(c_tiles, col + 64 * box, row, boxes + OUT_BOX * box);
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            }
        }
        if (leader) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    cluster_barrier();  // no block leaves while the other may still write to it
}

// Small sizes that TMA cannot address: one thread per element.
extern "C" __global__ void __launch_bounds__(256) multiply_any(const T* a, const T* b, T* c, int n) {
    const int i = blockIdx.x * 8 + threadIdx.y, j = blockIdx.y * 32 + threadIdx.x;
    if (i >= n || j >= n) return;
    ACC sum = 0;
    for (int l = i; l <= j; l++) sum += load(a[(long long)i * n + l]) * load(b[(long long)l * n + j]);
    c[(long long)i * n + j] = store(sum);
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
