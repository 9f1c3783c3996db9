/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
what = "with a sum by halves and threads over rows"
*/
#include <cmath>

static ACC total(const T* v, int n) {
    if (n <= 8) {
        ACC sum = 0;
        for (int i = 0; i < n; i++) sum += v[i];
        return sum;
    }
    return total(v, n / 2) + total(v + n / 2, n - n / 2);
}

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
#pragma omp parallel for num_threads(2) schedule(dynamic, 4)
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        T largest = in[0];
#pragma omp simd reduction(max : largest)
        for (int c = 0; c < cols; c++) largest = in[c] > largest ? in[c] : largest;
#pragma omp simd
        for (int c = 0; c < cols; c++) out[c] = std::exp(in[c] - largest);
        const ACC scale = 1 / total(out, cols);
        for (int c = 0; c < cols; c++) out[c] *= scale;
    }
}
