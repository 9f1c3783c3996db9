/*! evo
[[launch]]
kernel = "matrix_scalar_mul"
args = ["x", "y", "alpha", "rows", "cols"]
*/

extern "C" void matrix_scalar_mul(const T* x, T* y, ACC alpha, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            long long at = (long long)r * cols + c;
            y[at] = store(alpha * load(x[at]));
        }
    }
}
