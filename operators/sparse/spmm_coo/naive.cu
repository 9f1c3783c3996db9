/*! evo
deterministic = false
zero = ["sums"]

[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows * k"]

[[launch]]
kernel = "spmm_coo"
grid = ["max(ceil_div(nnz * k, BLOCK), 1)"]
block = ["BLOCK"]
args = ["row_indices", "col_indices", "values", "x", "sums", "nnz", "k"]

[[launch]]
kernel = "finish"
grid = ["ceil_div(rows * k, 256)"]
block = [256]
args = ["sums", "y", "rows * k"]
*/

// One thread per entry and column of x.
extern "C" __global__ void spmm_coo(const int* row_indices, const int* col_indices, const T* values, const T* x,
                                    ACC* sums, int nnz, int k) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)nnz * k) return;
    int p = at / k, j = at % k;
    atomicAdd(&sums[(long long)row_indices[p] * k + j], load(values[p]) * load(x[(long long)col_indices[p] * k + j]));
}

// What was added up in the accumulator's type becomes the result.
extern "C" __global__ void finish(const ACC* sums, T* y, long long count) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = store(sums[at]);
}
