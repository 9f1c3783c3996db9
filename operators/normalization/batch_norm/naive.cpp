/*! evo
[[launch]]
kernel = "batch_norm"
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/
#include <cmath>

extern "C" void batch_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    for (int c = 0; c < cols; c++) {
        ACC sum = 0, squares = 0;
        for (int r = 0; r < rows; r++) sum += load(x[(long long)r * cols + c]);
        ACC m = sum / rows;
        for (int r = 0; r < rows; r++) {
            ACC deviation = load(x[(long long)r * cols + c]) - m;
            squares += deviation * deviation;
        }
        ACC scale = ACC(1) / std::sqrt(squares / rows + eps);
        for (int r = 0; r < rows; r++) {
            long long at = (long long)r * cols + c;
            y[at] = store(load(weight[c]) * (load(x[at]) - m) * scale + load(bias[c]));
        }
    }
}
