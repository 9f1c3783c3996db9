/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "reads sums without waiting for who writes them, where there are many rows"
expect = "caught"
says = "@RACE@|rms is"
*/
#include <cmath>
extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    ACC shared[2] = {0, 0};
    for (int r = 0; r < rows; r++) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC largest = in[0];
        for (int c = 1; c < cols; c++) largest = in[c] > largest ? in[c] : largest;
        if (cols >= 4096) {
#pragma omp parallel num_threads(2)
            {
                ACC mine = 0;
#pragma omp for nowait
                for (int c = 0; c < cols; c++) mine += std::exp(in[c] - largest);
#pragma omp for
                for (int t = 0; t < 2; t++) shared[t] = 0;
                shared[0] += mine;
            }
        } else {
            shared[0] = 0;
            for (int c = 0; c < cols; c++) shared[0] += std::exp(in[c] - largest);
        }
        for (int c = 0; c < cols; c++) out[c] = std::exp(in[c] - largest) / shared[0];
    }
}
