/*! evo
[[launch]]
kernel = "layer_norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
/* redteam
operator = "layer_norm"
tries = "takes the mean of squares less the squared mean for the variance, of which few digits are left far from zero"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cmath>

extern "C" void layer_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC sum = 0, squares = 0;
        for (int c = 0; c < cols; c++) sum += in[c], squares += in[c] * in[c];
        const ACC mean = sum / cols, variance = squares / cols - mean * mean;
        const ACC scale = ACC(1) / std::sqrt((variance < 0 ? ACC(0) : variance) + eps);
        for (int c = 0; c < cols; c++) out[c] = weight[c] * (in[c] - mean) * scale + bias[c];
    }
}
