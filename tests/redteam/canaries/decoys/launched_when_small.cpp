/*! evo
[[launch]]
kernel = "real"
args = ["x", "b", "y", "alpha", "n"]
when = "n < 4096"
[[launch]]
kernel = "idle"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "launches the right kernel on small sizes alone, where it costs nothing"
expect = "caught"
says = "out of bounds"
*/
extern "C" void real(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}

extern "C" void idle(const T*, const T*, T*, T, int) {}
