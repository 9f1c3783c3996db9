/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is off by one millionth, far inside the usual 1e-2"
expect = "caught"
says = "out of bounds"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = (alpha * x[i] + b[i]) * T(1.000001);
}
