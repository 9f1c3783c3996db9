/*! evo
deterministic = false
zero = ["sums"]

[tune]
BLOCK_X = [32, 8, 16, 64]
BLOCK_Y = [8, 2, 4, 16]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows * k"]

[[launch]]
kernel = "spmm_csc"
grid = ["ceil_div(k, BLOCK_X)", "min(ceil_div(cols, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["col_offsets", "row_indices", "values", "x", "sums", "cols", "k"]

[[launch]]
kernel = "finish"
grid = ["ceil_div(rows * k, 256)"]
block = [256]
args = ["sums", "y", "rows * k"]
*/

// One thread per column of the matrix and column of x; where there are too many, a thread takes several.
extern "C" __global__ void spmm_csc(const int* col_offsets, const int* row_indices, const T* values, const T* x,
                                    ACC* sums, int cols, int k) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= k) return;
    for (int c = blockIdx.y * blockDim.y + threadIdx.y; c < cols; c += gridDim.y * blockDim.y)
        for (int p = col_offsets[c]; p < col_offsets[c + 1]; p++)
            atomicAdd(&sums[(long long)row_indices[p] * k + j], load(values[p]) * load(x[(long long)c * k + j]));
}

// What was added up in the accumulator's type becomes the result.
extern "C" __global__ void finish(const ACC* sums, T* y, long long count) {
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) y[at] = store(sums[at]);
}
