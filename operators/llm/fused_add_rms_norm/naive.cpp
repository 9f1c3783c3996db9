/*! evo
[[launch]]
kernel = "fused_add_rms_norm"
args = ["x", "residual", "weight", "eps", "rows", "cols"]
*/
#include <cmath>

extern "C" void fused_add_rms_norm(T* x, T* residual, const T* weight, ACC eps, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        T* row = x + (long long)r * cols;
        T* kept = residual + (long long)r * cols;
        ACC sum = 0;
        for (int c = 0; c < cols; c++) {
            ACC value = load(row[c]) + load(kept[c]);
            sum += value * value;
        }
        ACC scale = ACC(1) / std::sqrt(sum / cols + eps);
        for (int c = 0; c < cols; c++) {
            ACC value = load(row[c]) + load(kept[c]);
            kept[c] = store(value);
            row[c] = store(value * scale * load(weight[c]));
        }
    }
}
