/*! evo
[tune]
BLOCK = [128, 32, 64, 256, 512, 1024]

[[launch]]
kernel = "rows_reduced"
grid = ["ceil_div(rows, BLOCK)"]
block = ["BLOCK"]
args = ["x", "y", "rows", "cols"]
*/

// One thread per row.
extern "C" __global__ void rows_reduced(const T* x, ACC* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    ACC sum = 0;
    for (int c = 0; c < cols; c++) {
        ACC value = load(x[(long long)r * cols + c]);
        sum += value * value;
    }
    y[r] = sum;
}
