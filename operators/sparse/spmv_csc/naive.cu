/*! evo
deterministic = false
zero = ["sums"]

[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows"]

[[launch]]
kernel = "spmv_csc"
grid = ["ceil_div(cols, BLOCK)"]
block = ["BLOCK"]
args = ["col_offsets", "row_indices", "values", "x", "sums", "cols"]

[[launch]]
kernel = "finish"
grid = ["ceil_div(rows, 256)"]
block = [256]
args = ["sums", "y", "rows"]
*/

// One thread per column.
extern "C" __global__ void spmv_csc(const int* col_offsets, const int* row_indices, const T* values, const T* x,
                                    ACC* sums, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int p = col_offsets[c]; p < col_offsets[c + 1]; p++)
        atomicAdd(&sums[row_indices[p]], load(values[p]) * load(x[c]));
}

// What was added up in the accumulator's type becomes the result.
extern "C" __global__ void finish(const ACC* sums, T* y, int count) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = store(sums[at]);
}
