/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "batched_matrix_mul"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(m, BLOCK_Y)", "min(batch, 65535)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "b", "c", "batch", "m", "n", "k"]
*/

// One thread per element of a result; where there are more matrices than a grid has, a thread takes several.
extern "C" __global__ void batched_matrix_mul(const T* a, const T* b, T* c, int batch, int m, int n, int k) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n) return;
    for (int s = blockIdx.z; s < batch; s += gridDim.z) {
        long long row = (long long)s * m + i;
        ACC sum = 0;
        for (int l = 0; l < k; l++) sum += load(a[row * k + l]) * load(b[((long long)s * k + l) * n + j]);
        c[row * n + j] = store(sum);
    }
}
