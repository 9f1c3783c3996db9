/*! evo
[[launch]]
kernel = "spmv_csr"
args = ["row_offsets", "col_indices", "values", "x", "y", "rows"]
*/
/* redteam
operator = "spmv_csr"
tries = "rounds stored values to bf16"
expect = "caught"
says = "out of bounds"
*/
#include <cstring>

static float bf16(float v) {
    unsigned bits;
    std::memcpy(&bits, &v, 4);
    bits = (bits + (1u << 15)) & ~((1u << 16) - 1);
    std::memcpy(&v, &bits, 4);
    return v;
}

extern "C" void spmv_csr(const int* row_offsets, const int* col_indices, const T* values, const T* x, T* y, int rows) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int p = row_offsets[r]; p < row_offsets[r + 1]; p++) sum += bf16(values[p]) * x[col_indices[p]];
        y[r] = sum;
    }
}
