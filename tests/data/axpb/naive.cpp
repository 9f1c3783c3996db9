/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/

void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int phase = 0; phase < 64; phase++)
        for (int i = phase; i < n; i += 64) y[i] = store(load(alpha) * load(x[i]) + load(b[i]));
}
