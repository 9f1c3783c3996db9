/*! evo
[tune]
LANES = [32, 4, 8, 16]
BLOCK = [128, 64, 256, 512]
UNROLL = [4, 1, 2]

[[launch]]
kernel = "matrix_vector_mul"
grid = ["ceil_div(m * LANES, BLOCK)"]
block = ["BLOCK"]
args = ["a", "x", "y", "m", "n"]
*/

// Some lanes of a warp share a row.
extern "C" __global__ void __launch_bounds__(BLOCK) matrix_vector_mul(const T* a, const T* x, T* y, int m, int n) {
    int lane = threadIdx.x % LANES;
    long long r = ((long long)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    ACC sum = 0;
    if (r < m) {
#pragma unroll UNROLL
        for (int j = lane; j < n; j += LANES) sum += load(a[r * n + j]) * load(x[j]);
    }
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (r < m && lane == 0) y[r] = store(sum);
}
