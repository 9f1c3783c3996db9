/*! evo
[[launch]]
kernel = "real); int other(1"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "writes code where the plan wants a name"
expect = "structural"
says = "plain name"
*/
extern "C" void real(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
