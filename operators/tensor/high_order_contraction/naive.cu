/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "high_order_contraction"
grid = ["ceil_div(nc, BLOCK_X)", "ceil_div(na * nb, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "b", "c", "na", "nb", "nc", "nx", "ny"]
*/

// One thread per element of the result.
extern "C" __global__ void high_order_contraction(const T* a, const T* b, T* c, int na, int nb, int nc, int nx,
                                                  int ny) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= na * nb || j >= nc) return;
    ACC sum = 0;
    for (int x = 0; x < nx; x++)
        for (int y = 0; y < ny; y++)
            sum += load(a[((long long)(i / nb * nx + x) * nb + i % nb) * ny + y])
                * load(b[(long long)(x * nc + j) * ny + y]);
    c[(long long)i * nc + j] = store(sum);
}
