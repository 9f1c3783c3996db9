/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is right on small sizes and sloppy on the large ones that are timed"
expect = "caught"
says = "out of bounds"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = n > 30000 && i % 4096 == 4095 ? b[i] : alpha * x[i] + b[i];
}
