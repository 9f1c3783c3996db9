/*! evo
[tune]
BLOCK = [256, 128, 512, 1024]
EACH = [8, 4, 16]

[[buffer]]
name = "totals"
dtype = "ACC"
shape = ["ceil_div(n, BLOCK * EACH)"]

[[launch]]
kernel = "add_up"
grid = ["ceil_div(n, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["x", "totals", "n"]

[[launch]]
kernel = "scan_totals"
grid = [1]
block = ["BLOCK"]
args = ["totals", "ceil_div(n, BLOCK * EACH)"]

[[launch]]
kernel = "scan"
grid = ["ceil_div(n, BLOCK * EACH)"]
block = ["BLOCK"]
args = ["x", "totals", "y", "n"]
*/

// Totals of tiles, their running sum, then every tile starts from what lies before it.
__device__ __forceinline__ ACC scan_block(ACC value, ACC& total) {
    __shared__ ACC warps[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int offset = 1; offset < 32; offset *= 2) {
        ACC before = __shfl_up_sync(0xffffffffu, value, offset);
        if (lane >= offset) value += before;
    }
    __syncthreads();  // an earlier call may still be read
    if (lane == 31) warps[warp] = value;
    __syncthreads();
    ACC before = 0;
    total = 0;
    for (int w = 0; w < BLOCK / 32; w++) {
        if (w == warp) before = total;
        total += warps[w];
    }
    return before + value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) add_up(const T* x, ACC* totals, int n) {
    long long first = (long long)blockIdx.x * BLOCK * EACH + threadIdx.x;
    ACC sum = 0, total;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * BLOCK < n) sum += load(x[first + e * BLOCK]);
    scan_block(sum, total);
    if (threadIdx.x == 0) totals[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(BLOCK) scan_totals(ACC* totals, int count) {
    ACC carried = 0;
    for (int first = 0; first < count; first += BLOCK) {
        int at = first + threadIdx.x;
        ACC own = at < count ? totals[at] : ACC(0), total;
        ACC through = scan_block(own, total);
        if (at < count) totals[at] = carried + through;
        carried += total;
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK) scan(const T* x, const ACC* totals, T* y, int n) {
    long long begin = (long long)blockIdx.x * BLOCK * EACH;
    ACC carried = blockIdx.x == 0 ? ACC(0) : totals[blockIdx.x - 1];
    for (int e = 0; e < EACH; e++) {
        long long at = begin + e * BLOCK + threadIdx.x;
        ACC own = at < n ? load(x[at]) : ACC(0), total;
        ACC through = scan_block(own, total);
        if (at < n) y[at] = store(carried + through);
        carried += total;
    }
}
