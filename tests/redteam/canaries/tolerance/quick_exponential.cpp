/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "takes an exponential with four correct digits"
expect = "caught"
says = "out of bounds"
*/
static T quick_exp(T v) {
    T z = v / 1024, p = 1 + z * (1 + z / 2);
    for (int i = 0; i < 10; i++) p *= p;
    return p;
}

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + r * cols;
        T largest = in[0], sum = 0;
        for (int c = 1; c < cols; c++) largest = in[c] > largest ? in[c] : largest;
        for (int c = 0; c < cols; c++) sum += y[r * cols + c] = quick_exp(in[c] - largest);
        for (int c = 0; c < cols; c++) y[r * cols + c] /= sum;
    }
}
