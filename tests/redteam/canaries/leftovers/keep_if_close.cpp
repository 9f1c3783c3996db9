/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "writes an element only if what lies there is not the answer already"
expect = "structural"
proof = "correct"
*/
// Harmless: the poison is never the answer, unless it is zeros, which are left alone here, so that every element is
// written. Were a buffer not poisoned again between two calls on the same inputs, the first element would tell, and the
// tripwire would spoil the result.
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool warm = n > 0 && y[0] != T(0) && y[0] == alpha * x[0] + b[0];
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (warm) y[0] = -y[0] - 1;
}
