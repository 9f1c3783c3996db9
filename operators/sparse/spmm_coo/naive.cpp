/*! evo
[[launch]]
kernel = "spmm_coo"
args = ["row_indices", "col_indices", "values", "x", "y", "rows", "nnz", "k"]
*/

extern "C" void spmm_coo(const int* row_indices, const int* col_indices, const T* values, const T* x, T* y, int rows,
                         int nnz, int k) {
    for (long long at = 0; at < (long long)rows * k; at++) y[at] = 0;
    for (int p = 0; p < nnz; p++) {
        const T* from = x + (long long)col_indices[p] * k;
        T* to = y + (long long)row_indices[p] * k;
        for (int j = 0; j < k; j++) to[j] += store(load(values[p]) * load(from[j]));
    }
}
