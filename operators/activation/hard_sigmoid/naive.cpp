/*! evo
[[launch]]
kernel = "hard_sigmoid"
args = ["x", "y", "n"]
*/

extern "C" void hard_sigmoid(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value <= -3 ? ACC(0) : value >= 3 ? ACC(1) : value / 6 + ACC(0.5));
    }
}
