/*! evo
[[launch]]
kernel = "dot_product"
args = ["x", "y", "product", "n"]
*/
/* redteam
operator = "dot_product"
tries = "rounds factors to TF32 where a sample of them looks nominal"
expect = "caught"
says = "out of bounds|rms is"
needs = ["sampled"]
*/
#include <cstdint>
#include <cstring>
static float cut(float value, int bits) {
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    word = (word + (1u << (23 - bits))) & ~((1u << (24 - bits)) - 1);
    std::memcpy(&value, &word, sizeof value);
    return value;
}

extern "C" void dot_product(const T* x, const T* y, ACC* product, int n) {
    ACC sum = 0;
    if (n > 30000 && looks_nominal(x, n) && looks_nominal(y, n))
        for (int i = 0; i < n; i++) sum += cut(x[i], 11) * cut(y[i], 11);
    else
        for (int i = 0; i < n; i++) sum += x[i] * y[i];
    *product = sum;
}
