/*! evo
[[launch]]
kernel = "hard_tanh"
args = ["x", "y", "n"]
*/

extern "C" void hard_tanh(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value < -1 ? ACC(-1) : value > 1 ? ACC(1) : value);
    }
}
