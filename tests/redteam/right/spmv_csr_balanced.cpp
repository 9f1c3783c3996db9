/*! evo
[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
what = "with rows dealt to threads by their entries, found by bisection"
*/
#include <omp.h>

static int row_of(const int* row_offsets, int rows, long long entry) {
    int low = 0, high = rows;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (row_offsets[middle] < entry) low = middle + 1;
        else high = middle;
    }
    return low;
}

extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    const long long entries = row_offsets[rows];
#pragma omp parallel num_threads(2)
    {
        const int me = omp_get_thread_num(), team = omp_get_num_threads();
        const int begin = me == 0 ? 0 : row_of(row_offsets, rows, entries * me / team);
        const int end = me == team - 1 ? rows : row_of(row_offsets, rows, entries * (me + 1) / team);
        for (int r = begin; r < end; r++) {
            ACC even = 0, odd = 0;
            int p = row_offsets[r];
            for (; p + 1 < row_offsets[r + 1]; p += 2) {
                even += values[p] * x[col_indices[p]];
                odd += values[p + 1] * x[col_indices[p + 1]];
            }
            if (p < row_offsets[r + 1]) even += values[p] * x[col_indices[p]];
            y[r] = even + odd;
        }
    }
}
