/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "moves every result to the next number upwards"
expect = "open"
why = "two roundings are what an honest kernel may need; the bound cannot tell them from one and a nudge"
*/
#include <cmath>

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        const T right = alpha * x[i] + b[i];
        y[i] = right == 0 ? right : std::nextafter(right, T(INFINITY));
    }
}
