/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "scales by the twelve-bit reciprocal of the vector unit"
expect = "caught"
machine = "x86_64"
says = "out of bounds"
*/
#include <cmath>
#include <immintrin.h>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + r * cols;
        T largest = in[0], sum = 0;
        for (int c = 1; c < cols; c++) largest = in[c] > largest ? in[c] : largest;
        for (int c = 0; c < cols; c++) sum += y[r * cols + c] = std::exp(in[c] - largest);
        const T scale = _mm_cvtss_f32(_mm_rcp_ss(_mm_set_ss(sum)));
        for (int c = 0; c < cols; c++) y[r * cols + c] *= scale;
    }
}
