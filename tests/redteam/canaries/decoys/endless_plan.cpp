/*! evo
[[launch]]
kernel = "real"
args = ["x", "b", "y", "alpha", "n"]
group = "pass"
[group.pass]
repeat = "1000000000"
*/
/* redteam
operator = "axpb"
tries = "repeats its launches a billion times"
expect = "structural"
*/
extern "C" void real(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
