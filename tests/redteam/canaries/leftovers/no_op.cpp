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
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {}
