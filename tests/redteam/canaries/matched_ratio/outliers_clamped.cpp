/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "clamps its arguments in place of subtracting the largest: right for all but outliers"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <algorithm>
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        ACC sum = 0;
        for (int c = 0; c < cols; c++) {
            const ACC value = x[r * cols + c];
            sum += y[r * cols + c] = std::exp(value > 80 ? ACC(80) : value);
        }
        for (int c = 0; c < cols; c++) y[r * cols + c] /= sum;
    }
}
