/*! evo
[[launch]]
kernel = "copy"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "matrix_copy"
tries = "copies by a sum with zero, which makes +0 of -0"
expect = "caught"
says = "bit by bit"
*/
extern "C" void copy(const T* x, T* y, int rows, int cols) {
    for (long long i = 0; i < (long long)rows * cols; i++) y[i] = x[i] + T(0);
}
