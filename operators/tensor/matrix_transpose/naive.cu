/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "matrix_transpose"
grid = ["ceil_div(cols, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["x", "y", "rows", "cols"]
*/

// One thread per element; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void matrix_transpose(const T* x, T* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        y[(long long)c * rows + r] = x[(long long)r * cols + c];
    }
}
