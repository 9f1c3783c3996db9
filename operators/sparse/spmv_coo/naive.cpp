/*! evo
zero = ["y"]
[[launch]]
kernel = "spmv_coo"
args = ["row_indices", "col_indices", "values", "x", "y", "nnz"]
*/

extern "C" void spmv_coo(const int* row_indices, const int* col_indices, const T* values, const T* x, T* y, int nnz) {
    for (int p = 0; p < nnz; p++) y[row_indices[p]] += store(load(values[p]) * load(x[col_indices[p]]));
}
