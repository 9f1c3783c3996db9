/*! evo
[[buffer]]
name = "terms"
dtype = "fp64"
shape = ["max(nnz, 1)"]
[[launch]]
kernel = "products"
args = ["col_indices", "values", "x", "terms", "nnz"]
[[launch]]
kernel = "sums"
args = ["row_offsets", "terms", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
what = "products of all entries into scratch first, then sums of rows from their ends"
*/
extern "C" void products(const int* col_indices, const T* values, const T* x, double* terms, int nnz) {
#pragma omp parallel for simd num_threads(2)
    for (int p = 0; p < nnz; p++) terms[p] = double(values[p]) * x[col_indices[p]];
}

extern "C" void sums(const int* row_offsets, const double* terms, T* y, int rows) {
    for (int r = rows - 1; r >= 0; r--) {
        double sum = 0;
        for (int p = row_offsets[r + 1] - 1; p >= row_offsets[r]; p--) sum += terms[p];
        y[r] = sum;
    }
}
