/*! evo
[[launch]]
kernel = "spmm_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows", "k"]
*/

extern "C" void spmm_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows,
                         int k) {
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < k; j++) {
            ACC sum = 0;
            for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++)
                sum += load(values[p]) * load(x[(long long)col_indices[p] * k + j]);
            y[(long long)r * k + j] = store(sum);
        }
    }
}
