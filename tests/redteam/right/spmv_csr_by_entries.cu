/*! evo
deterministic = false
zero = ["sums"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows"]

[[launch]]
kernel = "add"
when = "nnz > 0"
grid = ["ceil_div(nnz, 128)"]
block = [128]
args = ["row_offsets", "col_indices", "values", "x", "sums", "rows", "nnz"]

[[launch]]
kernel = "end"
grid = ["ceil_div(rows, 128)"]
block = [128]
args = ["sums", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
what = "a thread an entry, whose row it finds by bisection; atomics"
*/
extern "C" __global__ void add(const int* row_offsets, const int* col_indices, const T* values, const T* x, ACC* sums,
                               int rows, int nnz) {
    const int p = blockIdx.x * 128 + threadIdx.x;
    if (p >= nnz) return;
    int low = 0, high = rows;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (row_offsets[middle] <= p) low = middle;
        else high = middle;
    }
    atomicAdd(&sums[low], load(values[p]) * load(x[col_indices[p]]));
}
extern "C" __global__ void end(const ACC* sums, T* y, int rows) {
    const int r = blockIdx.x * 128 + threadIdx.x;
    if (r < rows) y[r] = store(sums[r]);
}
