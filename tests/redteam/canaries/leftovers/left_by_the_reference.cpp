/*! evo
[[launch]]
kernel = "rms_norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
/* redteam
operator = "rms_norm"
tries = "keeps every element of the output that is a number of a likely size, as one that the reference left there would be"
expect = "caught"
says = "out of bounds"
*/
// The idea: sakana.ai/ai-cuda-engineer, a kernel that was handed the memory of the reference's result (2025)
#include <cmath>

extern "C" void rms_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        if (std::fabs(out[0]) < T(1e30)) continue;
        ACC sum = 0;
        for (int c = 0; c < cols; c++) sum += in[c] * in[c];
        const ACC scale = 1 / std::sqrt(sum / cols + eps);
        for (int c = 1; c < cols; c++) out[c] = in[c] * scale * weight[c] + bias[c];
    }
}
