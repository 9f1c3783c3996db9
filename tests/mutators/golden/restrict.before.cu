/*! evo
# One row per thread.
[[launch]]
kernel = "softmax"
grid = ["ceil_div(rows, 128)"]
block = [128]
args = ["x", "y", "rows", "cols"]
*/
extern "C" __global__ void softmax(const T* x, T* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const T* in = x + (long long)r * cols;
    T* out = y + (long long)r * cols;
    ACC sum = 0;
    for (int c = 0; c < cols; c++) sum += expf(load(in[c]));
    for (int c = 0; c < cols; c++) out[c] = store(expf(load(in[c])) / sum);
}
