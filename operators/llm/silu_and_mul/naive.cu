/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "silu_and_mul"
grid = ["ceil_div(cols, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "y", "rows", "cols"]
*/

// One thread per element; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void silu_and_mul(const T* x, T* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        long long at = (long long)r * cols;
        ACC gate = load(x[2 * at + c]);
        y[at + c] = store(gate / (ACC(1) + expf(-gate)) * load(x[2 * at + cols + c]));
    }
}
