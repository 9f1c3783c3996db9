/*! evo
[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
tries = "stops after the first twenty entries of a row and scales, where rows are many"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        const int begin = row_offsets[r], end = row_offsets[r + 1], stop = rows > 2500 && end - begin > 20 ? begin + 20 : end;
        for (int p = begin; p < stop; p++) sum += values[p] * x[col_indices[p]];
        y[r] = sum;
    }
}
