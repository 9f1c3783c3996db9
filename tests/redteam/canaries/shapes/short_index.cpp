/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "counts with 16 bits"
expect = "caught"
says = "elements of `y`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (unsigned short i = 0; i < (n < 65536 ? n : n - 65536); i++) y[i] = alpha * x[i] + b[i];
}
