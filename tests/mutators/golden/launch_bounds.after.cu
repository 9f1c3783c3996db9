/*! evo
[tune]
SIDE = [16, 8, 32]
RESIDENT = [1, 2, 3, 4, 6, 8]

[[launch]]
kernel = "matrix_mul<SIDE>"
grid = ["ceil_div(n, SIDE)", "ceil_div(m, SIDE)"]
block = ["SIDE", "SIDE"]
args = ["a", "b", "c", "m", "n", "k"]
*/
template <int WIDTH>
__global__ void __launch_bounds__(SIDE * SIDE, RESIDENT) matrix_mul(const T* a, const T* b, T* c, int m, int n, int k) {
    __shared__ ACC rows[WIDTH][WIDTH];
    int i = blockIdx.y * WIDTH + threadIdx.y, j = blockIdx.x * WIDTH + threadIdx.x;
    ACC sum = 0;
    for (int l0 = 0; l0 < k; l0 += WIDTH) {
        int l = l0 + threadIdx.x;
        rows[threadIdx.y][threadIdx.x] = i < m && l < k ? load(a[(long long)i * k + l]) : ACC(0);
        __syncthreads();
        int count = k - l0 < WIDTH ? k - l0 : WIDTH;
        for (int q = 0; q < count && j < n; q++) sum += rows[threadIdx.y][q] * load(b[(long long)(l0 + q) * n + j]);
        __syncthreads();
    }
    if (i < m && j < n) c[(long long)i * n + j] = store(sum);
}
