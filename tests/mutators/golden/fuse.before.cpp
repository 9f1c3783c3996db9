/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int c = 0; c < cols; c++) {
            const ACC e = std::exp(load(x[r * cols + c]));
            y[r * cols + c] = store(e);
        }
        for (int c = 0; c < cols; c++) {
            const ACC e = load(y[r * cols + c]);
            sum += e;
        }
        for (int c = 0; c < cols; c++) y[r * cols + c] = store(load(y[r * cols + c]) / sum);
    }
}
