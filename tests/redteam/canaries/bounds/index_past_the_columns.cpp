/*! evo
[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
tries = "gathers one column too far"
expect = "caught"
*/
extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) sum += values[p] * x[col_indices[p]];
        y[r] = sum + 0 * x[col_indices[row_offsets[rows]]];
    }
}
