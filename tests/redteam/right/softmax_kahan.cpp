/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
what = "with a compensated sum"
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC largest = in[0], sum = 0, lost = 0;
        for (int c = 1; c < cols; c++) largest = in[c] > largest ? in[c] : largest;
        for (int c = 0; c < cols; c++) {
            const ACC term = (out[c] = std::exp(in[c] - largest)) - lost, next = sum + term;
            lost = (next - sum) - term;
            sum = next;
        }
        for (int c = 0; c < cols; c++) out[c] /= sum;
    }
}
