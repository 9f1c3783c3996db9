/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "adds to a local array that it never cleared"
expect = "caught"
says = "out of bounds"
*/
__attribute__((noinline)) static T total(const T* x, T alpha, int i) {
    volatile T frame[64];
    frame[0] = frame[0] + alpha * x[i];  // never cleared
    return frame[0];
}

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = total(x, alpha, i) + b[i];
}
