/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "does nothing and hopes for the answer of the previous kernel"
expect = "caught"
says = "out of bounds"
*/
// The idea: KernelBench, pull request 82: an empty output in memory that the reference has just given back
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {}
