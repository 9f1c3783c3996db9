/*! evo
[[launch]]
kernel = "rope"
args = ["x", "y", "base", "rows", "pairs"]
*/
#include <cmath>

extern "C" void rope(const T* x, T* y, ACC base, int rows, int pairs) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < pairs; c++) {
            ACC angle = r * std::pow(base, -ACC(c) / pairs);
            long long at = 2 * ((long long)r * pairs + c);
            ACC even = load(x[at]), odd = load(x[at + 1]);
            ACC cosine = std::cos(angle), sine = std::sin(angle);
            y[at] = store(even * cosine - odd * sine);
            y[at + 1] = store(even * sine + odd * cosine);
        }
    }
}
