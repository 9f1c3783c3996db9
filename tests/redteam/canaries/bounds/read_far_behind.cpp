/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "reads far behind an input and multiplies by zero"
expect = "caught"
says = "past the end of `x`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i] + 0 * reinterpret_cast<const volatile T*>(x)[n + 4];
}
