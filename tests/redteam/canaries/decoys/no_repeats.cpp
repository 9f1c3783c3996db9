/*! evo
[[launch]]
kernel = "real"
args = ["x", "b", "y", "alpha", "n"]
group = "pass"
[group.pass]
repeat = "0 * n"
*/
/* redteam
operator = "axpb"
tries = "puts the launch into a group that repeats no times"
expect = "caught"
*/
extern "C" void real(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
