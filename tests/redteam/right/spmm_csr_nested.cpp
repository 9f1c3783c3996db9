/*! evo
[[launch]]
kernel = "spmm"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows", "k"]
*/
/* redteam
operator = "spmm_csr"
what = "columns within entries, in nested teams"
*/
extern "C" void spmm(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows, int k) {
#pragma omp parallel for collapse(2) num_threads(2) schedule(static, 3)
    for (int r = 0; r < rows; r++)
        for (int part = 0; part < 2; part++) {
            const int begin = part ? k / 2 : 0, end = part ? k : k / 2;
            for (int j = begin; j < end; j++) y[(long long)r * k + j] = 0;
            for (int p = row_offsets[r + 1] - 1; p >= row_offsets[r]; p--)
                for (int j = begin; j < end; j++) y[(long long)r * k + j] += values[p] * x[(long long)col_indices[p] * k + j];
        }
}
