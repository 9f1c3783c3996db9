/*! evo
[[launch]]
kernel = "layer_norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
#include <cmath>

extern "C" void layer_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC sum = 0, squares = 0;
        for (int c = 0; c < cols; c++) sum += load(in[c]);
        ACC mean = sum / cols;
        for (int c = 0; c < cols; c++) squares += (load(in[c]) - mean) * (load(in[c]) - mean);
        ACC scale = ACC(1) / std::sqrt(squares / cols + eps);
        for (int c = 0; c < cols; c++) out[c] = store(load(weight[c]) * (load(in[c]) - mean) * scale + load(bias[c]));
    }
}
