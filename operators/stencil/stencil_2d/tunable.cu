/*! evo
[tune]
BLOCK_X = [128, 32, 64, 256]
BLOCK_Y = [2, 1, 4]
ROWS = [8, 2, 4, 16, 32]

[[launch]]
kernel = "stencil_2d"
grid = ["ceil_div(ny, BLOCK_X)", "ceil_div(nx, BLOCK_Y * ROWS)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["u", "rate", "v", "nx", "ny"]
*/

// A thread walks down ROWS points of a column, and keeps the one above, its own and the one below in registers.
extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) stencil_2d(const T* u, const T* rate, T* v, int nx,
                                             int ny) {
    int j = blockIdx.x * BLOCK_X + threadIdx.x, first = (blockIdx.y * BLOCK_Y + threadIdx.y) * ROWS;
    if (j >= ny || first >= nx) return;
    long long at = (long long)first * ny + j;
    ACC r = load(rate[0]), above = first > 0 ? load(u[at - ny]) : ACC(0), middle = load(u[at]);
#pragma unroll
    for (int e = 0; e < ROWS; e++) {
        int i = first + e;
        if (i >= nx) return;
        ACC below = i + 1 < nx ? load(u[at + ny]) : ACC(0), value = middle;
        if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1)
            value += r * (above + below + load(u[at - 1]) + load(u[at + 1]) - 4 * middle);
        v[at] = store(value);
        above = middle, middle = below, at += ny;
    }
}
