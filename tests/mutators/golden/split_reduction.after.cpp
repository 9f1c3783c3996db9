/*! evo
[tune]
LANES = [16, 4, 8, 32]

[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        ACC sum_part[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            sum_part[lane] = 0;
        }
        for (int p0 = row_offsets[r]; p0 <= row_offsets[r + 1] - LANES; p0 += LANES) {
            for (int lane = 0; lane < LANES; lane++) {
                const int p = p0 + lane;
                sum_part[lane] += load(values[p]) * load(x[col_indices[p]]);
            }
        }
        for (int lane = 0; lane < LANES; lane++) {
            sum += sum_part[lane];
        }
        for (int p = row_offsets[r + 1] - (row_offsets[r + 1] - row_offsets[r]) % LANES; p < row_offsets[r + 1]; p++) {
            sum += load(values[p]) * load(x[col_indices[p]]);
        }
        y[r] = store(sum);
    }
}
