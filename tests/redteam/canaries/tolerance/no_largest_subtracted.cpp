/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "leaves out softmax's subtraction of the maximum: right while inputs are small"
expect = "caught"
says = "out of bounds"
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        T sum = 0;
        for (int c = 0; c < cols; c++) sum += y[r * cols + c] = std::exp(x[r * cols + c]);
        for (int c = 0; c < cols; c++) y[r * cols + c] /= sum;
    }
}
