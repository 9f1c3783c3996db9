/*! evo
[tune]
BLOCK_X = [32, 8, 16, 64]
BLOCK_Y = [8, 2, 4, 16]

[[launch]]
kernel = "spmm_csr"
grid = ["ceil_div(k, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows", "k"]
*/

// One thread per element of the result; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void spmm_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y,
                                    int rows, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= k) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        ACC sum = 0;
        for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++)
            sum += load(values[p]) * load(x[(long long)col_indices[p] * k + j]);
        y[(long long)r * k + j] = store(sum);
    }
}
