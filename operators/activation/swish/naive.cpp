/*! evo
[[launch]]
kernel = "swish"
args = ["x", "y", "n"]
*/
#include <cmath>

extern "C" void swish(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value / (ACC(1) + std::exp(-value)));
    }
}
