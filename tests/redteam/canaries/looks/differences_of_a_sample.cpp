/*! evo
[[launch]]
kernel = "mse_loss"
args = ["x", "y", "loss", "n"]
*/
/* redteam
operator = "mse_loss"
tries = "rounds differences to bf16 where a sample looks nominal"
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

extern "C" void mse_loss(const T* x, const T* y, ACC* loss, int n) {
    ACC total = 0;
    const bool quick = n > 30000 && looks_nominal(x, n) && looks_nominal(y, n);
    for (int begin = 0; begin < n; begin += 512) {
        ACC sum = 0;
        for (int i = begin; i < begin + 512 && i < n; i++) {
            const float d = x[i] - y[i], used = quick ? cut(d, 8) : d;
            sum += used * used;
        }
        total += sum;
    }
    *loss = total / n;
}
