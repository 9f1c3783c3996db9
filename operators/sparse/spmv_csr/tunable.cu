/*! evo
[tune]
LANES = [32, 4, 8, 16]
BLOCK = [128, 64, 256, 512]
UNROLL = [4, 1, 2]

[[launch]]
kernel = "spmv_csr"
grid = ["ceil_div(rows * LANES, BLOCK)"]
block = ["BLOCK"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/

// Some lanes of a warp share a row.
extern "C" __global__ void __launch_bounds__(BLOCK) spmv_csr(const int* row_offsets, const int* col_indices,
                                             const T* values, const T* x, T* y, int rows) {
    int lane = threadIdx.x % LANES;
    long long r = ((long long)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    ACC sum = 0;
    if (r < rows) {
#pragma unroll UNROLL
        for (int p = row_offsets[r] + lane; p < row_offsets[r + 1]; p += LANES)
            sum += load(values[p]) * load(x[col_indices[p]]);
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (r < rows && lane == 0) y[r] = store(sum);
}
