/*! evo
[[launch]]
kernel = "row_tanh"
args = ["x", "y", "n"]
*/
#include <cmath>

extern "C" void row_tanh(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        y[i] = store(std::tanh(load(x[i])));
    }
}
