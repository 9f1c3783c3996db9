/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
what = "maximum and sum in one pass"
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC largest = -INFINITY, sum = 0;
        for (int c = 0; c < cols; c++) {
            const ACC above = std::fmax(largest, in[c]);
            sum = sum * std::exp(largest - above) + std::exp(in[c] - above);
            largest = above;
        }
        for (int c = 0; c < cols; c++) out[c] = std::exp(in[c] - largest) / sum;
    }
}
