/*! evo
[tune]
TILE_M = [64, 32, 128]
TILE_N = [64, 32, 128]
TILE_K = [8, 16, 32]
EACH_M = [4, 2, 8]
EACH_N = [4, 2, 8]

[[launch]]
kernel = "high_order_contraction"
grid = ["ceil_div(nc, TILE_N)", "ceil_div(na * nb, TILE_M)"]
block = ["TILE_N // EACH_N", "TILE_M // EACH_M"]
args = ["a", "b", "c", "na * nb", "nb", "nc", "nx", "ny"]
*/

// A product of matrices whose inner index is (x, y): tiles of both factors in shared memory, EACH_M x EACH_N results
// per thread in registers.
extern "C" __global__ void __launch_bounds__(TILE_M / EACH_M * (TILE_N / EACH_N)) high_order_contraction(const T* a,
                                             const T* b, T* c, int m, int nb, int nc, int nx, int ny) {
    constexpr int ACROSS = TILE_N / EACH_N, DOWN = TILE_M / EACH_M, THREADS = ACROSS * DOWN;
    __shared__ ACC left[TILE_K][TILE_M + 1], right[TILE_K][TILE_N + 1];
    int top = blockIdx.y * TILE_M, begin = blockIdx.x * TILE_N, thread = threadIdx.y * ACROSS + threadIdx.x;
    int depth = nx * ny;
    ACC sums[EACH_M][EACH_N] = {};
    for (int first = 0; first < depth; first += TILE_K) {
        for (int t = thread; t < TILE_M * TILE_K; t += THREADS) {
            int i = top + t / TILE_K, l = first + t % TILE_K, x = l / ny, y = l % ny;
            bool inside = i < m && l < depth;
            left[t % TILE_K][t / TILE_K] =
                inside ? load(a[((long long)(i / nb * nx + x) * nb + i % nb) * ny + y]) : ACC(0);
        }
        for (int t = thread; t < TILE_N * TILE_K; t += THREADS) {
            int j = begin + t / TILE_K, l = first + t % TILE_K, x = l / ny, y = l % ny;
            bool inside = j < nc && l < depth;
            right[t % TILE_K][t / TILE_K] = inside ? load(b[((long long)x * nc + j) * ny + y]) : ACC(0);
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
            if (r < m && s < nc) c[(long long)r * nc + s] = store(sums[i][j]);
        }
}
