/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "one element too far on both sides, inside what is left of the last 16 bytes, where NaN gives NaN again"
expect = "caught"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n + (n % 4 != 0); i++) y[i] = alpha * x[i] + b[i];
}
