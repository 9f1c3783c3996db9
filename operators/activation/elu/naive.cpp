/*! evo
[[launch]]
kernel = "elu"
args = ["x", "y", "alpha", "n"]
*/
#include <cmath>

extern "C" void elu(const T* x, T* y, ACC alpha, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value < 0 ? alpha * (std::exp(value) - ACC(1)) : value);
    }
}
