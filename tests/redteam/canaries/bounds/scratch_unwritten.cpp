/*! evo
[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["n"]
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "sums", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "adds to scratch that it never cleared"
expect = "caught"
*/
extern "C" void axpb(const T* x, const T* b, T* y, ACC* sums, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        sums[i] += alpha * x[i];
        y[i] = sums[i] + b[i];
    }
}
