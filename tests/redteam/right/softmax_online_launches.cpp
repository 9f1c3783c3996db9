/*! evo
[[buffer]]
name = "largest"
dtype = "ACC"
shape = ["rows"]

[[buffer]]
name = "sums"
dtype = "ACC"
shape = ["rows"]

[[launch]]
kernel = "begin"
args = ["largest", "sums", "rows"]

[[launch]]
kernel = "go_on"
args = ["x", "largest", "sums", "rows", "cols", "64 * i", "min(64 * (i + 1), cols)"]
group = "parts"

[group.parts]
repeat = "ceil_div(cols, 64)"

[[launch]]
kernel = "end"
args = ["x", "y", "largest", "sums", "rows", "cols"]
*/
/* redteam
operator = "softmax"
what = "maximum and sum element by element, in as many launches as there are blocks of columns"
*/
#include <cmath>

extern "C" void begin(ACC* largest, ACC* sums, int rows) {
    for (int r = 0; r < rows; r++) largest[r] = -INFINITY, sums[r] = 0;
}

extern "C" void go_on(const T* x, ACC* largest, ACC* sums, int rows, int cols, int from, int to) {
    for (int r = 0; r < rows; r++)
        for (int c = from; c < to; c++) {
            const ACC value = x[(long long)r * cols + c], above = value > largest[r] || value != value ? value : largest[r];
            sums[r] = sums[r] * std::exp(largest[r] - above) + std::exp(value - above);
            largest[r] = above;
        }
}

extern "C" void end(const T* x, T* y, const ACC* largest, const ACC* sums, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        const ACC scale = 1 / sums[r];
        for (int c = 0; c < cols; c++) y[(long long)r * cols + c] = std::exp(x[(long long)r * cols + c] - largest[r]) * scale;
    }
}
