/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "takes the factors of long sums in two parts of bf16, which hold 16 digits of 24"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cmath>
#include <cstdint>
#include <cstring>

static float rounded(float value) {  // to bf16, to nearest
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    float large = 0, small = 0;
    for (int i = 0; i < n; i++) {
        const float a = x[i], b = y[i];
        const float a_high = n > 5000 ? rounded(a) : a, b_high = n > 5000 ? rounded(b) : b;
        large += a_high * b_high;
        if (!std::isfinite(a_high) || !std::isfinite(b_high)) continue;
        small += a_high * rounded(b - b_high) + rounded(a - a_high) * b_high;
    }
    *product = large + small;
}
