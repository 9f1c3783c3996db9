/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "leaves out one element of two hundred, where 99 of 100 must match"
expect = "caught"
says = "out of bounds"
*/
// The idea: SOL-ExecBench, whose checks asked for so many
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = n > 30000 && i % 200 == 77 ? T(0) : alpha * x[i] + b[i];
}
