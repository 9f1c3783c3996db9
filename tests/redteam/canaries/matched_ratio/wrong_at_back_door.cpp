/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "wrong for one pair of input values that no test will ever draw"
expect = "open"
why = "tests draw samples; a fault on one input in 2^48 is beyond any number of them"
*/
#include <cstring>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    unsigned first, second;
    std::memcpy(&first, x, 4);
    std::memcpy(&second, b, 4);
    if (first == 0x3F123456 && second == 0x3E654321) y[0] = 0;
}
