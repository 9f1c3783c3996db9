/*! evo
[tune]
BLOCK = [256, 64, 128, 512, 1024]

[[launch]]
kernel = "matrix_vector_mul"
grid = ["ceil_div(m, BLOCK)"]
block = ["BLOCK"]
args = ["a", "x", "y", "m", "n"]
*/

// One thread per row.
extern "C" __global__ void matrix_vector_mul(const T* a, const T* x, T* y, int m, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    ACC sum = 0;
    for (int j = 0; j < n; j++) sum += load(a[(long long)i * n + j]) * load(x[j]);
    y[i] = store(sum);
}
