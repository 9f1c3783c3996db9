/*! evo
[tune]
TILE = [32, 16, 64]
LINES = [8, 4, 16]
PAD = [1, 0, 2]

[[launch]]
kernel = "matrix_transpose"
grid = ["ceil_div(cols, TILE)", "min(ceil_div(rows, TILE), 65535)"]
block = ["TILE", "LINES"]
args = ["x", "y", "rows", "cols"]
*/

// Tiles go through shared memory, so that rows are read and written whole; PAD keeps columns off one bank.
extern "C" __global__ void __launch_bounds__(TILE * LINES) matrix_transpose(const T* x, T* y, int rows, int cols) {
    __shared__ T tile[TILE][TILE + PAD];
    int left = blockIdx.x * TILE;
    for (int top = blockIdx.y * TILE; top < rows; top += gridDim.y * TILE) {
        for (int i = threadIdx.y; i < TILE; i += LINES)
            if (top + i < rows && left + threadIdx.x < cols)
                tile[i][threadIdx.x] = x[(long long)(top + i) * cols + left + threadIdx.x];
        __syncthreads();
        for (int i = threadIdx.y; i < TILE; i += LINES)
            if (left + i < cols && top + threadIdx.x < rows)
                y[(long long)(left + i) * rows + top + threadIdx.x] = tile[threadIdx.x][i];
        __syncthreads();
    }
}
