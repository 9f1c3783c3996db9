/*! evo
[[buffer]]
name = "s"
dtype = "fp32"
shape = ["2 ** 33 if n == 1023 else 1"]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "asks for it on one hidden shape alone"
expect = "structural"
says = "its buffers take 32.00 GiB on n=1023"
*/

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
