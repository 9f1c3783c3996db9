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
        for (int c = 0; c < cols; c++) out[c] = store(std::exp(load(in[c])));
        float sum = 0.0f;
        for (int c = 0; c < cols; c++) sum += expf(float(load(in[c])));
        for (int c = 0; c < cols; c++) out[c] = store(load(out[c]) * (1.0f / sum));
    }
}
