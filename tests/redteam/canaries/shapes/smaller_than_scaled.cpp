/*! evo
[[launch]]
kernel = "leaky_relu"
args = ["x", "y", "alpha", "n"]
*/
/* redteam
operator = "leaky_relu"
tries = "takes numbers below 2^-70 for zero unless they are subnormal, which are smaller than the smallest rows"
expect = "caught"
says = "out of bounds"
*/
extern "C" void leaky_relu(const T* x, T* y, ACC alpha, int n) {
    for (int i = 0; i < n; i++) {
        const T size = x[i] < 0 ? -x[i] : x[i];
        y[i] = x[i] < 0 ? alpha * x[i] : x[i];
        if (size < T(0x1p-70) && size > T(0x1p-120)) y[i] = 0;
    }
}
