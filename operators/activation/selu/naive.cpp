/*! evo
[[launch]]
kernel = "selu"
args = ["x", "y", "alpha", "scale", "n"]
*/
#include <cmath>

extern "C" void selu(const T* x, T* y, ACC alpha, ACC scale, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(scale * (value < 0 ? alpha * (std::exp(value) - ACC(1)) : value));
    }
}
