/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "computes whole tiles of 32 and no rest"
expect = "caught"
says = "elements of `y`"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int t = 0; t < n / 32; t++)
        for (int i = 32 * t; i < 32 * t + 32; i++) y[i] = alpha * x[i] + b[i];
}
