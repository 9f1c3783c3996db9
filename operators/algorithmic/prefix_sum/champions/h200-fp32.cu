/*! evo
[tune]
BLOCK = [256, 512, 128]
VECTORS = [4, 8, 2]                # 16-byte vectors of a thread
FEW = [2, 1, 4]                    # the same for what is not large
ALONE = [8192, 4096, 16384, 0]     # up to here one block does it
PER = [2, 1, 4]                    # vectors of a thread of it
SMALL = [0, 131072, 16384]         # up to here one cluster does it
MIDDLE = [2097152, 67108864, 0]    # up to here totals of tiles, then sums; above one pass
GROUP = [512, 256, 1024]           # tiles

[tune.bf16]
FEW = [1, 2, 4]

[let]
alone = "n <= ALONE"
vectors = "ceil_div(n, 16 // sizeof_T)"
threads = "min(1024, max(32, next_pow2(ceil_div(vectors, PER))))"
each = "ceil_div(vectors, threads)"
few = "n <= 2097152"
tile = "BLOCK * VECTORS * (16 // sizeof_T)"
tiles = "ceil_div(n, tile)"
half = "BLOCK * FEW * (16 // sizeof_T)"
cluster = "n > ALONE and n <= SMALL"
twice = "n > ALONE and n > SMALL and n <= MIDDLE"
once = "n > ALONE and n > SMALL and n > MIDDLE"

[[buffer]]
name = "totals"
dtype = "ACC"
shape = ["max(tiles, ceil_div(n, half)) if n <= MIDDLE else 1"]

[[buffer]]
name = "states"
dtype = "int64"
shape = ["1 + tiles + ceil_div(tiles, GROUP)"]

[[launch]]
kernel = "alone<1>"
when = "alone and each == 1"
grid = [1]
block = ["threads"]
args = ["x", "y", "n"]

[[launch]]
kernel = "alone<2>"
when = "alone and each == 2"
grid = [1]
block = ["threads"]
args = ["x", "y", "n"]

[[launch]]
kernel = "alone<4>"
when = "alone and each > 2"
grid = [1]
block = ["threads"]
args = ["x", "y", "n"]

[[launch]]
kernel = "one_cluster"
when = "cluster"
grid = [8]
block = [1024]
cluster = [8]
args = ["x", "y", "n"]

[[launch]]
kernel = "add_up<FEW>"
when = "twice and few"
grid = ["ceil_div(n, half)"]
block = ["BLOCK"]
args = ["x", "totals", "n"]

[[launch]]
kernel = "scan<FEW>"
when = "twice and few"
overlap = true
grid = ["ceil_div(n, half)"]
block = ["BLOCK"]
args = ["x", "totals", "y", "n"]

[[launch]]
kernel = "add_up<VECTORS>"
when = "twice and not few"
grid = ["tiles"]
block = ["BLOCK"]
args = ["x", "totals", "n"]

[[launch]]
kernel = "scan<VECTORS>"
when = "twice and not few"
overlap = true
grid = ["tiles"]
block = ["BLOCK"]
args = ["x", "totals", "y", "n"]

[[launch]]
kernel = "clear"
when = "once"
grid = ["ceil_div(1 + tiles + ceil_div(tiles, GROUP), 256)"]
block = [256]
args = ["states", "1 + tiles + ceil_div(tiles, GROUP)"]

[[launch]]
kernel = "one_pass"
when = "once"
overlap = true
grid = ["tiles"]
block = ["BLOCK"]
args = ["x", "y", "states", "tiles", "n"]
*/
// Little: one block. Large: one pass. A tile is read once, tells its total, and adds up the totals of its group's tiles before it and of the
// groups before: always the same sums in the same order, and nobody waits for what waits itself. Tiles begin by ticket, so
// that all before one have begun. Else totals first; the second kernel begins beside the first, with its tile in registers.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
typedef unsigned long long State;  // low half: a sum; high half: whether it is there
constexpr int LANES = 16 / sizeof(T);
struct alignas(16) Vector { T v[LANES]; };

