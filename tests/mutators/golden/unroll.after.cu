/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "spmv_csr"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/

// One thread per row.
extern "C" __global__ void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y,
                                    int rows) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    ACC sum = 0;
    #pragma unroll 8
    for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) sum += load(values[p]) * load(x[col_indices[p]]);
    y[r] = store(sum);
}
