/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "log_softmax"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols"]
*/

// One thread per row.
extern "C" __global__ void log_softmax(const T* x, T* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    const T* in = x + (long long)r * cols;
    T* out = y + (long long)r * cols;
    ACC largest = load(in[0]);
    for (int c = 1; c < cols; c++) {
        ACC value = load(in[c]);
        if (value > largest) largest = value;
    }
    ACC sum = 0;
    for (int c = 0; c < cols; c++) sum += expf(load(in[c]) - largest);
    ACC log_sum = logf(sum);
    for (int c = 0; c < cols; c++) out[c] = store(load(in[c]) - largest - log_sum);
}
