/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "stencil"
grid = ["ceil_div(ny, BLOCK_X)", "ceil_div(nx, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["u", "v", "nx", "ny"]
*/

// One thread per point.
extern "C" __global__ void stencil(const T* u, T* v, int nx, int ny) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nx || j >= ny) return;
    long long at = (long long)i * ny + j;
    if (i == 0 || j == 0 || i == nx - 1 || j == ny - 1) {
        v[at] = u[at];
    } else {
        ACC sum = load(u[at - ny]) + load(u[at + ny]) + load(u[at - 1]) + load(u[at + 1]);
        v[at] = store(sum / 4);
    }
}
