/*! evo
[tune]
BLOCK_X = [32, 8, 16, 64]
BLOCK_Y = [4, 1, 2, 8]
BLOCK_Z = [2, 1, 4]

[[launch]]
kernel = "stencil_3d"
grid = ["ceil_div(nz, BLOCK_X)", "ceil_div(ny, BLOCK_Y)", "ceil_div(nx, BLOCK_Z)"]
block = ["BLOCK_X", "BLOCK_Y", "BLOCK_Z"]
args = ["u", "rate", "v", "nx", "ny", "nz"]
*/

// One thread per point.
extern "C" __global__ void stencil_3d(const T* u, const T* rate, T* v, int nx, int ny, int nz) {
    int i = blockIdx.z * blockDim.z + threadIdx.z;
    int j = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nx || j >= ny || k >= nz) return;
    long long row = nz, plane = row * ny, at = i * plane + j * row + k;
    if (i == 0 || j == 0 || k == 0 || i == nx - 1 || j == ny - 1 || k == nz - 1) {
        v[at] = u[at];
        return;
    }
    ACC middle = load(u[at]);
    ACC around = load(u[at - plane]) + load(u[at + plane]) + load(u[at - row]) + load(u[at + row]);
    around += load(u[at - 1]) + load(u[at + 1]);
    v[at] = store(middle + load(rate[0]) * (around - 6 * middle));
}
