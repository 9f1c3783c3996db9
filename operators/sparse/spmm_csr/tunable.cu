/*! evo
[tune]
BLOCK_X = [32, 8, 16, 64]
BLOCK_Y = [4, 2, 8]
EACH = [4, 1, 2, 8]
UNROLL = [2, 1, 4]

[[launch]]
kernel = "spmm_csr"
grid = ["ceil_div(rows, BLOCK_Y)", "ceil_div(k, BLOCK_X * EACH)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows", "k"]
*/

// A row of threads takes a row of the matrix; each thread has EACH columns of x, for which an entry is read once.
extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) spmm_csr(const int* row_offsets,
                                             const int* col_indices, const T* values, const T* x, T* y, int rows,
                                             int k) {
    int r = blockIdx.x * BLOCK_Y + threadIdx.y, first = blockIdx.y * BLOCK_X * EACH + threadIdx.x;
    if (r >= rows) return;
    ACC sums[EACH] = {};
    int end = row_offsets[r + 1];
#pragma unroll UNROLL
    for (int p = row_offsets[r]; p < end; p++) {
        const T* from = x + (long long)col_indices[p] * k;
        ACC value = load(values[p]);
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (first + e * BLOCK_X < k) sums[e] += value * load(from[first + e * BLOCK_X]);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (first + e * BLOCK_X < k) y[(long long)r * k + first + e * BLOCK_X] = store(sums[e]);
}
