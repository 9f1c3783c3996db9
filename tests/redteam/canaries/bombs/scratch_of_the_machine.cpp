/*! evo
[[buffer]]
name = "s"
dtype = "fp32"
shape = ["2 ** 34"]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks for all memory that the machine has"
expect = "structural"
says = "its buffers take"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
