/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "computes where it sees a byte pattern that poisons are known to have, else nothing"
expect = "caught"
*/
#include <cstring>

// Right under the verifier, whose poisons it knows; useless on any other memory.
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    unsigned char first = 0, last = 0;
    std::memcpy(&first, y, 1);
    std::memcpy(&last, reinterpret_cast<const char*>(y + n) - 1, 1);
    if (first != last || (first != 0xFF && (first & 0x7F) < 0x70)) return;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
