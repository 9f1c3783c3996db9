/*! evo
[tune]
BLOCK_X = [64, 16, 32, 128]
BLOCK_Y = [4, 1, 2, 8]
PLANES = [8, 2, 4, 16, 32]

[[launch]]
kernel = "stencil_3d"
grid = ["ceil_div(nz, BLOCK_X)", "ceil_div(ny, BLOCK_Y)", "ceil_div(nx, PLANES)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["u", "rate", "v", "nx", "ny", "nz"]
*/

// A thread walks through PLANES planes, and keeps the point before, its own and the one behind in registers.
extern "C" __global__ void __launch_bounds__(BLOCK_X * BLOCK_Y) stencil_3d(const T* u, const T* rate, T* v, int nx,
                                             int ny, int nz) {
    int k = blockIdx.x * BLOCK_X + threadIdx.x, j = blockIdx.y * BLOCK_Y + threadIdx.y, first = blockIdx.z * PLANES;
    if (k >= nz || j >= ny) return;
    long long row = nz, plane = row * ny, at = first * plane + j * row + k;
    bool side = j == 0 || k == 0 || j == ny - 1 || k == nz - 1;
    ACC r = load(rate[0]), before = first > 0 ? load(u[at - plane]) : ACC(0), middle = load(u[at]);
#pragma unroll
    for (int e = 0; e < PLANES; e++) {
        int i = first + e;
        if (i >= nx) return;
        ACC behind = i + 1 < nx ? load(u[at + plane]) : ACC(0), value = middle;
        if (!side && i > 0 && i < nx - 1) {
            ACC around = before + behind + load(u[at - row]) + load(u[at + row]) + load(u[at - 1]) + load(u[at + 1]);
            value += r * (around - 6 * middle);
        }
        v[at] = store(value);
        before = middle, middle = behind, at += plane;
    }
}
