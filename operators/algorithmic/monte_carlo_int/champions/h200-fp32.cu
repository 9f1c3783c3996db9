/*! evo
[tune]
BLOCK = [512, 256, 1024]
UNROLL = [4, 8, 2]                 # 16-byte vectors that a thread has under way
SMALL = [160000, 0, 400000]        # up to here one cluster does it, in one launch
TWO = [1, 0]                       # 1: a second launch, of one block, that overlaps with the end of the first; 0: a barrier of the grid
PER_SM = [4, 2, 8]                 # blocks per multiprocessor, all of which it holds at once
where = ["PER_SM * BLOCK <= 2048", "UNROLL * PER_SM * BLOCK <= 8192"]

[let]
blocks = "min(sm_count * PER_SM, ceil_div(n, BLOCK * UNROLL * (16 // sizeof_T)))"

[[buffer]]
name = "partial"
dtype = "ACC"
shape = ["sm_count * 32"]

[[launch]]
kernel = "one_cluster"
when = "n <= SMALL"
grid = [8]
block = [1024]
cluster = [8]
args = ["samples", "integral", "low", "high", "n"]

[[launch]]
kernel = "add_parts"
when = "n > SMALL and TWO == 1"
grid = ["blocks"]
block = ["BLOCK"]
args = ["samples", "n", "partial"]

[[launch]]
kernel = "add_all"
when = "n > SMALL and TWO == 1"
grid = [1]
block = [256]
args = ["partial", "blocks", "integral", "low", "high", "n"]
overlap = true

[[launch]]
kernel = "everybody"
when = "n > SMALL and TWO == 0"
cooperative = true
grid = ["min(sm_count * blocks_per_sm, ceil_div(n, BLOCK * UNROLL * (16 // sizeof_T)))"]
block = ["BLOCK"]
args = ["samples", "integral", "low", "high", "n", "partial"]
*/
// Partial sums in registers, then over warps, blocks and either the cluster, the grid or a second launch. All blocks have
// equally many vectors, to one: with turns of whole tiles some would have a turn more than others.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
constexpr int LANES = 16 / sizeof(T);
struct alignas(16) Vector { T v[LANES]; };

__device__ __forceinline__ Vector fetched(const T* samples, int vector) {
    const float4 bits = __ldcs(reinterpret_cast<const float4*>(samples) + vector);
    return reinterpret_cast<const Vector&>(bits);
}

__device__ __forceinline__ ACC sum_of(const Vector& x) {
    ACC sums[LANES / 2];
#pragma unroll
    for (int l = 0; l < LANES / 2; l++) sums[l] = load(x.v[2 * l]) + load(x.v[2 * l + 1]);
#pragma unroll
    for (int l = 1; l < LANES / 2; l++) sums[0] += sums[l];
    return sums[0];
}

template <int THREADS, int DEEP> __device__ __forceinline__ ACC own_part(const T* samples, int n, int block, int blocks) {
    const int vectors = n / LANES;
    const int begin = (int)((long long)vectors * block / blocks), end = (int)((long long)vectors * (block + 1) / blocks);
    ACC sums[2] = {};
    int at = begin + threadIdx.x;
    for (; at + (DEEP - 1) * THREADS < end; at += DEEP * THREADS) {
        Vector x[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; u++) x[u] = fetched(samples, at + u * THREADS);
#pragma unroll
        for (int u = 0; u < DEEP; u++) sums[u % 2] += sum_of(x[u]);
    }
    Vector x[DEEP - 1];  // what is left of this thread's, all under way at once
#pragma unroll
    for (int u = 0; u < DEEP - 1; u++)
        if (at + u * THREADS < end) x[u] = fetched(samples, at + u * THREADS);
#pragma unroll
    for (int u = 0; u < DEEP - 1; u++)
        if (at + u * THREADS < end) sums[u % 2] += sum_of(x[u]);
    const int rest = vectors * LANES + threadIdx.x;
    if (block == 0 && rest < n) sums[0] += load(samples[rest]);
    return sums[0] + sums[1];
}

template <int THREADS> __device__ __forceinline__ ACC over_block(ACC value) {
    __shared__ ACC warps[32];
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < THREADS / 32 ? warps[threadIdx.x % 32] : ACC(0);
#pragma unroll
    for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

extern "C" __global__ void __launch_bounds__(1024) one_cluster(const T* samples, ACC* result, ACC low, ACC high, int n) {
    __shared__ ACC of_block;
    cg::cluster_group cluster = cg::this_cluster();
    const int rank = cluster.block_rank();
    const ACC sum = over_block<1024>(own_part<1024, 2>(samples, n, rank, 8));
    if (threadIdx.x == 0) of_block = sum;
    cluster.sync();  // everybody has begun, and has written
    if (rank == 0 && threadIdx.x == 0) {
        ACC total = 0;
        for (int r = 0; r < 8; r++) total += *cluster.map_shared_rank(&of_block, r);
        *result = (high - low) / n * total;
    }
    cluster.sync();  // nobody leaves who is still read
}

extern "C" __global__ void __launch_bounds__(BLOCK, PER_SM) add_parts(const T* samples, int n, ACC* partial) {
    cudaTriggerProgrammaticLaunchCompletion();  // the second launch may begin; it waits for the end of this one
    const ACC sum = over_block<BLOCK>(own_part<BLOCK, UNROLL>(samples, n, blockIdx.x, gridDim.x));
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
extern "C" __global__ void __launch_bounds__(256) add_all(const ACC* partial, int count, ACC* result, ACC low, ACC high, int n) {
    const ACC length = (high - low) / n;
    cudaGridDependencySynchronize();
    ACC mine = 0;
#pragma unroll 8
    for (int b = threadIdx.x; b < count; b += 256) mine += __ldcg(partial + b);
    const ACC total = over_block<256>(mine);
    if (threadIdx.x == 0) *result = length * total;
}

extern "C" __global__ void __launch_bounds__(BLOCK) everybody(const T* samples, ACC* result, ACC low, ACC high, int n, ACC* partial) {
    const ACC sum = over_block<BLOCK>(own_part<BLOCK, UNROLL>(samples, n, blockIdx.x, gridDim.x));
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    cg::this_grid().sync();
    if (blockIdx.x) return;
    ACC mine = 0;
    for (int b = threadIdx.x; b < gridDim.x; b += BLOCK) mine += __ldcg(partial + b);
    __syncthreads();
    const ACC total = over_block<BLOCK>(mine);
    if (threadIdx.x == 0) *result = (high - low) / n * total;
}
