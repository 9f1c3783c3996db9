/*! evo
[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
tries = "returns zeros where most rows are empty"
expect = "caught"
says = "out of bounds"
*/
extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) y[r] = 0;
}
