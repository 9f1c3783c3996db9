/*! evo
[tune]
BLOCK_X = [16, 8, 32, 64]
BLOCK_Y = [16, 2, 4, 8]

[[launch]]
kernel = "product"
grid = ["ceil_div(n, BLOCK_X)", "ceil_div(m, BLOCK_Y)"]
block = ["BLOCK_X", "BLOCK_Y"]
args = ["a", "b", "c", "m", "n", "k"]
*/

// One thread per element of the result.
extern "C" __global__ void product(const T* a, const T* b, T* c, int m, int n, int k) {
    int i = blockIdx.y * blockDim.y + threadIdx.y;
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m || j >= n) return;
    ACC sum = 0;
    for (int l = 0; l < k; l++) sum += load(a[(long long)i * k + l]) * load(b[(long long)l * n + j]);
    c[(long long)i * n + j] = store(sum > 0 ? sum : ACC(0));
}
