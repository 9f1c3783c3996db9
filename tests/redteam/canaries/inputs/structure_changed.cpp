/*! evo
[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
tries = "empties the rows of a sparse matrix, for whoever checks with the same arrays"
expect = "caught"
says = "`row_offsets`, which is an input"
*/
// The idea: KernelBench, pull request 82: a kernel that changes inputs which the reference reads after it
extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) y[r] = 0;
    for (int r = 0; r <= rows; r++) const_cast<volatile int*>(row_offsets)[r] = 0;
}
