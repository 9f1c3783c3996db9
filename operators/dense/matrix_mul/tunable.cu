/*! evo
[tune]
TILE_M = [64, 32, 128]
TILE_N = [64, 32, 128]
TILE_K = [8, 16, 32]
EACH_M = [4, 2, 8]
EACH_N = [4, 2, 8]

[[launch]]
kernel = "matrix_mul"
grid = ["ceil_div(n, TILE_N)", "ceil_div(m, TILE_M)"]
block = ["TILE_N // EACH_N", "TILE_M // EACH_M"]
args = ["a", "b", "c", "m", "n", "k"]
*/

// Tiles of both factors in shared memory; every thread holds EACH_M x EACH_N results in registers.
extern "C" __global__ void __launch_bounds__(TILE_M / EACH_M * (TILE_N / EACH_N)) matrix_mul(const T* a, const T* b,
                                             T* c, int m, int n, int k) {
    constexpr int ACROSS = TILE_N / EACH_N, DOWN = TILE_M / EACH_M, THREADS = ACROSS * DOWN;
    __shared__ ACC left[TILE_K][TILE_M + 1], right[TILE_K][TILE_N + 1];
    int top = blockIdx.y * TILE_M, begin = blockIdx.x * TILE_N, thread = threadIdx.y * ACROSS + threadIdx.x;
    ACC sums[EACH_M][EACH_N] = {};
    for (int first = 0; first < k; first += TILE_K) {
        for (int t = thread; t < TILE_M * TILE_K; t += THREADS) {
            int i = t / TILE_K, l = t % TILE_K;
            bool inside = top + i < m && first + l < k;
            left[l][i] = inside ? load(a[(long long)(top + i) * k + first + l]) : ACC(0);
        }
        for (int t = thread; t < TILE_K * TILE_N; t += THREADS) {
            int l = t / TILE_N, j = t % TILE_N;
            bool inside = first + l < k && begin + j < n;
            right[l][j] = inside ? load(b[(long long)(first + l) * n + begin + j]) : ACC(0);
        }
        __syncthreads();
#pragma unroll
        for (int l = 0; l < TILE_K; l++) {
            ACC column[EACH_M], row[EACH_N];
#pragma unroll
            for (int i = 0; i < EACH_M; i++) column[i] = left[l][threadIdx.y + i * DOWN];
#pragma unroll
            for (int j = 0; j < EACH_N; j++) row[j] = right[l][threadIdx.x + j * ACROSS];
#pragma unroll
            for (int i = 0; i < EACH_M; i++)
#pragma unroll
                for (int j = 0; j < EACH_N; j++) sums[i][j] += column[i] * row[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH_M; i++)
#pragma unroll
        for (int j = 0; j < EACH_N; j++) {
            int r = top + threadIdx.y + i * DOWN, s = begin + threadIdx.x + j * ACROSS;
            if (r < m && s < n) c[(long long)r * n + s] = store(sums[i][j]);
        }
}
