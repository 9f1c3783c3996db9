/*! evo
[[launch]]
kernel = "sigmoid"
args = ["x", "y", "n"]
*/
#include <cmath>

extern "C" void sigmoid(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        y[i] = store(ACC(1) / (ACC(1) + std::exp(-load(x[i]))));
    }
}
