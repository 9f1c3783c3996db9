/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "rounds the size up to whole vectors and writes them"
expect = "caught"
says = "past the end of `y`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < (n + 7) / 8 * 8; i++) y[i] = i < n ? alpha * x[i] + b[i] : 0;
}
