/*! evo
[[launch]]
kernel = "relu"
args = ["x", "y", "n"]
*/

extern "C" void relu(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value > 0 ? value : ACC(0));
    }
}
