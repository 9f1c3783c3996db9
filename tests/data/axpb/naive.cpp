/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/

void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (volatile int i = 0; i < n; i = i + 1) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));
}
