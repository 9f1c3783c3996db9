/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "NaN everywhere, for comparisons that are false for it"
expect = "caught"
says = "out of bounds"
*/
// The idea: pygpubench, pull request 7: expected results made NaN, which its check took for equal to anything
#include <cmath>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = NAN;
}
