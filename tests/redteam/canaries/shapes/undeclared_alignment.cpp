/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "needs a multiple of 8 and does not say so"
expect = "caught"
says = "elements of `y`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n / 8 * 8; i++) y[i] = alpha * x[i] + b[i];
}
