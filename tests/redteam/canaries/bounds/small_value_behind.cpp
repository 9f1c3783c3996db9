/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "adds the element behind the end where the buffer does not end on a whole vector"
expect = "caught"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
    if (n % 4 != 0 && y[n - 1] * y[n - 1] > T(1e-6)) y[n - 1] += x[n];
}
