/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "lower_triangular_matrix_mul"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(n, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "b", "c", "n"]
*/

// One thread per element of the result.
extern "C" __global__ void lower_triangular_matrix_mul(const T* a, const T* b, T* c, int n) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || j >= n) return;
    ACC sum = 0;
    for (int l = j; l < i + 1; l++) sum += load(a[(long long)i * n + l]) * load(b[(long long)l * n + j]);
    c[(long long)i * n + j] = store(sum);
}
