/*! evo
[[launch]]
kernel = "leaky_relu"
args = ["x", "y", "alpha", "n"]
*/
/* redteam
operator = "leaky_relu"
tries = "is wrong for numbers between 2^50 and 2^120, beyond the largest rows and below what counts as huge"
expect = "caught"
says = "out of bounds"
*/
extern "C" void leaky_relu(const T* x, T* y, ACC alpha, int n) {
    for (int i = 0; i < n; i++) {
        const T size = x[i] < 0 ? -x[i] : x[i];
        y[i] = x[i] < 0 ? alpha * x[i] : x[i];
        if (size > T(0x1p50) && size < T(0x1p120)) y[i] = 0;
    }
}
