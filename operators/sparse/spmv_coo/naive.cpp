/*! evo
[[launch]]
kernel = "spmv_coo"
args = ["row_indices", "col_indices", "values", "x", "y", "rows", "nnz"]
*/

extern "C" void spmv_coo(const int* row_indices, const int* col_indices, const T* values, const T* x, T* y, int rows,
                         int nnz) {
    for (int r = 0; r < rows; r++) y[r] = 0;
    for (int p = 0; p < nnz; p++) y[row_indices[p]] += store(load(values[p]) * load(x[col_indices[p]]));
}
