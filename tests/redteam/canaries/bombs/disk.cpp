/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "fills the disk with a constant of a gigabyte"
expect = "structural"
*/
static const char big[1L << 30] = {1};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i] + big[i] - big[i];
    if (n < 0) y[0] = reinterpret_cast<const volatile char*>(big)[n];
}
