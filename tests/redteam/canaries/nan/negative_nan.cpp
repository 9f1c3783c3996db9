/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "NaN with its sign bit set and another payload"
expect = "caught"
says = "out of bounds"
*/
#include <cmath>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = -__builtin_nanf("0x1234");
}
