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
kernel = "spmv_coo"
grid = ["max(ceil_div(nnz, BLOCK), 1)"]
block = ["BLOCK"]
args = ["row_indices", "col_indices", "values", "x", "sums", "nnz"]

[[launch]]
kernel = "finish"
grid = ["ceil_div(rows, 256)"]
block = [256]
args = ["sums", "y", "rows"]
*/

// One thread per entry.
extern "C" __global__ void spmv_coo(const int* row_indices, const int* col_indices, const T* values, const T* x,
                                    ACC* sums, int nnz) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p < nnz) atomicAdd(&sums[row_indices[p]], load(values[p]) * load(x[col_indices[p]]));
}

// What was added up in the accumulator's type becomes the result.
extern "C" __global__ void finish(const ACC* sums, T* y, int count) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = store(sums[at]);
}
