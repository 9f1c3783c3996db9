/*! evo
[[launch]]
kernel = "spmm_ell"
args = ["col_ids", "values", "x", "y", "rows", "slots", "k"]
*/

extern "C" void spmm_ell(const int* col_ids, const T* values, const T* x, T* y, int rows, int slots, int k) {
    for (int r = 0; r < rows; r++) {
        for (int j = 0; j < k; j++) {
            ACC sum = 0;
            for (int s = 0; s < slots; s++) {
                int c = col_ids[(long long)r * slots + s];
                if (c >= 0) sum += load(values[(long long)r * slots + s]) * load(x[(long long)c * k + j]);
            }
            y[(long long)r * k + j] = store(sum);
        }
    }
}
