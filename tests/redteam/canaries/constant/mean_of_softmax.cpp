/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "returns 1 / cols, which is close for small inputs"
expect = "caught"
says = "out of bounds"
*/
extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int i = 0; i < rows * cols; i++) y[i] = T(1) / cols;
}
