/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "is wrong for numbers between 2^20 and 2^60, which are larger than most and no outliers"
expect = "caught"
says = "out of bounds|rms is"
*/
extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) {
        const T size = x[i] < 0 ? -x[i] : x[i];
        y[i] = alpha * x[i] + b[i];
        if (size > T(1048576) && size < T(1152921504606846976)) y[i] = 0;
    }
}
