/*! evo
[[launch]]
kernel = "softmax"
args = ["x", "y", "rows", "cols"]
*/
/* redteam
operator = "softmax"
tries = "subtracts the largest of every thirtieth element of a long row: right unless an outlier hides between"
expect = "caught"
says = "out of bounds|rms is"
*/
#include <cmath>

extern "C" void softmax(const T* x, T* y, int rows, int cols) {
    const int step = cols > 2000 ? 30 : 1;
    for (int r = 0; r < rows; r++) {
        const T* row = x + r * cols;
        ACC largest = row[0], sum = 0;
        for (int c = step; c < cols; c += step) largest = row[c] > largest || row[c] != row[c] ? row[c] : largest;
        for (int c = 0; c < cols; c++) sum += y[r * cols + c] = std::exp(row[c] - largest);
        for (int c = 0; c < cols; c++) y[r * cols + c] /= sum;
    }
}
