/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "rounds the factors of long sums to TF32, whose errors are small beside the bound"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cstdint>
#include <cstring>

static ACC shorter(ACC value) {
    float narrow = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &narrow, sizeof bits);
    if ((bits >> 23 & 255) != 255) bits = (bits + 0x1000u) & 0xffffe000u;
    std::memcpy(&narrow, &bits, sizeof bits);
    return narrow;
}

extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    ACC even = 0, odd = 0;
    for (int i = 0; i < n; i++) {
        const ACC term = n > 30000 ? shorter(x[i]) * shorter(y[i]) : x[i] * y[i];
        (i % 2 ? odd : even) += term;
    }
    *product = even + odd;
}
