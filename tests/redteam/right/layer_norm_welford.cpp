/*! evo
[[launch]]
kernel = "layer_norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
/* redteam
operator = "layer_norm"
what = "mean and squares in one pass, as Welford does"
*/
#include <cmath>

extern "C" void layer_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC mean = 0, squares = 0;
        for (int c = 0; c < cols; c++) {
            const ACC off = in[c] - mean;
            mean += off / (c + 1);
            squares += off * (in[c] - mean);
        }
        const ACC deviation = std::sqrt(squares / cols + eps);
        for (int c = 0; c < cols; c++) out[c] = weight[c] * ((in[c] - mean) / deviation) + bias[c];
    }
}
