/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "spmv_ell"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["col_ids", "values", "x", "y", "rows", "slots"]
*/

// One thread per row.
extern "C" __global__ void spmv_ell(const int* col_ids, const T* values, const T* x, T* y, int rows, int slots) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    ACC sum = 0;
    for (int s = 0; s < slots; s++) {
        int c = col_ids[(long long)r * slots + s];
        if (c >= 0) sum += load(values[(long long)r * slots + s]) * load(x[c]);
    }
    y[r] = store(sum);
}
