/*! evo
[[launch]]
kernel = "spmm_csc"
args = ["col_offsets", "row_indices", "values", "x", "y", "rows", "cols", "k"]
*/

extern "C" void spmm_csc(const int* col_offsets, const int* row_indices, const T* values, const T* x, T* y, int rows,
                         int cols, int k) {
    for (long long at = 0; at < (long long)rows * k; at++) y[at] = 0;
    for (int c = 0; c < cols; c++) {
        const T* from = x + (long long)c * k;
        for (int p = col_offsets[c]; p < col_offsets[c + 1]; p++) {
            T* to = y + (long long)row_indices[p] * k;
            for (int j = 0; j < k; j++) to[j] += store(load(values[p]) * load(from[j]));
        }
    }
}
