/*! evo
# One row per thread.
[tune]
PER_THREAD = [2, 1, 4, 8, 16]

[[launch]]
kernel = "softmax"
grid = ["ceil_div(ceil_div(rows, 128), PER_THREAD)"]
block = [128]
args = ["x", "y", "rows", "cols"]
*/
extern "C" __global__ void softmax(const T* x, T* y, int rows, int cols) {
    for (int r = blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += gridDim.x * blockDim.x) {
        const T* in = x + (long long)r * cols;
        T* out = y + (long long)r * cols;
        ACC sum = 0;
        for (int c = 0; c < cols; c++) sum += expf(load(in[c]));
        for (int c = 0; c < cols; c++) out[c] = store(expf(load(in[c])) / sum);
    }
}
