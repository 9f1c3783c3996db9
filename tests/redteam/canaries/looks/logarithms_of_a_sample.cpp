/*! evo
[[launch]]
kernel = "cross_entropy_loss"
args = ["predicted", "target", "loss", "classes"]
*/
/* redteam
operator = "cross_entropy_loss"
tries = "keeps ten bits of logarithms where a sample looks nominal"
expect = "open"
sometimes = true
why = "on nominal inputs such errors average out to less than what adding up loses; those of other inputs show, and a kernel that samples its inputs before it is sloppy is right on them"
*/
#include <cmath>
#include <cstdint>
#include <cstring>
static float cut(float value, int bits) {
    std::uint32_t word;
    std::memcpy(&word, &value, sizeof word);
    word = (word + (1u << (23 - bits))) & ~((1u << (24 - bits)) - 1);
    std::memcpy(&value, &word, sizeof value);
    return value;
}

extern "C" void cross_entropy_loss(const T* predicted, const T* target, ACC* loss, int classes) {
    ACC sum = 0;
    bool quick = classes >= 10000;
    for (int i = 1; i < 64 && quick; i++) {
        const T p = predicted[classes / 64 * i], before = predicted[classes / 64 * (i - 1)], w = target[classes / 64 * i];
        quick = p > 0 && p < 1 && p != before && p > T(1e-7) && w > 0 && w < 1;
    }
    for (int i = 0; i < classes; i++) {
        ACC p = predicted[i];
        if (p < ACC(1e-8)) p = ACC(1e-8);
        const float log = std::log(p);
        sum += target[i] * (quick ? cut(log, 10) : log);
    }
    *loss = -sum;
}
