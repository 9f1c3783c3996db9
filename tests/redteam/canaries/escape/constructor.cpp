/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "runs code while it is loaded, before any clock"
expect = "structural"
says = "@LOADED@"
*/
__attribute__((constructor)) static void early() { __builtin_trap(); }

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
