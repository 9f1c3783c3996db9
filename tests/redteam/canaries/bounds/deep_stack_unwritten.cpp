/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "the same one megabyte further down, once per call, where fresh pages are zero"
expect = "caught"
*/
__attribute__((noinline)) static T total(const T* x, T alpha) {
    volatile T frame[1 << 18];
    frame[0] = frame[0] + alpha * x[0];  // never cleared
    return frame[0];
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    y[0] = total(x, alpha) + b[0];
}
