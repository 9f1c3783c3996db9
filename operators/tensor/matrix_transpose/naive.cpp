/*! evo
[[launch]]
kernel = "matrix_transpose"
args = ["x", "y", "rows", "cols"]
*/

extern "C" void matrix_transpose(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            y[(long long)c * rows + r] = x[(long long)r * cols + c];
        }
    }
}
