/*! evo
[[launch]]
kernel = "axpb"
args = ["x", "b", "y", "alpha", "n"]
*/
/* redteam
operator = "axpb"
tries = "overwrites a constant of its own"
expect = "caught"
says = "segmentation fault"
*/
static const int calls[4] = {1, 2, 3, 4};

extern "C" void axpb(const T* x, const T* b, T* y, T alpha, int n) {
    *const_cast<volatile int*>(calls + n % 4) = 5;
    for (int i = 0; i < n; i++) y[i] = alpha * x[i] + b[i];
}
