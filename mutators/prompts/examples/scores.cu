/*! evo
requires = "depth % 8 == 0"

[tune]
STAGES = [4, 3, 2]

[[tensor_map]]
name = "q_tiles"
tensor = "q"
shape = ["depth", "rows"]
box = [64, 128]
swizzle = "128B"
l2_promotion = "L2_256B"

[[tensor_map]]
name = "key_tiles"
tensor = "keys"
shape = ["depth", "cols"]
box = [64, 64]
swizzle = "128B"
l2_promotion = "L2_256B"

[[launch]]
kernel = "scores"
grid = ["ceil_div(cols, 64)", "ceil_div(rows, 128)"]
block = [288]
shared = "1024 + 24576 * STAGES"
args = ["q_tiles", "key_tiles", "y", "rows", "cols", "depth"]
*/
typedef unsigned long long u64;
constexpr int DEPTH = 64, Q_BYTES = 128 * DEPTH * 2, STAGE_BYTES = Q_BYTES + 64 * DEPTH * 2;

__device__ void init(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ void expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void wait(unsigned barrier, int parity) {
    for (int done = 0; !done;)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
}
__device__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
// A K-major tile, 64 elements (128 bytes) wide, with the 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ u64 tile(unsigned address) { return (address & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62; }

#define FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
__device__ void multiply(float (&d)[32], u64 a, u64 b) {  // both in shared memory; the last 0, 0: both K-major
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
                 : FOUR(0), FOUR(4), FOUR(8), FOUR(12), FOUR(16), FOUR(20), FOUR(24), FOUR(28) : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(288) scores(
    const CUtensorMap* q_tiles, const CUtensorMap* key_tiles, T* y, int rows,
    int cols, int depth) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) u64 barriers[2 * STAGES];
    const unsigned tiles = (__cvta_generic_to_shared(memory) + 1023) & ~1023u;  // the swizzle counts from 1024 bytes
    const unsigned full = __cvta_generic_to_shared(barriers), empty = full + 8 * STAGES;
    const int steps = (depth + DEPTH - 1) / DEPTH, first_row = blockIdx.y * 128, first_col = blockIdx.x * 64;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) init(full + 8 * stage, 1), init(empty + 8 * stage, 8);  // 8 warps
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("fence.proxy.async.shared::cta;");
    }
    __syncthreads();
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
    if (group == 2) {  // the producer: one thread of a warp of its own
        for (int step = 0; step < steps && lane == 0; step++) {
            const int stage = step % STAGES, round = step / STAGES;
            if (round) wait(empty + 8 * stage, round - 1 & 1);
            const unsigned to = tiles + STAGE_BYTES * stage, ready = full + 8 * stage;
            expect(ready, STAGE_BYTES);  // whole boxes, what lies outside of the tensors (0) included
            fetch(to, q_tiles, step * DEPTH, first_row, ready);
            fetch(to + Q_BYTES, key_tiles, step * DEPTH, first_col, ready);
        }
        return;
    }
    float d[32] = {};
    for (int step = 0; step < steps; step++) {
        const int stage = step % STAGES;
        wait(full + 8 * stage, step / STAGES & 1);
        const unsigned a = tiles + STAGE_BYTES * stage + group * (Q_BYTES / 2), b = tiles + STAGE_BYTES * stage + Q_BYTES;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < DEPTH / 16; k++) multiply(d, tile(a + 32 * k), tile(b + 32 * k));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (lane == 0) arrive(empty + 8 * stage);
    }
    const int row = first_row + group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;
    for (int i = 0; i < 32; i++) {
        const int r = row + i % 4 / 2 * 8, c = first_col + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (r < rows && c < cols) y[(long long)r * cols + c] = store(d[i]);
    }
}
