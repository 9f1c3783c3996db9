/*! evo
requires = "n % 8 == 0 and k % 8 == 0"

[tune]
STAGES = [4, 3, 2]

[[tensor_map]]
name = "tiles_of_a"
tensor = "a"
shape = ["k", "m"]
strides = ["2 * k"]
box = [64, 128]
swizzle = "128B"

[[tensor_map]]
name = "tiles_of_b"
tensor = "b"
shape = ["n", "k"]
strides = ["2 * n"]
box = [64, 64]
swizzle = "128B"

[[launch]]
kernel = "gemm"
grid = ["ceil_div(n, 128)", "ceil_div(m, 128)"]
block = [384]
shared = "1024 + 32768 * STAGES"
args = ["tiles_of_a", "tiles_of_b", "c", "m", "n", "k"]
*/
// c = a b in bf16 on Hopper: one warp group fetches tiles with the Tensor Memory Accelerator, two multiply 64 x 128 each
// on its tensor cores. Tiles of a are K-major, tiles of b N-major, both with the 128-byte swizzle.
constexpr int DEPTH = 64, TILE_BYTES = 128 * DEPTH * 2;

__device__ unsigned shared_address(const void* at) { return __cvta_generic_to_shared(at); }

__device__ void barrier_init(unsigned barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
__device__ void barrier_expect(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void barrier_wait(unsigned barrier, int parity) {
    int done = 0;
    while (!done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
}
__device__ void fetch(unsigned to, const CUtensorMap* map, int x, int y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// Where a tile lies in shared memory; offsets are those between its 64-wide columns and its 8-row groups.
__device__ unsigned long long descriptor(unsigned address, unsigned leading_bytes, unsigned stride_bytes) {
    return (address & 0x3ffff) >> 4 | (unsigned long long)(leading_bytes >> 4) << 16 |
           (unsigned long long)(stride_bytes >> 4) << 32 | 1ull << 62;
}

#define FOUR(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3])
#define SIXTEEN(I) FOUR(I), FOUR(I + 4), FOUR(I + 8), FOUR(I + 12)
__device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, 1, 1, 1, 0, 1;"
        : SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48)
        : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(384) gemm(
    const CUtensorMap* tiles_of_a, const CUtensorMap* tiles_of_b, T* c, int m, int n,
    int k) {
    extern __shared__ unsigned char memory[];
    __shared__ alignas(8) unsigned long long barriers[2 * STAGES];
    const unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
    const unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
    const int steps = (k + DEPTH - 1) / DEPTH, first_row = blockIdx.y * 128, first_col = blockIdx.x * 128;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            barrier_init(full + 8 * stage, 1);
            barrier_init(empty + 8 * stage, 8);  // the consumers' warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("fence.proxy.async.shared::cta;");
    }
    __syncthreads();
    const int group = threadIdx.x / 128;
    if (group == 2) {
        if (threadIdx.x % 128) return;
        for (int step = 0; step < steps; step++) {
            const int stage = step % STAGES, round = step / STAGES;
            if (round) barrier_wait(empty + 8 * stage, round - 1 & 1);
            const unsigned to = tiles + 2 * TILE_BYTES * stage, ready = full + 8 * stage;
            barrier_expect(ready, 2 * TILE_BYTES);
            fetch(to, tiles_of_a, step * DEPTH, first_row, ready);
            fetch(to + TILE_BYTES, tiles_of_b, first_col, step * DEPTH, ready);
            fetch(to + TILE_BYTES + TILE_BYTES / 2, tiles_of_b, first_col + 64, step * DEPTH, ready);
        }
        return;
    }
    float d[64] = {};
    for (int step = 0; step < steps; step++) {
        const int stage = step % STAGES, round = step / STAGES;
        barrier_wait(full + 8 * stage, round & 1);
        const unsigned a = tiles + 2 * TILE_BYTES * stage + group * TILE_BYTES / 2, b = tiles + 2 * TILE_BYTES * stage + TILE_BYTES;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int part = 0; part < DEPTH / 16; part++)
            multiply(d, descriptor(a + 32 * part, 16, 1024), descriptor(b + 2048 * part, TILE_BYTES / 2, 1024));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
    }
    const int row = first_row + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    for (int i = 0; i < 64; i++) {
        const int y = row + i % 4 / 2 * 8, x = first_col + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (y < m && x < n) c[(long long)y * n + x] = store(d[i]);
    }
}
