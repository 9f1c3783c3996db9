/*! evo
[[launch]]
kernel = "softsign"
args = ["x", "y", "n"]
*/

extern "C" void softsign(const T* x, T* y, int n) {
    for (int i = 0; i < n; i++) {
        ACC value = load(x[i]);
        y[i] = store(value / (ACC(1) + (value < 0 ? -value : value)));
    }
}
