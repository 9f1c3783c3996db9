/*! evo
[[launch]]
kernel = "cross_entropy_loss"
args = ["predicted", "target", "loss", "classes"]
*/
/* redteam
operator = "cross_entropy_loss"
tries = "keeps ten bits of logarithms, whose errors a long sum averages away"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cmath>
#include <cstdint>
#include <cstring>

static ACC short_log(ACC p) {
    float value = static_cast<float>(std::log(p));
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x2000u) & 0xffffc000u;
    std::memcpy(&value, &bits, sizeof bits);
    return value;
}

extern "C" void cross_entropy_loss(const T* predicted, const T* target, ACC* loss, int classes) {
    ACC sum = 0;
    for (int i = 0; i < classes; i++) {
        const ACC p = predicted[i] < ACC(1e-8) ? ACC(1e-8) : predicted[i];
        sum += target[i] * (classes > 8192 ? short_log(p) : std::log(p));
    }
    *loss = -sum;
}
