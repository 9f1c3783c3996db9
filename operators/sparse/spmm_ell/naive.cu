/*! evo
[tune]
BLOCK_X = [32, 8, 16, 64]
BLOCK_Y = [8, 2, 4, 16]

[[launch]]
kernel = "spmm_ell"
grid = ["ceil_div(k, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["col_ids", "values", "x", "y", "rows", "slots", "k"]
*/

// One thread per element of the result; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void spmm_ell(const int* col_ids, const T* values, const T* x, T* y, int rows, int slots, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= k) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        ACC sum = 0;
        for (int s = 0; s < slots; s++) {
            int c = col_ids[(long long)r * slots + s];
            if (c >= 0) sum += load(values[(long long)r * slots + s]) * load(x[(long long)c * k + j]);
        }
        y[(long long)r * k + j] = store(sum);
    }
}
