/*! evo
[[launch]]
kernel = "spmv_csc"
args = ["col_offsets", "row_indices", "values", "x", "y", "rows", "cols"]
*/

extern "C" void spmv_csc(const int* col_offsets, const int* row_indices, const T* values, const T* x, T* y, int rows,
                         int cols) {
    for (int r = 0; r < rows; r++) y[r] = 0;
    for (int c = 0; c < cols; c++)
        for (int p = col_offsets[c]; p < col_offsets[c + 1]; p++)
            y[row_indices[p]] += store(load(values[p]) * load(x[c]));
}
