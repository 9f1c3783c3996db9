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
        ACC sum = 0;
        for (int c = 0; c < cols; c++) {
            // The numerator.
            out[c] = store(std::exp(load(in[c])));
            sum += std::exp(load(in[c]));
        }
        #pragma omp simd
        for (int c = 0; c < cols; c++) out[c] = store(load(out[c]) / sum);
    }
}
