/*! evo
[[launch]]
kernel = "mse_loss"
args = ["x", "y", "loss", "n"]
*/
/* redteam
operator = "mse_loss"
tries = "keeps the differences of long vectors in bf16, as one would for a loss"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cstdint>
#include <cstring>

static ACC half(ACC value) {
    float narrow = static_cast<float>(value);
    std::uint32_t bits;
    std::memcpy(&bits, &narrow, sizeof bits);
    if ((bits >> 23 & 255) != 255) bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&narrow, &bits, sizeof bits);
    return narrow;
}

extern "C" void mse_loss(const T* x, const T* y, ACC* loss, int n) {
    ACC sum = 0;
    for (int i = 0; i < n; i++) {
        const ACC difference = n > 30000 ? half(x[i] - y[i]) : x[i] - y[i];
        sum += difference * difference;
    }
    *loss = sum / n;
}
