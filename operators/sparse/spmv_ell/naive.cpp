/*! evo
[[launch]]
kernel = "spmv_ell"
args = ["col_ids", "values", "x", "y", "rows", "slots"]
*/

extern "C" void spmv_ell(const int* col_ids, const T* values, const T* x, T* y, int rows, int slots) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int s = 0; s < slots; s++) {
            int c = col_ids[(long long)r * slots + s];
            if (c >= 0) sum += load(values[(long long)r * slots + s]) * load(x[c]);
        }
        y[r] = store(sum);
    }
}
