/*! evo
[tune]
LANES = [32, 4, 8, 16]
BLOCK = [128, 64, 256, 512]
UNROLL = [4, 1, 2]

[[launch]]
kernel = "spmv_ell"
grid = ["ceil_div(rows * LANES, BLOCK)"]
block = ["BLOCK"]
args = ["col_ids", "values", "x", "y", "rows", "slots"]
*/

// Some lanes of a warp share a row.
extern "C" __global__ void __launch_bounds__(BLOCK) spmv_ell(const int* col_ids, const T* values, const T* x, T* y,
                                             int rows, int slots) {
    int lane = threadIdx.x % LANES;
    long long r = ((long long)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    ACC sum = 0;
    if (r < rows) {
#pragma unroll UNROLL
        for (int s = lane; s < slots; s += LANES)
            sum += col_ids[r * slots + s] < 0 ? ACC(0) : load(values[r * slots + s]) * load(x[col_ids[r * slots + s]]);
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (r < rows && lane == 0) y[r] = store(sum);
}
