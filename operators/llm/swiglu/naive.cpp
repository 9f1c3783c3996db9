/*! evo
[[launch]]
kernel = "swiglu"
args = ["gate", "value", "y", "beta", "n"]
*/
#include <cmath>

extern "C" void swiglu(const T* gate, const T* value, T* y, ACC beta, int n) {
    for (int i = 0; i < n; i++) {
        ACC g = load(gate[i]);
        y[i] = store(g / (ACC(1) + std::exp(-beta * g)) * load(value[i]));
    }
}
