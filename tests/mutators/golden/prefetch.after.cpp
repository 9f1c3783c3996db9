/*! evo
[tune]
AHEAD = [16, 4, 8, 32, 64]

[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) {
            if (p + AHEAD < row_offsets[r + 1]) __builtin_prefetch(&x[col_indices[p + AHEAD]]);
            sum += load(values[p]) * load(x[col_indices[p]]);
        }
        y[r] = store(sum);
    }
}