// A warp's 32 * COUNT vectors lie one after the other; sums[] gets inclusive prefixes within the warp, total their sum.
template <int COUNT> __device__ __forceinline__ void load_tile(ACC (&sums)[COUNT * LANES], const T* x, long long first, int n) {
    const long long own = first + threadIdx.x % 32 * LANES;
    uint4 in[COUNT];  // all under way before the first is converted
    if (first + 32 * COUNT * LANES <= n) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) in[j] = *reinterpret_cast<const uint4*>(x + own + j * (32 * LANES));
    } else {
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            const long long at = own + j * (32 * LANES);
            in[j] = make_uint4(0, 0, 0, 0);
            if (at + LANES <= n) {
                in[j] = *reinterpret_cast<const uint4*>(x + at);
            } else if (at < n) {
                Vector rest;
#pragma unroll
                for (int l = 0; l < LANES; l++) rest.v[l] = at + l < n ? x[at + l] : store(ACC(0));
                in[j] = reinterpret_cast<const uint4&>(rest);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sums[j * LANES + l] = load(reinterpret_cast<const Vector&>(in[j]).v[l]);
}

template <int COUNT> __device__ __forceinline__ ACC scan_warp(ACC (&sums)[COUNT * LANES]) {
    const int lane = threadIdx.x % 32;
    ACC ends[COUNT], own[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
#pragma unroll
        for (int l = 1; l < LANES; l++) sums[j * LANES + l] += sums[j * LANES + l - 1];
        ends[j] = sums[j * LANES + LANES - 1];
    }
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            const ACC before = __shfl_up_sync(0xffffffffu, ends[j], offset);
            if (lane >= offset) ends[j] += before;
        }
    }
    ACC carried = 0;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const ACC before = __shfl_up_sync(0xffffffffu, ends[j], 1), all = __shfl_sync(0xffffffffu, ends[j], 31);
        own[j] = lane ? carried + before : carried;
        carried += all;
    }
#pragma unroll
    for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int l = 0; l < LANES; l++) sums[j * LANES + l] += own[j];
    return carried;
}

template <int COUNT> __device__ __forceinline__ void store_tile(const ACC (&sums)[COUNT * LANES], ACC before, T* y, long long first, int n) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const long long at = first + (j * 32 + lane) * LANES;
        if (at + LANES <= n) {
            Vector out;
#pragma unroll
            for (int l = 0; l < LANES; l++) out.v[l] = store(before + sums[j * LANES + l]);
            {
                const uint4 bits = *reinterpret_cast<const uint4*>(&out);
                __stcs(reinterpret_cast<uint4*>(y + at), bits);  // x is to stay in the cache
            }
        } else {
#pragma unroll
            for (int l = 0; l < LANES; l++)
                if (at + l < n) y[at + l] = store(before + sums[j * LANES + l]);
        }
    }
}

// What lies before this warp in its block; total is the block's sum.
template <int WARPS> __device__ __forceinline__ ACC before_warp(ACC mine, ACC& total) {
    __shared__ ACC warps[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) warps[warp] = mine;
    __syncthreads();
    ACC sum = lane < WARPS ? warps[lane] : ACC(0);
#pragma unroll
    for (int offset = 1; offset < WARPS; offset *= 2) {
        const ACC before = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) sum += before;
    }
    total = __shfl_sync(0xffffffffu, sum, WARPS - 1);
    const ACC before = __shfl_sync(0xffffffffu, sum, warp ? warp - 1 : 0);
    return warp ? before : ACC(0);
}

