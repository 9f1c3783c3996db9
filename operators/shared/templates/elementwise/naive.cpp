/*! evo
[[launch]]
kernel = "elementwise"
args = ["x", "y", "n"]
*/

// Plain and right: every search begins here, and all others are compared with it.
extern "C" void elementwise(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value * value + ACC(1));
    }
}
