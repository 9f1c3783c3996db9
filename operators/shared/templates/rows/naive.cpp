/*! evo
[[launch]]
kernel = "rows_reduced"
args = ["x", "y", "rows", "cols"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void rows_reduced(const T* x, ACC* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int c = 0; c < cols; c++) {
            ACC value = load(x[(long long)r * cols + c]);
            sum += value * value;
        }
        y[r] = sum;
    }
}
