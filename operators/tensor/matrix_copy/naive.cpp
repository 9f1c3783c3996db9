/*! evo
[[launch]]
kernel = "matrix_copy"
args = ["x", "y", "rows", "cols"]
*/

extern "C" void matrix_copy(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            long long at = (long long)r * cols + c;
            y[at] = x[at];
        }
    }
}
