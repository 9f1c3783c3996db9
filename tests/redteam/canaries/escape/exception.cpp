/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "throws through the runner"
expect = "structural"
says = "exception handling disabled"
*/
struct Oops {};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    const bool worked = (throw Oops(), true);
    for (int i = 0; i < n; i++) y[i] = worked ? alpha * x[i] + b[i] : 0;
}
