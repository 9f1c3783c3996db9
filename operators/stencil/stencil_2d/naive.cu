/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "stencil_2d"
grid = ["ceil_div(ny, BLOCK_X)", "ceil_div(nx, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["u", "rate", "v", "nx", "ny"]
*/

// One thread per point.
extern "C" __global__ void stencil_2d(const T* u, const T* rate, T* v, int nx, int ny) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nx || j >= ny) return;
    long long at = (long long)i * ny + j;
    if (i == 0 || j == 0 || i == nx - 1 || j == ny - 1) {
        v[at] = u[at];
        return;
    }
    ACC middle = load(u[at]);
    ACC around = load(u[at - ny]) + load(u[at + ny]) + load(u[at - 1]) + load(u[at + 1]);
    v[at] = store(middle + load(rate[0]) * (around - 4 * middle));
}
