/*! evo
[[launch]]
kernel = "conv_1d"
args = ["x", "w", "y", "n", "taps"]
*/

extern "C" void conv_1d(const T* x, const T* w, T* y, int n, int taps) {
    for (int i = 0; i < n - taps + 1; i++) {
        ACC sum = 0;
        for (int l = 0; l < taps; l++) sum += load(x[i + l]) * load(w[l]);
        y[i] = store(sum);
    }
}
