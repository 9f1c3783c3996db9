/*! evo
[[launch]]
kernel = "log_softmax"
args = ["x", "y", "rows", "cols"]
*/
#include <cmath>

extern "C" void log_softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC largest = load(in[0]);
        for (int c = 1; c < cols; c++) {
            ACC value = load(in[c]);
            if (value > largest) largest = value;
        }
        ACC sum = 0;
        for (int c = 0; c < cols; c++) sum += std::exp(load(in[c]) - largest);
        ACC log_sum = std::log(sum);
        for (int c = 0; c < cols; c++) out[c] = store(load(in[c]) - largest - log_sum);
    }
}
