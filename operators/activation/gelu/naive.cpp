/*! evo
[[launch]]
kernel = "gelu"
args = ["x", "y", "n"]
*/
#include <cmath>

extern "C" void gelu(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(ACC(0.5) * value * (ACC(1) + std::erf(value * ACC(0.70710678118654752440))));
    }
}