// One block has all of it.
template <int COUNT> __global__ void __launch_bounds__(1024, 1) alone(const T* x, T* y, int n) {
    __shared__ ACC warps[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = warp * 32 * COUNT * LANES;
    ACC sums[COUNT * LANES], before = 0;
    load_tile<COUNT>(sums, x, first, n);
    const ACC own = scan_warp<COUNT>(sums);
    if (blockDim.x > 32) {
        if (lane == 0) warps[warp] = own;
        __syncthreads();
        before = lane < warp ? warps[lane] : ACC(0);
#pragma unroll
        for (int offset = 16; offset; offset /= 2) before += __shfl_xor_sync(0xffffffffu, before, offset);
    }
    store_tile<COUNT>(sums, before, y, first, n);
}

constexpr int EACH = 16 / LANES;  // vectors per thread of the one cluster: 16 elements
extern "C" __global__ void __launch_bounds__(1024) one_cluster(const T* x, T* y, int n) {
    constexpr int TILE = 1024 * 16;
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = cluster.block_rank(), warp = threadIdx.x / 32;
    __shared__ ACC own_total;
    ACC carried = 0;
    for (long long begin = 0; begin < n; begin += 8 * TILE) {
        const long long first = begin + (long long)rank * TILE + warp * 512;
        ACC sums[16], total;
        load_tile<EACH>(sums, x, first, n);
        const ACC warp_sum = scan_warp<EACH>(sums);
        ACC before = before_warp<32>(warp_sum, total);
        if (threadIdx.x == 0) own_total = total;
        cluster.sync();  // everybody has begun, and has written
        ACC earlier = carried;
        ACC totals[8];
#pragma unroll
        for (int r = 0; r < 8; r++) totals[r] = *cluster.map_shared_rank(&own_total, r);
#pragma unroll
        for (int r = 0; r < 8; r++) {
            if (r < rank) earlier += totals[r];
            carried += totals[r];
        }
        store_tile<EACH>(sums, earlier + before, y, first, n);
        cluster.sync();
    }
}


template <int WARPS> __device__ __forceinline__ ACC block_sum(ACC value) {
    __shared__ ACC parts[WARPS];
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    __syncthreads();  // an earlier call may still be read
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    ACC sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += parts[w];
    return sum;
}

template <int COUNT> __global__ void __launch_bounds__(BLOCK) add_up(const T* x, ACC* totals, int n) {
    cudaTriggerProgrammaticLaunchCompletion();
    const long long first = ((long long)blockIdx.x * BLOCK + threadIdx.x / 32 * 32) * COUNT * LANES;
    ACC v[COUNT * LANES], sum = 0;
    load_tile<COUNT>(v, x, first, n);
#pragma unroll
    for (int i = 0; i < COUNT * LANES; i++) sum += v[i];
    sum = block_sum<BLOCK / 32>(sum);
    if (threadIdx.x == 0) totals[blockIdx.x] = sum;
}

// Backwards: what was read last is still in the cache.
template <int COUNT> __global__ void __launch_bounds__(BLOCK) scan(const T* x, const ACC* totals, T* y, int n) {
    const int tile = gridDim.x - 1 - blockIdx.x;
    const long long first = ((long long)tile * BLOCK + threadIdx.x / 32 * 32) * COUNT * LANES;
    ACC sums[COUNT * LANES], total;
    load_tile<COUNT>(sums, x, first, n);
    const ACC warp_sum = scan_warp<COUNT>(sums);
    const ACC before = before_warp<BLOCK / 32>(warp_sum, total);
    cudaGridDependencySynchronize();
    ACC earlier = 0;
#pragma unroll 4
    for (int b = threadIdx.x; b < tile; b += BLOCK) earlier += __ldcg(totals + b);
    earlier = block_sum<BLOCK / 32>(earlier);
    store_tile<COUNT>(sums, earlier + before, y, first, n);
}

extern "C" __global__ void clear(State* states, int count) {
    cudaTriggerProgrammaticLaunchCompletion();
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < count) states[i] = 0;
}

__device__ __forceinline__ void tell(State* state, float sum) { *(volatile State*)state = State(1) << 32 | __float_as_uint(sum); }

__device__ __forceinline__ ACC told(const State* state) {
    State found;  // volatile: of __ldcv() the compiler reads once and leaves the loop
    while (!((found = *(const volatile State*)state) >> 32)) {}
    return __uint_as_float((unsigned)found);
}

extern "C" __global__ void __launch_bounds__(BLOCK) one_pass(const T* x, T* y, State* states, int tiles, int n) {
    __shared__ int ticket;
    cudaGridDependencySynchronize();
    if (threadIdx.x == 0) ticket = (int)atomicAdd(states, State(1));
    __syncthreads();
    const int tile = ticket, group = tile / GROUP, start = group * GROUP;
    State *of_tile = states + 1, *of_group = states + 1 + tiles;
    const long long first = ((long long)tile * BLOCK + threadIdx.x / 32 * 32) * VECTORS * LANES;
    ACC sums[VECTORS * LANES], total;
    load_tile<VECTORS>(sums, x, first, n);
    const ACC warp_sum = scan_warp<VECTORS>(sums);
    const ACC before = before_warp<BLOCK / 32>(warp_sum, total);
    if (threadIdx.x == 0) tell(of_tile + tile, total);
    ACC earlier = 0;
    for (int b = start + threadIdx.x; b < tile; b += BLOCK) earlier += told(of_tile + b);
    if (tile == start + GROUP - 1) {
        const ACC all = block_sum<BLOCK / 32>(earlier);
        if (threadIdx.x == 0) tell(of_group + group, all + total);
        earlier = threadIdx.x ? ACC(0) : all;
    }
    for (int g = threadIdx.x; g < group; g += BLOCK) earlier += told(of_group + g);
    earlier = block_sum<BLOCK / 32>(earlier);
    store_tile<VECTORS>(sums, earlier + before, y, first, n);
}
