/*! evo
[tune]
BLOCK = [128, 32, 64, 256]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[buffer]]
name = "mean"
dtype = "ACC"
shape = ["cols"]

[[buffer]]
name = "scale"
dtype = "ACC"
shape = ["cols"]

[[launch]]
kernel = "moments"
grid = ["ceil_div(cols, BLOCK)"]
block = ["BLOCK"]
args = ["x", "mean", "scale", "eps", "rows", "cols"]

[[launch]]
kernel = "batch_norm"
grid = ["ceil_div(cols, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "weight", "bias", "mean", "scale", "y", "rows", "cols"]
*/

// One thread per column.
extern "C" __global__ void moments(const T* x, ACC* mean, ACC* scale, ACC eps, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    ACC sum = 0, squares = 0;
    for (int r = 0; r < rows; r++) sum += load(x[(long long)r * cols + c]);
    ACC m = sum / rows;
    for (int r = 0; r < rows; r++) {
        ACC deviation = load(x[(long long)r * cols + c]) - m;
        squares += deviation * deviation;
    }
    mean[c] = m;
    scale[c] = ACC(1) / sqrtf(squares / rows + eps);
}

// One thread per element; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void batch_norm(const T* x, const T* weight, const T* bias, const ACC* mean, const ACC* scale,
                                      T* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        long long at = (long long)r * cols + c;
        y[at] = store(load(weight[c]) * (load(x[at]) - mean[c]) * scale[c] + load(bias[c]));
    }
}
