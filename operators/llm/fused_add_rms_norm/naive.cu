/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "fused_add_rms_norm"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["x", "residual", "weight", "eps", "rows", "cols"]
*/

// One thread per row.
extern "C" __global__ void fused_add_rms_norm(T* x, T* residual, const T* weight, ACC eps, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    T* row = x + (long long)r * cols;
    T* kept = residual + (long long)r * cols;
    ACC sum = 0;
    for (int c = 0; c < cols; c++) {
        ACC value = load(row[c]) + load(kept[c]);
        sum += value * value;
    }
    ACC scale = ACC(1) / sqrtf(sum / cols + eps);
    for (int c = 0; c < cols; c++) {
        ACC value = load(row[c]) + load(kept[c]);
        kept[c] = store(value);
        row[c] = store(value * scale * load(weight[c]));
    }
}
