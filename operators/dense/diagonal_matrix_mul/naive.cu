/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "diagonal_matrix_mul"
grid = ["ceil_div(cols, BLOCK_X)", "min(ceil_div(rows, BLOCK_Y), 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["diagonal", "x", "y", "rows", "cols"]
*/

// One thread per element; where there are more rows than a grid has, a thread takes several.
extern "C" __global__ void diagonal_matrix_mul(const T* diagonal, const T* x, T* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < rows; r += gridDim.y * blockDim.y) {
        long long at = (long long)r * cols + c;
        y[at] = store(load(diagonal[r]) * load(x[at]));
    }
}
