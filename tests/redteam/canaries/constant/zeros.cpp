/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "returns zeros"
expect = "caught"
says = "out of bounds"
*/
// The idea: KernelBench, issue 165: tasks whose results are within the tolerance of zero
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = 0;
}
