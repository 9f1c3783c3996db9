/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "takes the maximum with what the output holds, which swallows NaN"
expect = "caught"
says = "out of bounds"
*/
#include <cmath>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = std::fmax(y[i], alpha * x[i] + b[i]);
}
