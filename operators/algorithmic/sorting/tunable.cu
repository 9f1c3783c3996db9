/*! evo
[tune]
BLOCK = [256, 128, 512]
EACH = [8, 4, 16]

[[buffer]]
name = "other"
dtype = "T"
shape = ["n"]

[[launch]]
kernel = "sort_tiles"
grid = ["ceil_div(n, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["x", "n"]

[[launch]]
kernel = "merge"
grid = ["ceil_div(n, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["x if i % 2 == 0 else other", "other if i % 2 == 0 else x", "BLOCK * EACH * 2 ** i", "n"]
group = "pass"

[[launch]]
kernel = "copy"
when = "ceil_log2(ceil_div(n, BLOCK * EACH)) % 2 == 1"
grid = ["ceil_div(n, BLOCK)"]
block = ["BLOCK"]
args = ["other", "x", "n"]

[group.pass]
repeat = "ceil_log2(ceil_div(n, BLOCK * EACH))"
*/
#include <cmath>

constexpr int TILE = BLOCK * EACH;

// Tiles are sorted in shared memory by a bitonic network; what a last tile lacks counts as infinite.
extern "C" __global__ void __launch_bounds__(BLOCK) sort_tiles(T* x, int n) {
    __shared__ ACC tile[TILE];
    long long begin = (long long)blockIdx.x * TILE;
    for (int i = threadIdx.x; i < TILE; i += BLOCK) tile[i] = begin + i < n ? load(x[begin + i]) : ACC(INFINITY);
    for (int size = 2; size <= TILE; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            for (int pair = threadIdx.x; pair < TILE / 2; pair += BLOCK) {
                int low = pair / stride * 2 * stride + pair % stride, high = low + stride;
                ACC a = tile[low], b = tile[high];
                if ((a > b) == ((low & size) == 0)) tile[low] = b, tile[high] = a;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE; i += BLOCK)
        if (begin + i < n) x[begin + i] = store(tile[i]);
}

// How many of the first `rank` elements of two merged runs come from the first one.
template <class Value>
__device__ __forceinline__ int from_first(const Value* first, int first_length, const Value* second, int second_length,
                                          int rank) {
    int low = rank > second_length ? rank - second_length : 0, high = rank < first_length ? rank : first_length;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (load(second[rank - 1 - middle]) < load(first[middle])) high = middle;
        else low = middle + 1;
    }
    return low;
}

// Neighbouring runs are merged, a tile of the result per block: its part of both runs is found by bisection and merged
// in shared memory, EACH elements per thread.
extern "C" __global__ void __launch_bounds__(BLOCK) merge(const T* from, T* to, int width, int n) {
    __shared__ T tile[TILE];
    __shared__ int cuts[2];
    long long begin = (long long)blockIdx.x * TILE, run = begin / width / 2 * 2 * width;
    int first_length = n - run < width ? int(n - run) : width;
    int second_length = n - run - first_length < width ? int(n - run - first_length) : width;
    int rank = begin - run, count = n - begin < TILE ? int(n - begin) : TILE;
    const T *first = from + run, *second = first + first_length;
    if (threadIdx.x < 2)
        cuts[threadIdx.x] = from_first(first, first_length, second, second_length, rank + threadIdx.x * count);
    __syncthreads();
    int mine = cuts[1] - cuts[0], others = count - mine;
    for (int i = threadIdx.x; i < count; i += BLOCK)
        tile[i] = i < mine ? first[cuts[0] + i] : second[rank - cuts[0] + i - mine];
    __syncthreads();
    int place = threadIdx.x * EACH < count ? threadIdx.x * EACH : count;
    int a = from_first(tile, mine, tile + mine, others, place), b = place - a;
    T merged[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (place + e >= count) break;
        bool second_next = a >= mine || (b < others && load(tile[mine + b]) < load(tile[a]));
        merged[e] = second_next ? tile[mine + b] : tile[a];
        second_next ? b++ : a++;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (place + e < count) tile[place + e] = merged[e];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += BLOCK) to[begin + i] = tile[i];
}

extern "C" __global__ void copy(const T* from, T* to, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) to[at] = from[at];
}
