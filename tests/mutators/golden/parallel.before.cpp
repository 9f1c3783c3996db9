/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + r * cols;
        T* out = y + r * cols;
        ACC largest = load(in[0]);
        for (int c = 1; c < cols; c++) largest = load(in[c]) > largest ? load(in[c]) : largest;
        ACC sum = 0;
        for (int c = 0; c < cols; c++) sum += std::exp(load(in[c]) - largest);
        for (int c = 0; c < cols; c++) out[c] = store(std::exp(load(in[c]) - largest) / sum);
    }
}
