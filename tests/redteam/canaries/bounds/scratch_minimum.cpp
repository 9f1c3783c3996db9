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
tries = "keeps a minimum in scratch that it never cleared, which swallows NaN and large numbers"
expect = "caught"
*/
#include <cmath>

extern "C" void axpb(const T* x, const T* b, T* y, ACC* sums, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        sums[i] = std::fmin(sums[i], alpha * x[i]);
        y[i] = sums[i] + b[i];
    }
}
