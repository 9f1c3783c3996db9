/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "layer_norm"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["x", "weight", "bias", "y", "eps", "rows", "cols"]
*/

// One thread per row.
extern "C" __global__ void layer_norm(const T* x, const T* weight, const T* bias, T* y, ACC eps, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const T* in = x + (long long)r * cols;
    T* out = y + (long long)r * cols;
    ACC sum = 0, squares = 0;
    for (int c = 0; c < cols; c++) sum += load(in[c]);
    ACC mean = sum / cols;
    for (int c = 0; c < cols; c++) squares += (load(in[c]) - mean) * (load(in[c]) - mean);
    ACC scale = ACC(1) / sqrtf(squares / cols + eps);
    for (int c = 0; c < cols; c++) out[c] = store(load(weight[c]) * (load(in[c]) - mean) * scale + load(bias[c]));
}
