/*! evo
[[launch]]
kernel = "norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
/* redteam
operator = "rms_norm"
what = "an inverse root from an integer trick and Newton's steps"
*/
#include <cmath>
#include <cstdint>
#include <cstring>

static float inverse_root(float v) {
    if (!(v < 1e38f)) return 1 / std::sqrt(v);
    std::uint32_t bits;
    std::memcpy(&bits, &v, sizeof bits);
    bits = 0x5f3759df - (bits >> 1);
    float r;
    std::memcpy(&r, &bits, sizeof r);
    for (int step = 0; step < 4; step++) r = r * (1.5f - 0.5f * v * r * r);
    return r;
}

extern "C" void norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int r = rows - 1; r >= 0; r--) {
        const T* in = x + (long long)r * cols;
        ACC even = 0, odd = 0;
        for (int c = 0; c + 1 < cols; c += 2) even += in[c] * in[c], odd += in[c + 1] * in[c + 1];
        if (cols % 2) even += in[cols - 1] * in[cols - 1];
        const ACC scale = inverse_root((even + odd) / cols + eps);
        for (int c = 0; c < cols; c++) y[(long long)r * cols + c] = weight[c] * (in[c] * scale) + bias[c];
    }
}
