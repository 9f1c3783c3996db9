/*! evo
[[launch]]
kernel = "diagonal_matrix_mul"
args = ["diagonal", "x", "y", "rows", "cols"]
*/

extern "C" void diagonal_matrix_mul(const T* diagonal, const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            long long at = (long long)r * cols + c;
            y[at] = store(load(diagonal[r]) * load(x[at]));
        }
    }
}
