/*! evo
[[launch]]
kernel = "transpose"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "matrix_transpose"
tries = "writes one and the same NaN for every NaN"
expect = "caught"
says = "bit by bit"
*/
#include <cmath>
extern "C" void transpose(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            const T value = x[(long long)r * cols + c];
            y[(long long)c * rows + r] = std::isnan(value) ? T(NAN) : value;
        }
}
