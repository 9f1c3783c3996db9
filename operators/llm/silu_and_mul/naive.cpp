/*! evo
[[launch]]
kernel = "silu_and_mul"
args = ["x", "y", "rows", "cols"]
*/
#include <cmath>

extern "C" void silu_and_mul(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++) {
            long long at = (long long)r * cols;
            ACC gate = load(x[2 * at + c]);
            y[at + c] = store(gate / (ACC(1) + std::exp(-gate)) * load(x[2 * at + cols + c]));
        }
    }
}
