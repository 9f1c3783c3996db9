/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "infinity over infinity where sums overflow"
expect = "caught"
says = "out of bounds"
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        T product = 1, sum = 0;
        for (int c = 0; c < cols; c++) product *= 1 + std::exp(x[r * cols + c]) * T(1e-30) * T(1e30);
        for (int c = 0; c < cols; c++) sum += std::exp(x[r * cols + c]);
        for (int c = 0; c < cols; c++) y[r * cols + c] = std::exp(x[r * cols + c]) * product / (sum * product);
    }
}
