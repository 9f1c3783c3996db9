/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "a single NaN, for maxima and means that skip it"
expect = "caught"
says = ": 1 of "
*/
#include <cmath>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    y[n / 3] = NAN;
}
