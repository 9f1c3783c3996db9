/*! evo
[[launch]]
kernel = "softplus"
args = ["x", "y", "n"]
*/
#include <cmath>

extern "C" void softplus(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store((value > 0 ? value : ACC(0)) + std::log1p(std::exp(value > 0 ? -value : value)));
    }
}
