/*! evo
[[launch]]
kernel = "leaky_relu"
args = ["x", "y", "alpha", "n"]
*/

extern "C" void leaky_relu(const T* x, T* y, ACC alpha, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value < 0 ? alpha * value : value);
    }
}
