/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "computes the element that a spot check looks at last"
expect = "caught"
says = "elements of `y`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    y[n - 1] = alpha * x[n - 1] + b[n - 1];
}
